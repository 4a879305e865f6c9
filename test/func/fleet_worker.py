#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A worker for test/func/fleet: rounds of an all-reduce, or of an optimiser on the box, with numbers whose sums depend on
their order. Prints `round N` lines, and at the end `digest SHA256` of all results. With --until FILE it ends after the round in which worker 0
has seen that file, instead of after --rounds.

usage: fleet_worker.py BOX SECRET WORKER WORKERS [--mode MODE] [--rounds N] [--pause SECONDS] [--threads N] ..."""

import argparse
import array
import hashlib
import itertools
import os
import random
import sys
import time

import pbox

SIZES = (70000, 33, 1, 5000, 0, 257)


def numbers(seed):
    r = random.Random(seed)
    return [array.array("f", (r.uniform(-1, 1) * 10.0 ** r.randint(-4, 4) for _ in range(n))) for n in SIZES]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("box")
    p.add_argument("secret")
    p.add_argument("worker", type=int)
    p.add_argument("workers", type=int)
    p.add_argument("--mode", default="allreduce", help="or an optimiser; .FORMAT after it: what results are in")
    p.add_argument("--rounds", type=int, default=20)
    p.add_argument("--until", metavar="FILE")
    p.add_argument("--change", type=int, metavar="ROUND", help="before it the learning rate is halved; default: in the middle")
    p.add_argument("--pause", type=float, default=0)
    p.add_argument("--policy", default="wait")
    p.add_argument("--threads", type=int)
    p.add_argument("--timeout", type=float, default=200)
    p.add_argument("--large", type=int, help="elements of one more tensor, which some box must refuse")
    p.add_argument("--join-timeout", type=float, default=60)
    p.add_argument("--done", type=int, default=0, metavar="N", help="it takes the place of a process that was killed after N rounds")
    a = p.parse_args()
    mode, _, pull = a.mode.partition(".")
    digest = hashlib.sha256()
    tensors = [(f"t{i}", n) for i, n in enumerate(SIZES)] + ([("large", a.large)] if a.large else [])
    try:
        c = pbox.Client(a.box, "test", a.secret, a.worker, a.workers, timeout=a.timeout, policy=a.policy,
                        join_timeout=a.join_timeout, threads=a.threads)
        if mode == "allreduce":
            t = c.declare(tensors, op="sum", first_round=a.done + 1 if a.done else 0)
        else:
            t = c.declare(tensors, mode="optimiser", optimiser=mode, op="mean", pull=pull or "fp32",
                          first_round=a.done + 1 if a.done else 0)
            if not a.done:
                t.set_hyper(lr=0.125)
            if a.worker == 0 and not a.done:
                t.init(numbers(7)).wait()
        grads = [numbers(100 * k + a.worker) for k in range(3)]
        out = [array.array("H", bytes(2 * n)) if pull else array.array("f", bytes(4 * n)) for n in SIZES]
        # its round may have been counted without the vote that follows it
        votes = c.declare([("stop", 1)], op="sum", first_round=max(a.done, 1) if a.done else 0) if a.until else None
        vote = array.array("f", [0])
        if votes and a.done:
            votes.pushpull([vote], [vote]).wait()
        for r in itertools.count(a.done) if a.until else range(a.done, a.rounds):
            if mode != "allreduce" and r == (a.rounds // 2 if a.change is None else a.change):
                t.set_hyper(lr=0.0625)
            t.pushpull(grads[r % 3], out).wait()
            for x in out:
                digest.update(x.tobytes())
            print("round", r + 1, flush=True)
            if votes:
                vote[0] = a.worker == 0 and os.path.exists(a.until)
                votes.pushpull([vote], [vote]).wait()
                if vote[0]:
                    break
            time.sleep(a.pause)
        print("endpoints", c.stats().endpoints, flush=True)
        print("stateless", c.stats().stateless_fragments, flush=True)
        print("digest", digest.hexdigest(), flush=True)
        c.close()
    except pbox.PBoxError as e:
        print("error", type(e).__name__, e, flush=True)
        sys.exit(3)


main()
