#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""All experiments, one after the other, and their figures in doc/science.md and doc/science-eager.md.

Each begins when the machine is quiet, and its JSON says what disturbed it: the load before it, and the CPU time that others took while it ran.
With --write the tables of these pages, between comments, are these runs' figures, and the one on top has what each paper claims. All of them take
some six hours, so each has a place of its own there, and can be made again by itself; with --keep a run that was broken off goes on where it was.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import textwrap
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(TOP, "test", "perf", "lib"), os.path.join(HERE, "rates")]
# pylint: disable=wrong-import-position
import environment
import real

PAGES = [os.path.join(TOP, "doc", name) for name in ("science.md", "science-eager.md")]
FIGURES = os.path.join(TOP, "doc", "figures")
COLUMNS = 126  # of the page
QUIET = 1.0  # load average
KERNEL_THREAD = 0x200000  # PF_KTHREAD of include/linux/sched.h
# of each: its folder is what is before the -; its options, and those of --quick in their place (None: it is left out there, and has a check of its own)
EXPERIMENTS = {
    "hps": (["--runs", "5", "--only", "2:1:1:1;4:2:2:1", "--figure", os.path.join(FIGURES, "hps.svg")], ["--quick", "--only", "2:1:1:1;4:2:2:1;kill"]),
    "hps-events": (["--runs", "5", "--only", "1:1:1:1;moving;kill;loss;quiet;joins;memory", "--quiet-rounds", "100"], None),
    "hps-quota": (["--runs", "5", "--rounds", "30", "--only", "quota"], None),
    "eager": (["--runs", "5", "--seeds", "5", "--figure", os.path.join(FIGURES, "eager.svg")], ["--quick", "--only", "iteration"]),
    "ssp": (["--seeds", "5"], ["--quick"]),
    "rates": ([], ["--quick", "--models", "perceptron", "--real-rules", "none,inv"]),
    "bits": (["--rounds", "500"], ["--quick", "--methods", "fp32,int8,mxfp4"]),
    "choice": ([], ["--quick", "--rounds", "24"]),
    "phub": (["--only", "resnet50"], ["--quick"]),
    "phub-vgg16": (["--only", "vgg16", "--rounds", "1"], None),
    "psld": (["--runs", "5", "--only", "static;balance;balance, a spare"], ["--quick"]),
    "psld-others": (["--runs", "1", "--only", "static, links alike;balance, links alike;static, by hash;balance, by hash;static, a CPU quota;"
                     "balance, a CPU quota;one box;two boxes;static, many rounds;balance, many rounds;static, a hog of the CPU;balance, a hog of the CPU;"
                     "static, a hog of the link;balance, a hog of the link;cut off"], None),
    "moves": (["--runs", "7", "--moves", "12", "--every", "12"], ["--quick", "--only", "sgd"]),
}


def stolen():
    """CPU seconds that this machine wanted, and its host gave to others."""
    with open("/proc/stat", encoding="ascii") as f:
        return int(f.readline().split()[8]) / os.sysconf("SC_CLK_TCK")


