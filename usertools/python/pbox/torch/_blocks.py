# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Block formats as the wire has them, in torch operations: what a payload decodes to, and what error feedback keeps (doc/protocol.md R13.5).

For proofs and tests. Each product, sum and quotient is a torch operation of its own, so it is rounded once, as at workers and box.
"""

from typing import Callable, Dict, List, Optional, Sequence, Tuple

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

    def round(self, contributions: Sequence[torch.Tensor], samples: Optional[Sequence[int]] = None, **how: object) -> torch.Tensor:
        """The result of one round, which all workers get."""
        said = [self._sent(c.reshape(-1).to(torch.float32), r) for c, r in zip(contributions, self.up)]
        return self._sent(self._reduce(said, samples=samples, **how) if samples is not None else self._reduce(said, **how), self.down)
