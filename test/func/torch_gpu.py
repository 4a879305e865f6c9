# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A worker of torch_gpu: each case on CPU tensors and on the stand-in device, whose bits must be the same.

RANK, WORLD_SIZE, PBOX_BOX and PBOX_SECRET say who and where. Prints `result NAME equal` or what is wrong; `endless` and
`endless_steps` train until they are disturbed, and print `result first`, then `error CLASS SECONDS TEXT`.
"""

import argparse
import contextlib
import hashlib
import logging
import os
import sys
import time
import traceback
import unittest.mock
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

import pbox
import pbox.torch
from pbox.torch import _staged, stand_in

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
CASES = {}


def case(fn):
    CASES[fn.__name__] = fn
    return fn


def model():
    torch.manual_seed(0)
    # a parameter of several pieces, odd sizes, and some that share a fragment
    return nn.Sequential(nn.Linear(301, 257), nn.Tanh(), nn.Linear(257, 63), nn.Tanh(), nn.Linear(63, 1))


def inputs(r, scale=1.0):
    return scale * torch.randn(9, 301, generator=torch.Generator().manual_seed(1000 * r + RANK))


class Digest:
    def __init__(self):
        self._hash = hashlib.sha256()

    def add(self, tensors):
        for t in tensors:
            self._hash.update(t.detach().float().contiguous().view(torch.int32).numpy().tobytes())

    def text(self):
        return self._hash.hexdigest()[:32]


def hooked(device, ddp, client, **kw):
    """register(), as it is on the CPU, or with late gradients."""
    if device is None:
        return pbox.torch.register(ddp, client=client, **kw)
    original = ddp.register_comm_hook

    def late(state, hook):
        def run(state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
            device.late(bucket.buffer())
            return hook(state, bucket)
        original(state, run)
    ddp.register_comm_hook = late
    try:
        return pbox.torch.register(ddp, client=client, **kw)
    finally:
        del ddp.register_comm_hook


def train(device, client, backward=None, steps=4, bucket_mb=0.1, make=model, ddp_options=None, **kw):
    ddp = DistributedDataParallel(make(), bucket_cap_mb=bucket_mb, **(ddp_options or {}))
    hook = hooked(device, ddp, client, **kw)
    optimiser = torch.optim.SGD(ddp.parameters(), 0.01, momentum=0.9)
    found = Digest()
    for r in range(steps):
        hook.samples = RANK + 1 + r
        optimiser.zero_grad(set_to_none=bool(r % 2))
        (backward or one)(ddp, r)
        found.add(p.grad for p in ddp.parameters() if p.grad is not None)
        optimiser.step()
    found.add(ddp.parameters())
    if device is not None:  # the buckets of the first pass are no more
        parts = (2 if kw.get("compress") in ("bf16", "fp16") else 4) * sum(p.numel() for p in ddp.parameters())
        pinned = hook._staging.pinned
        assert (parts <= pinned <= parts + 4096 * len(list(ddp.parameters()))) == device.pins, f"{pinned} bytes are pinned, not {parts}"
    hook.close()
    return found.text()


def one(ddp, r):
    ddp(inputs(r)).square().mean().backward()


@case
def hook(device, client):
    return train(device, client)


@case
def hook_one_bucket(device, client):
    return train(device, client, bucket_mb=25)


@case
def hook_bucket_view(device, client):
    return train(device, client, ddp_options=dict(gradient_as_bucket_view=True))


@case
def hook_bf16(device, client):
    return train(device, client, compress="bf16")


@case
def hook_fp16(device, client):
    return train(device, client, compress="fp16")


@case
def hook_int8(device, client):
    """Of parameters that are not declared in pieces: fragments that begin elsewhere are rounded otherwise."""
    with unittest.mock.patch.object(_staged, "PIECE_ELEMENTS", 4 << 20):
        return train(device, client, compress="int8")


@case
def hook_weighted(device, client):
    return train(device, client, op="weighted_mean")


@case
def hook_no_sync(device, client):
    def backward(ddp, r):
        with ddp.no_sync():
            one(ddp, 100 * r)
        one(ddp, 100 * r + 1)
    return train(device, client, backward)


@case
def hook_unused(device, client):
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b = nn.Linear(301, 63), nn.Linear(301, 63)

        def forward(self, x):
            return (self.a if x[0, 0] > 0 else self.b)(x)
    return train(device, client, make=Branches, ddp_options=dict(find_unused_parameters=True))


@case
def hook_join(device, client):
    """Rank 0 has two batches more than the others."""
    ddp = DistributedDataParallel(model(), bucket_cap_mb=0.1)
    hook = hooked(device, ddp, client)
    found = Digest()
    with Join([ddp]):
        for r in range(5 if RANK == 0 else 3):
            ddp.zero_grad()
            one(ddp, r)
            if r < 3:
                found.add(p.grad for p in ddp.parameters())
    hook.close()
    return found.text()


@case
def hook_overflow(device, client):
    """A loss scale that is too large for one rank: all get inf, and leave the step out alike."""
    ddp = DistributedDataParallel(model(), bucket_cap_mb=0.1)
    hook = hooked(device, ddp, client)
    found, scale = Digest(), 2.0 ** 10
    for r in range(4):
        ddp.zero_grad()
        x = inputs(r, 1e30 if r == 2 and RANK == WORLD - 1 else 1.0)
        (ddp(x).square().mean() * scale * (1e38 if r == 2 and RANK == WORLD - 1 else 1.0)).backward()
        infinite = any(not bool(torch.isfinite(p.grad).all()) for p in ddp.parameters())
        scale = scale / 2 if infinite else scale
        if not infinite:
            found.add(p.grad for p in ddp.parameters())
    hook.close()
    return f"{found.text()} {scale:g}" if scale == 2.0 ** 9 else f"scale {scale:g}: inf was not seen by rank {RANK}"


@case
def all_reduce(device, client):
    found = Digest()
    for r in range(3):
        g = torch.Generator().manual_seed(100 * r + RANK)
        x = [torch.randn(n, generator=g).to(d) for n, d in ((3001, torch.float32), (0, torch.float32), (77, torch.bfloat16), (1, torch.float16))]
        if device is not None:
            for t in x:
                device.late(t)
        for op in pbox.torch.all_reduce(x, ("sum", "mean")[r % 2], client=client, async_op=r == 2) or []:
            op.wait()
        found.add(x)
    bn = nn.BatchNorm1d(5)
    bn.running_mean.fill_(float(RANK))
    pbox.torch.sync_buffers(bn, client=client)
    found.add([bn.running_mean])
    return found.text()


def optimise(device, client, kind, gradient=None, make=model, **kw):
    """Steps on the box, of gradients that come late on a device; then its state, loaded into another optimiser."""
    module, found, skipped, state = make(), Digest(), 0, None
    with contextlib.nullcontext() if device is None else device.in_order():
        for part in range(2):
            optimiser = getattr(pbox.torch, kind)(module.parameters(), lr=0.01, client=client, **kw)
            if part:
                optimiser.load_state_dict(state)
            for r in range(4):
                optimiser.zero_grad(set_to_none=bool(r % 2))
                module(inputs(10 * part + r)).square().mean().backward()
                if gradient is not None:
                    gradient(module, optimiser, r)
                if device is not None:
                    for p in module.parameters():
                        if p.grad is not None:
                            device.late(p.grad)
                optimiser.step(**(dict(samples=RANK + 1 + r) if kw.get("op") == "weighted_mean" else {}))
                if device is not None:
                    device.compute.synchronize()
                found.add(module.parameters())
            state = optimiser.state_dict()
            for _, values in sorted(state["state"].items()):
                found.add(v for _, v in sorted(values.items()) if torch.is_tensor(v))
            skipped += optimiser.skipped
            optimiser.close()
    return f"{found.text()} {skipped}"


@case
def sgd(device, client):
    return optimise(device, client, "SGD")


@case
def momentum(device, client):
    return optimise(device, client, "SGD", momentum=0.9, weight_decay=0.01)


@case
def adam(device, client):
    return optimise(device, client, "Adam")


@case
def adamw_narrow(device, client):
    return optimise(device, client, "AdamW", push="bf16", pull="bf16")


@case
def sgd_fp16(device, client):
    return optimise(device, client, "SGD", push="fp16")


@case
def momentum_pushes_int8(device, client):
    return optimise(device, client, "SGD", push="int8", momentum=0.9)


@case
def momentum_pulls_int8(device, client):
    return optimise(device, client, "SGD", push="int8", pull="int8", momentum=0.9)


@case
def sgd_weighted(device, client):
    return optimise(device, client, "SGD", op="weighted_mean")


@case
def sgd_channels_last(device, client):
    def make():
        torch.manual_seed(3)
        return nn.Sequential(nn.Unflatten(1, (7, 1, 43)), nn.Conv2d(7, 8, (1, 5)), nn.Flatten(), nn.Linear(8 * 39, 3)).to(
            memory_format=torch.channels_last)
    return optimise(device, client, "SGD", make=make, momentum=0.9)


@case
def sgd_no_gradient_at_one(device, client):
    def gradient(module, _, r):
        if r == RANK:
            module[2].weight.grad = None
    return optimise(device, client, "SGD", gradient=gradient)


@case
def adam_one_rank_has_inf(device, client):
    """What GradScaler of torch 2 does; 1.13 has none for the CPU. All leave step 2 out."""
    def gradient(_, optimiser, r):
        optimiser.grad_scale = torch.tensor([2.0])
        optimiser.found_inf = torch.tensor(float(r == 2 and RANK == WORLD - 1))
    said = optimise(device, client, "Adam", gradient=gradient)
    return said if said.endswith(" 2") else f"{said}: no step was left out"


@case
def a_wait_is_left_out(device, client):
    """With one wait less, in three places, bits differ: the cases above can fail."""
    if device is None:
        return "different different different"
    want, said = train(None, client), []
    for forgets in ("synchronize", "wait_event", "use"):
        with stand_in.StandIn(forgets=forgets).instead_of_host() as careless:
            said.append("the same" if train(careless, client) == want else "different")
    return " ".join(said)


@case
def not_pinned(device, client):
    """Pageable memory, and a warning."""
    if device is None:
        return train(None, client)
    said = []

    class Keep(logging.Handler):
        def emit(self, record):
            said.append(record.getMessage())
    handler = Keep()
    logging.getLogger("pbox").addHandler(handler)
    pbox.torch._device.Memory._warned = False
    with stand_in.StandIn(pins=False).instead_of_host() as pageable:
        found = train(pageable, client)
    logging.getLogger("pbox").removeHandler(handler)
    return found if sum("could not be pinned" in s for s in said) == 1 else f"warnings: {said}"


def endless_steps(args):
    begin, p = time.monotonic(), nn.Parameter(torch.zeros(100000))
    with stand_in.StandIn().instead_of_host() as device, device.in_order():
        optimiser = pbox.torch.SGD([p], 0.1, job="test", timeout=args.timeout, host=f"host{RANK}")
        r = 0
        while True:
            p.grad = torch.ones(100000)
            device.late(p.grad)
            try:
                optimiser.step()
            except pbox.PBoxError as e:
                print("error", type(e).__name__, f"{time.monotonic() - begin:.1f}", e, flush=True)
                os._exit(3)
            if r == 0:
                print("result first", time.time(), flush=True)
            r += 1


def endless(args):
    begin = time.monotonic()
    with stand_in.StandIn().instead_of_host() as device:
        ddp = DistributedDataParallel(model(), bucket_cap_mb=0.1)
        client = pbox.Client(os.environ["PBOX_BOX"], "test", os.environ["PBOX_SECRET"], RANK, WORLD, timeout=args.timeout,
                             host=f"host{RANK}")
        hook = hooked(device, ddp, client)
        r = 0
        while True:
            ddp.zero_grad()
            try:
                one(ddp, r)
            except RuntimeError as e:
                if hook.error is None:
                    raise
                assert str(hook.error) in str(e), str(e)
                print("error", type(hook.error).__name__, f"{time.monotonic() - begin:.1f}", hook.error, flush=True)
                os._exit(3)
            if r == 0:
                print("result first", time.time(), flush=True)
            r += 1


def main():
    p = argparse.ArgumentParser()
    p.add_argument("names", nargs="*")
    p.add_argument("--timeout", type=float, default=300)
    args = p.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    _staged.CHUNK_BYTES, _staged.PIECE_ELEMENTS = 64 << 10, 50001  # so that this model has several of each
    dist.init_process_group("gloo")
    if args.names in (["endless"], ["endless_steps"]):
        globals()[args.names[0]](args)
    client = pbox.Client(os.environ["PBOX_BOX"], "test", os.environ["PBOX_SECRET"], RANK, WORLD, timeout=args.timeout,
                         join_timeout=args.timeout)
    failed = 0
    for name in args.names or CASES:
        try:
            want = CASES[name](None, client)
            with stand_in.StandIn().instead_of_host() as device:
                got = CASES[name](device, client)
            said = "equal" if got == want else f"{got}, not {want}"
        except Exception:
            said = traceback.format_exc().strip().replace("\n", " | ")
        failed += said != "equal"
        print("result", name, said, flush=True)
        dist.barrier()
    client.close()
    sys.stdout.flush()
    os._exit(failed > 0)


if __name__ == "__main__":
    main()
