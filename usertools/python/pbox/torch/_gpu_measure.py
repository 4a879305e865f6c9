# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The measurements of pbox.gpucheck: a step of training with torch's DistributedDataParallel over Gloo and with the hook, and how much
of the copies between device and host it hides."""

import statistics
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from . import _staged
from ._gpu_checks import Cpu
from ._gpu_models import MODELS

WARM_UP = 3


class Step:
    """One way to train a model: call it for a step."""

    def __init__(self, place: Cpu, model: str, full: bool) -> None:
        make, batch = MODELS[model][1 if full else 2]
        torch.manual_seed(1)
        self.place = place
        module = make().to(place.where)
        self._batch = [t.to(place.where) for t in batch(torch.Generator().manual_seed(100 + dist.get_rank()))]
        if full and model == "resnet50":
            module = module.to(memory_format=torch.channels_last)
            self._batch[0] = self._batch[0].to(memory_format=torch.channels_last)
        self.ddp = DistributedDataParallel(module, broadcast_buffers=False)
        self._optimiser = torch.optim.SGD(module.parameters(), lr=0.001, momentum=0.9)
        self.alone = False

    def __call__(self) -> None:
        self._optimiser.zero_grad(set_to_none=True)
        if self.alone:
            with self.ddp.no_sync():
                self._backward()
        else:
            self._backward()
        self._optimiser.step()

    def _backward(self) -> None:
        with torch.autocast(self.place.where.type, torch.bfloat16, enabled=self.place.where.type == "cuda"):
            loss = self.ddp(*self._batch)
        loss.backward()


def milliseconds(step: Callable[[], Any], place: Cpu, steps: int) -> float:
    """Of a step: the median of those of the slowest rank."""
    took = []
    for i in range(WARM_UP + steps):
        place.synchronize()
        dist.barrier()
        begin = time.monotonic()
        step()
        place.synchronize()
        if i >= WARM_UP:
            took.append(time.monotonic() - begin)
    slowest = torch.tensor(took, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return 1000 * statistics.median(slowest.tolist())


class _WithoutCopies:
    """A device that makes no copies between itself and the host: a step without them, whose results are those of another one."""

    def __init__(self, device: Any, hosts: List[torch.Tensor]) -> None:
        self._device = device
        self._hosts = [(h.data_ptr(), h.data_ptr() + h.numel() * h.element_size()) for h in hosts]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def copy(self, to: torch.Tensor, what: torch.Tensor) -> None:
        if not any(a <= t.data_ptr() < b for t in (to, what) for a, b in self._hosts):
            self._device.copy(to, what)


def _copies(staging: _staged.Staging, place: Cpu, steps: int) -> float:
    """Milliseconds that a pass's copies take, all ranks at once, each direction after the other."""
    device, staged = staging.device, list(staging._staged.values())
    scratch = [torch.empty(s.host.numel(), dtype=s.host.dtype, device=place.where) for s in staged]

    def once() -> None:
        for stream, down in ((staging.down, True), (staging.up, False)):
            with device.use(stream):
                for s, t in zip(staged, scratch):
                    for c in s.chunks:
                        pair = (c.host, t[c.first:c.end])
                        device.copy(*(pair if down else pair[::-1]))
            stream.synchronize()
    return milliseconds(once, place, steps)


def _with_hook(place: Cpu, client: Any, model: str, full: bool, compress: Optional[str], steps: int) -> Dict[str, float]:
    """Keys: step, copies (both in ms), hidden (a share of the copies), pinned (bytes)."""
    with place.meanwhile():
        step = Step(place, model, full)
        hook = place.register(step.ddp, client, compress=compress)
    found = {"step": milliseconds(step, place, steps)}
    staging = hook._staging
    assert staging is not None, "not on a device"
    found["pinned"] = staging.pinned
    found["copies"] = _copies(staging, place, steps)
    device = staging.device
    staging.device = _WithoutCopies(device, [s.host for s in staging._staged.values()])  # type: ignore[assignment]
    without = milliseconds(step, place, steps)
    staging.device = device
    found["hidden"] = max(0.0, min(1.0, 1 - max(0.0, found["step"] - without) / found["copies"]))
    hook.close()
    return found


def _gloo(place: Cpu, model: str, full: bool, compress: Optional[str], steps: int) -> Tuple[Optional[float], float]:
    """Milliseconds of a step over Gloo (None: it cannot), and of one without communication."""
    step = Step(place, model, full)
    took: Optional[float] = None
    try:
        if compress == "bf16":
            step.ddp.register_comm_hook(None, default_hooks.bf16_compress_hook)
        took = milliseconds(step, place, steps)
    except (RuntimeError, TypeError):  # no NCCL, or a Gloo without bf16: the same on all ranks
        step = Step(place, model, full)
    step.alone = True
    return took, milliseconds(step, place, steps)


def measure(model: str, place: Cpu, client: Any, full: bool, steps: int) -> List[str]:
    """All ranks call it. Lines for a reader."""
    lines = [f"{MODELS[model][0] if full else 'a small model of the kind of ' + model}, {dist.get_world_size()} ranks, ms of a step:"]
    for compress in (None, "bf16"):
        gloo, alone = _gloo(place, model, full, compress, steps)
        mine = _with_hook(place, client, model, full, compress, steps)
        ratio = "" if gloo is None else f" ({mine['step'] / gloo:.2f} of it)"
        lines.append(f"  {compress or 'fp32'}: computing alone {alone:.1f}, DistributedDataParallel over Gloo "
                     f"{'cannot' if gloo is None else f'{gloo:.1f}'}, PBox {mine['step']:.1f}{ratio}; copies {mine['copies']:.1f}, of which "
                     f"{100 * mine['hidden']:.0f} % hidden; {mine['pinned'] / 1e6:.1f} MB pinned in a rank")
    return lines
