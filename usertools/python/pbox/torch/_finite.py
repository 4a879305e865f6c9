# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Gradients and updates that are not finite: one of them is in everybody's parameters from then on.

A sum has a NaN or an infinity if one of its terms has, so one reading of a tensor says that all is well; only a sum that is not finite is
looked at element by element, since finite terms may overflow in it.

Reading all gradients in each step would cost a percent or two of a step that waits for its network. So a large one is looked at in part before
it is sent: a thirty-second part of it, another one in each step, and elements in between. What makes a loss or an activation NaN makes whole rows of a gradient so,
and all of that of a bias; one element alone that passes is in the parameters then, and all that comes of them in the next step is NaN.
"""

import math
from typing import Any, List, Optional, Sequence, Tuple

import torch

from ..errors import PBoxError

# what is summed in its own dtype: others overflow where their elements do not
_OWN = (torch.float32, torch.bfloat16)


WHOLE = 1 << 16  # elements of what is looked at as a whole
_PARTS, _STRIDE = 32, 1009


def parts(flat: torch.Tensor, turn: int) -> Sequence[torch.Tensor]:
    """What is looked at of a tensor in a step; `turn` counts these."""
    n = flat.numel()
    if n <= WHOLE or flat.dim() != 1:
        return (flat,)
    size = -(-n // _PARTS)
    at = turn % _PARTS * size
    return flat[at:at + size], flat[turn % _STRIDE::_STRIDE]


def sum_of(t: torch.Tensor) -> torch.Tensor:
    """A number on t's device that is finite only if all elements are."""
    return t.sum() if t.dtype in _OWN else t.sum(dtype=torch.float32)


def is_finite(t: torch.Tensor, total: Optional[float] = None) -> bool:
    """Are all elements? `total` is sum_of(t), if it is known."""
    if total is None:
        total = float(sum_of(t))
    return math.isfinite(total) or bool(torch.isfinite(t).all())


def bad(tensors: Sequence[Optional[torch.Tensor]], device: Any = None, turn: Optional[int] = None) -> List[int]:
    """Those that have a NaN or an infinity, by number. `device` has them, or the host; one wait for it. `turn`: in host memory look at parts of the large
    ones."""
    there = [(i, t.detach()) for i, t in enumerate(tensors) if t is not None and t.numel() > 0]
    if not there:
        return []
    if device is not None:
        totals = device.totals([t for _, t in there])
    elif turn is None:
        totals = [float(sum_of(t)) for _, t in there]
    else:
        totals = [float(sum_of(t)) if t.numel() <= WHOLE or not t.is_contiguous() else sum(float(sum_of(x)) for x in parts(t.reshape(-1), turn))
                  for _, t in there]
    return [i for (i, t), total in zip(there, totals) if not math.isfinite(total) and not is_finite(t, total)]


def fits(t: torch.Tensor, wire: torch.dtype) -> bool:
    """Are all elements finite in that format, in host memory?"""
    if wire == torch.float16 and t.dtype == torch.float32:
        low, high = torch.aminmax(t)
        return float(low) >= -65504.0 and float(high) <= 65504.0  # not for a NaN
    return is_finite(t)


class Flat:
    """Several gradients in one memory: small ones are looked at as a whole, as a bias has what a loss has."""

    def __init__(self, spans: Sequence[Tuple[int, int]]) -> None:
        """(first element, elements) of each."""
        self._small: List[Tuple[int, int]] = []
        for at, n in sorted(spans):
            if n > WHOLE:
                continue
            if self._small and self._small[-1][1] == at and at + n - self._small[-1][0] <= WHOLE:
                self._small[-1] = self._small[-1][0], at + n
            else:
                self._small.append((at, at + n))

    def is_fine(self, flat: torch.Tensor, turn: int, wire: Optional[torch.dtype] = None) -> bool:
        """False: look at each. `wire`: as what they are sent."""
        looked = [flat] if flat.numel() <= WHOLE else [*parts(flat, turn), *(flat[a:b] for a, b in self._small)]
        if wire == torch.float16 and flat.dtype == torch.float32:
            return all(fits(t, wire) for t in looked if t.numel() > 0)
        return math.isfinite(sum(float(sum_of(t)) for t in looked))


def names(what: Sequence[Any], which: List[int]) -> str:
    """Of some tensors of a table."""
    text = ", ".join(f"'{what[i].name}'" for i in which[:3])
    return text + (f" and {len(which) - 3} more" if len(which) > 3 else "")


def sender(client: Any, before: str = "") -> str:
    """`before`, and whom the box has found to have sent what made a result not finite; of that alone nothing, if it has found nobody."""
    try:
        found = client.not_finite()
    except PBoxError as e:
        found = f"(asked who sent it, it did not answer: {e})"
    return before + (f": the box has found that {found}" if found else "")


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
