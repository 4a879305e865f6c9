# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""What a box does now, in one document: samples of its telemetry, rates between two of them, and the last 15 minutes.

pbox-top prints the samples, pbox-exporter serves the document (/state; doc/telemetry.md, doc/state.schema.json).
"""

import collections
import threading
import time

from pbox_box import BoxError, Connection, entries, pulls_text, pushed_text, workers_text

VERSION = 1  # of the document
PATIENCE_MS = 300  # a round that is open for longer waits for somebody
INTERVAL = 1.0  # seconds between two samples
HISTORY = 900  # samples that are kept: 15 minutes
WORKERS = 1024  # that a document lists of a job
TIMEOUT = 5.0


class Box(Connection):
    """A box whose unknown commands have empty answers."""

    def ask(self, command, *parameters):
        return super().ask(command, *parameters) or {}


def collect(box, before=None):
    """A sample: counters as they are, each group with the box's clock. Jobs without progress since `before` are asked what they wait for."""
    sample = {"wall": time.time()}
    for group, kind in (("cores", "core"), ("ports", "port"), ("jobs", "job")):
        answer = box.all_pages("/pbox/" + group)
        if "error" in answer:
            raise BoxError(f"the box says: {answer['error']}")
        sample[group], sample[group + "_ns"] = dict(entries(answer, kind)), answer.get("clock_ns", 0)
        if group == "jobs":
            sample["draining"] = answer.get("draining", 0)
    still = [n for n, j in sample["jobs"].items() if before and j.get("round") == before["jobs"].get(n, {}).get("round")]
    sample["why"] = [box.ask("/pbox/why", f"#{n}") for n in still]
    sample["workers"], sample["workers_ns"] = {}, {}
    for number in sample["jobs"]:
        answer = box.all_pages("/pbox/workers", f"#{number}")
        sample["workers"][number], sample["workers_ns"][number] = dict(entries(answer, "worker")), answer.get("clock_ns", 0)
    sample["work"] = {n: box.all_pages("/pbox/work", f"#{n}") for n, j in sample["jobs"].items() if j.get("policy") == "reassign"}
    sample["times"] = {n: box.all_pages("/pbox/times", f"#{n}") for n, j in sample["jobs"].items() if "homes" in j}
    sample["pools"] = {k: v for k, v in box.ask("/pbox/pools").items() if isinstance(v, dict)}
    sample["drops"], sample["health"] = box.ask("/pbox/drops"), box.ask("/pbox/health")
    sample["racks"] = dict(entries(box.ask("/pbox/racks"), "rack"))
    if not sample["cores"]:
        raise BoxError("this box says nothing of its cores: is it an older one?")
    return sample


def rate(a, b, key, ns):
    """Of a counter between two entries, a second; 0 where there is no time between them, or it began again."""
    grown = b.get(key, 0) - a.get(key, b.get(key, 0))
    return grown * 1e9 / ns if ns > 0 and grown > 0 else 0.0


def measured(times):
    """Sums of each box over the workers: rounds, seconds, squares, seconds that programs waited for."""
    sums = [[0.0] * 4 for _ in range(times.get("boxes", 0))]
    for _, worker in entries(times, "worker"):
        for i, at in enumerate(sums):
            for k, x in enumerate(str(worker.get(f"box_{i}", "")).split()[:4]):
                at[k] += float(x)
    return sums


def means(now, was):
    """Milliseconds of a round at each box, and of those that programs waited for, between two answers of /pbox/times."""
    now, was = measured(now), measured(was)
    out = []
    for i, sums in enumerate(now):
        then = was[i] if len(was) == len(now) else [0.0] * 4
        rounds = sums[0] - then[0]
        out.append([1e3 * (sums[k] - then[k]) / rounds if rounds > 0 else 0.0 for k in (1, 3)])
    return out


def oldest_round(why):
    return max((why.get("rounds") or {}).values(), key=lambda r: r.get("ms", 0), default=None)


