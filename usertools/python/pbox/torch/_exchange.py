# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""How the gradients of a round leave the memory of a worker, and what the box makes of the parameters comes into it.

One class for each kind of round, chosen when the optimiser is made: from and into host memory (Host), of parameters on a GPU (OnDevice), in two phases
(InPhases). A strategy (_strategy.py) says what leaves, and when.
"""

import ctypes as ct
from typing import TYPE_CHECKING, Any, List, Optional, Sequence

import torch

from .. import _buffers, _lib
from ..client import Operation
from ..errors import PBoxInvalid, PBoxMismatch, PBoxRefused
from . import _finite, _layout, _norm, _placed

if TYPE_CHECKING:
    from ._optim import BoxOptimizer

_WIRE = {"bf16": torch.bfloat16, "fp16": torch.float16}
Grads = Sequence[Optional[torch.Tensor]]


def wire_type(fmt: str) -> torch.dtype:
    """Of the arrays that go, or come, in that format."""
    return _WIRE.get(fmt, torch.float32)


class Host:
    """Between the library and host memory. `nodes`: of so many a round has the sums at most. Buffers and arrays of addresses are made once.

    outputs    where results come: the parameters themselves, or what take() copies into them
    places     of each parameter, in the order in which they leave
    """

    def __init__(self, owner: "BoxOptimizer", nodes: int) -> None:
        self._owner, self._params = owner, owner._params
        n = len(self._params.all)
        self._io = (_lib.Io * max(1, n))()
        self._addresses = (ct.c_void_p * max(1, nodes * n))()
        # a worker without a gradient for a parameter sends zeros; one array serves all
        self._zeros: Optional[torch.Tensor] = None
        self._narrow_push: List[torch.Tensor] = []
        self._narrow_pull: List[torch.Tensor] = []
        self.places: Sequence[int] = range(n)
        self._make_buffers(nodes)
        self.outputs: Sequence[torch.Tensor] = self._narrow_pull or self._params.all

    def _make_buffers(self, nodes: int) -> None:
        how, every = self._owner._how, self._params.all
        if _buffers.arrays_of(how.push) != "fp32":
            self._narrow_push = [torch.empty_like(p.data, dtype=_WIRE[how.push]) for _ in range(nodes) for p in every]
        if _buffers.arrays_of(how.pull) != "fp32":
            self._narrow_pull = [torch.empty_like(p.data, dtype=_WIRE[how.pull]) for p in every]

    # ---- parameters, between rounds

    def values(self) -> List[torch.Tensor]:
        """Of the parameters, as the box sees them."""
        return self._params.dense(self._params.values())

    def share(self) -> None:
        """Worker 0's parameters become everybody's."""
        if self._owner.client.worker == 0:
            self._owner.table.init(self.values()).wait()
        # worker 0 receives its own too: with a narrow pull format they come back rounded, and
        # all workers shall compute with the same ones
        self.pull()

    def give(self) -> None:
        """Worker 0 was killed in the first round, maybe before the box had its parameters: this changes none that it has."""
        if self._owner.client.worker == 0:
            self._owner.table.init(self.values()).wait()

    def pull(self) -> None:
        """The box's parameters become this worker's."""
        self._owner.table.pull(self._params.dense(self._narrow_pull or self._params.values())).wait()
        with torch.no_grad():
            self._copy(self._narrow_pull)

    def take(self) -> None:
        """The result of a round is in `outputs`."""
        if self.outputs is not self._params.all:
            self._copy(self.outputs)

    def _copy(self, values: Sequence[torch.Tensor]) -> None:
        for p, new in zip(self._params.all, values):
            p.data.copy_(new)

    # ---- a round without slots

    def fill(self, grads: Grads, keep: List[torch.Tensor]) -> None:
        """Gradients of this worker, whose memory is in `keep` from then on."""
        self._fill_outputs()
        for i, g in enumerate(grads):
            self._io[i].input = self._address(i, g, keep)

    def submit(self, samples: int, keep: List[torch.Tensor]) -> Any:
        return self._owner.table.submit_io(_lib.PUSHPULL, self._io, len(self._params.all), keep, weight=samples)

    # ---- a round of slots

    def fill_nodes(self, sums: Sequence[Grads], keep: List[torch.Tensor]) -> None:
        """The sums of this worker's nodes."""
        self._fill_outputs()
        n = len(self._params.all)
        for node, of_node in enumerate(sums):
            for i, (at, g) in enumerate(zip(self.places, of_node)):
                self._addresses[node * n + at] = self._address(i, g, keep, node)

    def submit_nodes(self, weights: Sequence[int], keep: List[torch.Tensor], again: bool = False) -> Any:
        return self._owner.table.submit_nodes_io(_lib.PUSHPULL, self._io, len(self._params.all), self._addresses, weights, keep, again=again)

    def submit_alone(self, i: int, sums: Grads, weights: Sequence[int]) -> Operation:
        """Push and pull parameter i alone: the sums of this worker's nodes."""
        keep: List[torch.Tensor] = []
        io, addresses = (_lib.Io * 1)(), (ct.c_void_p * len(sums))()
        io[0].tensor = i
        io[0].output = self.outputs[i].data_ptr() or _buffers.ADDRESS_OF_NOTHING
        for node, g in enumerate(sums):
            addresses[node] = self._address(i, g, keep, node)
        return self._owner.table.submit_nodes_io(_lib.PUSHPULL, io, 1, addresses, weights, keep)

    # ---- addresses

    def _fill_outputs(self) -> None:
        for i, (at, into) in enumerate(zip(self.places, self.outputs)):
            io = self._io[at]
            io.tensor = i
            io.output = into.data_ptr() or _buffers.ADDRESS_OF_NOTHING

    def _address(self, i: int, g: Optional[torch.Tensor], keep: List[torch.Tensor], node: int = 0) -> int:
        """Where the library finds what this worker pushes for parameter i (of a node)."""
        if g is None:
            if self._zeros is None:
                n = max(p.numel() for p in self._params.all)
                self._zeros = torch.zeros(n, dtype=wire_type(self._owner._how.push))
            g = self._zeros
        elif self._narrow_push:
            narrow = self._narrow_push[node * len(self._params.all) + i]
            g = _layout.dense(narrow, self._params.order[i]).copy_(g)
            if self._owner._how.push == "fp16" and self._owner._inf is None and not _finite.is_finite(g):
                self._too_large(i)
        else:
            keep.append(g)
        # elements 0 have no address, and NULL means "not given"
        return g.data_ptr() or _buffers.ADDRESS_OF_NOTHING

    def _too_large(self, i: int) -> None:
        strategy = self._owner._strategy
        raise strategy.refused(PBoxInvalid(
            f"worker {self._owner.client.worker}: the {strategy.WHAT} of '{self._params.specs[i].name}' has elements beyond 65504, which are infinite as fp16: nothing "
            "was sent. Scale the loss, or take push='bf16'"))


