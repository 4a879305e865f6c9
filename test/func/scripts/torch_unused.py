# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Frozen parameters, and some that a pass does not use; a second model with a hook of its own; others that
PBox does not carry; and inputs that end sooner at one rank."""

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = torch.nn.Linear(10, 30)
        self.branches = torch.nn.ModuleList(torch.nn.Linear(30, 2) for _ in range(2))
        self.frozen.requires_grad_(False)

    def forward(self, x, which):
        return self.branches[which](self.frozen(x).relu())


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(Branches(), find_unused_parameters=True)
other = DistributedDataParallel(torch.nn.Linear(2, 1))
other.register_comm_hook(None, default_hooks.allreduce_hook)
uneven = DistributedDataParallel(torch.nn.Linear(5, 5))
groups = [dist.new_group([r]) for r in range(dist.get_world_size())]
alone = DistributedDataParallel(torch.nn.Linear(3, 3), process_group=groups[rank])
static = DistributedDataParallel(torch.nn.Linear(3, 3), static_graph=True)
rows = DistributedDataParallel(torch.nn.Embedding(9, 3, sparse=True))
optimisers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (model, other)]
torch.manual_seed(1 + rank)
for step in range(4):
    for o in optimisers:
        o.zero_grad()
    loss = other(model(torch.randn(8, 10), step % 2)).square().mean()  # both models in one pass
    loss.backward()
    for o in optimisers:
        o.step()
    print(f"loss {step} {loss.item():.8f}")
for step in range(2):
    loss = (alone(torch.randn(2, 3)) + static(torch.randn(2, 3)) + rows(torch.tensor([rank, 5]))).square().mean()
    loss.backward()
    print(f"loss {step} {loss.item():.8f}")
grads = [p.grad for m in (alone, static, rows) for p in m.parameters()]
print(f"sum {sum((g.to_dense() if g.is_sparse else g).double().abs().sum().item() for g in grads):.6f}")
optimiser = torch.optim.SGD(uneven.parameters(), lr=0.1)
with Join([uneven], divide_by_initial_world_size=False):
    for step in range(3 * rank):  # rank 0 has none at all
        optimiser.zero_grad()
        uneven(torch.randn(4, 5)).square().mean().backward()
        optimiser.step()
print(f"sum {sum(p.double().abs().sum().item() for m in (model, other, uneven) for p in m.parameters()):.6f}")
dist.destroy_process_group()
