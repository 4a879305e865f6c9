# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The tables of doc/performance.md, from the JSON of test/perf/run.

Between <!-- figures: NAME --> and <!-- end --> is what this has written; all else is left.
"""

import re

import environment

COLUMNS = {
    "wire": [("workers", "workers"), ("topology", "topology"), ("mtu", "MTU"),
             ("offloads", "offloads"), ("model", "model"),
             ("side", "side"), ("round_ms", "round ms"), ("gbytes_per_s", "GB/s"),
             ("cpu_s_per_round", "CPU s"), ("wire_packets_per_round", "packets"),
             ("largest_frame", "largest frame"), ("ratio", "x best peer")],
    "shaped": [("workers", "workers"), ("mtu", "MTU"), ("link_mbit", "Mbit/s"), ("side", "side"),
               ("round_ms", "round ms"), ("rounds_per_s", "rounds/s"), ("limit_ms", "limit ms"),
               ("limit_share", "of the limit"),
               ("limit_share_with_headers", "of it with headers"), ("times_gloo", "x Gloo"),
               ("cpu_s_per_round", "CPU s")],
    "latency": [("mtu", "MTU"), ("idle", "idle"), ("load", "load"),
                ("round_p50_us", "round p50"), ("round_p99_us", "p99"),
                ("round_p999_us", "p99.9"), ("served_p50_us", "served p50"),
                ("served_p99_us", "p99"), ("served_p999_us", "p99.9"),
                ("link_p50_us", "on the link p50"), ("link_p99_us", "p99"),
                ("link_p999_us", "p99.9")],
    "compare": [("workers", "workers"), ("working_set_kb", "payloads KiB"),
                ("kernels", "kernels"), ("deterministic_gbit_per_s", "fixed order Gbit/s"),
                ("arrival_order_gbit_per_s", "arrival order Gbit/s"),
                ("deterministic_time_of_arrival_order", "time ratio")],
    "start": [("pages", "pages"), ("memory_mib", "EAL MiB"), ("eal_ms", "until EAL is up, ms"),
              ("eal_to_serving_ms", "then until it serves, ms"), ("budget_mib", "budget MiB"),
              ("resident_mib", "resident MiB"), ("hugepages_mib", "hugepages MiB")],
    "load": [("workers", "workers"), ("model_mb", "model MB"), ("optimiser", "optimiser"),
             ("taken_mib", "taken MiB"), ("parameters_and_state_mib", "parameters + state MiB")],
    "kernels": [("table", "payloads"), ("what", "what"), ("kernels", "kernels"),
                ("workers", "workers"), ("gbit_per_s", "Gbit/s"),
                ("bytes_per_cycle", "bytes/cycle"), ("time_ratio", "time of the sum")],
    "box": [("table", "table"), ("what", "case"), ("fragment", "fragment"),
            ("workers", "workers"), ("optimiser", "optimiser"), ("gbit_per_s", "Gbit/s"),
            ("kernel_share", "of the bare kernel"), ("outside_cycles", "cycles a fragment outside"),
            ("answer_cycles", "cycles an answer")],
}
COLUMNS["rate"] = [("fragment", "fragment"), ("workers", "workers"), ("checking_kfragments_per_s", "checking, kfragments/s"),
                   ("not_checking_kfragments_per_s", "not checking"), ("box_kfragments_per_s", "box"),
                   ("ratio_checking", "checking by box"), ("ratio", "not checking by box"), ("copied", "copied")]
COLUMNS["search"] = [("search", "search"), ("rate_kfragments_per_s", "kfragments/s"), ("trials", "trials"), ("void", "of them void"),
                     ("apart", "apart from the one before")]
COLUMNS["watch"] = [("kind", "window"), ("windows", "windows"), ("asked_per_s", "asked a second"),
                    ("ticks_per_packet", "ticks a packet"), ("more", "more than nobody, %"), ("more_off", "give or take"),
                    ("kpackets_per_s", "kpackets/s"), ("shootdowns_per_s", "shootdowns a second")]
# tables that share a benchmark
SOURCE = {"start": "server", "load": "server", "rate": "tester", "search": "tester"}
KERNELS_SHOWN = ("sum", "checked sum", "one by one", "read only", "memcpy")


def cell(value):
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if abs(value) >= 1000:
            return f"{value:,.0f}"
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    return str(value)


def table(name, rows):
    """Columns that no row has are left out."""
    columns = [(k, t) for k, t in COLUMNS[name] if any(r.get(k) is not None for r in rows)]
    lines = ["| " + " | ".join(t for _, t in columns) + " |",
             "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(cell(r.get(k)) for k, _ in columns) + " |" for r in rows]
    return "\n".join(lines)


def section(name, everything):
    """What is between the marks; None: nothing measured."""
    benchmarks = everything["benchmarks"]
    if name == "machine":
        lines = environment.people(everything["environment"]).split("\n")
        return "\n".join(f"- {x}" for x in lines) + f"\n- medians of {everything['runs']} runs"
    source = SOURCE.get(name, name)
    rows = benchmarks.get(source, {}).get("results", [])
    if source == "kernels":  # the JSON has all of them
        rows = [r for r in rows if r["what"] in KERNELS_SHOWN and r["workers"] == 8 and r["kernels"] == rows[0]["kernels"]]
    if name in SOURCE:
        rows = [r for r in rows if r["table"] == name]
    return table(name, rows) if rows else None


def fill(everything, path):
    with open(path, encoding="utf-8") as f:
        text = f.read()

    def replaced(found):
        body = section(found.group(1), everything)
        return found.group(0) if body is None else (
            f"<!-- figures: {found.group(1)} -->\n{body}\n<!-- end -->")

    text = re.sub(r"<!-- figures: (\w+) -->\n.*?<!-- end -->", replaced, text, flags=re.S)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
