# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A device for proofs and tests on machines that have no GPU: tensors in host memory, and the asynchrony of CUDA.

Each stream is a thread that does its work later, in order. So who reads without waiting for an event finds what was there before, and
who uses memory again too early changes what is copied. late() makes that of a computation, too: its result is NaN until the compute
stream has come to it.

    with stand_in.StandIn().instead_of_host() as device:
        ...                     # hooks and optimisers made here take parameters for tensors of the device
"""

import contextlib
import queue
import random
import threading
import time
from typing import Any, Callable, ContextManager, Iterator, List, Optional, Sequence

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import _device

_LONG = 60.0  # seconds: a wait that takes longer never ends


class Stream:
    """As torch.cuda.Stream."""

    def __init__(self, device: "StandIn", name: str) -> None:
        self._device = device
        self._work: "queue.SimpleQueue[Callable[[], Any]]" = queue.SimpleQueue()
        self._random = random.Random(name)
        threading.Thread(target=self._run, name=f"stand-in-{name}", daemon=True).start()

    def _run(self) -> None:
        while True:
            work = self._work.get()
            try:
                work()
            except BaseException as e:  # as CUDA reports the error of a kernel: later, at a wait
                self._device.failed = self._device.failed or e

    def put(self, work: Callable[[], Any], at_least: float = 0.0, at_most: float = 0.0) -> None:
        """Queue it; the seconds that it takes are between these."""
        if at_most > 0:
            self._work.put(lambda: time.sleep(at_least + self._random.random() * (at_most - at_least)))
        self._work.put(work)

    def wait_event(self, event: "Event") -> None:
        mark = event.mark
        if mark is not None and self._device.forgets != "wait_event":
            self.put(lambda: mark.wait(_LONG))

    def synchronize(self) -> None:
        event = Event(self._device)
        event.record(self)
        event.wait()


class Event:
    """As torch.cuda.Event."""

    def __init__(self, device: "StandIn") -> None:
        self._device = device
        self.mark: Optional[threading.Event] = None

    def record(self, stream: Stream) -> None:
        mark = self.mark = threading.Event()
        stream.put(mark.set)

    def wait(self) -> None:
        if self.mark is not None and not self.mark.wait(_LONG):
            raise RuntimeError("a stream of the stand-in device waits for itself")
        if self._device.failed is not None:
            raise self._device.failed

    def synchronize(self) -> None:
        if self._device.forgets != "synchronize":
            self.wait()


class Future:
    """As torch.futures.Future(devices=)."""

    def __init__(self, device: "StandIn") -> None:
        self._device = device
        self._future: torch.futures.Future = torch.futures.Future()

    def set_result(self, value: Any) -> None:
        self._device.current().put(lambda: self._future.set_result(value))

    def then(self, callback: Callable[[Any], Any]) -> torch.futures.Future:
        return self._future.then(callback)


class StandIn(_device.Device):
    """`seconds` that a computation takes at most; it is later than a copy that does not wait for it. `forgets`, to see that a
    test notices: "synchronize" (the host does not wait for events), "wait_event" (streams do not), "use" (all work goes to the
    compute stream)."""

    def __init__(self, seconds: float = 0.004, forgets: str = "", pins: bool = True) -> None:
        self.seconds, self.forgets, self.pins = seconds, forgets, pins
        self.where = torch.device("cpu")
        self.failed: Optional[BaseException] = None
        self.pinned = 0  # bytes, now
        self._sizes: dict = {}
        self._names = 0
        self._thread = threading.local()
        self.compute = self.stream()

    def instead_of_host(self) -> ContextManager[Any]:
        return _device.instead_of_host(self)

    def stream(self) -> Stream:
        self._names += 1
        return Stream(self, str(self._names))

    def _stack(self) -> List[Stream]:
        if not hasattr(self._thread, "stack"):
            self._thread.stack = [self.compute]
        return self._thread.stack

    def current(self) -> Stream:
        return self._stack()[-1]

    @contextlib.contextmanager
    def use(self, stream: Stream) -> Iterator[None]:
        self._stack().append(self.compute if self.forgets == "use" else stream)
        try:
            yield
        finally:
            self._stack().pop()

    def event(self) -> Event:
        return Event(self)

    def copy(self, to: torch.Tensor, what: torch.Tensor) -> None:
        # not the tensors themselves: views of a parameter need their gradients' graph
        to, what = to.detach(), what.detach()
        self.current().put(lambda: to.copy_(what), 0, self.seconds / 4)

    def keep(self, t: torch.Tensor, stream: Any) -> None:
        pass  # the queues hold their tensors

    def future(self) -> Future:
        return Future(self)

    def pin(self, address: int, size: int) -> bool:
        if self.pins:
            self._sizes[address] = size
            self.pinned += size
        return self.pins

    def unpin(self, address: int) -> None:
        self.pinned -= self._sizes.pop(address)

    def late(self, t: torch.Tensor) -> None:
        """What a computation has just put there comes on the compute stream, and until then it is NaN."""
        t = t.detach()
        value = t.clone()
        t.fill_(float("nan"))
        self.compute.put(lambda: t.copy_(value), self.seconds / 2, self.seconds)

    def totals(self, tensors: Sequence[torch.Tensor]) -> List[float]:
        with self.in_order():
            return super().totals(tensors)

    def in_order(self) -> ContextManager[Any]:
        """Meanwhile operations of torch that this thread makes come after what the compute stream has to do, as they would on a
        GPU."""
        return _InOrder(self.compute)


# they look at no element
_SHAPES = {"aten::" + name for name in (
    "alias", "as_strided", "detach", "empty", "empty_like", "empty_strided", "expand", "new_empty", "permute", "_reshape_alias", "select", "slice",
    "transpose", "unsqueeze", "view", "_unsafe_view")}


class _InOrder(TorchDispatchMode):
    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self._stream = stream

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.name not in _SHAPES:
            self._stream.synchronize()
        return func(*args, **(kwargs or {}))
