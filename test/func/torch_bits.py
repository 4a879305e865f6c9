# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A worker of test/func/torch_bits: all-reduces in a block format, compared with pbox.torch.reference element by element.

torch_bits.py JOB FORMAT ROUNDS [OPTION...]. Prints `round N DIGEST` and, where the reference is there, `same N`; `differs N ...` is a failure.
"""

import argparse
import hashlib
import os
import time

import torch

import pbox
import pbox.torch
from pbox.torch import reference

RANK = int(os.environ["RANK"])
SIZES = (5000, 3001, 7, 12000)


def gradient(worker, r, n):
    """Of two magnitudes in each unit: without error feedback the small ones would get nothing."""
    g = torch.randn(n, generator=torch.Generator().manual_seed(7919 * r + worker))
    return g * torch.where(torch.arange(n) % 97 == 0, 10.0, 0.01)


def samples(worker, r):
    return (worker * 3 + r) % 5 + 1


def digest(tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().contiguous().view(torch.int32).numpy().tobytes())
    return h.hexdigest()[:16]


def fragments(mtu):
    """Elements of each: of a tensor as many as fp32 has in a frame, and the rest (protocol.md R5.8, R5.9; the small tensor has no neighbour)."""
    size = {9000: 2224, 1500: 352}[mtu]
    return [n for total in SIZES for n in [size] * (total // size) + [total % size] * (total % size > 0)]


def rounds(args):
    client = pbox.Client(os.environ["PBOX_BOX"], args.job, os.environ["PBOX_SECRET"], RANK, args.workers, timeout=args.timeout)
    table = client.declare([(f"t{i}", n) for i, n in enumerate(SIZES)], op=args.op, push=args.format, pull=args.format,
                           first_round=pbox.ANY_ROUND if args.again else 0, mixed=bool(args.compress))
    total = sum(SIZES)
    weighted = args.op == "weighted_mean"
    of = "sample_mean" if weighted else args.op
    ref = reference.Compressed(args.format, fragments(args.mtu), args.workers,
                               lambda parts, samples=None: reference.tree_reduce(parts, of, samples))
    begin = table.next_round
    for r in range(begin, args.rounds + 1):
        mine = [t.clone() for t in gradient(RANK, r, total).split(SIZES)]
        fp32 = (False, False)
        for at, *formats in args.compress:
            if at <= r:
                fp32 = tuple(f == "fp32" for f in (formats[0], formats[-1]))
        if args.compress:
            table.plain(fp32[0])
            if RANK == 0:
                table.set_hyper(plain=float(fp32[1]))
        table.pushpull(mine, weight=samples(RANK, r) if weighted else 1).wait(args.timeout)
        print("round", r, digest(mine), flush=True)
        if not args.no_reference:
            parts = [gradient(w, r, total) for w in range(args.workers)]
            counts = [samples(w, r) for w in range(args.workers)]
            want = ref.round([p * float(n) for p, n in zip(parts, counts)], counts) if weighted else ref.round(parts, fp32=fp32)
            got = torch.cat(mine)
            if reference.equal_bits(got, want):
                print("same", r, flush=True)
            else:
                i = int((got.view(torch.int32) != want.view(torch.int32)).nonzero()[0])
                print("differs", r, "element", i, float(got[i]), float(want[i]), flush=True)
        time.sleep(args.pause)
        while args.until and r == args.rounds // 2 and not os.path.exists(args.until):
            time.sleep(0.02)
    client.close()
    print("end", flush=True)


def ddp(args):
    """Training by the hook: the model has the same bits at all workers after every step."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    dist.init_process_group("gloo", rank=RANK, world_size=args.workers)
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(301, 257), torch.nn.Tanh(), torch.nn.Linear(257, 1)))
    hook = pbox.torch.register(model, job=args.job, compress=args.compress or (None if args.format == "fp32" else args.format), timeout=args.timeout)
    opt = torch.optim.SGD(model.parameters(), lr=0.02)
    for r in range(1, args.rounds + 1):
        x = torch.randn(32, 301, generator=torch.Generator().manual_seed(1000 * r + RANK))
        opt.zero_grad()
        loss = (model(x) - x[:, :1].sin()).square().mean()
        loss.backward()
        opt.step()
        print("round", r, digest(model.parameters()), flush=True)
    print("loss", float(loss), flush=True)
    print("chosen", hook.compressed, flush=True)
    print("end", flush=True)


def entries(text):
    """ROUND:PUSH[:PULL],..."""
    return [(int(r[0]), *r[1:]) for r in (e.split(":") for e in text.split(",") if e)]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("job")
    p.add_argument("format")
    p.add_argument("rounds", type=int)
    p.add_argument("--workers", type=int, required=True)
    p.add_argument("--op", default="mean")
    p.add_argument("--mtu", type=int, default=9000)
    p.add_argument("--pause", type=float, default=0.0)
    p.add_argument("--timeout", type=float, default=60.0)
    p.add_argument("--until", default="", help="after half of the rounds: wait until this file is there")
    p.add_argument("--again", action="store_true", help="this process goes on for one that was killed")
    p.add_argument("--no-reference", action="store_true")
    p.add_argument("--ddp", action="store_true")
    p.add_argument("--compress", type=entries, default=[], help="as of pbox.torch: ROUND:PUSH[:PULL],...")
    args = p.parse_args()
    torch.set_num_threads(1)
    (ddp if args.ddp else rounds)(args)


main()
