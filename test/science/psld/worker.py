# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A worker of the experiment psld: rounds of an all-reduce of one tensor, and before each a computation, by sleeping.

Prints `end SECONDS` (monotonic) after each round, and at the end `digest SHA256` of all results."""

import argparse
import array
import hashlib
import time

import pbox


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--box", required=True)
    p.add_argument("--job", required=True)
    p.add_argument("--worker", type=int, required=True)
    p.add_argument("--workers", type=int, required=True)
    p.add_argument("--elements", type=int, required=True)
    p.add_argument("--rounds", type=int, required=True)
    p.add_argument("--compute", type=float, required=True, help="seconds of a round")
    a = p.parse_args()
    c = pbox.Client(a.box, a.job, worker=a.worker, workers=a.workers, timeout=120.0, join_timeout=60.0)
    t = c.declare([("g", a.elements)], op="sum")
    grad = array.array("f", ((i * 7 + a.worker) % 13 - 6.0 for i in range(a.elements)))
    out = array.array("f", bytes(4 * a.elements))
    digest = hashlib.sha256()
    for r in range(a.rounds):
        time.sleep(a.compute)
        grad[r % a.elements] += 1.0
        t.pushpull([grad], [out]).wait()
        print("end", time.monotonic(), flush=True)
        digest.update(out.tobytes())
    print("digest", digest.hexdigest(), flush=True)
    c.close()


main()
