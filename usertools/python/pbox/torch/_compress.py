# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""compress=: in which rounds an optimiser on the box takes a format of blocks, and in which fp32 (doc/protocol.md R13.10).

Pushes are each worker's own; results are worker 0's to choose, by SET. With "auto" the choice is made by what an exchange costs beyond the
computation, and by the error of a sample; a list repeats what another run has chosen. Where the exchange is hidden fp32 stays.
"""

import logging
import math
import statistics
import time
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch

from .. import _buffers, _checks
from ..client import Table
from ..errors import PBoxInvalid, PBoxMismatch, PBoxRefused
from . import _blocks

_log = logging.getLogger("pbox")
# why, as SET says it (R13.10)
NOTHING, LISTED, EXPOSED, HIDDEN, NO_GAIN, ERROR = range(6)
_WHY = {LISTED: "as the list says", EXPOSED: "{exposed:.0%} of a round is the exchange", HIDDEN: "{exposed:.1%} of a round is the exchange",
        NO_GAIN: "a round was not shorter", ERROR: "the error of a sample is {error:.1%}"}
FIRST = 8  # rounds before the first change
APART = 20  # rounds between changes
WARM = 3  # of these the first ones do not count
EXPOSED_FROM, HIDDEN_BELOW = 0.10, 0.02  # of a round
GAIN = 0.05  # of a round that a step must save
AGAIN, AGAIN_MOST = 200, 6400  # rounds before what has not helped is tried again, and twice as many the next time
SAMPLE_EVERY, SAMPLE_UNITS = 50, 64  # rounds; of 128 elements
SAY_EVERY = 50  # rounds: who says what results are in may have been away when the box began again
# Of a sample: the norm of what codes do not say, by that of the gradient. Normal values have 0.7 and 11 percent.
MOST_ERROR = {"int8": 0.02, "mxfp4": 0.17}

Entry = Tuple[int, str, str]


class Choice(NamedTuple):
    """From a round on: formats of pushes and of results, and why."""
    round: int
    push: str
    pull: str
    why: int


def parse(compress: Any, push: str, pull: str, pulls: bool) -> Tuple[Union[str, List[Entry]], str, str]:
    """compress= checked: "auto" or entries in the order of their rounds, and the formats of blocks of pushes and results. `pulls`: may results be in one?"""
    entries: Union[str, List[Entry]] = compress
    named: List[str] = []
    if not isinstance(compress, str):
        entries = []
        try:
            rows = [tuple(e) for e in compress]
        except TypeError:
            rows = []
        for row in rows:
            if len(row) not in (2, 3) or not all(isinstance(x, str) for x in row[1:]):
                raise PBoxInvalid(f"compress has {row!r}: (round, format), or (round, format of pushes, format of results) is taken")
            at = _checks.whole(row[0], "a round of compress", _checks.U32)
            up, down = str(row[1]), str(row[-1])
            if at < 1 or (entries and at <= entries[-1][0]):
                raise PBoxInvalid(f"compress has round {at}: rounds begin with 1, and each is later than the one before it")
            entries.append((at, up, down if pulls else "fp32"))
            named += [up, down]
        if not rows:
            raise PBoxInvalid("compress is a list without entries, or none: 'auto', or [(1, 'fp32'), (200, 'int8')] is taken")
    elif compress != "auto":
        raise PBoxInvalid(f"compress={compress!r}: 'auto', or a list as [(1, 'fp32'), (200, 'int8')] is taken")
    for name in named:
        if name != "fp32" and name not in _buffers.BLOCKS:
            raise PBoxInvalid(f"compress has the format {name!r}: fp32, int8 and mxfp4 are taken")
    up = _one("push", push, [e[1] for e in entries] if not isinstance(entries, str) else [])
    down = _one("pull", pull, [e[2] for e in entries] if not isinstance(entries, str) else []) if pulls else pull
    return entries, up, down


def _one(what: str, given: str, named: Sequence[str]) -> str:
    """A table has one format of blocks each way."""
    blocks = sorted({n for n in named if n != "fp32"} | ({given} & set(_buffers.BLOCKS)))
    if given != "fp32" and given not in _buffers.BLOCKS:
        raise PBoxInvalid(f"compress= and {what}={given!r}: it chooses between fp32 and int8 or mxfp4; leave {what}= out, or name one of these")
    if len(blocks) > 1:
        raise PBoxInvalid(f"compress= and {what}= name {' and '.join(blocks)}: beside fp32 a table has one of them")
    return blocks[0] if blocks else "int8"


def error_of(fmt: str, gradients: Sequence[Optional[torch.Tensor]]) -> float:
    """Of a sample of units of the largest gradients: the norm of what codes do not say, by that of the values. Infinite, where one is not finite."""
    found = sorted((g for g in gradients if g is not None and not g.is_sparse and g.numel() > 0), key=lambda g: -g.numel())[:8]
    lost = whole = 0.0
    for g in found:
        flat = g.detach().reshape(-1)
        n = min(flat.numel(), SAMPLE_UNITS // len(found) * _blocks.UNIT)
        at = (flat.numel() - n) // 2 // _blocks.UNIT * _blocks.UNIT
        v = flat[at:at + n].to("cpu", torch.float32)
        value, _ = _blocks.sent(fmt, v, torch.zeros_like(v))
        lost += float((v - value).double().square().sum())
        whole += float(v.double().square().sum())
    if math.isnan(lost) or math.isinf(whole):
        return math.inf
    return math.sqrt(lost / whole) if whole > 0 else 0.0


class Ladder:
    """The choice from what rounds have taken. Steps: fp32 both ways, then pushes in codes, then (worker 0) results too."""

    def __init__(self, steps: int) -> None:
        self.top = steps - 1
        self.step = 0
        self.why = NOTHING
        self._since = 0  # rounds since the last change
        self._apart = FIRST
        self._window: List[Tuple[float, float]] = []
        self._before = [math.inf] * steps  # a round's seconds at the step below, when this one was taken
        self._tried = [False] * steps
        self._not_before = [0] * steps
        self._delay = [AGAIN] * steps
        self._stays = [AGAIN] * steps  # so many rounds, before it is left because the exchange is hidden
        self._bad_until, self._known = 0, False
        self._rounds = 0
        self.exposed, self.error = 0.0, 0.0

    def ended(self, seconds: float, exposed: float, error: Optional[float], most_error: float) -> bool:
        """A round has, in so many seconds, of which `exposed` were the exchange. True: another step is taken."""
        self._rounds += 1
        self._since += 1
        if error is not None:
            self.error, self._known = error, True
            if error > most_error:
                self._bad_until = self._rounds + AGAIN
        if self._since > WARM:
            self._window = [*self._window[-APART:], (seconds, exposed)]
        if self._since < self._apart or len(self._window) < FIRST - WARM:
            return False
        round_ = statistics.median(s for s, _ in self._window)
        self.exposed = statistics.median(e for _, e in self._window) / round_ if round_ > 0 else 0.0
        if self.step > 0 and self._bad_until > self._rounds:
            return self._go(-self.step, ERROR)  # it is of pushes
        if self._tried[self.step] and round_ > (1 - GAIN) * self._before[self.step]:
            self._not_before[self.step] = self._rounds + self._delay[self.step]
            self._delay[self.step] = min(2 * self._delay[self.step], AGAIN_MOST)
            return self._go(-1, NO_GAIN)
        self._tried[self.step] = False
        up = self.step + 1
        if self.exposed >= EXPOSED_FROM and up <= self.top and self._rounds >= self._not_before[up] and \
                self._known and self._bad_until <= self._rounds:
            self._before[up], self._tried[up] = round_, True
            return self._go(1, EXPOSED)
        if self.exposed < HIDDEN_BELOW and self.step > 0 and self._since >= self._stays[self.step]:
            self._stays[self.step] = min(2 * self._stays[self.step], AGAIN_MOST)
            return self._go(-1, HIDDEN)
        return False

    def _go(self, by: int, why: int) -> bool:
        self.step += by
        self.why, self._since, self._apart, self._window = why, 0, APART, []
        return True


class Off:
    """Without compress=: every round is in the formats of the table."""

    active = False
    results: Optional[int] = None
    entries: Sequence[Entry] = ()

    def round_begins(self, gradients: Optional[Callable[[], Sequence[Optional[torch.Tensor]]]]) -> None:
        pass

    def ended(self, stalled: Optional[float]) -> None:
        pass

    def said(self) -> None:
        pass


class Compress:
    """Of one table."""

    active = True

    def __init__(self, table: Table, entries: Union[str, List[Entry]], push: str, pull: str, pulls: bool) -> None:
        self.table, self._push, self._pull = table, push, pull
        self._leads = pulls and table.client.worker == 0
        self._entries = entries if isinstance(entries, list) else None
        self._ladder = Ladder(3 if self._leads else 2)
        self._asked = self._ended = 0.0
        self._error: Optional[float] = None
        self._rounds = 0
        self._set: Optional[int] = None  # what SET has said of results
        self.chosen: List[Choice] = []

    @property
    def entries(self) -> List[Entry]:
        """What compress= repeats this run with."""
        return [(c.round, c.push, c.pull) for c in self.chosen]

    def begins(self, gradients: Optional[Sequence[Optional[torch.Tensor]]]) -> None:
        """Before the push of the table's next round; of None there is no sample."""
        self._asked = time.monotonic()
        at = self.table.next_round
        now = self._listed(at) if self._entries is not None else self._measured(at)
        if not self.chosen or (now.push, now.pull) != (self.chosen[-1].push, self.chosen[-1].pull):
            self._take(now)
        if self._rounds % SAMPLE_EVERY == 0 and self._entries is None and gradients is not None:
            self._error = error_of(self._push, gradients)
        if self._rounds % SAY_EVERY == 0:
            self._set = None

    def round_begins(self, gradients: Optional[Callable[[], Sequence[Optional[torch.Tensor]]]]) -> None:
        """As begins(); `gradients` makes them."""
        self.begins(None if gradients is None else gradients())

    def ended(self, stalled: Optional[float]) -> None:
        """The round has. `stalled`: so long its result was waited for; None: since its push began."""
        now = time.monotonic()
        before, self._ended = self._ended, now
        seconds = now - before
        self._rounds += 1
        # one in which this worker had nothing to push says nothing
        if self._rounds > 1 and self._entries is None and self._asked >= before:
            self._ladder.ended(seconds, now - self._asked if stalled is None else stalled, self._error, MOST_ERROR[self._push])
            self._error = None

    @property
    def results(self) -> Optional[int]:
        """What this worker has to SET for the next round (R13.10); None: nothing. said() when it has."""
        now = self.chosen[-1]
        value = 2 * now.why + (now.pull == "fp32")
        return value if self._leads and (self._set is None or self._set % 2 != value % 2) else None

    def said(self) -> None:
        self._set = self.results

    def _listed(self, at: int) -> Choice:
        assert self._entries is not None
        held = [e for e in self._entries if e[0] <= at] or [(1, "fp32", "fp32")]
        return Choice(at, held[-1][1], held[-1][2], LISTED)

    def _measured(self, at: int) -> Choice:
        step = self._ladder.step
        return Choice(at, self._push if step > 0 else "fp32", self._pull if step > 1 else "fp32", self._ladder.why)

    def _take(self, now: Choice) -> None:
        if not self.chosen or now.push != self.chosen[-1].push:
            self.table.plain(now.push == "fp32", now.round)
        why = _WHY.get(now.why, "").format(exposed=self._ladder.exposed, error=self._ladder.error)
        if self.chosen or now.why == LISTED:
            pull = f", results in {now.pull}" if self._leads else ""
            _log.info("compress: from round %d on pushes in %s%s%s", now.round, now.push, pull, why and f" ({why})")
        self.chosen.append(now)


class Pass:
    """Of a hook: backward passes in place of steps. What is exposed is from the last bucket's departure to the last one's return."""

    def __init__(self) -> None:
        self.of: Optional[Compress] = None
        self._left = self._back = 0.0
        self._first = True

    def bucket(self, buffer: torch.Tensor, last: bool) -> None:
        """One is about to leave."""
        if self.of is None:
            return
        if self._first:
            if self._left > 0:
                self.of.ended(max(0.0, self._back - self._left))
            self.of.begins([buffer] if buffer.dtype == torch.float32 else None)
            self._say(self.of)
        self._first = last
        if last:
            self._left = time.monotonic()

    def _say(self, of: Compress) -> None:
        value = of.results
        if value is None:
            return
        try:
            of.table.set_hyper(plain=value)
        except (PBoxMismatch, PBoxRefused) as e:
            # policy shrink: the round has ended without this worker; or this process goes on for one that has said it otherwise
            if "already finished" not in str(e) and "plain" not in str(e):
                raise
            return
        of.said()

    def reduced(self) -> None:
        """One has come back; any thread."""
        self._back = time.monotonic()
