# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Results that would be written over each other.

The box makes one result for each declared tensor. Where two of them are one memory (tied weights by `.data =`, a parameter that is listed
twice, all_reduce([t, t])) the one that comes last would stay, and the other one's gradient count for nothing.
"""

from typing import Any, Callable, Dict, List, Sequence, Set, Tuple

import torch

from ..errors import PBoxInvalid


def _by_device(tensors: Sequence[torch.Tensor]) -> Dict[torch.device, List[Tuple[int, int, int]]]:
    """(first byte, end, number) of each, in the order of their addresses. They are dense: all bytes between are theirs."""
    found: Dict[torch.device, List[Tuple[int, int, int]]] = {}
    for i, t in enumerate(tensors):
        if t.numel() > 0 and t.device.type != "meta":
            found.setdefault(t.device, []).append((t.data_ptr(), t.data_ptr() + t.numel() * t.element_size(), i))
    return {device: sorted(spans) for device, spans in found.items()}


def overlaps(tensors: Sequence[torch.Tensor]) -> List[Tuple[int, int]]:
    """Pairs of dense tensors that have elements in common, by number; neighbours in one memory have none."""
    pairs = []
    for spans in _by_device(tensors).values():
        last, last_end = -1, 0
        for begin, end, i in spans:
            if begin < last_end:
                pairs.append((min(last, i), max(last, i)))
            if end > last_end:
                last, last_end = i, end
    return sorted(pairs)


def check(tensors: Sequence[torch.Tensor], name: Callable[[int], str], step: str) -> None:
    """Raise for results that would be written over each other; `step`: what to do then."""
    pairs = overlaps(tensors)
    if not pairs:
        return
    a, b = pairs[0]
    same = tensors[a].data_ptr() == tensors[b].data_ptr() and tensors[a].numel() == tensors[b].numel()
    more = f" (and {len(pairs) - 1} more such pairs)" if len(pairs) > 1 else ""
    raise PBoxInvalid(f"{name(b)} {'is the same memory as' if same else 'overlaps the memory of'} {name(a)}{more}: each has a result of its own, and "
                      f"the one that came last would overwrite the other. {step}")


def check_parameters(groups: Sequence[Dict[str, Any]]) -> None:
    """Raise for a parameter that an optimiser has twice. torch.optim refuses it in two groups, warns in one group, and steps it twice."""
    seen: Set[int] = set()
    for g, group in enumerate(groups):
        for i, p in enumerate(group["params"]):
            if id(p) in seen:
                raise PBoxInvalid(f"group {g} parameter {i} {tuple(p.shape)} is in this optimiser twice: torch.optim would step it twice, and the box "
                                  "has one result for each. Pass it once (model.parameters() does; else: list(dict.fromkeys(params)))")
            seen.add(id(p))
