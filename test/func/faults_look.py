# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""What an operator sees of a fault, for test/func/faults_named: 'pbox-ctl health', and the live page.

usage: faults_look.py PREFIX PORT SECONDS CULPRIT CAUSE NEXT

Looks at both until each shows one finding that has all three patterns (culprit and cause in its text, NEXT in its next step). Prints for
both after how many seconds that was, and the finding. Exit status 1: not within that time; then all that was seen last.
"""

import json
import os
import re
import subprocess
import sys
import time
import urllib.request

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE = os.path.join(TOP, "usertools/lib/page.html")


def health(prefix):
    """[(text, next step)]; a box that cannot be asked is one, too: what pbox-ctl says of it."""
    run = subprocess.run([os.path.join(TOP, "usertools/pbox-ctl"), "-f", prefix, "health"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         timeout=60, check=False)
    if run.returncode == 2:
        return [(run.stderr.strip(), run.stderr.strip())]
    lines = run.stdout.splitlines()
    return [(line[2:], lines[i + 1].strip() if i + 1 < len(lines) else "") for i, line in enumerate(lines) if line[:2] in ("! ", "- ")]


def down_says():
    """Text and next step of a box that does not answer, as the page's own script makes them."""
    with open(PAGE, encoding="utf-8") as f:
        m = re.search(r"if \(!b\.state\.up\) items\.push\(\{harmful: true, text: `\$\{b\.name\}([^`$]*)\$\{b\.state\.error\}`, next: \"([^\"]*)\"", f.read())
    return m.group(1), m.group(2)


def page(port, since):
    """The same of the page: what it lists as findings, of all boxes, but not what it knew before that time."""
    between, step = down_says()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/fleet", timeout=20) as answer:
        boxes = json.loads(answer.read())["boxes"]
    found = []
    for i, b in enumerate(boxes):
        if b["state"]["time"] < since:
            continue
        if not b["state"]["up"]:
            found.append((b["name"] + between + b["state"]["error"], step))
        found += [(("" if i == 0 else b["name"] + ": ") + f["text"], f["next"]) for f in b["state"]["findings"]]
    return found


def main():
    prefix, port, seconds, *patterns = sys.argv[1:]
    culprit, cause, step = map(re.compile, patterns)
    began, since, left, found = time.monotonic(), time.time(), ["health", "page"], {}
    seen = {}
    while left and time.monotonic() - began < float(seconds):
        for name in list(left):
            try:
                seen[name] = health(prefix) if name == "health" else page(port, since)
            except (OSError, ValueError, subprocess.SubprocessError) as e:
                seen[name] = [(f"{type(e).__name__}: {e}", "")]
            for text, what in seen[name]:
                if name in left and culprit.search(text) and cause.search(text) and step.search(what):
                    found[name] = (time.monotonic() - began, text, what)
                    left.remove(name)
        time.sleep(0.1)
    for name in left:
        print(f"not named by {name}; last seen there:", *(f"    {text} -> {what}" for text, what in seen.get(name) or [("nothing is wrong", "")]), sep="\n")
    if found:
        print(", ".join(f"{name} after {at:.1f} s" for name, (at, _, _) in found.items()))
        _, text, what = next(iter(found.values()))
        print(f"{text} -> {what}")
    return 1 if left else 0


sys.exit(main())
