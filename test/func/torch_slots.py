# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A training with slots, by any number of workers, or in one process without a box; for torch_slots.

one      the reference: all slots in this process
train    for each number of --workers that many processes, one training after the other. PBOX_BOX and PBOX_SECRET
         say where; the job is --job and the number

Both print `digest WORKERS RANK HEX` at the end of a training (`one` also `accuracy 0 PERCENT`), and `step WORKERS RANK ROUND`
after each round.
"""

import argparse
import functools
import hashlib
import os
import signal
import sys
import threading
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path[:0] = [os.path.join(TOP, "usertools", "examples")]

import fashion
import pbox.torch
from pbox.torch.reference import Reference


def say(*what):
    """In one write: processes share the log."""
    sys.stdout.write(" ".join(map(str, what)) + "\n")
    sys.stdout.flush()


DATA = "/usr/share/datasets/fashion-mnist"


@functools.lru_cache(maxsize=1)
def images(folder):
    """It takes half a second, and torch_server.py forks from what has done it."""
    return fashion.load(folder, "train")


class Images(Dataset):
    """Fashion-MNIST, each image flipped by chance and with noise of its own; without the package
    dataset-fashion-mnist: images that are noise."""

    def __init__(self, folder):
        if os.path.isdir(folder):
            self.images, self.labels = images(folder)
        else:
            say("no data in", folder)
            g = torch.Generator().manual_seed(1)
            self.images = torch.randint(0, 256, (4096, 1, 28, 28), generator=g, dtype=torch.uint8)
            self.labels = torch.randint(0, 10, (4096,), generator=g)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        image = fashion.normal(self.images[i])
        if torch.rand(()) < 0.5:
            image = image.flip(-1)
        return image + 0.1 * torch.randn_like(image), self.labels[i]


def network():
    *layers, last = fashion.network(1)
    return nn.Sequential(*layers, nn.Dropout(0.25), last)


def die_waiting():
    """As by kill -9, a while after this worker has pushed all that it had."""
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGKILL)).start()


def train(args, n, rank, model, opt, data, died=True):
    sampler = opt.sampler(data, batch_size=args.batch, seed=args.seed)
    while opt.trained_rounds < args.rounds:
        for x, y in DataLoader(data, batch_sampler=sampler, num_workers=args.loaders):
            F.cross_entropy(model(x), y).backward()
            if args.die_at == opt.trained_rounds + 1 and not died and opt._slots.last:
                die_waiting() if rank == 1 else time.sleep(1)
            opt.step()
            if opt.round_ended:
                say("step", n, rank, opt.trained_rounds)
                time.sleep(args.pause)
                if opt.trained_rounds in (args.save_at, args.die_at - 1):
                    torch.save({"model": model.state_dict(), "optimiser": opt.state_dict(), "next_round": opt.next_round},
                               f"{args.folder}/saved.{rank}")
                if opt.trained_rounds == args.rounds:
                    break
    bits = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    say("digest", n, rank, hashlib.sha256(bits).hexdigest())
    if n == 0 and os.path.isdir(args.data):
        say("accuracy", n, f"{100 * fashion.accuracy(model, args.data):.1f}")


def one(args, data):
    model = network()
    opt = Reference("momentum" if args.momentum else "sgd", model.parameters(), lr=args.lr, momentum=args.momentum,
                    slots=args.slots)
    train(args, 0, 0, model, opt, data)


def worker(args, n, rank, data, died):
    """died: go on alone from this worker's own checkpoint, among the others."""
    model, saved = network(), None
    if args.resume or died:
        saved = torch.load(f"{args.folder}/saved.{rank}" if died else args.resume)
        model.load_state_dict(saved["model"])
    opt = pbox.torch.SGD(model.parameters(), lr=args.lr, momentum=args.momentum, slots=args.slots, worker=rank, workers=n,
                         job=f"{args.job}-{n}", timeout=300.0, left=300.0, first_round=saved["next_round"] if died else 0)
    if saved is not None:
        opt.load_state_dict(saved["optimiser"])
    train(args, n, rank, model, opt, data, died)
    s = opt.client.stats()
    say("retransmitted", s.retransmitted_frames + s.probes)
    say("restarts", s.restarts)
    mean = torch.tensor([rank + 1.0])  # each worker counts once, although the job has slots
    pbox.torch.all_reduce(mean, "mean")
    if mean != torch.tensor((n + 1) * n / 2) * torch.tensor(1 / n):
        raise ValueError(f"the mean over {n} workers is {mean.item()}")
    opt.close()


def start(args, n, rank, data, died):
    """A process; its id."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            worker(args, n, rank, data, died)
            status = 0
        except Exception as e:  # what it is belongs into the log of the test
            say("worker", rank, "of", n, "has failed:", type(e).__name__, e)
        os._exit(status)
    return pid


def in_processes(args, n, data):
    """They share what is loaded here. Have all ended well?"""
    ranks, good = {start(args, n, rank, data, False): rank for rank in range(n)}, True
    while ranks:
        pid, status = os.wait()
        rank = ranks.pop(pid)
        if os.WIFSIGNALED(status) and args.die_at and rank == 1:
            say("died", n, rank)
            ranks[start(args, n, rank, data, True)] = rank
        else:
            good = good and status == 0
    return good


def main():
    p = argparse.ArgumentParser()
    p.add_argument("command", choices=("one", "train"))
    p.add_argument("--folder", required=True)
    p.add_argument("--data", default=DATA)
    p.add_argument("--job", default="slots")
    p.add_argument("--workers", default="1")
    p.add_argument("--slots", type=int, default=32)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--rounds", type=int, default=4)
    p.add_argument("--seed", type=int, default=3)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--momentum", type=float, default=0.9)
    p.add_argument("--loaders", type=int, default=0, help="processes of each DataLoader")
    p.add_argument("--pause", type=float, default=0.0)
    p.add_argument("--save-at", type=int, default=0)
    p.add_argument("--die-at", type=int, default=0, help="worker 1 dies in this round, and begins again with its checkpoint")
    p.add_argument("--resume")
    args = p.parse_args()
    torch.set_num_threads(1)
    data = Images(args.data)
    if args.command == "one":
        one(args, data)
        return 0
    return 0 if all([in_processes(args, int(n), data) for n in args.workers.split(",")]) else 1


if __name__ == "__main__":
    sys.exit(main())
