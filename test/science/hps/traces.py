# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""What rounds were spent with, from the traces of the workers of a run (Log in worker.py)."""

import os
import statistics

import bed as beds

SLOW = 1.15  # times the least of its side: then a run is explained


def of(got, skip):
    """A run, for the JSON: each worker's rounds, and what they say."""
    workers = []
    for g in got:
        workers.append({"lengths": [round(b - a, 6) for a, b in zip(g["ends"], g["ends"][1:])], "slots": g["slots"], "plans": g["plans"], **g["trace"],
                        "pushed": [round(end - pushed, 6) for end, pushed in zip(g["ends"], g["trace"]["pushed"])]})  # so long before the round's end
    return {"ms": statistics.median(workers[0]["lengths"][skip:]) * 1e3, "load": os.getloadavg()[0], "workers": workers, "why": why(got, skip)}


def by_round(g):
    t = g["trace"]
    return {r: {"end": end, "slots": slots, "plan": plan, **{k: t[k][i] for k in t}}
            for i, (r, end, slots, plan) in enumerate(zip(t["round"], g["ends"], g["slots"], g["plans"]))}


def why(got, skip):
    """Who pushed last in most rounds, and what it did in all rounds that count. A round is the time until that push, and the time after it."""
    rounds = [by_round(g) for g in got]
    last, until, after = [], [], []
    for r in sorted(rounds[0])[skip + 1:]:
        here = [w for w, x in enumerate(rounds) if r in x]
        if r - 1 not in rounds[0]:
            continue
        last.append(max(here, key=lambda w: rounds[w][r]["pushed"]))
        pushed = rounds[last[-1]][r]["pushed"]
        until.append(pushed - rounds[0][r - 1]["end"])
        after.append(rounds[0][r]["end"] - pushed)
    if not last:
        return None
    one = statistics.mode(last)
    its = [x for r, x in rounds[one].items() if r > skip + 1]
    usual = [statistics.median_low([x["slots"] for r, x in of.items() if r > skip + 1] or [0]) for of in rounds]
    return {"last": one, "slots": usual, "in_rounds": last.count(one) / len(last), "until_ms": statistics.median(until) * 1e3, "after_ms": statistics.median(after) * 1e3,
            "of_it": {"slots": statistics.median(x["slots"] for x in its), "early": statistics.median(x["early"] for x in its),
                      **{k + "_ms": statistics.mean(x[k] for x in its) * 1e3 for k in ("over", "adding", "asking")},
                      "late": statistics.mean(x["late"] for x in its), "plans": len({x["plan"] for x in its})}}


def tell(runs, every=False):
    """Of each run that is slow among those of its side."""
    for side, of_side in runs.items():
        least = min(r["ms"] for r in of_side)
        for r in of_side:
            w = r["why"]
            if w is None or not every and r["ms"] <= SLOW * least:
                continue
            x = w["of_it"]
            beds.say(f"  {side}, {r['ms']:.0f} ms a round ({r['ms'] / least:.2f} of the least), load {r['load']:.0f}: {w['until_ms']:.0f} ms until the last push, {w['after_ms']:.0f} "
                     f"after it; worker {w['last']} was last in {100 * w['in_rounds']:.0f} % of the rounds: {x['slots']:g} slots, {x['early']:g} of them ahead, {x['late']:.1f} late, "
                     f"{x['over_ms']:.0f} ms over; adding {x['adding_ms']:.0f}, asking {x['asking_ms']:.0f} ms; {x['plans']} plans; slots of all {w['slots']}")
