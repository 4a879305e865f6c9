# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Found by scripts beside it, as Python's path has their folder first."""


def loss(y):
    return (y - 1).square().mean()
