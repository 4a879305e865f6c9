#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Fashion-MNIST with the same final bits on any number of workers.

Each round is divided into --slots micro-batches, and each worker computes its share of them. Start one process a
worker, with RANK and WORLD_SIZE set; or one process with --reference, which trains without a box. All print the
sha256 of the same parameters.
"""

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

import pbox.torch  # (PBox)
from fashion import Records, accuracy, load, network, normal, options
from pbox.torch.reference import Reference


class Images(Dataset):
    """Training images, flipped by chance: a random number of the slot, not of the worker."""

    def __init__(self, folder):
        self.images, self.labels = load(folder, "train")

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        image = normal(self.images[i])
        return image.flip(-1) if torch.rand(()) < 0.5 else image, self.labels[i]


def main():
    p = options(__doc__)
    p.add_argument("--slots", type=int, default=32)
    p.add_argument("--loaders", type=int, default=0, help="processes of the DataLoader")
    p.add_argument("--reference", action="store_true", help="one process, without a box")
    p.set_defaults(batch=512)
    args = p.parse_args()
    torch.set_num_threads(1)

    model, images = network(args.seed), Images(args.data)
    if args.reference:
        optimiser = Reference("momentum", model.parameters(), lr=args.lr, momentum=args.momentum, slots=args.slots)
    else:
        optimiser = pbox.torch.SGD(model.parameters(), model=model, lr=args.lr, momentum=args.momentum, slots=args.slots,  # (PBox)
                                   box=args.box, job=args.job, secret=args.secret, timeout=args.timeout)

    sampler = optimiser.sampler(images, batch_size=args.batch, seed=args.seed)  # (PBox)
    loader = DataLoader(images, batch_sampler=sampler, num_workers=args.loaders)
    total = min(sampler.rounds * args.epochs, args.rounds or 1 << 30)
    lr = torch.optim.lr_scheduler.MultiStepLR(optimiser, [total * 6 // 10, total * 17 // 20], gamma=0.25)
    records = Records(args, "one-slots" if args.reference else f"worker{optimiser.client.worker}", total)
    records.start()
    while optimiser.trained_rounds < total:
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimiser.step()
            if optimiser.round_ended:  # (PBox)
                lr.step()
                records.loss(loss)
                if optimiser.trained_rounds == total:
                    break
    records.stop()

    first = args.reference or optimiser.client.worker == 0
    records.save(model, accuracy=accuracy(model, args.data) if first else None)
    if not args.reference:
        pbox.torch.all_reduce(torch.zeros(1))  # leave together
        optimiser.close()


if __name__ == "__main__":
    main()
