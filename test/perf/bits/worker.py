# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A worker of test/perf/bits: worker.py BOX JOB WORKER WORKERS FORMAT ELEMENTS ROUNDS. Prints `SECONDS CPU_SECONDS DIGEST` of the rounds after
the first; DIGEST is of the last result."""

import hashlib
import resource
import sys
import time

import numpy

import pbox


def cpu():
    r = resource.getrusage(resource.RUSAGE_SELF)
    return r.ru_utime + r.ru_stime


def main():
    box, job, worker, workers, fmt, elements, rounds = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:5]), sys.argv[5], *map(int, sys.argv[6:])
    client = pbox.Client(box, job, "", worker, workers, timeout=120)
    table = client.declare([("gradient", elements)], op="mean", push=fmt, pull=fmt)
    gradient = numpy.random.default_rng(worker).standard_normal(elements, dtype=numpy.float32)
    result = numpy.empty_like(gradient)
    table.pushpull([gradient], [result]).wait(120)
    used, began = cpu(), time.monotonic()
    for _ in range(rounds):
        table.pushpull([gradient], [result]).wait(120)
    took, used = time.monotonic() - began, cpu() - used
    print(took, used, hashlib.sha256(result.tobytes()).hexdigest()[:16], flush=True)
    client.close()


main()
