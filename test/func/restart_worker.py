#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""One worker of two for test/func/restart: SGD on the box, of which nobody pulls version 0. Worker 0 pushes round 1,
worker 1 waits for a file before it does. Numbers are such that fp32 has them exactly.

usage: restart_worker.py BOX SECRET WORKER FILE"""

import array
import os
import sys
import time

import pbox

N = 5000
box, secret, worker, go = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
try:
    c = pbox.Client(box, "init", secret, worker, 2, timeout=300, join_timeout=60)
    t = c.declare([("w", N)], mode="optimiser", optimiser="sgd", op="sum")
    t.set_hyper(lr=0.5)
    if worker == 0:
        t.init([array.array("f", range(N))]).wait()
    out = array.array("f", bytes(4 * N))
    if worker == 1:
        print("waits", flush=True)
        while not os.path.exists(go):
            time.sleep(0.05)
    op = t.pushpull([array.array("f", [1.0 + worker]) * N], [out])
    if worker == 0:
        time.sleep(2)  # the box has it, and waits for worker 1
        print("pushed", flush=True)
    op.wait()
    print("right" if out == array.array("f", (i - 1.5 for i in range(N))) else f"wrong {out[:4]}", flush=True)
    c.close()
except pbox.PBoxError as e:
    print(f"error {type(e).__name__} {e}", flush=True)
