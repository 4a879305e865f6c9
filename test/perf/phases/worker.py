# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A worker of test/perf/phases: worker.py BOX JOB WORKER WORKERS ELEMENTS ROUNDS SECONDS. Rounds with one and with two phases in turn, each alone and beside
a computation of SECONDS for the backward pass, and as many for the forward pass. Prints the seconds of each kind, and a digest of all parameters."""

import hashlib
import sys
import time

import numpy

import pbox

TENSORS, MAX_NORM = 16, 1.0


def coefficient(norm):
    return float(numpy.float32(min(1.0, MAX_NORM / (norm + 1e-6))))


class Model:
    """A table, and what a worker pushes to it and has of it; the last tensor is the first one whose gradient is there."""

    def __init__(self, client, elements, hold):
        self.hold, n = hold, elements // TENSORS
        self.table = client.declare([(f"layer {i}", n) for i in range(TENSORS)], mode="optimiser", op="mean", optimiser="sgd", hold=hold)
        rng = numpy.random.default_rng(client.worker)
        self.gradients = [rng.standard_normal(n, dtype=numpy.float32) for _ in range(TENSORS)]
        self.parameters = [numpy.zeros(n, dtype=numpy.float32) for _ in range(TENSORS)]
        if client.worker == 0:
            self.table.init(self.parameters).wait(120)
        self.table.pull(self.parameters).wait(120)
        self.table.set_hyper(lr=0.1, **({"max_norm": MAX_NORM} if hold else {}))

    def round(self, seconds):
        """Backward, layer by layer from the last one on, and forward from the first one on: each waits for its parameters."""
        t, number = self.table, self.table.next_round
        order, ends = range(TENSORS - 1, -1, -1), {}
        for i in order if seconds else ():
            time.sleep(seconds / TENSORS)
            ends[i] = t.push({i: self.gradients[i]}) if self.hold else t.pushpull({i: self.gradients[i]}, {i: self.parameters[i]})
        if not seconds:
            ends[0] = t.push(self.gradients) if self.hold else t.pushpull(self.gradients, self.parameters)
        if self.hold:
            for i in sorted(ends, reverse=True):
                ends[i].wait(120)
            m = t.norm(number, MAX_NORM, 120)
            t.set_hyper(from_round=number, coefficient=coefficient(m.square ** 0.5))
            ends = {i: t.pull({i: self.parameters[i]}) for i in range(TENSORS)} if seconds else {0: t.pull(self.parameters)}
        for i in sorted(ends):
            ends[i].wait(120)
            time.sleep(seconds / TENSORS)


def main():
    box, job, worker, workers, elements, rounds, seconds = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:7]), float(sys.argv[7])
    client = pbox.Client(box, job, "", worker, workers, timeout=120)
    models = [Model(client, elements, hold) for hold in (False, True)]
    took = []
    for m in models:
        m.round(0)
    for compute in (0, seconds):
        for _ in range(rounds):
            for m in models:
                began = time.monotonic()
                m.round(compute)
                took.append((compute > 0, m.hold, time.monotonic() - began))
    digest = hashlib.sha256(b"".join(p.tobytes() for m in models for p in m.parameters)).hexdigest()[:16]
    print(digest, *(f"{c:d}:{h:d}:{s:.6f}" for c, h, s in took), flush=True)
    client.close()


main()
