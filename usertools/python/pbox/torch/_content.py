# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Has a parameter changed? A sum over its bits: the same if nothing has changed, else almost never."""

import torch

from . import _layout


def content(p: torch.Tensor, order: _layout.Order) -> int:
    """Of a dense tensor of float32, on its device."""
    return of(_layout.dense(p, order).reshape(-1))


def of(flat: torch.Tensor) -> int:
    """In words of 64 bits, which is several times as fast as with a conversion; what is left over at the ends counts as it is."""
    n = flat.numel()
    first = min(n, flat.storage_offset() % 2)  # words are seen at even places alone
    end = first + (n - first) // 2 * 2
    total = int(flat[first:end].view(torch.int64).sum()) if end > first else 0
    for at in ([0] if first else []) + ([n - 1] if end < n else []):
        total = total * 31 + int(flat[at:at + 1].view(torch.int32))
    return total
