# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""One rank of Gloo's all-reduce, through PyTorch. Used by peers.py.

gloo_peer.py STORE RANK WORKERS COMMANDS ANSWERS: reads lines "ELEMENTS ROUNDS CHECK" and answers
"SECONDS CPU_SECONDS WRONG"; both are FIFOs, the end of the first ends the rank.
"""

import datetime
import resource
import sys
import time

import numpy
import torch
import torch.distributed as dist

BLOCK = 1 << 20
MASK = (1 << 64) - 1


def mix(a, b, c):
    x = (a * 0x9E3779B97F4A7C15 & MASK) ^ (b * 0xC2B2AE3D27D4EB4F & MASK) ^ c
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return (x ^ x >> 31) & 0xFFFFFFFF


def values(worker, first, n):
    """What pbox-perf pushes in round 1 with seed 1: in [-1, 1)."""
    i = numpy.arange(first, first + n, dtype=numpy.uint32)
    x = i * numpy.uint32(0x9E3779B1) ^ numpy.uint32(mix(1, worker + 1, 1))
    x = (x ^ x >> numpy.uint32(15)) * numpy.uint32(0x85EBCA77)
    x = (x ^ x >> numpy.uint32(13)) * numpy.uint32(0xC2B2AE3D)
    x ^= x >> numpy.uint32(16)
    return x.view(numpy.int32).astype(numpy.float32) * numpy.float32(2.0 ** -31)


def fill(buffer, worker):
    for at in range(0, len(buffer), BLOCK):
        n = min(BLOCK, len(buffer) - at)
        buffer[at:at + n] = values(worker, at, n)


def wrong(buffer, workers):
    """Elements that are not the sum: in any order, so within rounding."""
    bad = 0
    for at in range(0, len(buffer), BLOCK):
        n = min(BLOCK, len(buffer) - at)
        want = sum(values(w, at, n).astype(numpy.float64) for w in range(workers))
        bad += int(numpy.count_nonzero(~(numpy.abs(buffer[at:at + n] - want) <= 1e-6 * workers)))
    return bad


def cpu():
    r = resource.getrusage(resource.RUSAGE_SELF)
    return r.ru_utime + r.ru_stime


def main():
    store, rank, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=workers,
                            timeout=datetime.timedelta(seconds=120))
    with open(sys.argv[4], encoding="ascii") as commands, \
            open(sys.argv[5], "w", encoding="ascii") as answers:
        for line in commands:
            elements, rounds, check = map(int, line.split())
            buffer = numpy.empty(elements, numpy.float32)
            tensor = torch.from_numpy(buffer)
            fill(buffer, rank)
            bad = 0
            if check:
                dist.all_reduce(tensor)
                bad = wrong(buffer, workers)
                fill(buffer, rank)
            dist.barrier()
            used, begin = cpu(), time.monotonic()
            for _ in range(rounds):
                dist.all_reduce(tensor)
            end, used = time.monotonic(), cpu() - used
            dist.barrier()
            answers.write(f"{end - begin:.9f} {used:.6f} {bad}\n")
            answers.flush()


main()
