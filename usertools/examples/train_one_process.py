#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The same training in one process and without PBox: the reference of the other examples.

It takes the workers' parts of each global batch one after the other, adds their gradients along the
tree over the workers in fp32 and multiplies by fp32(1/N), and makes one step: what N workers and a box
do, so the final parameters must have the same bits.

--optimiser torch is torch.optim.SGD, as train_ddp_hook.py has it; box is the box's own order of
operations, in which each product and each sum is rounded once (torch.optim fuses some).

Set OMP_NUM_THREADS alike everywhere: matrix libraries sum in another order with more threads.
"""

import torch
import torch.nn.functional as F

from fashion import Batches, Records, accuracy, network, normal, options, schedule
from pbox.torch import reference


def main():
    p = options(__doc__)
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--optimiser", choices=("torch", "box"), default="torch")
    args = p.parse_args()
    torch.set_num_threads(1)

    model = network(args.seed)
    params = list(model.parameters())
    if args.optimiser == "torch":
        optimiser = torch.optim.SGD(params, lr=args.lr, momentum=args.momentum)
    else:
        optimiser = reference.Reference("momentum", params, lr=args.lr, momentum=args.momentum)
    batches = Batches(args, 0, args.workers)
    lr = schedule(optimiser, batches.total)
    records = Records(args, "one-" + args.optimiser, batches.total)
    records.start()
    for parts in zip(*(batches.indices(w) for w in range(args.workers))):
        grads, losses = [], []
        for i in parts:
            optimiser.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(normal(batches.images[i])), batches.labels[i])
            loss.backward()
            grads.append([p.grad for p in params])
            losses.append(float(loss))
        for k, q in enumerate(params):
            q.grad = reference.tree_reduce([g[k] for g in grads])
        optimiser.step()
        lr.step()
        records.loss(sum(losses) / len(losses))
    records.stop()
    records.save(model, accuracy=accuracy(model, args.data))


if __name__ == "__main__":
    main()
