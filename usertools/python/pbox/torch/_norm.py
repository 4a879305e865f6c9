# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A round in two phases: clipping by the norm of the whole gradient, and steps that are left out.

The box sums the pushes of a round and keeps the sums. All workers hear the norm of all of it, set the same coefficient for the
round, and pull: the first pull of a fragment makes its step, of coefficient x sum (doc/protocol.md R6.15).
"""

import logging
import math
import struct
from typing import Any, Callable, Dict, Optional, Sequence

from .. import _checks
from ..client import Operation, Table
from ..errors import PBoxInvalid, PBoxLost
from . import _finite

_log = logging.getLogger("pbox")

SKIP = -1.0  # the coefficient of a step that is left out
_LEAST, _LARGEST = 2.0 ** -126, 2.0 ** 127  # of max_norm: what the box has in fp32, and its squares
_MOST = 64  # restarts of the box in one round, before it is an error


def coefficient(norm: float, max_norm: float) -> float:
    """As torch.nn.utils.clip_grad_norm_ has it, rounded to fp32."""
    c = min(1.0, max_norm / (norm + 1e-6)) if max_norm else 1.0
    return float(struct.unpack("<f", struct.pack("<f", c))[0])


class OnePhase:
    """The rounds of a table without."""

    active = False
    max_norm = 0.0
    skip_nonfinite = False
    skipped = 0
    hypers: Dict[str, float] = {}

    @property
    def norm(self) -> float:
        raise PBoxInvalid("grad_norm is for max_norm= or skip_nonfinite=: without, the box makes the step before anybody knows the norm")

    def save(self, state: Dict[str, Any]) -> None:
        pass

    def load(self, state: Dict[str, Any]) -> None:
        pass


class Phases:
    """The rounds of one table."""

    active = True

    def __init__(self, table: Table, max_norm: Optional[float], skip_nonfinite: bool) -> None:
        self.table = table
        self.max_norm = 0.0 if max_norm is None else max_norm
        self.skip_nonfinite = skip_nonfinite
        self.hypers = {"max_norm": self.max_norm}  # of each group
        self.norm = math.nan  # of the last round
        self.skipped = 0
        self._told = _finite.Told()
        self._pending: Optional[Operation] = None
        self._phase: Callable[[Optional[float]], bool] = self._wait_push

    def begin(self, push: Callable[[bool], Operation], pull: Callable[[], Operation],
              say: Callable[[int, float], None]) -> None:
        """Push a round. push(again), and the pull of its result; say(round, coefficient) sets that for all groups."""
        self._push, self._pull, self._say = push, pull, say
        self.round = self.table.next_round
        self._decided: Optional[float] = None
        self._times = 0
        self.norm = math.nan
        self._pending = push(False)
        self._phase = self._wait_push

    def end(self, timeout: Optional[float]) -> None:
        """Until the result is here. After PBoxDeadline it may be called again."""
        while True:
            try:
                if self._phase(timeout):
                    return
            except PBoxLost:
                self._times += 1
                if self._times > _MOST:
                    raise
                # the box was restarted, and what it had of this round is gone: the gradients are here still
                self._pending = self._push(True)
                self._phase = self._wait_push

    def save(self, state: Dict[str, Any]) -> None:
        state["skipped_nonfinite"] = self.skipped

    def load(self, state: Dict[str, Any]) -> None:
        """Of an optimiser without, or of an earlier release: 0."""
        self.skipped = _checks.whole(state.get("skipped_nonfinite", 0), "skipped_nonfinite of the state", _checks.U32)

    def _wait_push(self, timeout: Optional[float]) -> bool:
        assert self._pending is not None
        self._pending.wait(timeout)
        self._phase = self._ask
        return False

    def _ask(self, timeout: Optional[float]) -> bool:
        m = self.table.norm(self.round, self.max_norm, timeout)
        if m.known:
            self.norm = math.sqrt(m.square) if m.non_finite == 0 else math.inf
        if m.known and self._decided is None:
            self._decide(m.non_finite)
        elif self._decided is None and m.coefficient != 0:
            self._decided = m.coefficient
            self.skipped += m.coefficient == SKIP
        self._phase = self._set
        return False

    def _decide(self, non_finite: int) -> None:
        if non_finite == 0:
            self._decided = coefficient(self.norm, self.max_norm)
            return
        found = _finite.sender(self.table.client)
        if self.skip_nonfinite:
            self._decided = SKIP
            self.skipped += 1
            times = self._told.due()
            if times and found:
                _log.warning("step of round %d is left out by all workers%s (%d so far)", self.round, found, self.skipped)
        else:
            raise PBoxInvalid(
                f"step of round {self.round}: {non_finite} elements of the gradient of all workers are infinite, NaN, or beyond 2^55 max_norm, so it has no norm: "
                f"no worker has made this step. Take skip_nonfinite=True to leave such steps out, or lower the learning rate{found}")

    def _set(self, _timeout: Optional[float]) -> bool:
        if self._decided is not None:
            self._say(self.round, self._decided)
        self._pending = self._pull()
        self._phase = self._wait_pull
        return False

    def _wait_pull(self, timeout: Optional[float]) -> bool:
        assert self._pending is not None
        self._pending.wait(timeout)
        return True


class Clipping:
    """What an optimiser says of its rounds in two phases."""

    _phases: Any = OnePhase()  # or Phases

    @property
    def max_norm(self) -> Optional[float]:
        """As the constructor got it."""
        return self._phases.max_norm or None

    @max_norm.setter
    def max_norm(self, value: Any) -> None:
        raise PBoxInvalid(f"max_norm = {value}: it is fixed when the optimiser is made, as all workers need the same in each round. {_ANEW}")

    @property
    def skip_nonfinite(self) -> bool:
        """As the constructor got it."""
        return bool(self._phases.skip_nonfinite)

    @skip_nonfinite.setter
    def skip_nonfinite(self, value: Any) -> None:
        raise PBoxInvalid(f"skip_nonfinite = {value}: it is fixed when the optimiser is made, as all workers need the same in each round. {_ANEW}")

    @property
    def grad_norm(self) -> float:
        """With max_norm or skip_nonfinite: the norm of the gradient of the last step, before it was clipped; inf where the step was left out. NaN: not
        known, as there was no step, or the box was restarted within it."""
        return float(self._phases.norm)

    @property
    def skipped_nonfinite(self) -> int:
        """Steps that all workers have left out so far, as the gradient was not finite (skip_nonfinite); state_dict() has it."""
        return int(self._phases.skipped)


_ANEW = "To change it, save state_dict(), close() the optimiser at all workers, make one with the new value, and load the state"


def number(max_norm: Any) -> Optional[float]:
    """What max_norm= may be."""
    if max_norm is None:
        return None
    allowed = f"needed is a number from {_LEAST:.2g} to {_LARGEST:.2g}, or None (off)"
    try:
        x = _checks.real(max_norm, "max_norm")
    except PBoxInvalid:
        raise PBoxInvalid(f"max_norm is {max_norm!r:.80}: {allowed}") from None
    if not _LEAST <= x <= _LARGEST:
        raise PBoxInvalid(f"max_norm is {x:g}: {allowed}")
    return x


def check_groups(groups: Sequence[Dict[str, Any]]) -> None:
    """The norm is that of all groups, so a group has no value of its own."""
    for g, group in enumerate(groups):
        for name in ("max_norm", "skip_nonfinite"):
            if name in group:
                raise PBoxInvalid(f"param_groups[{g}] has {name}={group[name]!r:.80}, which nothing would look at: it is one value for all groups, an argument of the "
                                  f"constructor. Remove it from the group. {_ANEW}")
