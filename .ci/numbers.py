#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The table of free numbers at the end of doc/protocol.md, from the lists of lib/wire.

Usage: .ci/numbers.py [--write]      default: print what differs; --write: bring the document up to date
"""

import re
import sys

DOCUMENT = "doc/protocol.md"
BEGIN, END = "<!-- made by .ci/numbers.py --write -->\n", "<!-- end -->\n"

# what is numbered, its lists in pbox_wire_enums.h, the first and the last number, and those that are none for another reason
NUMBERS = (
    ("types of control frames (R3.1)", ["PBOX_TYPES"], 0x01, 0x1F, []),
    ("types of data frames (R3.1)", ["PBOX_TYPES"], 0x20, 0x3F, []),
    ("capabilities (R4.10)", ["PBOX_CAPABILITIES"], 0, 31, []),
    ("ids of SET (R7.1)", ["PBOX_HYPERS"], 1, 0xFFFF, [14]),  # a decision (R15.11)
    ("codes of ERROR (R9.1)", ["PBOX_ERRCODES"], 0, 0xFFFF, []),
    ("states of RESTORE_OK (R10.5)", ["PBOX_RESTORES"], 0, 0xFFFF, []),
    ("formats (R2.3)", ["PBOX_FORMATS", "PBOX_FORMATS_16", "PBOX_FORMATS_BLOCK", "PBOX_FORMATS_LATER"], 1, 0xFF, []),
    ("operations (R5.2)", ["PBOX_OPS"], 0, 0xFF, []),
    ("optimisers (R5.3)", ["PBOX_OPTIMISERS"], 1, 0xFF, []),
    ("disciplines (R5.1)", ["PBOX_DISCIPLINES", "PBOX_DISCIPLINES_LATER"], 0, 0xFF, []),
    ("policies (R8.5)", ["PBOX_POLICIES"], 0, 0xFF, []),
)
# bits: their defines in pbox_wire.h, how many there are, and those that are none for another reason
BITS = (
    ("flags of the header (section 2)", "PBOX_F_", 16, []),
    ("flags of DECLARE (R5.1)", "PBOX_DECLARE_", 32, range(8, 24)),  # fmt_arg (R13.3)
)


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def bits_of(text, prefix):
    """The bits of defines with this prefix; PREFIX_KNOWN and PREFIX_ARGS (fields) are none of them."""
    for name, value in re.findall(rf"^#define ({prefix}\w+) +(0x\w+?)u?\b", text, re.M):
        bit = int(value, 0).bit_length() - 1
        if name not in (prefix + "KNOWN", prefix + "ARGS"):
            assert int(value, 0) == 1 << bit, name
            yield bit


def ranges(free, form):
    """5, 6, 7, 9 as "5 to 7, 9"."""
    out = []
    for n in sorted(free):
        if out and n == out[-1][1] + 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return ", ".join(form % a if a == b else f"{form % a} to {form % b}" for a, b in out) or "none"


def table():
    enums, wire = read("lib/wire/pbox_wire_enums.h"), read("lib/wire/pbox_wire.h")
    lists = dict(re.findall(r"^#define (PBOX_\w+)\(X\)(.*)$", enums.replace("\\\n", ""), re.M))
    rows = []
    for what, names, first, last, other in NUMBERS:
        used = {int(n, 0) for name in names for n in re.findall(r"X\(\w+, (\w+),", lists[name])} | set(other)
        assert used, what
        if "PBOX_CAPABILITIES" in names:  # WELCOME has both in one word
            used |= set(bits_of(wire, "PBOX_WELCOME_"))
        rows.append((what, ranges(set(range(first, last + 1)) - used, "0x%02X" if "types" in what else "%u")))
    for what, prefix, n, other in BITS:
        rows.append((what, "bits " + ranges(set(range(n)) - set(bits_of(wire, prefix)) - set(other), "%u")))
    return "| numbers | free |\n|---|---|\n" + "".join(f"| {what} | {free} |\n" for what, free in rows)


def main():
    text = read(DOCUMENT)
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    if sys.argv[1:] == ["--write"]:
        with open(DOCUMENT, "w", encoding="utf-8") as f:
            f.write(text[:begin] + table() + text[end:])
    elif text[begin:end] != table():
        print(f"{DOCUMENT}, free numbers: bring the table up to date by .ci/numbers.py --write")


main()
