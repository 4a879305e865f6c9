# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The parameters that an optimiser on the box trains: how they are stored, and whether somebody else has changed them."""

import dataclasses
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

import torch

from .. import _buffers, _lib
from ..client import Tensor
from ..errors import PBoxInvalid
from . import _apart, _content, _device, _layout, _norm

# all contents of the parameters are looked at in the first steps, and then every so often; in each of the others one of these parts
_LOOK_FIRST, _LOOK_EVERY, _LOOK_PARTS = 4, 64, 64
_LOOK_LEAST = 4096  # elements of a piece: reading fewer costs as much


class Trained:
    """All of `groups` that want a gradient now, in the order in which the box has them. `check` raises for what the box cannot do with a group; `first_group` is
    the number of the first one; `label` is a text that workers must have alike."""

    def __init__(self, groups: Sequence[Dict[str, Any]], check: Callable[[int, Dict[str, Any]], None], first_group: int, label: str) -> None:
        self.all: List[torch.nn.Parameter] = []
        self.group_of: List[int] = []
        self.order: List[_layout.Order] = []
        self.specs: List[Tensor] = []  # as they are declared
        self._left_out: List[Tuple[str, torch.nn.Parameter]] = []
        if len(groups) > _lib.MAX_GROUPS:
            raise PBoxInvalid(f"{len(groups)} parameter groups: the box has {_lib.MAX_GROUPS} for an optimiser; put parameters "
                              "with the same hyper-parameters into one, or make several optimisers")
        _norm.check_groups(groups)
        for g, group in enumerate(groups):
            check(g, group)
            for i, p, order in _layout.trained(g, group, self._left_out, "optimisers on the box work in float32 (for fewer bytes on the "
                                               "wire see push= and pull=)", host=False):
                self.all.append(p)
                self.group_of.append(g)
                self.order.append(order)
                self.specs.append(Tensor(f"group {first_group + g} parameter {i} {_layout.label(order)}{tuple(p.shape)}{label}", p.numel(), g))
        self.device = _device.of(self.all, lambda i: self.specs[i].name)
        _apart.check_parameters(groups)
        self._check_apart()
        self._pieces = self._divide()

    @property
    def groups(self) -> List[int]:
        """Numbers of those that have parameters."""
        return sorted(set(self.group_of))

    def add_label(self, label: str) -> None:
        """What must not differ between workers either, in the name of the last one."""
        self.specs[-1] = dataclasses.replace(self.specs[-1], name=self.specs[-1].name + label)

    def names(self, which: List[int]) -> str:
        text = ", ".join(f"'{self.specs[i].name}'" for i in which[:3])
        more = f" and {len(which) - 3} more" if len(which) > 3 else ""
        return f"parameter{'s' if len(which) > 1 else ''} {text}{more}"

    def values(self) -> List[torch.Tensor]:
        return [p.data for p in self.all]

    def dense(self, tensors: List[torch.Tensor]) -> List[torch.Tensor]:
        """As the box sees them: the same memory."""
        return [_layout.dense(t, o) for t, o in zip(tensors, self.order)]

    def checked(self, i: int, g: torch.Tensor) -> torch.Tensor:
        """The gradient of parameter i as the box sees it."""
        what = self.specs[i].name
        if g.is_sparse or g.dtype != torch.float32 or g.device != self.all[i].device:
            _buffers.check_torch(g, f"gradient of {what}", host=self.device is None)
            raise PBoxInvalid(f"gradient of {what} has dtype {g.dtype}: needed is float32")
        if g.numel() != self.all[i].numel():
            raise PBoxInvalid(f"gradient of {what} has {g.numel()} elements")
        return _layout.dense(g, self.order[i])

    def gradients(self) -> List[Optional[torch.Tensor]]:
        return [None if p.grad is None else self.checked(i, p.grad) for i, p in enumerate(self.all)]

    def _check_apart(self) -> None:
        _apart.check(self.values(), lambda i: f"'{self.specs[i].name}'",
                     "Weights that are tied share the Parameter (b.weight = a.weight, not b.weight.data = a.weight.data)")

    # ---- changes that the box does not see

    def _divide(self) -> List[Tuple[int, int, int]]:
        """All parameters in pieces (parameter, first element, end): each of so many parts of these has about as many elements, and what changes all
        of the parameters is seen in the next step."""
        size = max(_LOOK_LEAST, sum(p.numel() for p in self.all) // _LOOK_PARTS + 1)
        return [(i, at, min(at + size, p.numel())) for i, p in enumerate(self.all) for at in range(0, p.numel(), size)]

    def remember(self, rounds: int) -> None:
        """They are as the box has them, after so many rounds."""
        self._versions = [(p._version, p.data_ptr(), p.stride(), p.device) for p in self.all]
        look = rounds < _LOOK_FIRST or rounds % _LOOK_EVERY == 0
        pieces = self._pieces if look else self._pieces[rounds % min(_LOOK_PARTS, max(1, len(self._pieces)))::_LOOK_PARTS]
        self._contents = {piece: self._content(*piece) for piece in pieces}

    def _content(self, i: int, first: int, end: int) -> int:
        flat = _layout.dense(self.all[i].data, self.order[i]).reshape(-1)
        return _content.of(flat[first:end])

    def refuse_changed(self, differ: Callable[[Set[int]], List[int]]) -> None:
        """Raise for what was changed since remember(). `differ`: which of some have other bits than the box? EMA, for one, swaps parameters and swaps
        them back."""
        suspects, moved = set(), False
        for i, (p, v) in enumerate(zip(self.all, self._versions)):
            if p.stride() != v[2] or p.dtype != torch.float32 or p.device != v[3]:
                raise PBoxInvalid(
                    f"{self.names([i])} was moved or converted after the optimiser was made "
                    f"(now {p.dtype}, {p.device}, strides {tuple(p.stride())}): convert the "
                    "model first")
            if (p._version, p.data_ptr()) != v[:2]:
                suspects.add(i)
                moved |= p.data_ptr() != v[1]
        if moved:
            self._check_apart()
        # p.data.clamp_() leaves no other trace
        suspects.update(piece[0] for piece, c in self._contents.items() if self._content(*piece) != c)
        suspects = {i for i in suspects if self.all[i].numel() > 0}
        changed = differ(suspects) if suspects else []
        if changed:
            raise PBoxInvalid(
                f"{self.names(changed)} was changed outside of step(): the box does not see "
                "that, and this step would overwrite it. Load checkpoints before making the "
                "optimiser; where all workers clamp or set weights between steps, call "
                "push_parameters() after that")
        _layout.check_left_out(self._left_out)
