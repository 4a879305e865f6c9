# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The state that the box keeps for an optimiser, in torch.optim's layout.

state_dict() fetches it; what load_state_dict() was given goes to the box with the next step, in
which all workers hear that all have loaded before anybody pushes. The box counts the steps of a
group by rounds; the hyper-parameter `steps` is how many the state had before round 1.
"""

from typing import Any, Dict, List, Optional, Tuple

import torch

from ..client import Operation, Table
from ..errors import PBoxInvalid
from . import _layout


class State:
    """What is to be given to the box, and what comes from it, of one optimiser."""

    def __init__(self, table: Table, names: Tuple[str, ...], counted: bool, params: List[torch.nn.Parameter],
                 groups: List[int], orders: List[_layout.Order], n_groups: int) -> None:
        self._table, self._names, self._counted = table, names, counted
        self._params, self._groups, self._orders = params, groups, orders
        self.steps = [0] * n_groups
        self._arrays: Dict[int, List[torch.Tensor]] = {}

    @property
    def pending(self) -> bool:
        return bool(self._arrays)

    def _dense(self, tensors: List[torch.Tensor]) -> List[torch.Tensor]:
        return [_layout.dense(t, o) for t, o in zip(tensors, self._orders)]

    # ---- from the box

    def fetch(self, had: List[bool], momentum: List[bool]) -> Dict[torch.Tensor, Dict[str, Any]]:
        """By parameter, for those that have had a gradient."""
        version = self._table.next_round - 1
        if not self._names or not any(had):
            return {}
        arrays = []
        for number in range(1, len(self._names) + 1):
            out = [torch.empty_like(p.data, device="cpu") for p in self._params]
            if number in self._arrays:
                for o, v in zip(out, self._arrays[number]):
                    o.copy_(v)
            else:
                self._table.fetch(number, self._dense(out)).wait()
            arrays.append([o.to(p.device) for o, p in zip(out, self._params)])
        state: Dict[torch.Tensor, Dict[str, Any]] = {}
        for i, p in enumerate(self._params):
            g = self._groups[i]
            if not had[i] or not momentum[g]:
                continue
            state[p] = {n: a[i] for n, a in zip(self._names, arrays)}
            if self._counted:
                state[p]["step"] = torch.tensor(float(version + self.steps[g]), device="cpu")
        return state

    # ---- to the box

    def load(self, state: Dict[Any, Dict[str, Any]], dampening: List[float]) -> List[bool]:
        """Take what torch has loaded. Which parameters have a state?"""
        version = self._table.next_round - 1
        had = [any(state.get(p, {}).get(n) is not None for n in self._names)
               for p in self._params]
        if not self._names:
            return had
        self._count(state, had, dampening, version)
        for number, name in enumerate(self._names, 1):
            self._arrays[number] = [
                state[p][name].detach().to("cpu", torch.float32).reshape(p.shape) if has
                else torch.zeros_like(p.data, device="cpu") for p, has in zip(self._params, had)]
        return had

    def _count(self, state: Dict[Any, Dict[str, Any]], had: List[bool],
               dampening: List[float], version: int) -> None:
        """Steps of each group: torch counts for each parameter, the box for a group."""
        for g in range(len(self.steps)):
            mine = [i for i, k in enumerate(self._groups) if k == g]
            with_state = [i for i in mine if had[i]]
            if not with_state:
                self.steps[g] = -version
                continue
            if not self._counted:
                if len(with_state) < len(mine) and dampening[g] != 0:
                    raise PBoxInvalid(
                        f"group {g}: with dampening, and a momentum buffer for some of its "
                        "parameters only, the next step would not be torch's: load a state that "
                        "has all of them, or none")
                self.steps[g] = max(0, 1 - version)
                continue
            counts = {float(state[self._params[i]]["step"]) for i in with_state}
            if len(counts) > 1:
                raise PBoxInvalid(
                    f"group {g}: its parameters have made {sorted(counts)} steps; the box counts "
                    "them for a group: give those with other counts an optimiser of their own")
            self.steps[g] = int(counts.pop()) - version

    # ---- of a worker that goes on in a running job: the box has the state

    def save_steps(self, state: Dict[str, Any]) -> None:
        """What is added to the rounds of this run, of a group: steps of an earlier run, less those that were left out."""
        if any(self.steps):
            state["steps_beside_rounds"] = list(self.steps)

    def resume_steps(self, state: Dict[str, Any]) -> None:
        saved = state.get("steps_beside_rounds", [0] * len(self.steps))
        if not isinstance(saved, list) or len(saved) != len(self.steps):
            raise PBoxInvalid(f"steps_beside_rounds of the state is {saved!r:.80}, and there are {len(self.steps)} groups: it is the state of another optimiser")
        self.steps[:] = [int(n) for n in saved]

    def give(self) -> List[Operation]:
        """Worker 0 brings it; the operations are to be waited for."""
        ops = [self._table.give(number, self._dense(arrays))
               for number, arrays in sorted(self._arrays.items())]
        return ops

    def given(self) -> None:
        self._arrays.clear()

    def set_parameters(self, values: Optional[List[torch.Tensor]]) -> None:
        if values is not None:
            self._arrays[0] = [v.cpu() for v in values]
