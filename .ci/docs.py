#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Print every link to a document, a section or a rule that leads nowhere, and every document that is too long or too wide to read.

Usage: .ci/docs.py [DIRECTORY]      default: the tree of this file

- A link of a document names a file, and a heading in it, that are there.
- A text in code, tests, configuration, manual pages or messages that names a document (doc/NAME.md, or NAME.md) finds it; a
  section after it (doc/NAME.md, "Heading" or section 11) is a heading of that document.
- A rule (R5.2a) is one of doc/protocol.md, wherever it is named.
- A document has at most 400 lines, but the protocol, and no line above 130 columns, but rows of tables.
- Each document is installed, or is for developers; each one with commands is run by test/func/docs_commands or test/image.
"""

import os
import re
import subprocess
import sys

LINES, COLUMNS = 400, 130
# the protocol is one document; WIDE only gets shorter
LONG = {"doc/protocol.md"}
WIDE = set()
NOT_INSTALLED = {"index", "develop"}
# run by test/image/boot
OTHER_TESTS = {"appliance"}
# made by programs, input of tests, or with links that are planted on purpose
SKIP = re.compile(r".*\.(svg|pcap|json|csv|cfg|map|html)|LICENSE|test/(golden|models)/.*|test/fuzz/.*/corpus/.*|\.ci/docs\.py|test/func/docs_html")
RULE = re.compile(r"(?<![\w/.])R(\d{1,2}\.\d{1,2}[a-z]?)(?![\w.]\d|\w)")
NAMED = re.compile(r"(?<![\w/.*<{$-])((?:\.\./)*(?:doc/)?)([A-Za-z_][\w-]*)\.md\b"
                   r"(?:[`)]?[,:]?\s+(?:\"(?P<heading>[A-Z][^\"\n]{2,60})\"|section (?P<section>\d+)))?")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def slug(heading):
    """The anchor of a heading, as GitHub and MyST make it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


class Document:
    """Its headings, its lines outside of code, and what is too wide."""

    def __init__(self, text):
        self.headings, self.anchors, self.prose, self.wide = [], set(), [], []
        fence, count = None, {}
        self.lines = text.count("\n")
        for n, line in enumerate(text.splitlines(), 1):
            if len(line) > COLUMNS and not line.lstrip().startswith("|"):
                self.wide.append(n)
            m = re.match(r"\s*(`{3,})", line)
            if m and (fence is None or line.strip() == fence):
                fence = m.group(1) if fence is None else None
                continue
            if fence is not None:
                continue
            self.prose.append((n, re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", line)))
            m = re.match(r"#{1,6} +(.*)", line)
            if m:
                self.headings.append(m.group(1).replace("`", ""))
                a = slug(m.group(1))
                self.anchors.add(a if a not in count else f"{a}-{count[a]}")
                count[a] = count.get(a, 0) + 1


def has_section(doc, number):
    return any(re.match(rf"{number}[. ]", h) for h in doc.headings)


def check_links(name, doc, documents, top):
    folder = os.path.dirname(name)
    for n, line in doc.prose:
        for target in LINK.findall(line):
            if re.match(r"[a-z]+:", target) or target.startswith("api/"):
                continue
            path, _, anchor = target.partition("#")
            path = os.path.normpath(os.path.join(folder, path)) if path else name
            if re.fullmatch(r"doc/man/[\w-]+\.\d", path):
                # made of a sample, or an alias that doc/man/meson.build has
                stem = path[len("doc/man/"):]
                with open(os.path.join(top, "doc/man/meson.build"), encoding="utf-8") as f:
                    known = stem in f.read()
                if not known and not any(os.path.exists(os.path.join(top, path + x)) for x in ("", ".in")):
                    print(f"{name}:{n}: no manual page {path}")
            elif not os.path.exists(os.path.join(top, path)):
                print(f"{name}:{n}: there is no {path}")
            elif anchor and path in documents and anchor not in documents[path].anchors:
                print(f"{name}:{n}: {path} has no heading for #{anchor}")


def check_names(name, text, documents):
    """Documents that code and messages name."""
    for m in NAMED.finditer(text):
        stem = m.group(2)
        path = f"doc/{stem}.md" if f"doc/{stem}.md" in documents else f"{stem}.md"
        line = text.count("\n", 0, m.start()) + 1
        if path not in documents and f".github/{stem}.md" not in documents:
            print(f"{name}:{line}: there is no document {m.group(1)}{stem}.md")
            continue
        doc = documents.get(path)
        if doc and m.group("heading") and m.group("heading").rstrip(",.") not in doc.headings:
            print(f"{name}:{line}: {path} has no section \"{m.group('heading')}\"")
        if doc and m.group("section") and not has_section(doc, m.group("section")):
            print(f"{name}:{line}: {path} has no section {m.group('section')}")


def main():
    top = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), ".."))
    if os.path.exists(os.path.join(top, ".git")):
        files = subprocess.check_output(["git", "-C", top, "ls-files"], text=True).splitlines()
    else:
        files = [os.path.relpath(os.path.join(d, f), top) for d, _, found in os.walk(top) for f in found]
    texts = {}
    for f in sorted(files):
        try:
            with open(os.path.join(top, f), encoding="utf-8") as file:
                texts[f] = file.read()
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue
    documents = {f: Document(t) for f, t in texts.items() if f.endswith(".md")}
    rules = set(re.findall(r"\*\*R(\d+\.\d+[a-z]?)\b", texts["doc/protocol.md"]))
    for f, text in texts.items():
        if SKIP.fullmatch(f):
            continue
        for m in RULE.finditer(text):
            if m.group(1) not in rules:
                print(f"{f}:{text.count(chr(10), 0, m.start()) + 1}: doc/protocol.md has no rule R{m.group(1)}")
        if f in documents:
            check_links(f, documents[f], documents, top)
        elif not f.endswith("meson.build"):
            check_names(f, text, documents)
    installed = set(re.findall(r"'([\w-]+)\.md'", texts.get("doc/meson.build", "")))
    tested = set(re.findall(r"\"([\w-]+)\"", re.search(r"^GUIDES = \((.*?)\)", texts["test/func/docs_commands"], re.S | re.M).group(1))) \
        if "test/func/docs_commands" in texts else None
    for f, doc in documents.items():
        if not re.fullmatch(r"doc/[\w-]+\.md|README\.md", f):
            continue
        stem = f[len("doc/"):-len(".md")]
        if doc.lines > LINES and f not in LONG:
            print(f"{f}: {doc.lines} lines: make a page for each task")
        if doc.lines <= LINES and f in LONG:
            print(f"{f}: it is short enough: take it from LONG of .ci/docs.py")
        if doc.wide and f not in WIDE:
            print(f"{f}:{doc.wide[0]}: {len(doc.wide)} lines are wider than {COLUMNS} columns")
        if not doc.wide and f in WIDE:
            print(f"{f}: no line is too wide any more: take it from WIDE of .ci/docs.py")
        if f.startswith("doc/") and installed and (stem in installed) == (stem in NOT_INSTALLED):
            print(f"{f}: doc/meson.build {'installs it' if stem in installed else 'does not install it'}")
        if tested is not None and re.search(r"^<!-- run: ", texts[f], re.M) and stem not in tested | OTHER_TESTS:
            print(f"{f}: no test runs its commands: add it to GUIDES of test/func/docs_commands")


if __name__ == "__main__":
    main()
