# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""An ordinary script of DistributedDataParallel, as torch_run finds it: it knows nothing of PBox."""

import argparse
import pickle

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

import neighbour


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(), torch.nn.Linear(64, 3))

    def forward(self, x):
        return self.layers(x)


class Subclass(DDP):
    """As some scripts have it, for attributes of the model."""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Subclass(Net(), broadcast_buffers=False)
    assert isinstance(model, DDP)
    if dist.get_rank() == 0:
        with torch.enable_grad():
            model.module(torch.randn(4, 20))
        model.eval()
        model(torch.randn(4, 20))  # of one rank alone, with gradients that nobody asks for
        model.train()
    dist.barrier()  # others do not come to their first forward pass before
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(1 + dist.get_rank())
    for step in range(args.steps):
        optimiser.zero_grad()
        loss = neighbour.loss(model(torch.randn(16, 20)))
        loss.backward()
        optimiser.step()
        print(f"loss {step} {loss.item():.8f}")
    # classes of __main__ are found, and a model without its hook is a model
    again = pickle.loads(pickle.dumps(model.module))
    print(f"sum {sum(p.double().abs().sum().item() for p in again.parameters()):.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
