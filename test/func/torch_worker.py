# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A worker of the torch_* tests. RANK, WORLD_SIZE, PBOX_BOX and PBOX_SECRET say who and where.

Each command prints `result NAME VALUE` lines; a failure of PBox prints
`error CLASS SECONDS TEXT` and exits with status 3.
"""

import argparse
import hashlib
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import pbox
import pbox.torch
from pbox.torch import reference

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def numbers(*shape, seed):
    """Values whose sum depends on the order of addition."""
    g = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=g) * torch.pow(
        10.0, torch.randint(-6, 6, shape, generator=g).float())


def digest(tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().contiguous().view(torch.int32).numpy().tobytes())
    return h.hexdigest()[:32]


def result(name, value):
    print("result", name, value, flush=True)


def model():
    torch.manual_seed(0)
    # one tensor of many fragments, odd sizes, and some that share a fragment
    return torch.nn.Sequential(
        torch.nn.Linear(301, 257), torch.nn.Tanh(), torch.nn.Linear(257, 63), torch.nn.Tanh(),
        torch.nn.Linear(63, 1))


def inputs(rank, r):
    # of one magnitude: larger ones would saturate the network and leave zeros to be added
    return torch.randn(9, 301, generator=torch.Generator().manual_seed(1000 * r + rank))


def gradients(args):
    """Reduced gradients of DDP training steps; rank 0 computes what they must be."""
    dist.init_process_group("gloo")
    ddp = DistributedDataParallel(model(), bucket_cap_mb=0.1)
    hook = pbox.torch.register(ddp, job=args.job, timeout=args.timeout)
    h, want, bad = [], [], 0
    twin = model()
    for r in range(args.rounds):
        ddp.zero_grad()
        ddp(inputs(RANK, r)).square().mean().backward()
        got = [p.grad for p in ddp.parameters()]
        h.append(digest(got))
        if RANK == 0:
            parts = []
            for w in range(WORLD):
                twin.zero_grad(set_to_none=True)
                twin(inputs(w, r)).square().mean().backward()
                parts.append([p.grad for p in twin.parameters()])
            want = [reference.tree_reduce([p[i] for p in parts]) for i in range(len(got))]
            bad += not all(reference.equal_bits(a, b) for a, b in zip(got, want))
        with torch.no_grad():
            for p, q in zip(ddp.parameters(), twin.parameters()):
                p.sub_(p.grad, alpha=1e-9)
                q.copy_(p)
    s = hook.client.stats()
    result("digest", hashlib.sha256("".join(h).encode()).hexdigest())
    result("different", bad)
    result("retransmitted", s.retransmitted_frames + s.probes)
    dist.barrier()
    hook.close()


def optimiser(args):
    """All optimisers one after the other against the reference in this process."""
    client = pbox.Client(os.environ["PBOX_BOX"], args.job, os.environ["PBOX_SECRET"], RANK,
                         WORLD, timeout=args.timeout)
    t = pbox.torch
    cases = {
        "sgd": (t.SGD, dict(lr=0.1), {}),
        "momentum": (t.SGD, dict(lr=0.1, momentum=0.9, weight_decay=1e-3, dampening=0.1), {}),
        "nesterov": (t.SGD, dict(lr=0.1, momentum=0.9, nesterov=True), {}),
        "adam": (t.Adam, dict(lr=1e-3, weight_decay=1e-3), {}),
        "adamw": (t.AdamW, dict(lr=1e-3), {}),
        "clipped": (t.SGD, dict(lr=0.1, clip_value=0.5), {}),
        "maximized": (t.SGD, dict(lr=1e-3, momentum=0.9, weight_decay=1e-3, maximize=True, clip_value=0.5), {}),
        "weighted": (t.SGD, dict(lr=0.1), dict(op="weighted_mean")),
        "bf16": (t.SGD, dict(lr=0.1, momentum=0.9), dict(push="bf16")),
    }
    shapes = [(5000,), (64, 33), (1,), (7,), (0,)]
    for case, (cls, hyper, more) in cases.items():
        start = [numbers(*s, seed=7 + i) for i, s in enumerate(shapes)]
        params = [torch.nn.Parameter(s.clone() + RANK) for s in start]
        opt = cls(params, client=client, **hyper, **more)
        kind = case if case in ("sgd", "nesterov", "adam", "adamw") else \
            "momentum" if "momentum" in hyper else "sgd"
        twins = [torch.nn.Parameter(s) for s in start]
        h = {k: v for k, v in hyper.items() if k != "nesterov"}
        ref = reference.Reference(kind, twins, **h)
        schedules = [torch.optim.lr_scheduler.StepLR(o, 3, 0.5) for o in (opt, ref)]
        samples = [w + 1 for w in range(WORLD)]
        op = more.get("op", "mean")
        same = True
        for r in range(args.rounds):
            for i, (p, q) in enumerate(zip(params, twins)):
                all_g = [numbers(*shapes[i], seed=10 ** 6 + 1000 * r + 10 * i + w)
                         for w in range(WORLD)]
                p.grad = all_g[RANK].clone()
                if more.get("push") == "bf16":
                    all_g = [g.bfloat16().float() for g in all_g]
                q.grad = reference.tree_reduce(all_g, op, samples)
            opt.step(samples=samples[RANK] if op == "weighted_mean" else None)
            ref.step()
            for s in schedules:
                s.step()
            same = same and all(reference.equal_bits(p.detach(), q.detach())
                                for p, q in zip(params, twins))
        result(case, "equal" if same else "different")
    dtypes = (torch.float32, torch.bfloat16, torch.float16)
    everybodys = [[numbers(3001, seed=w).clamp(-9, 9).to(d) for d in dtypes]
                  for w in range(WORLD)]
    mine = everybodys[RANK]
    want = [reference.tree_reduce([e[i] for e in everybodys], "sum").to(d)
            for i, d in enumerate(dtypes)]
    pbox.torch.all_reduce(mine, client=client)
    result("reduced", "equal" if all(map(torch.equal, mine, want)) else "different")
    bn = torch.nn.BatchNorm1d(5)
    bn.running_mean.fill_(float(RANK))
    pbox.torch.sync_buffers(bn, client=client)
    result("buffers", "equal" if bn.running_mean[0] == sum(range(WORLD)) / WORLD else bn)
    client.close()


def join(args):
    """Join, declare --elements, make --rounds rounds with --pause between them."""
    with pbox.Client(args.box or os.environ["PBOX_BOX"], args.job, os.environ["PBOX_SECRET"],
                     RANK, args.workers or WORLD, timeout=args.timeout,
                     join_timeout=args.join_timeout, host=f"host{RANK}") as c:
        result("joined", c.worker)
        t = c.declare([pbox.Tensor("conv.weight", 300), pbox.Tensor("fc.weight", args.elements)])
        x = [torch.ones(300), torch.ones(args.elements)]
        for r in range(args.rounds):
            t.run(x)
            if r == 0:
                result("first", time.time())
            time.sleep(args.pause)


def hook(args):
    """DDP without end, to be disturbed."""
    dist.init_process_group("gloo")
    ddp = DistributedDataParallel(model())
    state = pbox.torch.register(ddp, job=args.job, timeout=args.timeout,
                                join_timeout=args.join_timeout)
    result("joined", RANK)
    r = 0
    while True:
        ddp.zero_grad()
        try:
            ddp(inputs(RANK, r)).square().mean().backward()
        except RuntimeError as e:
            if state.error is None:
                raise
            # what DDP raises has the text too
            assert str(state.error) in str(e), str(e)
            raise state.error
        if r == 0:
            result("first", time.time())
        r += 1


def lr_conflict(args):
    """Workers that disagree on the learning rate."""
    p = torch.nn.Parameter(torch.ones(10))
    opt = pbox.torch.SGD([p], 0.1 * (RANK + 1), job=args.job, worker=RANK, workers=WORLD,
                         timeout=args.timeout)
    opt.step()


def loads_alone(args):
    """Only worker 1 has a checkpoint to load."""
    p = torch.nn.Parameter(torch.ones(10))
    opt = pbox.torch.SGD([p], 0.1, momentum=0.9, job=args.job, worker=RANK, workers=WORLD,
                         timeout=args.timeout)
    for _ in range(2):
        p.grad = torch.ones(10)
        opt.step()
    if RANK == 1:
        opt.load_state_dict(opt.state_dict())
    opt.step()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("command", choices=("gradients", "optimiser", "join", "hook", "lr_conflict",
                                       "loads_alone"))
    p.add_argument("--job", default="test")
    p.add_argument("--box")
    p.add_argument("--workers", type=int)
    p.add_argument("--rounds", type=int, default=20)
    p.add_argument("--elements", type=int, default=1000)
    p.add_argument("--pause", type=float, default=0)
    p.add_argument("--delay", type=float, default=0)
    p.add_argument("--timeout", type=float, default=120)
    p.add_argument("--join-timeout", type=float, default=120)
    args = p.parse_args()
    torch.set_num_threads(1)
    time.sleep(args.delay)
    begin = time.monotonic()
    try:
        globals()[args.command](args)
    except pbox.PBoxError as e:
        print("error", type(e).__name__, f"{time.monotonic() - begin:.1f}", e, flush=True)
        os._exit(3)
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may outlive everything else


if __name__ == "__main__":
    main()
