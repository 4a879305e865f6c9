# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""pbox.torch.Eager whose pushes are in a block format, held to a model of the values in numpy; for torch_eager_bits. One process a worker.

Updates, factors and scales are such that all sums are exact, in whatever order: so the parameters at the end are the initial ones and what
each worker's payloads decode to, times their factors, bit by bit. The residual is of what the box adds: the model divides it by the factor of the
push that takes it. Prints `step RANK N`, and at the end `exact RANK True`, `rounded RANK True` (the sum of the updates themselves is another
one), `own RANK True` (one worker alone: after each step each element has had all own steps, the first of them as they were sent),
`pushes RANK lost N redone N restarts N`, `retransmitted RANK N`."""

import argparse
import os
import sys
import time

import numpy as np
import torch
from torch import nn

import pbox
import pbox.torch
from pbox.torch import reference
from torch_slots import say

SIZES = ((20001,), (300,), (7, 5))
FACTORS = (1.0, 0.5, 0.25, 1.0, 0.25, 2.0)
UNIT, STEP = 128, 2.0 ** -7


def fragments(args):
    return reference.fragments_of([int(np.prod(s)) for s in SIZES], mtu=9000 - args.workers)


def places(args):
    """Of each element of the table, fragment after fragment: its place in the tensors one after the other; and where units begin."""
    first = np.cumsum([0] + [int(np.prod(s)) for s in SIZES])
    where, units, at = [], [], 0
    for f in fragments(args):
        n = sum(p.elements for p in f)
        where += [np.arange(first[p.tensor] + p.offset, first[p.tensor] + p.offset + p.elements) for p in f]
        units += list(range(at, at + n, UNIT if args.push == "int8" else 32))
        at += n
    return np.concatenate(where), np.array(units + [at])


def update(args, units, rank, k):
    """Of step k, in the order of the table: one element of each block has the largest magnitude that its scale has a code for, and the others are
    far below it, with bits that the codes do not have."""
    n = int(units[-1])
    g = np.random.RandomState(1000 * rank + k)
    if args.push == "int8":
        u = (g.randint(-100 * 32, 100 * 32, n) * (STEP / 32)).astype(np.float32)
        u[units[:-1]] = 127 * STEP * (1 if k % 2 else -1)
    else:
        u = (g.randint(-2 * 32, 2 * 32, n) * (STEP / 32)).astype(np.float32)
        u[units[:-1]] = 6 * STEP * (1 if k % 2 else -1)
    return u


def rounded(args, u):
    """To the codes' values: all scales are STEP."""
    if args.push == "int8":
        return (np.rint(u / STEP) * STEP).astype(np.float32)
    m, sign = np.abs(u / STEP), np.sign(u)
    values = np.where(m < 2, np.rint(2 * m) / 2, np.where(m < 4, np.rint(m), 2 * np.rint(m / 2)))
    return (sign * np.minimum(values, 6) * STEP).astype(np.float32)


class Model:
    """What a worker sends, step after step; residual and values are exact in fp32."""

    def __init__(self, args, rank):
        self.where, self.units = places(args)
        self.args, self.rank, self.residual = args, rank, np.zeros(int(self.units[-1]), np.float32)

    def next(self, k):
        """In the order of the tensors: the update, and what the box adds for it."""
        a = np.float32(FACTORS[k % len(FACTORS)])
        u = update(self.args, self.units, self.rank, k)
        full = u + self.residual / a
        value = rounded(self.args, full)
        self.residual = a * (full - value)
        assert np.array_equal(np.abs(value[self.units[:-1]]), np.full(len(self.units) - 1, (127 if self.args.push == "int8" else 6) * STEP, np.float32))
        out = [np.empty_like(u), np.empty_like(u)]
        out[0][self.where], out[1][self.where] = a * u, a * value
        return out


def flat(parameters):
    return np.concatenate([p.detach().numpy().reshape(-1) for p in parameters])


def has_own(p, start, raw, said):
    """Has each element had all own steps, the first m as they were sent and the others as the program made them, for one m?"""
    head, tail, good = start + sum(said), np.zeros_like(start), np.zeros(len(p), bool)
    for m in range(len(said), max(0, len(said) - 8) - 1, -1):
        good |= p == head + tail
        if m > 0:
            head, tail = head - said[m - 1], tail + raw[m - 1]
    return bool(good.all())


def train(args, rank):
    torch.manual_seed(1)
    parameters = [nn.Parameter(torch.full(s, 0.5)) for s in SIZES]
    step = [0]
    opt = pbox.torch.Eager(torch.optim.SGD(parameters, lr=1.0), staleness=lambda v: FACTORS[step[0] % len(FACTORS)], push=args.push, job=args.job,
                           worker=rank, workers=args.workers, timeout=args.timeout)
    # worker 0's, which all begin with; another worker may have pushed by now
    start, model, raw, said, own = np.full(int(places(args)[1][-1]), 0.5, np.float32), Model(args, rank), [], [], True
    for k in range(1, args.steps + 1):
        step[0] = k
        u = np.empty(int(model.units[-1]), np.float32)
        u[model.where] = update(args, model.units, rank, k)
        for p, g in zip(parameters, np.split(u, np.cumsum([p.numel() for p in parameters])[:-1])):
            p.grad = torch.from_numpy(-g).view(p.shape)
        time.sleep(args.pause)
        opt.step()
        one = model.next(k)
        raw.append(one[0])
        said.append(one[1])
        if args.workers == 1:
            own = own and has_own(flat(parameters), start, raw, said)
        say("step", rank, k)
    if args.workers == 1:
        say("own", rank, own)
    opt.state_dict()
    want, true = start.copy(), start.copy()
    for w in range(args.workers):
        m = Model(args, w)
        for k in range(1, args.steps + 1):
            of = m.next(k)
            true, want = true + of[0], want + of[1]
    end = time.monotonic() + args.timeout
    while not np.array_equal(flat(parameters), want) and time.monotonic() < end:
        time.sleep(0.1)  # another worker may be slower, or may have to push again
        opt.refresh()
    say("exact", rank, np.array_equal(flat(parameters), want), int((flat(parameters) != want).sum()))
    far = np.abs(true - want).max()
    say("rounded", rank, bool(0 < far <= args.workers * 2 * STEP), far)
    stats = opt.client.stats()
    say("pushes", rank, "lost", opt.lost, "redone", stats.redone_pushes, "restarts", stats.restarts)
    say("retransmitted", rank, stats.retransmitted_frames)
    pbox.torch.all_reduce(torch.zeros(1), client=opt.client)
    opt.close()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--job", required=True)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--push", default="int8")
    p.add_argument("--pause", type=float, default=0.0)
    p.add_argument("--timeout", type=float, default=60.0)
    args = p.parse_args()
    torch.set_num_threads(1)
    bad = 0
    for rank in range(args.workers):
        if os.fork() == 0:
            status = 1
            try:
                train(args, rank)
                status = 0
            except BaseException as e:
                say("failed", rank, type(e).__name__, e)
            finally:
                sys.stdout.flush()
                os._exit(status)
    for _ in range(args.workers):
        bad += os.wait()[1] != 0
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
