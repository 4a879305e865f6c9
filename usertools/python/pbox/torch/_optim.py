# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Optimisers that run on the box: push gradients, get parameters.

The box holds the parameters and the optimiser's state; workers hold a copy of the parameters,
which step() overwrites in place. So all workers have the same bits after every step.
"""

import math
import warnings
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

from .. import _buffers, _lib
from ..client import Client, Operation, Table, Tensor
from ..errors import PBoxInvalid, PBoxMismatch, PBoxRefused
from ._session import connect

_WIRE = {"bf16": torch.bfloat16, "fp16": torch.float16}
_SAMPLED = ("sample_mean", "weighted_mean")


class BoxOptimizer(torch.optim.Optimizer):
    """What SGD, Adam and AdamW share; use those.

    params             as for torch.optim: parameters or groups of them. float32, on the CPU,
                       contiguous. All workers pass the same ones in the same order.
    box, job, secret   default: PBOX_BOX, PBOX_JOB, PBOX_SECRET of the environment
    worker, workers    default: those of torch.distributed if initialised, else RANK and
                       WORLD_SIZE of the environment
    op                 what a step makes of the gradients: "mean" (each worker's counts the
                       same), "sum", "weighted_mean" (of means over samples) or "sample_mean" (of
                       sums over samples); for the last two pass step(samples=n)
    push, pull         formats on the wire: "fp32", "bf16", "fp16". With a narrow `pull` the box
                       keeps fp32 parameters and the workers get rounded ones.
    clip_value         clamp each element of the reduced gradient to +-clip_value

    The constructor blocks until all workers are there; worker 0 then gives its parameters to the
    box and all others receive them. Parameters that are changed elsewhere later (by loading a
    checkpoint, by clipping weights) are not seen by the box and are overwritten by the next
    step(): load checkpoints first.

    A parameter whose grad is None contributes zeros. Unlike torch.optim, which skips it, the
    step still applies momentum and weight decay to it: other workers may have a gradient for it,
    and all must do the same.

    first_round        for a worker that was killed and goes on from its own checkpoint: what
                       next_round was when that was taken. params (and lr of the groups) must be
                       the checkpoint's; they are neither sent nor overwritten.

    state_dict() holds the hyper-parameters only. Momentum and moments live on the box for as long
    as the job does; after load_state_dict() in a new job they start from zero.
    """

    _optimiser = "none"
    _hypers: Tuple[str, ...] = ()

    def __init__(self, params: Any, defaults: Dict[str, Any], *, box: Optional[str] = None,
                 job: Optional[str] = None, secret: Optional[str] = None,
                 worker: Optional[int] = None, workers: Optional[int] = None, op: str = "mean",
                 push: str = "fp32", pull: str = "fp32", clip_value: float = 0.0,
                 client: Optional[Client] = None, declare_timeout: Optional[float] = None,
                 first_round: int = 0, **options: Any) -> None:
        self._declared = False
        if not 0 <= clip_value < math.inf:
            raise PBoxInvalid(f"clip_value is {clip_value}: needed is 0 (off) or more")
        defaults = dict(defaults, clip_value=clip_value)
        super().__init__(params, defaults)
        self._op, self._push, self._pull = op, push, pull
        self._all: List[torch.nn.Parameter] = []
        specs: List[Tensor] = []
        for g, group in enumerate(self.param_groups):
            self._check_group(g, group)
            for i, p in enumerate(group["params"]):
                name = f"group {g} parameter {i} {tuple(p.shape)}"
                _buffers.check_torch(p.data, name)
                if p.dtype != torch.float32:
                    raise PBoxInvalid(
                        f"{name} has dtype {p.dtype}: optimisers on the box work in float32 (for "
                        "fewer bytes on the wire see push= and pull=)")
                self._all.append(p)
                specs.append(Tensor(name, p.numel(), g))
        self._session = connect(box, job, secret, worker, workers, client, **options)
        try:
            self.client: Client = self._session.client
            self.table: Table = self.client.declare(
                specs, mode="optimiser", op=op, optimiser=self._optimiser, push=push, pull=pull,
                timeout=declare_timeout, first_round=first_round)
            self._declared = True
            self._prepare()
            self._sent: List[Dict[str, float]] = [{} for _ in self.param_groups]
            # in a job that has not begun, rounds begin with 1, and there is nothing to go on with
            self._resumed = first_round > 0 and self.table.next_round == first_round > 1
            if not self._resumed:
                self._send_hypers()
                self._share_parameters()
        except BaseException:
            self._session.release()
            raise
        self.rounds = 0
        self._pending: Optional[Operation] = None
        self._mark_versions()

    # ---- setting up

    def _check_group(self, number: int, group: Dict[str, Any]) -> None:
        """Raise for what the box cannot do (subclasses)."""

    def _prepare(self) -> None:
        """Buffers and the address array, made once."""
        self._io = (_lib.Io * max(1, len(self._all)))()
        # a worker without a gradient for a parameter sends zeros; one array serves all
        self._zeros: Optional[torch.Tensor] = None
        self._narrow_push: List[torch.Tensor] = []
        self._narrow_pull: List[torch.Tensor] = []
        if self._push != "fp32":
            self._narrow_push = [torch.empty_like(p.data, dtype=_WIRE[self._push])
                                 for p in self._all]
        if self._pull != "fp32":
            self._narrow_pull = [torch.empty_like(p.data, dtype=_WIRE[self._pull])
                                 for p in self._all]

    def _share_parameters(self) -> None:
        """Worker 0's parameters become everybody's."""
        if self.client.worker == 0:
            self.table.init([p.data for p in self._all]).wait()
        # worker 0 receives its own too: with a narrow pull format they come back rounded, and
        # all workers shall compute with the same ones
        into = self._narrow_pull or [p.data for p in self._all]
        self.table.pull(into).wait()
        self._widen()

    def _widen(self) -> None:
        for p, n in zip(self._all, self._narrow_pull):
            p.data.copy_(n)

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        if self._declared:
            raise PBoxInvalid(
                "parameters cannot be added once the optimiser was made (all workers have "
                "declared them): make a second optimiser for them")
        super().add_param_group(param_group)

    @property
    def next_round(self) -> int:
        """Number of the next step's round: `first_round` of who goes on from a checkpoint that is
        taken now."""
        return self.table.next_round

    # ---- hyper-parameters

    def _hyper_values(self, group: Dict[str, Any]) -> Dict[str, float]:
        values = {k: float(group[k]) for k in self._hypers}
        if "betas" in group:
            values["beta1"], values["beta2"] = map(float, group["betas"])
        if group.get("clip_value"):
            values["clip_value"] = float(group["clip_value"])
        return values

    def _send_hypers(self) -> None:
        """Tell the box what changed since the last step. Every worker does: a round waits for
        all contributions, so it cannot be computed before the values have arrived, and workers
        that disagree get an error rather than a surprise."""
        for g, group in enumerate(self.param_groups):
            new = self._hyper_values(group)
            old = self._sent[g]
            changed = {k: v for k, v in new.items() if old.get(k) != v}
            if "clip_value" in old and "clip_value" not in new:
                changed["clip_value"] = 0.0
            if changed:
                try:
                    self.table.set_hyper(g, **changed)
                except (PBoxMismatch, PBoxRefused) as e:
                    if self._resumed and "already finished" in str(e):
                        # our gradient of this round had arrived before we were killed, so these
                        # values had been sent before it
                        self._sent[g] = new
                        continue
                    mine = ", ".join(f"{k}={v:g}" for k, v in changed.items())
                    raise type(e)(f"{e} (this worker has {mine} in group {g})") from None
                self._sent[g] = new

    # ---- a step

    def _mark_versions(self) -> None:
        self._versions = [p._version for p in self._all]

    def _warn_if_changed(self) -> None:
        for i, (p, v) in enumerate(zip(self._all, self._versions)):
            if p._version != v:
                warnings.warn(
                    f"parameter '{self.table.tensors[i].name}' was changed outside of step(): "
                    "the box does not see that, and this step overwrites it. Load checkpoints "
                    "before making the optimiser", RuntimeWarning, stacklevel=4)
                break

    def _gradient(self, i: int, p: torch.nn.Parameter, keep: List[torch.Tensor]) -> int:
        g = p.grad
        what = self.table.tensors[i].name
        if g is None:
            if self._zeros is None:
                n = max(p.numel() for p in self._all)
                self._zeros = torch.zeros(n, dtype=_WIRE.get(self._push, torch.float32))
            return self._zeros.data_ptr()
        if g.is_sparse or g.dtype != torch.float32 or g.device.type != "cpu":
            _buffers.check_torch(g, f"gradient of {what}")
            raise PBoxInvalid(f"gradient of {what} has dtype {g.dtype}: needed is float32")
        if g.numel() != p.numel():
            raise PBoxInvalid(f"gradient of {what} has {g.numel()} elements")
        if self._narrow_push:
            return self._narrow_push[i].copy_(g).data_ptr()
        if not g.is_contiguous():
            g = g.contiguous()
        keep.append(g)
        return g.data_ptr()

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None, *,
             samples: Optional[int] = None) -> Any:
        """Push the gradients, wait for the other workers', get the new parameters."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._pending is not None:
            raise PBoxInvalid("the last step has not ended: call wait(), or give up")
        if (samples is not None) != (self._op in _SAMPLED):
            raise PBoxInvalid(
                f"op is '{self._op}': step(samples=n) belongs to {' and '.join(_SAMPLED)}")
        if samples is not None and not 0 <= samples < 1 << 32:
            raise PBoxInvalid(f"samples is {samples}: needed is 0 to 4294967295")
        self._warn_if_changed()
        self._send_hypers()
        keep: List[torch.Tensor] = []
        for i, p in enumerate(self._all):
            io = self._io[i]
            io.tensor = i
            grad = self._gradient(i, p, keep)
            into = self._narrow_pull[i] if self._narrow_pull else p
            # elements 0 have no address, and NULL means "not given"
            io.input = grad or _buffers.ADDRESS_OF_NOTHING
            io.output = into.data_ptr() or _buffers.ADDRESS_OF_NOTHING
        self._pending = self.table.submit_io(
            _lib.PUSHPULL, self._io, len(self._all), keep,
            weight=1 if samples is None else samples)
        self.wait()
        return loss

    def wait(self, timeout: Optional[float] = None) -> None:
        """Only after step() has raised PBoxDeadline: wait again for the same step."""
        if self._pending is None:
            return
        self._pending.wait(timeout)
        self._pending = None
        self._resumed = False
        if self._narrow_pull:
            with torch.no_grad():
                self._widen()
        self.rounds += 1
        self._mark_versions()

    # ---- state

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Hyper-parameters only; they go to the box with the next step()."""
        super().load_state_dict(state_dict)
        for g, group in enumerate(self.param_groups):
            self._check_group(g, group)

    def close(self) -> None:
        """Leave the job (unless others share the session)."""
        self._session.release()


def _refuse(group: Dict[str, Any], names: Tuple[str, ...]) -> None:
    for n in names:
        if group.get(n):
            raise PBoxInvalid(f"{n} is not available on the box")


class SGD(BoxOptimizer):
    """torch.optim.SGD on the box: plain, with momentum, or Nesterov's."""

    _hypers = ("lr", "momentum", "dampening", "weight_decay")

    def __init__(self, params: Any, lr: float, momentum: float = 0.0, dampening: float = 0.0,
                 weight_decay: float = 0.0, nesterov: bool = False, **kwargs: Any) -> None:
        if nesterov and (momentum <= 0 or dampening != 0):
            raise PBoxInvalid("nesterov needs a momentum and no dampening")
        self._nesterov = nesterov
        self._plain = momentum == 0
        self._optimiser = "nesterov" if nesterov else "sgd" if momentum == 0 else "momentum"
        defaults = dict(lr=lr, momentum=momentum, dampening=dampening,
                        weight_decay=weight_decay, nesterov=nesterov)
        super().__init__(params, defaults, **kwargs)

    def _check_group(self, number: int, group: Dict[str, Any]) -> None:
        _refuse(group, ("maximize", "differentiable"))
        if bool(group["nesterov"]) != self._nesterov:
            raise PBoxInvalid(f"group {number}: nesterov must be the same in all groups")
        if self._plain and group["momentum"] != 0:
            raise PBoxInvalid(
                f"group {number} has a momentum and the optimiser was made without: pass "
                "momentum= to the constructor, and 0 in the groups that have none")
        if not self._plain and group["momentum"] == 0 and group["dampening"] != 0:
            raise PBoxInvalid(f"group {number}: dampening without momentum has no meaning")


class Adam(BoxOptimizer):
    """torch.optim.Adam on the box (no amsgrad)."""

    _optimiser = "adam"
    _hypers = ("lr", "weight_decay", "eps")
    _weight_decay = 0.0

    def __init__(self, params: Any, lr: float = 1e-3,
                 betas: Tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: Optional[float] = None, amsgrad: bool = False,
                 **kwargs: Any) -> None:
        if weight_decay is None:
            weight_decay = self._weight_decay
        defaults = dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad)
        super().__init__(params, defaults, **kwargs)

    def _check_group(self, number: int, group: Dict[str, Any]) -> None:
        _refuse(group, ("amsgrad", "maximize", "differentiable"))


class AdamW(Adam):
    """torch.optim.AdamW on the box (no amsgrad)."""

    _optimiser = "adamw"
    _weight_decay = 1e-2
