# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The tables of doc/performance.md, doc/performance-checks.md and README.md, from the JSON of test/perf/run.

Between <!-- figures: NAME --> and <!-- end --> is what this has written; all else is left. doc/performance.json has all rows, and
the pages those that a reader compares. As a program: print each table of the pages that is not that of doc/performance.json.
"""

import json
import os
import re
import sys
import textwrap

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
PAGES = ("performance.md", "performance-checks.md")
# tables that share a benchmark
SOURCE = {"start": "server", "load": "server", "rate": "tester", "search": "tester"}
# the rows of doc/performance.json that the page shows; a table that is not here: all of them
SHOWN = {
    "kernels": lambda r: r["table"].startswith("fp32 of 8192 ") and "65536" not in r["table"] and r["what"] in ("sum", "checked sum", "one by one"),
    "box": lambda r: r["table"] not in ("jobs", "model", "order") and (r["table"] != "optimisers" or r["what"].endswith("llc")),
    "wire": lambda r: r["model"] in (25, "25"),
    "latency": lambda r: r["load"] != "chunk",
    "compare": lambda r: r["workers"] == 8,
}
# columns that the JSON has and the page has not
HIDDEN = {
    "wire": {"wire_packets_per_round", "largest_frame"},
    "latency": {"round_p999_us", "served_p999_us", "link_p999_us"},
    "watch": {"kpackets_per_s", "windows"},
    "rate": {"copied"},
    "box": {"fragment", "workers", "optimiser"},
}
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
    """A column that no row has is left out; one in which all rows agree is a line above."""
    columns = [(k, t) for k, t in COLUMNS[name] if k not in HIDDEN.get(name, ()) and any(r.get(k) is not None for r in rows)]
    alike = [(k, t) for k, t in columns if len(rows) > 1 and len({cell(r.get(k)) for r in rows}) == 1]
    columns = [c for c in columns if c not in alike]
    lines = [", ".join(f"{t}: {cell(rows[0][k])}" for k, t in alike), ""] if alike else []
    lines += ["| " + " | ".join(t for _, t in columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(cell(r.get(k)) for k, _ in columns) + " |" for r in rows]
    return "\n".join(lines)


def measured(name, everything):
    """All rows of a table, as far as they were measured."""
    source = SOURCE.get(name, name)
    rows = everything["benchmarks"].get(source, {}).get("results", [])
    if source == "kernels":  # the JSON has all of them
        rows = [r for r in rows if r["what"] in KERNELS_SHOWN and r["workers"] == 8 and r["kernels"] == rows[0]["kernels"]]
    return [r for r in rows if r["table"] == name] if name in SOURCE else rows


def shown(name, rows):
    return [r for r in rows if name not in SHOWN or SHOWN[name](r)]


def keep(everything, path):
    """All rows, as JSON: a table that was not measured keeps its own."""
    with open(path, encoding="utf-8") as f:
        kept = json.load(f)
    for name, columns in COLUMNS.items():
        rows = measured(name, everything)
        if rows:
            of = everything["benchmarks"][SOURCE.get(name, name)]
            kept[name] = {"date": of["date"][:10], "revision": of["revision"],
                          "rows": [{k: r[k] for k, _ in columns if r.get(k) is not None} for r in rows]}
    with open(path, "w", encoding="utf-8") as f:
        f.write("{\n" + ",\n".join(
            f' "{name}": {{"date": "{t["date"]}", "revision": "{t["revision"]}", "rows": [\n  '
            + ",\n  ".join(json.dumps(r) for r in t["rows"]) + "\n ]}" for name, t in kept.items()) + "\n}\n")


def section(name, everything, old):
    """What is between the marks; None: nothing measured."""
    if name == "readme":
        return readme(everything, old)
    if name == "readme_wire":
        return readme_wire(everything)
    if name == "readme_machine":
        return f"*{readme_machine(everything)}.*"
    if name == "machine":
        lines = environment.people(everything["environment"]).split("\n")
        return "\n".join(textwrap.fill(x, 128, initial_indent="- ", subsequent_indent="  ") for x in lines) + f"\n- medians of {everything['runs']} runs"
    rows = shown(name, measured(name, everything))
    return table(name, rows) if rows else None


def one(everything, benchmark, **wanted):
    """The row of a benchmark that has these values; None: it was not measured."""
    rows = everything["benchmarks"].get(benchmark, {}).get("results", [])
    return next((r for r in rows if all(r.get(k) == v for k, v in wanted.items())), None)


def percent(value):
    return f"{100 * value:.0f} %"


# README.md: what, the benchmark, its rows, the figure that they make, the command
README = [
    ("one core of the box sums 8 workers' fragments of 8 KiB, from the last-level cache", "box", [{"table": "fragments", "what": "8192 llc"}],
     lambda r: f"{r['gbit_per_s']:.0f} Gbit/s", "test/perf/run box"),
    ("throughput with 1,024 workers, relative to 8", "box", [{"table": "workers", "what": "1024"}, {"table": "workers", "what": "8"}],
     lambda r, of: f"{r['gbit_per_s'] / of['gbit_per_s']:.2f}", "test/perf/run box"),
    ("fixed-order summation, relative to arrival order, from memory", "compare", [{"workers": 8, "working_set_kb": 1048576}],
     lambda r: f"{1 / r['deterministic_time_of_arrival_order']:.1f}", "test/perf/run compare"),
    ("8 workers on links of 100 Mbit/s: share of the limit", "shaped", [{"workers": 8, "link_mbit": 100, "side": "pbox"}],
     lambda r: percent(r["limit_share"]), "test/perf/run shaped"),
    ("the same, relative to Gloo's ring", "shaped", [{"workers": 8, "link_mbit": 100, "side": "pbox"}],
     lambda r: f"{r['times_gloo']:.2f}", "test/perf/run shaped"),
    ("goodput at 1 % loss each way, relative to no loss", "lossy", [{"what": "loss 1.0% each way"}],
     lambda r: percent(r["goodput"]), "test/perf/run lossy"),
    ("simulator: 1,000 lossy scenarios", "lossy", [{"what": "1000 scenarios"}],
     lambda r: f"{r['seconds']:.0f} s", "test/perf/run lossy"),
]
README_SIDES = [("openmpi", "Open MPI"), ("gloo", "Gloo"), ("pbox-packet", "PBox, kernel sockets"),
                ("pbox-packet-dpdk", "PBox, workers with a port of their own"), ("pbox-vhost-dpdk", "PBox, shared memory")]


def readme_of(everything, what):
    """The line of one figure; None: nothing measured."""
    for name, benchmark, wanted, figure, command in README:
        rows = [one(everything, benchmark, **w) for w in wanted]
        if name == what and None not in rows:
            of = everything["benchmarks"][benchmark]
            return f"| {name} | {figure(*rows)} | {of['date'][:10]}, {of['revision'][:8]} | `{command}` |"
    return None


def readme(everything, old):
    """The table of README.md: what was not measured keeps its line."""
    lines = old.splitlines()
    kept = {line.split("|")[1].strip(): line for line in lines[2:]}
    return "\n".join(lines[:2] + [x for x in (readme_of(everything, r[0]) or kept.get(r[0]) for r in README) if x])


def readme_wire(everything):
    lines = ["| all-reduce of 25 MB, 4 workers, offloads off | ms at MTU 9000 | ms at MTU 1500 |", "|---|---|---|"]
    for side, title in README_SIDES:
        rows = [one(everything, "wire", workers=4, topology="direct", offloads="off", model="25", mtu=mtu, side=side) for mtu in (9000, 1500)]
        if None in rows:
            return None
        lines.append(f"| {title} | " + " | ".join(cell(r["round_ms"]) for r in rows) + " |")
    of = everything["benchmarks"]["wire"]
    return "\n".join(lines + ["", f"*{readme_machine(everything)}, {of['date'][:10]}, PBox {of['revision'][:8]}.*"])


def readme_machine(everything):
    env = everything["environment"]
    cpu = env["cpu"]
    return f"{cpu['online']} CPUs {cpu['model']}" + (" (virtual)" if cpu["virtual"] else "") + f", Linux {env['kernel']}"


def fill(everything, path):
    with open(path, encoding="utf-8") as f:
        text = f.read()

    def replaced(found):
        body = section(found.group(1), everything, found.group(2))
        return found.group(0) if body is None else (
            f"<!-- figures: {found.group(1)} -->\n{body}\n<!-- end -->")

    text = re.sub(r"<!-- figures: (\w+) -->\n(.*?)\n<!-- end -->", replaced, text, flags=re.S)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def check(pages, kept):
    with open(kept, encoding="utf-8") as f:
        tables = json.load(f)
    for page in pages:
        with open(page, encoding="utf-8") as f:
            text = f.read()
        for name, body in re.findall(r"<!-- figures: (\w+) -->\n(.*?)\n<!-- end -->", text, re.S):
            if name in COLUMNS and body != table(name, shown(name, tables[name]["rows"])):
                print(f"{page}: table {name} is not that of {kept}: test/perf/run writes both")


if __name__ == "__main__":
    doc = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../doc")
    check([os.path.join(doc, p) for p in PAGES], os.path.join(doc, "performance.json"))
