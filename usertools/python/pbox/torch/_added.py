# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Groups of parameters that come to an optimiser on the box after it was made: the box gets a table more for each."""

from typing import TYPE_CHECKING, Any, Dict

from ..errors import PBoxInvalid
from . import _apart
from ._session import between_rounds

if TYPE_CHECKING:
    from ._optim import BoxOptimizer


def check(owner: "BoxOptimizer") -> None:
    """Raise where it cannot be, or not now."""
    what = "add_param_group() of an optimiser that was made"
    if owner._failed is not None:
        raise owner._failed
    if owner.client.policy != "wait":
        raise PBoxInvalid(f"{what}: with policy={owner.client.policy!r} a job has the tables that it began with; pass all groups to the constructor, with lr=0 "
                          "for what is not to be trained yet")
    if owner._compress.active:
        raise PBoxInvalid(f"{what}: with compress= all parameters have one table; pass all groups to the constructor")
    if owner._phases.active:
        raise PBoxInvalid(f"{what}: with max_norm= or skip_nonfinite= all parameters have one norm, and so one table; pass all groups to the constructor")
    if owner._went_on:
        raise PBoxInvalid(f"{what}, and has gone on from a checkpoint (first_round): the others are past the step in which they added the group. Start all workers "
                          "again from a checkpoint, with all groups in the constructor")
    if owner._todo:
        raise PBoxInvalid(f"{what}: the last step has not ended: call wait(), or give up")
    between_rounds(owner.client, what)


def made_of(owner: "BoxOptimizer", group: Dict[str, Any]) -> "BoxOptimizer":
    """What trains a group that was added: one with a table of its own."""
    kind: Any = next(c for c in type(owner).__mro__ if "_optimiser" in vars(c) or "_hypers" in vars(c))
    new = [p for p in group["params"] if p.requires_grad]
    _apart.check_parameters(owner.param_groups)
    _apart.check([p.data for o in owner._parts() for p in o._params.all] + [p.data for p in new], lambda i: f"parameter {i}",
                 "Weights that are tied share the Parameter (b.weight = a.weight, not b.weight.data = a.weight.data)")
    how = owner._how
    made: BoxOptimizer = kind([group], **owner.defaults, part_of=owner, client=owner.client, op=how.op, push=how.push, pull=how.pull, slots=how.slots,
                              local_clip=owner.local_clip, local_backward=owner._local_backward)
    return made
