# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Block formats as the wire has them, in torch operations: what a payload decodes to, and what error feedback keeps (doc/protocol.md R13.5).

For proofs and tests. Each product, sum and quotient is a torch operation of its own, so it is rounded once, as at workers and box.
"""

from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

FORMATS = ("int8", "mxfp4")
UNIT, MX_BLOCK = 128, 32
_SMALLEST, _LARGEST = 2.0 ** -100, 2.0 ** 127


def _in_blocks(u: torch.Tensor, size: int) -> torch.Tensor:
    """Rows of `size` elements; what the last one lacks is zeros, which no scale depends on."""
    rows = -(-u.numel() // size)
    padded = torch.zeros(rows * size, dtype=torch.float32)
    padded[:u.numel()] = u
    return padded.view(rows, size)


def _int8(u: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
    b = _in_blocks(u, UNIT)
    good = (torch.isfinite(b) & (b.abs() < _LARGEST)).all(1, keepdim=True)
    largest = torch.where(good, b, torch.zeros_like(b)).abs().amax(1, keepdim=True)
    some = largest >= _SMALLEST
    safe = torch.where(some, largest, torch.ones_like(largest))
    # two tensors: torch makes a number over a tensor as number x reciprocal, which rounds twice
    q = torch.round(torch.where(good, b, torch.zeros_like(b)) * (torch.full_like(safe, 127.0) / safe)).to(torch.int8).to(torch.float32)
    value = torch.where(some, (safe / 127.0) * q, torch.zeros_like(b))
    return value, good


def _mxfp4(u: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
    b = _in_blocks(u, MX_BLOCK)
    good = (torch.isfinite(b) & (b.abs() < _LARGEST)).all(1, keepdim=True)
    b = torch.where(good, b, torch.zeros_like(b))
    largest = b.abs().amax(1, keepdim=True)
    power = (torch.frexp(largest)[1] - 3).clamp(min=-127)
    power = torch.where(largest > 0, power, torch.full_like(power, -127))
    # in fp64, where neither the quotient nor the product is rounded
    scale = torch.pow(torch.full_like(power, 2, dtype=torch.float64), power.to(torch.float64))
    x = (b.to(torch.float64).abs() / scale).clamp(max=6.0)
    # ties go to the even code
    q = torch.zeros_like(x)
    for code, (limit, even) in enumerate(((0.25, False), (0.75, True), (1.25, False), (1.75, True), (2.5, False), (3.5, True), (5.0, False))):
        step = (0.5, 0.5, 0.5, 0.5, 1.0, 1.0, 2.0)[code]
        q += step * ((x >= limit) if even else (x > limit)).to(torch.float64)
    return torch.copysign(q * scale, b.to(torch.float64)).to(torch.float32), good


_OF: Dict[str, Callable[[torch.Tensor], Tuple[torch.Tensor, torch.Tensor]]] = {"int8": _int8, "mxfp4": _mxfp4}


def sent(fmt: str, values: torch.Tensor, residual: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
    """What one fragment's payload decodes to, and the residual that is left; both are 1-D and of fp32. A block with a NaN or an infinity decodes to
    NaN, and leaves its residual as it was."""
    u = values + residual
    value, good = _OF[fmt](u)
    n = u.numel()
    fine = good.expand_as(value).reshape(-1)[:n]
    value = value.reshape(-1)[:n]
    value = torch.where(fine, value, torch.full_like(value, float("nan")))
    return value, torch.where(fine, u - value, residual)


class Compressed:
    """An all-reduce in a block format, both ways: the residuals of all workers and of the box.

    fmt        "int8" or "mxfp4"
    fragments  elements of each fragment of the table, in order (units begin again in each)
    workers    how many contribute
    reduce     of the contributions, as fp32: pbox.torch.reference.tree_reduce or the like
    """

    def __init__(self, fmt: str, fragments: Sequence[int], workers: int, reduce: Callable[..., torch.Tensor]) -> None:
        self.fmt, self.fragments, self._reduce = fmt, list(fragments), reduce
        self.up: List[torch.Tensor] = [torch.zeros(sum(fragments)) for _ in range(workers)]
        self.down = torch.zeros(sum(fragments))

    def _sent(self, values: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """In all fragments; the residual is replaced."""
        parts = [sent(self.fmt, v, r) for v, r in zip(values.split(self.fragments), residual.split(self.fragments))]
        residual.copy_(torch.cat([r for _, r in parts]))
        return torch.cat([v for v, _ in parts])

    def round(self, contributions: Sequence[torch.Tensor], samples: Optional[Sequence[int]] = None, fp32: Tuple[bool, bool] = (False, False),
              **how: object) -> torch.Tensor:
        """The result of one round, which all workers get. fp32: pushes, and results, are in fp32 in this one (R13.10)."""
        values = [c.reshape(-1).to(torch.float32) for c in contributions]
        said = values if fp32[0] else [self._sent(c, r) for c, r in zip(values, self.up)]
        result = self._reduce(said, samples=samples, **how) if samples is not None else self._reduce(said, **how)
        return result if fp32[1] else self._sent(result, self.down)


class Piece(NamedTuple):
    """A part of a fragment: elements of a tensor, from `offset` on."""
    tensor: int
    offset: int
    elements: int


Fragment = Sequence[Piece]


def fragments_of(sizes: Sequence[int], groups: Optional[Sequence[int]] = None, mtu: int = 9000, cores: int = 1, chunk_bytes: int = 32768,
                 auth: bool = False) -> List[List[Piece]]:
    """The fragments of a table whose elements have 4 bytes, in which units of block formats begin again (doc/protocol.md R5.8, R5.9): of tensors with so many
    elements, the lowest MTU of box and workers, data cores and chunk-bytes of the box, and with AUTH or without."""
    size = (mtu - (106 if auth else 90)) // 64 * 16
    of = list(groups) if groups is not None else [0] * len(sizes)
    chunk = chunk_bytes // 4
    if cores > 1:
        most = sum(sizes) // cores // 20
        chunk = min(chunk, max(0, most - (size - 1)) if most >= size else 0)
    chunk = max(size, chunk // size * size)
    chunks: List[List[Piece]] = []
    done = set()
    for i, n in enumerate(sizes):
        at = 0
        while n >= size and at < n:
            take = n - at if n - at < chunk + size else chunk
            chunks.append([Piece(i, at, take)])
            at += take
        if n >= size or n == 0 or of[i] in done:
            continue
        done.add(of[i])
        mine: List[List[Piece]] = []
        room = 0
        for k in (k for k in range(i, len(sizes)) if of[k] == of[i] and 0 < sizes[k] < size):
            at = 0
            while at < sizes[k]:
                if not mine or room == 0 or len(mine[-1]) == 64:
                    mine.append([])
                    room = chunk
                take = min(room, sizes[k] - at)
                mine[-1].append(Piece(k, at, take))
                room, at = room - take, at + take
        if len(mine) > 1 and sum(p.elements for p in mine[-1]) < size and len(mine[-2]) + len(mine[-1]) <= 64:
            mine[-2:] = [mine[-2] + mine[-1]]
        chunks += mine
    return [f for c in chunks for f in _cut(c, size)]


def _cut(chunk: Sequence[Piece], size: int) -> List[List[Piece]]:
    fragments: List[List[Piece]] = [[]]
    room = size
    for p in chunk:
        at = 0
        while at < p.elements:
            if room == 0:
                fragments.append([])
                room = size
            take = min(room, p.elements - at)
            fragments[-1].append(Piece(p.tensor, p.offset + at, take))
            room, at = room - take, at + take
    return fragments


def _at(tensors: Sequence[torch.Tensor], p: Piece) -> torch.Tensor:
    return tensors[p.tensor].view(-1)[p.offset:p.offset + p.elements]


class Pushed:
    """What workers push in a block format to a job with slots (doc/protocol.md R13.8): each has a residual, which goes from node to node in the order
    of their slots.

    sizes   elements of each tensor; `fragments` are of these
    nodes   of each worker: (first slot, number of slots)
    """

    def __init__(self, fmt: str, fragments: Sequence[Fragment], sizes: Sequence[int], nodes: Sequence[Sequence[Tuple[int, int]]]) -> None:
        self.fmt, self.fragments, self.nodes = fmt, fragments, nodes
        self.rest = [[torch.zeros(n) for n in sizes] for _ in nodes]
        if sum(p.elements for f in fragments for p in f) != sum(sizes):
            raise ValueError("fragments are not those of these tensors: reference.fragments_of() makes them")

    def said(self, worker: int, values: Sequence[torch.Tensor]) -> None:
        """The worker's next node has these values (1-D, fp32), and they become what its codes say."""
        rest = self.rest[worker]
        for f in self.fragments:
            value, left = sent(self.fmt, torch.cat([_at(values, p) for p in f]), torch.cat([_at(rest, p) for p in f]))
            sizes = [p.elements for p in f]
            for p, v, r in zip(f, value.split(sizes), left.split(sizes)):
                _at(values, p).copy_(v)
                _at(rest, p).copy_(r)


