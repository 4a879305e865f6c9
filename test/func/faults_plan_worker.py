# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A worker of two by plan (policy reassign), for test/func/faults_named: it pushes its slots of round 1, worker 1 only after a file is there.

usage: faults_plan_worker.py BOX SECRET WORKER FILE
"""

import array
import os
import sys
import time

import pbox

ELEMENTS = 1000


def main():
    box, secret, worker, go = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    c = pbox.Client(box, "plan", secret, worker, 2, slots=4, policy="reassign", host=f"gpu{worker}", timeout=300, join_timeout=60)
    t = c.declare([("fc.weight", ELEMENTS)], mode="optimiser", optimiser="sgd", op="mean")
    t.set_hyper(lr=0.5)
    if worker == 0:
        t.init([array.array("f", [1.0]) * ELEMENTS]).wait()
    t.work()
    print("slots", c.nodes(), flush=True)
    while worker == 1 and not os.path.exists(go):
        time.sleep(0.05)
    out = [array.array("f", bytes(4 * ELEMENTS))]
    t.pushpull_nodes([[array.array("f", [1.0]) * ELEMENTS] for _ in c.nodes()], out).wait()
    print("parameter", out[0][0], flush=True)
    c.close()


main()
