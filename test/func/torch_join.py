# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A training to which workers come and from which they go (policy reassign, least); for torch_join.

one     the reference: all slots in this process
train   --start N processes, and --events ROUND:+N,ROUND:-N,ROUND:xN: when the training has come to that round, N more are started, N get
        SIGTERM and leave, N are killed by SIGKILL. Those that have been there longest go first

The reference prints `after ROUND HEX`, so that one serves trainings of several lengths. Others print `pid PID` of each process, `round WORKER ROUND` when one has ended there, `digest WORKER HEX` of each worker that comes to the end, `joins WORKER ROUND` of each that has begun in mid-run, and `gap EVENT
MILLISECONDS`: the longest time between two ends of rounds from that event to the next one.
"""

import argparse
import hashlib
import mmap
import os
import signal
import struct
import sys
import time

import torch
import torch.nn.functional as F

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path[:0] = [os.path.join(TOP, "usertools", "examples"), os.path.dirname(os.path.abspath(__file__))]

import pbox.torch
from pbox.torch.reference import Reference
from torch_slots import DATA, Images, network, say

ROUNDS = 4096


class Ends:
    """When each round ended at the first worker; all processes share it."""

    def __init__(self):
        self._m = mmap.mmap(-1, 8 * ROUNDS)

    def put(self, round):
        if self.at(round) == 0:
            struct.pack_into("d", self._m, 8 * round, time.monotonic())

    def at(self, round):
        return struct.unpack_from("d", self._m, 8 * round)[0]

    def last(self):
        return max((r for r in range(ROUNDS) if self.at(r)), default=0)


def schedule_of(opt):
    return torch.optim.lr_scheduler.StepLR(opt, 3, gamma=0.9)


def digest(model):
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()


def train(args, opt, model, data, ends):
    loader = opt.loader(data, args.batch, seed=args.seed)
    began = None
    while opt.trained_rounds < args.rounds:
        for x, y in loader:
            if opt.trained_rounds >= args.rounds:
                break
            if began is None:
                began = opt.trained_rounds + 1
            F.cross_entropy(model(x), y).backward()
            time.sleep(args.sleep)
            opt.step()
            if opt.round_ended and ends is None:
                say("after", opt.trained_rounds, digest(model))
            elif opt.round_ended:
                ends.put(opt.trained_rounds)
                say("round", opt.client.worker, opt.trained_rounds)
    return digest(model), began


def worker(args, data, ends):
    began = time.monotonic()
    model = network()
    with torch.no_grad():
        for p in model.parameters():  # a newcomer gets the job's
            p.mul_(1.0 if ends.last() == 0 else 0.0)
    lr = args.lr if ends.last() == 0 or not args.other_lr else args.other_lr
    opt = pbox.torch.SGD(model.parameters(), lr=lr, momentum=args.momentum, slots=args.slots, workers=args.workers,
                         least=args.least or args.start, job=args.job, policy="reassign", timeout=90.0, join_timeout=60.0, lease=args.lease)
    opt.follow(schedule_of(opt))
    bits, first = train(args, opt, model, data, ends)
    if first != 1:
        say("joins", opt.client.worker, first)
    say("digest", opt.client.worker, bits)
    say("seconds", opt.client.worker, f"{time.monotonic() - began:.2f}")
    opt.close()


def start(args, data, ends):
    pid = os.fork()
    if pid:
        say("pid", pid)
        return pid
    status = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        worker(args, data, ends)
        status = 0
    except Exception as e:  # what it is belongs into the log of the test
        say("a worker has failed:", type(e).__name__, e)
    os._exit(status)


def gaps(ends, marks, last):
    """The longest round after each event."""
    for i, (name, at) in enumerate(marks):
        until = marks[i + 1][1] if i + 1 < len(marks) else last
        spans = [ends.at(r) - ends.at(r - 1) for r in range(max(at, 2), until + 1) if ends.at(r) and ends.at(r - 1)]
        if spans:
            say("gap", name, round(max(spans) * 1000), "of rounds of", round(sorted(spans)[len(spans) // 2] * 1000))


def drive(args, data):
    ends, pids, marks = Ends(), [], [("start", 1)]
    for _ in range(args.start):
        pids.append(start(args, data, ends))
    all_pids = list(pids)
    for event in filter(None, args.events.split(",")):
        at, what = event.split(":")
        while ends.last() < int(at):
            if os.waitpid(-1, os.WNOHANG) != (0, 0) or not pids:
                say("a worker has ended before round", at)
                return 1
            time.sleep(0.002)
        n = int(what[1:])
        marks.append((event, ends.last()))
        if what[0] == "+":
            fresh = [start(args, data, ends) for _ in range(n)]
            pids += fresh
            all_pids += fresh
        for pid in pids[:n] if what[0] != "+" else ():
            os.kill(pid, signal.SIGTERM if what[0] == "-" else signal.SIGKILL)
            os.waitpid(pid, 0)
        if what[0] != "+":
            pids = pids[n:]
    for pid in pids:
        os.waitpid(pid, 0)
    gaps(ends, marks, ends.last())
    return 0


def main():
    p = argparse.ArgumentParser()
    p.add_argument("what", choices=("one", "train"))
    p.add_argument("--start", type=int, default=1)
    p.add_argument("--events", default="")
    p.add_argument("--workers", type=int, default=8)
    p.add_argument("--least", type=int, default=0)
    p.add_argument("--job", default="join")
    p.add_argument("--sleep", type=float, default=0.0)
    p.add_argument("--slots", type=int, default=32)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--rounds", type=int, default=12)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--other-lr", type=float, default=0.0)
    p.add_argument("--lease", type=float)
    p.add_argument("--momentum", type=float, default=0.9)
    p.add_argument("--data", default=DATA)
    args = p.parse_args()
    torch.set_num_threads(1)
    data = Images(args.data)
    if args.what == "train":
        return drive(args, data)
    model = network()
    opt = Reference("momentum" if args.momentum else "sgd", model.parameters(), lr=args.lr, momentum=args.momentum, slots=args.slots)
    opt.follow(schedule_of(opt))
    train(args, opt, model, data, None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