class OnDevice(Host):
    """Parameters are on a GPU: gradients go through pinned memory."""

    def _make_buffers(self, nodes: int) -> None:
        owner, params = self._owner, self._params
        assert params.device is not None
        self._placed = _placed.Placed(owner.client, params.device, params.all, params.order, wire_type(owner._how.push), wire_type(owner._how.pull),
                                      owner._strategy.slots is not None)
        self._narrow_pull = self._placed.outputs

    def values(self) -> List[torch.Tensor]:
        return self._placed.values()

    def pull(self) -> None:
        self._placed.pull(self._owner.table)

    def take(self) -> None:
        """The operation has queued the copies."""

    def fill(self, grads: Grads, keep: List[torch.Tensor]) -> None:
        self._placed.download(grads)

    def submit(self, samples: int, keep: List[torch.Tensor]) -> Any:
        return self._placed.submit(self._owner.table, samples)

    def fill_nodes(self, sums: Sequence[Grads], keep: List[torch.Tensor]) -> None:
        super().fill_nodes(self._placed.download_nodes(self._owner.client, sums), keep)

    def submit_nodes(self, weights: Sequence[int], keep: List[torch.Tensor], again: bool = False) -> Any:
        self._placed.downloaded()
        return self._placed.whole(super().submit_nodes(weights, keep, again))


class InPhases(Host):
    """A round has two phases (_norm.py): push, and pull when all have said the coefficient."""

    def submit(self, samples: int, keep: List[torch.Tensor]) -> Any:
        n = len(self._params.all)
        return self._begin((ct.c_void_p * max(1, n))(*[self._io[i].input for i in range(n)]), [samples], keep)

    def submit_nodes(self, weights: Sequence[int], keep: List[torch.Tensor], again: bool = False) -> Any:
        return self._begin(self._addresses, weights, keep)

    def _begin(self, addresses: Any, weights: Sequence[int], keep: List[torch.Tensor]) -> "InPhases":
        owner, io, n = self._owner, self._io, len(self._params.all)
        self._steps_before = list(owner._kept.steps)

        def push(again: bool) -> Operation:
            return owner.table.submit_nodes_io(_lib.PUSH, io, n, addresses, weights, keep, again=again)

        owner._phases.begin(push, lambda: owner.table.submit_io(_lib.PULL, io, n, keep), self._say)
        owner._round = owner._phases.round
        return self

    def wait(self, timeout: Optional[float] = None) -> None:
        self._owner._phases.end(timeout)

    def _say(self, round: int, coefficient: float) -> None:
        """All workers set the same, so each knows before it pulls that the box has it. A step that is left out is no step of the state from the
        next round on: in this one `steps` may have been set already, and nothing is computed with it."""
        owner = self._owner
        for g in self._params.groups:
            try:
                owner.table.set_hyper(g, round, coefficient=coefficient)
            except (PBoxMismatch, PBoxRefused) as e:
                # a restarted box has the version already, of somebody who had set it
                if "already finished" not in str(e):
                    raise
        for g in self._params.groups if coefficient == _norm.SKIP else ():
            owner._kept.steps[g] = self._steps_before[g] - 1
            owner._sent.values[g]["steps"] = float(owner._kept.steps[g])
            owner.table.set_hyper(g, round + 1, steps=owner._sent.values[g]["steps"])


def choose(owner: "BoxOptimizer", nodes: int) -> Host:
    kind = OnDevice if owner._params.device is not None else InPhases if owner._phases.active else Host
    return kind(owner, nodes)
