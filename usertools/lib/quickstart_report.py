#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The table, the curves and the JSON of usertools/quickstart, from the records of its runs."""

import argparse
import json
import os
import sys

import numpy as np

GOAL = 0.85
RUNS = {"hook": "torch", "optimiser": "box"}  # and whose steps the reference makes


def records(folder, name):
    with open(os.path.join(folder, name + ".json")) as f:
        return json.load(f)


def evaluate(folder, run, kind):
    """Figures of a run, against the run of one process."""
    path = os.path.join(folder, run)
    workers = []
    while os.path.exists(os.path.join(path, f"worker{len(workers)}.json")):
        workers.append(records(path, f"worker{len(workers)}"))
    first = workers[0]
    mine = np.load(os.path.join(path, "worker0.params.npy"))
    one = np.load(os.path.join(folder, "reference", f"one-{kind}.params.npy"))

    def total(key):
        return sum(w["traffic"][key] for w in workers)

    out = {
        "workers": len(workers),
        "parameters": first["parameters"],
        "accuracy": first["accuracy"],
        "rounds": first["rounds"],
        "seconds": round(first["seconds"], 3),
        "rounds_per_s": round(first["rounds"] / first["seconds"], 2),
        "tx_bytes": total("tx_bytes"),
        "rx_bytes": total("rx_bytes"),
        "useful_tx_bytes": total("useful_tx_bytes"),
        "useful_rx_bytes": total("useful_rx_bytes"),
        "retransmitted_frames": total("retransmitted_frames"),
        "tx_frames": total("tx_frames"),
        "probes": total("probes"),
        "checked_rounds": first["checked_rounds"],
        "different_rounds": max(w["different_rounds"] for w in workers),
        "workers_equal": len({w["sha256"] for w in workers}) == 1,
        "reference_equal": bool(np.array_equal(mine.view(np.uint32), one.view(np.uint32))),
        "reference_max_difference": float(np.max(np.abs(mine - one))),
        "reference_accuracy": records(os.path.join(folder, "reference"), "one-" + kind)
        ["accuracy"],
    }
    out["bit_equal"] = (out["checked_rounds"] > 0 and out["different_rounds"] == 0
                        and out["workers_equal"] and out["reference_equal"])
    return out


def table(runs):
    def size(n):
        return f"{n / 1e6:,.1f} MB"

    def yes(ok):
        return "yes" if ok else "NO"

    rows = [
        ("", *runs),
        ("test accuracy", *(f"{r['accuracy']:.2%}" for r in runs.values())),
        ("rounds", *(f"{r['rounds']}" for r in runs.values())),
        ("rounds a second", *(f"{r['rounds_per_s']:.1f}" for r in runs.values())),
        ("sent by the workers", *(size(r["tx_bytes"]) for r in runs.values())),
        ("received by them", *(size(r["rx_bytes"]) for r in runs.values())),
        ("retransmitted", *(f"{r['retransmitted_frames']} of {r['tx_frames']} frames"
                            for r in runs.values())),
        ("rounds equal to the tree's sum", *(
            f"{r['checked_rounds'] - r['different_rounds']} of {r['checked_rounds']} compared"
            for r in runs.values())),
        ("workers end with the same bits", *(yes(r["workers_equal"]) for r in runs.values())),
        ("and those of one process", *(yes(r["reference_equal"]) for r in runs.values())),
    ]
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    for k, r in enumerate(rows):
        print("  " + "  ".join(c.ljust(w) for c, w in zip(r, widths)).rstrip())
        if k == 0:
            print("  " + "  ".join("-" * w for w in widths))


def curves(folder, path, runs):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    def smooth(x, n=50):
        n = min(n, len(x))
        return np.convolve(x, np.ones(n) / n, mode="valid")

    fig, axes = plt.subplots(1, len(runs), figsize=(5.5 * len(runs), 4), sharey=True, squeeze=False)
    for ax, run in zip(axes[0], runs):
        kind = RUNS[run]
        losses, i = [], 0
        while os.path.exists(os.path.join(folder, run, f"worker{i}.losses.npy")):
            losses.append(np.load(os.path.join(folder, run, f"worker{i}.losses.npy")))
            i += 1
        one = np.load(os.path.join(folder, "reference", f"one-{kind}.losses.npy"))
        ax.plot(smooth(np.mean(losses, axis=0)), lw=3, alpha=.5,
                label=f"{i} workers, {run}")
        ax.plot(smooth(one), lw=.8, color="black", label="one process")
        ax.set_xlabel("round")
        ax.set_title({"hook": "DDP with PBox's hook",
                      "optimiser": "optimiser on the box"}[run])
        ax.grid(alpha=.3)
        ax.legend()
    axes[0][0].set_ylabel("training loss, mean of 50 rounds")
    fig.tight_layout()
    fig.savefig(path, dpi=120)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("folder")
    p.add_argument("--json")
    p.add_argument("--seconds", type=float, default=0)
    p.add_argument("--mtu", type=int, default=0)
    p.add_argument("--racks", type=int, default=1, help="with racks there is the hook alone")
    args = p.parse_args()

    runs = {run: evaluate(args.folder, run, kind) for run, kind in RUNS.items()
            if args.racks == 1 or run == "hook"}
    png = os.path.join(args.folder, "loss.png")
    curves(args.folder, png, runs)
    print()
    table(runs)
    n = next(iter(runs.values()))["workers"]
    step = """ In the optimiser's run
  the first of them include its step, the later ones compare the workers with each other."""
    print(f"""
  Compared rounds: all workers exchanged their raw gradients past the box, each added them along
  the tree over the workers in fp32 and multiplied by fp32(1/{n}); tolerance 0.{step if "optimiser" in runs else ""}
  One process: the same micro-batches one after the other, the same sum; tolerance 0 as well,
  because every operation is the same and rounded in the same order.

  loss curves: {png}""")
    good = all(r["bit_equal"] and r["accuracy"] > GOAL for r in runs.values())
    if args.json:
        os.makedirs(os.path.dirname(os.path.abspath(args.json)), exist_ok=True)
        with open(args.json, "w") as f:
            json.dump({"ok": good, "seconds": args.seconds, "mtu": args.mtu, "racks": args.racks,
                       "loss_curves": png, "runs": runs}, f, indent=2)
            f.write("\n")
        print(f"  figures:     {args.json}")
    for run, r in runs.items():
        if r["accuracy"] <= GOAL:
            print(f"  {run}: accuracy {r['accuracy']:.2%} is not over {GOAL:.0%}")
        if not r["bit_equal"]:
            print(f"  {run}: NOT bit-equal (largest difference of the final parameters: "
                  f"{r['reference_max_difference']:g})")
    print(f"\n  {'all well' if good else 'FAILED'} after {args.seconds:.0f} s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
