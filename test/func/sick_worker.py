#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Workers of an all-reduce for test/func/not_finite: sum of round 1, 2, ...; a line where one is not finite.

    round NUMBER finite
    round NUMBER not_finite TEXT OF THE BOX
    error CLASS TEXT
"""

import argparse
import array
import math
import time

import pbox

ELEMENTS = (("conv.weight", 3000), ("fc.weight", 5000))


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--box", required=True)
    p.add_argument("--worker", type=int, required=True)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--run")
    p.add_argument("--job", required=True)
    p.add_argument("--secret", required=True)
    p.add_argument("--rounds", type=int, default=6)
    p.add_argument("--bad", action="append", default=[], help="ROUND:ELEMENT:VALUE of fc.weight")
    p.add_argument("--stay", type=float, default=0.0, help="seconds before it leaves")
    a = p.parse_args()
    try:
        c = pbox.Client(a.box, a.job, a.secret, a.worker, a.workers, run=a.run, host=f"gpu{a.worker}", timeout=60, join_timeout=60)
        table = c.declare(list(ELEMENTS), op="sum")
        for number in range(1, a.rounds + 1):
            data = [array.array("f", [1.0]) * n for _, n in ELEMENTS]
            out = [array.array("f", bytes(4 * n)) for _, n in ELEMENTS]
            for bad in a.bad:
                at, element, value = bad.split(":")
                if int(at) == number:
                    data[1][int(element)] = float(value)
            table.run(data, out)
            good = all(math.isfinite(x) for t in out for x in t)
            print(f"round {number} " + ("finite" if good else f"not_finite {c.not_finite()}"), flush=True)
            if not good and c.not_finite() not in c.why():
                print("error why() does not say it", flush=True)
        time.sleep(a.stay)
        c.close()
    except pbox.PBoxError as e:
        print(f"error {type(e).__name__} {e}", flush=True)


main()
