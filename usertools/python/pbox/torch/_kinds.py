# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The optimisers by the names and with the arguments that they have in torch.optim."""

from typing import Any, Dict, Optional, Tuple

from ..errors import PBoxInvalid
from ._optim import BoxOptimizer

__all__ = ["SGD", "Adam", "AdamW"]

_ABSENT = ("amsgrad", "differentiable", "capturable")


def _refuse(group: Dict[str, Any]) -> None:
    for n in _ABSENT:
        if group.get(n):
            raise PBoxInvalid(f"{n} is not available on the box")


def _split(kwargs: Dict[str, Any], defaults: Dict[str, Any]) -> Dict[str, Any]:
    """torch's further arguments become defaults: `maximize` is the box's (R7.1), `foreach` and `fused` say how this host
    would compute, the others are refused."""
    names = _ABSENT + ("foreach", "fused", "maximize")
    defaults.update({k: v for k, v in kwargs.items() if k in names})
    return {k: v for k, v in kwargs.items() if k not in names}


class SGD(BoxOptimizer):
    """torch.optim.SGD on the box: plain, with momentum, or Nesterov's."""

    _hypers = ("lr", "momentum", "dampening", "weight_decay")

    def __init__(self, params: Any, lr: float, momentum: float = 0.0, dampening: float = 0.0,
                 weight_decay: float = 0.0, nesterov: bool = False, **kwargs: Any) -> None:
        if nesterov and (momentum <= 0 or dampening != 0):
            raise PBoxInvalid("nesterov needs a momentum and no dampening")
        self._nesterov = nesterov
        self._plain = momentum == 0
        self._arrays = () if momentum == 0 else ("momentum_buffer",)
        self._optimiser = "nesterov" if nesterov else "sgd" if momentum == 0 else "momentum"
        defaults = dict(lr=lr, momentum=momentum, dampening=dampening,
                        weight_decay=weight_decay, nesterov=nesterov)
        super().__init__(params, defaults, **_split(kwargs, defaults))

    def _check_group(self, number: int, group: Dict[str, Any]) -> None:
        _refuse(group)
        if bool(group["nesterov"]) != self._nesterov:
            raise PBoxInvalid(f"group {number}: nesterov must be the same in all groups")
        if self._plain and group["momentum"] != 0:
            raise PBoxInvalid(
                f"group {number} has a momentum and the optimiser was made without: pass "
                "momentum= to the constructor, and 0 in the groups that have none")
        if not self._plain and group["momentum"] == 0 and group["dampening"] != 0:
            raise PBoxInvalid(f"group {number}: dampening without momentum has no meaning")


class Adam(BoxOptimizer):
    """torch.optim.Adam on the box (no amsgrad)."""

    _optimiser = "adam"
    _hypers = ("lr", "weight_decay", "eps")
    _arrays = ("exp_avg", "exp_avg_sq")
    _counted = True
    _weight_decay = 0.0

    def __init__(self, params: Any, lr: float = 1e-3,
                 betas: Tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: Optional[float] = None, amsgrad: bool = False,
                 **kwargs: Any) -> None:
        if weight_decay is None:
            weight_decay = self._weight_decay
        defaults = dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad)
        super().__init__(params, defaults, **_split(kwargs, defaults))

    def _check_group(self, number: int, group: Dict[str, Any]) -> None:
        _refuse(group)


class AdamW(Adam):
    """torch.optim.AdamW on the box (no amsgrad)."""

    _optimiser = "adamw"
    _weight_decay = 1e-2
