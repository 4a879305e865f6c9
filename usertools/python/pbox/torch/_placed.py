# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Parameters of an optimiser on the box that are on a GPU, and stay there: gradients go through pinned memory to the box, and
what the box makes of the parameters comes back the same way.

A step is one operation for each chunk of parameters. So a chunk is on its way to the host while another is on the wire, and one that
has come goes to the device while the next one is awaited.
"""

import time
from typing import List, Optional, Sequence

import torch

from .. import _buffers, _lib
from ..client import Client, Operation, Table
from . import _layout, _staged
from ._device import Device, Memory, bytes_of


class _Chunk:
    def __init__(self, device: Device, which: Sequence[int], inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        self.which, self.n = list(which), len(which)
        self.copied = device.event()
        self.io = (_lib.Io * self.n)()
        for io, i in zip(self.io, which):
            io.tensor = i
            io.input = inputs[i].data_ptr() or _buffers.ADDRESS_OF_NOTHING
            io.output = outputs[i].data_ptr() or _buffers.ADDRESS_OF_NOTHING


class Placed:
    """One for an optimiser. All calls come from the thread that makes the steps."""

    def __init__(self, client: Client, device: Device, params: List[torch.nn.Parameter], orders: List[_layout.Order],
                 push: torch.dtype, pull: torch.dtype, slots: bool) -> None:
        self.device, self._params, self._orders = device, params, orders
        self._down, self._up = device.stream(), device.stream()
        self._ready, self._downloaded, self._uploaded = device.event(), device.event(), device.event()
        self._push = push
        # one memory for both where they have the same format: a result comes when its gradient was sent
        sizes = [p.numel() for p in params]
        self.outputs = self._memory(client, sizes, pull)
        self._nodes: List[List[torch.Tensor]] = []  # with slots: what each node brings
        self._inputs = self.outputs if pull == push or slots else self._memory(client, sizes, push)
        self.chunks: List[_Chunk] = []
        mine: List[int] = []
        for i in range(len(params)):
            mine.append(i)
            if sum(sizes[k] for k in mine) * bytes_of(push) >= _staged.CHUNK_BYTES or i == len(params) - 1:
                self.chunks.append(_Chunk(device, mine, self._inputs, self.outputs))
                mine = []

    def _memory(self, client: Client, sizes: Sequence[int], dtype: torch.dtype) -> List[torch.Tensor]:
        size, starts = bytes_of(dtype), []
        end = 0
        for n in sizes:
            starts.append(end)
            end += -(-n * size // 64) * 64
        memory = Memory(client, self.device, end)
        return [memory.tensor(at, n, dtype) for at, n in zip(starts, sizes)]

    def _flat(self, i: int, t: torch.Tensor) -> torch.Tensor:
        return _layout.dense(t, self._orders[i]).reshape(-1)

    def values(self) -> List[torch.Tensor]:
        """Copies of the parameters, in host memory, as the box sees them."""
        return [self._flat(i, p.data.cpu()) for i, p in enumerate(self._params)]

    def pull(self, table: Table) -> None:
        """Wait for the parameters that the box has."""
        table.pull(self.outputs).wait()
        self.upload_begins()
        self.upload(range(len(self._params)))
        self.upload_ends()

    def download(self, grads: Sequence[Optional[torch.Tensor]]) -> None:
        """Queue the copies of the gradients, which are as the box sees them. None: zeros."""
        if None in grads:
            self._downloaded.synchronize()
            self._uploaded.synchronize()
            for host, g in zip(self._inputs, grads):
                if g is None:
                    host.zero_()
        device = self.device
        flat = [None if g is None else g.detach().reshape(-1) for g in grads]
        self._ready.record(device.current())
        self._down.wait_event(self._ready)
        self._down.wait_event(self._uploaded)  # the memory still has the step before
        with device.use(self._down):
            for c in self.chunks:
                for i in c.which:
                    g = flat[i]
                    if g is not None:
                        self._queue(self._inputs[i], g)
                c.copied.record(self._down)
            self._downloaded.record(self._down)

    def download_nodes(self, client: Client, nodes: Sequence[Sequence[Optional[torch.Tensor]]]) -> List[List[torch.Tensor]]:
        """The same for the sums of each node of a worker with slots. Where they will be, after downloaded()."""
        while len(self._nodes) < len(nodes):
            self._nodes.append(self._memory(client, [p.numel() for p in self._params], self._push))
        if any(None in sums for sums in nodes):
            self._downloaded.synchronize()
        self._ready.record(self.device.current())
        self._down.wait_event(self._ready)
        with self.device.use(self._down):
            for hosts, sums in zip(self._nodes, nodes):
                for host, g in zip(hosts, sums):
                    if g is None:
                        host.zero_()
                    else:
                        self._queue(host, g.detach().reshape(-1))
            self._downloaded.record(self._down)
        return self._nodes[:len(nodes)]

    def downloaded(self) -> None:
        """Wait for the copies of download() or download_nodes()."""
        self._downloaded.synchronize()

    def _queue(self, host: torch.Tensor, g: torch.Tensor) -> None:
        """A copy to the host, on the current stream, which is not the one that has computed g."""
        self.device.keep(g, self._down)
        if g.dtype != self._push:
            narrow = torch.empty(g.numel(), dtype=self._push, device=self.device.where)
            self.device.copy(narrow, g)
            g = narrow
        self.device.copy(host, g)

    def whole(self, operation: Operation) -> "_Whole":
        """One operation of all parameters, whose results are in `outputs`."""
        self.upload_begins()
        return _Whole(self, operation)

    def submit(self, table: Table, weight: int) -> "_Step":
        return _Step(self, table, weight)

    def upload(self, which: Sequence[int]) -> None:
        """Queue the copies of these results to the parameters."""
        device = self.device
        with device.use(self._up):
            for i in which:
                p = self._params[i].data
                target, host = _layout.dense(p, self._orders[i]), self.outputs[i]
                if host.dtype != p.dtype:
                    wide = torch.empty(host.numel(), dtype=host.dtype, device=device.where)
                    device.copy(wide, host)
                    host = wide
                device.copy(target, host.view(target.shape))

    def upload_begins(self) -> None:
        """What uses the parameters on the current stream comes before."""
        self._ready.record(self.device.current())
        self._up.wait_event(self._ready)

    def upload_ends(self) -> None:
        """What uses the parameters on the current stream comes after."""
        self._uploaded.record(self._up)
        self.device.current().wait_event(self._uploaded)


class _Whole:
    def __init__(self, placed: Placed, operation: Operation) -> None:
        self._placed, self._operation = placed, operation

    def wait(self, timeout: Optional[float] = None) -> None:
        self._operation.wait(timeout)
        self._placed.upload(range(len(self._placed.outputs)))
        self._placed.upload_ends()


class _Step:
    """The operations of one step, as one."""

    def __init__(self, placed: Placed, table: Table, weight: int) -> None:
        self._placed = placed
        self._operations: List[Operation] = []
        for c in placed.chunks:
            c.copied.synchronize()
            self._operations.append(table.submit_io(_lib.PUSHPULL, c.io, c.n, placed, weight=weight))
        self._at = 0
        placed.upload_begins()

    def wait(self, timeout: Optional[float] = None) -> None:
        end = None if timeout is None else time.monotonic() + timeout
        while self._at < len(self._operations):
            self._operations[self._at].wait(None if end is None else max(0.001, end - time.monotonic()))
            self._placed.upload(self._placed.chunks[self._at].which)
            self._at += 1
        self._placed.upload_ends()
