# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""With slots, by plan (policy reassign): the box says which are this worker's, in each round and in the middle of one (_work.py). Workers come and go."""

import time
from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Tuple

import torch

from .. import _buffers, _lib, _modes
from ..errors import PBoxInvalid, PBoxMismatch, PBoxMore, PBoxRunning
from ._by_slots import BySlots
from ._strategy import refuse_ahead, refuse_early
from ._tree import Sums, Tree
from ._work import Work

if TYPE_CHECKING:
    from ._optim import BoxOptimizer


class ByPlan(BySlots):
    NODES = _lib.MOST_NODES

    def __init__(self, owner: "BoxOptimizer") -> None:
        super().__init__(owner)
        self._agreed = 0  # the round before which agree() was called last

    def _plant(self, nodes: Sequence[Tuple[int, int]]) -> None:
        """The tree is that of the plan."""

    @property
    def tree(self) -> Tree:
        return self.work.tree

    @property
    def leads(self) -> bool:
        return self.work.leads

    @property
    def newcomer(self) -> bool:  # type: ignore[override]
        return self.work.newcomer

    @property
    def stolen(self) -> int:  # type: ignore[override]
        return self.work.stolen

    @property
    def lost(self) -> int:  # type: ignore[override]
        return self.work.lost

    # ---- while the optimiser is made

    def begin(self) -> None:
        owner, how = self.owner, self.owner._how
        _modes.check(type(owner).__name__, plan=True, gpu=owner._params.device is not None)
        if _buffers.arrays_of(how.push) != "fp32":
            raise PBoxInvalid(f"policy='reassign' and push={how.push!r}: how a narrow sum is rounded would depend on the plan; take "
                              "push='fp32' (pull= may be narrow), or, where the bits may depend on it, push='int8'")
        self.work = self._ask()
        if how.sends_early and how.pull != "fp32":
            refuse_early()
        if how.quarters and how.pull != "fp32":
            refuse_ahead()

    def _ask(self) -> Work:
        return Work(self.owner.table, self.slots, self.stale, self.owner._how.steals)

    def prepared(self) -> None:
        """Slots that come late in a round are computed on its parameters, so results have a place of their own until it has ended."""
        if self.owner._how.pull == "fp32":
            self.owner._exchange.outputs = [torch.empty_like(p.data) for p in self.owner._params.all]

    def start(self, timeout: float, late: bool, first_round: int) -> None:
        """How workers compute is not compared: they come and go."""

    # ---- a step

    def begin_step(self) -> None:
        if self.newcomer:
            raise PBoxInvalid("this worker has come to a running job, and has no slots before it asks for a batch: take batches from optimiser.loader()")
        super().begin_step()

    def step(self, samples: int, scaler: Any) -> None:
        if self.work.steals:
            self.work.slot_ends()
        super().step(samples, scaler)

    # ---- a round

    def brought(self) -> List[Tuple[Sums, int]]:
        return self.work.brought()

    def submit(self, keep: List[torch.Tensor], samples: int) -> Any:
        again = self.work.again
        if not again:
            self.owner._round = self.owner.table.next_round
        self.work.pushes()
        return self.owner._exchange.submit_nodes([n for _, n in self.brought()], keep, again)

    def wait(self, timeout: Optional[float]) -> bool:
        while True:
            try:
                self.owner._pending.wait(timeout)
                return True
            except PBoxMore:
                self.wants_more()
                if self.work.more(self.owner._round):  # step() returns, and the round goes on with slots that were added
                    self.slots.prepare()
                    return False
                self._push_none()

    def wants_more(self) -> None:
        """The round waits for slots that this worker has got."""

    def _push_none(self) -> None:
        """What this worker has, with no slot more."""
        keep: List[torch.Tensor] = []
        self.fill(keep)
        self.owner._pending = self.submit(keep, 1)

    def end_round(self) -> None:
        self.work.round_ends(self.owner._round)
        super().end_round()

    # ---- between rounds

    def agree(self, value: float, timeout: Optional[float]) -> float:
        self._check_agree()
        owner = self.owner
        before = owner._round + 1 if owner.rounds else owner.table.next_round
        if before == self._agreed:
            raise PBoxInvalid(f"agree() was called before round {before} already: there is one decision a round; combine them into one number")
        number = self.work.agree(value, before, owner.client.timeout if timeout is None else timeout)
        self._agreed = before
        return number

    def idle(self) -> None:
        keep: List[torch.Tensor] = []
        self.fill(keep)

        def push(_timeout: Optional[float]) -> None:
            self.owner._pending = self.submit(keep, 1)

        self.owner._go([push, self.owner._end])

    def sampler_made(self) -> None:
        self.work.compare()

    # ---- coming to a running job

    def enter(self) -> None:
        if not self.newcomer:
            return
        owner = self.owner
        end = time.monotonic() + owner.client.timeout
        while True:
            self._compare_hypers(end)
            self.work.enter(max(0.001, end - time.monotonic()))
            try:
                owner._exchange.pull()
                break
            except PBoxRunning:  # it was silent for so long that the job went on without it
                if time.monotonic() > end:
                    raise
        owner._catch_up(0)
        self.work.entered()
        owner._kept.given()
        owner._remember()

    def _compare_hypers(self, end: float) -> None:
        """A newcomer's hyper-parameters must be those of the job in the last round: it would set its own."""
        owner, report = self.owner, self.work.report
        for g in owner._params.groups:
            self.work.look(g)
            while report.now <= 1 and self.work.members > 0 and time.monotonic() < end:
                time.sleep(0.02)  # in the first round nobody knows what holds in it
                self.work.look(g)
            owner._catch_up(1)
            if report.now <= 1:
                continue  # nobody is left that has set any: this worker does
            theirs = owner._sent.theirs([*report.hyper, *report.hyper_more])
            owner._kept.steps[g] = int(theirs["steps"])
            mine = owner._sent.group(g)
            owner._sent.values[g] = mine
            other = [k for k in mine if mine[k] != theirs[k]]
            if other:
                raise PBoxMismatch(
                    f"group {g} has " + ", ".join(f"{k}={mine[k]:g} here and {theirs[k]:g} in the job" for k in other) +
                    f" after {self.slots.trained} rounds of the training (trained_rounds): give all workers the same, and schedulers to "
                    "optimiser.follow(), which brings them to where the training is")
