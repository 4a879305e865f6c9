# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The hyper-parameters of an optimiser on the box: those that the program has set, and those that the box has got."""

from typing import TYPE_CHECKING, Dict, Optional

from .. import _checks
from ..errors import PBoxMismatch, PBoxRefused
from ._agree import Hypers

if TYPE_CHECKING:
    from ._optim import BoxOptimizer

_NAMES = ("lr", "momentum", "dampening", "weight_decay", "beta1", "beta2", "eps", "clip_value", "steps",
          "plain", "maximize", "coefficient", "max_norm")  # ids 1 and on
_ABSENT = {"clip_value": 0.0, "steps": 0.0, "maximize": 0.0, "max_norm": 0.0}  # what the box has of those that nobody has sent


class Sent:
    """Of one optimiser; `values` is what the box has, by group."""

    def __init__(self, owner: "BoxOptimizer") -> None:
        self._owner = owner
        self.values: Hypers = [{} for _ in owner.param_groups]

    def group(self, g: int) -> Dict[str, float]:
        """As the program has set them now."""
        group = self._owner.param_groups[g]
        values = {k: _checks.real(group[k], f"{k} of group {g}") for k in self._owner._hypers}
        if "betas" in group:
            values["beta1"], values["beta2"] = (_checks.real(b, f"betas of group {g}") for b in group["betas"])
        values["clip_value"] = _checks.real(group.get("clip_value") or 0, f"clip_value of group {g}")
        values["steps"] = float(self._owner._kept.steps[g])
        values["maximize"] = float(bool(group.get("maximize")))
        values.update(self._owner._phases.hypers)
        return values

    def now(self) -> Hypers:
        return [self.group(g) for g in range(self._owner._n_groups)]

    def compared(self, g: int) -> Dict[str, float]:
        """What workers have alike, whenever they began."""
        return {k: v for k, v in self.group(g).items() if k != "steps"}

    def theirs(self, hyper: "list[float]") -> Dict[str, float]:
        """Of a report of the box."""
        return dict(zip(_NAMES, hyper))

    def changes(self, hypers: Hypers) -> Hypers:
        return [{k: v for k, v in new.items() if old.get(k, _ABSENT.get(k)) != v} for new, old in zip(hypers, self.values)]

    def send(self, hypers: Hypers, changes: Hypers) -> None:
        """Send the box what changed since the last step. Every worker does: a round waits for
        all contributions, so it cannot be computed before the values have arrived."""
        owner = self._owner
        trained = set(owner._params.group_of)
        results = owner._compress.results
        said = results is not None
        for g, changed in enumerate(changes):
            if (changed or results is not None) and g in trained:
                try:
                    said = self._set_group(g, changed, results) and said
                except (PBoxMismatch, PBoxRefused) as e:
                    # with first_round: our gradient of this round had arrived before we were
                    # killed, so these values had been sent before it
                    if not (owner._resumed and "already finished" in str(e)):
                        mine = ", ".join(f"{k}={v:g}" for k, v in changed.items())
                        raise type(e)(f"{e} (this worker has {mine} in group {g})") from None
                    said = False
            self.values[g] = hypers[g]
        if said:
            owner._compress.said()

    def _set_group(self, g: int, changed: Dict[str, float], results: Optional[int]) -> bool:
        """With what worker 0 has to say of results (compress=): in the same SET, which a restart of the box does not part. True: that holds."""
        table = self._owner.table
        try:
            table.set_hyper(g, **changed, **({} if results is None else {"plain": results}))
            return True
        except PBoxMismatch as e:
            # this process goes on for one that has said it otherwise for this round: so it holds, and is said again with the next one
            if results is None or not self._owner._resumed or "plain" not in str(e):
                raise
            if changed:
                table.set_hyper(g, **changed)
            return False
