# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""What the commands of pbox-ctl have in common: the box that they ask, and how they print what it answers."""

import argparse
import re
import sys
import time

from box_fleet import Others
from pbox_box import BoxError, Connection, entries, json_text, ljust, rjust, visible, visible_all, width


class Box(Connection):
    """The box with a file prefix (its EAL option). Texts are as the box has them, or, with lines, fit for a terminal."""

    def __init__(self, prefix, timeout=10.0, lines=False):
        super().__init__(prefix, timeout=timeout)
        self.lines = lines
        self.connect()

    def ask(self, command, *parameters):
        answer = super().ask(command, *(p for p in parameters if p is not None))
        if answer is None:
            raise BoxError(f"this box does not know {command}: is it an older one?")
        return visible_all(answer) if self.lines else answer

    def job(self, text):
        """JOB as a parameter among others: one with a comma in its name goes by its number."""
        if "," not in text:
            return text
        for number, x in entries(self.all_pages("/pbox/jobs"), "job"):
            if x["name"] in (text, visible(text), text.removeprefix("name:")):
                return f"#{number}"
        return text


def job_name(text):
    """JOB of a command line."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty: 'pbox-ctl jobs' names the jobs")
    return text


def dump(answer):
    print(json_text(answer))


def show(args, answer, text):
    """Print an answer: as JSON with -j."""
    dump(answer) if args.json else print(text)


def refused(args, answer):
    """Say why, if it was refused."""
    if "error" not in answer:
        return False
    if args.json:
        dump(answer)
    else:
        print("pbox-ctl: " + re.sub(r"/pbox/([a-z]+)", r"'pbox-ctl \1'", answer["error"]), file=sys.stderr)
    return True


def table(head, rows):
    """Columns as wide as they need; numbers are at the right."""
    rows = [[str(x) for x in row] for row in rows]
    columns = [max(width(row[i]) for row in [head, *rows]) for i in range(len(head))]
    right = [bool(rows) and all(row[i][:1].isdigit() or row[i] in ("", "-") for row in rows) for i in range(len(head))]

    def line(row):
        return "  ".join(rjust(x, w) if r else ljust(x, w) for x, w, r in zip(row, columns, right)).rstrip()
    return "\n".join(line(row) for row in [head, *rows])


def size(n):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024 or unit == "GiB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024


def twice(args, ask):
    """Two answers, with an interval between them, and the seconds that it was: for rates."""
    first = ask()
    if "error" in first or args.interval <= 0:
        return first, first, 0.0
    time.sleep(args.interval)
    then = ask()
    return first, then, (then.get("clock_ns", 0) - first["clock_ns"]) / 1e9


def rate(before, now, key, seconds, scale=1.0):
    """Growth a second, "-" where it is not known."""
    if seconds <= 0 or key not in before or now[key] < before[key]:
        return "-"
    return f"{(now[key] - before[key]) * scale / seconds:.{0 if scale == 1.0 else 3}f}"


def add_interval(p):
    p.add_argument("-i", "--interval", type=float, default=0.5, metavar="SECONDS",
                   help="look twice, so long apart, for rates (default 0.5; 0: once)")


def findings_of(answer):
    lines = []
    for _, x in entries(answer or {}, "finding"):
        lines += [f"{'!' if x['harmful'] else '-'} {x['text']}", f"    {x['next']}"]
    return lines


def others_of(box, args):
    """The other boxes, of one that is one of several; they are asked through the exporter beside this box, or those of --boxes."""
    return Others(Connection.ask(box, "/pbox/boxes") or {}, args.boxes)


def with_others(args, answer, others):
    """For -j: what the other boxes say, too."""
    if args.json and (others.asked or others.note):
        answer = {**answer, "others": [{"name": name, "state": state} for name, state in others.asked], "not_asked": others.note}
    return answer


def shown(text):
    return visible(str(text))


def counted(n, what):
    return f"{n} {what}{'' if n == 1 else 's'}"
