# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Threads as workers."""

import threading
import time


def run(n, fn):
    """fn(worker) in n threads; returns their results, raises the first failure."""
    results, errors = [None] * n, []

    def body(w):
        try:
            results[w] = fn(w)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=body, args=(w,)) for w in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    if errors:
        raise errors[0]
    if any(t.is_alive() for t in threads):
        raise AssertionError("a worker hangs")
    return results


def within(seconds, true):
    """true() comes to be, before the limit."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True
