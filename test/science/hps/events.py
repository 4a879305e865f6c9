# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Cases of the experiment hps in which something else than the speed of a round is asked for: the loss, plans that need not be, workers that come and
go, CPU quotas, memory."""

import functools
import json
import os
import signal
import statistics
import subprocess
import sys
import time

import bed as beds
from experiment import TOP, Experiment, lengths, settled

sys.path.append(os.path.join(TOP, "usertools", "examples", "hps"))
# pylint: disable=wrong-import-position
from cgroups import Cgroups, NoCgroups

EQUAL = {"speeds": (1, 1, 1, 1), "mbit": 1000, "burst": 256 << 10}
UNEQUAL = {"speeds": (4, 2, 2, 1), "slots": 36, "mbit": 1000, "burst": 256 << 10}
SECOND = 1.0  # without a round: that is a stop


class Groups(Cgroups):
    """For processes that run already."""

    def put(self, i, pid, controller):
        with open(os.path.join(self.folder(i, controller), "cgroup.procs"), "w", encoding="ascii") as f:
            f.write(str(pid))

    def start(self, bed, who, cmd, log, stdout, env):
        """As Bed.start(), with all of its memory in its cgroup: what a process has already is not moved with it (v1). Under `ip netns exec`, which has a
        /sys of its own, a process would not see its limits."""
        with open(log, "ab") as err:
            child = subprocess.Popen(["/bin/sh", "-c", 'echo $$ >"$0" && exec "$@"', os.path.join(self.folder(int(who[1:]), "memory"), "cgroup.procs"),
                                      "nsenter", f"--net=/run/netns/{bed.ns(who)}", *cmd], stdin=subprocess.DEVNULL, stdout=stdout, stderr=err, env={**os.environ, **env})
        bed.running.append(child)
        return child

    def as_many(self):
        """Beside processes of no cgroup they have the weight of so many (v1; the kernel gives a cgroup that of one)."""
        if not self.v2:
            with open(os.path.join(os.path.dirname(self.folder(0, "cpu")), "cpu.shares"), "w", encoding="ascii") as f:
                f.write(str(1024 * self.n))


def one_digest(what, digests):
    if len(set(digests)) != 1:
        raise RuntimeError(f"{what}: parameters at the end differ: {sorted(set(digests))}")


def loss_case(args, scratch):
    """Rounds to a loss. Links are fast and slots short: the loss depends on no time."""
    e = Experiment(args, UNEQUAL, scratch)
    rounds, seeds, slot = (16, 1, 0.004) if args.quick else (args.loss_rounds, args.seeds, 0.008)
    sides = {"equal": ("equal", 0.0), "ahead=0.5": ("plan", 0.5), "ahead=1": ("plan", 1.0)}
    rows = {side: [] for side in sides}
    with e.bed() as bed:
        box = e.box(bed)
        try:
            for seed in range(seeds):
                for side, (what, ahead) in sides.items():
                    got = e.job(bed, box, what, rounds, slot, ahead=ahead, more=["--losses", "--seed", seed])
                    one_digest(f"{side}, seed {seed}", [g["digest"] for g in got])
                    losses = got[0]["losses"]
                    needed = next((r + 1 for r, x in enumerate(losses) if x <= args.target), None)
                    rows[side].append({"seed": seed, "rounds": needed, "losses": losses, "slots": [g["slots"][-1] for g in got], "late": sum(g["late"] for g in got)})
                    beds.say(f"  loss, seed {seed}, {side}: {needed} rounds to {args.target}, {losses[-1]:.5f} after {len(losses)}; slots {rows[side][-1]['slots']}")
        finally:
            box.stop()
    return {"target": args.target, "most": rounds, "rows": rows}


def loss_table(d):
    lines = [f"| to a loss of {d['target']}, {len(d['rows']['equal'])} seeds | rounds, mean (least to most) | of the equal split's |", "|---|---|---|"]
    for side, of_side in d["rows"].items():
        got, base = [x["rounds"] for x in of_side], [x["rounds"] for x in d["rows"]["equal"]]
        if all(got):
            times = f"{statistics.mean(a / b for a, b in zip(got, base)):.3f}" if all(base) else "-"
            lines.append(f"| {side} | {statistics.mean(got):.0f} ({min(got)} to {max(got)}) | {times} |")
        else:
            lines.append(f"| {side} | {got.count(None)} of {len(got)} not within {d['most']} rounds | - |")
    return lines


def quiet_case(args, scratch):
    """Equal workers for long: no plan is due."""
    case = {**EQUAL, "slots": 16, "mbit": 100, "burst": 32 << 10}
    e = Experiment(args, case, scratch)
    rounds, slot = (20, 0.01) if args.quick else (args.quiet_long, 0.012)
    with e.bed() as bed:
        box = e.box(bed)
        try:
            ms, rows = {}, {}
            for what in ("equal", "plan"):
                got = rows[what] = e.job(bed, box, what, rounds, slot)
                one_digest(f"quiet, {what}", [g["digest"] for g in got])
                ms[what] = settled(got, rounds // 10) * 1e3
        finally:
            box.stop()
    plans = max(max(g["plans"]) for g in rows["plan"])
    owners = {tuple(g["slots"]) for g in rows["plan"]}
    result = {"rounds": rounds, "equal_ms": ms["equal"], "plan_ms": ms["plan"], "plans": plans, "changed": len(owners) > 1 or len(set(next(iter(owners)))) > 1,
              "longest_ms": {w: max(lengths(g[0]["ends"])) * 1e3 for w, g in rows.items()}, "late": sum(g["late"] for g in rows["plan"]), "load": os.getloadavg()[0],
              "loss_difference": abs(rows["plan"][0]["loss"] / rows["equal"][0]["loss"] - 1)}
    beds.say(f"  quiet: {plans} plans in {rounds} rounds; {ms['equal']:.1f} ms a round by equal split, {ms['plan']:.1f} by plan; {result['late']} slots were late")
    return result


def quiet_table(d):
    return [f"| four equal workers, {d['rounds']} rounds | ms a round | new plans | loss differs |", "|---|---|---|---|",
            f"| equal split | {d['equal_ms']:.1f} | | |", f"| by plan | {d['plan_ms']:.1f} | {d['plans']} | {100 * d['loss_difference']:.3f} % |"]


class Comers:
    """Workers that come and go, each by itself."""

    def __init__(self, e, bed, box, rounds, slot):
        self.e, self.bed, self.box, self.rounds, self.slot = e, bed, box, rounds, slot
        self.children, self.all = [], []
        e.jobs += 1

    def start(self, n):
        """Into the namespaces that are free."""
        for _ in range(n):
            place = next(i for i in range(self.e.workers) if i not in [p for p, _, _ in self.children])
            path = os.path.join(self.e.scratch, f"comer{len(self.all)}")
            with open(path, "wb") as f:
                child = self.bed.start(f"w{place}", self.e.words(self.box, "plan", self.rounds, self.slot, ["--least", 4, "--tell"]), log=path + ".log", stdout=f,
                                       env=self.e.env())
            self.children.append((place, child, path))
            self.all.append((child, path))

    def leave(self, n):
        """Those that have been there longest."""
        for _, child, _ in self.children[:n]:
            child.send_signal(signal.SIGTERM)
        for _, child, _ in self.children[:n]:
            child.wait(60)
        del self.children[:n]

    def ends(self):
        """{round: when it had ended at the first worker}"""
        ends = {}
        for _, path in self.all:
            for words in map(str.split, self.text(path).splitlines()):
                if words[:1] == ["end"] and len(words) == 3:
                    ends[int(words[1])] = min(float(words[2]), ends.get(int(words[1]), 1e18))
        return ends

    @staticmethod
    def text(path):
        with open(path, encoding="utf-8") as f:
            text = f.read()
        return text[:text.rfind("\n") + 1]

    def await_rounds(self, more, begun=0):
        """So many rounds more, after the last `begun` workers have all ended one."""
        until = time.monotonic() + 300
        paths = [p for _, _, p in self.children[-begun:]] if begun else []
        while not all("end " in self.text(p) for p in paths):
            self.check(until)
        last = max(self.ends(), default=0) + more
        while max(self.ends(), default=0) < last:
            self.check(until)

    def check(self, until):
        for _, child, path in self.children:
            if child.poll() is not None or time.monotonic() > until:
                with open(path + ".log", encoding="utf-8", errors="replace") as f:
                    raise RuntimeError(f"a worker that should be there: status {child.returncode}: {f.read()[-2000:]}")
        time.sleep(0.02)

    def finish(self):
        """What those that are there at the end have printed."""
        got = []
        for _, child, path in self.children:
            child.wait(300)
            if child.returncode != 0:
                with open(path + ".log", encoding="utf-8", errors="replace") as f:
                    raise RuntimeError(f"a worker: status {child.returncode}: {f.read()[-2000:]}")
            got.append(json.loads(self.text(path).splitlines()[-1]))
        return got

    def stop(self):
        for _, child, _ in self.children:
            self.bed.end(child)


def joins_case(args, scratch):
    """4 workers, 2, 8, 4 while the training runs; the bits are those of one in which nobody comes or goes."""
    case = {**EQUAL, "speeds": (1,) * 8, "slots": 64, "mbit": 200}
    e = Experiment(args, case, scratch)
    still = Experiment(args, {**case, "speeds": (1,) * 4}, scratch)
    rounds, each, slot = (70, 4, 0.002) if args.quick else (args.join_rounds, 20, 0.006)
    marks = []
    with e.bed() as bed:
        box = e.box(bed)
        comers = Comers(e, bed, box, rounds, slot)

        def event(name, act):
            marks.append({"event": name, "at": time.monotonic()})
            act()
        try:
            event("4 begin", lambda: comers.start(4))
            comers.await_rounds(each, 4)
            event("2 leave", lambda: comers.leave(2))
            comers.await_rounds(each)
            event("6 come", lambda: comers.start(6))
            comers.await_rounds(each, 6)
            event("4 leave", lambda: comers.leave(4))
            got = comers.finish()
            ends = comers.ends()
            still.jobs = e.jobs
            want = still.job(bed, box, "plan", rounds, 0.0)
        finally:
            comers.stop()
            box.stop()
    one_digest("joins", [g["digest"] for g in (*got, *want)])
    missing = sorted(set(range(1, rounds + 1)) - set(ends))
    if missing:
        raise RuntimeError(f"joins: rounds {missing} have not ended anywhere")
    for mark, following in zip(marks, [*(m["at"] for m in marks[1:]), 1e18]):
        took = [ends[r] - ends[r - 1] for r in range(2, rounds + 1) if mark["at"] <= ends[r] < following]
        if took:
            usual = statistics.median(took)
            mark.update(rounds=len(took), usual_ms=usual * 1e3, longest_ms=max(took) * 1e3, gap_ms=(max(took) - usual) * 1e3)
            beds.say(f"  joins, {mark['event']}: {len(took)} rounds of {usual * 1e3:.0f} ms, the longest gap {mark['gap_ms']:.0f} ms")
    return {"events": [m for m in marks if "gap_ms" in m], "rounds": rounds, "slots": case["slots"], "least": SECOND, "load": os.getloadavg()[0]}


def joins_table(d):
    return ["| workers come and go | rounds | a usual round, ms | longest gap, ms | line |", "|---|---|---|---|---|"] + [
        f"| {m['event']} | {m['rounds']} | {m['usual_ms']:.0f} | {m['gap_ms']:.0f} | {d['least'] * 1e3:.0f} |" for m in d["events"]]


def quota_case(args, scratch):
    """Speeds by CPU quotas: nobody sleeps, all of a worker computes and sends within its share."""
    e = Experiment(args, UNEQUAL, scratch)
    rounds, skip, cpus = (10, 5, 1.08) if args.quick else (args.rounds, args.rounds // 3, 1.08)
    ms, rows = {"equal": [], "plan": []}, {}
    try:
        with Groups(e.workers) as groups, e.bed() as bed:
            groups.as_many()
            box = e.box(bed)

            def begin(children):
                for i, child in enumerate(children):
                    groups.put(i, child.pid, "cpu")
                    groups.limit_cpu(i, cpus * UNEQUAL["speeds"][i] / sum(UNEQUAL["speeds"]))
            try:
                for _ in range(1 if args.quick else args.runs):
                    for what in ms:
                        got = rows[what] = e.job(bed, box, what, rounds, 0.0, ready=begin, more=["--samples", 64 if args.quick else 512])
                        one_digest(f"quota, {what}", [g["digest"] for g in got])
                        ms[what].append(settled(got, skip) * 1e3)
                        beds.say(f"  quota, {what}: {ms[what][-1]:.0f} ms a round, slots {[g['slots'][-1] for g in got]}, load {os.getloadavg()[0]:.1f}")
                        for i in range(e.workers):
                            groups.limit_cpu(i, None)
            finally:
                box.stop()
    except NoCgroups as err:
        beds.say(f"  quota: left out: {err}")
        return {"left_out": str(err)}
    equal, plan = (statistics.median(ms[w]) for w in ("equal", "plan"))
    return {"cpus": cpus, "rounds": rounds, "equal_ms": equal, "plan_ms": plan, "speedup": equal / plan, "all_ms": ms, "bound": 2.25,
            "shares": [g["slots"][-1] for g in rows["plan"]], "slots": UNEQUAL["slots"],
            "loss_difference": abs(rows["plan"][0]["loss"] / rows["equal"][0]["loss"] - 1)}


def quota_table(d):
    if "left_out" in d:
        return ["Quotas: left out, there are no cgroups."]
    return [f"| 4:2:2:1 by quotas of {d['cpus']} CPUs together, computation not emulated | ms a round | times | bound | loss differs |", "|---|---|---|---|---|",
            f"| equal split | {d['equal_ms']:.0f} | 1 | | |", f"| by plan, {d['shares']} slots | {d['plan_ms']:.0f} | {d['speedup']:.2f} | {d['bound']} | {100 * d['loss_difference']:.3f} % |"]


def memory_case(args, scratch):
    """The memory of worker 3 is cut in mid-run: asked back (a soft limit), or taken (the kernel kills what needs more)."""
    case = {**EQUAL, "slots": 32, "mbit": 200}
    e = Experiment(args, case, scratch)
    # ends with an epoch of 25 rounds: a worker without slots sees no other end
    rounds, at, slot, space = (25, 8, 0.01, 4) if args.quick else (75, 20, 0.02, 8)
    rows = {}
    try:
        with Groups(e.workers) as groups, e.bed() as bed:
            box = e.box(bed)
            try:
                for how in ("none", "asked", "taken"):
                    rows[how] = memory_run(e, bed, box, groups, how, (rounds, at, slot, space))
            finally:
                box.stop()
    except NoCgroups as err:
        beds.say(f"  memory: left out: {err}")
        return {"left_out": str(err)}
    one_digest("memory", [d for r in rows.values() for d in r["digests"]])
    return {"rounds": rounds, "at": at, "rows": rows, "least": SECOND}


def memory_run(e, bed, box, groups, how, times):
    rounds, at, slot, space = times
    victim, when = 3, []
    for i in range(e.workers):
        groups.limit_memory(i, 4 << 30)

    def cut(children):
        path = os.path.join(e.scratch, "out0")
        while Comers.text(path).count("end ") < at and children[0].poll() is None:
            time.sleep(0.005)
        when.append(time.monotonic())
        if how == "asked":
            groups.ask_memory(victim, 1 << 20)
        elif how == "taken":
            take(groups, victim, children[victim])
    got = e.job(bed, box, "plan", rounds, slot, start=functools.partial(groups.start, bed), watch=cut, dies=(victim,) if how == "taken" else (), more=["--tell", "--space", space])
    groups.ask_memory(victim, 4 << 30)
    ends = got[0]["ends"]
    after = [b - a for a, b in zip(ends, ends[1:]) if b > when[0]]
    usual = statistics.median(lengths(ends)[2:at - 1])
    last = None if got[victim] is None else got[victim]["trace"]["round"][-1]
    row = {"killed": got[victim] is None, "last_round_with_slots": last, "usual_ms": usual * 1e3, "gap_ms": (max(after) - usual) * 1e3,
           "after_ms": statistics.median(after[len(after) // 2:]) * 1e3, "digests": [g["digest"] for g in got if g is not None]}
    beds.say(f"  memory, {how}: the worker {'was killed' if row['killed'] else f'had slots up to round {last} of {rounds}, and lives'}; a round {row['usual_ms']:.0f} ms, the longest gap "
             f"{row['gap_ms']:.0f} ms, afterwards {row['after_ms']:.0f} ms a round")
    return row


def take(groups, victim, child):
    """As little as it has at its least, and a megabyte: its next slot needs more."""
    end, least = time.monotonic() + 30, 4 << 30
    while child.poll() is None and time.monotonic() < end:
        least = min(least, groups.memory_used(victim))
        try:
            groups.limit_memory(victim, least + (1 << 20))
        except OSError:  # busy: it has more now
            pass
        time.sleep(0.002)


def memory_table(d):
    if "left_out" in d:
        return ["Memory: left out, there are no cgroups."]
    lines = ["| memory of one of four in mid-run | the worker | a usual round, ms | longest gap, ms | line | a round afterwards, ms |", "|---|---|---|---|---|---|"]
    for how, r in d["rows"].items():
        lives = "is killed" if r["killed"] else f"has slots up to round {r['last_round_with_slots']} of {d['rounds']}"
        lines.append(f"| {how} | {lives} | {r['usual_ms']:.0f} | {r['gap_ms']:.0f} | {d['least'] * 1e3:.0f} | {r['after_ms']:.0f} |")
    return lines


CASES = {"loss": loss_case, "quiet": quiet_case, "joins": joins_case, "quota": quota_case, "memory": memory_case}
TABLES = {"loss": loss_table, "quiet": quiet_table, "joins": joins_table, "quota": quota_table, "memory": memory_table}
