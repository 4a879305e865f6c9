#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Is what gets installed hardened? Usage: test/hardening.py BUILD FILE...

What a linked file shows is looked for there (readelf, objdump); what leaves no sure mark is looked
for in the commands that compiled it. Ends with "N passed, N failed".
"""

import json
import os
import re
import subprocess
import sys

# of every source file that gets installed
FLAGS = ("-fstack-protector-strong", "-fstack-clash-protection", "-fcf-protection=full",
         "-D_FORTIFY_SOURCE=3")
# what glibc puts in the place of these when it knows the size of the buffer
FORTIFIED = re.compile(r"\b__(mem\w+|str\w+|v?s?n?printf|v?fprintf|read|recv\w*|poll|fgets)_chk\b")


def tool(*cmd):
    return subprocess.run(cmd, check=True, capture_output=True, text=True,
                          env={**os.environ, "LC_ALL": "C"}).stdout


def of_file(path):
    """(what, is it so) of one linked file"""
    header = tool("readelf", "-hW", path)
    segments = tool("readelf", "-lW", path)
    dynamic = tool("readelf", "-dW", path)
    symbols = tool("nm", "-D", path)
    flags = {m[1]: m[2] for m in re.finditer(r"^ +(GNU_STACK|GNU_RELRO) .*? ([RWE ]{3}) ", segments,
                                             re.M)}
    yield "position independent", bool(re.search(r"Type: +DYN", header))
    yield "its stack does not run", "GNU_STACK" in flags and "E" not in flags["GNU_STACK"]
    yield "no segment is written and run", not re.search(r"^ +LOAD .* RWE ", segments, re.M)
    yield "tables of the linker are read-only", "GNU_RELRO" in flags
    yield "all symbols are bound at start", bool(re.search(r"\((FLAGS|FLAGS_1)\).*\bNOW\b", dynamic))
    yield "stack canaries", "__stack_chk_fail" in symbols
    if not path.endswith("librte_net_chaos.so"):  # has no call that could be fortified
        yield "checked string functions", bool(FORTIFIED.search(symbols))


def landing(path):
    """Functions that others call begin with endbr64: indirect calls may land nowhere else."""
    begin = {int(a, 16): n for a, n in re.findall(r"^([0-9a-f]+) T (pbox_\w+|main)$",
                                                   tool("nm", path), re.M)}
    code = tool("objdump", "-d", "--no-show-raw-insn", path)
    first = {int(a, 16): i for a, i in re.findall(r"^ +([0-9a-f]+):\s+(\w+)", code, re.M)}
    return [n for a, n in begin.items() if first.get(a) != "endbr64"], len(begin)


def commands(build):
    """Source files that get installed and whose command lacks a flag"""
    with open(os.path.join(build, "compile_commands.json")) as f:
        for c in json.load(f):
            source = os.path.relpath(os.path.join(c["directory"], c["file"]),
                                     os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
            if not source.startswith(("app/", "lib/", "drivers/")):
                continue
            words = c["command"].split()
            missing = [f for f in FLAGS if f not in words]
            if missing or "-fPIC" not in words and "-fPIE" not in words:
                yield source, missing or ["-fPIE"]


def main():
    passed = failed = 0

    def say(name, good, detail=""):
        nonlocal passed, failed
        print(f"{'ok' if good else 'not ok'} - {name}{': ' + detail if detail and not good else ''}")
        passed += bool(good)
        failed += not good

    build, files = sys.argv[1], sys.argv[2:]
    for path in files:
        for what, good in of_file(path):
            say(f"{os.path.basename(path)}: {what}", good)
        bad, n = landing(path)
        # drivers may export nothing
        say(f"{os.path.basename(path)}: functions begin with a landing pad", not bad, " ".join(bad[:5]))
    lacking = list(commands(build))
    say("all source files are compiled so", not lacking,
        "; ".join(f"{s} without {' '.join(m)}" for s, m in lacking[:5]))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
