# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A worker of the example: Fashion-MNIST, slots by plan or in equal shares. `run` starts it.

Says `ready` when all is loaded, and begins when it reads a line; `round N SLOTS SECONDS` of each round; at the end `bits SHA256` of the
parameters.
"""

import hashlib
import os
import sys
import time

import torch
import torch.nn.functional as F
from torch.utils.data import Dataset

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# pylint: disable=wrong-import-position
import pbox.torch
from fashion import load, network, normal, options


class Images(Dataset):
    """The first n: an epoch is the whole training, so that it ends for a worker without slots, too."""

    def __init__(self, folder, n):
        images, labels = load(folder, "train")
        if n > len(labels):
            raise SystemExit(f"rounds x batch are {n} images, and there are {len(labels)}: take fewer rounds, or a smaller batch")
        self.images, self.labels = images[:n], labels[:n]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return normal(self.images[i]), self.labels[i]


def say(*words):
    print(*words, flush=True)


def main():
    p = options(__doc__)
    p.add_argument("what", choices=("equal", "plan"))
    p.add_argument("--slots", type=int, required=True)
    p.add_argument("--worker", type=int, required=True)
    p.add_argument("--workers", type=int, required=True)
    args = p.parse_args()
    torch.set_num_threads(1)
    model, images = network(args.seed), Images(args.data, args.rounds * args.batch)
    by_plan = {"policy": "reassign"} if args.what == "plan" else {}
    # one slot before the limits: what torch makes with the first use is made
    F.cross_entropy(model(normal(images.images[:8])), images.labels[:8]).backward()
    model.zero_grad(set_to_none=True)
    say("ready")
    if not sys.stdin.readline():
        return
    optimiser = pbox.torch.SGD(model.parameters(), model=model, lr=args.lr, momentum=args.momentum, slots=args.slots, box=args.box, job=args.job,
                               secret=args.secret, worker=args.worker, workers=args.workers, timeout=args.timeout, **by_plan)
    loader = optimiser.loader(images, batch_size=args.batch, seed=args.seed)
    begun, slots, before = time.monotonic(), 0, 0
    for x, y in loader:
        F.cross_entropy(model(x), y).backward()
        optimiser.step()
        slots += 1
        if optimiser.round_ended:
            now = time.monotonic()
            rounds = optimiser.trained_rounds - before  # more than one: it had no slots in those before
            say("round", optimiser.trained_rounds, slots, f"{(now - begun) / rounds:.6f}")
            begun, slots, before = now, 0, optimiser.trained_rounds
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    say("bits", hashlib.sha256(flat.numpy().tobytes()).hexdigest())
    optimiser.close()


if __name__ == "__main__":
    main()
