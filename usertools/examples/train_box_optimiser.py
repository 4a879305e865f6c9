#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Fashion-MNIST with the optimiser on the box: torch.distributed is not needed.

Start one process a worker, with RANK and WORLD_SIZE set. The lines marked (PBox) are all that
differs from training in one process.
"""

import os

import torch
import torch.nn.functional as F

import pbox.torch  # (PBox)
from fashion import Batches, Records, accuracy, network, options, schedule
from proof import OptimiserProof


def main():
    args = options(__doc__).parse_args()
    torch.set_num_threads(1)
    rank, workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    # each worker starts elsewhere; the box gives worker 0's parameters to all
    model = network(args.seed + rank)
    optimiser = pbox.torch.SGD(model.parameters(), model=model, lr=args.lr, momentum=args.momentum,  # (PBox)
                               box=args.box, job=args.job, secret=args.secret,
                               timeout=args.timeout)

    batches = Batches(args, rank, workers)
    lr = schedule(optimiser, batches.total)
    records = Records(args, f"worker{rank}", batches.total)
    proof = OptimiserProof(optimiser, model) if args.proof else None
    records.start()
    for images, labels in batches:
        optimiser.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        if proof:
            proof.before()
        optimiser.step()
        if proof:
            proof.after()
        lr.step()
        records.loss(loss)
    records.stop()

    records.save(model, accuracy=accuracy(model, args.data) if rank == 0 else None,
                 traffic=vars(optimiser.client.stats()), **(proof.result() if proof else {}))
    # leave together: a worker that leaves early is missing in the others' last round
    pbox.torch.all_reduce(torch.zeros(1))
    optimiser.close()


if __name__ == "__main__":
    main()
    os._exit(0)  # as in train_ddp_hook.py
