# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A worker of the experiments psld and moves: rounds of one tensor, and before each a computation, by sleeping.

Prints `end SECONDS` (monotonic) after each round, and at the end `digest SHA256` of all results. With --hold FILE it waits for that file before
its last round."""

import argparse
import array
import hashlib
import os
import time

import pbox


def gradients(worker, elements):
    """Whole numbers, so that the order of addition is no matter here."""
    return array.array("f", ((i * 7 + worker) % 13 - 6.0 for i in range(elements)))


def expected(workers, elements, rounds):
    """The digest of an all-reduce, computed without a box: with each round one element of each gradient grows by 1."""
    out, digest = array.array("f", map(sum, zip(*(gradients(w, elements) for w in range(workers))))), hashlib.sha256()
    for r in range(rounds):
        out[r % elements] += workers
        digest.update(out.tobytes())
    return digest.hexdigest()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--box", required=True)
    p.add_argument("--job", required=True)
    p.add_argument("--worker", type=int, required=True)
    p.add_argument("--workers", type=int, required=True)
    p.add_argument("--elements", type=int, required=True)
    p.add_argument("--rounds", type=int, required=True)
    p.add_argument("--compute", type=float, default=0.0, help="seconds of a round")
    p.add_argument("--hold", default="", metavar="FILE")
    p.add_argument("--optimiser", default="none", help="none: all-reduce")
    a = p.parse_args()
    c = pbox.Client(a.box, a.job, worker=a.worker, workers=a.workers, timeout=120.0, join_timeout=60.0)
    out = array.array("f", bytes(4 * a.elements))
    if a.optimiser == "none":
        t = c.declare([("g", a.elements)], op="sum")
    else:
        t = c.declare([("g", a.elements)], mode="optimiser", op="sum", optimiser=a.optimiser)
        t.set_hyper(lr=0.01)
        if a.worker == 0:
            t.init([out])
    grad = gradients(a.worker, a.elements)
    digest = hashlib.sha256()
    for r in range(a.rounds):
        time.sleep(a.compute)
        while a.hold and r == a.rounds - 1 and not os.path.exists(a.hold):
            time.sleep(0.01)
        grad[r % a.elements] += 1.0
        t.pushpull([grad], [out]).wait()
        print("end", time.monotonic(), flush=True)
        digest.update(out.tobytes())
    print("digest", digest.hexdigest(), flush=True)
    c.close()


if __name__ == "__main__":
    main()
