# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Workers that come back to a job with policy shrink: between rounds, which compare nothing. So the job's hyper-parameters are read, or left alone."""

import logging
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from ..client import ANY_ROUND
from ..errors import PBoxMismatch
from ._agree import Hypers
from ._rates import Rates

if TYPE_CHECKING:
    from ._optim import BoxOptimizer

_log = logging.getLogger("pbox")


class Stays:
    """Nobody comes back: rounds wait for all, or there is one worker, or its slots are given to it as they are to a new one."""

    back = False  # has this worker come back, and made no step since?
    follows = False  # do schedulers that follow go by the rounds of this run?

    def changes(self, found: Hypers) -> Hypers:
        """What of the hyper-parameters that have changed this worker sends."""
        return found

    def meet(self, timeout: Optional[float]) -> None:
        """The first step of a worker that has come back: are its values those of the job?"""

    def say(self) -> None:
        """A round begins: others may read with what."""

    def catch_up(self, followers: Any) -> None:
        """Schedulers that follow step to where the training is."""


class Shrinks(Stays):
    """With slots, where nobody can read what the others' hyper-parameters are."""

    def __init__(self, back: bool) -> None:
        self.back = self._silent = back
        if back:
            _log.warning("this worker has come back to a job with policy='shrink' and slots, where nobody can read what the others' hyper-parameters are: it leaves "
                         "them to the others, and its own are not sent")

    def changes(self, found: Hypers) -> Hypers:
        return [{} for _ in found] if self._silent else found

    def meet(self, timeout: Optional[float]) -> None:
        self.back = False


class Reads(Stays):
    """Without slots: each writes its values where the others can read them."""

    follows = True

    def __init__(self, owner: "BoxOptimizer", back: bool, timeout: float, first_round: int) -> None:
        self._owner = owner
        self._base: Dict[int, int] = {}  # by schedule: steps before this run
        self.back = back
        self._rates = Rates(owner.client, [f"{k} of group {g}" for g in range(len(owner.param_groups)) for k in owner._sent.compared(g)], timeout,
                            ANY_ROUND if back else first_round)
        self._said: List[float] = []

    def _values(self) -> List[float]:
        return [v for g in range(len(self._owner.param_groups)) for v in self._owner._sent.compared(g).values()]

    def catch_up(self, followers: Any) -> None:
        if followers and not self.back:
            self._follow_to(self._owner.table.next_round - 1)

    def _follow_to(self, rounds: int) -> None:
        """Without slots: schedulers that follow go by the rounds of this run."""
        for s in self._owner._followers:
            if id(s) not in self._base:  # of a checkpoint of an earlier run, in which steps were counted too
                self._base[id(s)] = 0 if self.back else max(0, s.last_epoch - rounds)
            while s.last_epoch < rounds + self._base[id(s)]:
                setattr(self._owner, "_opt_called", True)
                s.step()

    def meet(self, timeout: Optional[float]) -> None:
        if not self.back:
            return
        owner = self._owner
        found = self._rates.latest(timeout)
        if found is not None:
            who, theirs = found
            self._follow_to(theirs.step - 1)
            text = self._rates.difference(self._values(), theirs.values)
            if text:
                raise PBoxMismatch(
                    f"worker {owner.client.worker} has come back to a running job, and its hyper-parameters are not those with which worker {who} has made round "
                    f"{theirs.step}: {text} here. It would set them for all: give it the same values, and schedulers to optimiser.follow(), which brings them to "
                    "where the training is")
            owner._sent.values = [owner._sent.group(g) for g in range(len(owner.param_groups))]
        self.back = False
        self._follow_to(owner.table.next_round - 1)

    def say(self) -> None:
        values = self._values()
        if values != self._said and self._rates.say(self._owner.table.next_round, values):
            self._said = values


def choose(owner: "BoxOptimizer", timeout: float, first_round: int) -> Stays:
    client = owner.client
    if client.policy != "shrink" or client.workers == 1:
        return Stays()
    back = owner.table.next_round > 1
    return Shrinks(back) if owner._strategy.slots is not None else Reads(owner, back, timeout, first_round)
