# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Figures from the JSON of test/perf/run: small SVG files."""

import os

import matplotlib

matplotlib.use("svg")
# pylint: disable=wrong-import-position
import matplotlib.pyplot as plt

# the same bytes for the same data
matplotlib.rcParams.update({"svg.hashsalt": "pbox", "svg.fonttype": "none", "font.size": 9,
                            "axes.spines.top": False, "axes.spines.right": False})


def rows(everything, name):
    return everything["benchmarks"].get(name, {}).get("results", [])


def save(figure, directory, name):
    figure.tight_layout()
    figure.savefig(os.path.join(directory, name + ".svg"), metadata={"Date": None})
    plt.close(figure)


def grouped(axes, groups, series, value, label):
    """Bars: groups on the x axis, one colour a series; value(group, series) or None."""
    width = 0.8 / max(1, len(series))
    for i, s in enumerate(series):
        at, height = [], []
        for k, g in enumerate(groups):
            v = value(g, s)
            if v is not None:
                at.append(k - 0.4 + width * (i + 0.5))
                height.append(v)
        axes.bar(at, height, width * 0.92, label=label(s))
    axes.set_xticks(range(len(groups)))


def ordered(values):
    return list(dict.fromkeys(values))


def wire(everything, directory):
    data = rows(everything, "wire")
    if not data:
        return
    # four where they were measured: the goals are theirs
    counts = [r["workers"] for r in data]
    workers = 4 if 4 in counts else counts[0]
    data = [r for r in data if r["workers"] == workers]
    conditions = ordered((r["mtu"], r["offloads"]) for r in data)
    topologies = ordered(r.get("topology", "bridge") for r in data)
    figure, all_axes = plt.subplots(
        len(topologies), len(conditions), squeeze=False,
        figsize=(2.6 * len(conditions), 2.8 * len(topologies)))
    sides = ordered(r["side"] for r in data)
    for topology, row in zip(topologies, all_axes):
        for axes, (mtu, offloads) in zip(row, conditions):
            here = {(r["model"], r["side"]): r["gbytes_per_s"] for r in data
                    if (r["mtu"], r["offloads"]) == (mtu, offloads)
                    and r.get("topology", "bridge") == topology}
            models = ordered(m for m, _ in here)
            grouped(axes, models, sides, lambda m, s, h=here: h.get((m, s)), str)
            axes.set_xticklabels([m + " MB" if m.isdigit() else m for m in models])
            axes.set_title(f"{topology}, {workers} workers, MTU {mtu}, {offloads}", fontsize=8)
        row[0].set_ylabel("GB/s of one worker's data")
    all_axes[0][-1].legend(fontsize=7)
    save(figure, directory, "wire")


def shaped(everything, directory):
    data = rows(everything, "shaped")
    if not data:
        return
    groups = ordered((r["workers"], r["mtu"], r["link_mbit"]) for r in data)
    here = {((r["workers"], r["mtu"], r["link_mbit"]), r["side"]): 100 * r["limit_share"]
            for r in data}
    figure, axes = plt.subplots(figsize=(5.5, 3))
    grouped(axes, groups, ordered(r["side"] for r in data), lambda g, s: here.get((g, s)), str)
    axes.set_xticklabels([f"{n} workers\nMTU {m}\n{b} Mbit/s" for n, m, b in groups])
    axes.axhline(100, color="grey", linewidth=0.8)
    axes.set_ylabel("% of the limit M/B")
    axes.legend(fontsize=7)
    save(figure, directory, "shaped")


def latency(everything, directory):
    data = rows(everything, "latency")
    if not data:
        return
    groups = [f"{r['load']}\nMTU {r['mtu']}\n{r['idle']}" for r in data]
    what = [("round_p50_us", "round p50"), ("round_p99_us", "round p99"),
            ("link_p50_us", "box, on its link, p50"), ("served_p50_us", "box, served, p50")]
    figure, axes = plt.subplots(figsize=(max(6, 0.75 * len(groups)), 3))
    grouped(axes, range(len(data)), what, lambda g, s: max(data[g][s[0]], 0.5), lambda s: s[1])
    axes.set_yscale("log")
    axes.set_xticklabels(groups, fontsize=6)
    axes.set_ylabel("microseconds")
    axes.legend(fontsize=7)
    save(figure, directory, "latency")


def compare(everything, directory):
    data = [r for r in rows(everything, "compare") if r["workers"] == 8]
    if not data:
        return
    figure, axes = plt.subplots(figsize=(5, 3))
    what = [("deterministic_gbit_per_s", "fixed order, one pass"),
            ("arrival_order_gbit_per_s", "order of arrival")]
    grouped(axes, range(len(data)), what, lambda g, s: data[g][s[0]], lambda s: s[1])
    axes.set_xticklabels([f"{r['working_set_kb']} KiB" for r in data])
    axes.set_ylabel("Gbit/s of gradients, 8 workers")
    axes.legend(fontsize=7)
    save(figure, directory, "compare")


def box(everything, directory):
    data = [r for r in rows(everything, "box")
            if r.get("table") == "fragments" and r.get("gbit_per_s")]
    if not data:
        return
    figure, axes = plt.subplots(figsize=(5, 3))
    grouped(axes, range(len(data)), ["gbit_per_s"], lambda g, s: data[g][s], lambda s: "box")
    axes.set_xticklabels([str(r.get("what", "")).replace(" ", "\n") for r in data], fontsize=7)
    axes.set_ylabel("Gbit/s of gradients into one core")
    save(figure, directory, "box")


def kernels(everything, directory):
    what = ("sum", "one by one", "memcpy", "read only", "fused momentum")
    data = [r for r in rows(everything, "kernels")
            if r.get("workers") == 8 and r.get("what") in what and "working_set_kb" in r]
    table = data[0]["kernels"] if data else None
    data = [r for r in data if r["kernels"] == table and r["format"] == "fp32"
            and r["payload"] == 8192]
    if not data:
        return
    here = {(r["working_set_kb"], r["what"]): r["gbit_per_s"] for r in data}
    sets = ordered(k for k, _ in here)
    figure, axes = plt.subplots(figsize=(5.5, 3))
    grouped(axes, sets, what, lambda g, s: here.get((g, s)), str)
    axes.set_xticklabels([f"{kb} KiB" for kb in sets])
    axes.set_ylabel("Gbit/s of gradients, one core")
    axes.legend(fontsize=7)
    save(figure, directory, "kernels")


def draw(everything, directory):
    os.makedirs(directory, exist_ok=True)
    for figure in (wire, shaped, latency, compare, box, kernels):
        figure(everything, directory)
