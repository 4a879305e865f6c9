# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Slots that are computed while parameters are on their way (ahead=).

Early slots are a function of the slot alone: s with s mod 4 < 4 f. In round r they are computed on the parameters of version r - 2, all
others on those of r - 1 (in the first round on the initial ones, all of them). So a worker that has pushed its part of round r goes on with
its early slots of round r + 1 at once, on the parameters that it has, and needs the result of round r only then. The bits depend on f, and on neither
plan nor number of workers nor whether anything overlaps.

Slots come in another order than that of the tree then, and their owners may change while they are computed: sums are kept by the
aligned interval that they are of, and what a new owner's nodes cut is computed again.
"""

import time
from typing import Dict, List, Optional, Sequence, Set, Tuple

import torch

from .. import _checks
from ..errors import PBoxInvalid
from ._tree import Sums, merge

QUARTERS = 4

Interval = Tuple[int, int]  # level and number: slots number << level to ((number + 1) << level) - 1, cut to the job's


def quarters_of(ahead: float) -> int:
    """Of four slots so many are early."""
    quarters = round(_checks.real(ahead, "ahead") * QUARTERS)
    if isinstance(ahead, bool) or not 1 <= quarters <= QUARTERS or quarters != ahead * QUARTERS:
        raise PBoxInvalid(f"ahead is {ahead}: it is the share of slots that are computed on the parameters of a round before, 0.25, 0.5, 0.75 or 1")
    return quarters


def early_first(slots: Sequence[int], quarters: int) -> Tuple[int, ...]:
    return tuple(sorted(slots, key=lambda s: (s % QUARTERS >= quarters, s)))


class LooseTree:
    """As Tree, for slots in any order."""

    def __init__(self, nodes: Sequence[Tuple[int, int]], total: int) -> None:
        self.nodes, self._total = tuple(nodes), total
        self._whole: Dict[Interval, int] = {}  # the intervals that are nodes
        for k, (first, n) in enumerate(self.nodes):
            level = 0
            while not self._is(level, first >> level, first, n):
                level += 1
            self._whole[level, first >> level] = k
        self.clear()

    def _is(self, level: int, number: int, first: int, n: int) -> bool:
        return number << level == first and min((number + 1) << level, self._total) == first + n

    def clear(self) -> None:
        self._part: Dict[Interval, Tuple[Sums, int]] = {}

    @property
    def complete(self) -> bool:
        return all(x in self._part for x in self._whole)

    @property
    def done(self) -> List[Sums]:
        return [self._part[x][0] for x in self._in_order()]

    @property
    def samples(self) -> List[int]:
        return [self._part[x][1] for x in self._in_order()]

    def _in_order(self) -> List[Interval]:
        return sorted((x for x in self._whole if x in self._part), key=lambda x: self._whole[x])

    @property
    def samples_in_node(self) -> int:
        return sum(samples for _, samples in self._part.values())

    def slots(self) -> Set[int]:
        """Those whose gradients are here."""
        return {s for level, number in self._part for s in range(number << level, min((number + 1) << level, self._total))}

    def add(self, slot: int, grads: Sums, samples: int = 1) -> None:
        """The gradients become this object's: they are changed."""
        self._put((0, slot), (grads, samples))

    def _put(self, at: Interval, part: Tuple[Sums, int]) -> None:
        self._part[at] = part
        while at not in self._whole:
            level, number = at
            other, up = (level, number ^ 1), (level + 1, number >> 1)
            if other[1] << level >= self._total:  # there is no right half
                self._part[up] = self._part.pop(at)
            elif other in self._part:
                left, right = sorted((at, other))
                self._part[up] = merge(self._part.pop(left), self._part.pop(right))
            else:
                return
            at = up

    def take_over(self, other: "LooseTree") -> Set[int]:
        """What other has of these nodes, without what they cut. Which slots are done then?"""
        for (level, number), part in other._part.items():
            first, end = number << level, min((number + 1) << level, self._total)
            if any(a <= first and end <= a + n for a, n in self.nodes):
                # the end of the job cuts several levels to the same slots: begin with the lowest, as a node may be any of them
                while level > 0 and min(((first >> (level - 1)) + 1) << (level - 1), self._total) == end:
                    level -= 1
                self._put((level, first >> level), part)
        other.clear()
        return self.slots()


class Stale:
    """The parameters of the versions that the slots of a worker need, one of which the model shows."""

    def __init__(self, quarters: int, params: Sequence[torch.Tensor]) -> None:
        self.quarters = quarters
        self._params = params
        self.newest = 0  # version
        self._held: Dict[int, List[torch.Tensor]] = {}
        self._spare: List[List[torch.Tensor]] = []
        self.shown = 0
        self.waits = False  # the round is pushed, and its result is not here: early slots of the next one are computed
        self.ended = False  # has the last step() ended a round?
        self.next: Optional[LooseTree] = None  # of these early slots
        self.busy = self.stalled = 0.0  # seconds: the slots of the round in progress, and waiting for the result of the one before
        self._next_busy = 0.0
        self._since = time.monotonic()

    def begins(self) -> None:
        """The parameters are those that all workers begin with."""
        self._held[0] = [p.data.clone() for p in self._params]

    def is_early(self, slot: int) -> bool:
        return slot % QUARTERS < self.quarters

    def order(self, slots: Sequence[int]) -> Tuple[int, ...]:
        return early_first(slots, self.quarters)

    def show(self, version: int) -> bool:
        """Put them into the model; False: they are there."""
        if version == self.shown:
            return False
        with torch.no_grad():
            for p, value in zip(self._params, self._held[version]):
                p.data.copy_(value)
        self.shown = version
        return True

    def version_for(self, slot: int) -> int:
        """Of the round that is computed, which is the next one while the result of a round is not here."""
        if self.waits:
            return self.newest
        return max(0, self.newest - self.is_early(slot))

    def buffers(self) -> List[torch.Tensor]:
        """Where the next result goes."""
        if not self._spare:
            self._spare.append([torch.empty_like(p.data) for p in self._params])
        return self._spare[-1]

    def result_is_here(self) -> None:
        """In the buffers: the newest version, and the model shows it. Slots of the round in progress need it and the one before."""
        self.newest += 1
        self._held[self.newest] = self._spare.pop()
        for old in [v for v in self._held if v < self.newest - 1]:
            self._spare.append(self._held.pop(old))
        self.waits = False
        self.show(self.newest)

    def differs(self, i: int, p: torch.Tensor) -> bool:
        """Has the model other bits than what it shows?"""
        return not torch.equal(self._held[self.shown][i].view(torch.int32), p.data.view(torch.int32))

    # ---- seconds

    def slot_begins(self) -> None:
        self._since = time.monotonic()

    def slot_ends(self) -> None:
        spent = time.monotonic() - self._since
        if self.waits:
            self._next_busy += spent
        else:
            self.busy += spent

    def round_begins(self) -> None:
        self.busy, self._next_busy = self._next_busy, 0.0