def others():
    """CPU seconds of the processes that are not of this one's family, and of their children that have ended; without the kernel's threads, which serve
    the experiments too. Not the machine's sum in /proc/stat: it counts by ticks, at which those that sleep for less are always awake, or never."""
    parents, used = {}, {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
                words = f.read().rsplit(") ", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents[int(pid)] = int(words[1])
        if not int(words[6]) & KERNEL_THREAD:
            used[int(pid)] = sum(map(int, words[11:15]))
    return sum(t for pid, t in used.items() if not of_family(pid, parents)) / os.sysconf("SC_CLK_TCK")


def of_family(pid, parents):
    while pid and pid != os.getpid():
        pid = parents.get(pid, 0)
    return bool(pid)


def await_quiet(seconds):
    end = time.monotonic() + seconds
    while os.getloadavg()[0] >= QUIET and time.monotonic() < end:
        time.sleep(5)
    return os.getloadavg()[0]


def command(name, options):
    return " ".join(["test/science/run", name.split("-")[0]] + [shlex.quote(os.path.relpath(o, TOP) if o.startswith(TOP) else o) for o in options])


def made_before(path, by, build):
    """What an experiment's JSON has, if the same command has made it, of this revision. Nothing of a changed working copy: two of them look alike."""
    now = environment.read(build)
    try:
        with open(path, encoding="utf-8") as f:
            got = json.load(f)
    except ValueError:  # ended while it was written
        return None
    same = not now["modified"] and not got["environment"]["modified"] and got["environment"]["revision"] == now["revision"]
    return got if same and got.get("command") == by and "said" in got else None


def run(name, args):
    """(JSON, what it printed) of one experiment. One that has measured, and misses its line, has figures as well, and "failed"."""
    options = EXPERIMENTS[name][1 if args.quick else 0]
    path = os.path.join(args.json, name + ".json")
    if os.path.exists(path):
        if args.keep and (kept := made_before(path, command(name, options), args.build)):
            return kept, kept["said"]
        os.unlink(path)
    load = await_quiet(0 if args.quick else args.patience)
    print(f"{command(name, options)} (load {load:.1f})", file=sys.stderr, flush=True)
    began, before = time.monotonic(), (others(), stolen())
    # a figure waits beside the JSON: a changed working copy would be another revision for the experiments that follow
    words = [o.replace(FIGURES, args.json) for o in options]
    done = subprocess.run(["/usr/bin/python3", os.path.join(HERE, name.split("-")[0], "bench"), *words, "--build", args.build, "--json", path],
                          stdout=subprocess.PIPE, text=True, check=False)
    seconds = time.monotonic() - began
    if done.returncode < 0 or not done.stdout.strip() or not os.path.exists(path):
        return None, f"status {done.returncode}"
    with open(path, encoding="utf-8") as f:
        got = json.load(f)
    after = (others(), stolen())
    got["disturbed"] = {"load_before": round(load, 2), "seconds": round(seconds),
                        **{f"cpu_seconds_{who}": round(max(0.0, b - a), 1) for who, a, b in zip(("of_others", "stolen"), before, after)}}
    got["command"], got["said"], got["failed"] = command(name, options), done.stdout.rstrip(), done.returncode
    with open(path, "w", encoding="utf-8") as f:
        json.dump(got, f, indent=1)
    return got, got["said"]


# ---- what the papers claim: (claim, the paper's figure, ours, its bound, runs) of each experiment's JSON

def by_plan(d):
    for r in d["speeds"]:
        if "speedup" not in r:
            continue
        if r["least"]:
            yield (f"by plan against an equal split, speeds {r['case']}", "1.4 to 3.5", f"{r['speedup']:.2f}", r["bound"], len(r["plan_all_ms"]))
        for a in r["ahead"]:
            yield (f"by plan, `ahead={a['share']}`, against an equal split, speeds {r['case']}", "", f"{a['speedup']:.2f}", a["bound"], len(a["all_ms"]))
    yield from other_than_speed(d)


def other_than_speed(d):
    for side, rows in d.get("loss", {}).get("rows", {}).items():
        base = d["loss"]["rows"]["equal"]
        if side != "equal" and all(x["rounds"] for x in [*rows, *base]):
            yield (f"rounds to a loss of {d['loss']['target']} by plan, `{side}`, against an equal split", "",
                   f"{statistics.mean(a['rounds'] / b['rounds'] for a, b in zip(rows, base)):.2f} times", "", f"{len(rows)} seeds")
    if "quiet" in d:
        yield ("new plans of four equal workers", "", d["quiet"]["plans"], 0, f"{d['quiet']['rounds']} rounds")
    if "joins" in d:
        yield ("workers 4, 2, 8, 4: the longest gap beyond a usual round", "", f"{max(m['gap_ms'] for m in d['joins']['events']) / 1e3:.2f} s", "1 s",
               f"{d['joins']['rounds']} rounds")
    if "speedup" in d.get("quota", {}):
        yield ("by plan against an equal split, 4:2:2:1 by CPU quotas", "1.4 to 3.5", f"{d['quota']['speedup']:.2f}", d["quota"]["bound"], len(d["quota"]["all_ms"]["plan"]))
    for how, r in d.get("memory", {}).get("rows", {}).items():
        if how != "none":
            yield (f"memory of one of four is {how} in mid-run: the longest gap beyond a usual round", "", f"{r['gap_ms'] / 1e3:.2f} s", "1 s", 1)


def eagerly(d):
    if "iteration" in d:
        yield ("less time an iteration, eager against push then pull", "54 %", f"{100 * d['iteration']['less_than_then']:.0f} %", "54.5 %",
               len(d["iteration"]["all_ms"]["bsp"]))
    if "curve" in d:
        first, got = (d["curve"]["runs"][m] for m in ("bsp-then", "eager:rel"))
        if all(s for s, _ in first + got):
            times = [a / b for (a, _), (b, _) in zip(first, got)]
            yield ("faster to a loss, eager against the usual synchronisation", "2.86",
                   f"{statistics.mean(times):.2f} ({min(times):.2f} to {max(times):.2f})", "", f"{len(times)} seeds")


def saved(d):
    rules = ("inv", "inv_n", "rel", "known")
    for which, text in ((0, "each rule with its own learning rate"), (1, "all with the rate that is the best without one")):
        least = []
        for c in d["confirmed"]:
            none = [x[which] for x in c["seeds"]["none"]]
            for r in rules:
                got = [x[which] for x in c["seeds"][r]]
                if all(none) and all(got):
                    least.append((statistics.mean(1 - b / a for a, b in zip(none, got)), r))
        if least:
            best = max(least)
            yield (f"fewer updates by rates by staleness, the best of {len(d['confirmed'])} cells, {text}", "37 %", f"{100 * best[0]:.0f} % (`{best[1]}`)",
                   "", f"{len(d['confirmed'][0]['seeds']['none'])} seeds")
    for cell, of in real.by_cell(d.get("real", [])).items():
        none = of["none"]
        least = [(statistics.mean(1 - r["updates"] / none[s]["updates"] for s, r in of[rule].items()), rule) for rule in rules
                 if of.get(rule) and all(r["updates"] and none[s]["updates"] for s, r in of[rule].items())]
        if least:
            best = max(least)
            yield (f"the same in frames: {cell[0]}, momentum {cell[1]:g}, {cell[2]} workers, speeds {cell[3]}", "37 %", f"{100 * best[0]:.0f} % (`{best[1]}`)", "",
                   f"{len(none)} seeds")


def balanced(d):
    med = {k: statistics.median(v["round_ms"]) for k, v in d["cases"].items()}
    for case, base, text, bound in (("two boxes", "one box", "two boxes against one, without computation", 2.0),
                                    ("balance, a hog of the CPU", "static, a hog of the CPU", "busy loops beside a box: balance against static", ""),
                                    ("balance, a hog of the link", "static, a hog of the link", "a sender on a box's link: balance against static", ""),
                                    ("balance, many rounds", "static, many rounds", "no slow box: balance against static", 1.0)):
        if case in med and base in med:
            did = f", {sum(map(len, d['cases'][case]['actions']))} actions" if case == "balance, many rounds" else ""
            yield (text, "", f"{med[base] / med[case]:.2f}{did}", bound, len(d["cases"][case]["round_ms"]))
    for c in d["cases"].get("cut off", {}).get("cuts", [])[:1]:
        yield (f"a box cut off for {c['down_ms'] / 1e3:.1f} s: the gap beyond a usual round", "", f"{c['gap_ms'] / 1e3:.2f} s", "", len(d["cases"]["cut off"]["cuts"]))
    for case, bound in (("balance", 2.24), ("balance, a spare", 2.58)):
        if case in med and "static" in med:
            yield (f"a slow box: {case} against static", "2.86", f"{med['static'] / med[case]:.2f}", bound, len(d["cases"][case]["round_ms"]))


def moved(d):
    for name, at in d["cases"].items():
        stalls = sorted(s / x["round"] for x in at["runs"] for s in x["stalls"])
        yield (f"moves: the stall of 99.9 % of the rounds, in rounds, {name}", "", f"{stalls[min(len(stalls) - 1, int(.999 * len(stalls)))]:.2f}", "below 1",
               f"{len(stalls)} rounds")


def narrow(d):
    for r in d["rows"]:
        if r["method"].removeprefix("box:") in ("int8", "mxfp4") and "difference" in r:
            yield (f"loss by {r['method'].removeprefix('box:')} both ways{', the optimiser on the box,' if r['method'].startswith('box') else ''} against fp32", "", f"{100 * r['difference']:+.2f} % ({100 * r['error_of_mean']:.2f})", "",
                   f"{len(r['differences'])} seeds")


def chosen(d):
    alone = d["exchange_ms"]
    for m, bound in (("int8", 3.88), ("mxfp4", 7.53)):
        yield (f"an exchange in {m} both ways, the optimiser on the box, against fp32", "", f"{alone['fp32'] / alone[m]:.2f}", bound, "30 rounds")
    for x in d["cases"].values():
        yield (f"`compress=\"auto\"` against {x['best']}, the best fixed format at {x['links_mbit']} Mbit/s", "", f"{x['against_best']:.2f} of its time", 1,
               f"{x['rounds']} rounds")


def centrally(d):
    for c in d["cases"]:
        yield (f"one central box against a server sharded over {c['workers']} workers' hosts, {c['model']}", "3.8 (with its rival's software)",
               f"{c['times']:.2f} ({c['times_least']:.2f} to {c['times_most']:.2f})", f"{c['bound']:.2f}", len(c["runs"]["central"]))


CLAIMS = {"hps": by_plan, "hps-events": by_plan, "hps-quota": by_plan, "eager": eagerly, "rates": saved, "phub": centrally, "phub-vgg16": centrally, "psld": balanced, "psld-others": balanced,
          "moves": moved, "bits": narrow, "choice": chosen}


def table_of_claims(results):
    lines = ["| claim | paper | PBox | bound | runs | revision | command |", "|---|---|---|---|---|---|---|"]
    for name, claims in CLAIMS.items():
        if name in results:
            d = results[name]
            revision = d["environment"]["revision"][:8] + (" + changes" if d["environment"]["modified"] else "")
            lines += ["| " + " | ".join(map(str, [*row, revision, f"`{d['command']}`"])) + " |" for row in claims(d)]
    return "\n".join(lines)


def updated(old, new):
    """The table with the rows of `new` in the place of those of the same claim; others stay, new ones follow."""
    rows = {line.split(" | ")[0]: line for line in old.strip().split("\n")}
    rows.update((line.split(" | ")[0], line) for line in new.split("\n"))
    return "\n".join(rows.values())


def where(d):
    env, by = d["environment"], d["disturbed"]
    return (f"*`{d['command']}`; {env['date'][:10]}, revision {env['revision'][:8]}{' + changes' if env['modified'] else ''}, {env['cpu']['online']} CPUs "
            f"{env['cpu']['model']}; load {by['load_before']} before; in its {by['seconds']} s other processes took {by['cpu_seconds_of_others']:.0f} CPU seconds, other machines of the host "
            f"{by['cpu_seconds_stolen']:.0f}.*{' **It failed.**' if d.get('failed') else ''}")


def narrow_lines(text):
    """Lines of at most COLUMNS, but rows of tables."""
    return "\n".join(x if x.startswith("|") else textwrap.fill(x, COLUMNS, break_long_words=False, break_on_hyphens=False) for x in text.split("\n"))


def place(name):
    return re.compile(rf"(<!-- {name}: [^\n]*-->\n)(.*?)(\n<!-- end -->)", re.S)


def replaced(texts, name, new):
    """The pages, {path: text}, with what is between the comments of a name replaced."""
    n = sum(len(place(name).findall(text)) for text in texts.values())
    if n != 1:
        raise SystemExit(f"doc/science*.md: {n} places between '<!-- {name}: ... -->' and '<!-- end -->', needed is one")
    return {path: place(name).sub(lambda m: m[1] + "\n" + new + "\n" + m[3], text) for path, text in texts.items()}


def write(results, claims, all_of_them, figures):
    texts = {}
    for path in PAGES:
        with open(path, encoding="utf-8") as f:
            texts[path] = f.read()
    for name, (d, said) in results.items():
        texts = replaced(texts, name, narrow_lines(said + "\n\n" + where(d)))
    before = next(m for m in map(place("claims").search, texts.values()) if m)[2]
    texts = replaced(texts, "claims", claims if all_of_them else updated(before, claims))
    for path, text in texts.items():
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
    for name in results:
        for path in (o for o in EXPERIMENTS[name][0] if o.startswith(FIGURES)):
            shutil.copyfile(path.replace(FIGURES, figures), path)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("name", nargs="*", help="only these, in this order; default: " + ", ".join(EXPERIMENTS))
    p.add_argument("--build", default=os.environ.get("PBOX_BUILD", os.path.join(TOP, "build")), help="default: build")
    p.add_argument("--quick", action="store_true", help="shows in five minutes that all works; their figures mean nothing")
    p.add_argument("--write", action="store_true", help="put the tables into doc/science.md and doc/science-eager.md, and figures into doc/figures")
    p.add_argument("--keep", action="store_true", help="do not run again what --json has of this revision")
    p.add_argument("--patience", type=int, default=600, metavar="SECONDS", help="to wait for a load below 1 before each; default: %(default)s")
    p.add_argument("--json", metavar="FOLDER", default=os.path.join(TOP, "build", "science"), help="of the JSON of each; default: build/science")
    args = p.parse_args()
    if unknown := [n for n in args.name if n not in EXPERIMENTS]:
        p.error(f"no experiment '{unknown[0]}'; there are: {', '.join(EXPERIMENTS)}")
    if args.quick and (none := [n for n in args.name if EXPERIMENTS[n][1] is None]):
        p.error(f"{none[0]}: not for --quick: its cases are in test/science/checks/{none[0].split('-')[0]}")
    if args.write and args.quick:
        p.error("--write is not for --quick, whose figures mean nothing")
    os.makedirs(args.json, exist_ok=True)
    results, failed = {}, []
    for name in args.name or [n for n, (_, quick) in EXPERIMENTS.items() if not (args.quick and quick is None)]:
        got, said = run(name, args)
        print(f"## {name}\n\n{said}\n", flush=True)
        if got is None or got.get("failed"):
            failed.append(name)
        if got is not None:
            results[name] = (got, said)
    claims = table_of_claims({n: d for n, (d, _) in results.items()})
    print(claims)
    if args.write:
        write(results, claims, not args.name and not failed, args.json)
    if failed:
        sys.exit("failed: " + " ".join(failed))


if __name__ == "__main__":
    main()
