# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Whose memory is p.grad?

The sums over slots are made in place, in the gradients that are taken away after each slot. Those that autograd has made are nobody else's. A
program may have gradient memory of its own, though (p.grad = flat[a:b] before backward(), or set after it), which it writes again for the next
slot: of that a copy is taken.
"""

import weakref
from typing import Any, Callable, Dict, List, Sequence

import torch


class Owned:
    """Sees each gradient as autograd leaves it."""

    def __init__(self, params: Sequence[torch.nn.Parameter]) -> None:
        self._made: Dict[int, Any] = {}  # weak references: an address may be that of another tensor later
        self._nodes: List[Any] = []  # kept: a parameter does not keep its own
        for i, p in enumerate(params):
            with torch.enable_grad():
                node = p.expand_as(p).grad_fn.next_functions[0][0]
            self._nodes.append((node, node.register_hook(self._watcher(i, p))))

    def _watcher(self, i: int, p: torch.nn.Parameter) -> Callable[[Any, Any], None]:
        made = self._made

        def accumulated(_: Any, _incoming: Any) -> None:
            g = p.grad
            if g is None or g.is_sparse or g.is_inference():
                made.pop(i, None)
            elif g._version == 0:  # new: what autograd adds to has been written to
                made[i] = weakref.ref(g)
            elif i in made and made[i]() is not g:
                del made[i]
        return accumulated

    def take(self, grads: Sequence[Any]) -> List[bool]:
        """Which of these p.grad has autograd made, since it was called last?"""
        mine = [g is not None and i in self._made and self._made[i]() is g for i, g in enumerate(grads)]
        self._made.clear()
        return mine

    def close(self) -> None:
        for _, handle in self._nodes:
            handle.remove()
        self._nodes.clear()
