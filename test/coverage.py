#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Line and branch coverage of each room of lib/; the body of test/coverage.

The build is gcc's, without optimisation, so that a branch of the source is a branch of the program.
Programs write what they ran when they exit: the daemon too, after SIGTERM (the system calls that
takes are all among those that its sandbox permits). Where a test kills one with SIGKILL, or where
it has become a user who may not write here, what it ran is not counted.

Not counted as a branch: that an assertion (PBOX_ASSERT) fails. Nothing may bring one about.
"""

import argparse
import json
import os
import subprocess
import sys

import runner

ROOT = runner.TOP
SUITES = ["unit", "golden", "sim", "fuzz", "func"]
# threads count together
OPTIONS = ["-Dbuildtype=debug", "-Db_coverage=true", "-Dfuzzers=true", "-Dc_args=-fprofile-update=atomic"]
# tests of speed and of what gets installed run nothing of lib/ that others do not
LEFT_OUT = {"hardening", "bench_box", "bench_instructions", "perf_models", "perf_run", "docs_commands",
            "quickstart_interrupt", "quickstart_racks"}


def forget(directory):
    """What earlier runs counted."""
    for folder, _, files in os.walk(directory):
        for name in files:
            if name.endswith(".gcda"):
                os.remove(os.path.join(folder, name))


def gcovr(directory, html):
    data = os.path.join(directory, "coverage.json")
    cmd = ["gcovr", "--root", ROOT, "--object-directory", directory, "--filter", os.path.join(ROOT, "lib") + "/",
           "--exclude-directories", ".*sim_planted.*", "--exclude-branches-by-pattern", r".*\bPBOX_ASSERT\(.*",
           "--gcov-ignore-parse-errors", "-j", "2", "--json", data]
    if html:
        os.makedirs(os.path.join(directory, "html"), exist_ok=True)
        cmd += ["--html-details", os.path.join(directory, "html", "index.html")]
    subprocess.run(cmd + [directory], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    with open(data) as f:
        return json.load(f)["files"]


def count(files):
    """Per file and room: lines, lines that ran, branches, branches that were taken."""
    per_file, rooms = {}, {}
    for f in files:
        n = [0, 0, 0, 0]
        for line in f["lines"]:
            if line.get("gcovr/noncode"):
                continue
            n[0] += 1
            n[1] += line["count"] > 0
            n[2] += len(line["branches"])
            n[3] += sum(b["count"] > 0 for b in line["branches"])
        per_file[f["file"]] = n
        room = rooms.setdefault(f["file"].split("/")[1], [0, 0, 0, 0])
        for i, x in enumerate(n):
            room[i] += x
    return per_file, rooms


def row(n):
    percent = [100.0 * n[i + 1] / n[i] if n[i] else 100.0 for i in (0, 2)]
    return {"lines": n[0], "lines_run": n[1], "line_percent": round(percent[0], 1), "branches": n[2],
            "branches_taken": n[3], "branch_percent": round(percent[1], 1)}


def show(name, r):
    print(f"{name:32} {r['line_percent']:5.1f} % of {r['lines']:5} lines   "
          f"{r['branch_percent']:5.1f} % of {r['branches']:5} branches")


def main():
    p = argparse.ArgumentParser(prog="test/coverage", description=__doc__.splitlines()[0])
    p.add_argument("suite", nargs="*", help="of " + ", ".join(SUITES) + "; default: all these")
    p.add_argument("--html", action="store_true", help="pages that show the lines, too")
    p.add_argument("--files", action="store_true", help="print each file, too")
    p.add_argument("--keep", action="store_true", help="add to what earlier runs counted")
    p.add_argument("--only", action="append", default=[], help="func: only programs whose name contains this")
    p.add_argument("--jobs", type=int, default=2, help="programs side by side (default: %(default)s)")
    p.add_argument("-j", "--json", metavar="FILE", help="write the figures there")
    args = p.parse_args()
    for s in args.suite:
        if s not in SUITES:
            p.error(f"no suite '{s}'; there are: {' '.join(SUITES)}")
    directory = os.path.join(ROOT, "build-coverage")
    runner.build("build-coverage", OPTIONS)
    if not args.keep:
        forget(directory)
    logs = os.path.join(directory, "test-logs")
    os.makedirs(logs, exist_ok=True)
    result = runner.Result()
    pool = runner.Pool(result, logs, args.jobs)
    for suite in args.suite or SUITES:
        print(f"{suite}: {runner.SUITES[suite]}", flush=True)
        for program in (runner.fuzz_programs(directory) if suite == "fuzz" else
                        runner.programs(suite, args.only, directory, patience=4, left_out=LEFT_OUT)):
            pool.add(program)
    pool.run()
    per_file, rooms = count(gcovr(directory, args.html))
    total = [sum(n[i] for n in rooms.values()) for i in range(4)]
    print()
    if args.files:
        for name in sorted(per_file):
            show(name, row(per_file[name]))
        print()
    for name in sorted(rooms):
        show("lib/" + name, row(rooms[name]))
    show("lib", row(total))
    if args.html:
        print("pages: build-coverage/html/index.html")
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"rooms": {k: row(v) for k, v in rooms.items()}, "total": row(total),
                       "files": {k: row(v) for k, v in per_file.items()}}, f, indent=1, sort_keys=True)
            f.write("\n")
    for name in result.broken:
        print(f"failed: {name}")
    print(f"{result.passed} passed, {result.failed} failed, {result.skipped} skipped")
    return 1 if result.failed else 0


if __name__ == "__main__":
    sys.exit(main())
