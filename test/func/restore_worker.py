#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A table of one tensor and Adam, for a restore of it beside another job.

usage: restore_worker.py make ELEMENTS FILE      one round, then FILE.ready, and wait for FILE
       restore_worker.py restore ELEMENTS [AGAIN]  the job again: what MAP says until its table is there, and how long
                                      PINGs of another job take meanwhile, and when it has ended; AGAIN: once more, at
                                      once, while its memory is being cleared
       restore_worker.py begin ELEMENTS FILE      joins, and until FILE is there asks for a table that is loading, and
                                      says "mapped" when it is not
restore prints one object of JSON."""

import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "spec"))
import pbox_proto as proto
from pbox_worker import Worker

BOX, SECRET = os.environ["PBOX_BOX"], os.environ["PBOX_SECRET"]


def make(elements, go):
    import numpy as np
    import pbox
    with pbox.Client(BOX, "big", SECRET, worker=0, workers=1, keep_copies=False) as c:
        t = c.declare([pbox.Tensor("t", elements)], mode="optimiser", op="sum", optimiser="adam")
        t.set_hyper(lr=0.5)
        p = np.zeros(elements, dtype=np.float32)
        t.init([p]).wait(300)
        t.pushpull([np.ones(elements, dtype=np.float32)], [p]).wait(300)
        with open(go + ".ready", "w", encoding="ascii"):
            pass
        while not os.path.exists(go):
            time.sleep(0.05)


class Pinger(threading.Thread):
    """PINGs of a worker of another job, one after the other: a data core answers those without a payload, the control
    thread the others."""

    def __init__(self):
        super().__init__(daemon=True)
        self.worker = Worker(BOX, "small", SECRET, worker=0, workers=1, deadline=120)
        self.worker.join()
        self.done, self.phase, self.times = False, "before", []

    def run(self):
        while not self.done:
            for size, whom in (0, "data"), (160, "control"):
                phase, begin = self.phase, time.monotonic()
                self.worker.ping(size)
                self.times.append((phase, whom, (time.monotonic() - begin) * 1000))
            time.sleep(0.002)

    def of(self, phase, whom):
        return [t for p, w, t in self.times if (p, w) == (phase, whom)]


def joined(elements):
    w = Worker(BOX, "big", SECRET, worker=0, workers=1, deadline=300)
    w.join()
    w.declare(0, [(elements, 0, "t")], mode=1, op=0, optimiser=proto.OPTIMISERS["adam"])
    return w


def map_once(w):
    """What MAP says: a text while it is not ready, or the versions of the first chunks."""
    header, m, _ = w.request("MAP", proto.Map(0, 0).pack(), what="MAP")
    return (m.text, None) if header.name == "NOT_READY" else ("", {c.version for c in m.entries})


def until_mapped(w):
    texts, began = [], time.monotonic()
    while True:
        text, versions = map_once(w)
        if versions is not None:
            return texts, versions, time.monotonic() - began
        texts.append(text)
        time.sleep(0.01)


def restore(elements, again):
    p = Pinger()
    p.start()
    p.phase = "restore"
    w = joined(elements)
    texts, versions, seconds = until_mapped(w)
    p.phase = "end"
    w.leave()
    out = {"texts": sorted({t for t in texts if "loading" in t})[:3], "loading": sum("loading" in t for t in texts),
           "versions": sorted(versions), "seconds": round(seconds, 2)}
    if again:
        w = joined(elements)
        texts, versions, _ = until_mapped(w)
        out["waits"] = sum("cleared" in t for t in texts)
        w.leave()
    time.sleep(1)
    p.done = True
    p.join()
    for phase in ("restore", "end"):
        out[phase] = {whom: {"pings": len(t), "longest_ms": round(max(t), 1)}
                      for whom in ("data", "control") for t in [p.of(phase, whom)]}
    print(json.dumps(out))


def begin(elements, go):
    w = joined(elements)
    while not os.path.exists(go):
        text, versions = map_once(w)
        print(text if versions is None else "mapped", flush=True)
        time.sleep(0.02)


if __name__ == "__main__":
    {"make": make, "restore": restore, "begin": begin}[sys.argv[1]](int(sys.argv[2]), *(sys.argv[3:] or [None]))
