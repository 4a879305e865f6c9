# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Tensors that live on a GPU: what the rest of the package needs of one.

Words as in CUDA. A stream is a queue of work on the device; streams run beside each other unless one waits for an event of the
other. Each thread has a current stream, and torch's operations go there. A copy is queued and not done: the host must wait
for an event after it before it reads what was copied, or writes where it is copied from.

Cuda is torch.cuda. stand_in.StandIn does the same with tensors in host memory, for tests.
"""

import contextlib
import ctypes as ct
import logging
from typing import Any, Callable, ContextManager, Iterable, Iterator, List, Optional, Sequence

import torch

from ..errors import PBoxInvalid
from . import _finite

_log = logging.getLogger("pbox")


def _totals(tensors: Sequence[torch.Tensor]) -> List[float]:
    return [float(t) for t in torch.stack([_finite.sum_of(t) for t in tensors]).tolist()]


class Device:
    """The interface. A stream has wait_event(event) and synchronize(); an event has record(stream) and synchronize(). An event
    that was never recorded is waited for by nobody. Any thread may call anything."""

    where = torch.device("cpu")  # of its tensors

    def stream(self) -> Any:
        """A new stream."""
        raise NotImplementedError

    def current(self) -> Any:
        """The stream to which the operations of this thread go."""
        raise NotImplementedError

    def use(self, stream: Any) -> ContextManager[Any]:
        """The current stream of this thread, for a while."""
        raise NotImplementedError

    def event(self) -> Any:
        raise NotImplementedError

    def copy(self, to: torch.Tensor, what: torch.Tensor) -> None:
        """Queue to.copy_(what) on the current stream. Between host and device both have the same dtype."""
        raise NotImplementedError

    def keep(self, t: torch.Tensor, stream: Any) -> None:
        """The stream uses this tensor, which was made on another one: its memory is not given to others before."""
        raise NotImplementedError

    def totals(self, tensors: Sequence[torch.Tensor]) -> List[float]:
        """_finite.sum_of() each, on the current stream. Waits for it."""
        return _totals(tensors)

    def future(self) -> Any:
        """A torch.futures.Future of tensors here: who waits for it has its current stream wait for the one on which
        set_result() was called."""
        raise NotImplementedError

    def pin(self, address: int, size: int) -> bool:
        """Pin whole pages, so that copies to and from them are asynchronous. False: it is not possible, and copies work
        all the same."""
        raise NotImplementedError

    def unpin(self, address: int) -> None:
        raise NotImplementedError


class Cuda(Device):
    """One GPU."""

    def __init__(self, where: torch.device) -> None:
        self.where = where

    def stream(self) -> Any:
        return torch.cuda.Stream(self.where)

    def current(self) -> Any:
        return torch.cuda.current_stream(self.where)

    def use(self, stream: Any) -> ContextManager[Any]:
        return torch.cuda.stream(stream)

    def event(self) -> Any:
        # a wait gives the CPU away: ranks share the host's
        return torch.cuda.Event(blocking=True)

    def copy(self, to: torch.Tensor, what: torch.Tensor) -> None:
        to.copy_(what, non_blocking=True)

    def keep(self, t: torch.Tensor, stream: Any) -> None:
        t.record_stream(stream)

    def future(self) -> Any:
        # without devices a value on the GPU is refused when it is set, and DDP would wait forever
        return torch.futures.Future(devices=[self.where])

    def pin(self, address: int, size: int) -> bool:
        try:
            with torch.cuda.device(self.where):
                done = int(torch.cuda.cudart().cudaHostRegister(address, size, 1)) == 0  # 1: for all contexts
        except (AttributeError, RuntimeError, TypeError, ValueError):
            done = False
        if not done:
            self._forget_error()
        return done

    def _forget_error(self) -> None:
        """CUDA keeps the last error, and the next kernel of the program would report it."""
        with contextlib.suppress(RuntimeError):
            torch.zeros(1, device=self.where)

    def unpin(self, address: int) -> None:
        with contextlib.suppress(Exception):  # also when the interpreter ends
            torch.cuda.cudart().cudaHostUnregister(address)


_stand_in: Optional[Device] = None  # for tests: tensors in host memory count as tensors of this device


@contextlib.contextmanager
def instead_of_host(device: Device) -> Iterator[Device]:
    """For tests: what is made meanwhile of tensors in host memory treats them as tensors of this device."""
    global _stand_in
    _stand_in = device
    try:
        yield device
    finally:
        _stand_in = None


def of(tensors: Iterable[torch.Tensor], what: Callable[[int], str]) -> Optional[Device]:
    """The GPU that has them all, or None: host memory. Raises PBoxInvalid for other devices, and for several; what(i) names
    tensor i."""
    first: Optional[torch.device] = None
    for i, t in enumerate(tensors):
        if first is None:
            first = t.device
        if t.device == first and first.type in ("cpu", "cuda"):
            continue
        if t.device.type not in ("cpu", "cuda"):
            raise PBoxInvalid(f"{what(i)} is on {t.device}: PBox takes tensors of the CPU and of CUDA; copy it to the CPU first "
                              "(tensor.cpu(), model.cpu())")
        raise PBoxInvalid(f"{what(i)} is on {t.device}, and {what(0)} on {first}: take one device; with several GPUs in a host "
                          "start a worker for each")
    if first is None or first.type == "cpu":
        return _stand_in if first is not None else None
    return Cuda(first)


class Memory:
    """Host memory from which the client sends and into which it receives, pinned for a device where that is possible."""

    _warned = False

    def __init__(self, client: Any, device: Device, size: int) -> None:
        self._raw = client.memory(max(1, size))
        first = ct.c_char.from_buffer(self._raw)
        self.address, self.size = ct.addressof(first), len(self._raw)
        self._device = device
        self.pinned = device.pin(self.address, self.size)
        if not self.pinned and not Memory._warned:
            Memory._warned = True
            _log.warning("%.1f MB of host memory could not be pinned for %s: copies to and from it hold up the thread that makes them, and take "
                         "longer. Results are the same. Free memory, or raise what this process or container may lock",
                         self.size / 1e6, device.where)

    def tensor(self, at: int, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Over a part of it, from byte `at` on. It keeps the memory alive."""
        if elements == 0:
            return torch.empty(0, dtype=dtype, device="cpu")
        part = (ct.c_char * (elements * bytes_of(dtype))).from_buffer(self._raw, at)
        part.memory = self  # type: ignore[attr-defined]
        return torch.frombuffer(part, dtype=dtype)

    def __del__(self) -> None:
        if getattr(self, "pinned", False):
            self._device.unpin(self.address)


def bytes_of(dtype: torch.dtype) -> int:
    return torch.empty(0, dtype=dtype, device="cpu").element_size()
