# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""What is to be done for a round, in which order: each is done when the one before has been, and once more after a deadline."""

from typing import TYPE_CHECKING, Any, List, Optional

import torch

from ..client import Operation
from ..errors import PBoxDeadline, PBoxMismatch, PBoxRefused
from . import _skip
from ._strategy import Step

if TYPE_CHECKING:
    from ._optim import BoxOptimizer


def steps(owner: "BoxOptimizer", samples: int, has: List[bool], keep: List[torch.Tensor], scaler: Any) -> List[Step]:
    """Of the round whose contribution is filled in (Strategy.fill). `has`: which parameters have a gradient here?"""
    hypers = owner._sent.now()
    changes = owner._returns.changes(owner._sent.changes(hypers))
    loaded = owner._kept.pending
    owner._count_discards()
    scaled = owner._inf is not None
    first = scaled or any(changes) or loaded or owner._discarded > 0 or owner._used.needs_look(has, hypers)
    refused: List[Exception] = []
    given: List[Operation] = []
    if loaded and owner.client.worker == 0:
        given = owner._kept.give()

    def give(timeout: Optional[float]) -> None:
        try:
            for o in given:
                o.wait(timeout)
        except PBoxDeadline as e:
            raise type(e)(
                f"{e}. This worker has loaded a state, which the box takes before any worker "
                "has pushed for this step: has one of the others not called "
                "load_state_dict()?") from None
        owner._kept.given()
        owner._values = None

    # each of these either happens or is made again after a deadline, so it does one thing
    def begin(_timeout: Optional[float]) -> None:
        owner._agreement.begin(owner._said(hypers), has, owner._used.had, None if owner._resumed else loaded, bool(owner._inf))

    def tell(_timeout: Optional[float]) -> None:
        owner._returns.say()
        if any(changes) or owner._compress.results is not None:
            try:
                owner._sent.send(hypers, changes)
            except (PBoxMismatch, PBoxRefused) as e:
                refused.append(e)  # if workers differ, what they say helps more

    def compare(timeout: Optional[float]) -> None:
        owner._compare(hypers, timeout)
        if refused:
            raise refused[0]
        if scaled and owner._leave_out in owner._todo:
            _skip.tell(owner, scaler)

    def push(_timeout: Optional[float]) -> None:
        owner._pending = owner._strategy.submit(keep, samples)

    def told(_timeout: Optional[float]) -> None:
        if refused:
            raise refused[0]

    # who has something to send that others may not want pushes when they agree; nobody's
    # step ends before that. What was said for a round that is left out might come after what the next step says
    order = [give, begin, compare, tell, told, push] if scaled else [give, begin, tell, compare, push] if first else [give, begin, tell, push, compare]
    return [*owner._strategy.first(), *order, owner._strategy.last]
