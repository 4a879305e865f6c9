# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Sphinx: the pages of doc/ as one book. usertools/mkdoc runs it."""

project = "PBox"
author = "the PBox authors"
copyright = "2026, " + author  # pylint: disable=redefined-builtin
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
master_doc = "index"
exclude_patterns = ["sphinx", "man"]
html_theme = "alabaster"
html_theme_options = {"description": "A parameter server as an appliance", "page_width": "1100px"}
html_show_sphinx = False
html_copy_source = False
# links to headings, as the pages have them
myst_heading_anchors = 4
# "```text" and indented blocks are no language; "ini" has keys that Pygments does not know
highlight_language = "none"
suppress_warnings = ["misc.highlighting_failure"]
