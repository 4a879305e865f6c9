# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Steps that a worker leaves out.

An optimiser on the box makes one step for all. A worker that leaves one out, because its gradients are inf, would from
then on bring each step another batch than the others do. GradScaler says so before it does: torch calls step() all the
same of an optimiser that has `_step_supports_amp_scaling`, so all can leave the step out. A program that does it by
itself (`if not isfinite(loss): continue`) is found by what is left of it: gradients of a backward pass that were
thrown away without a step.
"""

from typing import Any, Callable, Dict, List, Optional, Sequence

import torch

_WATCHED = 8  # of a model's parameters: a backward pass may leave some out


class Uncounted:
    """Who may throw gradients away, or is alone."""

    def take(self) -> int:
        return 0

    def close(self) -> None:
        pass


class Discards(Uncounted):
    """Counts the batches whose gradients were thrown away. They are seen where the sum of gradients in p.grad begins
    again though it had begun since the last step. (torch.autograd.grad() adds to no p.grad.)"""

    def __init__(self, params: Sequence[torch.nn.Parameter]) -> None:
        self._begun: Dict[int, int] = {}
        self._nodes: List[Any] = []  # kept: a parameter does not keep its own
        small = sorted((p for p in params if p.numel() > 0), key=lambda p: p.numel())[:_WATCHED]
        for i, p in enumerate(small):
            with torch.enable_grad():
                node = p.expand_as(p).grad_fn.next_functions[0][0]
            self._nodes.append((node, node.register_hook(self._watcher(i, p))))

    def _watcher(self, i: int, p: torch.nn.Parameter) -> Callable[[Any, Any], None]:
        begun, last = self._begun, [(0, 0)]

        def added(_: Any, incoming: Any) -> None:
            grad, new = p.grad, incoming[0]
            if grad is None or new is None or grad.is_sparse or new.is_sparse:
                return
            now, (before, version) = (id(grad), grad._version), last[0]
            last[0] = now
            if not begun.get(i):
                begun[i] = 1
            elif now != (before, version + 1) and torch.equal(grad, new):
                begun[i] += 1
        return added

    def take(self) -> int:
        """Of how many batches, since it was called last: the one that is stepped is none."""
        found = max(0, max(self._begun.values(), default=0) - 1)
        self._begun.clear()
        return found

    def close(self) -> None:
        for _, handle in self._nodes:
            handle.remove()
        self._nodes.clear()


def unscale(optimiser: Any, scaler: Any) -> Optional[bool]:
    """Has a GradScaler found inf or NaN in this worker's gradients? None: there is none. They are unscaled then.
    torch 1.13 passes the scaler, later ones set attributes of the optimiser."""
    if scaler is not None:
        state = scaler._per_optimizer_states[id(optimiser)]
        if state["stage"].name == "READY":
            scaler.unscale_(optimiser)
        return any(bool(f) for f in state["found_inf_per_device"].values())
    found = getattr(optimiser, "found_inf", None)
    if found is None:
        return None
    scale = getattr(optimiser, "grad_scale", None)
    if scale is not None:
        inverse = 1.0 / float(scale)
        for group in optimiser.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad.mul_(inverse)
    return bool(found)


def tell(optimiser: Any, scaler: Any) -> None:
    """Another worker has found inf: this one's scale goes back as well."""
    if scaler is not None:
        for f in scaler._per_optimizer_states[id(optimiser)]["found_inf_per_device"].values():
            f.fill_(1.0)
