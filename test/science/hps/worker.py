# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A worker of the experiment hps: a real small training, whose slots last as long as is said, by sleeping.

plan   policy reassign: the box says which slots
equal  a job without slots: an equal share of the same samples, one payload a round

Prints one JSON object: "ends" (of each round, monotonic seconds), "steps" (seconds that the exchange of each round took here),
"slots" (that it computed of each round), "plans" (number of the plan in each), "trace" (what each round was spent with, see Log), "loss" (of all
the data, SEEN samples at most, at the end), "digest" (of the parameters, at the end). With --tell each round's end is a line as well, `end ROUND SECONDS`.
"""

import argparse
import hashlib
import json
import mmap
import os
import random
import signal
import sys
import time

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import pbox.torch
from pbox.torch._slots import Slots, SlotSampler

SEEN = 10000  # samples that a loss is of, at most: all the data, but where a slot has many


def training(args):
    hidden = args.hidden
    g = torch.Generator().manual_seed(1 + 2 * args.seed)
    x = torch.randn(args.slots * args.samples * 25, 100, generator=g)
    y = (x @ torch.randn(100, 10, generator=g)).argmax(1)
    torch.manual_seed(2 + 2 * args.seed)
    model = torch.nn.Sequential(torch.nn.Linear(100, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10))
    return TensorDataset(x, y), model


class Clock:
    """The time of a slot: from when the one before had ended, whatever was really computed in it."""

    def __init__(self, seconds):
        self.seconds, self.begun, self.late = seconds, time.monotonic(), 0
        self.over = 0.0  # seconds that slots took beyond that

    def slot_ends(self):
        left = self.begun + self.seconds - time.monotonic()
        self.late += left < 0 < self.seconds
        time.sleep(max(0.0, left))
        self.over += time.monotonic() - self.begun - self.seconds

    def goes_on(self):
        self.begun = time.monotonic()


def slowness(args, round):
    """By how much a slot takes longer in this round: one of the workers is slow, for some rounds, then any."""
    if not args.moving:
        return 1
    return args.times if random.Random(7 * args.moving + round // args.every).randrange(args.workers) == args.worker else 1


class Log:
    """What this worker did, a list entry a round that ended at a step() of it. trace: the round's number; when it was pushed (monotonic); of its slots those that were
    computed before the round before had ended; those that took longer than is said, and by how many seconds all of them; seconds to add
    up gradients, and for questions to the box."""

    KINDS = ("round", "pushed", "early", "late", "over", "adding", "asking")

    def __init__(self, args, clock):
        self.args, self.clock = args, clock
        self.ends, self.steps, self.slots, self.plans = [], [], [], []
        self.more = []  # when slots of a worker that is gone came here
        self.trace = {k: [] for k in self.KINDS}
        self.kept = []  # --losses: the parameters after each round
        self.count, self.adding, self.asking, self.pushed = 0, 0.0, 0.0, 0.0
        self.early, self.next_early = 0, 0
        self.before = (0, 0.0, 0.0, 0.0)

    def watch(self, opt):
        """When rounds are pushed, and seconds that questions to the box take."""
        push = opt._push_round

        def pushes(*a, **k):
            self.pushed = time.monotonic()
            push(*a, **k)
        opt._push_round = pushes
        work = getattr(opt._strategy, "work", None)  # by plan
        if work is None:
            return
        ask = work._ask

        def asked(*a, **k):
            began = time.monotonic()
            ask(*a, **k)
            self.asking += time.monotonic() - began
        work._ask = asked

    def step(self, opt):
        began = time.monotonic()
        work = getattr(opt._strategy, "work", None)  # by plan
        plan = int(work.report.plan) if work is not None else 0
        self.count += 1
        last = opt._slots is None or opt._slots.last
        self.next_early += opt._stale is not None and opt._stale.waits
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
            self.keep(opt)

    def keep(self, opt):
        number = opt.trained_rounds if opt._slots is not None else len(self.ends)
        totals = (self.clock.late, self.clock.over, self.adding, self.asking)
        spent = [b - a for a, b in zip(self.before, totals)]
        for kind, value in zip(self.KINDS, (number, self.pushed, self.early, *spent)):
            self.trace[kind].append(round(value, 6))
        self.before, self.early, self.next_early = totals, self.next_early, 0
        if self.args.losses:
            self.kept.append(parameters(opt))
        if self.args.tell:
            print("end", number, self.ends[-1], flush=True)


def parameters(opt):
    return [p.detach().clone() for g in opt.param_groups for p in g["params"]]


def use(mib):
    """A slot needs so much memory for a moment: it is taken from the system, written and given back."""
    if mib:
        with mmap.mmap(-1, mib << 20) as m:
            m.write(bytes(1 << 20) * mib)


def await_file(path, mine):
    """All wait for each other here, until the experiment goes on: `mine` is there when this worker is ready."""
    if path:
        with open(mine, "wb"):
            pass
        while not os.path.exists(path):
            time.sleep(0.01)


def by_plan(args, opt, model, data, log, clock):
    loader = opt.loader(data, args.slots * args.samples, seed=3)
    killed = args.kill == args.worker
    while opt.trained_rounds < args.rounds:
        for x, y in loader:
            if opt.trained_rounds >= args.rounds:  # came too late
                break
            F.cross_entropy(model(x), y).backward()
            use(args.space)
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
    sampler = SlotSampler(slots, data, args.slots * args.samples, seed=3)
    order = {e: sampler.order(e) for e in range(args.rounds // sampler.rounds + 1)}
    # a loader here too: one sample after the other, as by plan
    batches = iter(DataLoader(data, batch_sampler=[sampler.batch(order[r // sampler.rounds], 0, r % sampler.rounds, slot)
                                                   for r in range(args.rounds) for slot in slots.mine]))
    for _ in range(args.rounds):
        for _ in slots.mine:
            x, y = next(batches)
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
    p.add_argument("--worker", type=int, help="not with --least")
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
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--samples", type=int, default=4, help="of a slot")
    p.add_argument("--losses", action="store_true", help="print the loss after each round as well")
    p.add_argument("--least", type=int, default=0, help="workers come and go: so many begin")
    p.add_argument("--tell", action="store_true", help="print the end of each round when it has ended")
    p.add_argument("--go", default="", metavar="FILE", help="make FILE.NAME when ready, and begin when FILE is there")
    p.add_argument("--name", default="", help="of this process, for --go")
    p.add_argument("--space", type=int, default=0, metavar="MIB", help="memory that a slot needs for a moment")
    args = p.parse_args()
    torch.set_num_threads(1)
    data, model = training(args)
    options = {"slots": args.slots, "policy": "reassign", "ahead": args.ahead, "steal": args.steal} if args.what == "plan" else {}
    if args.least:
        del options["ahead"]
        options.update(least=args.least, lease=2.0, run=args.job)
    else:
        options.update(worker=args.worker, left=60.0)
    opt = pbox.torch.SGD(model.parameters(), lr=0.05, momentum=0.9, box=args.box, job=args.job, workers=args.workers, timeout=60.0, **options)
    clock = Clock(args.slot)
    log = Log(args, clock)
    log.watch(opt)
    await_file(args.go, f"{args.go}.{args.name}")
    clock.goes_on()
    (by_plan if args.what == "plan" else by_equal_shares)(args, opt, model, data, log, clock)
    with torch.no_grad():
        now = parameters(opt)
        digest = hashlib.sha256(b"".join(p.numpy().tobytes() for p in now)).hexdigest()
        x, y = (t[:SEEN] for t in data.tensors)
        loss = F.cross_entropy(model(x), y).item()
        losses = []
        for kept in log.kept:
            for p, value in zip(model.parameters(), kept):
                p.data.copy_(value)
            losses.append(F.cross_entropy(model(x), y).item())
        for p, value in zip(model.parameters(), now):
            p.data.copy_(value)
    print(json.dumps({"ends": log.ends, "steps": log.steps, "slots": log.slots, "plans": log.plans, "trace": log.trace, "loss": loss, "losses": losses,
                      "digest": digest, "worker": opt.client.worker, "late": clock.late, "stolen": opt.stolen_slots, "lost": opt.lost_slots,
                      "more": log.more, "adding": log.adding / args.rounds, "asking": log.asking / args.rounds}), flush=True)
    opt.close()


if __name__ == "__main__":
    sys.exit(main())
