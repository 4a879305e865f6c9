# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Gradients and updates that are not finite: one of them is in everybody's parameters from then on.

A sum has a NaN or an infinity if one of its terms has, so one reading of a tensor says that all is well; only a sum that is not finite is
looked at element by element, since finite terms may overflow in it.
"""

import math
from typing import Any, List, Optional, Sequence

import torch

# what is summed in its own dtype: others overflow where their elements do not
_OWN = (torch.float32, torch.bfloat16)


def sum_of(t: torch.Tensor) -> torch.Tensor:
    """A number on t's device that is finite only if all elements are."""
    return t.sum() if t.dtype in _OWN else t.sum(dtype=torch.float32)


def is_finite(t: torch.Tensor, total: Optional[float] = None) -> bool:
    """Are all elements? `total` is sum_of(t), if it is known."""
    if total is None:
        total = float(sum_of(t))
    return math.isfinite(total) or bool(torch.isfinite(t).all())


def bad(tensors: Sequence[Optional[torch.Tensor]], device: Any = None) -> List[int]:
    """Those that have a NaN or an infinity, by number. `device` has them, or the host; one wait for it."""
    there = [(i, t.detach()) for i, t in enumerate(tensors) if t is not None and t.numel() > 0]
    if not there:
        return []
    totals = [float(sum_of(t)) for _, t in there] if device is None else device.totals([t for _, t in there])
    return [i for (i, t), total in zip(there, totals) if not math.isfinite(total) and not is_finite(t, total)]


def fits(t: torch.Tensor, wire: torch.dtype) -> bool:
    """Are all elements finite in that format, in host memory?"""
    if wire == torch.float16 and t.dtype == torch.float32:
        low, high = torch.aminmax(t)
        return float(low) >= -65504.0 and float(high) <= 65504.0  # not for a NaN
    return is_finite(t)


def names(what: Sequence[Any], which: List[int]) -> str:
    """Of some tensors of a table."""
    text = ", ".join(f"'{what[i].name}'" for i in which[:3])
    return text + (f" and {len(which) - 3} more" if len(which) > 3 else "")


class Told:
    """Of what comes again and again: the first time, then ever more rarely. GradScaler meets an infinity now and then."""

    def __init__(self) -> None:
        self._times, self._next = 0, 1

    def due(self) -> int:
        """How many times so far, or 0: not now."""
        self._times += 1
        if self._times < self._next:
            return 0
        self._next *= 4
        return self._times
