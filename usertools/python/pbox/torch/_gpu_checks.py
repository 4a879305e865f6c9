# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The checks of pbox.gpucheck: each is made with CPU tensors and with tensors of a device, and must have the same bits.

Gradients are given, since a GPU computes others than a CPU: the model's loss is the sum of parameter times gradient.
"""

import contextlib
import hashlib
import unittest.mock
from typing import Any, Callable, ContextManager, Dict, List

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from . import _kinds, stand_in
from ._collective import all_reduce
from ._hook import register

SIZES = (7, 257, 1, 5003, 120001, 33, 999, 65537)  # odd ones: of parameters, and so of buckets
STEPS = 4
ON_BOX = 7  # an optimiser on the box looks at all parameters in its first steps, which waits for the computation


class Cpu:
    """Where a check runs."""

    where = torch.device("cpu")

    def meanwhile(self) -> ContextManager[Any]:
        return contextlib.nullcontext()

    def in_order(self) -> ContextManager[Any]:
        return contextlib.nullcontext()

    def late(self, t: torch.Tensor) -> None:
        """As if it had been computed on the device."""

    def register(self, ddp: Any, client: Any, **kw: Any) -> Any:
        return register(ddp, client=client, **kw)

    def synchronize(self) -> None:
        pass

    def scaler(self) -> Any:
        return _Scaler()


class Cuda(Cpu):
    def __init__(self, index: int) -> None:
        self.where = torch.device("cuda", index)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.where)

    def scaler(self) -> Any:
        return _Of(torch.cuda.amp.GradScaler(init_scale=_Scaler.first, growth_interval=1000))


class StandIn(Cpu):
    def __init__(self, **kw: Any) -> None:
        self.device = stand_in.StandIn(**kw)

    def meanwhile(self) -> ContextManager[Any]:
        return self.device.instead_of_host()

    def in_order(self) -> ContextManager[Any]:
        return self.device.in_order()

    def late(self, t: torch.Tensor) -> None:
        self.device.late(t)

    def synchronize(self) -> None:
        self.device.compute.synchronize()

    def register(self, ddp: Any, client: Any, **kw: Any) -> Any:
        """With gradients that come late."""
        original = ddp.register_comm_hook

        def late(state: Any, hook: Any) -> None:
            def run(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
                self.late(bucket.buffer())
                return hook(state, bucket)
            original(state, run)
        ddp.register_comm_hook = late
        try:
            return register(ddp, client=client, **kw)
        finally:
            del ddp.register_comm_hook


class _Scaler:
    """What GradScaler does, where torch has none (1.13 on the CPU)."""

    first = 2.0 ** 10

    def __init__(self) -> None:
        self.value = self.first

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        return loss * self.value

    def step(self, optimiser: Any) -> None:
        params = [p for g in optimiser.param_groups for p in g["params"] if p.grad is not None]
        infinite = any(not bool(torch.isfinite(p.grad).all()) for p in params)
        self.value *= 0.5 if infinite else 1.0
        if getattr(optimiser, "_step_supports_amp_scaling", False):
            optimiser.grad_scale, optimiser.found_inf = torch.tensor([self.value * (2 if infinite else 1)]), torch.tensor(float(infinite))
            optimiser.step()
            del optimiser.grad_scale, optimiser.found_inf
            return
        for p in params:
            p.grad.mul_(1 / (self.value * (2 if infinite else 1)))
        if not infinite:
            optimiser.step()


class _Of:
    """torch's, with update() in step()."""

    def __init__(self, scaler: Any) -> None:
        self._scaler = scaler

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        return self._scaler.scale(loss)

    def step(self, optimiser: Any) -> None:
        self._scaler.step(optimiser)
        self._scaler.update()


class Given(torch.nn.Module):
    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.all = torch.nn.ParameterList(torch.nn.Parameter(torch.full((n,), 0.5, dtype=dtype)) for n in SIZES)

    def forward(self, *grads: torch.Tensor) -> torch.Tensor:
        return sum((p * g).sum().float() for p, g in zip(self.all, grads))


def _gradients(place: Cpu, at: int, dtype: torch.dtype = torch.float32, infinite: bool = False) -> List[torch.Tensor]:
    g = torch.Generator().manual_seed(1000 * at + dist.get_rank())
    made = [(torch.randn(n, generator=g) * 10.0 ** torch.randint(-6, 6, (n,), generator=g)).to(dtype) for n in SIZES]
    if infinite:
        made[3][17] = float("inf")
    return [t.to(place.where) for t in made]


class _Digest:
    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, tensors: Any) -> None:
        for t in tensors:
            self._hash.update(t.detach().float().cpu().contiguous().view(torch.int32).numpy().tobytes())

    def text(self) -> str:
        return self._hash.hexdigest()[:32]


