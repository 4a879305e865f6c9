# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Gradients of several batches are added up before they are synchronised, and clipped after; two models in one pass."""

import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
encoder = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(12, 40), torch.nn.Tanh()))
decoder = DistributedDataParallel(torch.nn.Linear(40, 12).double())
head = DistributedDataParallel(torch.nn.Linear(40, 4))
params = [p for m in (encoder, decoder, head) for p in m.parameters()]
optimiser = torch.optim.Adam(params, lr=0.01)
torch.manual_seed(1 + dist.get_rank())
for step in range(8):
    last = step % 4 == 3
    with contextlib.ExitStack() as stack:
        if not last:
            for m in (encoder, decoder, head):
                stack.enter_context(m.no_sync())
        x = torch.randn(6, 12)
        code = encoder(x)
        loss = (decoder(code.double()) - x).square().mean() + head(code).abs().mean()
        loss.backward()
    if last:
        torch.nn.utils.clip_grad_norm_(params, 0.5)
        optimiser.step()
        optimiser.zero_grad()
    print(f"loss {step} {loss.item():.8f}")
print(f"sum {sum(p.double().abs().sum().item() for p in params):.6f}")
dist.destroy_process_group()
