# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A round in two phases: clipping by the norm of the whole gradient, and steps that are left out.

The box sums the pushes of a round and keeps the sums. All workers hear the norm of all of it, set the same coefficient for the
round, and pull: the first pull of a fragment makes its step, of coefficient x sum (doc/protocol.md R6.15).
"""

import math
import struct
from typing import Any, Callable, Optional

from ..client import Operation, Table
from ..errors import PBoxInvalid, PBoxLost, PBoxMismatch, PBoxRefused

SKIP = -1.0  # the coefficient of a step that is left out
_MOST = 64  # restarts of the box in one round, before it is an error


def coefficient(norm: float, max_norm: float) -> float:
    """As torch.nn.utils.clip_grad_norm_ has it, rounded to fp32."""
    c = min(1.0, max_norm / (norm + 1e-6)) if max_norm else 1.0
    return float(struct.unpack("<f", struct.pack("<f", c))[0])


class Phases:
    """The rounds of one table."""

    def __init__(self, table: Table, max_norm: Optional[float], skip_nonfinite: bool) -> None:
        self.table = table
        self.max_norm = 0.0 if max_norm is None else max_norm
        self.skip_nonfinite = skip_nonfinite
        self.norm = math.nan  # of the last round
        self.skipped = 0
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
        elif self.skip_nonfinite:
            self._decided = SKIP
            self.skipped += 1
        else:
            raise PBoxInvalid(
                f"step of round {self.round}: {non_finite} elements of the gradient of all workers are infinite, NaN, or beyond 2^55 max_norm, so it has no norm: "
                "no worker has made this step. Take skip_nonfinite=True to leave such steps out, or lower the learning rate")

    def _set(self, _timeout: Optional[float]) -> bool:
        if self._decided is not None:
            try:
                self._say(self.round, self._decided)
            except (PBoxMismatch, PBoxRefused) as e:
                # a restarted box has the version already, of somebody who had set it
                if "already finished" not in str(e):
                    raise
        self._pending = self._pull()
        self._phase = self._wait_pull
        return False

    def _wait_pull(self, timeout: Optional[float]) -> bool:
        assert self._pending is not None
        self._pending.wait(timeout)
        return True


def check(max_norm: Any, skip_nonfinite: bool, policy: str, on_host: bool) -> None:
    """What cannot be clipped on the box is refused by name."""
    if max_norm is not None and not 0 < max_norm < math.inf:
        raise PBoxInvalid(f"max_norm is {max_norm}: needed is a number above 0, or None (off)")
    what = "max_norm=" if max_norm is not None else "skip_nonfinite="
    if policy != "wait":
        raise PBoxInvalid(f"{what} and policy={policy!r}: rounds in two phases are for policy='wait' so far")
    if not on_host:
        raise PBoxInvalid(f"{what}: rounds in two phases are for parameters on the CPU so far. On a GPU take an optimiser of torch.optim with the hook "
                          "(pbox.torch.register), where clip_grad_norm_ sees the mean")
