# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""By plan, with slots that are computed while parameters are on their way (ahead=): on those of the round before (_stale.py)."""

import time
from typing import TYPE_CHECKING, Any, List, Optional, Set

import torch

from ..errors import PBoxInvalid
from ._by_plan import ByPlan
from ._stale import LooseTree, Stale
from ._strategy import Step
from ._tree import Sums

if TYPE_CHECKING:
    from ._optim import BoxOptimizer
    from ._work import Work


class Ahead(ByPlan):
    stale: Stale

    def __init__(self, owner: "BoxOptimizer") -> None:
        super().__init__(owner)
        self.stale = Stale(owner._how.quarters, owner._params.all)

    def _ask(self) -> "Work":
        work = super()._ask()
        if work.newcomer:
            raise PBoxInvalid("this job trains with ahead=, and has begun without this worker, which lacks the parameters of the round before: it goes on "
                              "without it")
        return work

    def prepared(self) -> None:
        """Results come into buffers that Stale gives for each."""

    def start(self, timeout: float, late: bool, first_round: int) -> None:
        self.stale.begins()

    @property
    def stalled(self) -> float:  # type: ignore[override]
        return self.stale.stalled

    # ---- a step

    def begin_step(self) -> None:
        self._look_at_data()
        self.stale.slot_ends()
        self.stale.ended = False
        if not self.stale.waits:
            self.owner._begin_slot()

    def step(self, samples: int, scaler: Any) -> None:
        if self.stale.waits:
            self.take_slot(samples)
            self._early_slot_ends()
        else:
            super().step(samples, scaler)

    def add_sums(self, grads: Sums, samples: int) -> None:
        tree = self.stale.next if self.stale.waits else self.tree
        assert isinstance(tree, LooseTree)
        tree.add(self.slots.next, grads, samples)

    def _early_slot_ends(self) -> None:
        slots, stale = self.slots, self.stale
        # step() ends an epoch, so its last slot is not computed before the round before has ended
        if slots.count < len(slots.mine) - slots.ends_epoch(slots.trained) and stale.is_early(slots.next):
            slots.prepare()
            return
        self.owner._go([self.owner._end])

    # ---- a round

    def fill(self, keep: List[torch.Tensor]) -> List[bool]:
        self.owner._exchange.outputs = self.stale.buffers()
        return super().fill(keep)

    @property
    def last(self) -> Step:
        return self._go_ahead if self._may_go_ahead() else self.owner._end

    def _may_go_ahead(self) -> bool:
        """The slots of a round are computed: is there an early one for this worker to go on with? With an epoch all is here."""
        slots, stale = self.slots, self.stale
        if self.work.again or slots.ends_epoch(slots.trained):
            return False
        return len(slots.mine) > slots.ends_epoch(slots.trained + 1) and stale.is_early(stale.order(slots.mine)[0])

    def _go_ahead(self, _timeout: Optional[float]) -> None:
        self.work.goes_ahead()
        self.slots.prepare()

    def wait(self, timeout: Optional[float]) -> bool:
        began = time.monotonic()
        if not super().wait(timeout):
            return False
        self.work.comes_back()
        self.stale.stalled = time.monotonic() - began
        return True

    def wants_more(self) -> None:
        """From early slots of the next round, if this worker was there."""
        self.work.comes_back()
        self.stale.next = None

    def take(self) -> None:
        self.stale.result_is_here()

    def round_is_here(self) -> None:
        self.work.takes_early()
        self.stale.round_begins()
        self.stale.ended, self.owner._of_round = True, []
        self.slots.prepare()

    def differ(self, suspects: Set[int]) -> List[int]:
        return sorted(i for i in suspects if self.stale.differs(i, self.owner._params.all[i]))

    # ---- between rounds

    def push_waiting(self) -> None:
        owner, slots = self.owner, self.slots
        if owner._failed is None and not owner._todo and not self.stale.waits and slots.mine and slots.count == len(slots.mine):
            owner._check_hypers()
            owner._params.refuse_changed(self.differ)
            with torch.no_grad():
                owner._push_round(1)

    def check_push_parameters(self) -> None:
        raise PBoxInvalid("push_parameters() goes without ahead=: slots of the next round have been computed on the parameters before")
