#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""One worker for test/func/box_liveness and waits: rounds of an all-reduce, a line for each.

    joined SECONDS                     how long joining took
    round NUMBER CONTRIBUTORS TIME     TIME: CLOCK_MONOTONIC, the same for all processes
    error CLASS TEXT
"""

import argparse
import array
import os
import signal
import time

import pbox


class Bytes(str):
    """A text of the command line as the bytes that it was: what is not UTF-8 can be sent, too."""

    def encode(self, *_: str) -> bytes:
        return os.fsencode(str(self))


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--box", required=True)
    p.add_argument("--worker", type=int, required=True)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--job", default="j1")
    p.add_argument("--policy", default="wait")
    p.add_argument("--tensor", default="fc.weight")
    p.add_argument("--secret", default="right-secret")
    p.add_argument("--host", default=None)
    p.add_argument("--lease", type=float, default=None)
    p.add_argument("--timeout", type=float, default=60.0)
    p.add_argument("--left", type=float, default=60.0, help="seconds that one may be gone until waits for it end")
    p.add_argument("--patience", type=float, default=1800.0, help="seconds that one may live without a contribution")
    p.add_argument("--evaluate", type=float, default=0.0, help="seconds that this one does so before round 4")
    p.add_argument("--second", choices=("after", "before"), help="a second table, which this one reduces in round 4, too")
    p.add_argument("--join-timeout", type=float, default=60.0)
    p.add_argument("--rounds", type=int, default=1000000)
    p.add_argument("--elements", type=int, default=2000)
    p.add_argument("--pause", type=float, default=0.01)
    p.add_argument("--slow", type=float, default=0.1, help="pause after SIGUSR1")
    a = p.parse_args()

    def slow(_signal, _frame) -> None:
        a.pause = a.slow

    signal.signal(signal.SIGUSR1, slow)
    began = time.monotonic()
    try:
        c = pbox.Client(a.box, a.job, a.secret, a.worker, a.workers, policy=a.policy, host=a.host and Bytes(a.host),
                        lease=a.lease, timeout=a.timeout, left=a.left, patience=a.patience, join_timeout=a.join_timeout)
        print(f"joined {time.monotonic() - began:.3f}", flush=True)
        table = c.declare([(a.tensor, a.elements)], op="sum",
                          first_round=pbox.ANY_ROUND)  # it has no state: one that is started again goes on
        second = a.second and c.declare([("second", a.elements)], op="sum", first_round=pbox.ANY_ROUND)
        data = array.array("f", [1.0]) * a.elements
        for number in range(1, a.rounds + 1):
            out = array.array("f", bytes(4 * a.elements))
            if number == 4:
                time.sleep(a.evaluate)
            if number == 4 and a.second == "before":
                second.run([data], [out])
            table.run([data], [out])
            if number == 4 and a.second == "after":
                second.run([data], [out])
            n = round(out[0])
            print(f"round {number} {n} {time.monotonic():.4f}", flush=True)
            if any(x != n for x in out):
                print("error parts of the sum are of other rounds", flush=True)
            time.sleep(a.pause)
        c.close()
    except pbox.PBoxError as e:
        print(f"error {type(e).__name__} {e}", flush=True)


main()
