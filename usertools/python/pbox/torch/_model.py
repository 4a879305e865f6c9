# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""State of a model that an optimiser does not have: frozen parameters, those of other optimisers, and buffers.

Workers whose frozen layers differ train different models, though the box gives them the same parameters in each round. So digests of all of it
are compared when the optimiser is made, and worker 0's bytes become everybody's where they differ. A worker that comes later hears worker 0's
digests; nothing sends it what has changed since, so what changes is an error there.
"""

import ctypes as ct
import fnmatch
import hashlib
import logging
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

import torch

from ..client import ANY_ROUND, Client, Tensor
from ..errors import PBoxInvalid, PBoxMismatch
from ._session import plain_op

_log = logging.getLogger("pbox")
MOST_BYTES = 64 << 20  # that are sent
_BITS = 64
_WORDS = 1 << 16  # of 16 bits, that are sent at a time
LABEL = ", state of the model "
_warned = False


def explained(e: PBoxMismatch) -> PBoxMismatch:
    """The box has found that names differ: in what?"""
    if LABEL not in str(e):
        return e
    return PBoxMismatch(f"{e}. The word after 'state of the model' is a digest of frozen parameters and buffers: with policy='reassign' nobody sends them, so all "
                        "workers load the same checkpoint, or begin with the same seed, before the optimiser is made (a newcomer too: what the others "
                        "began with), and pass the same model= and ignore=")


def warn(what: str) -> None:
    """Nobody has passed model=."""
    global _warned
    if not _warned:
        _warned = True
        _log.warning("%s has no model=: frozen parameters and buffers of the model are not compared, and workers in which they differ train different "
                     "models. Pass model=model; buffers that are each worker's own are named in ignore=", what)


def bytes_of(t: torch.Tensor) -> torch.Tensor:
    """A copy, or t's own memory, on the host."""
    return t.detach().cpu().contiguous().reshape(-1).view(torch.uint8)


