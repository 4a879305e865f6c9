# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Run benchmarks one after the other; the body of test/perf/run.

A benchmark NAME is the program test/perf/NAME/bench. It takes --build DIR, --runs N and --quick,
reports its progress on standard error and prints one JSON object:
{"benchmark": NAME, "results": [ {...} ], "summary": {...}}.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time

import environment

TOP = environment.TOP
PERF = os.path.join(TOP, "test", "perf")
ORDER = ["kernels", "box", "wire", "shaped", "racks", "bits", "phases", "latency", "compare", "server", "tester", "watch", "lossy", "floor"]
# "readme" is these, and their figures are written into README.md
README = ["box", "compare", "wire", "shaped", "lossy"]
# seconds: more than ten times what each takes on two cores
DEADLINE = {"wire": 4 * 3600, "shaped": 3600}
DEADLINE_OTHER, DEADLINE_QUICK = 1800, 300
# columns of a table for people come from the first rows; these keys are for machines
HIDDEN = {"cpu_s_per_round", "wire_mbytes_per_round", "round_ms_min", "round_ms_max", "rounds", "table",
          "p50_ms", "box_cpu_s_per_round", "worker_cpu_s_per_gb", "mbytes"}


# benchmarks that can run in slices, and the conditions of their rows, in order of the table
SLICED = {"wire", "shaped"}
CONDITION = ("workers", "topology", "mtu", "link_mbit", "offloads", "model")


def condition(row):
    return tuple(row.get(k) for k in CONDITION)


def with_slice(old, new):
    """Results of a benchmark: the earlier ones under other conditions, and the new ones."""
    fresh = {condition(r) for r in new["results"]}
    rows = [r for r in old["results"] if condition(r) not in fresh] + new["results"]
    rows.sort(key=lambda r: tuple((x is None, str(x).rjust(12)) for x in condition(r)))
    return {**new, "results": rows, "summary": {**old["summary"], **new["summary"]},
            "seconds": round(old.get("seconds", 0) + new["seconds"], 1)}


def available():
    found = {d for d in os.listdir(PERF)
             if os.access(os.path.join(PERF, d, "bench"), os.X_OK)}
    return [x for x in ORDER if x in found] + sorted(found - set(ORDER))


class Stop(Exception):
    pass


def on_signal(_signal, _frame):
    raise Stop


def run_benchmark(name, args):
    """Its JSON object; None when it failed. It cleans up after SIGTERM, also of ours."""
    deadline = DEADLINE_QUICK if args.quick else DEADLINE.get(name, DEADLINE_OTHER)
    cmd = [os.path.join(PERF, name, "bench"), "--build", args.build, "--runs", str(args.runs)]
    cmd += ["--quick"] if args.quick else []
    cmd += ["--only", args.only] if args.only else []
    child = subprocess.Popen(cmd, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                             start_new_session=True)
    timer = threading.Timer(deadline, lambda: os.killpg(child.pid, signal.SIGTERM))
    timer.start()
    begin = time.monotonic()
    try:
        text = child.communicate()[0]
    finally:
        timer.cancel()
        end_group(child)
    took = time.monotonic() - begin
    if child.returncode != 0:
        why = f"ended after {deadline} s" if took >= deadline else f"status {child.returncode}"
        print(f"{name}: {why}", file=sys.stderr)
        return None
    return checked(name, text, took)


def end_group(child):
    for sig, seconds in ((signal.SIGTERM, 30), (signal.SIGKILL, 10)):
        if child.poll() is not None:
            return
        os.killpg(child.pid, sig)
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            pass


def checked(name, text, took):
    """The shape that plots and readers rely on."""
    try:
        got = json.loads(text)
    except ValueError as e:
        print(f"{name}: standard output is not one JSON object: {e}", file=sys.stderr)
        return None
    if not (isinstance(got, dict) and got.get("benchmark") == name
            and isinstance(got.get("results"), list) and got["results"]
            and all(isinstance(r, dict) for r in got["results"])
            and isinstance(got.get("summary"), dict)):
        print(f"{name}: the JSON object lacks benchmark, results or summary", file=sys.stderr)
        return None
    got["seconds"] = round(took, 1)
    return got


def cell(value):
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def table(rows):
    """Rows that follow each other with the same "table" (or none) share one."""
    lines, at = [], 0
    while at < len(rows):
        title, group, keys = rows[at].get("table"), [], []
        while at < len(rows) and rows[at].get("table") == title:
            group.append(rows[at])
            keys += [k for k, v in rows[at].items() if k not in keys and k not in HIDDEN
                     and not isinstance(v, (dict, list))]
            at += 1
        cells = [keys] + [[cell(r.get(k)) for k in keys] for r in group]
        wide = [max(len(c[i]) for c in cells) for i in range(len(keys))]
        lines += ["  ".join(x.rjust(w) for x, w in zip(c, wide)).rstrip() for c in cells] + [""]
    return "\n".join(lines)


