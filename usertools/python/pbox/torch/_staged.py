# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Gradient buckets on a GPU: through pinned memory to the box and back, chunk by chunk.

    compute stream     ... bucket is ready |                        ...                     | waits for the future
    down stream                            | chunk 0, 1, 2 to the host
    thread pbox-down                         waits for the copy of a chunk, and submits it: 0, 1, 2
    the wire                                   0, 1, 2
    thread pbox-up                               queues the copy back of a chunk that has come
    up stream                                    0, 1, 2 to the device | the future is completed

The client's own thread, which reports that a chunk has come, only hands that on: it neither waits for the device nor
completes a future: callbacks of torch would run in it.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Callable, Dict, Hashable, List, Optional, Sequence, Tuple

import torch

from .. import _lib, _threads
from ..client import Operation
from ..errors import PBoxClosed, PBoxInvalid
from . import _finite
from ._device import Device, Memory, bytes_of

CHUNK_BYTES = 4 << 20  # on the wire, at least, but for the last one
PIECE_ELEMENTS = 4 << 20  # of a declared tensor, at most: a larger parameter is several, which overlap with each other

Done = Callable[[Optional[BaseException]], None]


def pieces(name: str, elements: int) -> List[Tuple[str, int]]:
    """What is declared of a parameter: a large one in pieces, each of which can be in another chunk."""
    if elements <= PIECE_ELEMENTS:
        return [(name, elements)]
    return [(f"{name}[{at}:]", min(PIECE_ELEMENTS, elements - at)) for at in range(0, elements, PIECE_ELEMENTS)]


class Chunk:
    """Some neighbours in a bucket, elements first to end."""

    def __init__(self, device: Device, host: torch.Tensor, tensors: Sequence[Tuple[int, int, int]]) -> None:
        """tensors: (number in the table, first element in the bucket, elements) of each, in the order of the bucket."""
        self.first = tensors[0][1]
        self.end = tensors[-1][1] + tensors[-1][2]
        self.host = host[self.first:self.end]
        self.copied = device.event()
        self.tensors = tensors
        self.looks = _finite.Flat([(at - self.first, n) for _, at, n in tensors])
        self.n = len(tensors)
        self.io = (_lib.Io * self.n)()
        for io, (number, at, _) in zip(self.io, tensors):
            address = host.data_ptr() + at * host.element_size()
            io.tensor, io.input, io.output = number, address, address


class Staged:
    """A bucket's memory on the host, and what is sent of it at a time."""

    def __init__(self, client: Any, device: Device, buffer: torch.Tensor, wire: torch.dtype,
                 tensors: Sequence[Tuple[int, int, int]]) -> None:
        size = bytes_of(wire)
        self.memory = Memory(client, device, buffer.numel() * size)
        self.host = self.memory.tensor(0, buffer.numel(), wire)
        # gradients are converted on the device, so that fewer bytes are copied
        self.narrow = torch.empty(buffer.numel(), dtype=wire, device=device.where) if wire != buffer.dtype else None
        self.chunks: List[Chunk] = []
        mine: List[Tuple[int, int, int]] = []
        filled = 0
        for t in sorted(tensors, key=lambda t: t[1]):
            mine.append(t)
            filled += t[2] * size
            if filled >= CHUNK_BYTES:
                self.chunks.append(Chunk(device, self.host, mine))
                mine, filled = [], 0
        if mine:
            self.chunks.append(Chunk(device, self.host, mine))
        self.uploaded = device.event()
        self.used = 0


