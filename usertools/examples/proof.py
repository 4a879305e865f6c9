# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Proofs at run time that what the box returned is the sum in the order of the box, bit for bit.

The workers exchange their raw gradients over torch.distributed (gloo), past the box, and each
computes the sum of R5.2 of doc/protocol.md itself: (p0 + p1) + (p2 + p3), in fp32, times
fp32(1/4). The first rounds and every 50th after them are compared.
"""

import torch
import torch.distributed as dist

from pbox.torch import reference

FIRST, EVERY = 20, 50


def exchange(mine):
    """Everybody's tensor, by rank."""
    out = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(out, mine)
    return out


class _Proof:
    def __init__(self):
        self.checked = 0
        self.different = 0

    def count(self, same):
        self.checked += 1
        self.different += not same

    def result(self):
        return {"checked_rounds": self.checked, "different_rounds": self.different}


class HookProof(_Proof):
    """Keeps copies of the buckets as they go into the hook and as they come out."""

    def __init__(self, hook):
        super().__init__()
        self.round = 1
        self.pairs = []
        hook.observer = self.observe

    def wanted(self):
        return self.round <= FIRST or self.round % EVERY == 0

    def observe(self, bucket, local):
        if not self.wanted():
            return None
        index, before = bucket.index(), local.clone()
        # called by the thread that completes the bucket, before backward() returns
        return lambda reduced: self.pairs.append((index, before, reduced.clone()))

    def check(self):
        if self.wanted():
            same = True
            for _, before, reduced in sorted(self.pairs, key=lambda x: x[0]):
                want = reference.tree_reduce(exchange(before))
                same = same and reference.equal_bits(want, reduced)
            self.count(same and bool(self.pairs))
        self.pairs.clear()
        self.round += 1


class OptimiserProof(_Proof):
    """For the first rounds: sums the gradients and makes the optimiser's step itself, with state
    of its own. Later: all workers hold the same parameters. (The last round is proven by the
    run of one process.)"""

    def __init__(self, optimiser, model):
        super().__init__()
        dist.init_process_group("gloo")
        self.optimiser = optimiser
        self.params = list(model.parameters())
        self.twins = [torch.nn.Parameter(p.detach().clone()) for p in self.params]
        h = optimiser.param_groups[0]
        self.reference = reference.Reference("momentum", self.twins, lr=h["lr"],
                                             momentum=h["momentum"])
        self.round = 1

    def flat(self):
        return torch.cat([p.detach().reshape(-1) for p in self.params])

    def before(self):
        if self.round <= FIRST:
            mine = torch.cat([p.grad.reshape(-1) for p in self.params])
            total, at = reference.tree_reduce(exchange(mine)), 0
            for t in self.twins:
                t.grad = total[at:at + t.numel()].view_as(t)
                at += t.numel()
            self.reference.step()

    def after(self):
        if self.round <= FIRST:
            want = torch.cat([t.detach().reshape(-1) for t in self.twins])
            self.count(reference.equal_bits(want, self.flat()))
        elif self.round % EVERY == 0:
            mine = self.flat()
            self.count(all(reference.equal_bits(mine, o) for o in exchange(mine)))
        self.round += 1