def build(directory):
    if not os.path.exists(os.path.join(directory, "build.ninja")):
        subprocess.run(["meson", "setup", directory, TOP], check=True, stdout=sys.stderr)
    subprocess.run(["ninja", "-C", directory], check=True, stdout=sys.stderr)


def parse():
    p = argparse.ArgumentParser(
        prog="test/perf/run", description="Benchmarks of PBox; doc/performance.md explains them.",
        epilog="benchmarks: " + " ".join(available()))
    p.add_argument("name", nargs="*", help="default: all; readme: " + ", ".join(README) + ", and their figures are written into README.md")
    p.add_argument("--json", metavar="FILE", help="write everything there")
    p.add_argument("--plots", metavar="DIR", help="draw SVG figures there")
    p.add_argument("--doc", action="store_true",
                   help="write doc/figures, the tables of doc/performance.md and doc/performance-checks.md, "
                        "all rows in doc/performance.json, and the figures of README.md")
    p.add_argument("--merge", metavar="FILE",
                   help="results of benchmarks that do not run now come from this JSON")
    p.add_argument("--only", metavar="KEY=VALUE[+VALUE...],...",
                   help="a slice of wire or shaped, as their --only takes it; with --merge the "
                   "other rows stay")
    p.add_argument("--runs", type=int, default=5, help="median of so many (5)")
    p.add_argument("--quick", action="store_true", help="least that shows that all works")
    p.add_argument("--build", metavar="DIR", default=os.path.join(TOP, "build"))
    p.add_argument("--list", action="store_true")
    args = p.parse_args()
    args.readme = "readme" in args.name
    if args.readme:
        if args.quick or args.name != ["readme"]:
            p.error("readme goes with no other benchmark, and not with --quick, whose figures mean nothing")
        args.name = README
    for name in args.name:
        if name not in available():
            p.error(f"no benchmark '{name}'; there are: {' '.join(available())}")
    if args.only and not set(args.name) <= SLICED:
        p.error(f"--only is for {' and '.join(sorted(SLICED))}")
    if args.only and not args.name:
        p.error("--only needs the name of a benchmark")
    if args.runs < 1:
        p.error("--runs must be 1 or more")
    args.build = os.path.abspath(args.build)
    return args


def main():
    args = parse()
    if args.list:
        print("\n".join(available()))
        return 0
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, on_signal)
    build(args.build)
    env = environment.read(args.build)
    print(environment.people(env) + "\n", flush=True)
    everything = {"environment": env, "runs": args.runs, "quick": args.quick, "benchmarks": {}}
    if args.merge:
        with open(args.merge, encoding="utf-8") as f:
            everything["benchmarks"] = json.load(f)["benchmarks"]
    failed = []
    try:
        for name in args.name or available():
            print(f"== {name}", file=sys.stderr, flush=True)
            got = run_benchmark(name, args)
            if got is None:
                failed.append(name)
                continue
            # the state of the machine may have changed since the start
            got["load_average"] = os.getloadavg()
            got["revision"], got["date"] = env["revision"], env["date"]
            if args.only and name in everything["benchmarks"]:
                got = with_slice(everything["benchmarks"][name], got)
            everything["benchmarks"][name] = got
            print(f"{name} ({got['seconds']:.0f} s)\n\n{table(got['results'])}", flush=True)
            save(args, everything)
    except Stop:
        print("interrupted", file=sys.stderr)
        return 130
    publish(args, everything)
    for name in failed:
        print(f"failed: {name}", file=sys.stderr)
    return 1 if failed else 0


def save(args, everything):
    if not args.json:
        return
    with open(args.json + ".new", "w", encoding="utf-8") as f:
        json.dump(everything, f, indent=1)
        f.write("\n")
    os.replace(args.json + ".new", args.json)


def publish(args, everything):
    import pages  # pylint: disable=import-outside-toplevel
    # the plot of README.md is one of them
    directories = ([args.plots] if args.plots else []) + (
        [os.path.join(TOP, "doc", "figures")] if args.doc or args.readme else [])
    if directories:
        import plot  # pylint: disable=import-outside-toplevel
        for d in directories:
            plot.draw(everything, d)
    if args.doc:
        for page in pages.PAGES:
            pages.fill(everything, os.path.join(TOP, "doc", page))
        pages.keep(everything, os.path.join(TOP, "doc", "performance.json"))
    if args.doc or args.readme:
        pages.fill(everything, os.path.join(TOP, "README.md"))


if __name__ == "__main__":
    sys.exit(main())
