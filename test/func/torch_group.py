# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""What torch has beside DistributedDataParallel, over a process group; for torch_group.

usage: torch_group.py BACKEND WHAT...

of_torch   ZeroRedundancyOptimizer with Join, object collectives, groups of a part of the ranks, PowerSGD, static_graph, sparse
           gradients, fp64, bf16 and fp16
lengths N  N all-reduces of as many lengths: tables and memory stay as they are
restart    under torchrun, whose first start ends with the death of rank 1: sums of the second have nothing of the first
spawn      both ranks by mp.spawn
wait S     one all-reduce, and after S seconds another, until one fails: prints `failed CLASS: TEXT` and the seconds that it took
"""

import datetime
import os
import resource
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import pbox.torch
from pbox.torch import _group


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 300), torch.nn.ReLU(), torch.nn.Linear(300, 10))


def say(*what):
    print(*what, flush=True)


def total(model):
    return f"{sum(p.double().abs().sum().item() for p in model.parameters()):.6f}"


def sharded(rank):
    model = DistributedDataParallel(network())
    optimiser = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    torch.manual_seed(1 + rank)
    with Join([model, optimiser]):
        for k in range(2 + rank):
            optimiser.zero_grad()
            loss = model(torch.randn(8, 64)).square().mean()
            loss.backward()
            optimiser.step()
            say(f"loss sharded {k} {loss.item():.8f}")
    optimiser.consolidate_state_dict()
    say("sum sharded", total(model))


def power(rank):
    """Its functions wait for all-reduces in those that then() calls."""
    model = DistributedDataParallel(network())
    model.register_comm_hook(powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(1 + rank)
    for k in range(4):
        optimiser.zero_grad()
        loss = model(torch.randn(8, 64)).square().mean()
        loss.backward()
        optimiser.step()
        say(f"loss power {k} {loss.item():.8f}")
    say("sum power", total(model))


def groups(rank, size):
    halves = [dist.new_group([0]), dist.new_group([1])]
    every = dist.new_group()
    t = torch.full((50000,), 1.0 + rank)
    dist.all_reduce(t, group=halves[rank])
    say(f"sum part {t.mean().item():.6f}")
    dist.all_reduce(t, group=every)
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    say(f"sum every {t.mean().item():.6f}")
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    one = [{"of": rank}]
    dist.broadcast_object_list(one, src=1)
    say(f"sum objects {sum(o['rank'] for o in objects) + 10 * one[0]['of']}")
    if rank == 0:
        dist.send(t, 1)
    else:
        dist.recv(t, 0)
    parts = [torch.zeros(5) for _ in range(size)]
    dist.all_gather(parts, torch.full((5,), float(rank)))
    dist.broadcast(parts[0], src=1)
    dist.reduce(parts[1], dst=0)
    dist.barrier()
    say(f"sum gathered {sum(p.sum().item() for p in parts[:1]):.6f}")


def narrow(rank):
    """Gloo of torch 1.13 has no bf16; both have no mean."""
    for dtype in (torch.bfloat16, torch.float16):
        torch.manual_seed(2)
        both = [torch.randn(70001).to(dtype) for _ in range(2)]
        for op, factor in ((dist.ReduceOp.SUM, 1.0), (dist.ReduceOp.AVG, 0.5)):
            t = both[rank].clone()
            dist.all_reduce(t, op=op)
            say("narrow", torch.equal(t, ((both[0].float() + both[1].float()) * factor).to(dtype)))
    t = torch.full((3,), 1.0 + rank)
    dist.all_reduce(t, op=dist.ReduceOp.AVG)
    say("mean", float(t[0]))


def others(rank):
    """Kinds of models that the hook does not take, and two in one pass."""
    torch.manual_seed(0)
    static = DistributedDataParallel(torch.nn.Linear(130, 130), static_graph=True)
    rows = DistributedDataParallel(torch.nn.EmbeddingBag(500, 130, sparse=True))
    double = DistributedDataParallel(torch.nn.Linear(130, 130).double())
    torch.manual_seed(1 + rank)
    for k in range(2):
        loss = double(static(rows(torch.randint(0, 500, (4, 3)))).double()).square().mean()
        loss.backward()
        say(f"loss others {k} {loss.item():.8f}")
    grads = [p.grad.to_dense() if p.grad.is_sparse else p.grad for m in (static, rows, double) for p in m.parameters()]
    say(f"sum others {sum(g.double().abs().sum().item() for g in grads):.6f}")


def restart(rank):
    count = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    for k in range(3):
        t = torch.full((70000,), (1.0 + rank) * 10 ** count)
        dist.all_reduce(t)
        say(f"start {count} sum {k} {float(t[0]):g} {float(t[-1]):g} ")
        if count == 0 and k == 1 and rank == 1:
            os._exit(1)


def spawned(rank):
    dist.init_process_group("pbox", init_method="tcp://127.0.0.1:29513", rank=rank, world_size=2)
    t = torch.full((20000,), 1.0 + rank)
    dist.all_reduce(t)
    say(f"spawned {float(t[0])} {_group.total} ")
    dist.barrier()


def memory():
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * resource.getpagesize()


def lengths(n):
    group = dist.distributed_c10d._get_default_group()
    first = 0
    for i in range(n):
        t = torch.full((16384 + 37 * (i % 1000),), 1.0 + dist.get_rank())
        dist.all_reduce(t)
        if float(t[0]) != 3 or float(t[-1]) != 3:
            say("wrong", i, float(t[0]), float(t[-1]))
        if i == min(100, n // 2):
            first = memory()
    say("lengths", n, "tables", len(group._wires), "restarts", group.session.client.stats().restarts, "more memory", memory() - first)


def wait(pause):
    group = dist.distributed_c10d._get_default_group()
    say("waits", os.getpid(), type(group).__name__)
    t = torch.ones(1 << 18)
    began = time.monotonic()
    try:
        while True:
            began = time.monotonic()
            dist.all_reduce(t)
            time.sleep(pause)
    except Exception as e:
        say(f"failed {type(e).__name__}: {e}")
        say(f"after {time.monotonic() - began:.1f} s")
        os._exit(3)


def main():
    backend, *what = sys.argv[1:]
    if what == ["spawn"]:
        torch.multiprocessing.spawn(spawned, nprocs=2)
        return
    limit = datetime.timedelta(seconds=float(os.environ.get("LIMIT", 1800)))
    try:
        dist.init_process_group(backend, timeout=limit)
    except pbox.PBoxError as e:
        say(f"failed {type(e).__name__}: {e}")
        sys.exit(3)
    rank, size = dist.get_rank(), dist.get_world_size()
    say("backend", dist.get_backend())
    if what[0] == "of_torch":
        sharded(rank)
        groups(rank, size)
        power(rank)
        others(rank)
        if backend == "pbox":
            narrow(rank)
    elif what[0] == "restart":
        restart(rank)
    elif what[0] == "lengths":
        lengths(int(what[1]))
    else:
        wait(float(what[1]))
    if backend == "pbox":
        say("carried", _group.total, _group.total_bytes)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
