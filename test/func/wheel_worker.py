# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A worker of the test `wheel`, which has nothing of PBox but what a wheel installs: a few all-reduces, and a few steps on the box."""

import hashlib
import os

import torch

import pbox.torch

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.set_num_threads(1)
torch.manual_seed(rank)
model = torch.nn.Sequential(torch.nn.Linear(50, 300), torch.nn.ReLU(), torch.nn.Linear(300, 7))
optimiser = pbox.torch.SGD(model.parameters(), lr=0.1, momentum=0.9, job="wheel", worker=rank, workers=world)
for _ in range(4):
    optimiser.zero_grad()
    model(torch.randn(16, 50)).square().mean().backward()
    optimiser.step()
x = torch.arange(70000.0) * (rank + 1)
for _ in range(3):
    pbox.torch.all_reduce([x])
print("sums", torch.equal(x, torch.arange(70000.0) * (1 + 2) * world ** 2))
print("parameters", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest())
optimiser.close()
