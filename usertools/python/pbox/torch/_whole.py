# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Without slots: each step is a round, of one gradient of each worker."""

from typing import TYPE_CHECKING, Any, List, Optional, Sequence

import torch

from ..errors import PBoxInvalid
from . import _decide
from ._strategy import Strategy, refuse_without_plan

if TYPE_CHECKING:
    from ._optim import BoxOptimizer


class Whole(Strategy):
    def __init__(self, owner: "BoxOptimizer") -> None:
        super().__init__(owner)
        client = owner.client
        if client.slots != client.workers:
            raise PBoxInvalid(
                f"this optimiser has no slots=, and the session has the {client.slots} slots of the job: pass "
                f"slots={client.slots}, as all its optimisers do; without, its steps would depend on the number "
                "of workers")
        self.wire_op = owner._how.op

    @property
    def shares(self) -> int:
        return self.owner.client.workers

    def begin(self) -> None:
        if self.owner.client.policy == "reassign":
            raise PBoxInvalid("policy='reassign' gives slots to others: pass slots=V to the optimiser")
        refuse_without_plan(self.owner._how)

    def step(self, samples: int, scaler: Any) -> None:
        self.owner._refuse_changed()
        self.owner._push_round(samples, scaler)

    def gradients(self) -> Sequence[Optional[torch.Tensor]]:
        return [p.grad for p in self.owner._params.all]

    def fill(self, keep: List[torch.Tensor]) -> List[bool]:
        grads = self.owner._params.gradients()
        self.owner._refuse_infinite(grads)
        self.owner._exchange.fill(grads, keep)
        return [g is not None for g in grads]

    def submit(self, keep: List[torch.Tensor], samples: int) -> Any:
        return self.owner._exchange.submit(samples, keep)

    def agree(self, value: float, timeout: Optional[float]) -> float:
        return _decide.by_reduction(self.owner.client, value, timeout)
