#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Two workers that train made-up tensors with Adam on the box: rounds FIRST to LAST. Saves the parameters before
FIRST and after LAST; at round --pause both wait for a file.

usage: [JOB=NAME] snapshot_worker.py OUT FIRST LAST [--pause ROUND FILE]
"""

import os
import sys
import threading
import time

import numpy as np
import pbox

SIZES = [("conv", 70000), ("bias", 37), ("fc", 30001)]


def gradient(worker, round_, k):
    rng = np.random.default_rng((worker, round_, k))
    return rng.standard_normal(SIZES[k][1]).astype(np.float32)


def work(worker, out, first, last, pause, failed):
    try:
        with pbox.Client(os.environ["PBOX_BOX"], os.environ.get("JOB", "j1"), "right-secret", worker=worker, workers=2) as c:
            t = c.declare([pbox.Tensor(n, e) for n, e in SIZES], mode="optimiser", op="mean", optimiser="adam")
            p = [np.linspace(-1, 1, e, dtype=np.float32) for _, e in SIZES]
            if first == 1 and worker == 0:
                t.set_hyper(lr=0.01)
                t.init(p).wait(300)
            elif first == 1:
                t.pull(p).wait(300)
            else:
                p = [np.zeros(e, dtype=np.float32) for _, e in SIZES]
                t.pull(p).wait(300)
            before = [x.copy() for x in p]
            saved = {}
            for r in range(first, last + 1):
                time.sleep(float(os.environ.get("ROUND_PAUSE", "0")))
                t.pushpull([gradient(worker, r, k) for k in range(len(SIZES))], p).wait(300)
                if r == first:
                    with open(f"{out}.begun.{worker}", "w", encoding="ascii"):
                        pass
                if pause and r == pause[0]:
                    saved = {f"pause{k}": x.copy() for k, x in enumerate(p)}
                    with open(f"{pause[1]}.{worker}", "w", encoding="ascii"):
                        pass
                    while not os.path.exists(pause[1]):
                        time.sleep(0.02)
            np.savez(f"{out}.{worker}.npz", **saved, **{f"before{k}": x for k, x in enumerate(before)},
                     **{f"after{k}": x for k, x in enumerate(p)})
    except BaseException as e:  # a thread's exception must reach the exit status
        failed.append(f"worker {worker}: {e!r}")
        raise


def main():
    out, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    pause = (int(sys.argv[5]), sys.argv[6]) if len(sys.argv) > 4 else None
    failed = []
    threads = [threading.Thread(target=work, args=(w, out, first, last, pause, failed)) for w in (0, 1)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    print(failed or "done")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