def waits_for(why):
    """What a job without progress waits for: its oldest round, if that is not just under way. "": nothing."""
    oldest = oldest_round(why)
    if not why.get("missing") or (oldest and oldest.get("ms", 0) < PATIENCE_MS):
        return ""
    text = f"job '{why['job']}' waits for {workers_text(why['missing'])}"
    if oldest and "clock" in oldest:
        text += (f", {oldest['lag']} clocks behind: {pulls_text(oldest['arrived'])} of '{oldest['tensor']}' with bound {oldest['bound']}, "
                 f"for {oldest['ms'] / 1000:.1f} s")
    elif oldest:
        text += f": round {oldest['round']} of '{oldest['tensor']}', {pushed_text(oldest['arrived'])}, for {oldest['ms'] / 1000:.1f} s"
    return text


# ---- the document -----------------------------------------------------------------------------------


def whole_numbers(text):
    return [int(n) for n in str(text).split()]


def states_of_workers(a, b, number):
    """Of one job."""
    now, was, work = b["workers"][number], a["workers"].get(number, {}), dict(entries(b["work"].get(number, {}), "worker"))
    ns = b["workers_ns"][number] - a["workers_ns"].get(number, b["workers_ns"][number])
    out = []
    for n, w in sorted(now.items())[:WORKERS]:
        then = was.get(n, w)
        came, again, last = (rate(then, w, key, ns) for key in ("contributions", "repeats", "last"))
        entry = {"worker": n, "host": w.get("host", ""), "address": w.get("address", ""), "state": w.get("state", ""), "round": w.get("round", 0),
                 "lag": w.get("lag", 0), "bytes_per_s": rate(then, w, "contributed_bytes", ns),
                 "repeats": again / (came + again) if came + again > 0 else 0.0,
                 "waited_s": rate(then, w, "waited_ns", ns) / last / 1e9 if last > 0 else 0.0, "last_per_s": last,
                 "silent_s": w["silent_ms"] / 1e3 if w.get("silent_ms", -1) >= 0 else None}
        if w.get("stale"):
            entry["staleness"] = [max(0, x - y) for x, y in zip(whole_numbers(w["stale"]), whole_numbers(then.get("stale", "")) or [0] * 8)]
        if n in work:
            x = work[n]
            entry["plan"] = {"slots": x["slots"], "slot_s": x["slot_us"] / 1e6, "stolen": x.get("stolen_slots", 0), "lost": x.get("lost_slots", 0),
                             "idle": x["idle_permille"] / 1e3 if "idle_permille" in x else None}
        out.append(entry)
    return out


def state_of_job(a, b, number):
    j, was = b["jobs"][number], a["jobs"].get(number, b["jobs"][number])
    ns = b["jobs_ns"] - a["jobs_ns"]
    why = next((w for w in b["why"] if w.get("job") == j.get("name")), {})
    oldest, text = oldest_round(why), waits_for(why)
    job = {"job": number, "name": j.get("name", ""), "state": j.get("state", ""), "policy": j.get("policy", ""), "members": j.get("workers", 0),
           "joined": j.get("joined", 0), "silent": j.get("silent", 0), "slots": j.get("slots", 0), "bytes": j.get("bytes", 0), "round": j.get("round", 0),
           "rounds_per_s": rate(was, j, "round", ns), "pushes_per_s": rate(was, j, "contributions", ns),
           "bytes_per_s": rate(was, j, "contributed_bytes", ns),
           "waits": {"text": text, "workers": why["missing"], "since_s": oldest["ms"] / 1e3 if oldest else None} if text else None,
           "workers": states_of_workers(a, b, number)}
    if "homes" in j:
        elements = whole_numbers(j.get("elements_at", ""))
        times = means(b["times"][number], a["times"].get(number, {})) if number in b["times"] else []
        job["map"], job["out"] = j.get("map", 0), whole_numbers(str(j.get("out", "")).replace(",", " "))
        job["boxes"] = [{"box": i, "share": e / sum(elements) if sum(elements) else 0.0, "round_s": times[i][0] / 1e3 if i < len(times) else None,
                         "waited_s": times[i][1] / 1e3 if i < len(times) else None} for i, e in enumerate(elements)]
    if number in b["work"]:
        job["changes"] = [{"round": x["round"], "ago_s": x["ms"] / 1e3, "text": x["text"]} for _, x in entries(b["work"][number], "change")]
    return job


