# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A training by plan (policy reassign), by workers of unequal speeds; for torch_plan.

one      the reference: all slots in this process
train    --speeds S,S,...: a process each, which sleeps 1 / S of --sleep a slot. --kill RANK@ROUND: it dies by SIGKILL in the middle of
         the slots of that round, after it has pushed a part where it has several nodes, and nobody takes its place. --stop RANK@ROUND: it
         is stopped there for a second. --early: gradients leave during backward(), and `left RANK ROUND TENSORS BYTES` says
         what had left before the pass came to the first layer

Both print `digest WORKERS RANK HEX` at the end, and the reference `after ROUND HEX`, so that one serves trainings of several lengths; workers print `slots RANK ROUND N` when the number of their slots has changed,
and with --steal `steals RANK ROUND N` in a round in which they have got slots of others.
"""

import argparse
import hashlib
import os
import random
import re
import signal
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path[:0] = [os.path.join(TOP, "usertools", "examples"), os.path.dirname(os.path.abspath(__file__))]

import pbox.torch
from pbox.torch.reference import Reference
from torch_slots import DATA, Images, network, say


def place(text):
    """Rank and round of RANK@ROUND,..."""
    return {tuple(int(x) for x in one.split("@")) for one in text.split(",") if one}


def slower(text, rank, round):
    """RANK@FIRST-LAST*TIMES,...: by how much. random: some worker is slow in each round, and others in others."""
    if text == "random":
        return random.Random(1000 * round + rank).choice((1, 1, 6))
    for one in filter(None, text.split(",")):
        who, first, last, times = (int(x) for x in re.fullmatch(r"(\d+)@(\d+)-(\d+)\*(\d+)", one).groups())
        if who == rank and first <= round <= last:
            return times
    return 1


def has_stolen(fate, rank, opt, before):
    """thief@RANK: it computes a slot that it has stolen in this round: it had stolen `before` in those before. victim@RANK: it has given up slots of this round, and does not know it yet."""
    what, _, who = fate.partition("@")
    if who != str(rank):
        return False
    if what == "thief":
        return opt.stolen_slots > before
    return sum(n for _, n in opt.client.nodes()) < len(opt._slots.mine)


def digest(model):
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()


def train(args, n, rank, opt, model, data, pause):
    loader = opt.loader(data, args.batch, seed=args.seed, num_workers=args.loaders)
    shares, stolen, earlier, ahead, killed, stopped = 0, 0, 0, 0, place(args.kill), place(args.stop)
    while opt.trained_rounds < args.rounds:
        for x, y in loader:
            if opt.trained_rounds >= args.rounds:  # others have done the last ones
                break
            if n > 0 and opt._slots.count == 0 and len(opt._slots.mine) != shares:
                shares = len(opt._slots.mine)
                say("slots", rank, opt.trained_rounds + 1, shares)
            if n > 0 and args.short:
                who, _, rounds = args.short.partition("@")
                first, last = (int(r) for r in rounds.split("-"))
                opt._strategy.work.memory.left = lambda: -1 if rank == int(who) and first <= opt.trained_rounds + 1 <= last else 1 << 40
                while args.until and rank != int(who) and opt.trained_rounds + 1 == (first + last) // 2 and not os.path.exists(args.until):
                    time.sleep(0.05)
            F.cross_entropy(model(x), y).backward()
            times = slower(args.slow, rank, opt.trained_rounds + 1)
            if n > 0 and args.slow and times > 1 and opt._slots.count == 0:
                say("slow", rank, opt.trained_rounds + 1)
            time.sleep(pause * times)
            here = (rank, opt.trained_rounds + 1)
            if n > 0 and args.steal and opt.stolen_slots > stolen:
                stolen = opt.stolen_slots
                say("steals", *here, stolen)
            if here in killed and opt._slots.count == shares // 2:
                say("dies", *here)
                os.kill(os.getpid(), signal.SIGKILL)
            if has_stolen(args.fate, rank, opt, earlier):
                say("dies", *here, "after", opt.stolen_slots, "stolen slots, with", len(opt._slots.mine))
                os.kill(os.getpid(), signal.SIGKILL)
            if here in stopped and opt._slots.count == shares // 2:
                stopped.discard(here)
                with subprocess.Popen(["sh", "-c", f"sleep 1; kill -CONT {os.getpid()}"]):
                    os.kill(os.getpid(), signal.SIGSTOP)
                say("goes on", *here)
            before = opt.trained_rounds
            opt.step()
            earlier = opt.stolen_slots if n > 0 and opt.round_ended else earlier
            ahead += n > 0 and args.ahead > 0 and opt._stale.waits
            if opt.round_ended != (opt.trained_rounds == before + 1):
                say("worker", rank, "has failed: round_ended is", opt.round_ended, "and rounds were", before, "then", opt.trained_rounds)
            if opt.round_ended and args.agree and opt.trained_rounds % 4 == 0:
                # what another worker would decide is another number
                said = opt.agree(opt.trained_rounds + 0.1 * rank)
                say("agreed", opt.trained_rounds, said)
                if opt.trained_rounds == args.agree:
                    args.rounds = opt.trained_rounds
            if opt.round_ended and n == 0:
                say("after", opt.trained_rounds, digest(model))
            if opt.round_ended and opt.trained_rounds == args.rounds:
                break
    if args.ahead and n > 0:
        say("ahead", rank, ahead)
    if args.loss:
        model.eval()
        with torch.no_grad():
            x, y = (torch.stack(c) for c in zip(*((data[i][0], torch.as_tensor(data[i][1])) for i in range(min(512, len(data))))))
            say("loss", rank, f"{F.cross_entropy(model(x), y):.5f}")
    say("digest", n, rank, digest(model))


def watch_leave(model, opt, rank):
    """In the last slot of a round, before the backward pass comes to the first layer, gradients of the later ones must have left: by
    the counters of the session. It waits for that, so that a busy machine is no failure."""
    before = {}

    def come(_gradient):
        if not opt._slots.last or opt._strategy.work.again:
            return
        sent = opt.client.stats().tx_bytes - before.get("bytes", 0)
        end = time.monotonic() + 60
        while (opt.early_tensors == before.get("tensors", 0) or sent < 100_000) and time.monotonic() < end:
            time.sleep(0.001)
            sent = opt.client.stats().tx_bytes - before["bytes"]
        say("left", rank, opt.trained_rounds + 1, opt.early_tensors - before.get("tensors", 0), sent)

    def begin(_module, _inputs, output):
        before.update(tensors=opt.early_tensors, bytes=opt.client.stats().tx_bytes)
        output.register_hook(come)

    model[0].register_forward_hook(begin)


def worker(args, n, rank, data, pause):
    model = network()
    of = [float(x) for x in args.ahead_of.split("@")] if args.ahead_of else [-1, 0]
    opt = pbox.torch.SGD(model.parameters(), lr=args.lr, momentum=args.momentum, slots=args.slots, worker=rank, workers=n,
                         job=args.job, policy="reassign", timeout=60.0, left=60.0, send_early=args.early, steal=args.steal and rank != args.but, push=args.push, ahead=of[1] if rank == of[0] else args.ahead)
    if args.early:
        watch_leave(model, opt, rank)
    began = time.monotonic()
    train(args, n, rank, opt, model, data, pause)
    say("leads", rank, opt.leads)
    if args.steal:
        say("stolen", rank, opt.stolen_slots, opt.lost_slots)
    say("restarts", opt.client.stats().restarts)
    say("seconds", rank, f"{time.monotonic() - began:.2f}")
    opt.close()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--agree", type=int, default=0, help="every four rounds workers agree on a number, and stop after this round")
    p.add_argument("what", choices=("one", "train"))
    p.add_argument("--speeds", default="1")
    p.add_argument("--sleep", type=float, default=0.0)
    p.add_argument("--kill", default="")
    p.add_argument("--job", default="plan")
    p.add_argument("--stop", default="")
    p.add_argument("--short", default="", help="RANK@FIRST-LAST: it says in these rounds that it has no memory")
    p.add_argument("--until", default="", help="a file: with --short the others wait in the middle of these rounds until it is there")
    p.add_argument("--ahead", type=float, default=0.0)
    p.add_argument("--ahead-of", default="", help="RANK@SHARE: that worker's is another one")
    p.add_argument("--samples", type=int, default=1 << 30, help="of the data, at most: epochs are shorter")
    p.add_argument("--steal", action="store_true", help="prints `stolen RANK GOT LOST`")
    p.add_argument("--but", type=int, default=-1, help="it does not --steal")
    p.add_argument("--fate", default="", help="thief@RANK, victim@RANK: it dies by SIGKILL when it has stolen slots, or lost some")
    p.add_argument("--slow", default="", help="random, or RANK@FIRST-LAST*TIMES,...: it sleeps so many times as long in these rounds")
    p.add_argument("--early", action="store_true")
    p.add_argument("--push", default="fp32")
    p.add_argument("--loss", action="store_true", help="prints `loss RANK LOSS` of the first samples at the end")
    p.add_argument("--slots", type=int, default=32)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--rounds", type=int, default=8)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--momentum", type=float, default=0.9)
    p.add_argument("--loaders", type=int, default=0)
    p.add_argument("--data", default=DATA)
    args = p.parse_args()
    torch.set_num_threads(1)
    data = Images(args.data)
    data.images, data.labels = data.images[:args.samples], data.labels[:args.samples]
    if args.what == "one":
        model = network()
        opt = Reference("momentum" if args.momentum else "sgd", model.parameters(), lr=args.lr, momentum=args.momentum,
                        slots=args.slots, ahead=args.ahead)
        train(args, 0, 0, opt, model, data, 0.0)
        return 0
    speeds = [float(s) for s in args.speeds.split(",")]
    children = []
    for rank, speed in enumerate(speeds):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                worker(args, len(speeds), rank, data, args.sleep / speed)
                status = 0
            except Exception as e:  # what it is belongs into the log of the test
                say("worker", rank, "has failed:", type(e).__name__, e)
            os._exit(status)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