class Staging:
    """The streams, threads and memory of a hook whose gradients are on a device."""

    def __init__(self, client: Any, device: Device) -> None:
        self.client, self.device = client, device
        self._staged: Dict[Hashable, Staged] = {}
        self._passes = 0
        self.down, self.up = device.stream(), device.stream()
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="pbox-down")
        self._uploader = ThreadPoolExecutor(1, thread_name_prefix="pbox-up")
        try:  # both are there before anything is sent
            self._sender.submit(int)
            self._uploader.submit(int)
        except RuntimeError as e:
            raise _threads.no_more(e) from None

    @property
    def pinned(self) -> int:
        """Bytes."""
        return sum(s.memory.size for s in self._staged.values() if s.memory.pinned)

    def bucket(self, key: Hashable, make: Callable[[], Tuple[torch.Tensor, torch.dtype, Sequence[Tuple[int, int, int]]]]) -> Staged:
        """The memory of the bucket with this key, or new one: make() returns what Staged() takes."""
        staged = self._staged.get(key)
        if staged is None:
            staged = self._staged[key] = Staged(self.client, self.device, *make())
            if staged.narrow is not None:
                for stream in (self.down, self.up):
                    self.device.keep(staged.narrow, stream)
        staged.used = self._passes
        return staged

    def pass_ends(self) -> None:
        """The last bucket has begun. Those that the last two passes had not are no more: DDP has divided the parameters in another
        way after its first one."""
        self._passes += 1
        for key in [k for k, s in self._staged.items() if s.used < self._passes - 2]:
            self._staged.pop(key).uploaded.synchronize()

    def start(self, staged: Staged, buffer: torch.Tensor, submit: Callable[[Chunk], Operation], done: Done) -> None:
        """Queue everything for a bucket, in the order of these calls; does not wait. submit(chunk) starts its operation, on the thread
        pbox-down. done(error or None) is called once; where all is well from the thread pbox-up, with the up stream as
        its current one."""
        device, flat = self.device, buffer.detach().view(-1)
        ready = device.event()
        ready.record(device.current())
        self.down.wait_event(ready)
        self.down.wait_event(staged.uploaded)  # the memory still has the pass before
        with device.use(self.down):
            for c in staged.chunks:
                source = flat[c.first:c.end]
                if staged.narrow is not None:
                    to = staged.narrow[c.first:c.end]
                    device.copy(to, source)
                    source = to
                device.copy(c.host, source)
                c.copied.record(self.down)
        device.keep(buffer, self.down)
        device.keep(buffer, self.up)
        self._sender.submit(self._send, staged, submit, _Return(self, staged, flat, done))

    def _send(self, staged: Staged, submit: Callable[[Chunk], Operation], back: "_Return") -> None:
        try:
            for c in staged.chunks:
                c.copied.synchronize()
                submit(c).add_done_callback(partial(back.has_come, c))
        except BaseException as e:
            back.has_come(None, e)

    def hand_on(self, fn: Callable[..., None], *args: Any) -> None:
        self._uploader.submit(fn, *args)

    def close(self) -> None:
        """After this no pass begins. What is under way ends by itself."""
        self._sender.shutdown(wait=False)
        self._uploader.shutdown(wait=False)
        try:
            self.down.synchronize()
            self.up.synchronize()
        finally:
            self._staged.clear()


class _Return:
    """The way back of one bucket."""

    def __init__(self, staging: Staging, staged: Staged, flat: torch.Tensor, done: Done) -> None:
        self._staging, self._staged, self._flat, self._done = staging, staged, flat, done
        self._left, self._ended = len(staged.chunks), False

    def has_come(self, chunk: Optional[Chunk], err: Optional[BaseException]) -> None:
        """From the client's thread."""
        try:
            self._staging.hand_on(self._up, chunk, err)
        except RuntimeError:  # it takes nothing more
            self._end(PBoxClosed("the hook was closed before a gradient bucket had come back"))

    def _up(self, chunk: Optional[Chunk], err: Optional[BaseException]) -> None:
        device, staged, stream = self._staging.device, self._staged, self._staging.up
        if err is not None or chunk is None:
            self._end(err)
            return
        try:
            with device.use(stream):
                target = self._flat[chunk.first:chunk.end]
                if staged.narrow is not None:
                    device.copy(staged.narrow[chunk.first:chunk.end], chunk.host)
                    device.copy(target, staged.narrow[chunk.first:chunk.end])
                else:
                    device.copy(target, chunk.host)
                self._left -= 1
                if self._left == 0:
                    staged.uploaded.record(stream)
                    self._end(None)
        except BaseException as e:
            self._end(e)

    def _end(self, err: Optional[BaseException]) -> None:
        if not self._ended:
            self._ended = True
            self._done(err)


def check_device(buffer: torch.Tensor, device: Device) -> None:
    if buffer.device != device.where:
        raise PBoxInvalid(f"a gradient bucket is on {buffer.device}, and the parameters were on {device.where} when pbox.torch.register was "
                          "called: move the model first, then register it")
