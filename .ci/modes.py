#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""What goes together, from the lists of lib/wire/pbox_pairs.h: the tables of doc/modes.md, and what Python has of them.

Usage: .ci/modes.py [--write]      default: print what differs; --write: bring both up to date
"""

import ast
import os
import re
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FIRST = 11  # rows of the page; the others are columns alone
PAGE, PYTHON = "doc/modes.md", "usertools/python/pbox/_modes.py"
BY = {"UNSUPPORTED": "the box, `UNSUPPORTED`", "BAD_REQUEST": "the box, `BAD_REQUEST`", "CONF": "the box, when it is started", "PYTHON": "Python"}


def read(name):
    with open(os.path.join(TOP, name), encoding="utf-8") as f:
        return f.read()


def lists():
    """{list: [[argument, ...], ...]} of the header."""
    found = re.findall(r"^#define (PBOX_\w+)\(X\) (.*)$", read("lib/wire/pbox_pairs.h").replace("\\\n", ""), re.M)
    row = re.compile(r'X\(((?:[^"()]|"(?:[^"\\]|\\.)*")*)\)')
    item = re.compile(r'"(?:[^"\\]|\\.)*"|\w+')
    return {name: [[ast.literal_eval(x) if x[0] == '"' else x for x in item.findall(r)] for r in row.findall(text)] for name, text in found}


class Modes:
    def __init__(self):
        x = lists()
        self.uses, self.pairs = x["PBOX_USES"], x["PBOX_PAIRS"]
        self.columns = {symbol: column for symbol, column, _, _ in self.uses}
        self.notes = {frozenset((a, b)): text for a, b, text in x["PBOX_PAIR_NOTES"]}
        self.needed = {symbol: {symbol} for symbol in self.columns}
        for _ in self.columns:
            for a, b in x["PBOX_USE_NEEDS"]:
                for n in self.needed.values():
                    n |= {b} if a in n else set()
        for a, b, _, _ in self.pairs:
            assert frozenset((a, b)) not in self.notes and a in self.columns and b in self.columns, (a, b)

    def refused(self, a, b):
        """The number of the pair, from 1, that refuses these two; 0: they go together."""
        both = {a, b}
        for i, (x, y, _, _) in enumerate(self.pairs, 1):
            if {x, y} == both:
                return i
        for i, (x, y, _, _) in enumerate(self.pairs, 1):
            if {x, y} <= self.needed[a] | self.needed[b]:
                return i
        return 0

    def page(self):
        letters = {}
        lines = ["## Pairs", "", "| | " + " | ".join(self.columns.values()) + " |", "|---" * (len(self.columns) + 1) + "|"]
        for a in list(self.columns)[:FIRST]:
            cells = []
            for b in self.columns:
                n, note = self.refused(a, b), self.notes.get(frozenset((a, b)))
                if note is not None and n == 0:
                    letter = letters.setdefault(note, chr(ord("a") + len(letters)))
                    cells.append(f"yes ({letter})")
                else:
                    cells.append("" if a == b else f"**{n}**" if n else "yes")
            lines.append(f"| **{self.columns[a]}** | " + " | ".join(cells) + " |")
        lines += ["", "## Modes", "", "| column | what it is | needs |", "|---|---|---|"]
        lines += [f"| {c} | {what} | {', '.join(self.columns[n] for n in self.columns if n in self.needed[s] - {s})} |" for s, c, _, what in self.uses]
        lines += ["", "## Reasons", "", "| | pair | refused by | the error says |", "|---|---|---|---|"]
        names = {s: name for s, _, name, _ in self.uses}
        for i, (a, b, by, text) in enumerate(self.pairs, 1):
            lines.append(f"| {i} | {self.columns[a]}, {self.columns[b]} | {BY[by]} | {names[a]} with {names[b]}: {text} |")
        lines += ["", "## Notes", "", "| | how they go together |", "|---|---|"]
        lines += [f"| {letter} | {note} |" for note, letter in letters.items()]
        return "\n".join(lines) + "\n"

    def python(self):
        names = "".join(f"    {c!r}: {name!r},\n" for _, c, name, _ in self.uses)
        pairs = "".join(f"    ({self.columns[a]!r}, {self.columns[b]!r}, {by!r},\n     {text!r}),\n" for a, b, by, text in self.pairs)
        needs = "".join(f"    {c!r}: {tuple(self.columns[n] for n in self.columns if n in self.needed[s] - {s})!r},\n" for s, c in self.columns.items())
        return f"NAMES = {{\n{names}}}\nNEEDS: Dict[str, Tuple[str, ...]] = {{\n{needs}}}\nPAIRS = (\n{pairs})\n"


def main():
    modes = Modes()
    for name, begin, end, text in ((PAGE, "<!-- made by .ci/modes.py --write -->\n", "<!-- end -->\n", modes.page()),
                                   (PYTHON, "# made by .ci/modes.py --write\n", "# end\n", modes.python())):
        if not os.path.exists(os.path.join(TOP, name)):
            continue
        was = read(name)
        i, j = was.index(begin) + len(begin), was.index(end)
        if sys.argv[1:] == ["--write"]:
            with open(os.path.join(TOP, name), "w", encoding="utf-8") as f:
                f.write(was[:i] + text + was[j:])
        elif was[i:j] != text:
            print(f"{name}: bring what is made of lib/wire/pbox_pairs.h up to date by .ci/modes.py --write")


if __name__ == "__main__":
    main()