def states_of_ports(a, b):
    ns = b["ports_ns"] - a["ports_ns"]
    return [{"port": n, "device": p.get("name", ""), "address": p.get("address", ""), "link": bool(p.get("link", 1)), "mtu": p.get("mtu", 0),
             "rx_bytes_per_s": rate(a["ports"].get(n, p), p, "rx_bytes", ns), "tx_bytes_per_s": rate(a["ports"].get(n, p), p, "tx_bytes", ns),
             "lost_per_s": sum(rate(a["ports"].get(n, p), p, k, ns) for k in ("rx_missed", "rx_no_mbuf", "rx_errors", "tx_errors"))}
            for n, p in sorted(b["ports"].items())]


def state_of(a, b, about):
    """The document of two samples; about: what /pbox/boxes answers."""
    number, boxes = about.get("box", 0), about.get("boxes", 1)
    return {"version": VERSION, "time": b["wall"], "up": True, "error": "",
            "box": {"number": number, "boxes": boxes, "address": about.get(f"box_{number}", ""), "release": about.get("release", ""),
                    "draining": bool(b["draining"])},
            "cores": [{"core": n, "lcore": c.get("lcore", 0), "busy": c.get("busy_permille", 0) / 1e3, "stolen": c.get("stolen_permille", 0) / 1e3,
                       "heartbeat_s": c.get("heartbeat_ms", 0) / 1e3} for n, c in sorted(b["cores"].items())],
            "ports": states_of_ports(a, b),
            "jobs": [state_of_job(a, b, n) for n in sorted(b["jobs"])],
            "findings": [{"cause": f.get("cause", ""), "harmful": bool(f.get("harmful")), "job": f.get("job", ""), "worker": f.get("worker"),
                          "text": f.get("text", ""), "next": f.get("next", "")} for _, f in entries(b["health"], "finding")]}


def down(error):
    return {"version": VERSION, "time": time.time(), "up": False, "error": error, "box": {}, "cores": [], "ports": [], "jobs": [], "findings": []}


class Watch(threading.Thread):
    """Asks one box once a second, however many look."""

    def __init__(self, box):
        super().__init__(name="watch", daemon=True)
        self.box, self.changed, self.number = box, threading.Condition(), 0
        self.state, self.history = down("the box has not been asked yet"), collections.deque(maxlen=HISTORY)
        self._sample, self._about, self._stop = None, {}, threading.Event()

    def run(self):
        while not self._stop.is_set():
            began = time.monotonic()
            self._publish(self._look())
            self._stop.wait(max(0.05, INTERVAL - (time.monotonic() - began)))

    def stop(self):
        self._stop.set()

    def _look(self):
        try:
            if self.box.sock is None:
                self._sample = None
                self.box.connect()
                self._about = self.box.ask("/pbox/boxes")
            sample = collect(self.box, self._sample)
            state = state_of(self._sample or sample, sample, self._about)
            self._sample = sample
            return state
        except (OSError, ValueError, KeyError, TypeError, AttributeError, BoxError) as e:
            self.box.close()  # what comes later is no answer to the next question
            return down(str(e))

    def _publish(self, state):
        point = {"time": state["time"], "up": state["up"], "jobs": {j["name"]: [j["rounds_per_s"], j["bytes_per_s"]] for j in state["jobs"]}}
        with self.changed:
            self.state, self.number = state, self.number + 1
            self.history.append(point)
            self.changed.notify_all()

    def after(self, number, patience):
        """(number, state) of a look later than `number`; of the latest one if there is none within that time."""
        with self.changed:
            self.changed.wait_for(lambda: self.number > number, patience)
            return self.number, self.state

    def past(self):
        with self.changed:
            return list(self.history)
