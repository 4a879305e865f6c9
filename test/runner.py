#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Build PBox and run its test suites; the body of test/run.

A test is a program. It says what it did in one of these ways, else its exit status counts as
one test (0 passed, 77 skipped):
  - CUnit's summary;
  - a last line `N passed, N failed` (`, N skipped` may follow), with `skip - NAME: REASON` lines.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SUMMARY = re.compile(r"^(?:[\w-]+: )?(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", re.M)
CUNIT = re.compile(r"^\s+tests\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s*$", re.M)
SKIP = re.compile(r"^skip - (.*)$", re.M)
SUITES = {
    "lint": "format, licence lines, forbidden functions, exported names, layers, shell scripts",
    "unit": "CUnit tests of each library and driver",
    "golden": "the frozen frames, and the Python side written from the specification",
    "sim": "the engine in virtual time on lossy networks, and planted bugs",
    "chaos": "a box on bad networks, and among enemies: results, goodput, bytes",
    "fuzz": "each fuzz target over its corpus, with address and undefined-behaviour sanitizers",
    "sanitize": "unit tests with address and undefined-behaviour sanitizers",
    "torch": "optimisers and conversions against PyTorch",
    "func": "real processes in network namespaces",
    "image": "the appliance's image, built and booted in QEMU (minutes; only when it is named)",
}
NAMED = ["image"]  # not by default
QUICK = ["lint", "unit", "golden", "sim", "chaos"]


class Result:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.reasons = []
        self.broken = []

    def add(self, name, passed, failed, skipped, reasons=()):
        self.passed += passed
        self.failed += failed
        self.skipped += skipped
        self.reasons += [f"{name}: {r}" for r in reasons]
        if failed:
            self.broken.append(name)


def judge(name, text, status):
    """Numbers of one program: passed, failed, skipped, reasons."""
    reasons = SKIP.findall(text)
    found = SUMMARY.findall(text)
    if found:
        passed, failed, skipped = (int(x or 0) for x in found[-1])
        if status != 0 and failed == 0:
            failed = 1
        return passed, failed, skipped, reasons
    found = CUNIT.findall(text)
    if found:
        ran, failed = int(found[-1][1]), int(found[-1][3])
        if status != 0 and failed == 0:
            failed = 1
        return ran - failed, failed, 0, reasons
    if status == 77:
        return 0, 0, 1, reasons or [f"{name} says it cannot run here"]
    return (1, 0, 0, reasons) if status == 0 else (0, 1, 0, reasons)


def run_program(result, logs, name, cmd, timeout, env=None, cwd=TOP):
    log = os.path.join(logs, re.sub(r"[^\w.-]+", "_", name) + ".log")
    begin = time.monotonic()
    with open(log, "w") as out:
        child = subprocess.Popen(cmd, cwd=cwd, stdout=out, stderr=subprocess.STDOUT,
                                 stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})},
                                 start_new_session=True)
        try:
            status = child.wait(timeout)
        except subprocess.TimeoutExpired:
            # first politely, so that a test cleans its namespaces up
            os.killpg(child.pid, signal.SIGTERM)
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            out.write(f"\nstopped after {timeout} s\n")
            status = 124
    with open(log, errors="replace") as f:
        text = f.read()
    passed, failed, skipped, reasons = judge(name, text, status)
    result.add(name, passed, failed, skipped, reasons)
    verdict = "FAIL" if failed else ("skip" if skipped and not passed else "ok")
    print(f"  {verdict:4} {name}: {passed} passed, {failed} failed"
          + (f", {skipped} skipped" if skipped else "")
          + f"  ({time.monotonic() - begin:.1f} s)", flush=True)
    if failed:
        lines = text.splitlines()
        print("\n".join("       | " + x for x in lines[-40:]))
        print(f"       log: {os.path.relpath(log, TOP)}", flush=True)


def build(directory, options=(), env=None):
    env = {**os.environ, **(env or {})}
    log = os.path.join(TOP, directory + ".log")
    with open(log, "w") as out:
        if not os.path.exists(os.path.join(TOP, directory, "build.ninja")):
            cmd = ["meson", "setup", directory, *options]
            status = subprocess.call(cmd, cwd=TOP, env=env, stdout=out, stderr=out)
        else:
            status = 0
        if status == 0:
            status = subprocess.call(["ninja", "-C", directory], cwd=TOP, env=env, stdout=out,
                                     stderr=out)
    if status != 0:
        with open(log, errors="replace") as f:
            print("\n".join(f.read().splitlines()[-40:]))
        print(f"building {directory} failed: {os.path.relpath(log, TOP)}")
        print("0 passed, 1 failed")
        sys.exit(1)
    os.remove(log)


def meson_tests(directory):
    text = subprocess.check_output(["meson", "introspect", "--tests", directory], cwd=TOP,
                                   text=True)
    for t in json.loads(text):
        suite = t["suite"][0].split(":")[-1] if t["suite"] else "unit"
        yield suite, t["name"], t["cmd"], t["env"], t["timeout"]


