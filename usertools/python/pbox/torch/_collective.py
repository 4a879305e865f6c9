# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Sums of any tensors, in the manner of torch.distributed.all_reduce."""

from typing import Any, List, Optional, Sequence, Tuple, Union

import torch

from .. import _buffers
from ..client import Client, Operation, Tensor
from ..errors import PBoxInvalid
from . import _ranks
from ._session import between_rounds, connect, current, plain_op


def all_reduce(tensors: Union[torch.Tensor, Sequence[torch.Tensor]], op: str = "sum", *,
               client: Optional[Client] = None, async_op: bool = False,
               timeout: Optional[float] = None) -> Optional[List[Operation]]:
    """Reduce tensors over all workers, in place.

    All workers call it with tensors of the same sizes in the same order. Tensors of the same
    sizes, dtypes and `op` use the same table again; each new combination takes memory on the
    box until the job ends. Every worker counts once, in a job with slots too; but then the bits
    depend on the number of workers.

    With an optimiser that has slots: between rounds only, where its `round_ended` is true.

    client    default: the session that register() or an optimiser opened
    async_op  return the operations (wait() for each) instead of waiting
    """
    session = connect(client=client) if client is not None else current()
    between_rounds(session.client, "all_reduce() or sync_buffers()")
    tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    by_format: dict = {}
    for i, t in enumerate(tensors):
        _buffers.check_torch(t, f"tensor {i}")
        fmt = _buffers.format_of(t)
        if fmt is None:
            raise PBoxInvalid(f"tensor {i} has dtype {t.dtype}: float32, bfloat16 or float16")
        by_format.setdefault(fmt, []).append(t)
    operations = []
    for fmt in sorted(by_format):
        part = by_format[fmt]
        key: Tuple[Any, ...] = (op, fmt, tuple(t.numel() for t in part))
        table = session.tables.get(key)
        if table is None:
            table = session.tables[key] = session.client.declare(
                [Tensor(f"all_reduce {i}", t.numel()) for i, t in enumerate(part)],
                op=plain_op(session.client, op), push=fmt, pull=fmt, timeout=timeout)
        operations.append(table.pushpull(part))
    if async_op:
        return operations
    for o in operations:
        o.wait(timeout)
    return None


def sync_buffers(module: torch.nn.Module, *, client: Optional[Client] = None) -> None:
    """Replace the floating-point buffers of a module (batch norm's running statistics) by their
    mean over the workers. Integer buffers (its count of batches) are left alone: they are equal
    on all workers that made the same number of steps."""
    floats = [b for b in module.buffers() if b.is_floating_point()]
    if not floats:
        return
    session = connect(client=client) if client is not None else current()
    _ranks.check_module(module, session.client.workers, session.ranks, session.client.job)
    with torch.no_grad():
        dense = [b.detach().contiguous() for b in floats]
        all_reduce(dense, "mean", client=client)
        for b, d in zip(floats, dense):
            if d.data_ptr() != b.data_ptr():
                b.copy_(d)
