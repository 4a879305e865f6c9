# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Parameters that are dense and not contiguous (channels_last, transposed ones).

The box sees a tensor's memory in the order in which it is stored. All workers must store it
alike, so the order is part of the name that they declare.
"""

from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch

from .. import _buffers
from ..errors import PBoxInvalid

Order = Optional[Tuple[int, ...]]


def order_of(t: torch.Tensor, what: str) -> Order:
    """Dimensions in the order of storage; None: the usual one. Raises for memory with gaps or
    overlaps."""
    if t.is_contiguous():
        return None
    # a dimension of one element has any stride: it says nothing about the order
    ones = [d for d in range(t.dim()) if t.shape[d] == 1]
    rest = [d for d in range(t.dim()) if t.shape[d] != 1]
    order = tuple(ones + sorted(rest, key=lambda d: -t.stride(d)))
    if not t.permute(order).is_contiguous():
        raise PBoxInvalid(
            f"{what} is not dense (shape {tuple(t.shape)}, strides {tuple(t.stride())}): a "
            "parameter that is part of another tensor, or repeats its elements, cannot be sent "
            "as it lies; make it of a clone()")
    return order


def dense(t: torch.Tensor, order: Order) -> torch.Tensor:
    """A view of t (or a copy, if it is stored otherwise) that is contiguous in that order."""
    view = t if order is None else t.permute(order)
    return view if view.is_contiguous() else view.contiguous()


def label(order: Order) -> str:
    return "" if order is None else "stored " + ",".join(map(str, order)) + " "


def trained(g: int, group: Dict[str, Any], left_out: List[Tuple[str, torch.nn.Parameter]],
            needs: str, host: bool = True) -> Iterator[Tuple[int, torch.nn.Parameter, Order]]:
    """Those of an optimiser's group g that want a gradient now: index, parameter, order. The others are added to left_out, with
    their names. Raises for what the box cannot take; needs: why that is float32; host: they are to be on the CPU."""
    for i, p in enumerate(group["params"]):
        name = f"group {g} parameter {i} {tuple(p.shape)}"
        if not p.requires_grad:
            left_out.append((name, p))
            continue
        _buffers.check_torch(p.data, name, dense=False, host=host)
        order = order_of(p.data, name)
        if p.dtype != torch.float32:
            raise PBoxInvalid(f"{name} has dtype {p.dtype}: {needs}")
        yield i, p, order


def check_left_out(left_out: List[Tuple[str, torch.nn.Parameter]]) -> None:
    """Raises if one of them has a gradient now."""
    for name, p in left_out:
        if p.grad is not None:
            raise PBoxInvalid(f"{name} has a gradient, and was frozen (requires_grad=False) when the optimiser was made, which left it out: make a "
                              "second optimiser for what is unfrozen later")
