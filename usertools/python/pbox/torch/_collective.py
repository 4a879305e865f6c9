# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Sums of any tensors, in the manner of torch.distributed.all_reduce."""

import hashlib
from typing import Any, List, Optional, Sequence, Tuple, Union

import torch

from .. import _buffers
from ..client import Client, Operation, Table, Tensor, check_op
from ..errors import PBoxInvalid, PBoxMemoryError, PBoxMismatch, PBoxRefused
from . import _apart, _device, _ranks
from ._model import digest
from ._session import Session, between_rounds, connect, current, keeps_pace, plain_op

_HEAD = 9  # 1, and 8 bytes of a hash: all are equal if each sum is N times mine
_HALF = 1 << 20  # a number of elements goes as two that fp32 adds up exactly

# op, format, sizes
Key = Tuple[str, str, Tuple[int, ...]]


class _Agreement:
    """Before a table is made of tensors that are new: do all workers mean the same ones? A table that they have declared
    differently would block all that follow."""

    def __init__(self, session: Session, timeout: Optional[float]) -> None:
        c = self._client = session.client
        self._table = c.declare([Tensor("agreement on all_reduce", _HEAD + 3 * c.workers)], op=plain_op(c, "sum"),
                                timeout=timeout)
        self._asked: Optional[Tuple[List[Key], torch.Tensor, torch.Tensor, Operation]] = None

    def ask(self, keys: List[Key], timeout: Optional[float]) -> None:
        c = self._client
        while True:
            if self._asked is None:
                mine = torch.zeros(_HEAD + 3 * c.workers, device="cpu")
                mine[0] = 1
                mine[1:_HEAD] = torch.tensor(list(hashlib.sha256(repr(keys).encode()).digest()[:8]), device="cpu")
                elements = sum(sum(sizes) for _, _, sizes in keys)
                mine[_HEAD:].view(c.workers, 3)[c.worker] = torch.tensor(
                    [sum(len(sizes) for _, _, sizes in keys), elements // _HALF, elements % _HALF], device="cpu")
                sums = torch.zeros_like(mine)
                self._asked = keys, mine, sums, self._table.pushpull([mine], [sums])
            asked, mine, sums, operation = self._asked
            operation.wait(timeout)  # after a deadline the next call waits for the same one
            self._asked = None
            if not torch.equal(sums[1:_HEAD], mine[1:_HEAD] * sums[0]):
                raise PBoxMismatch(self._differences(asked, sums))
            if asked == keys:
                return

    def _differences(self, keys: List[Key], sums: torch.Tensor) -> str:
        me = self._client.worker
        said = [(int(n), int(high) * _HALF + int(low)) for n, high, low in sums[_HEAD:].view(-1, 3).tolist()]
        others = [f"worker {w} has {n} tensors of {elements} elements in all"
                  for w, (n, elements) in enumerate(said) if (n, elements) not in ((0, 0), said[me])]
        if len(others) > 4:
            others[4:] = [f"and {len(others) - 4} more workers have others"]
        if not others:
            others = ["as many elements in all, but other sizes, dtypes or op"]
        mine = "; ".join(f"op '{op}' of {fmt} tensors of {', '.join(map(str, sizes[:8]))}{', ...' if len(sizes) > 8 else ''}"
                         for op, fmt, sizes in keys)
        return (f"workers reduce different tensors: {'; '.join(others)}; worker {me} (this one) has {said[me][0]} of {said[me][1]} "
                f"({mine} elements). All workers call all_reduce() with tensors of the same sizes and dtypes, in the same order. "
                "Nothing was reduced, and the next call begins as if this had not been")


def _agree(session: Session, keys: List[Key], timeout: Optional[float]) -> None:
    # with policy shrink one that comes back knows less than the others
    if session.client.workers == 1 or session.client.policy == "shrink":
        return
    agreement = session.tables.get("agreement")
    if agreement is None:
        agreement = session.tables["agreement"] = _Agreement(session, timeout)
    agreement.ask(keys, timeout)


class _Staged:
    """An operation on tensors of a device: as client.Operation."""

    def __init__(self, session: Session, device: _device.Device, table: Table, tensors: Sequence[torch.Tensor]) -> None:
        self._session, self._device, self._tensors = session, device, [t.detach().view(-1) for t in tensors]
        starts, size = [], 0
        for t in tensors:
            starts.append(size)
            size += -(-t.numel() * t.element_size() // 64) * 64
        spare = session.staging.setdefault((str(device.where), size), [])
        self._memory = spare.pop() if spare else _device.Memory(session.client, device, size)
        self._hosts = [self._memory.tensor(at, t.numel(), t.dtype) for at, t in zip(starts, tensors)]
        self._back = lambda: spare.append(self._memory)
        self._ended = False
        copied = device.event()
        for host, t in zip(self._hosts, self._tensors):
            device.copy(host, t)
        copied.record(device.current())
        copied.synchronize()
        self._operation = table.pushpull(self._hosts)

    @property
    def done(self) -> bool:
        """Has it been found complete (by wait or test)?"""
        return self._ended

    def wait(self, timeout: Optional[float] = None) -> None:
        """Return when the tensors have the result. After PBoxDeadline it may be waited for again."""
        if not self._ended:
            self._operation.wait(timeout)
            self._upload()

    def test(self) -> bool:
        """Is it complete? Raises if it failed."""
        if not self._ended and self._operation.test():
            self._upload()
        return self._ended

    def _upload(self) -> None:
        for host, t in zip(self._hosts, self._tensors):
            self._device.copy(t, host)
        self._device.current().synchronize()  # before others get the memory
        self._back()
        self._ended = True


def _declare(session: Session, op: str, wire_op: str, fmt: str, sizes: Sequence[int], timeout: Optional[float]) -> Table:
    try:
        return session.client.declare([Tensor(f"all_reduce '{op}', {i}: {n} elements", n) for i, n in enumerate(sizes)],
                                      op=wire_op, push=fmt, pull=fmt, timeout=timeout)
    except (PBoxMemoryError, PBoxRefused, PBoxInvalid) as e:
        raise type(e)(f"all_reduce() of a new combination of sizes, dtype and op, after {len(session.tables)} others: each has a table on the box until the job "
                      f"ends. Pad or flatten the tensors to a few sizes that come again, or raise 'memory' of the job ({e})") from None


def _begin(session: Session, by_format: dict, keys: List[Key], op: str, wire_op: str, device: Any, timeout: Optional[float]) -> List[Any]:
    if any(key not in session.tables for key in keys):
        _agree(session, keys, timeout)
    operations: List[Any] = []
    for key in keys:
        _, fmt, sizes = key
        table = session.tables.get(key)
        if table is None:
            table = session.tables[key] = _declare(session, op, wire_op, fmt, sizes, timeout)
        operations.append(table.pushpull(by_format[fmt]) if device is None else
                          _Staged(session, device, table, by_format[fmt]))
    return operations


def all_reduce(tensors: Union[torch.Tensor, Sequence[torch.Tensor]], op: str = "sum", *,
               client: Optional[Client] = None, async_op: bool = False,
               timeout: Optional[float] = None) -> Optional[List[Any]]:
    """Reduce tensors over all workers, in place. They are on the CPU, or all on one GPU.

    All workers call it with tensors of the same sizes in the same order; where they do not, all get
    PBoxMismatch. Tensors of the same sizes, dtypes and `op` use the same table again; each new
    combination takes memory on the box until the job ends. Every worker counts once, in a job with slots too; but then the bits
    depend on the number of workers.

    With an optimiser that has slots: between rounds only, where its `round_ended` is true.

    With Eager(bound=): workers may come to it after unequal numbers of steps. One that waits here for more than a moment gives updates of 0, so that the
    others' steps go on; they count as its steps, and its parameters are the newest ones afterwards. With async_op it does not.

    client    default: the session that register() or an optimiser opened
    async_op  return the operations (wait() for each) instead of waiting
    """
    tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    session = connect(client=client) if client is not None else current()
    return _reduce(session, tensors, [f"tensor {i}" for i in range(len(tensors))], op, async_op, timeout)


def _reduce(session: Session, tensors: List[torch.Tensor], names: Sequence[str], op: str, async_op: bool = False,
            timeout: Optional[float] = None) -> Optional[List[Any]]:
    between_rounds(session.client, "all_reduce() or sync_buffers()")
    if session.client.policy == "reassign":
        raise PBoxInvalid("all_reduce() and sync_buffers() in a job with policy='reassign', which has one table, the optimiser's: optimiser.agree(number) gives all "
                          "workers the leading worker's number; for sums open a session of another job (client=). Batch norm's buffers are each worker's own: take "
                          "layer or group norm, or evaluate and save where optimiser.leads")
    device = _device.of(tensors, lambda i: names[i])
    by_format: dict = {}
    for i, t in enumerate(tensors):
        _buffers.check_torch(t, names[i], host=False)
        fmt = _buffers.format_of(t)
        if fmt is None:
            raise PBoxInvalid(f"{names[i]} has dtype {t.dtype}: float32, bfloat16 or float16")
        by_format.setdefault(fmt, []).append(t)
    _apart.check(tensors, lambda i: names[i], "Pass each memory once; of what shall be reduced apart pass a clone()")
    check_op(op)
    wire_op = plain_op(session.client, op)
    keys: List[Key] = [(op, fmt, tuple(t.numel() for t in by_format[fmt])) for fmt in sorted(by_format)]
    if async_op:
        return _begin(session, by_format, keys, op, wire_op, device, timeout)
    with keeps_pace(session.client):
        for o in _begin(session, by_format, keys, op, wire_op, device, timeout):
            o.wait(timeout)
    return None


def _equal(session: Session, buffers: List[Tuple[str, torch.Tensor]]) -> List[bool]:
    """Which have the same bits at all workers? All find the same: a bit that all have alike is in none of the sums, or in all."""
    bits = [byte >> k & 1 for n, b in buffers for byte in digest(n, b) for k in range(8)]
    sums = torch.tensor([1, *bits], dtype=torch.float32, device="cpu")
    _reduce(session, [sums], ["digests of the buffers"], "sum")
    of_each = sums[1:].reshape(len(buffers), -1)
    return ((of_each == 0) | (of_each == sums[0])).all(1).tolist()


def sync_buffers(module: torch.nn.Module, *, client: Optional[Client] = None) -> None:
    """Replace the floating-point buffers of a module (batch norm's running statistics) by their
    mean over the workers. Those that all workers have alike stay as they are, bit for bit (masks, constants). Integer buffers (its count of
    batches) are left alone: they are equal on all workers that made the same number of steps."""
    floats = [(n, b) for n, b in module.named_buffers() if b.is_floating_point() and b.numel() > 0]
    if not floats:
        return
    session = connect(client=client) if client is not None else current()
    _ranks.check_module(module, session.client.workers, session.ranks, session.client.job)
    between_rounds(session.client, "sync_buffers()")
    with torch.no_grad():
        equal = _equal(session, floats)
        for (n, b), same in zip(floats, equal):
            if not same and _buffers.format_of(b) is None:
                raise PBoxInvalid(f"buffer '{n}' has dtype {b.dtype}, and differs between workers: float32, bfloat16 or float16 have a mean here; convert it (module.float()), "
                                  "or set it alike")
        # all of them, whichever differ: a table is made for each combination of sizes
        which = [i for i, (_, b) in enumerate(floats) if _buffers.format_of(b) is not None]
        if all(equal) or not which:
            return
        means = [floats[i][1].detach().clone(memory_format=torch.contiguous_format) for i in which]
        _reduce(session, means, [f"buffer '{floats[i][0]}'" for i in which], "mean")
        for i, mean in zip(which, means):
            if not equal[i]:
                floats[i][1].copy_(mean)
