# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Parameters without a gradient: where the box would do otherwise than torch.optim, which leaves them alone."""

from typing import List, Sequence

from ..errors import PBoxInvalid
from ._agree import Hypers
from ._trained import Trained


class Used:
    """Which parameters have had a gradient, at any worker, in a step before. Who goes on in a running job does not know, so: `begun`, all."""

    def __init__(self, params: Trained, begun: bool) -> None:
        self._params = params
        self.begun = begun
        self.had = [begun] * len(params.all)

    def load(self, had: List[bool]) -> None:
        """Of a state: those that have one."""
        self.had, self.begun = had, any(had)

    def _step_on_zeros_is_none(self, i: int, had: bool, hypers: Hypers) -> bool:
        """Is the box's step on a gradient of zeros what torch does without one: nothing?"""
        h = hypers[self._params.group_of[i]]
        if h["weight_decay"] != 0:
            return False
        if h.get("momentum") == 0:  # SGD
            return True
        # buffers that nothing has touched are zero, and stay so
        return not had and h.get("eps", 1.0) > 0

    def _first_is_late(self, i: int, hypers: Hypers) -> bool:
        """The first gradient of a parameter, in a later step than the first, counts as the first
        step in torch, but not on the box: where does that matter?"""
        h = hypers[self._params.group_of[i]]
        return h.get("momentum", 1.0) != 0 and h.get("dampening", 1.0) != 0

    def needs_look(self, has: Sequence[bool], hypers: Hypers) -> bool:
        """Must this worker, which has gradients of these, hear from the others before it pushes?"""
        for i, (now, had) in enumerate(zip(has, self.had)):
            if not now and not self._step_on_zeros_is_none(i, had, hypers):
                return True
            if now and not had and self.begun and self._first_is_late(i, hypers):
                return True
        return False

    def compare(self, has: Sequence[bool], had: Sequence[bool], hypers: Hypers) -> None:
        """All workers have said what they have, and had: raise for what the box would do otherwise than torch."""
        unused, late = [], []
        for i, (now, before) in enumerate(zip(has, had)):
            if not now and not self._step_on_zeros_is_none(i, before, hypers):
                unused.append(i)
            if now and not before and self.begun and self._first_is_late(i, hypers):
                late.append(i)
        if unused:
            raise PBoxInvalid(
                f"{self._params.names(unused)} had no gradient at any worker in this step: torch.optim "
                "leaves such a parameter alone, the box would apply momentum and weight decay to "
                "it. Freeze it before making the optimiser (requires_grad_(False)), give it an "
                "optimiser of its own and step only that when it is used, or give it a gradient "
                "of zeros if momentum and decay shall go on")
        if late:
            raise PBoxInvalid(
                f"{self._params.names(late)} got its first gradient in a later step than the others: "
                "torch.optim counts its steps from there, the box counts those of all. Give it an "
                "optimiser of its own")
        self.had = [a or b for a, b in zip(has, had)]
        self.begun = True
