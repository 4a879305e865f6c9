#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Compare the ABI of libpbox-client with lib/client/libpbox-client.abi, and print what differs.

Usage: .ci/abi.py [--write]      --write: make the description from what is built

The description has the soname, the exported symbols with their version nodes, and of the public headers the constants, the
values of enums, and the size of each structure with offset, size and type of its members. Symbols are those of the library in
$PBOX_BUILD (default: build), layouts those that gcc gives the headers. It needs no debug information in the library.
"""

import difflib
import os
import re
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIBRARY = os.path.join(os.environ.get("PBOX_BUILD") or os.path.join(TOP, "build"), "lib/client/so/libpbox-client.so")
HEADERS = [os.path.join(TOP, "lib", h) for h in ("worker/pbox_client_types.h", "client/pbox_client.h",
                                                 "client/pbox_client_transport.h")]
ABI = os.path.join(TOP, "lib/client/libpbox-client.abi")
KINDS = {"base_type": "", "structure_type": "struct ", "union_type": "union ", "enumeration_type": "enum "}
ADVICE = """Before the first release: `.ci/abi.py --write`, and commit the description with the change.
After it, programs that were built earlier must run: add members only at the end of structures that have a size or an abi, and
functions only in a new version node of libpbox-client.map; then `.ci/abi.py --write`. For any other change raise the soname as
well (the first number of `version:` in lib/client/meson.build)."""


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def soname():
    return re.findall(r"\(SONAME\).*\[(.*)\]", output("readelf", "-dW", LIBRARY))


def exported():
    """name -> name@@VERSION NODE of what the library exports."""
    found = {}
    for line in output("readelf", "--dyn-syms", "-W", LIBRARY).splitlines():
        words = line.split()
        if len(words) >= 8 and words[4] in ("GLOBAL", "WEAK") and words[6] not in ("UND", "ABS"):
            found[words[7].split("@")[0]] = words[7]
    return dict(sorted(found.items()))


def constants():
    found = []
    for header in HEADERS:
        with open(header, encoding="utf-8") as f:
            found += re.findall(r"^#define (PBOX_C\w+) +([\w()]+)$", f.read(), re.M)
    return [f"constant {name} {value}" for name, value in found]


class Debug:
    """The types of a file in DWARF: entry -> (tag, attributes, children)."""

    def __init__(self, text):
        self.entries, path = {}, []
        for line in text.splitlines():
            if m := re.match(r" *<([0-9a-f]+)><([0-9a-f]+)>: Abbrev Number: \d+ \(DW_TAG_(\w+)\)", line):
                entry = (m[3], {}, [])
                self.entries[int(m[2], 16)] = entry
                del path[int(m[1], 16):]
                if path:
                    path[-1][2].append(entry)
                path.append(entry)
            # the form is "(strp) (offset: 0x44): ", "(data1) ", "(indirect string, offset: 0x44): " or nothing: by version
            elif m := re.match(r" *<[0-9a-f]+> +DW_AT_(\w+) *: (?:\([^()]*\):? )*([^\t]*)", line):
                path[-1][1][m[1]] = m[2].strip()

    def type_of(self, attributes):
        """(name, size) of what an entry's DW_AT_type refers to."""
        if "type" not in attributes:
            return "void", 0
        tag, a, children = self.entries[int(attributes["type"].split(">")[0].strip("<"), 16)]
        size = int(a.get("byte_size", 0))
        if tag in KINDS:
            return KINDS[tag] + a["name"], size
        if tag == "subroutine_type":
            result, parameters = self.type_of(a)[0], [self.type_of(c[1])[0] for c in children]
            return f"{result}({', '.join(parameters)})", 0
        name, inner = self.type_of(a)
        if tag == "pointer_type":
            return name + ("*" if name.endswith("*") else " *"), size
        if tag == "array_type":
            n = int(children[0][1]["upper_bound"]) + 1
            return f"{name}[{n}]", n * inner
        if tag == "typedef":
            return a["name"], inner
        return f"{tag.removesuffix('_type')} {name}", inner  # const, volatile

    def public(self, names):
        for tag, a, children in self.entries.values():
            name = a.get("name", "")
            if not name.startswith("pbox_client") or "declaration" in a:
                continue
            if tag == "enumeration_type":
                yield f"enum {name}: {a['byte_size']} bytes"
                yield from (f"\t{c['name']} = {c['const_value']}" for _, c, _ in children)
            elif tag == "structure_type":
                yield f"struct {name}: {a['byte_size']} bytes"
                for _, c, _ in children:
                    kind, size = self.type_of(c)
                    yield f"\t{c['data_member_location']} +{size} {c['name']}: {kind}"
            elif tag == "variable":  # of declared()
                yield f"function {names[name.removesuffix('_')]}: {self.type_of(a)[0].removesuffix(' *')}"
            elif tag == "typedef":
                kind, size = self.type_of(a)
                yield f"typedef {name}: {kind}, {size} bytes"


def declared(names):
    """What the headers say, of these functions and of all types."""
    with tempfile.TemporaryDirectory() as at:
        source, made = os.path.join(at, "abi.c"), os.path.join(at, "abi.o")
        with open(source, "w", encoding="utf-8") as f:
            # compilers leave a function out that is declared alone: a pointer to it has its type
            f.writelines([f'#include "{h}"\n' for h in HEADERS] + [f"__typeof__({n}) *{n}_;\n" for n in names])
        output("gcc", "-std=gnu11", "-gdwarf-4", "-I" + os.path.join(TOP, "lib/worker"), "-fno-eliminate-unused-debug-types", "-c", source, "-o", made)
        return list(Debug(output("readelf", "--debug-dump=info", "-W", made)).public(names))


def main():
    if not os.path.exists(LIBRARY):
        print(f"{LIBRARY} is not there: build first")
        return 1
    now = ["# The ABI of libpbox-client: .ci/abi.py makes this file, and the lint compares it with what is built."]
    try:
        now += [f"soname {x}" for x in soname()] + constants() + declared(exported())
    except subprocess.CalledProcessError as e:
        print(f"{e.cmd[0]}: {e.stderr.strip()}")
        return 1
    if "--write" in sys.argv[1:]:
        with open(ABI, "w", encoding="utf-8") as f:
            f.write("\n".join(now) + "\n")
        return 0
    with open(ABI, encoding="utf-8") as f:
        committed = f.read().splitlines()
    lines = [line for line in difflib.unified_diff(committed, now, n=0, lineterm="") if not line.startswith(("---", "+++", "@@"))]
    if lines:
        print(ADVICE)
        print("\n".join(lines))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
