#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Print every word that plain technical English does without, with what to write instead, where a folder has more than it is allowed.

Usage: .ci/words.py [--all|--lower] [FILE...]      default: all files that git knows; --all, or files: each word, whatever
is allowed; --lower: write the numbers that have fallen into this file

Documents are looked at without their code (fenced blocks, indented blocks, `spans`), C and Python in comments and string
literals, shell scripts, manual pages and other texts as a whole. doc/counters.md is made from the programs' tables of
counters, which are looked at themselves.
"""

import collections
import io
import re
import subprocess
import sys
import tokenize

# Words in a folder (the first two parts of a path). These numbers only fall; a folder that is not here has none.
ALLOWED = {
    "drivers/reduce": 4,
}
# made from other files, frozen, input of tests, or a law's text
SKIP = re.compile(r"doc/counters\.md|LICENSE|.*\.(svg|pcap|json|csv|cfg)|test/(golden|models)/.*|test/fuzz/.*/corpus/.*|\.ci/words\.py")
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
    r"mirror(s|ed|ing)?": "copy, reverse, reflect",
    r"of +before": "earlier",
    r"reckon(s|ed|ing)?": "compute, count",
    r"stands?|stood|standing": "is, applies, stays",
    r"tells?|telling|told": "report, say, ask, show",
    r"whoever|whomever": "anyone who",
    # a position in a network, or a distance in rounds or time; after a thing in a sequence is "after"
    r"(?<!round )(?<!rounds )(?<!lags far )(?<!clock is )(?<!clocks )(?<!pushes )(?<!steps )(?<!at most one )(?<!snapshot is )(?<!how far )(?<!farthest )behind"
    r"(?! (a |an |the |two |virtual )?(links?|routers?|switch|firewall|proxy|net_chaos|the newest)\b)": "after",
}
WORDS = [(re.compile(rf"(?<![\w-])(?:{word})(?![\w-])", re.I), instead) for word, instead in INSTEAD.items()]
ANY = re.compile("|".join(rf"(?<![\w-])(?:{word})(?![\w-])" for word in INSTEAD), re.I)

MARKDOWN = [
    re.compile(r"^ *```.*?^ *```[^\n]*$", re.S | re.M),
    re.compile(r"<!--.*?-->", re.S),
    re.compile(r"^(?: {4}|\t).*$", re.M),
    re.compile(r"(`+)(?!`)(?:(?!\n\s*\n).)+?(?<!`)\1(?!`)", re.S),
]
C_TOKEN = re.compile(r"""(?P<text>/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*")|'(?:\\.|[^'\\\n])*'|#\s*include[^\n]*""", re.S)
# how a line of a comment begins
MARGIN = re.compile(r"\n[ \t]*(?:\*(?!/)|//|#+)")


def blank(text):
    return re.sub(r"[^\n]", ".", text)


def prose(text):
    """A document with its code and comments blanked."""
    for pattern in MARKDOWN:
        text = pattern.sub(lambda m: blank(m.group()), text)
    return text


def c_texts(text):
    """C with nothing but its comments and strings left."""
    kept, at = [], 0
    for m in C_TOKEN.finditer(text):
        kept.append(blank(text[at:m.start()]))
        kept.append(m.group() if m.group("text") else blank(m.group()))
        at = m.end()
    return "".join(kept) + blank(text[at:])


def python_texts(text):
    """Python with nothing but its comments and strings left."""
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    kept, at = [], 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            begin = starts[token.start[0] - 1] + token.start[1]
            end = starts[token.end[0] - 1] + token.end[1]
            kept += [blank(text[at:begin]), text[begin:end]]
            at = end
    return "".join(kept) + blank(text[at:])


def words(name):
    """[(line, word, what to write instead)] of a file."""
    try:
        with open(name, encoding="utf-8") as f:
            text = f.read()
    except UnicodeDecodeError:
        return []  # not a text
    if name.endswith(".md"):
        text = prose(text)
    elif name.endswith((".c", ".h")):
        text = c_texts(text)
    elif name.endswith(".py") or re.match(r"#!.*python", text):
        text = python_texts(text)
    # a phrase may go over the end of a line
    line = MARGIN.sub(lambda m: " " * len(m.group()), text).replace("\n", " ")
    return [(text.count("\n", 0, m.start()) + 1, re.sub(r"\s+", " ", m.group()), next(i for p, i in WORDS if p.fullmatch(m.group())))
            for m in ANY.finditer(line)]


def lower(folders):
    """The table of this file with the numbers that are smaller now; a folder that has none is taken out."""
    with open(__file__, encoding="utf-8") as f:
        text = f.read()
    for folder, allowed in ALLOWED.items():
        count = len(folders.get(folder, ()))
        if count < allowed:
            text = text.replace(f'    "{folder}": {allowed},\n', f'    "{folder}": {count},\n' if count else "")
    with open(__file__, "w", encoding="utf-8") as f:
        f.write(text)


def main():
    args = [a for a in sys.argv[1:] if a not in ("--all", "--lower")]
    names = args or subprocess.check_output(["git", "ls-files"], text=True).split("\n")
    folders = collections.defaultdict(list)
    for name in names:
        if name and (args or not SKIP.fullmatch(name)):
            folder = "/".join(name.split("/")[:-1][:2]) or "."
            folders[folder] += [f"{name}:{line}: '{word}': write {instead}" for line, word, instead in words(name)]
    if "--lower" in sys.argv[1:]:
        return lower(folders)
    bad = 0
    for folder, found in sorted(folders.items()):
        allowed = ALLOWED.get(folder, 0)
        if args or "--all" in sys.argv[1:] or len(found) > allowed:
            bad += len(found)
            print(*found, sep="\n", end="\n" if found else "")
            if found and allowed and not args:
                print(f"{folder}: {len(found)} words, {allowed} allowed in .ci/words.py")
        elif len(found) < allowed:
            # fewer are no defect: it is said, and no gate fails for it
            print(f"{folder}: {len(found)} words and not {allowed} any more: .ci/words.py --lower", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
