# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Gradients that leave during the backward pass (send_early=True).

In a worker's last slot of a round each gradient is final when autograd has made it. It is added to those of the slots before, along
the same tree, and all nodes of that tensor are pushed, while the backward pass goes on to the layers before. The bits are those of
step(), which pushes what is left: parameters that the pass has not reached, and all of a round that is pushed once more.

Tensors leave in one order, the last one first, at all workers and in all rounds: the box and the workers have room for a window of
fragments, and workers that fill theirs with different ones would wait for each other.
"""

from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

import torch

from ..client import Operation
from ..errors import PBoxInvalid, PBoxMore
from . import _finite
from ._tree import Sums


class Parts:
    """The operations of one round, as one."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._left = list(operations)
        self._more: Optional[PBoxMore] = None

    def wait(self, timeout: Optional[float] = None) -> None:
        while self._left:
            try:
                self._left[0].wait(timeout)
            except PBoxMore as e:  # of the others each ends so, or with its result
                self._more = e
            self._left.pop(0)
        if self._more is not None:
            raise self._more


class Early:
    """Of a strategy by plan, `owner`, whose parameters' gradients it takes away as they are made."""

    def __init__(self, owner: Any, params: Sequence[torch.nn.Parameter]) -> None:
        self._owner, self._params = owner, params
        self._may: Optional[bool] = None  # None: not asked in this slot
        self._ready: Set[int] = set()  # parameters whose gradient is complete
        self._sums: Dict[int, Optional[torch.Tensor]] = {}  # of the last node, by parameter
        self._got: Dict[int, bool] = {}  # had it a gradient in this slot?
        self._operations: List[Operation] = []
        self.tensors = 0  # that have left early, in all rounds
        self._nodes: List[Tuple[Any, Any]] = []  # kept: a parameter does not keep its own
        for i, p in enumerate(params):
            with torch.enable_grad():
                node = p.expand_as(p).grad_fn.next_functions[0][0]
            self._nodes.append((node, node.register_hook(self._hook(i))))

    def _hook(self, i: int) -> Callable[[Any, Any], None]:
        def accumulated(_gone: Any, _incoming: Any) -> None:
            with torch.no_grad():
                self._accumulated(i)
        return accumulated

    def _accumulated(self, i: int) -> None:
        if i in self._ready:
            raise self._owner.refused(PBoxInvalid(
                "a second backward pass in the last slot of a round, whose gradients have left with the first: with send_early=True a "
                "slot has one backward(). Add up the losses before it, or leave send_early out"))
        if self._may is None:
            self._may = self._owner.opens()
        if not self._may:
            return
        self._ready.add(i)
        following = len(self._params) - 1 - len(self._sums)
        while following in self._ready:
            if not self.begun and not self._is_fine(following):
                self._may = False  # nothing has left: step() refuses it, by name
                return
            self.add(following, early=True)
            following -= 1

    def _is_fine(self, i: int) -> bool:
        grad = self._params[i].grad
        return grad is None or grad.is_sparse or _finite.is_finite(grad)

    def add(self, i: int, early: bool = False) -> None:
        """The gradient of parameter i in the last slot is complete: push its nodes. p.grad is None from then on, so that
        nobody changes what is on its way."""
        p = self._params[i]
        grad = None if p.grad is None else self._owner.checked(i, p.grad)
        if grad is not None and not _finite.is_finite(grad):
            raise self._owner.refused(PBoxInvalid(
                f"{self._owner.name_of(i)} has a NaN or an infinity, and those of other "
                "parameters of this slot have left (send_early): the round does not end with this worker. Leave send_early out to be able to go on"))
        p.grad = None
        self._got[i] = grad is not None
        self._sums[i] = self._owner.complete_with(i, grad)
        self._operations.append(self._owner.submit_alone(i, self._sums[i]))
        self.tensors += early

    @property
    def begun(self) -> bool:
        """Have gradients of this round left?"""
        return bool(self._operations)

    def has(self) -> List[bool]:
        """Which parameters have a gradient in this slot?"""
        return [self._got[i] if i in self._got else p.grad is not None for i, p in enumerate(self._params)]

    def end(self) -> Tuple[Sums, Parts]:
        """The slot has ended: push the rest. The sums of the last node, and all operations."""
        for i in reversed(range(len(self._params) - len(self._sums))):
            self.add(i)
        sums = [self._sums[i] for i in range(len(self._params))]
        parts = Parts(self._operations)
        self._ready, self._sums, self._got, self._operations = set(), {}, {}, []
        return sums, parts

    def slot_ends(self) -> None:
        self._may = None
        if not self.begun:
            self._ready = set()

    def close(self) -> None:
        for _, handle in self._nodes:
            handle.remove()
        self._nodes.clear()