def _hook(place: Cpu, client: Any, *, dtype: torch.dtype = torch.float32, passes: int = 1, scaled: bool = False, bucket_mb: float = 0.05,
          view: bool = False, **kw: Any) -> str:
    # Gloo of torch 1.13 cannot broadcast bf16; these parameters are the same everywhere
    with unittest.mock.patch("torch.nn.parallel.distributed._sync_module_states", lambda *args, **kwargs: None):
        ddp = DistributedDataParallel(Given(dtype).to(place.where), bucket_cap_mb=bucket_mb, gradient_as_bucket_view=view)
    hook = place.register(ddp, client, **kw)
    scaler, found = place.scaler() if scaled else None, _Digest()
    optimiser = torch.optim.SGD(ddp.parameters(), lr=0.0)
    for r in range(STEPS):
        optimiser.zero_grad()
        hook.samples = 1 + r + dist.get_rank()
        for k in range(passes):
            with ddp.no_sync() if k < passes - 1 else contextlib.nullcontext():
                infinite = scaled and r == 2 and dist.get_rank() == dist.get_world_size() - 1
                loss = ddp(*_gradients(place, 10 * r + k, dtype, infinite))
                (loss if scaler is None else scaler.scale(loss)).backward()
        if scaler is not None:
            scaler.step(optimiser)
        if not (scaled and r == 2):  # inf times 0 has any bits
            found.add(p.grad for p in ddp.parameters())
    hook.close()
    return found.text()


def _step(place: Cpu, client: Any, kind: str, *, scaled: bool = False, **kw: Any) -> str:
    module = Given().to(place.where)
    optimiser = getattr(_kinds, kind)(module.parameters(), lr=0.01, client=client, **kw)
    scaler, found = place.scaler() if scaled else None, _Digest()
    with place.in_order():
        for r in range(ON_BOX):
            optimiser.zero_grad()
            infinite = scaled and r == 2 and dist.get_rank() == dist.get_world_size() - 1
            loss = module(*_gradients(place, r, infinite=infinite))
            (loss if scaler is None else scaler.scale(loss)).backward()
            for p in module.parameters():
                place.late(p.grad)
            optimiser.step() if scaler is None else scaler.step(optimiser)
            place.synchronize()
            found.add(module.parameters())
        found.add(t for _, values in sorted(optimiser.state_dict()["state"].items()) for _, t in sorted(values.items()) if torch.is_tensor(t))
    skipped = optimiser.skipped
    optimiser.close()
    if scaled and skipped != 1:
        raise AssertionError(f"{skipped} steps were left out, and one rank had inf in one")
    return found.text()


def _sums(place: Cpu, client: Any) -> str:
    found = _Digest()
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        x = [t.clamp(-9, 9).to(dtype) for t in _gradients(place, 77)]
        for t in x:
            place.late(t)
        all_reduce(x, "mean", client=client)
        found.add(x)
    return found.text()


Check = Callable[[Cpu, Any], str]

CHECKS: Dict[str, Check] = {
    "hook, fp32": lambda p, c: _hook(p, c),
    "hook, fp32, all in one bucket": lambda p, c: _hook(p, c, bucket_mb=25),
    "hook, gradient_as_bucket_view": lambda p, c: _hook(p, c, view=True),
    "hook, no_sync": lambda p, c: _hook(p, c, passes=2),
    "hook, weighted_mean": lambda p, c: _hook(p, c, op="weighted_mean"),
    "hook, compress='bf16'": lambda p, c: _hook(p, c, compress="bf16"),
    "hook, compress='fp16'": lambda p, c: _hook(p, c, compress="fp16"),
    "hook, a bf16 model": lambda p, c: _hook(p, c, dtype=torch.bfloat16),
    "hook, GradScaler, inf on one rank": lambda p, c: _hook(p, c, scaled=True),
    "SGD": lambda p, c: _step(p, c, "SGD"),
    "SGD, momentum": lambda p, c: _step(p, c, "SGD", momentum=0.9, weight_decay=0.01),
    "Adam": lambda p, c: _step(p, c, "Adam"),
    "AdamW, push='bf16', pull='bf16'": lambda p, c: _step(p, c, "AdamW", push="bf16", pull="bf16"),
    "SGD, GradScaler, inf on one rank": lambda p, c: _step(p, c, "SGD", momentum=0.9, scaled=True),
    "all_reduce": _sums,
}


def verify(name: str, place: Cpu, client: Any) -> str:
    """What is wrong, or "". All ranks call it, with the same name."""
    try:
        want = CHECKS[name](Cpu(), client)
        with place.meanwhile():
            got = CHECKS[name](place, client)
        return "" if got == want else f"rank {dist.get_rank()}: other bits than with CPU tensors"
    except Exception as e:
        return f"rank {dist.get_rank()}: {type(e).__name__}: {e}"
