#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Fashion-MNIST with DistributedDataParallel, gradients reduced by PBox.

Start one process a worker, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set. The lines
marked (PBox) are all that differs from a DDP script without it.
"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import pbox.torch  # (PBox)
from fashion import Batches, Records, accuracy, network, options, schedule
from proof import HookProof


def main():
    args = options(__doc__).parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, workers = dist.get_rank(), dist.get_world_size()

    model = DistributedDataParallel(network(args.seed))
    hook = pbox.torch.register(model, box=args.box, job=args.job, secret=args.secret,  # (PBox)
                               timeout=args.timeout)
    optimiser = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)

    batches = Batches(args, rank, workers)
    lr = schedule(optimiser, batches.total)
    records = Records(args, f"worker{rank}", batches.total)
    proof = HookProof(hook) if args.proof else None
    dist.barrier()
    records.start()
    for images, labels in batches:
        optimiser.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        if proof:
            proof.check()
        optimiser.step()
        lr.step()
        records.loss(loss)
    records.stop()

    records.save(model, accuracy=accuracy(model, args.data) if rank == 0 else None,
                 traffic=vars(hook.client.stats()), **(proof.result() if proof else {}))
    dist.barrier()
    hook.close()


if __name__ == "__main__":
    main()
    os._exit(0)  # gloo's threads outlive destroy_process_group in some versions of torch
