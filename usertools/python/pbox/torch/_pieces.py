# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""How a process group cuts what it reduces: into the tensors of a table that is declared once, whatever lengths come.

A table has EACH tensors of each size, all of them with a group of their own, so that no two share a fragment. The n-th piece of a size that a
group has cut has tensor n % EACH of that size. All ranks call in the same order, so they find the same tensors and rounds. A piece whose
tensor is under way waits in the client for that; so no more than EACH pieces of a size are.
"""

from typing import Iterator, List, Tuple

from ..client import Tensor

SIZES = tuple(1 << k for k in range(20, 11, -2))  # elements, the largest first
EACH = 4
SMALLEST = SIZES[-1]
HEAD = 16  # elements of a head: what the ranks compare of an all-reduce


def cut(n: int) -> Iterator[Tuple[int, int, int]]:
    """(number in SIZES, first element, elements) of the pieces of n elements. All but the last one fill their tensor."""
    at = 0
    for k, size in enumerate(SIZES):
        while n - at >= size:
            yield k, at, size
            at += size
    if at < n:
        yield len(SIZES) - 1, at, n - at


class Tensors:
    """The tensors of a table, and which ones come next. Not for several threads at once.

    name   of the group: ranks that take tables of different groups for the same one get PBoxMismatch
    heads  with those of the heads, which are tensors of fp32
    """

    def __init__(self, name: str, heads: bool) -> None:
        named = [(f"{name}: {size} elements, {i + 1} of {EACH}", size) for size in SIZES for i in range(EACH)]
        if heads:
            named += [(f"{name}: head {i + 1} of {EACH}", HEAD) for i in range(EACH)]
        self.declared = [Tensor(n, elements, group) for group, (n, elements) in enumerate(named)]
        self._next = [0] * (len(SIZES) + 1)

    def _take(self, k: int) -> int:
        i = self._next[k]
        self._next[k] = (i + 1) % EACH
        return k * EACH + i

    def head(self) -> int:
        """The tensor of the next head."""
        return self._take(len(SIZES))

    def place(self, n: int) -> List[List[Tuple[int, int, int]]]:
        """Tensors for the pieces of n elements: operations of (tensor, first element, elements), none of which has a tensor twice."""
        operations: List[List[Tuple[int, int, int]]] = [[]]
        used = set()
        for k, at, elements in cut(n):
            i = self._take(k)
            if i in used:
                operations.append([])
                used.clear()
            used.add(i)
            operations[-1].append((i, at, elements))
        return operations
