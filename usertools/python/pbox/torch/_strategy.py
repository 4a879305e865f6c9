# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""How the steps of an optimiser on the box become rounds: one class a mode, of which the constructor chooses one.

    Whole      each step() is a round                                   _whole.py
    BySlots    step() ends a slot, the last of this worker the round    _by_slots.py
    ByPlan     the box says which slots (policy reassign)               _by_plan.py
    SendsEarly ... whose last gradients leave during backward()         _sends_early.py
    Ahead      ... some of which are computed a round before            _ahead.py

A strategy has all state of its mode. The optimiser asks it, and never which it is. What all have alike (hyper-parameters, the agreement of workers, what is
left to do of a step, torch's face) is the optimiser's, `owner`; how bytes leave is the exchange's (_exchange.py).
"""

from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set

import torch

from ..errors import PBoxInvalid
from . import _layout
from ._exchange import wire_type
from ._slots import Slots
from ._stale import Stale

if TYPE_CHECKING:
    from ._optim import BoxOptimizer

Step = Callable[[Optional[float]], None]
SAMPLED = ("sample_mean", "weighted_mean")


class How(NamedTuple):
    """What the constructor got."""
    op: str
    push: str
    pull: str
    slots: Optional[int]
    max_norm: Optional[float]
    skip_nonfinite: bool
    compress: Any  # "auto", a list, or None
    compresses_pull: bool
    sends_early: bool
    quarters: int  # ahead=
    steals: bool

    @property
    def phases(self) -> bool:
        """Have rounds two?"""
        return self.max_norm is not None or self.skip_nonfinite


class Strategy:
    """What a step does, in the order in which the optimiser asks for it: while it is made (begin, start), in each step (check_samples, begin_step, step), in a round
    (first, fill, gradients, told, submit, last, wait, take, end_round, round_is_here), and between rounds. This class itself is that of a copy
    of an optimiser, which makes no steps."""

    WHAT = "gradient"  # that is pushed
    NODES = 1  # sums that a round has of this worker, at most
    slots: Optional[Slots] = None
    stale: Optional[Stale] = None
    wire_op = "mean"  # what the box makes of the contributions
    newcomer = False  # has this worker come to a running job, and no slots yet?
    stalled: Optional[float] = None  # seconds that the last result was waited for; None: since the push began
    stolen = lost = early_tensors = 0  # slots, and tensors, so far

    def __init__(self, owner: "BoxOptimizer") -> None:
        self.owner = owner

    @property
    def shares(self) -> int:
        """Of how many gradients a step makes the mean."""
        raise AttributeError("a copy of an optimiser takes no part in the job")

    @property
    def leads(self) -> bool:
        """Is this the one worker that saves and evaluates?"""
        return self.owner.client.worker == 0

    # ---- while the optimiser is made

    def begin(self) -> None:
        """The table is declared: raise for what does not go together, and ask for the plan."""

    def prepared(self) -> None:
        """The exchange has its buffers."""

    def start(self, timeout: float, late: bool, first_round: int) -> None:
        """All have the same parameters now. `late`: this worker comes to a running job."""

    def made(self) -> None:
        """All else is: gradients may be watched from now on."""

    # ---- a step

    def check_samples(self, samples: int) -> None:
        """Raise for so many of a step that are too many."""

    def begin_step(self) -> None:
        """A step() is called: raise where it is another's turn."""

    def step(self, samples: int, scaler: Any) -> None:
        """The gradients of a step are complete."""
        raise NotImplementedError

    # ---- a round

    def first(self) -> Sequence[Step]:
        """What comes before all else of it."""
        return ()

    def gradients(self) -> Sequence[Optional[torch.Tensor]]:
        """All that this worker brings, for samples of it."""
        raise NotImplementedError

    def fill(self, keep: List[torch.Tensor]) -> List[bool]:
        """Give the exchange what this worker brings. Which parameters have a gradient here?"""
        raise NotImplementedError

    def told(self) -> Dict[str, float]:
        """What all workers must have alike, beside hyper-parameters."""
        return {}

    def submit(self, keep: List[torch.Tensor], samples: int) -> Any:
        """Push what was filled in; something to wait for."""
        raise NotImplementedError

    @property
    def last(self) -> Step:
        """How a step ends that has pushed."""
        return self.owner._end

    def wait(self, timeout: Optional[float]) -> bool:
        """For the result. False: the round goes on, with slots that have come to this worker."""
        self.owner._pending.wait(timeout)
        return True

    def take(self) -> None:
        """The result is here, for the parameters."""
        self.owner._exchange.take()

    def end_round(self) -> None:
        """It was made, or all have left it out."""

    def round_is_here(self) -> None:
        """It was made, and the next one begins."""

    def refused(self, error: PBoxInvalid) -> PBoxInvalid:
        """What this worker has cannot be sent: is that the end?"""
        return error

    def discard(self) -> None:
        """The gradients of this step are not finite: it is made again, or another one in its place."""

    def where(self) -> str:
        """Of a message about this step."""
        return ""

    def differ(self, suspects: Set[int]) -> List[int]:
        """Which of these parameters have other bits than the box?"""
        params = self.owner._params
        dtype = wire_type(self.owner._how.pull)
        theirs = {i: _layout.dense(torch.empty_like(params.all[i].data, dtype=dtype, device="cpu"), params.order[i]) for i in suspects}
        self.owner.table.pull(theirs).wait()
        return sorted(
            i for i, t in theirs.items() if not torch.equal(
                t.float().view(torch.int32),
                _layout.dense(params.all[i].data.cpu(), params.order[i]).view(torch.int32)))

    # ---- between rounds

    def agree(self, value: float, timeout: Optional[float]) -> float:
        """See BoxOptimizer.agree()."""
        raise NotImplementedError

    def enter(self) -> None:
        """This worker is to compute: a newcomer gets the model and its slots now."""

    def push_waiting(self) -> None:
        """A round whose slots were all computed ahead goes."""

    def idle(self) -> None:
        """A round in which this worker has no slots: only its result."""
        raise AssertionError("fixed shares have a slot at least")

    def sampler_made(self) -> None:
        """The slots have a sampler now."""

    def check_push_parameters(self) -> None:
        """Raise where parameters that are changed between steps come too late."""

    def save(self, state: Dict[str, Any]) -> None:
        """Into a state_dict()."""

    def load(self, state: Dict[str, Any]) -> None:
        """From one."""

    def close(self) -> None:
        """Watch nothing any more."""


def refuse_without_plan(how: How) -> None:
    """Options of work by plan, where there is none."""
    if how.steals:
        raise PBoxInvalid("steal=True is for policy='reassign': with another one a slot has one worker")
    if how.sends_early:
        refuse_early()
    if how.quarters:
        refuse_ahead()


def refuse_early() -> None:
    raise PBoxInvalid("send_early=True: results come while backward() still reads the parameters, so it is for policy='reassign' with "
                      "pull='fp32', where they have a place of their own")


def refuse_ahead() -> None:
    raise PBoxInvalid("ahead= is for policy='reassign' with pull='fp32'")
