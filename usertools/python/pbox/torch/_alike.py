# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Do workers compute alike? The same slots give the same bits only where the same torch, on CPUs that take the same path, with as many threads, sees
the same samples. Nothing else would say that they differ, so workers say it to each other in the first round; it is a warning, as it is no error to
train so."""

import hashlib
import logging
import os
from typing import Any, List, Optional, Tuple

import torch

from ..client import Client, Operation, Tensor
from ._session import plain_op

_log = logging.getLogger("pbox")
_BYTES = 256  # of what a worker says
_WHAT = ("torch", "threads", "CPU path", "CPU", "device", "samples of the first round")


def _cpu_path() -> str:
    """Which of its kernels torch takes."""
    for line in torch.__config__.show().splitlines():
        if "CPU capability usage" in line:
            return line.split(":", 1)[1].strip()
    return "?"


def _cpu() -> str:
    """Libraries choose their kernels by it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
            for line in f:
                if line.startswith("model name"):
                    return " ".join(line.split(":", 1)[1].split())
    except OSError:
        pass
    return "?"


def _add(h: Any, x: Any) -> None:
    if isinstance(x, torch.Tensor):
        h.update(repr((tuple(x.shape), str(x.dtype))).encode())
        if x.layout == torch.strided and x.numel() > 0:
            h.update(bytes(x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).tolist()) if x.numel() < 4096 else
                     repr(x.detach().double().sum().item()).encode())
    elif isinstance(x, dict):
        for k in sorted(x, key=repr):
            h.update(repr(k).encode())
            _add(h, x[k])
    elif isinstance(x, (tuple, list)):
        for y in x:
            _add(h, y)
    elif isinstance(x, (int, float, str, bytes, bool)):
        h.update(repr(x).encode())
    elif callable(getattr(x, "tobytes", None)):  # numpy's arrays, PIL's images
        h.update(x.tobytes())


def digest_of_samples(dataset: Any, order: List[int]) -> str:
    """Which samples the first round has, in which order, and what some of them are: two folders may list as many files in another order."""
    h = hashlib.blake2b(repr(order).encode(), digest_size=4)
    for i in sorted({order[0], order[len(order) // 2], order[-1]}) if order else ():
        _add(h, dataset[i])
    return h.hexdigest()


class Alike:
    """All workers make one, and call meet() with their first round."""

    def __init__(self, client: Client, timeout: Optional[float], first_round: int) -> None:
        self._client = client
        self._table = client.declare([Tensor("how each worker computes", _BYTES * client.workers)], op=plain_op(client, "sum"), timeout=timeout,
                                     first_round=first_round)
        self._sums: Optional[torch.Tensor] = None
        self._operation: Optional[Operation] = None

    @staticmethod
    def _mine(samples: str, device: str) -> Tuple[str, ...]:
        threads = f"{torch.get_num_threads()} (OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', '')})"
        return torch.__version__, threads, _cpu_path(), _cpu(), device, samples

    def meet(self, samples: str, device: str, timeout: Optional[float]) -> None:
        """After PBoxDeadline it may be called again."""
        n = self._client.workers
        if self._operation is None:
            said = "\n".join(self._mine(samples, device)).encode("ascii", "replace")[:_BYTES]
            row = torch.zeros(n, _BYTES, device="cpu")
            row[self._client.worker, :len(said)] = torch.tensor(list(said), dtype=torch.float32, device="cpu")
            self._sums = torch.zeros(n * _BYTES, device="cpu")
            self._operation = self._table.pushpull([row.reshape(-1)], [self._sums])
        self._operation.wait(timeout)
        assert self._sums is not None
        rows = [bytes(int(x) for x in row).rstrip(b"\0").decode("ascii", "replace").split("\n") for row in self._sums.view(n, _BYTES).tolist()]
        self._say(rows)

    def _say(self, rows: List[List[str]]) -> None:
        me = self._client.worker
        found = []
        for what, mine, *others in zip(_WHAT, rows[me], *rows):
            other = next((w for w, x in enumerate(others) if x != mine and len(rows[w]) == len(_WHAT)), None)
            if other is not None:
                found.append(f"{what}: {others[other]} at worker {other}, {mine} at worker {me}")
        if found:
            _log.warning("workers do not compute alike, so the same slot may have other bits at each of them (%s). Set OMP_NUM_THREADS alike, take the same torch and CPUs of one type, "
                         "and give all the same dataset, sorted alike; where bits do not matter this may stay", "; ".join(found))
