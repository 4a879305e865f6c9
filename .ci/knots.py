#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Print every room (a folder of lib, drivers or app) whose files call each other in a larger circle than is allowed.

Usage: .ci/knots.py [--all]      --all: the largest circle of each room, whatever is allowed

A file uses another one of its room when its object needs a symbol that the other one's defines. Files that reach each other
are a circle: none of them can be read, tested or moved alone. Needs a build in $PBOX_BUILD (default: build).
"""

import json
import os
import re
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.environ.get("PBOX_BUILD") or os.path.join(TOP, "build"))
ROOMS = re.compile(r"(?:lib|drivers|app)/")
# Files in the largest circle of a room, for the rooms that have one. These numbers only fall; a new room has none.
ALLOWED = {
    "app/pbox": 3,
    "app/test-ps": 3,
    "drivers/client/dpdk": 2,
    "drivers/net/chaos": 2,
    "lib/conf": 2,
    "lib/control": 2,
    "lib/job": 2,
    "lib/port": 4,
    "lib/shard": 2,
    "lib/snapshot": 2,
}


def objects():
    """room -> {source: object} of all that the build compiles."""
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as f:
        commands = json.load(f)
    rooms = {}
    for c in commands:
        source = os.path.relpath(os.path.join(c["directory"], c["file"]), TOP)
        if ROOMS.match(source):
            # a source that is compiled twice, for two libraries, has the same symbols twice
            room, name = os.path.split(source)
            rooms.setdefault(room, {}).setdefault(name, os.path.join(c["directory"], c["output"]))
    return rooms


def symbols(paths):
    """object -> (global names that it defines, names that it needs)"""
    found = {p: (set(), set()) for p in paths}
    text = subprocess.run(["nm", "-A", "-g", "-P", *paths], capture_output=True, text=True, check=True).stdout
    for line in text.splitlines():
        path, name, kind = line.split()[:3]
        found[path.rstrip(":")][kind in "Uwv"].add(name)
    return found


def circles(uses):
    """Strongly connected components of more than one node (Tarjan), the largest first."""
    index, low, path, found = {}, {}, [], []

    def visit(v):
        index[v] = low[v] = len(index)
        path.append(v)
        for w in sorted(uses[v]):
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in path:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            at = path.index(v)
            found.append(sorted(path[at:]))
            del path[at:]

    for v in sorted(uses):
        if v not in index:
            visit(v)
    return sorted((c for c in found if len(c) > 1), key=len, reverse=True)


def main():
    try:
        rooms = objects()
    except OSError as e:
        print(f"{e}: build first (meson setup build && ninja -C build)")
        return 1
    # a room of which a part is not built cannot be judged
    rooms = {room: files for room, files in rooms.items() if all(map(os.path.exists, files.values()))}
    if not rooms:
        print(f"{BUILD}: nothing is built: ninja -C {BUILD}")
        return 1
    of = symbols(sorted({path for files in rooms.values() for path in files.values()}))
    bad = 0
    for room, files in sorted(rooms.items()):
        uses = {f: {g for g in files if g != f and of[files[f]][1] & of[files[g]][0]} for f in files}
        found = circles(uses)
        size, allowed = len(found[0]) if found else 0, ALLOWED.get(room, 0)
        if "--all" in sys.argv[1:]:
            print(f"{size:3} {room}: {' '.join(found[0]) if found else '-'}")
        elif size > allowed:
            bad += 1
            print(f"{room}: a circle of {size} files, {allowed} allowed: {' '.join(found[0])}")
            for f in found[0] if size <= 4 else []:
                for g in sorted(uses[f] & set(found[0])):
                    print(f"    {f} needs {', '.join(sorted(of[files[f]][1] & of[files[g]][0])[:3])} of {g}")
        elif size < allowed:
            # a smaller circle is no defect: it is said, and no gate fails for it
            print(f"{room}: its largest circle has {size} files and not {allowed} any more: lower the number in .ci/knots.py", file=sys.stderr)
    for room in sorted(ALLOWED):
        if not os.path.isdir(os.path.join(TOP, room)):
            print(f"{room}: is gone: take it out of .ci/knots.py", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