def digest(name: str, t: torch.Tensor) -> bytes:
    if t.layout != torch.strided or t.is_quantized:
        raise PBoxInvalid(f"'{name}' of the model is {t.layout if t.layout != torch.strided else t.dtype}, whose contents cannot be compared: leave it out "
                          f"with ignore=['{name}']")
    h = hashlib.blake2b(repr((name, tuple(t.shape), str(t.dtype))).encode(), digest_size=_BITS // 8)
    if t.numel() > 0:
        raw = bytes_of(t)
        h.update((ct.c_char * raw.numel()).from_address(raw.data_ptr()))
    return h.digest()


def _named(model: Any) -> Iterable[Tuple[str, torch.Tensor, bool]]:
    """(name, tensor, is it a buffer?)"""
    if isinstance(model, torch.nn.Module):
        yield from ((n, p, False) for n, p in model.named_parameters())
        yield from ((n, b, True) for n, b in model.named_buffers())
        return
    if isinstance(model, (str, bytes)) or not isinstance(model, Iterable):
        raise PBoxInvalid(f"model is a {type(model).__name__}: needed is a torch.nn.Module, or several in a list")
    for i, m in enumerate(model):
        if not isinstance(m, torch.nn.Module):
            raise PBoxInvalid(f"model[{i}] is a {type(m).__name__}: needed is a torch.nn.Module")
        yield from ((f"{i}.{n}", t, b) for n, t, b in _named(m))


class NoModel:
    """The program has not said which it is."""

    given = False
    names: List[str] = []

    def meet(self, client: Client, timeout: Optional[float], late: bool, resumed: bool, clock: bool = False) -> None:
        pass

    def comes_late(self) -> None:
        pass

    def first_step(self) -> None:
        pass


class ModelState:
    """Of one optimiser, which trains `trained`."""

    given = True

    def __init__(self, model: Any, ignore: Sequence[str], trained: Sequence[torch.Tensor]) -> None:
        ignore = [ignore] if isinstance(ignore, str) else list(ignore)
        skip = {id(p) for p in trained}
        everything = list(_named(model))
        for pattern in ignore:
            if not any(fnmatch.fnmatchcase(n, pattern) for n, _, _ in everything):
                raise PBoxInvalid(f"ignore has {pattern!r}, and the model has no such parameter or buffer: names are those of named_buffers() and "
                                  "named_parameters(), * is for anything")
        if trained and not any(id(t) in skip for _, t, _ in everything):
            raise PBoxInvalid("model= has none of this optimiser's parameters: pass the module that they are of")
        found = [(n, t, b) for n, t, b in everything
                 if id(t) not in skip and not any(fnmatch.fnmatchcase(n, pattern) for pattern in ignore)]
        self.names = [n for n, _, _ in found]
        self.tensors = [t for _, t, _ in found]
        self._is_buffer = [b for _, _, b in found]
        self.digests = [digest(n, t) for n, t in zip(self.names, self.tensors)]
        self._came: Optional[Dict[int, bytes]] = None  # digests of buffers, of a worker that came to a running job

    def label(self) -> str:
        """All of it, in a word."""
        return hashlib.blake2b(b"".join(self.digests), digest_size=4).hexdigest()

    def _text(self, which: Sequence[int]) -> str:
        text = ", ".join(f"'{self.names[i]}'" for i in which[:4])
        return text + (f" and {len(which) - 4} more" if len(which) > 4 else "")

    # ---- together

    def meet(self, client: Client, timeout: Optional[float], late: bool, resumed: bool, clock: bool = False) -> None:
        """All workers call it, and have the same afterwards. `late`: this one comes to a running job, with a checkpoint of it (`resumed`) or without."""
        if not self.names:
            return
        layout = hashlib.blake2b(repr([(n, tuple(t.shape), str(t.dtype)) for n, t in zip(self.names, self.tensors)]).encode(), digest_size=4).hexdigest()
        size = max(1 + _BITS * len(self.names), _WORDS)
        first_round = ANY_ROUND if late else 0
        table = client.declare([Tensor(f"state of the model: {len(self.names)} tensors, layout {layout}", size)], op=plain_op(client, "sum"),
                               timeout=timeout, first_round=first_round)
        how: Dict[str, Any] = dict(optimiser="add", discipline="clock") if clock else dict(optimiser="sgd")
        kept = client.declare([Tensor("digests of the model", 2 * len(self.names))], mode="optimiser", op="sum", timeout=timeout,
                              first_round=first_round, **how)
        if not late:
            differ = self._differ(table, size, timeout)
            if differ:
                self._bring(client, table, size, differ, timeout)
        known = torch.zeros(2 * len(self.names), device="cpu")
        if client.worker == 0 and not late:
            mine = torch.frombuffer(bytearray(b"".join(self.digests)), dtype=torch.float32)
            kept.init([mine]).wait(timeout)
        kept.pull([known]).wait(timeout)
        if late:
            self._compare(known, resumed)

    def _differ(self, table: Any, size: int, timeout: Optional[float]) -> List[int]:
        """Which tensors do? All workers find the same: a bit that all have alike is in none of the sums, or in all."""
        mine = torch.zeros(size, device="cpu")
        mine[0] = 1
        n = len(self.names)
        words = torch.frombuffer(bytearray(b"".join(self.digests)), dtype=torch.uint8).reshape(n, -1, 1)
        mine[1:1 + _BITS * n] = ((words >> torch.arange(8, dtype=torch.uint8)) & 1).reshape(-1).float()
        sums = torch.zeros(size, device="cpu")
        table.pushpull([mine], [sums]).wait(timeout)
        bits = sums[1:1 + _BITS * n].reshape(n, _BITS)
        return ((bits > 0) & (bits < sums[0])).any(1).nonzero().flatten().tolist()

    def _bring(self, client: Client, table: Any, size: int, which: List[int], timeout: Optional[float]) -> None:
        """Worker 0's, as numbers of 16 bits that a sum with zeros leaves as they are."""
        total = sum(self.tensors[i].numel() * self.tensors[i].element_size() for i in which)
        if total > MOST_BYTES:
            raise PBoxMismatch(f"{self._text(which)} of the model differ between workers, {total / (1 << 20):.0f} MiB, and {MOST_BYTES >> 20} MiB at most are sent: "
                               "load the same checkpoint at all workers, or begin with the same seed, before the optimiser is made; ignore= is for what is "
                               "each worker's own")
        raw = torch.cat([bytes_of(self.tensors[i]) for i in which] + [torch.zeros(total % 2, dtype=torch.uint8)])
        halves = raw.reshape(-1, 2)
        for at in range(0, len(halves), size):
            part = torch.zeros(size, device="cpu")
            n = min(size, len(halves) - at)
            if client.worker == 0:
                part[:n] = halves[at:at + n, 0].float() + 256.0 * halves[at:at + n, 1].float()
            table.pushpull([part]).wait(timeout)
            got = part[:n].to(torch.int32)
            halves[at:at + n] = torch.stack([got & 255, got >> 8], 1).to(torch.uint8)
        at = 0
        with torch.no_grad():
            for i in which:
                t = self.tensors[i]
                n = t.numel() * t.element_size()
                t.data.copy_(raw[at:at + n].clone().view(t.dtype).reshape(t.shape))
                at += n
                self.digests[i] = digest(self.names[i], t)
        _log.warning("%s of the model differed between workers: all have worker 0's now (%d bytes)", self._text(which), total)

    def _compare(self, known: torch.Tensor, resumed: bool) -> None:
        """With what worker 0 had at the start. Buffers of a checkpoint are later ones."""
        theirs = bytes(known.view(torch.uint8).tolist())
        size = _BITS // 8
        differ = [i for i, d in enumerate(self.digests) if d != theirs[size * i:size * (i + 1)] and not (resumed and self._is_buffer[i])]
        if differ:
            raise PBoxMismatch(f"{self._text(differ)} of the model differ from what the workers began with, and this one has come to a running job, in which "
                               "nobody brings it theirs: load the same checkpoint, or begin with the same seed, before the optimiser is made; ignore= is for "
                               "what is each worker's own")

    # ---- who comes later

    def comes_late(self) -> None:
        """This worker has the buffers of the start, and the others have trained on."""
        self._came = {i: d for i, d in enumerate(self.digests) if self._is_buffer[i]}

    def first_step(self) -> None:
        """The first gradients are there, and nothing has been sent."""
        came, self._came = self._came, None
        changed = [i for i, d in (came or {}).items() if digest(self.names[i], self.tensors[i]) != d]
        if changed:
            raise PBoxMismatch(f"{self._text(changed)} of the model change in training, and this worker came to a running job with what they were at its start: "
                               "nobody brings it what the others have. Where each worker may have its own (batch norm's statistics), pass "
                               f"ignore=['{self.names[changed[0]]}', ...] at all workers, and do not let this one evaluate; else start all from a checkpoint")


def of(model: Any, ignore: Sequence[str], trained: Sequence[torch.Tensor]) -> Any:
    """Of the arguments of an optimiser."""
    if model is not None:
        return ModelState(model, ignore, trained)
    if ignore:
        raise PBoxInvalid("ignore= is of the model's state: pass model= as well")
    return NoModel()
