# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A training by pbox.torch.Eager, one process a worker; for torch_eager. PBOX_BOX and PBOX_SECRET say where.

Prints `step RANK N` after each step, and at the end `loss RANK LOSS` (of all the data), `digest RANK HEX`, `stale RANK TAU FACTOR` (means),
`retransmitted RANK N`; `lost RANK TEXT` where the box has forgotten the table. With --whole updates are whole numbers, of each worker others, and
`whole RANK True` says that the parameters are their sum; `pushes RANK lost N redone N`; `lacks RANK N`: its
parameters lacked so many steps of another worker, at most, in any element. `back RANK
PUSHES`: a process goes on for one that died, and knows of so many pushes of it."""

import argparse
import hashlib
import os
import signal
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

import pbox
import pbox.torch
from torch_slots import say


def problem():
    g = torch.Generator().manual_seed(1)
    x = torch.randn(2048, 40, generator=g)
    return x, (x @ torch.randn(40, 10, generator=g)).argmax(1)


def train(args, rank, again=False):
    x, y = problem()
    torch.manual_seed(rank)  # worker 0's parameters count
    model = nn.Sequential(nn.Linear(40, 200), nn.ReLU(), nn.Linear(200, 10))
    inner = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.5)
    opt = pbox.torch.Eager(inner, staleness=args.staleness, bound=args.bound, push=args.push, pull=args.pull, job=args.job,
                           worker=rank, workers=args.workers, policy=args.policy, lease=args.lease, timeout=args.timeout, resume=again or None)
    if again:
        say("back", rank, opt.steps)
    dies = args.die == rank and not again
    turn = torch.optim.lr_scheduler.StepLR(opt, args.steps // 2, 0.5)
    rounds = opt.client.declare([("together", 4)], op="sum") if args.beside else None
    g = torch.Generator().manual_seed(100 + rank)
    stale, ahead = [], 0
    for k in range(opt.steps + 1, (args.steps // 3 if args.fewer and rank == 0 else args.steps) + 1):
        batch = torch.randint(0, len(x), (64,), generator=g)
        opt.zero_grad()
        F.cross_entropy(model(x[batch]), y[batch]).backward()
        time.sleep(args.pause * (1 + rank))
        try:
            opt.step()
        except pbox.PBoxLost as e:
            say("lost", rank, e)
            return
        except pbox.PBoxDeadline as e:
            say("late", rank, k, e)
            os._exit(0)
        v = opt.table.versions()
        ahead = max(ahead, k - 1 - v.slowest)  # of what this step's pull was asked with
        turn.step()
        stale.append((opt.tau, opt.factor))
        say("step", rank, k)
        if rounds is not None and k % 10 == 0:
            a = torch.full((4,), float(rank + k))
            rounds.run([a])
            if a.tolist() != [float(sum(range(args.workers)) + args.workers * k)] * 4:
                say("wrong", rank, k, a.tolist())
        if dies and k == args.steps // 2:
            say("died", rank)
            os.kill(os.getpid(), signal.SIGKILL)  # its push is on its way
    if args.die < 0 or args.back:
        opt.state_dict()
        pbox.torch.all_reduce(torch.zeros(1), client=opt.client)
    opt.refresh()
    with torch.no_grad():
        say("loss", rank, F.cross_entropy(model(x), y).item())
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
    say("digest", rank, digest[:16])
    say("stale", rank, *(sum(v) / len(stale) for v in zip(*stale)))
    say("ahead", rank, ahead)
    say("retransmitted", rank, opt.client.stats().retransmitted_frames)
    if args.die < 0 or args.back:
        pbox.torch.all_reduce(torch.zeros(1), client=opt.client)
    opt.close()


def add_up(args, rank):
    """Step k of worker w adds 128^w to each parameter."""
    p = nn.Parameter(torch.zeros(20000))
    opt = pbox.torch.Eager(torch.optim.SGD([p], lr=1.0), staleness=None, bound=args.bound, job=args.job, worker=rank, workers=args.workers,
                           timeout=args.timeout)
    lacks = 0
    for k in range(1, args.steps + 1):
        p.grad = torch.full_like(p, -float(128 ** rank))
        time.sleep(args.pause * (1 + (rank if args.unequal else 0)))
        opt.step()
        say("step", rank, k)
        # what the pull of this step has brought of others, in each element: of no box fewer steps than the bound lets them lack
        for w in range(args.workers):
            of = p.data.double() // 128 ** w % 128
            lacks = max(lacks, k - int(of.min()))
            if w == rank and not bool((of == k).all()):
                say("wrong", rank, k, sorted(set(of.tolist())))
    say("lacks", rank, lacks)
    opt.state_dict()
    end = time.monotonic() + args.timeout
    want = torch.full_like(p, float(args.steps * sum(128 ** w for w in range(args.workers))))
    while not torch.equal(p.data, want) and time.monotonic() < end:
        time.sleep(0.1)  # another worker may be slower, or may have to push again
        opt.refresh()
    say("whole", rank, torch.equal(p.data, want), sorted(set(p.data.tolist()))[:3])
    stats = opt.client.stats()
    say("pushes", rank, "lost", opt.lost, "redone", stats.redone_pushes, "restarts", stats.restarts)
    pbox.torch.all_reduce(torch.zeros(1), client=opt.client)
    opt.close()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--job", required=True)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--steps", type=int, default=120)
    p.add_argument("--lr", type=float, default=0.1)
    p.add_argument("--staleness", default="rel")
    p.add_argument("--push", default="fp32")
    p.add_argument("--pull", default="fp32")
    p.add_argument("--pause", type=float, default=0.0)
    p.add_argument("--die", type=int, default=-1)
    p.add_argument("--back", action="store_true", help="another process goes on for the one that dies")
    p.add_argument("--bound", type=int)
    p.add_argument("--fewer", action="store_true", help="worker 0 makes a third of the steps")
    p.add_argument("--policy", default="wait")
    p.add_argument("--lease", type=float)
    p.add_argument("--timeout", type=float, default=60.0)
    p.add_argument("--beside", action="store_true")
    p.add_argument("--whole", action="store_true")
    p.add_argument("--unequal", action="store_true", help="with --whole, too, later workers are slower")
    args = p.parse_args()
    torch.set_num_threads(1)
    def begin(rank, *more):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                (add_up if args.whole else train)(args, rank, *more)
                status = 0
            except BaseException as e:
                say("failed", rank, type(e).__name__, e)
            finally:
                sys.stdout.flush()
                os._exit(status)
        return pid

    ranks = {begin(rank): rank for rank in range(args.workers)}
    while ranks:
        pid, status = os.wait()
        rank = ranks.pop(pid)
        if args.back and os.WIFSIGNALED(status):
            ranks[begin(rank, True)] = rank


if __name__ == "__main__":
    main()
