#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Print every static function whose name has a definition in another file as well.

A backtrace, a tag and a search shall lead to one place: the name of a static function says its object.

Usage: .ci/names.py [FILE...]      default: all C files of lib, drivers and app that git knows
"""

import collections
import re
import subprocess
import sys

# as clang-format leaves it: the type on the first line, the name at the start of the next one, or all of it in one
DEFINITION = re.compile(
    r"^static (?:__attribute__\(\([^\n]*?\)\) ?|[^;{}=\n#(\"])*(?:\n|(?<=[\s*]))\**(?!__attribute__)(\w+)\(", re.M)


def main():
    files = sys.argv[1:] or subprocess.check_output(
        ["git", "ls-files", "lib/*.[ch]", "drivers/*.[ch]", "app/*.[ch]"], text=True).split()
    places = collections.defaultdict(set)
    for name in files:
        with open(name, encoding="utf-8") as f:
            for m in DEFINITION.finditer(f.read()):
                places[m.group(1)].add(name)
    twice = {function: where for function, where in places.items() if len(where) > 1}
    for function, where in sorted(twice.items()):
        print(f"{function}(): in {', '.join(sorted(where))}: say whose it is in its name")
    return 1 if twice else 0


if __name__ == "__main__":
    sys.exit(main())