def scripts(folder, *prefixes):
    directory = os.path.join(TOP, "test", folder)
    if not os.path.isdir(directory):
        return []
    return [os.path.join(directory, f) for f in sorted(os.listdir(directory))
            if f.startswith(prefixes or "") and os.access(os.path.join(directory, f), os.X_OK)
            and os.path.isfile(os.path.join(directory, f))]


def build_fuzz():
    build("build-fuzz", ["-Dwerror=true", "-Dfuzzers=true", "-Ddpdk=disabled", "-Dtests=disabled",
                         "-Dbuildtype=debugoptimized", "-Db_sanitize=address,undefined",
                         "-Db_lundef=false"], {"CC": "clang"})


def run_fuzz(result, logs, directory):
    for folder in sorted(os.listdir(os.path.join(TOP, "test", "fuzz"))):
        corpora = os.path.join(TOP, "test", "fuzz", folder, "corpus")
        if not os.path.isdir(corpora):
            continue
        for target in sorted(os.listdir(corpora)):
            exe = os.path.join(TOP, directory, "test", "fuzz_" + target)
            run_program(result, logs, f"fuzz {target}",
                        # its own status for a crash is 77, which here means skipped
                        [exe, "-runs=0", "-error_exitcode=1", os.path.join(corpora, target)], 300)


def run_suite(suite, result, logs, only, directory="build", patience=1, left_out=()):
    env = {"PBOX_BUILD": os.path.join(TOP, directory)}
    if suite == "lint":
        run_program(result, logs, "lint", [os.path.join(TOP, ".ci", "lint")], 600, env)
    elif suite == "fuzz":
        build_fuzz()
        run_fuzz(result, logs, "build-fuzz")
    elif suite == "sanitize":
        build("build-asan", ["-Dwerror=true", "-Dbuildtype=debugoptimized", "-Db_sanitize=address,undefined",
                             "-Db_lundef=false"])
        for s, name, cmd, test_env, timeout in meson_tests("build-asan"):
            if s == "unit":
                run_program(result, logs, f"sanitize {name}", cmd, 4 * timeout, test_env,
                            os.path.join(TOP, "build-asan"))
    elif suite == "golden":
        run_program(result, logs, "golden frames", ["/usr/bin/python3", "test/golden/check.py"],
                    120)
        run_program(result, logs, "python worker of the specification",
                    ["/usr/bin/python3", "test/spec/test_spec.py"], 300)
    elif suite == "image":
        image = os.path.join(TOP, directory, "image")
        run_program(result, logs, "image build", [os.path.join(TOP, "usertools", "pbox-mkimage"), image], 1800)
        for path in scripts("image"):
            run_program(result, logs, "image " + os.path.basename(path), [path], 1800, {**env, "PBOX_IMAGE": image})
    elif suite == "func":
        for path in scripts("func"):
            name = os.path.basename(path)
            if name not in left_out and (not only or any(x in name for x in only)):
                run_program(result, logs, "func " + name, [path], patience * 900, env)
    else:
        for s, name, cmd, test_env, timeout in meson_tests(directory):
            if s == suite and name not in left_out:
                run_program(result, logs, f"{suite} {name}", cmd, patience * timeout, {**env, **test_env},
                            os.path.join(TOP, directory))
        for path in scripts(suite) if suite == "chaos" else []:
            run_program(result, logs, "chaos " + os.path.basename(path), [path], 900, env)


def main():
    p = argparse.ArgumentParser(
        prog="test/run", description="Install what is missing, build, run test suites.",
        epilog="suites: " + "; ".join(f"{k} ({v})" for k, v in SUITES.items()))
    p.add_argument("suite", nargs="*", help="default: all but " + " ".join(NAMED))
    p.add_argument("--list", action="store_true", help="list the suites and stop")
    p.add_argument("--quick", action="store_true", help="only " + " ".join(QUICK))
    p.add_argument("--only", action="append", default=[],
                   help="func: only programs whose name contains this")
    args = p.parse_args()
    if args.list:
        for k, v in SUITES.items():
            print(f"{k:9} {v}")
        return 0
    for s in args.suite:
        if s not in SUITES:
            p.error(f"no suite '{s}'; there are: {' '.join(SUITES)}")
    suites = args.suite or (QUICK if args.quick else [s for s in SUITES if s not in NAMED])
    logs = os.path.join(TOP, "build", "test-logs")
    begin = time.monotonic()
    print("building", flush=True)
    build("build")
    os.makedirs(logs, exist_ok=True)
    result = Result()
    for suite in suites:
        print(f"{suite}: {SUITES[suite]}", flush=True)
        run_suite(suite, result, logs, args.only)
    print()
    for reason in result.reasons:
        print(f"skipped: {reason}")
    for name in result.broken:
        print(f"failed: {name}")
    print(f"{time.monotonic() - begin:.0f} s, logs in build/test-logs")
    line = f"{result.passed} passed, {result.failed} failed"
    if result.skipped:
        line += f", {result.skipped} skipped"
    print(line)
    return 1 if result.failed or result.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
