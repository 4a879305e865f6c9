# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""With slots, of which each worker has some: step() ends one, and the round with the last one."""

import logging
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple

import torch

from .. import _checks
from ..client import ANY_ROUND
from ..errors import PBoxInvalid
from . import _decide
from ._alike import Alike
from ._owned import Owned
from ._session import check_slots, goes_by_slots, trains, trains_no_more
from ._slots import Slots
from ._strategy import Step, Strategy, refuse_without_plan
from ._tree import Sums, Tree, separate

if TYPE_CHECKING:
    from ._optim import BoxOptimizer

_log = logging.getLogger("pbox")


class BySlots(Strategy):
    """The slots are those of the nodes that the session has got."""

    WHAT = "sum of the gradients"
    slots: Slots

    def __init__(self, owner: "BoxOptimizer") -> None:
        super().__init__(owner)
        client, slots = owner.client, owner._how.slots
        assert slots is not None
        check_slots(client, slots)
        if client.policy == "shrink":
            _log.warning("policy='shrink' with slots=%d: rounds go on without the slots of a worker that is dead, so from then "
                         "on the bits depend on which workers lived. Take policy='wait' (the default) for the same bits", slots)
        nodes = client.nodes()
        self.slots = Slots(slots, [s for first, n in nodes for s in range(first, first + n)])
        # the weights are in the values, n_i p_i, before they are added: the same bits
        self.wire_op = "sample_mean" if owner._how.op == "weighted_mean" else owner._how.op
        self._plant(nodes)
        self._alike: List[Alike] = []  # until the first round was made
        self._looked = False  # whether data go by the slot

    def _plant(self, nodes: Sequence[Tuple[int, int]]) -> None:
        """The tree along which gradients are added."""
        self._tree = Tree(nodes)
        self.NODES = len(self._tree.nodes)

    @property
    def tree(self) -> Tree:
        return self._tree

    @property
    def shares(self) -> int:
        return self.slots.total

    def begin(self) -> None:
        refuse_without_plan(self.owner._how)

    def start(self, timeout: float, late: bool, first_round: int) -> None:
        if self.owner.client.workers > 1 and self.owner._is_root:
            alike = Alike(self.owner.client, timeout, ANY_ROUND if late else first_round)
            self._alike = [] if late else [alike]
            self.slots.compares = not late

    def made(self) -> None:
        self._owned = Owned(self.owner._params.all)
        if self.owner._is_root:
            trains(self.owner.client, self.slots)

    # ---- a step

    def check_samples(self, samples: int) -> None:
        _checks.whole(self.tree.samples_in_node + samples, "samples, summed over the slots of a node,", _checks.U32)

    def begin_step(self) -> None:
        self._look_at_data()
        self.owner._begin_slot()

    def _look_at_data(self) -> None:
        """With the first step: does the program know which micro-batch it computes?"""
        if not self._looked and not goes_by_slots(self.owner.client):
            _log.warning("slots=%d, and the data do not go by the slot: neither optimiser.sampler() nor optimiser.slot was used "
                         "before the first step(), so the bits depend on the number of workers. Take "
                         "DataLoader(data, batch_sampler=optimiser.sampler(data, batch_size, seed))", self.shares)
        self._looked = True

    def step(self, samples: int, scaler: Any) -> None:
        if not self.slots.last:
            self.take_slot(samples)
            self.slots.prepare()
            return
        self.owner._refuse_changed()
        self.take_slot(samples)
        self.owner._push_round(samples, scaler)

    def take_slot(self, samples: int) -> None:
        """A slot is done: its gradients go into the sums, those of groups that were added too."""
        parts = self.owner._parts()
        taken = [o._slot_grads() for o in parts]
        for o, grads in zip(parts, taken):
            o._strategy.add(grads, samples)

    def add(self, grads: Sums, samples: int) -> None:
        params = self.owner._params.all
        for i, own in enumerate(self._owned.take([p.grad for p in params])):
            g = grads[i]
            if g is not None and not own and g.data_ptr() == params[i].grad.data_ptr():
                grads[i] = g.clone()  # the program writes there again: sums are made elsewhere
        separate(grads)
        if self.owner._how.op == "weighted_mean":
            for g in grads:
                if g is not None:
                    g.mul_(float(samples))
        for p in params:
            p.grad = None
        self.add_sums(grads, samples)
        self.slots.count += 1

    def add_sums(self, grads: Sums, samples: int) -> None:
        self.tree.add(grads, samples)

    # ---- a round

    def first(self) -> Sequence[Step]:
        return [self._meet_alike] if self._alike else []

    def _meet_alike(self, timeout: Optional[float]) -> None:
        where = self.owner._params.all[0].device
        self._alike[0].meet(self.slots.order, torch.cuda.get_device_name(where) if where.type == "cuda" else where.type, timeout)
        self._alike = []

    def brought(self) -> List[Tuple[Sums, int]]:
        """Sums and samples of this worker's nodes."""
        return list(zip(self.tree.done, self.tree.samples))

    def gradients(self) -> Sequence[Optional[torch.Tensor]]:
        return [g for sums, _ in self.brought() for g in sums]

    def fill(self, keep: List[torch.Tensor]) -> List[bool]:
        brought = self.brought()
        self.owner._exchange.fill_nodes([sums for sums, _ in brought], keep)
        return [any(sums[i] is not None for sums, _ in brought) for i in range(len(self.owner._params.all))]

    def told(self) -> Dict[str, float]:
        s = self.slots
        return dict(trained_rounds=s.trained, seed=-1 if s.seed is None else s.seed, batch_size=s.batch_size, samples=s.samples)

    def submit(self, keep: List[torch.Tensor], samples: int) -> Any:
        self.owner._round = self.owner.table.next_round
        return self.owner._exchange.submit_nodes([n for _, n in self.brought()], keep)

    def end_round(self) -> None:
        self.tree.clear()
        self.slots.end_round()

    def refused(self, error: PBoxInvalid) -> PBoxInvalid:
        self.owner._failed = error  # the slots are added up: they are not computed again
        return error

    def discard(self) -> None:
        self.slots.given = self.slots.asks = None

    def where(self) -> str:
        return f" in slot {self.slots.next}"

    # ---- between rounds

    def agree(self, value: float, timeout: Optional[float]) -> float:
        self._check_agree()
        return _decide.by_reduction(self.owner.client, value, timeout)

    def _check_agree(self) -> None:
        self.slots.between_rounds("agree()", ". All workers call it where optimiser.round_ended is true")

    def save(self, state: Dict[str, Any]) -> None:
        state["pbox"] = self.slots.state_dict()

    def load(self, state: Dict[str, Any]) -> None:
        if "pbox" in state:
            self.slots.load_state_dict(state["pbox"])

    def close(self) -> None:
        trains_no_more(self.owner.client, self.slots)
        self._owned.close()
