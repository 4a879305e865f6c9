# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""By plan, with gradients of this worker's last slot that leave during backward() (send_early): when they may, and what step() does then (_early.py)."""

from typing import Any, List, Optional

import torch

from ..client import Operation
from ..errors import PBoxError, PBoxInvalid
from ._by_plan import ByPlan
from ._early import Early
from ._strategy import SAMPLED


class SendsEarly(ByPlan):
    def begin(self) -> None:
        super().begin()
        if self.owner._how.op in SAMPLED or self.owner.local_clip:
            raise PBoxInvalid(f"send_early=True: gradients leave before step() can say samples= (op={self.owner._how.op!r}) or anything can clip them "
                              "(local_clip): take op='mean', or leave send_early out")

    def prepared(self) -> None:
        super().prepared()
        self.owner._exchange.places = self.owner._exchange.places[::-1]  # in the order of those that leave early

    def made(self) -> None:
        super().made()
        self._early = Early(self, self.owner._params.all)

    @property
    def early_tensors(self) -> int:  # type: ignore[override]
        return self._early.tensors

    def close(self) -> None:
        self._early.close()
        super().close()

    def step(self, samples: int, scaler: Any) -> None:
        self._early.slot_ends()
        if self._early.begun:
            self._end_early()
        else:
            super().step(samples, scaler)

    def _end_early(self) -> None:
        """step() of a slot whose gradients have left: the rest goes now."""
        owner = self.owner
        if owner._inf is not None:
            raise PBoxInvalid("a GradScaler scales the gradients of this slot, and they have left: leave send_early out")
        owner._count_discards()
        here = self._early.has()
        has = [there or any(node[i] is not None for node in self.tree.done) for i, there in enumerate(here)]
        hypers = owner._sent.values

        def compare(timeout: Optional[float]) -> None:
            owner._agreement.begin(owner._said(hypers), has, owner._used.had, False, False)
            owner._compare(hypers, timeout)

        def push(_timeout: Optional[float]) -> None:
            sums, owner._pending = self._early.end()
            self.work.pushes()
            self.tree.finish(sums, 1)
            self.slots.count += 1

        owner._go([compare, push, owner._end])

    # ---- asked by Early

    def opens(self) -> bool:
        """Autograd has made a gradient: may those of this slot leave? What step() would refuse it refuses then."""
        owner = self.owner
        if not self.slots.mine or not self.slots.last or self.work.again or owner._todo or owner._failed is not None or \
                self.newcomer or owner._kept.pending or owner._values is not None:
            return False
        if self.work.steals:
            self.work.slot_ends()
            if not self.slots.last:
                return False
        try:
            owner._begin_slot()
            owner._params.refuse_changed(self.differ)
            hypers = owner._sent.now()
            for g, group in enumerate(owner.param_groups):
                owner._check_group(g, group)
            owner._sent.send(hypers, owner._sent.changes(hypers))
        except PBoxError:
            return False
        owner._round = owner.table.next_round
        return True

    def checked(self, i: int, g: torch.Tensor) -> torch.Tensor:
        return self.owner._params.checked(i, g)

    def name_of(self, i: int) -> str:
        """Of this worker, and parameter i."""
        return f"worker {self.owner.client.worker}: the gradient of '{self.owner._params.specs[i].name}'"

    def complete_with(self, i: int, grad: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
        return self.tree.complete_with(i, grad)

    def submit_alone(self, i: int, last: Optional[torch.Tensor]) -> Operation:
        """Push all nodes of parameter i; `last` is the sum of the last one."""
        tree = self.tree
        order = sorted(range(len(tree.nodes)), key=lambda node: tree.nodes[node])  # stolen ones are computed last
        sums: List[Optional[torch.Tensor]] = [sums[i] for sums in tree.done] + [last]
        samples = [*tree.samples, tree.samples_in_node + 1]
        return self.owner._exchange.submit_alone(i, [sums[node] for node in order], [samples[node] for node in order])
