# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""What workers say to each other with every step: a table of a few sums beside the gradients.

An optimiser on the box makes one step for all, so all must want the same: the same
hyper-parameters, a gradient for the same parameters, and a state that all have loaded or none.
Each worker adds to the sums:

    1                         how many workers there are
    8 bytes of a hash         of its hyper-parameters: all are equal if each sum is N times mine
    0, 1                      has it loaded a state (or changed parameters) before this step?
    0, 1                      has it not? Both 0: it was started again alone, and goes on
    0, 1                      has its GradScaler found inf or NaN? Then all leave this step out
    for each parameter, 0, 1  has it a gradient in this step?
    for each parameter, 0, 1  had it one before?

All are small whole numbers, so the sums are exact in fp32 for any number of workers.
"""

import hashlib
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from ..client import Client, Operation, Tensor
from ..errors import PBoxError, PBoxMismatch

_HASH = 9
_INF = 11
_HEAD = 12
_EXPLAIN_SECONDS = 20.0

Hypers = List[Dict[str, float]]
# of the worker, and not of a group
_OF_STEPS = {
    "discarded": "The gradients of so many batches were thrown away since the last step, without a step(): a worker that leaves a "
                 "step out would bring all later ones another batch than the others. Leave it out at all workers: reduce what "
                 "decides it (pbox.torch.all_reduce), or take GradScaler, which is asked for by itself. Gradients that are "
                 "for no step: torch.autograd.grad(), or local_backward=True",
    "grad_scaler": "GradScaler belongs to all workers, or to none: where one leaves a step out, all do (1: step() was called by one)",
}
# of the slots: what each is, and the next step where workers differ in it
_OF_SLOTS = {
    "trained_rounds": "All workers load the checkpoint of the same round",
    "seed": "Pass the same seed= to sampler() on all workers (-1: none was made)",
    "batch_size": "Pass the same batch_size= to sampler() on all workers (0: none was made)",
    "samples": "Give sampler() the same dataset on all workers: theirs have different numbers of samples",
}
_OF_WORKERS = {**_OF_SLOTS, **_OF_STEPS}


def _whats(names: List[str]) -> str:
    """What they are of."""
    for what, those in (("slots", _OF_SLOTS), ("steps", _OF_STEPS)):
        if all(n in those for n in names):
            return what
    return "hyper-parameters"


class _Difference(NamedTuple):
    name: str
    group: int
    worker: int
    theirs: float
    mine: float

    def text(self, me: int) -> str:
        where = "" if self.name in _OF_WORKERS else f" in group {self.group}"
        return (f"worker {self.worker} has {self.name}={self.theirs:.9g}{where}, worker {me} (this one) "
                f"{self.name}={self.mine:.9g}")


def _next_steps(differences: List[_Difference], me: int) -> List[str]:
    """For each kind of value that differs."""
    names = {d.name for d in differences}
    steps = [step for name, step in _OF_WORKERS.items() if name in names]
    behind = sorted({w for d in differences if d.name == "trained_rounds"
                     for w, rounds in ((d.worker, d.theirs), (me, d.mine)) if rounds == 0})
    steps[:0] = [f"worker {w} has not called load_state_dict() of its checkpoint" for w in behind]
    if "max_norm" in names:
        steps.append("max_norm= is fixed when the optimiser is made: give all workers the same, and start them again")
    if names - _OF_WORKERS.keys() - {"max_norm"}:
        steps.append("All workers must make the same change at the same step: reduce what decides it (pbox.torch.all_reduce "
                     "of the loss) before scheduler.step()")
    return steps


class Agreement:
    def __init__(self, client: Client, parameters: int, timeout: Optional[float],
                 first_round: int) -> None:
        self._client = client
        self._n = parameters
        size = _HEAD + 2 * parameters
        self.table = client.declare([Tensor("agreement of workers", size)], op="sum",
                                    timeout=timeout, first_round=first_round)
        self._mine, self._sums = torch.zeros(size, device="cpu"), torch.zeros(size, device="cpu")
        self._hypers: Hypers = []
        self.pending: Optional[Operation] = None

    def begin(self, hypers: Hypers, has: Sequence[bool], had: Sequence[bool],
              loaded: Optional[bool], inf: bool = False) -> None:
        """Inform the others. A worker that nobody else has informed waits in check()."""
        text = repr([sorted(h.items()) for h in hypers])
        self._hypers = [dict(h) for h in hypers]
        self._mine[0] = 1
        self._mine[1:_HASH] = torch.tensor(list(hashlib.sha256(text.encode()).digest()[:8]), device="cpu")
        self._mine[_HASH:_HEAD] = torch.tensor([loaded is True, loaded is False, inf], device="cpu")
        self._mine[_HEAD:_HEAD + self._n] = torch.tensor(has, dtype=torch.float32, device="cpu")
        self._mine[_HEAD + self._n:] = torch.tensor(had, dtype=torch.float32, device="cpu")
        self.pending = self.table.pushpull([self._mine], [self._sums])

    def check(self, timeout: Optional[float]) -> Tuple[List[bool], List[bool], bool]:
        """Wait for the others. Which parameters have a gradient at any worker, which had one
        before, and has a GradScaler found inf at any? Raises PBoxMismatch if hyper-parameters differ, or some have loaded a state."""
        assert self.pending is not None
        self.pending.wait(timeout)
        self.pending = None
        n = float(self._sums[0])
        loaded, others = (int(x) for x in self._sums[_HASH:_INF])
        if loaded and others:
            raise PBoxMismatch(
                f"{loaded} of {loaded + others} workers have called load_state_dict() or "
                f"push_parameters() before this step, worker {self._client.worker} (this one) "
                f"has{'' if self._mine[_HASH] else ' not'}: all workers must call it at the same "
                "step, with the same checkpoint")
        if not torch.equal(self._sums[1:_HASH], self._mine[1:_HASH] * n):
            raise PBoxMismatch(self._explain())
        sums = (self._sums[_HEAD:] > 0).tolist()
        return sums[:self._n], sums[self._n:], bool(self._sums[_INF] > 0)

    def _explain(self) -> str:
        """All workers have found that they differ: now each reports its values."""
        names = sorted({k for h in self._hypers for k in h})
        count, me = self._client.workers, self._client.worker
        per = len(names) * len(self._hypers)
        try:
            table = self._client.declare([Tensor("hyper-parameters", 2 * per * count)],
                                         op="sum", timeout=_EXPLAIN_SECONDS)
            # a double as two floats: enough for every digit that is printed
            values = torch.tensor([h[k] for h in self._hypers for k in names],
                                  dtype=torch.float64, device="cpu")
            high = values.float()
            told = torch.zeros(count, 2, per, device="cpu")
            told[me, 0], told[me, 1] = high, (values - high.double()).float()
            flat = told.reshape(-1)
            table.pushpull([flat]).wait(_EXPLAIN_SECONDS)
        except PBoxError as e:
            mine = "; ".join(f"group {g}: " + ", ".join(f"{k}={v:g}" for k, v in h.items() if v or k not in _OF_STEPS)
                             for g, h in enumerate(self._hypers))
            # who goes on alone may be the only one to find it: the others have had its old contribution
            behind = any(h.get("trained_rounds") == 0 for h in self._hypers)
            step = ". If it goes on from a checkpoint: it has not called load_state_dict() of it" if behind else ""
            if any(h.get("discarded") for h in self._hypers):
                step += ". " + _OF_STEPS["discarded"]
            return ("hyper-parameters differ between workers in this step, and the others' "
                    f"cannot be had ({e}). This is worker {me} with {mine}{step}")
        everybodys = flat.reshape(count, 2, per).double().sum(1).tolist()
        found = []
        for w, theirs in enumerate(everybodys):
            if w == me or not any(theirs):
                continue  # a worker that has gone (policy shrink) has said nothing
            for i, (v, mine_v) in enumerate(zip(theirs, everybodys[me])):
                g, k = divmod(i, len(names))
                if v != mine_v and (g == 0 or names[k] not in _OF_WORKERS):
                    found.append(_Difference(names[k], g, w, v, mine_v))
        text = [d.text(me) for d in found]
        if len(text) > 6:
            text[6:] = [f"and {len(text) - 6} more"]
        what = _whats([d.name for d in found])
        return ". ".join([f"{what} differ between workers in this step: " + "; ".join(text)] + _next_steps(found, me))


class Alone:
    """For a worker that has nobody to compare with."""

    def begin(self, hypers: Hypers, has: Sequence[bool], had: Sequence[bool],
              loaded: Optional[bool], inf: bool = False) -> None:
        self._said = list(has), list(had), inf

    def check(self, timeout: Optional[float]) -> Tuple[List[bool], List[bool], bool]:
        return self._said
