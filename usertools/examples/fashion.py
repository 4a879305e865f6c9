# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""What the examples share and PBox has no part in: Fashion-MNIST, a network for it, the options
and the records of a run."""

import argparse
import gzip
import hashlib
import json
import os
import time

import numpy as np
import torch
from torch import nn


def load(folder, part):
    """Images (n, 1, 28, 28) uint8 and labels of 'train' or 't10k'."""
    def read(name, offset):
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            raise SystemExit(f"{path} is missing: apt-get install dataset-fashion-mnist, or pass "
                             "--data FOLDER")
        with gzip.open(path) as f:
            return np.frombuffer(f.read(), np.uint8, offset=offset).copy()
    images = torch.from_numpy(read(f"{part}-images-idx3-ubyte.gz", 16)).view(-1, 1, 28, 28)
    return images, torch.from_numpy(read(f"{part}-labels-idx1-ubyte.gz", 8)).long()


def normal(images):
    """Mean 0 and variance 1 over the training set."""
    return (images.float() / 255 - 0.2860) / 0.3530


def network(seed):
    """A convolutional network of 215,370 parameters."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10))


class Batches:
    """(images, labels) of one worker's part of each global batch. The order depends on the
    seed alone, so that runs can be compared."""

    def __init__(self, args, rank, workers):
        self.images, self.labels = load(args.data, "train")
        self.args, self.rank, self.workers = args, rank, workers
        self.per_epoch = len(self.labels) // args.batch
        self.total = min(self.per_epoch * args.epochs, args.rounds or 1 << 30)

    def indices(self, rank):
        mine = self.args.batch // self.workers
        for r in range(self.total):
            if r % self.per_epoch == 0:
                g = torch.Generator().manual_seed(self.args.seed + r // self.per_epoch)
                order = torch.randperm(len(self.labels), generator=g)
            at = r % self.per_epoch * self.args.batch + rank * mine
            yield order[at:at + mine]

    def __iter__(self):
        for i in self.indices(self.rank):
            yield normal(self.images[i]), self.labels[i]


def schedule(optimiser, total):
    """The learning rate falls twice."""
    return torch.optim.lr_scheduler.MultiStepLR(optimiser, [total * 6 // 10, total * 17 // 20],
                                                gamma=0.25)


def accuracy(model, folder):
    images, labels = load(folder, "t10k")
    model.eval()
    with torch.no_grad():
        right = sum((model(normal(images[i:i + 1000])).argmax(1) == labels[i:i + 1000]).sum()
                    for i in range(0, len(labels), 1000))
    model.train()
    return int(right) / len(labels)


def options(description):
    p = argparse.ArgumentParser(description=description)
    p.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    p.add_argument("--box", default=os.environ.get("PBOX_BOX"), help="address of the box")
    p.add_argument("--job", default="quickstart")
    p.add_argument("--secret", default=os.environ.get("PBOX_SECRET", ""))
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--rounds", type=int, default=0, help="stop after so many (default: epochs)")
    p.add_argument("--batch", type=int, default=64, help="of all workers together")
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--momentum", type=float, default=0.9)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--records", help="folder for losses, figures and the final parameters")
    p.add_argument("--proof", action="store_true",
                   help="compare rounds with the reference sum, bit for bit")
    p.add_argument("--timeout", type=float, default=60.0)
    return p


class Records:
    """Losses and figures of one worker's run, into a folder (or nowhere)."""

    def __init__(self, args, name, total):
        self.folder, self.name, self.total = args.records, name, total
        self.losses = []
        self.started = None
        self.seconds = 0.0
        self._shown = 0.0

    def start(self):
        self.started = time.monotonic()

    def loss(self, value):
        self.losses.append(float(value))
        now = time.monotonic()
        n = len(self.losses)
        if now - self._shown > 1 or n == self.total:
            self._shown = now
            recent = self.losses[-100:]
            print(f"round {n} of {self.total}, loss {sum(recent) / len(recent):.3f}, "
                  f"{n / (now - self.started):.1f} rounds/s", flush=True)

    def stop(self):
        self.seconds = time.monotonic() - self.started

    def save(self, model, **more):
        flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
        out = {"rounds": len(self.losses), "seconds": self.seconds,
               "parameters": flat.numel(),
               "sha256": hashlib.sha256(flat.numpy().tobytes()).hexdigest(), **more}
        print(json.dumps(out), flush=True)
        if self.folder:
            base = os.path.join(self.folder, self.name)
            np.save(base + ".params.npy", flat.numpy())
            np.save(base + ".losses.npy", np.array(self.losses))
            with open(base + ".json", "w") as f:
                json.dump(out, f)
