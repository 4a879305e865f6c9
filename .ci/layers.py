#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Print every include in lib/ that its library has not declared (transitively: a header may
bring in what its own library declared). The compiler sees include paths only; this sees intent."""

import os
import re

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIB = os.path.join(TOP, "lib")


def main():
    order = re.findall(r"'(\w+)'", open(os.path.join(LIB, "meson.build")).read()
                       .split("libs = [")[1].split("]")[0])
    deps = {}
    home = {}
    for name in order:
        text = open(os.path.join(LIB, name, "meson.build")).read()
        found = re.search(r"^deps\s*=\s*\[([^\]]*)\]", text, re.M)
        deps[name] = set(re.findall(r"'(\w+)'", found.group(1))) if found else set()
        for f in os.listdir(os.path.join(LIB, name)):
            if f.endswith(".h"):
                home[f] = name
    for i, name in enumerate(order):
        for d in deps[name]:
            if d not in order[:i]:
                print(f"lib/{name}/meson.build: {d} is not below {name}")
        for f in sorted(os.listdir(os.path.join(LIB, name))):
            if not f.endswith((".c", ".h")):
                continue
            text = open(os.path.join(LIB, name, f)).read()
            for header in re.findall(r'^#include [<"]([^">]+)[">]', text, re.M):
                owner = home.get(header)
                if owner is None or owner == name:
                    continue
                if owner not in deps[name]:
                    print(f"lib/{name}/{f}: includes {header} of lib/{owner}, not declared")
                elif not header.startswith("pbox_"):
                    print(f"lib/{name}/{f}: includes the private header {header} of lib/{owner}")


if __name__ == "__main__":
    main()
