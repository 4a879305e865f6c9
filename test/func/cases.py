# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Runs the functions test_* of a test program, each whatever becomes of the others, and prints a line for each."""

import traceback


class Skip(Exception):
    """A test that cannot run here; its text says why."""


def run_cases(names, call=lambda test: test()):
    """Those of globals() in the order of the file; call: how one is called. The exit status."""
    counts = {"ok": 0, "not ok": 0, "skip": 0}
    for name, test in list(names.items()):
        if name.startswith("test_"):
            verdict, why = "ok", ""
            try:
                call(test)
            except Skip as e:
                verdict, why = "skip", f": {e}"
            except Exception as e:  # each test is reported, whatever it raises
                verdict, why = "not ok", f": {type(e).__name__}: {e}"
                traceback.print_exc()
            counts[verdict] += 1
            print(f"{verdict} - {name}{why}", flush=True)
    print(f"{counts['ok']} passed, {counts['not ok']} failed" + (f", {counts['skip']} skipped" if counts["skip"] else ""))
    return 1 if counts["not ok"] else 0
