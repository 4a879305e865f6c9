# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A worker of the experiment eager: a real small training, whose computation lasts as long as is said, by sleeping.

bsp-then    rounds: push of the whole model, then its pull      bsp         rounds: PUSHPULL, our own
asp         clocks: push of the whole model, then its pull      eager:NAME[:PUSH:PULL]  pbox.torch.Eager, with that staleness, in these formats
push, pull  the transfers alone                         ssp:S       clocks: push, then a pull that waits until nobody is more than S clocks behind

Prints one JSON object: "steps" (seconds of each), "seconds" to the loss (worker 0), "updates" (of all workers, at the end), "late"
(computations that took longer than they should), "ahead" (of tables in clocks: by how many pushes this worker was ahead of the slowest when it had pulled, at most)."""

import argparse
import json
import sys
import time

import numpy as np
import torch

import problem
import pbox
import pbox.torch


class Computes:
    """Sleeps for what is left of a computation that began when the last step ended."""

    def __init__(self, seconds):
        self.seconds, self.late, self.begun = seconds, 0, time.monotonic()

    def begins(self):
        self.begun = time.monotonic()

    def ends(self):
        left = self.begun + self.seconds - time.monotonic()
        self.late += left < 0
        time.sleep(max(0.0, left))


class Trainer:
    def __init__(self, args, client):
        self.args, self.client, self.method = args, client, args.method
        self.x, self.y = problem.data(args.seed)
        self.g = np.random.default_rng(4000 + 100 * args.seed + args.worker)
        self.params = [torch.nn.Parameter(torch.from_numpy(a)) for a in problem.begin(args.seed)]
        for p in self.params:
            p.grad = torch.zeros_like(p)
        self.opt, self.ahead = None, 0
        self.bound = int(self.method[4:]) if self.method.startswith("ssp:") else None
        if self.method.startswith("eager"):
            _, name, *formats = self.method.split(":")
            self.opt = pbox.torch.Eager(torch.optim.SGD(self.params, lr=args.lr), staleness=None if name == "none" else name, client=client,
                                        **dict(zip(("push", "pull"), formats)))
            return
        tensors = [pbox.Tensor(str(i), p.numel()) for i, p in enumerate(self.params)]
        rounds = self.method.startswith("bsp")
        if rounds:
            self.table = client.declare(tensors, mode="optimiser", op="mean", optimiser="sgd")
            self.table.set_hyper(lr=args.lr)
        else:
            self.table = client.declare(tensors, mode="optimiser", op="sum", optimiser="add", discipline="clock")
        self.own = [p.data for p in self.params]
        if args.worker == 0:
            self.table.init(self.own).wait()
        self.table.pull(self.own).wait()

    def compute(self):
        b = self.g.integers(0, problem.SAMPLES, problem.BATCH)
        for p, d in zip(self.params, problem.gradient([p.detach().numpy() for p in self.params], self.x[b], self.y[b])):
            p.grad.copy_(torch.from_numpy(d))

    def loss(self):
        return problem.forward([p.detach().numpy() for p in self.params], self.x[:512], self.y[:512])[2]

    def step(self):
        if self.opt is not None:
            self.opt.step()
            return
        grads = [p.grad for p in self.params]
        if self.method == "bsp":
            self.table.pushpull(grads, self.own).wait()
            return
        if self.method == "asp" or self.bound is not None:
            for d in grads:
                d.mul_(-self.args.lr)
        if self.method != "pull":
            self.table.push(grads).wait()
        if self.method != "push":
            self.table.pull(self.own, bound=self.bound).wait()
        if not self.method.startswith("bsp"):
            v = self.table.versions()
            self.ahead = max(self.ahead, v.own - v.slowest)

    def updates(self):
        if self.method.startswith("bsp"):
            return (self.table.next_round - 1) * self.client.workers
        return (self.opt.table if self.opt is not None else self.table).versions().version

    def await_updates(self, seconds):
        """After all steps of all workers: until the box has their pushes, of which the last ones may still be on their way."""
        want = 0 if self.method == "pull" else self.args.steps * self.client.workers
        dtype = torch.bfloat16 if self.method.endswith(":bf16") else torch.float32
        end, into = time.monotonic() + seconds, [torch.empty_like(p.data, dtype=dtype) for p in self.params]
        while self.updates() < want and time.monotonic() < end and not self.method.startswith("bsp"):
            (self.opt.table if self.opt is not None else self.table).pull(into).wait()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("method")
    p.add_argument("--box", required=True)
    p.add_argument("--job", required=True)
    p.add_argument("--worker", type=int, required=True)
    p.add_argument("--workers", type=int, required=True)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--lr", type=float, default=0.01)
    p.add_argument("--compute", type=float, required=True, help="seconds")
    p.add_argument("--steps", type=int, default=0, help="so many, and not to the loss")
    p.add_argument("--limit", type=float, default=120, help="seconds")
    args = p.parse_args()
    torch.set_num_threads(1)
    client = pbox.Client(args.box, args.job, "", args.worker, args.workers, join_timeout=60, left=60)
    t = Trainer(args, client)
    pbox.torch.all_reduce(torch.zeros(1), client=client)
    began, steps, cross, seconds = time.monotonic(), [], problem.Crossing(), None
    computes, k = Computes(args.compute), 0
    while True:
        k += 1
        last = time.monotonic()
        computes.begins()
        t.compute()
        if args.worker == 0 and not args.steps and k % 2 == 0 and cross.add(t.loss()):
            seconds = last - began
            break
        computes.ends()
        t.step()
        steps.append(time.monotonic() - last)
        if k == args.steps or time.monotonic() - began > args.limit:
            break
    if args.steps:
        pbox.torch.all_reduce(torch.zeros(1), client=client)
        t.await_updates(10)
    print(json.dumps({"steps": steps, "seconds": seconds, "updates": t.updates(), "late": computes.late, "ahead": t.ahead}), flush=True)
    if args.steps:
        pbox.torch.all_reduce(torch.zeros(1), client=client)
    client.close()


if __name__ == "__main__":
    sys.exit(main())
