# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Fenced blocks of a guide and the HTML comments that say what to do with them.

A comment is on the line before the fence (blank lines may be between):

    <!-- run: host -->                 anywhere
    <!-- run: box -->                  needs the namespaces box, w0, w1 of operate.md
    <!-- run: worker -->               in namespace w0
    <!-- run: workers -->              in w0 and w1 at the same time, with RANK and WORLD_SIZE
    <!-- norun: REASON -->             only read
    <!-- file: NAME -->                not a command: becomes the file NAME
    <!-- output -->                    these lines occur in the output of the block before;
    <!-- output: started -->           ... of the latest block marked `start`

After `run: WHERE` may follow, separated by commas:

    start                              it does not end: go on when the output block has occurred
    setup                              other guides begin with it too: of operate.md all, of fleet.md members.md
    status N                           the exit status that it must have
    needs WHAT                         skip it where WHAT (torch, numpy, client, perf, cc) is missing

In output blocks `...` is anything within a line.
"""

import re
from dataclasses import dataclass, field

SHELL = {"sh", "bash", "console", "shell"}
WHERE = {"host", "box", "worker", "workers"}
COMMENT = re.compile(r"^\s*<!--\s*(run|norun|file|output)\b:?\s*(.*?)\s*-->\s*$")


class DocError(Exception):
    pass


@dataclass
class Block:
    line: int
    kind: str  # run, norun, file, output
    text: str
    where: str = ""  # of run; "started" of output; name of file; reason of norun
    start: bool = False
    setup: bool = False
    status: int = 0
    needs: list = field(default_factory=list)


def parse_run(b, arg):
    where, *rest = [x.strip() for x in arg.split(",")]
    if where not in WHERE:
        raise DocError(f"line {b.line}: run: '{where}' is none of {', '.join(sorted(WHERE))}")
    b.where = where
    for x in rest:
        word, _, value = x.partition(" ")
        if word in ("start", "setup") and not value:
            setattr(b, word, True)
        elif word == "status" and value.isdigit():
            b.status = int(value)
        elif word == "needs" and value:
            b.needs += value.split()
        else:
            raise DocError(f"line {b.line}: run: what is '{x}'?")


def make(line, language, comment, text):
    if comment is None:
        if language in SHELL:
            raise DocError(f"line {line}: a shell block without run: or norun: before it")
        return None
    kind, arg = comment
    b = Block(line, kind, text, arg)
    if kind == "run":
        parse_run(b, arg)
    elif kind in ("norun", "file") and not arg:
        raise DocError(f"line {line}: {kind}: needs a word more")
    return b


def blocks(path):
    """All blocks that have a comment, in order; DocError where a rule is broken."""
    out, comment, fence = [], None, None
    with open(path, encoding="utf-8") as f:
        for n, line in enumerate(f, 1):
            if fence is not None:
                if line.strip() == "```":
                    b = make(begin, fence, comment, "".join(text))
                    out += [b] if b else []
                    fence = comment = None
                else:
                    text.append(line)
            elif line.startswith("```"):
                fence, begin, text = line.strip("`\n "), n, []
            else:
                m = COMMENT.match(line)
                if m:
                    comment = m.groups()
                elif line.strip():
                    if comment:
                        raise DocError(f"line {n}: no block after '{comment[0]}: {comment[1]}'")
                    comment = None
    if fence is not None:
        raise DocError(f"line {begin}: the block does not end")
    return out


def missing_lines(expected, actual):
    """Lines of an output block that do not occur."""
    have = [" ".join(x.split()) for x in actual.splitlines()]
    out = []
    for line in expected.splitlines():
        want = " ".join(line.split())
        pattern = re.compile(".*".join(map(re.escape, want.split("..."))))
        if want and not any(pattern.fullmatch(x) for x in have):
            out.append(line.rstrip())
    return out
