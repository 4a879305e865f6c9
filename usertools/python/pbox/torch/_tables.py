# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Tables of hooks, which live as long as the job: one of a closed hook serves the next hook of the same layout.

Workers close hooks when they like, or drop them. So they agree on a table: each says which it has to spare, and the
first that all have is taken.
"""

import hashlib
import weakref
from typing import Dict, List, MutableMapping, NamedTuple, Optional, Sequence, Tuple

import torch

from ..client import Client, Operation, Table, Tensor
from ..errors import PBoxDeadline, PBoxInvalid

_HASH_BITS = 64
_MOST_LAYOUTS = 3  # of a hook: one for each format
_MOST_TABLES = 256  # of a layout, that can be agreed on


class Layout(NamedTuple):
    tensors: Tuple[Tensor, ...]
    op: str
    wire: str
    mixed: bool = False  # pushes may be in fp32 as well


class Lease:
    """A table, and whether this worker has it to spare."""

    def __init__(self, table: Table) -> None:
        self.table, self.free = table, False


class Tables:
    """Those of one client."""

    def __init__(self) -> None:
        self._made: Dict[Layout, List[Lease]] = {}
        self._agreement: Optional[Table] = None
        self._asked: Optional[Tuple[Sequence[Layout], torch.Tensor, Operation]] = None

    def take(self, client: Client, layouts: Sequence[Layout], timeout: Optional[float]) -> List[Lease]:
        """All workers call it with the same layouts. Blocks until they have."""
        assert len(layouts) <= _MOST_LAYOUTS
        # with policy shrink workers come back, and know nothing of earlier hooks
        reuse = bool(self._made) and client.policy != "shrink"
        found = self._agree(client, layouts, timeout) if reuse else [None] * len(layouts)
        out = []
        for layout, number in zip(layouts, found):
            made = self._made.get(layout, [])
            if number is None:
                table = client.declare(layout.tensors, op=layout.op, push=layout.wire, pull=layout.wire, timeout=timeout, mixed=layout.mixed)
                lease = Lease(table)
                self._made.setdefault(layout, made).append(lease)
            else:
                lease = made[number]
                lease.free = False
            out.append(lease)
        return out

    def _agree(self, client: Client, layouts: Sequence[Layout], timeout: Optional[float]) -> List[Optional[int]]:
        """For each layout the number of a table in the list of those, or None."""
        if self._agreement is None:
            size = _HASH_BITS + _MOST_LAYOUTS * _MOST_TABLES
            self._agreement = client.declare([Tensor("register() of the workers", size)], op="sum", timeout=timeout)
        if self._asked is None:
            sums = torch.zeros(_HASH_BITS + _MOST_LAYOUTS * _MOST_TABLES, device="cpu")
            digest = hashlib.sha256(repr(layouts).encode()).digest()[:_HASH_BITS // 8]
            sums[:_HASH_BITS] = torch.tensor([byte >> i & 1 for byte in digest for i in range(8)], device="cpu")
            for i, layout in enumerate(layouts):
                spare = [lease.free for lease in self._made.get(layout, [])[:_MOST_TABLES]]
                at = _HASH_BITS + i * _MOST_TABLES
                sums[at:at + len(spare)] = torch.tensor(spare, device="cpu")
            self._asked = layouts, sums, self._agreement.pushpull([sums])
        elif self._asked[0] != layouts:
            raise PBoxInvalid("register() of another model was given up before all workers had come to it: they would register "
                              "different models. Close the session")
        _, sums, operation = self._asked
        try:
            operation.wait(timeout)
        except PBoxDeadline:
            raise  # the next register() goes on with it
        except BaseException:
            self._asked = None
            raise
        self._asked = None
        head, rest = sums[:_HASH_BITS], sums[_HASH_BITS:].reshape(_MOST_LAYOUTS, _MOST_TABLES)
        if bool(((head > 0) & (head < client.workers)).any()):
            return [None] * len(layouts)  # models differ: the box says in which tensor
        spare = (rest == client.workers).tolist()
        return [spare[i].index(True) if True in spare[i] else None for i in range(len(layouts))]


_of_client: MutableMapping[Client, Tables] = weakref.WeakKeyDictionary()


def of(client: Client) -> Tables:
    return _of_client.setdefault(client, Tables())
