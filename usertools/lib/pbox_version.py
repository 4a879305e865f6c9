# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The release that a tool is of: written beside this file when it is installed, else that of the source."""

import os
import re

HERE = os.path.dirname(os.path.realpath(__file__))


def version():
    for path, pattern in (("version", r"(\S+)"), ("../../meson.build", r"^ *version: '([^']+)'")):
        try:
            with open(os.path.join(HERE, path), encoding="utf-8") as f:
                found = re.search(pattern, f.read(), re.M)
        except OSError:
            continue
        if found:
            return found.group(1)
    return "of unknown release"


def add_version(parser):
    """--version of a tool, as pbox and pbox-agent have it."""
    parser.add_argument("--version", action="version", version=f"{parser.prog} {version()}")