def nodes_of(first: int, end: int, slots: int) -> List[Tuple[int, int]]:
    """The fewest nodes of the tree over `slots` slots that slots first to end - 1 consist of (R5.2b): first slot and number of slots."""
    nodes = []
    while first < end:
        width = 1
        while first % (2 * width) == 0 and first + width < slots and min(first + 2 * width, slots) <= end:
            width *= 2
        nodes.append((first, min(width, slots - first)))
        first += width
    return nodes


class Replica:
    """What workers have of the box's parameters, where results are differences in a block format (doc/protocol.md R13.7).

    have, box  tensors of both, of all parameters; follow() changes those of `have`
    """

    def __init__(self, fmt: str, fragments: Sequence[Fragment], have: Sequence[torch.Tensor], box: Sequence[torch.Tensor]) -> None:
        self.fmt, self.fragments, self.have, self.box = fmt, fragments, have, box
        if sum(p.elements for f in fragments for p in f) != sum(t.numel() for t in have):
            raise ValueError("fragments are not those of these tensors: reference.fragments_of() makes them")

    def follow(self) -> None:
        """After a step of the box: the next version."""
        for f in self.fragments:
            have = torch.cat([_at(self.have, p) for p in f])
            box = torch.cat([_at(self.box, p) for p in f])
            value, good = _OF[self.fmt](box - have)
            # a version of which a block is not finite has no codes
            new = have + value.reshape(-1)[:have.numel()] if bool(good.all()) else box
            for p, part in zip(f, new.split([p.elements for p in f])):
                _at(self.have, p).copy_(part)
