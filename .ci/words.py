#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Print every word in the documents that plain technical English does without, with what to write instead.

Usage: .ci/words.py [FILE...]      default: all *.md that git knows

Code is not looked at (fenced blocks, indented blocks, `spans`): it quotes programs. doc/counters.md is made from
the texts of the programs' own tables and is left out until these are checked as well.
"""

import re
import subprocess
import sys

GENERATED = {"doc/counters.md"}
INSTEAD = {
    r"anew": "again",
    r"as +ever": "as usual, as before",
    r"befall(s|en|ing)?|befell": "happen to",
    r"for +ever": "forever",
    r"hence|thence|whence|thereby|thereupon|hither|thither": "so, from there",
    r"huge +pages?": "hugepages",
    r"lest|aught|nought": "so that not, anything, nothing",
    r"likewise": "also, in the same way",
    r"mend(s|ed|ing)?": "fix",
    r"of +before": "earlier",
    r"reckon(s|ed|ing)?": "compute, count",
    r"stands?|stood|standing": "is, applies, stays",
    r"whoever|whomever": "anyone who",
    # a position in a network, or a distance in rounds or time; after a thing in a sequence is "after"
    r"(?<!round )(?<!rounds )(?<!lags far )(?<!clock is )(?<!at most one )(?<!snapshot is )behind"
    r"(?! (a |an |the |two |virtual )?(links?|routers?|switch|firewall|proxy|the newest)\b)": "after",
}
WORDS = [(re.compile(rf"(?<![\w-])(?:{word})(?![\w-])", re.I), instead) for word, instead in INSTEAD.items()]
COMMENT = re.compile(r"<!--.*?-->", re.S)
FENCE = re.compile(r"^ *```.*?^ *```[^\n]*$", re.S | re.M)
INDENTED = re.compile(r"^(?: {4}|\t).*$", re.M)
SPAN = re.compile(r"(`+)(?!`)(?:(?!\n\s*\n).)+?(?<!`)\1(?!`)", re.S)


def prose(text):
    """The text with code and comments blanked, in lines of the same numbers."""
    for pattern in (FENCE, COMMENT, INDENTED, SPAN):
        text = pattern.sub(lambda m: re.sub(r"[^\n]", ".", m.group()), text)
    return text


def main():
    files = sys.argv[1:] or subprocess.check_output(["git", "ls-files", "*.md"], text=True).split("\n")
    found = 0
    for name in files:
        if not name or name in GENERATED:
            continue
        with open(name, encoding="utf-8") as f:
            text = prose(f.read())
        line = text.replace("\n", " ")  # a phrase may go over the end of a line
        for pattern, instead in WORDS:
            for m in pattern.finditer(line):
                number = text.count("\n", 0, m.start()) + 1
                print(f"{name}:{number}: '{' '.join(m.group().split())}': write {instead}")
                found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
