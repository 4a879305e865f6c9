# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A worker of the experiment hps: a real small training, whose slots last as long as is said, by sleeping.

plan   policy reassign: the box says which slots
equal  a job without slots: an equal share of the same samples, one payload a round

Prints one JSON object: "ends" (of each round, monotonic seconds), "steps" (seconds that the exchange of each round took here),
"slots" (that it computed of each round), "plans" (number of the plan in each), "loss" (of all the data, at the end).
"""

import argparse
import json
import os
import random
import signal
import sys
import time

import torch
import torch.nn.functional as F
from torch.utils.data import TensorDataset

import pbox.torch
from pbox.torch._slots import Slots, SlotSampler

SAMPLES = 4  # of a slot


def training(hidden, slots):
    g = torch.Generator().manual_seed(1)
    x = torch.randn(slots * SAMPLES * 25, 100, generator=g)
    y = (x @ torch.randn(100, 10, generator=g)).argmax(1)
    torch.manual_seed(2)
    model = torch.nn.Sequential(torch.nn.Linear(100, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10))
    return TensorDataset(x, y), model


class Clock:
    """The time of a slot: from when the one before had ended, whatever was really computed in it."""

    def __init__(self, seconds):
        self.seconds, self.begun, self.late = seconds, time.monotonic(), 0

    def slot_ends(self):
        left = self.begun + self.seconds - time.monotonic()
        self.late += left < 0 < self.seconds
        time.sleep(max(0.0, left))

    def goes_on(self):
        self.begun = time.monotonic()


def slowness(args, round):
    """By how much a slot takes longer in this round: one of the workers is slow, for some rounds, then any."""
    if not args.moving:
        return 1
    return args.times if random.Random(7 * args.moving + round // args.every).randrange(args.workers) == args.worker else 1


class Log:
    def __init__(self):
        self.ends, self.steps, self.slots, self.plans = [], [], [], []
        self.more = []  # when slots of a worker that is gone came here
        self.count, self.adding, self.asking = 0, 0.0, 0.0

    def watch(self, opt):
        """Seconds that questions to the box take."""
        ask = opt._strategy.work._ask

        def asked(*a, **k):
            began = time.monotonic()
            ask(*a, **k)
            self.asking += time.monotonic() - began
        opt._strategy.work._ask = asked

    def step(self, opt):
        began = time.monotonic()
        work = getattr(opt._strategy, "work", None)  # by plan
        plan = int(work.report.plan) if work is not None else 0
        self.count += 1
        last = opt._slots is None or opt._slots.last
        opt.step()
        now = time.monotonic()
        if not last:
            self.adding += now - began
        elif not opt.round_ended and opt._stale is None:
            self.more.append(now)
        if opt.round_ended:
            self.ends.append(now)
            self.steps.append(now - began)
            self.slots.append(self.count)
            self.plans.append(plan)
            self.count = 0


def by_plan(args, opt, model, data, log, clock):
    loader = opt.loader(data, args.slots * SAMPLES, seed=3)
    killed = args.kill == args.worker
    log.watch(opt)
    while opt.trained_rounds < args.rounds:
        for x, y in loader:
            F.cross_entropy(model(x), y).backward()
            clock.seconds = args.slot * slowness(args, opt.trained_rounds)
            clock.slot_ends()
            if killed and opt.trained_rounds == args.kill_round and log.count == 3:
                print(json.dumps({"killed": time.monotonic()}), flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            log.step(opt)
            clock.goes_on()
            if opt.round_ended and opt.trained_rounds == args.rounds:
                break


def by_equal_shares(args, opt, model, data, log, clock):
    share = args.slots // args.workers
    slots = Slots(args.slots, range(args.worker * share, (args.worker + 1) * share))
    sampler = SlotSampler(slots, data, args.slots * SAMPLES, seed=3)
    order = {e: sampler.order(e) for e in range(args.rounds // sampler.rounds + 1)}
    for r in range(args.rounds):
        for slot in slots.mine:
            x, y = data[list.__getitem__(sampler.batch(order[r // sampler.rounds], 0, r % sampler.rounds, slot), slice(None))]
            (F.cross_entropy(model(x), y) / share).backward()
            clock.slot_ends()
            clock.goes_on()
        log.step(opt)
        opt.zero_grad()
        clock.goes_on()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("what", choices=("plan", "equal"))
    p.add_argument("--box", required=True)
    p.add_argument("--job", required=True)
    p.add_argument("--worker", type=int, required=True)
    p.add_argument("--workers", type=int, required=True)
    p.add_argument("--slots", type=int, required=True)
    p.add_argument("--rounds", type=int, required=True)
    p.add_argument("--hidden", type=int, required=True)
    p.add_argument("--slot", type=float, required=True, help="seconds")
    p.add_argument("--ahead", type=float, default=0.0, help="share of the slots")
    p.add_argument("--steal", action="store_true", help="slots are stolen within a round")
    p.add_argument("--moving", type=int, default=0, help="one worker is slow, another one after some rounds: by this number; 0: none")
    p.add_argument("--every", type=int, default=20, help="rounds")
    p.add_argument("--times", type=int, default=6)
    p.add_argument("--kill", type=int, default=-1)
    p.add_argument("--kill-round", type=int, default=0)
    args = p.parse_args()
    torch.set_num_threads(1)
    data, model = training(args.hidden, args.slots)
    options = {"slots": args.slots, "policy": "reassign", "ahead": args.ahead, "steal": args.steal} if args.what == "plan" else {}
    opt = pbox.torch.SGD(model.parameters(), lr=0.05, momentum=0.9, box=args.box, job=args.job, worker=args.worker,
                         workers=args.workers, timeout=60.0, left=60.0, **options)
    log, clock = Log(), Clock(args.slot)
    (by_plan if args.what == "plan" else by_equal_shares)(args, opt, model, data, log, clock)
    with torch.no_grad():
        loss = F.cross_entropy(model(data.tensors[0]), data.tensors[1]).item()
    print(json.dumps({"ends": log.ends, "steps": log.steps, "slots": log.slots, "plans": log.plans, "loss": loss, "late": clock.late,
                      "stolen": opt.stolen_slots, "lost": opt.lost_slots, "more": log.more, "adding": log.adding / args.rounds, "asking": log.asking / args.rounds}),
          flush=True)
    opt.close()


if __name__ == "__main__":
    sys.exit(main())
