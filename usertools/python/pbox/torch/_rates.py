# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""With which hyper-parameters do the others train?

Where workers go in steps of their own, or come back between rounds, no round compares them. So each writes its values, and the step from which
they hold, into a row of a table in clocks, and reads the others'. Numbers are whole ones of 16 bits, which fp32 adds up exactly.
"""

import logging
import struct
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from ..client import Client, Operation, Tensor

_log = logging.getLogger("pbox")
EVERY = 0.5  # seconds between two exchanges, at least
_MOST = 64  # values that are compared
_HEAD = 3  # the step, and a sum of all the rest: a row may be seen when half of it has been written


class Said(NamedTuple):
    step: int
    values: Tuple[float, ...]


def _row(said: Said) -> List[int]:
    words = [w for v in said.values for w in struct.unpack("<4H", struct.pack("<d", v))]
    step = [said.step & 0xFFFF, said.step >> 16 & 0xFFFF]
    return [(sum(words) + sum(step)) % 0xFFFF + 1, *step, *words]


def _said(row: Sequence[float]) -> Optional[Said]:
    check, low, high, *words = (int(x) for x in row)
    if check != (sum(words) + low + high) % 0xFFFF + 1:
        return None
    values = tuple(struct.unpack("<d", struct.pack("<4H", *words[i:i + 4]))[0] for i in range(0, len(words), 4))
    return Said(low | high << 16, values)


class Rates:
    """All workers make one with the same names."""

    def __init__(self, client: Client, names: Sequence[str], timeout: Optional[float], first_round: int) -> None:
        self._client, self.names = client, list(names)[:_MOST]
        self._size = _HEAD + 4 * len(self.names)
        n = client.workers * self._size
        self._table = client.declare([Tensor("hyper-parameters of each worker", n)], mode="optimiser", op="sum", optimiser="add", discipline="clock",
                                     timeout=timeout, first_round=first_round)
        if client.worker == 0:
            self._table.init([torch.zeros(n, device="cpu")]).wait(timeout)
        self._known, self._update = torch.zeros(n, device="cpu"), torch.zeros(n, device="cpu")
        self._table.pull([self._known]).wait(timeout)
        self._mine = self._known.view(client.workers, -1)[client.worker].clone()  # of the process before this one, if it goes on for one
        self._operations: List[Operation] = []
        self._next = 0.0
        self._history: List[Said] = []
        self._ahead: Dict[int, Said] = {}
        self._warned: Dict[int, bool] = {}

    def _others(self) -> Dict[int, Said]:
        rows = self._known.view(self._client.workers, -1).tolist()
        found = {w: _said(row) for w, row in enumerate(rows) if w != self._client.worker and any(row)}
        return {w: said for w, said in found.items() if said is not None}

    def latest(self, timeout: Optional[float]) -> Optional[Tuple[int, Said]]:
        """The worker that is furthest, and what it has said. None: nobody has said anything."""
        self.drain(timeout)
        self._table.pull([self._known]).wait(timeout)
        others = self._others()
        return max(others.items(), key=lambda item: item[1].step, default=None)

    def say(self, step: int, values: Sequence[float]) -> bool:
        """This step is made with these values, and those that follow. False: what was said before is on its way still."""
        if not all(o.test() for o in self._operations):
            return False
        row = torch.tensor(_row(Said(step, tuple(values[:_MOST]))), dtype=torch.float32, device="cpu")
        self._update.view(self._client.workers, -1)[self._client.worker] = row - self._mine
        self._mine = row
        self._operations = [self._table.push([self._update])]
        return True

    def exchange(self, step: int, values: Sequence[float]) -> None:
        """Say it now and then, and compare with what the others have said about the same steps. Does not wait."""
        said = Said(step, tuple(values[:_MOST]))
        if not self._history or self._history[-1].values != said.values:
            self._history.append(said)
        for w in [w for w, other in self._ahead.items() if other.step <= step]:
            self._compare(w, self._ahead.pop(w))
        now = time.monotonic()
        if now < self._next or not all(o.test() for o in self._operations):
            return
        self._next = now + EVERY
        for w, other in self._others().items():
            if other.step > step:
                self._ahead.setdefault(w, other)
            else:
                self._compare(w, other)
        if self.say(step, values):
            self._operations.append(self._table.pull([self._known]))

    def _compare(self, w: int, other: Said) -> None:
        mine = [s for s in self._history if s.step <= other.step]
        if not mine or w in self._warned:
            return
        text = self.difference(mine[-1].values, other.values)
        if text:
            self._warned[w] = True
            _log.warning("worker %d has made its step %d with %s here, at worker %d: updates of unequal size are added to the same parameters. Where "
                         "that is not meant, pass the same values, and give schedulers to optimiser.follow(), which goes by the steps of a worker "
                         "whichever process makes them", w, other.step, text, self._client.worker)

    def difference(self, mine: Sequence[float], theirs: Sequence[float]) -> str:
        """In words, theirs first."""
        found = [f"{n}={b:g} there and {n}={a:g}" for n, a, b in zip(self.names, mine, theirs) if a != b]
        return ", ".join(found[:4]) + (f" and {len(found) - 4} more" if len(found) > 4 else "")

    def drain(self, timeout: Optional[float]) -> None:
        for o in self._operations:
            o.wait(timeout)
        self._operations = []


def labelled(groups: Sequence[Dict[str, Any]], defaults: Dict[str, Any]) -> List[Tuple[str, float]]:
    """The numbers among an optimiser's hyper-parameters."""
    found: List[Tuple[str, float]] = []
    for g, group in enumerate(groups):
        for name in sorted(defaults):
            value = group.get(name)
            parts = value if isinstance(value, (tuple, list)) else [value]
            for i, x in enumerate(parts):
                if isinstance(x, torch.Tensor) and x.numel() == 1:
                    x = float(x)
                if isinstance(x, (int, float)):
                    found.append((f"{name}{i if len(parts) > 1 else ''} of group {g}", float(x)))
    return found
