# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Cells of the experiment as real eager trainings: a box, frames, pbox.torch.Eager; computations take their time by sleeping.

Two hosts have half of the workers each. Links are not shaped: what is as old as a computation is so by the pull that was posted before it.
"""

import json
import os
import statistics
import subprocess
import tempfile

import bed as beds
import box as boxes

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
RULES = ("none", "inv", "inv_n", "rel")  # those of pbox.torch.Eager
HOSTS, MTU, COMPUTE = 2, 9000, 0.3  # COMPUTE: seconds of the fastest's


def trainings_of(cells, rules, seeds, target, step):
    """Each rule at its own rate; in turn, so that what disturbs a while disturbs all of them."""
    return [{"model": c["model"], "momentum": c["momentum"], "workers": c["workers"], "speeds": c["speeds"], "seed": seed, "rule": rule,
             "lr": c["alone"] * step ** -c["rules"][rule]["step"], "compute": COMPUTE, "target": target(c["model"]),
             "limit": 4 * c["rules"]["none"]["updates"]}
            for c in cells for seed in range(1, 1 + seeds) for rule in rules if c["rules"][rule]["step"] is not None]


def run(build, trainings):
    """What the first host says of each."""
    env = {"PYTHONPATH": os.pathsep.join([os.path.join(TOP, "usertools", "python"), HERE]), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1",
           "OPENBLAS_NUM_THREADS": "1", "PBOX_CLIENT_LIB": os.path.join(build, "lib/client/so/libpbox-client.so.1")}
    bed = beds.Bed("rates", HOSTS, MTU, 1)
    with bed, tempfile.TemporaryDirectory() as scratch:
        box = boxes.Box(bed, build, "packet", memory=1024)
        try:
            path = os.path.join(scratch, "trainings.json")
            with open(path, "w", encoding="utf-8") as f:
                json.dump(trainings, f)
            children = []
            for i in range(HOSTS):
                with open(os.path.join(scratch, f"{i}.out"), "wb") as f:
                    children.append(bed.start(f"w{i}", ["/usr/bin/python3", os.path.join(HERE, "worker.py"), "--box", box.address, "--trainings", path,
                                                        "--host", str(i), "--hosts", str(HOSTS), "--scratch", scratch],
                                              log=os.path.join(scratch, f"{i}.log"), stdout=f, env=env))
            try:
                statuses = [child.wait(600 * len(trainings)) for child in children]
            except subprocess.TimeoutExpired:
                statuses = [None]
            if any(statuses):
                said = [open(os.path.join(scratch, f"{i}.log"), encoding="utf-8", errors="replace").read().strip()[-500:] for i in range(HOSTS)]
                raise RuntimeError(f"status {statuses}: {' | '.join(said)}")
            with open(os.path.join(scratch, "0.out"), encoding="utf-8") as f:
                got = [json.loads(line) for line in f]
        finally:
            box.stop()
    return [{**t, **g} for t, g in zip(trainings, got, strict=True)]


def by_cell(ran):
    """{(model, momentum, workers, speeds): {rule: {seed: training}}}"""
    cells = {}
    for r in ran:
        of = cells.setdefault((r["model"], r["momentum"], r["workers"], r["speeds"]), {rule: {} for rule in RULES})
        of[r["rule"]][r["seed"]] = r
    return cells


def reached(pairs):
    """Where not all trainings of both, without a rule and with it, came to the loss."""
    none, rule = (sum(bool(p[i]) for p in pairs) for i in (0, 1))
    return f"reached by {rule} of {len(pairs)}" + (f", without it by {none}" if none != len(pairs) else "")


def table(ran):
    """Updates that each rule saves against none, by the same seeds."""
    lines = ["| real: model | momentum | workers | speeds | tau | updates, no rule | " + " | ".join(f"`{r}`" for r in RULES[1:]) + " |", "|" + "---|" * 9]
    for (model, momentum, workers, speeds), of in by_cell(ran).items():
        none, out = of["none"], []
        for rule in RULES[1:]:
            pairs = [(none[s]["updates"], r["updates"]) for s, r in of[rule].items()]
            if not pairs or not all(a and b for a, b in pairs):
                out.append(reached(pairs) if pairs else "")
                continue
            saved = [1 - b / a for a, b in pairs]
            error = f" ({100 * statistics.stdev(saved) / len(saved) ** 0.5:.1f})" if len(saved) > 1 else ""
            out.append(f"{100 * statistics.mean(saved):+.1f} %{error}")
        tau = statistics.mean(r["tau"] for by_seed in of.values() for r in by_seed.values())
        updates = [r["updates"] for r in none.values() if r["updates"]]
        lines.append(f"| {model} | {momentum:g} | {workers} | {speeds} | {tau:.1f} | {statistics.mean(updates):.0f} | {' | '.join(out)} |" if updates else
                     f"| {model} | {momentum:g} | {workers} | {speeds} | {tau:.1f} | not reached | {' | '.join(out)} |")
    return lines
