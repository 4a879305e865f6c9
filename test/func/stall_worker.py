#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Jobs for test/func/box_stall: one for each policy and lease, two workers each, rounds with momentum on the
box, each result compared bit by bit with the same arithmetic here. SIGUSR1: say how far they are. SIGTERM: the end.
Usage: stall_worker.py BOX LEASE...

    joined
    rounds JOB=ROUND...
    error JOB WORKER CLASS TEXT
"""

import signal
import sys
import threading
import time

import numpy as np
import pbox

ELEMENTS, LR, MOMENTUM = 1000, np.float32(0.01), np.float32(0.9)
JOBS = [(policy, lease) for policy in ("wait", "shrink") for lease in map(int, sys.argv[2:])]


def gradient(worker: int, number: int) -> np.ndarray:
    return np.random.default_rng(1000 * worker + number).standard_normal(ELEMENTS).astype(np.float32)


def work(name: str, policy: str, lease: float, worker: int) -> None:
    try:
        c = pbox.Client(sys.argv[1], name, "right-secret", worker, 2, policy=policy, lease=lease, timeout=300, join_timeout=120)
        table = c.declare([("w", ELEMENTS)], mode="optimiser", optimiser="momentum", op="sum")
        theta = np.linspace(-1, 1, ELEMENTS, dtype=np.float32)
        buf = np.zeros(ELEMENTS, np.float32)
        if worker == 0:
            table.set_hyper(lr=float(LR), momentum=float(MOMENTUM))
            table.init([theta]).wait()
        got = np.empty_like(theta)
        table.pull([got]).wait()
        here.wait(300)
        number = 0
        while not over.is_set():
            number += 1
            table.run([gradient(worker, number)], [got])
            g = gradient(0, number) + gradient(1, number)
            buf = g if number == 1 else buf * MOMENTUM + g
            theta = theta - LR * buf
            if not np.array_equal(theta.view(np.uint32), got.view(np.uint32)):
                raise ValueError(f"round {number} differs from what it should be")
            rounds[name, worker] = number
            time.sleep(0.05)
    except Exception as e:  # whatever it is, the test is to see it
        print(f"error {name} {worker} {type(e).__name__} {e}", flush=True)


over = threading.Event()
here = threading.Barrier(2 * len(JOBS) + 1)
rounds = {(f"{p}{s}", w): 0 for p, s in JOBS for w in (0, 1)}
signal.signal(signal.SIGTERM, lambda *_: over.set())
signal.signal(signal.SIGUSR1, lambda *_: print(
    "rounds", *(f"{p}{s}={min(rounds[f'{p}{s}', w] for w in (0, 1))}" for p, s in JOBS), flush=True))
for policy_, lease_ in JOBS:
    for worker_ in (0, 1):
        threading.Thread(target=work, args=(f"{policy_}{lease_}", policy_, lease_, worker_), daemon=True).start()
here.wait(300)
print("joined", flush=True)
while not over.wait(0.1):
    pass
