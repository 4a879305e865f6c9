# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""One number for all workers, where no plan has a place for it: worker 0's, by an all-reduce."""

import struct
from typing import Optional

import torch

from ..client import Client
from ..errors import PBoxInvalid
from . import _collective


def by_reduction(client: Client, number: float, timeout: Optional[float]) -> float:
    if client.policy == "shrink":
        raise PBoxInvalid("agree() in a job with policy='shrink', where worker 0 may be gone: sum what each worker has by pbox.torch.all_reduce()")
    # its 64 bits, as four numbers that a sum with zeros leaves as they are
    parts = struct.unpack("<4H", struct.pack("<d", number)) if client.worker == 0 else (0,) * 4
    said = torch.tensor(parts, dtype=torch.float32)
    _collective.all_reduce(said, client=client, timeout=timeout)
    return float(struct.unpack("<d", struct.pack("<4H", *(int(x) for x in said)))[0])
