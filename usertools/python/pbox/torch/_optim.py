# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Optimisers that run on the box: push gradients, get parameters.

The box holds the parameters and the optimiser's state; workers hold a copy of the parameters,
which step() overwrites in place. So all workers have the same bits after every step.
"""

import ctypes as ct
import dataclasses
import logging
import math
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple, Union

import torch

from .. import _buffers, _checks, _lib, _modes
from ..client import ANY_ROUND, Client, Operation, Table, Tensor
from ..errors import PBoxDeadline, PBoxError, PBoxInvalid, PBoxMismatch, PBoxMore, PBoxRefused, PBoxRunning
from . import _apart, _clip, _compress, _content, _decide, _device, _finite, _layout, _model, _placed, _skip
from ._agree import Agreement, Alone, Hypers
from ._alike import Alike
from ._early import Early
from ._rates import Rates
from ._session import (DECLARE_SECONDS, between_rounds, check_slots, connect, goes_by_slots,
                       trains, trains_no_more)
from ._model import ModelState
from . import _norm
from ._owned import Owned
from ._slots import Slots, SlotTraining
from ._stale import QUARTERS, LooseTree, Stale, quarters_of
from ._state import State
from ._tree import Sums, Tree, separate
from ._work import Work

_log = logging.getLogger("pbox")
_WIRE = {"bf16": torch.bfloat16, "fp16": torch.float16}
_SAMPLED = ("sample_mean", "weighted_mean")
_HYPER_NAMES = ("lr", "momentum", "dampening", "weight_decay", "beta1", "beta2", "eps", "clip_value", "steps",
                "plain", "maximize", "coefficient", "max_norm")  # ids 1 and on
# all contents of the parameters are looked at in the first steps, and then every so often; in each of the others one of these parts
_LOOK_FIRST, _LOOK_EVERY, _LOOK_PARTS = 4, 64, 64
_LOOK_LEAST = 4096  # elements of a piece: reading fewer costs as much
_RUNNING_SECONDS = 3.0  # so long a worker asks whether a run is over that it may be started again in the first round of (R12.7)


class BoxOptimizer(SlotTraining, _norm.Clipping, torch.optim.Optimizer):
    """What SGD, Adam and AdamW share; use those.

    params             as for torch.optim: parameters or groups of them. float32, on the CPU or all on one GPU,
                       dense (channels_last is). All workers pass the same ones in the same
                       order, stored alike.
    box, job, secret   default: PBOX_BOX, PBOX_JOB, PBOX_SECRET of the environment
    worker, workers    default: those of torch.distributed if initialised, else RANK and
                       WORLD_SIZE of the environment
    process_group      whose ranks are the workers; default: all ranks of torch.distributed
    op                 what a step makes of the gradients: "mean" (each worker's counts the
                       same), "sum", "weighted_mean" (of means over samples) or "sample_mean" (of
                       sums over samples); for the last two pass step(samples=n)
    push, pull         formats on the wire: "fp32", "bf16", "fp16". With a narrow `pull` the box
                       keeps fp32 parameters and the workers get rounded ones. push="int8" or "mxfp4": gradients (with slots the sums that a
                       worker sends) go in 1.03 or 0.53 bytes an element, and what one step does not say goes with the next one.
                       pull="int8" or "mxfp4", without slots: the box sends by how much parameters have changed, and what it has not said
                       so comes with the next step. Both without max_norm, at one box: see doc/train-reference.md
    compress           "auto": in which rounds pushes (each worker for itself) and results (worker 0 for all) go in the formats of `push` and `pull`,
                       int8 by default, and in which in fp32, is chosen by what an exchange costs beyond the computation. The bits depend on that;
                       `compressed` is the list that repeats it: compress=[(1, "fp32"), (200, "int8")]. See doc/train-reference.md
    clip_value         clamp each element of the reduced gradient to +-clip_value
    max_norm           clip the gradient of all workers by its norm, as torch.nn.utils.clip_grad_norm_ does with that of one process: of all
                       parameters of this optimiser. `grad_norm` is the norm of the last step, before it was clipped. Rounds have two
                       phases then, and take longer: see doc/train-optimiser.md
    skip_nonfinite     True: a step whose gradient has a NaN or an infinity is left out by all workers: parameters, state and the number of
                       steps stay as they are (`skipped_nonfinite` counts them)
    local_clip         True: clip_grad_norm_ and the like on this worker's own gradients are what
                       is wanted. Else they are an error: see doc/train-optimiser.md
    local_backward     True: gradients of this worker alone may be thrown away between steps. Else workers that
                       differ in how many were get PBoxMismatch: one has left a step out
    slots              micro-batches into which each round is divided, the same at all workers. Then
                       step() ends one slot, takes its gradients away, and makes the step of
                       the round with the last slot of this worker (`round_ended`). The same slots
                       give the same bits on any number of workers: see sampler(), and doc/train-slots.md

    send_early         with policy="reassign": gradients of this worker's last slot of a round leave while backward() goes on, so each
                       slot has one backward(), and nobody changes gradients between that and step(). The bits are the same

    ahead              with policy="reassign": 0.25, 0.5, 0.75 or 1 of the slots are computed on the parameters of a round before, so that a worker
                       goes on with them while parameters are on their way: see doc/train-plan.md. Another algorithm than without, the same at
                       all workers

    steal              with policy="reassign": within a round a worker that is done takes slots of the one that would end last, so that a worker that
                       is slow all of a sudden costs less: see doc/train-plan.md. Batches come from loader(), or `slot` is asked for. Workers may differ in it: from
                       one without it nothing is taken. The bits are the same

    least              with policy="reassign": the training begins with this many of `workers`, and others come and go while it
                       runs: see doc/train-join.md. Each takes a free number, and all name the run (PBOX_RUN)

    model              the module that the parameters are of (or several): its frozen parameters and its buffers are compared, and where workers differ
                       all get worker 0's, up to 64 MiB; with policy="reassign" that is PBoxMismatch
    ignore             names of parameters and buffers of the model that are each worker's own; * is for anything

    The constructor blocks until all workers are there; worker 0 then gives its parameters to the
    box and all others receive them. Parameters that are changed elsewhere later (by loading a
    checkpoint, by clipping weights) are not seen by the box: the next step() raises PBoxInvalid.
    Load checkpoints first.

    Parameters with requires_grad=False are left out: nothing changes them. A parameter whose
    grad is None at some workers contributes zeros there. One whose grad is None at all workers
    torch.optim leaves alone; the box cannot, and the step raises PBoxInvalid where that makes a
    difference (where momentum, moments or weight decay would change the parameter).

    Hyper-parameters go to the box with the step that follows their change. Workers whose values
    differ get PBoxMismatch in that step, with both values.

    first_round        for a worker that was killed and goes on from its own checkpoint: what
                       next_round was when that was taken. params (and lr of the groups) must be
                       the checkpoint's; they are neither sent nor overwritten.

    torch's GradScaler is asked for: where it has found inf at one worker, all leave the step out (`skipped` counts
    them).

    state_dict() and load_state_dict() are torch.optim's, with the state that the box keeps:
    checkpoints of either load into the other.
    """

    _optimiser = "none"
    _hypers: Tuple[str, ...] = ()
    _arrays: Tuple[str, ...] = ()  # of the optimiser's state, in torch's names
    _counted = False  # torch's state has the number of steps as well
    _work: Optional[Work] = None  # policy reassign
    _added: "Sequence[BoxOptimizer]" = ()  # of groups that were added
    _early: Optional[Early] = None  # send_early
    _step_supports_amp_scaling = True  # GradScaler calls step() though it has found inf

    def __init__(self, params: Any, defaults: Dict[str, Any], *, box: Optional[str] = None,
                 job: Optional[str] = None, secret: Optional[str] = None,
                 worker: Optional[int] = None, workers: Optional[int] = None, op: str = "mean",
                 push: str = "fp32", pull: str = "fp32", clip_value: float = 0.0,
                 local_clip: bool = False, local_backward: bool = False, client: Optional[Client] = None,
                 declare_timeout: Optional[float] = None, first_round: int = 0,
                 max_norm: Optional[float] = None, skip_nonfinite: bool = False, slots: Optional[int] = None, send_early: bool = False, ahead: float = 0.0, steal: bool = False,
                 compress: Any = None, model: Any = None, ignore: Sequence[str] = (), part_of: Optional["BoxOptimizer"] = None, **options: Any) -> None:
        self._declared = False
        self._root: BoxOptimizer = self if part_of is None else part_of
        self._first_group = 0 if part_of is None else len(part_of.param_groups) - 1
        self._base: Dict[int, int] = {}
        if not 0 <= _checks.real(clip_value, "clip_value") < math.inf:
            raise PBoxInvalid(f"clip_value is {clip_value}: needed is 0 (off) or more")
        max_norm = _norm.number(max_norm)
        defaults = dict(defaults, clip_value=clip_value)
        super().__init__(params, defaults)
        self._n_groups = len(self.param_groups)
        # steps that all leave out have a round of the agreement, and none of the parameters: a checkpoint has both
        first_round = _checks.whole(first_round, "first_round", (1 << 64) - 1)
        first_round, skipped = first_round & _checks.U32, first_round >> 32
        planned = options.get("policy") == "reassign"
        self._compress: Optional[_compress.Compress] = None
        chosen: Any = None
        if compress is not None:
            chosen, push, pull = _compress.parse(compress, push, pull, slots is None and not planned)
            if send_early:
                raise PBoxInvalid("compress= goes without send_early: gradients leave before it is known what the exchange costs")
        self._op, self._push, self._pull = op, push, pull
        self._check_blocks(slots, options, max_norm is not None or skip_nonfinite)
        self._pulled = _buffers.arrays_of(pull)  # format of the arrays that results come into
        self._sends_early = send_early
        self._quarters = quarters_of(ahead) if ahead else 0
        if self._quarters and (send_early or first_round or options.get("least") is not None):
            raise PBoxInvalid("ahead= goes without send_early, first_round and least: who begins in a running job lacks the parameters of the round "
                              "before")
        self._steals = steal
        _modes.check(type(self).__name__, steal=steal, ahead=self._quarters)
        self.local_clip, self._local_backward = local_clip, local_backward
        self._skips = bool(skip_nonfinite)
        phases = max_norm is not None or skip_nonfinite
        self._model: Optional[ModelState] = None
        specs = self._list_parameters()
        if model is not None:
            self._model = ModelState(model, ignore, self._all)
        elif ignore:
            raise PBoxInvalid("ignore= is of the model's state: pass model= as well")
        if slots is not None and client is None:
            options["slots"] = slots
        self._session = connect(box, job, secret, worker, workers, client, **options) if part_of is None else part_of._session
        try:
            self.client: Client = self._session.client
            between_rounds(self.client, "another optimiser")
            self._divide(slots)
            if phases:
                policy = self.client.policy
                _modes.check(type(self).__name__, hold=True, plan=policy == "reassign", shrink=policy == "shrink", gpu=self._device is not None)
            if declare_timeout is None:
                declare_timeout = max(self.client.timeout, DECLARE_SECONDS)
            self._agreement: Union[Agreement, Alone]
            if self._model is not None and self.client.policy == "reassign" and self._model.names:
                # the job has this table alone, so what must not differ is in its names
                specs[-1] = dataclasses.replace(specs[-1], name=f"{specs[-1].name}{_model.LABEL}{self._model.label()}")
            elif model is None and self.client.workers > 1 and part_of is None:
                _model.warn(f"pbox.torch.{type(self).__name__}")
            self._resumed = False
            try:
                self.table: Table = self._declare(specs, first_round, declare_timeout, phases, chosen is not None)
            except PBoxMismatch as e:
                raise _model.explained(e)
            if phases:
                self._phases = _norm.Phases(self.table, max_norm, self._skips)
            # with policy shrink workers come back between steps: they cannot be compared
            alone = self.client.workers == 1 or self.client.policy in ("shrink", "reassign")
            self._agreement = Alone() if alone else \
                Agreement(self.client, len(self._all), declare_timeout,
                          first_round if first_round == ANY_ROUND else first_round + skipped)
            self._declared = True
            if chosen is not None:
                self._compress = _compress.Compress(self.table, chosen, push, pull, slots is None and not planned)
            if self.client.policy == "reassign":
                self._begin_plan()
            if steal and self._work is None:
                raise PBoxInvalid("steal=True is for policy='reassign': with another one a slot has one worker")
            if send_early:
                self._check_early()
            if self._quarters and (self._work is None or self._pull != "fp32"):
                raise PBoxInvalid("ahead= is for policy='reassign' with pull='fp32'")
            self._prepare()
            self._kept = State(self.table, self._arrays, self._counted, self._all,
                               self._group_of, self._order, len(self.param_groups))
            self._sent: Hypers = [{} for _ in self.param_groups]
            # in a job that has not begun, rounds begin with 1, and there is nothing to go on with
            self._in_first = self._resumed
            self._resumed |= first_round > 0 and self.table.next_round == first_round > 1
            if first_round > 0:
                self._session.goes_on = self._resumed
            if not self._resumed and not self._is_newcomer:
                self._share_parameters()
            elif self._in_first:
                self._give_parameters()
            self._declare_rates(declare_timeout, first_round)
            self._compare_model(declare_timeout)
            self._alike: Optional[Alike] = None
            if self._slots is not None and self.client.workers > 1 and self.client.policy != "reassign" and part_of is None:
                late = (self._resumed and not self._in_first) or self._back
                alike = Alike(self.client, declare_timeout, ANY_ROUND if late else first_round)
                self._alike = None if late else alike
                self._slots.compares = not late
            if self._stale is not None:
                self._stale.begins()
            self._discards = None if alone or local_backward else _skip.Discards(self._all)
        except BaseException:
            if part_of is None:
                self._session.release()
            raise
        self._went_on = self._resumed
        self.rounds = self._round = self._agreed = 0
        self.skipped = skipped if self._resumed else 0
        self._discarded = 0
        self._owned = None if self._slots is None else Owned(self._all)
        self._inf: Optional[bool] = None  # in this round; None: no GradScaler
        # a gradient at any worker, in a step before? Who goes on does not know, so: yes
        self._begun = (self._resumed and not self._in_first) or self._is_newcomer
        self._had = [self._begun] * len(self._all)
        self._failed: Optional[Exception] = None
        self._values: Optional[List[torch.Tensor]] = None  # of push_parameters
        self._todo: List[Callable[[Optional[float]], None]] = []
        self._pieces = self._divide_contents()
        self._looks = 0  # at gradients
        self._remember()
        _clip.watch(self, self._all)
        if self._slots is not None and part_of is None:
            trains(self.client, self._slots)
        self._stepped = False
        if send_early:
            self._early = Early(self, self._all)

    # ---- setting up

    def _declare(self, specs: List[Tensor], first_round: int, timeout: float, hold: bool, mixed: bool) -> Table:
        """In the first round of a run its number alone does not say whether this worker begins with the others, or goes on alone: the box knows, if the
        worker does not say that it goes on (R12.6)."""
        def declare(first_round: int, timeout: float) -> Table:
            return self.client.declare(specs, mode="optimiser", op=self._wire_op, optimiser=self._optimiser, push=self._push, pull=self._pull,
                                       timeout=timeout, first_round=first_round, hold=hold, mixed=mixed)

        known = self._session.goes_on  # by an optimiser before this one; then all tables say it
        if first_round != 1 or self.client.policy != "wait" or known is False:
            return declare(first_round, timeout)
        try:
            if not known:
                try:
                    return declare(0, min(timeout, _RUNNING_SECONDS))
                except PBoxDeadline:  # others have not come yet
                    return declare(0, timeout)
        except PBoxRunning:
            pass
        self._resumed = True
        return declare(1, timeout)

    def _check_blocks(self, slots: Optional[int], options: Dict[str, Any], phases: bool) -> None:
        """What does not go together by the arguments alone; the rest is known when there is a session (doc/modes.md)."""
        policy = options.get("policy")
        _modes.check(type(self).__name__, slots=slots is not None or policy == "reassign", plan=policy == "reassign", shrink=policy == "shrink", hold=phases,
                     push=self._push in _buffers.BLOCKS, pull=self._pull in _buffers.BLOCKS)

    def _divide(self, slots: Optional[int]) -> None:
        """Which slots this worker computes, and what the box makes of the nodes."""
        if slots is None:
            if self.client.slots != self.client.workers:
                raise PBoxInvalid(
                    f"this optimiser has no slots=, and the session has the {self.client.slots} slots of the job: pass "
                    f"slots={self.client.slots}, as all its optimisers do; without, its steps would depend on the number "
                    "of workers")
            self._wire_op = self._op
            return
        check_slots(self.client, slots)
        if self.client.policy == "shrink":
            _log.warning("policy='shrink' with slots=%d: rounds go on without the slots of a worker that is dead, so from then "
                         "on the bits depend on which workers lived. Take policy='wait' (the default) for the same bits", slots)
        nodes = self.client.nodes()
        self._slots = Slots(slots, [s for first, n in nodes for s in range(first, first + n)])
        self._fixed_tree = Tree(nodes)
        # the weights are in the values, n_i p_i, before they are added: the same bits
        self._wire_op = "sample_mean" if self._op == "weighted_mean" else self._op

    def _begin_plan(self) -> None:
        if self._slots is None:
            raise PBoxInvalid("policy='reassign' gives slots to others: pass slots=V to the optimiser")
        _modes.check(type(self).__name__, plan=True, gpu=self._device is not None)
        if _buffers.arrays_of(self._push) != "fp32":
            raise PBoxInvalid(f"policy='reassign' and push={self._push!r}: how a narrow sum is rounded would depend on the plan; take "
                              "push='fp32' (pull= may be narrow), or, where the bits may depend on it, push='int8'")
        if self._quarters:
            self._stale = Stale(self._quarters, self._all)
        self._work = Work(self.table, self._slots, [p.data for p in self._all] if self._pull == "fp32" and not self._quarters else (), self._stale,
                          self._steals)
        if self._quarters and self._work.newcomer:
            raise PBoxInvalid("this job trains with ahead=, and has begun without this worker, which lacks the parameters of the round before: it goes on "
                              "without it")

    def _check_early(self) -> None:
        if self._work is None or self._pull != "fp32":
            raise PBoxInvalid("send_early=True: results come while backward() still reads the parameters, so it is for policy='reassign' with "
                              "pull='fp32', where they have a place of their own")
        if self._op in _SAMPLED or self.local_clip:
            raise PBoxInvalid(f"send_early=True: gradients leave before step() can say samples= (op={self._op!r}) or anything can clip them "
                              "(local_clip): take op='mean', or leave send_early out")

    @property
    def early_tensors(self) -> int:
        """Tensors that have left during backward passes so far (send_early)."""
        return 0 if self._early is None else self._early.tensors

    @property
    def stolen_slots(self) -> int:
        """Slots of others that this worker has computed so far (steal)."""
        return 0 if self._work is None else self._work.stolen

    @property
    def lost_slots(self) -> int:
        """Slots of this worker that others have computed so far as it was late (steal)."""
        return 0 if self._work is None else self._work.lost

    @property
    def _is_newcomer(self) -> bool:
        return self._work is not None and self._work.newcomer

    @property
    def _tree(self) -> Union[Tree, LooseTree]:
        return self._fixed_tree if self._work is None else self._work.tree

    @property
    def leads(self) -> bool:
        """Is this the one worker that saves and evaluates? With policy "reassign" the lowest number of those that
        are there; else worker 0."""
        return self.client.worker == 0 if self._work is None else self._work.leads

    def agree(self, value: float = 0.0, timeout: Optional[float] = None) -> float:
        """One decision for all workers: the number that the worker which `leads` passes, in float64, at each of them. All call it after the same round (where
        `round_ended` is true), once a round; what the others pass is not looked at. So an early stop, or a scheduler that follows the loss, is the same
        everywhere: `if optimiser.agree(optimiser.leads and worse()): break`.

        timeout  seconds; None: that of the client
        """
        number = float(value)
        if self._slots is not None:
            self._slots.between_rounds("agree()", ". All workers call it where optimiser.round_ended is true")
        if self._work is None:
            return _decide.by_reduction(self.client, number, timeout)
        before = self._round + 1 if self.rounds else self.table.next_round
        if before == self._agreed:
            raise PBoxInvalid(f"agree() was called before round {before} already: there is one decision a round; combine them into one number")
        number = self._work.agree(number, before, self.client.timeout if timeout is None else timeout)
        self._agreed = before
        return number

    def _check_group(self, number: int, group: Dict[str, Any]) -> None:
        """Raise for what the box cannot do (subclasses)."""

    def _list_parameters(self) -> List[Tensor]:
        """What the box gets to see: all that want a gradient now."""
        self._all: List[torch.nn.Parameter] = []
        self._group_of: List[int] = []
        self._order: List[_layout.Order] = []
        self._left_out: List[Tuple[str, torch.nn.Parameter]] = []
        specs: List[Tensor] = []
        if len(self.param_groups) > _lib.MAX_GROUPS:
            raise PBoxInvalid(f"{len(self.param_groups)} parameter groups: the box has {_lib.MAX_GROUPS} for an optimiser; put parameters "
                              "with the same hyper-parameters into one, or make several optimisers")
        _norm.check_groups(self.param_groups)
        for g, group in enumerate(self.param_groups):
            self._check_group(g, group)
            for i, p, order in _layout.trained(g, group, self._left_out, "optimisers on the box work in float32 (for fewer bytes on the "
                                               "wire see push= and pull=)", host=False):
                self._all.append(p)
                self._group_of.append(g)
                self._order.append(order)
                # workers that differ in it must not meet: a declaration has it in its names
                early = f", {self._quarters} of {QUARTERS} slots ahead" if self._quarters else ", sent early" if self._sends_early else \
                    ", skip_nonfinite" if self._skips else ""
                specs.append(Tensor(f"group {self._first_group + g} parameter {i} {_layout.label(order)}"
                                    f"{tuple(p.shape)}{early}", p.numel(), g))
        self._device = _device.of(self._all, lambda i: specs[i].name)
        _apart.check_parameters(self.param_groups)
        self._check_apart([s.name for s in specs])
        return specs

    def _check_apart(self, names: List[str]) -> None:
        _apart.check([p.data for p in self._all], lambda i: f"'{names[i]}'",
                     "Weights that are tied share the Parameter (b.weight = a.weight, not b.weight.data = a.weight.data)")

    def _prepare(self) -> None:
        """Buffers and the address array, made once."""
        self._placed = None if self._device is None else _placed.Placed(
            self.client, self._device, self._all, self._order, _WIRE.get(self._push, torch.float32), _WIRE.get(self._pull, torch.float32),
            self._slots is not None)
        self._io = (_lib.Io * max(1, len(self._all)))()
        nodes = 1 if self._slots is None else _lib.MOST_NODES if self._work is not None else len(self._tree.nodes)
        self._addresses = (ct.c_void_p * max(1, nodes * len(self._all)))()
        # a worker without a gradient for a parameter sends zeros; one array serves all
        self._zeros: Optional[torch.Tensor] = None
        self._narrow_push: List[torch.Tensor] = []
        self._narrow_pull: List[torch.Tensor] = []
        if self._placed is not None:
            return
        if _buffers.arrays_of(self._push) != "fp32":
            self._narrow_push = [torch.empty_like(p.data, dtype=_WIRE[self._push])
                                 for _ in range(nodes) for p in self._all]
        if self._pulled != "fp32":
            self._narrow_pull = [torch.empty_like(p.data, dtype=_WIRE[self._pull])
                                 for p in self._all]

    def _dense(self, tensors: List[torch.Tensor]) -> List[torch.Tensor]:
        """As the box sees them: the same memory."""
        return [_layout.dense(t, o) for t, o in zip(tensors, self._order)]

    def _share_parameters(self) -> None:
        """Worker 0's parameters become everybody's."""
        if self._placed is not None:
            if self.client.worker == 0:
                self.table.init(self._placed.values()).wait()
            self._placed.pull(self.table)
            return
        own = self._dense([p.data for p in self._all])
        if self.client.worker == 0:
            self.table.init(own).wait()
        # worker 0 receives its own too: with a narrow pull format they come back rounded, and
        # all workers shall compute with the same ones
        into = self._dense(self._narrow_pull) if self._narrow_pull else own
        self.table.pull(into).wait()
        self._widen()

    def _give_parameters(self) -> None:
        """Worker 0 was killed in the first round, maybe before the box had its parameters: this changes none that it has."""
        if self.client.worker == 0:
            self.table.init(self._dense([p.data for p in self._all]) if self._placed is None else self._placed.values()).wait()

    def _compare_model(self, timeout: float) -> None:
        """What the optimiser does not have of the model, too."""
        if self._model is None or self.client.workers == 1:
            return
        back = self._back
        if self.client.policy != "reassign":
            self._model.meet(self.client, timeout, self._resumed or back, self._resumed)
        if self._is_newcomer or (back and not self._resumed):
            self._model.comes_late()

    def _widen(self) -> None:
        for p, n in zip(self._all, self._narrow_pull):
            p.data.copy_(n)

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """As in torch: from the next step on these parameters are trained as well, and their state begins then. All workers call it between the same
        steps, with as many parameters, and get those of worker 0. The box gets a table more, so a step has a round more."""
        if not self._declared:
            super().add_param_group(param_group)
            return
        self._check_adds()
        before = len(self.param_groups)
        super().add_param_group(param_group)
        try:
            self._check_group(before, self.param_groups[before])
            self._added = [*self._added, self._made_of(self.param_groups[before])]
        except BaseException:
            del self.param_groups[before:]
            raise

    def _check_adds(self) -> None:
        what = "add_param_group() of an optimiser that was made"
        if self._failed is not None:
            raise self._failed
        if self.client.policy != "wait":
            raise PBoxInvalid(f"{what}: with policy={self.client.policy!r} a job has the tables that it began with; pass all groups to the constructor, with lr=0 "
                              "for what is not to be trained yet")
        if self._compress is not None:
            raise PBoxInvalid(f"{what}: with compress= all parameters have one table; pass all groups to the constructor")
        if self._phases is not None:
            raise PBoxInvalid(f"{what}: with max_norm= or skip_nonfinite= all parameters have one norm, and so one table; pass all groups to the constructor")
        if self._went_on:
            raise PBoxInvalid(f"{what}, and has gone on from a checkpoint (first_round): the others are past the step in which they added the group. Start all workers "
                              "again from a checkpoint, with all groups in the constructor")
        if self._todo:
            raise PBoxInvalid(f"{what}: the last step has not ended: call wait(), or give up")
        between_rounds(self.client, what)

    def _made_of(self, group: Dict[str, Any]) -> "BoxOptimizer":
        """What trains a group that was added: one with a table of its own."""
        kind: Any = next(c for c in type(self).__mro__ if "_optimiser" in vars(c) or "_hypers" in vars(c))
        new = [p for p in group["params"] if p.requires_grad]
        _apart.check_parameters(self.param_groups)
        _apart.check([p.data for o in self._parts() for p in o._all] + [p.data for p in new], lambda i: f"parameter {i}",
                     "Weights that are tied share the Parameter (b.weight = a.weight, not b.weight.data = a.weight.data)")
        made: BoxOptimizer = kind([group], **self.defaults, part_of=self, client=self.client, op=self._op, push=self._push, pull=self._pull,
                                  slots=None if self._slots is None else self._slots.total, local_clip=self.local_clip,
                                  local_backward=self._local_backward)
        return made

    def _parts(self) -> "List[BoxOptimizer]":
        """Itself, and those of groups that were added."""
        return [self._root, *self._root._added]

    @property
    def next_round(self) -> int:
        """Number of the next step's round: `first_round` of who goes on from a checkpoint that is
        taken now. (In the upper 32 bits it has the number of steps that all have left out.)"""
        return self.table.next_round + (self.skipped << 32)

    @property
    def shares(self) -> int:
        """Of how many gradients a step makes the mean: slots, or workers."""
        return self.client.workers if self._slots is None else self._slots.total

    # ---- hyper-parameters

    def _hyper_values(self, g: int) -> Dict[str, float]:
        group = self.param_groups[g]
        values = {k: _checks.real(group[k], f"{k} of group {g}") for k in self._hypers}
        if "betas" in group:
            values["beta1"], values["beta2"] = (_checks.real(b, f"betas of group {g}") for b in group["betas"])
        values["clip_value"] = _checks.real(group.get("clip_value") or 0, f"clip_value of group {g}")
        values["steps"] = float(self._kept.steps[g])
        values["maximize"] = float(bool(group.get("maximize")))
        if self._phases is not None:
            values["max_norm"] = self._phases.max_norm
        return values

    def _changes(self, hypers: Hypers) -> Hypers:
        if self._silent:
            return [{} for _ in hypers]
        absent = {"clip_value": 0.0, "steps": 0.0, "maximize": 0.0, "max_norm": 0.0}
        return [{k: v for k, v in new.items() if old.get(k, absent.get(k)) != v}
                for new, old in zip(hypers, self._sent)]

    def _send_hypers(self, hypers: Hypers, changes: Hypers) -> None:
        """Send the box what changed since the last step. Every worker does: a round waits for
        all contributions, so it cannot be computed before the values have arrived."""
        trained = set(self._group_of)
        results = None if self._compress is None else self._compress.results
        said = results is not None
        for g, changed in enumerate(changes):
            if (changed or results is not None) and g in trained:
                try:
                    said = self._set_group(g, changed, results) and said
                except (PBoxMismatch, PBoxRefused) as e:
                    # with first_round: our gradient of this round had arrived before we were
                    # killed, so these values had been sent before it
                    if not (self._resumed and "already finished" in str(e)):
                        mine = ", ".join(f"{k}={v:g}" for k, v in changed.items())
                        raise type(e)(f"{e} (this worker has {mine} in group {g})") from None
                    said = False
            self._sent[g] = hypers[g]
        if self._compress is not None and said:
            self._compress.said()

    def _set_group(self, g: int, changed: Dict[str, float], results: Optional[int]) -> bool:
        """With what worker 0 has to say of results (compress=): in the same SET, which a restart of the box does not part. True: that holds."""
        try:
            self.table.set_hyper(g, **changed, **({} if results is None else {"plain": results}))
            return True
        except PBoxMismatch as e:
            # this process goes on for one that has said it otherwise for this round: so it holds, and is said again with the next one
            if results is None or not self._resumed or "plain" not in str(e):
                raise
            if changed:
                self.table.set_hyper(g, **changed)
            return False

    # ---- what torch would do

    def _step_on_zeros_is_none(self, i: int, had: bool, hypers: Hypers) -> bool:
        """Is the box's step on a gradient of zeros what torch does without one: nothing?"""
        h = hypers[self._group_of[i]]
        if h["weight_decay"] != 0:
            return False
        if h.get("momentum") == 0:  # SGD
            return True
        # buffers that nothing has touched are zero, and stay so
        return not had and h.get("eps", 1.0) > 0

    def _first_is_late(self, i: int, hypers: Hypers) -> bool:
        """The first gradient of a parameter, in a later step than the first, counts as the first
        step in torch, but not on the box: where does that matter?"""
        h = hypers[self._group_of[i]]
        return h.get("momentum", 1.0) != 0 and h.get("dampening", 1.0) != 0

    def _needs_look(self, has: List[bool], hypers: Hypers) -> bool:
        """Must this worker hear from the others before it pushes?"""
        for i, (now, had) in enumerate(zip(has, self._had)):
            if not now and not self._step_on_zeros_is_none(i, had, hypers):
                return True
            if now and not had and self._begun and self._first_is_late(i, hypers):
                return True
        return False

    def _compare(self, hypers: Hypers, timeout: Optional[float]) -> None:
        """Wait for what the other workers say, and raise for what the box would do otherwise
        than torch."""
        has, had, inf = self._agreement.check(timeout)
        if inf:  # with a GradScaler at one all have one: nobody has pushed
            self._todo[1:] = [self._leave_out, *self._rest()]
            return
        unused, late = [], []
        for i, (now, before) in enumerate(zip(has, had)):
            if not now and not self._step_on_zeros_is_none(i, before, hypers):
                unused.append(i)
            if now and not before and self._begun and self._first_is_late(i, hypers):
                late.append(i)
        if unused:
            raise PBoxInvalid(
                f"{self._names(unused)} had no gradient at any worker in this step: torch.optim "
                "leaves such a parameter alone, the box would apply momentum and weight decay to "
                "it. Freeze it before making the optimiser (requires_grad_(False)), give it an "
                "optimiser of its own and step only that when it is used, or give it a gradient "
                "of zeros if momentum and decay shall go on")
        if late:
            raise PBoxInvalid(
                f"{self._names(late)} got its first gradient in a later step than the others: "
                "torch.optim counts its steps from there, the box counts those of all. Give it an "
                "optimiser of its own")
        self._had = [a or b for a, b in zip(has, had)]
        self._begun = True

    def _names(self, which: List[int]) -> str:
        text = ", ".join(f"'{self.table.tensors[i].name}'" for i in which[:3])
        more = f" and {len(which) - 3} more" if len(which) > 3 else ""
        return f"parameter{'s' if len(which) > 1 else ''} {text}{more}"

    # ---- changes that the box does not see

    def _remember(self) -> None:
        self._versions = [(p._version, p.data_ptr(), p.stride(), p.device) for p in self._all]
        look = self.rounds < _LOOK_FIRST or self.rounds % _LOOK_EVERY == 0
        pieces = self._pieces if look else self._pieces[self.rounds % min(_LOOK_PARTS, max(1, len(self._pieces)))::_LOOK_PARTS]
        self._contents = {piece: self._content(*piece) for piece in pieces}

    def _content(self, i: int, first: int, end: int) -> int:
        flat = _layout.dense(self._all[i].data, self._order[i]).reshape(-1)
        return _content.of(flat[first:end])

    def _divide_contents(self) -> List[Tuple[int, int, int]]:
        """All parameters in pieces (parameter, first element, end): each of so many parts of these has about as many elements, and what changes all
        of the parameters is seen in the next step."""
        size = max(_LOOK_LEAST, sum(p.numel() for p in self._all) // _LOOK_PARTS + 1)
        return [(i, at, min(at + size, p.numel())) for i, p in enumerate(self._all) for at in range(0, p.numel(), size)]

    def _differ(self, suspects: Set[int]) -> List[int]:
        """Which of them differ from what the box has? EMA, for one, swaps parameters and swaps
        them back."""
        suspects = {i for i in suspects if self._all[i].numel() > 0}
        if not suspects:
            return []
        if self._stale is not None:
            return sorted(i for i in suspects if self._stale.differs(i, self._all[i]))
        dtype = _WIRE.get(self._pull, torch.float32)
        theirs = {i: _layout.dense(torch.empty_like(self._all[i].data, dtype=dtype, device="cpu"), self._order[i]) for i in suspects}
        self.table.pull(theirs).wait()
        return sorted(
            i for i, t in theirs.items() if not torch.equal(
                t.float().view(torch.int32),
                _layout.dense(self._all[i].data.cpu(), self._order[i]).view(torch.int32)))

    def _refuse_changed(self) -> None:
        suspects, moved = set(), False
        for i, (p, v) in enumerate(zip(self._all, self._versions)):
            if p.stride() != v[2] or p.dtype != torch.float32 or p.device != v[3]:
                raise PBoxInvalid(
                    f"{self._names([i])} was moved or converted after the optimiser was made "
                    f"(now {p.dtype}, {p.device}, strides {tuple(p.stride())}): convert the "
                    "model first")
            if (p._version, p.data_ptr()) != v[:2]:
                suspects.add(i)
                moved |= p.data_ptr() != v[1]
        if moved:
            self._check_apart([t.name for t in self.table.tensors])
        # p.data.clamp_() leaves no other trace
        suspects.update(piece[0] for piece, c in self._contents.items() if self._content(*piece) != c)
        changed = self._differ(suspects)
        if changed:
            raise PBoxInvalid(
                f"{self._names(changed)} was changed outside of step(): the box does not see "
                "that, and this step would overwrite it. Load checkpoints before making the "
                "optimiser; where all workers clamp or set weights between steps, call "
                "push_parameters() after that")
        _layout.check_left_out(self._left_out)

    # ---- coming back to a job with policy shrink

    def _declare_rates(self, timeout: float, first_round: int) -> None:
        """With policy shrink workers come back between rounds, which compare nothing: the job's hyper-parameters are read, or left alone."""
        self._rates: Optional[Rates] = None
        self._back = self.client.policy == "shrink" and self.client.workers > 1 and self.table.next_round > 1
        self._silent = self._back and self._slots is not None
        if self._silent:
            _log.warning("this worker has come back to a job with policy='shrink' and slots, where nobody can read what the others' hyper-parameters are: it leaves "
                         "them to the others, and its own are not sent")
        elif self.client.policy == "shrink" and self.client.workers > 1 and self._slots is None:
            self._rates = Rates(self.client, [f"{k} of group {g}" for g in range(len(self.param_groups)) for k in self._compared(g)], timeout,
                                ANY_ROUND if self._back else first_round)
        self._said_rates: List[float] = []

    def _compared(self, g: int) -> Dict[str, float]:
        return {k: v for k, v in self._hyper_values(g).items() if k != "steps"}

    def _check_follow(self) -> None:
        if self._rates is None:
            super()._check_follow()

    def _catch_up(self, less: int) -> None:
        if self._slots is not None:
            super()._catch_up(less)
        elif self._followers and not self._back:
            self._follow_to(self.table.next_round - 1)

    def _follow_to(self, rounds: int) -> None:
        """Without slots: schedulers that follow go by the rounds of this run."""
        for s in self._followers:
            if id(s) not in self._base:  # of a checkpoint of an earlier run, in which steps were counted too
                self._base[id(s)] = 0 if self._back else max(0, s.last_epoch - rounds)
            while s.last_epoch < rounds + self._base[id(s)]:
                setattr(self, "_opt_called", True)
                s.step()

    def _meet_rates(self, timeout: Optional[float]) -> None:
        """The first step of a worker that has come back: are its values those of the job?"""
        if not self._back:
            return
        if self._rates is not None:
            found = self._rates.latest(timeout)
            if found is not None:
                who, theirs = found
                self._follow_to(theirs.step - 1)
                text = self._rates.difference(self._rate_values(), theirs.values)
                if text:
                    raise PBoxMismatch(
                        f"worker {self.client.worker} has come back to a running job, and its hyper-parameters are not those with which worker {who} has made round "
                        f"{theirs.step}: {text} here. It would set them for all: give it the same values, and schedulers to optimiser.follow(), which brings them to "
                        "where the training is")
                self._sent = [self._hyper_values(g) for g in range(len(self.param_groups))]
        self._back = False
        if self._rates is not None:
            self._follow_to(self.table.next_round - 1)

    def _say_rates(self) -> None:
        values = [] if self._rates is None else self._rate_values()
        if self._rates is not None and values != self._said_rates and self._rates.say(self.table.next_round, values):
            self._said_rates = values

    def _rate_values(self) -> List[float]:
        return [v for g in range(len(self.param_groups)) for v in self._compared(g).values()]

    # ---- coming to a running job

    def _begins(self) -> None:
        if not self._is_newcomer:
            return
        end = time.monotonic() + self.client.timeout
        while True:
            self._compare_hypers(end)
            assert self._work is not None
            self._work.enter(max(0.001, end - time.monotonic()))
            try:
                self._pull_model()
                break
            except PBoxRunning:  # it was silent for so long that the job went on without it
                if time.monotonic() > end:
                    raise
        self._catch_up(0)
        self._work.entered()
        self._kept.given()
        self._remember()

    def _pull_model(self) -> None:
        self.table.pull(self._dense(self._narrow_pull or [p.data for p in self._all])).wait()
        with torch.no_grad():
            self._widen()

    def _compare_hypers(self, end: float) -> None:
        """A newcomer's hyper-parameters must be those of the job in the last round: it would set its own."""
        assert self._work is not None and self._slots is not None
        for g in sorted(set(self._group_of)):
            self._work.look(g)
            while self._work.report.now <= 1 and self._work.members > 0 and time.monotonic() < end:
                time.sleep(0.02)  # in the first round nobody knows what holds in it
                self._work.look(g)
            self._catch_up(1)
            if self._work.report.now <= 1:
                continue  # nobody is left that has set any: this worker does
            theirs = dict(zip(_HYPER_NAMES, [*self._work.report.hyper, *self._work.report.hyper_more]))
            self._kept.steps[g] = int(theirs["steps"])
            mine = self._hyper_values(g)
            self._sent[g] = mine
            other = [k for k in mine if mine[k] != theirs[k]]
            if other:
                raise PBoxMismatch(
                    f"group {g} has " + ", ".join(f"{k}={mine[k]:g} here and {theirs[k]:g} in the job" for k in other) +
                    f" after {self._slots.trained} rounds of the training (trained_rounds): give all workers the same, and schedulers to "
                    "optimiser.follow(), which brings them to where the training is")

    # ---- a step

    def _checked(self, i: int, g: torch.Tensor) -> torch.Tensor:
        """The gradient of parameter i as the box sees it."""
        what = self.table.tensors[i].name
        if g.is_sparse or g.dtype != torch.float32 or g.device != self._all[i].device:
            _buffers.check_torch(g, f"gradient of {what}", host=self._device is None)
            raise PBoxInvalid(f"gradient of {what} has dtype {g.dtype}: needed is float32")
        if g.numel() != self._all[i].numel():
            raise PBoxInvalid(f"gradient of {what} has {g.numel()} elements")
        return _layout.dense(g, self._order[i])

    def _refuse_infinite(self, grads: Sequence[Optional[torch.Tensor]]) -> None:
        """Raise for gradients that would be in everybody's parameters; a GradScaler has looked at them itself."""
        self._looks += 1
        skips = self._inf is not None or (self._phases is not None and self._phases.skip_nonfinite)
        found = [] if skips else _finite.bad(grads, self._device, self._looks)
        if not found:
            return
        for o in self._parts():
            o._count_discards()
            o._discarded = 0  # the batch of this step is made again, or another one in its place
            if o._slots is not None:
                o._slots.given = o._slots.asks = None
        slot = "" if self._slots is None else f" in slot {self._slots.next}"
        raise PBoxInvalid(
            f"worker {self.client.worker}: the gradient of {_finite.names(self.table.tensors, found)}{slot} has a NaN or an infinity, which this step would "
            "put into the parameters of all workers: nothing was sent, and they wait for this step. Make it with another batch, look for what overflows "
            f"(torch.autograd.set_detect_anomaly), or lower the learning rate; with float16 take a GradScaler{self._whose()}")

    def _whose(self) -> str:
        """The gradients are not finite as the parameters are not: who sent what made them so."""
        with torch.no_grad():
            if not _finite.bad([p.data for p in self._all], self._device):
                return ""
        return _finite.sender(self.client, ". The parameters themselves have one")

    def _address(self, i: int, g: Optional[torch.Tensor], keep: List[torch.Tensor], node: int = 0) -> int:
        """Where the library finds what this worker pushes for parameter i (of a node)."""
        if g is None:
            if self._zeros is None:
                n = max(p.numel() for p in self._all)
                self._zeros = torch.zeros(n, dtype=_WIRE.get(self._push, torch.float32))
            g = self._zeros
        elif self._narrow_push:
            narrow = self._narrow_push[node * len(self._all) + i]
            g = _layout.dense(narrow, self._order[i]).copy_(g)
            if self._push == "fp16" and self._inf is None and not _finite.is_finite(g):
                self._too_large(i)
        else:
            keep.append(g)
        # elements 0 have no address, and NULL means "not given"
        return g.data_ptr() or _buffers.ADDRESS_OF_NOTHING

    def _too_large(self, i: int) -> None:
        what = "gradient" if self._slots is None else "sum of the gradients"
        e = PBoxInvalid(f"worker {self.client.worker}: the {what} of '{self.table.tensors[i].name}' has elements beyond 65504, which are infinite as fp16: nothing "
                        "was sent. Scale the loss, or take push='bf16'")
        if self._slots is not None:
            self._failed = e  # its slots are added up: they are not computed again
        raise e

    def _look_at_data(self) -> None:
        """With the first step: does the program know which micro-batch it computes?"""
        if not self._stepped and not goes_by_slots(self.client):
            _log.warning("slots=%d, and the data do not go by the slot: neither optimiser.sampler() nor optimiser.slot was used "
                         "before the first step(), so the bits depend on the number of workers. Take "
                         "DataLoader(data, batch_sampler=optimiser.sampler(data, batch_size, seed))", self.shares)
        self._stepped = True

    def _count_discards(self) -> None:
        if self._discards is not None:
            self._discarded += self._discards.take()

    def _take(self, samples: int) -> None:
        """A slot is done: its gradients go into the sums."""
        taken = [(o, o._slot_grads()) for o in self._parts()]
        for o, grads in taken:
            o._add_slot(grads, samples)

    def _slot_grads(self) -> Sums:
        self._count_discards()
        grads: Sums = [None if p.grad is None else self._checked(i, p.grad) for i, p in enumerate(self._all)]
        self._refuse_infinite(grads)
        return grads

    def _add_slot(self, grads: Sums, samples: int) -> None:
        assert self._slots is not None and self._owned is not None
        for i, own in enumerate(self._owned.take([p.grad for p in self._all])):
            g = grads[i]
            if g is not None and not own and g.data_ptr() == self._all[i].grad.data_ptr():
                grads[i] = g.clone()  # the program writes there again: sums are made elsewhere
        separate(grads)
        if self._op == "weighted_mean":
            for g in grads:
                if g is not None:
                    g.mul_(float(samples))
        for p in self._all:
            p.grad = None
        if self._stale is not None and self._stale.waits:
            assert self._stale.next is not None
            self._stale.next.add(self._slots.next, grads, samples)
        elif isinstance(self._tree, LooseTree):
            self._tree.add(self._slots.next, grads, samples)
        else:
            self._tree.add(grads, samples)
        self._slots.count += 1

    def _inputs(self, keep: List[torch.Tensor]) -> List[bool]:
        """Fill the arrays of addresses. Which parameters have a gradient here?"""
        if self._slots is None:
            grads = [None if p.grad is None else self._checked(i, p.grad) for i, p in enumerate(self._all)]
            self._refuse_infinite(grads)
            if self._placed is not None:
                self._placed.download(grads)
                return [g is not None for g in grads]
        if self._stale is not None and self._work is not None:
            self._work.outputs = self._stale.buffers()
        last = len(self._all) - 1
        for i, p in enumerate(self._all):
            into = self._placed.outputs[i] if self._placed is not None else self._narrow_pull[i] if self._narrow_pull else \
                p if self._work is None else self._work.outputs[i]
            at = i if self._early is None else last - i  # in the order of those that leave early
            self._io[at].tensor = i
            self._io[at].output = into.data_ptr() or _buffers.ADDRESS_OF_NOTHING
        if self._slots is None:
            for i, g in enumerate(grads):
                self._io[i].input = self._address(i, g, keep)
            return [g is not None for g in grads]
        brought = self._brought()
        hosts: List[Any] = [sums for sums, _ in brought]
        if self._placed is not None:
            hosts = self._placed.download_nodes(self.client, hosts)
        for node, sums in enumerate(hosts):
            for i, g in enumerate(sums):
                self._addresses[node * len(self._all) + (i if self._early is None else last - i)] = self._address(i, g, keep, node)
        return [any(sums[i] is not None for sums, _ in brought) for i in range(len(self._all))]

    def _brought(self) -> List[Tuple[Sums, int]]:
        """Sums and samples of this worker's nodes."""
        return list(zip(self._tree.done, self._tree.samples)) if self._work is None else self._work.brought()

    def _submit(self, keep: List[torch.Tensor], samples: int) -> Any:
        if self._slots is None:
            if self._placed is not None:
                return self._placed.submit(self.table, samples)
            return self.table.submit_io(_lib.PUSHPULL, self._io, len(self._all), keep, weight=samples)
        again = self._work is not None and self._work.again
        if not again:
            self._round = self.table.next_round
        if self._work is not None:
            self._work.pushes()
        if self._placed is not None:
            self._placed.downloaded()
        op = self.table.submit_nodes_io(_lib.PUSHPULL, self._io, len(self._all), self._addresses,
                                        [n for _, n in self._brought()], keep, again=again)
        return op if self._placed is None else self._placed.whole(op)

    def _submit_phases(self, keep: List[torch.Tensor], samples: int) -> None:
        """A round in two phases (_norm.py)."""
        assert self._phases is not None
        io, n = self._io, len(self._all)
        if self._slots is None:
            addresses, weights = (ct.c_void_p * max(1, n))(*[io[i].input for i in range(n)]), [samples]
        else:
            addresses, weights = self._addresses, [w for _, w in self._brought()]

        def push(again: bool) -> Operation:
            return self.table.submit_nodes_io(_lib.PUSH, io, n, addresses, weights, keep, again=again)

        self._phases.begin(push, lambda: self.table.submit_io(_lib.PULL, io, n, keep), self._say_coefficient)
        self._round = self._phases.round

    def _say_coefficient(self, round: int, coefficient: float) -> None:
        """All workers set the same, so each knows before it pulls that the box has it. A step that is left out is no step of the state from the
        next round on: in this one `steps` may have been set already, and nothing is computed with it."""
        for g in sorted(set(self._group_of)):
            try:
                self.table.set_hyper(g, round, coefficient=coefficient)
            except (PBoxMismatch, PBoxRefused) as e:
                # a restarted box has the version already, of somebody who had set it
                if "already finished" not in str(e):
                    raise
        for g in sorted(set(self._group_of)) if coefficient == _norm.SKIP else ():
            self._kept.steps[g] = self._steps_before[g] - 1
            self._sent[g]["steps"] = float(self._kept.steps[g])
            self.table.set_hyper(g, round + 1, steps=self._sent[g]["steps"])

    def _opens_early(self) -> bool:
        """Autograd has made a gradient: may those of this slot leave? What step() would refuse it refuses then."""
        assert self._work is not None and self._slots is not None
        if not self._slots.mine or not self._slots.last or self._work.again or self._todo or self._failed is not None or \
                self._is_newcomer or self._kept.pending or self._values is not None:
            return False
        if self._work.steals:
            self._work.slot_ends()
            if not self._slots.last:
                return False
        try:
            self._begin_slot()
            self._refuse_changed()
            hypers = [self._hyper_values(g) for g in range(len(self.param_groups))]
            for g, group in enumerate(self.param_groups):
                self._check_group(g, group)
            self._send_hypers(hypers, self._changes(hypers))
        except PBoxError:
            return False
        self._round = self.table.next_round
        return True

    def _submit_alone(self, i: int, last: Optional[torch.Tensor]) -> Operation:
        """Push all nodes of parameter i; `last` is the sum of the last one."""
        tree, keep = self._tree, []
        order = sorted(range(len(tree.nodes)), key=lambda node: tree.nodes[node])  # stolen ones are computed last
        sums = [sums[i] for sums in tree.done] + [last]
        samples = [*tree.samples, tree.samples_in_node + 1]
        io, addresses = (_lib.Io * 1)(), (ct.c_void_p * len(sums))()
        io[0].tensor = i
        assert self._work is not None
        io[0].output = self._work.outputs[i].data_ptr() or _buffers.ADDRESS_OF_NOTHING
        for at, node in enumerate(order):
            addresses[at] = self._address(i, sums[node], keep, node)
        return self.table.submit_nodes_io(_lib.PUSHPULL, io, 1, addresses, [samples[node] for node in order], keep)

    def _said(self, hypers: Hypers) -> Hypers:
        """What all workers must have alike."""
        hypers = [dict(h, discarded=self._discarded, grad_scaler=self._inf is not None) for h in hypers]
        if self._slots is None:
            return hypers
        s = self._slots
        seed = -1 if s.seed is None else s.seed
        return [dict(h, trained_rounds=s.trained, seed=seed, batch_size=s.batch_size, samples=s.samples) for h in hypers]

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None, *,
             samples: Optional[int] = None, **scaling: Any) -> Any:
        """Push the gradients, wait for the other workers', get the new parameters. With slots: the
        gradients of a slot are complete; with the last one of this worker's, as said."""
        scaler = scaling.pop("grad_scaler", None)  # of torch 1.13, and no name of ours: later ones warn where they see it
        if scaling:
            raise TypeError(f"step() takes closure and samples, and not {', '.join(scaling)}")
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._failed is not None:
            raise self._failed
        if self._model is not None:
            self._model.first_step()
        if self._todo:
            raise PBoxInvalid("the last step has not ended: call wait(), or give up")
        _norm.check_groups(self.param_groups)
        if (samples is not None) != (self._op in _SAMPLED):
            raise PBoxInvalid(
                f"op is '{self._op}': step(samples=n) belongs to {' and '.join(_SAMPLED)}")
        if samples is not None:
            samples = _checks.whole(samples, "samples", _checks.U32)
            if self._slots is not None:
                _checks.whole(self._tree.samples_in_node + samples, "samples, summed over the slots of a node,", _checks.U32)
        if self._is_newcomer:
            raise PBoxInvalid("this worker has come to a running job, and has no slots before it asks for a batch: take batches from optimiser.loader()")
        if self._slots is not None:
            self._look_at_data()
            if self._stale is not None:
                self._stale.slot_ends()
                self._stale.ended = False
            if self._stale is None or not self._stale.waits:
                self._begin_slot()
        inf = _skip.unscale(self, scaler)
        if inf is not None:
            if self.client.policy in ("shrink", "reassign") and self.client.workers > 1:
                raise PBoxInvalid(f"a GradScaler leaves steps out, and with policy={self.client.policy!r} workers cannot agree on that: take "
                                  "policy='wait', or bfloat16, which needs no scaling")
            self._inf = bool(self._inf) or inf
            for o in self._added:
                o._inf = self._inf
        if self._early is not None:
            self._early.slot_ends()
            if self._early.begun:
                self._end_early()
                return loss
        if self._stale is not None and self._stale.waits:
            self._take(1 if samples is None else samples)
            self._early_slot_ends()
            return loss
        if self._work is not None and self._work.steals:
            self._work.slot_ends()
        if self._slots is not None and not self._slots.last:
            self._take(1 if samples is None else samples)
            self._slots.prepare()
            return loss
        for o in self._parts():
            if o._values is None:
                o._refuse_changed()
        if self._slots is not None:
            self._take(1 if samples is None else samples)
        self._push_round(1 if samples is None else samples, scaler)
        return loss

    def _push_round(self, samples: int, scaler: Any = None) -> None:
        """Gradients are complete: push them, and wait."""
        self._meet_rates(None)
        if self._compress is not None:
            self._compress.begins(None if self._inf else [p.grad for p in self._all] if self._slots is None
                                  else [g for sums, _ in self._brought() for g in sums])
        for g, group in enumerate(self.param_groups):
            self._check_group(g, group)
        keeps: List[List[torch.Tensor]] = [[] for _ in self._parts()]
        inputs = [o._inputs(keep) for o, keep in zip(self._parts(), keeps)]
        for o, has, keep in zip(self._parts(), inputs, keeps):
            o._plan_round(samples, has, keep, scaler if o is self else None)
        self._todo += self._rest()
        self.wait()

    def _rest(self) -> List[Callable[[Optional[float]], None]]:
        """The rounds of groups that were added come after this one's."""
        return [o.wait for o in self._added]

    def _plan_round(self, samples: int, has: List[bool], keep: List[torch.Tensor], scaler: Any) -> None:
        hypers = [self._hyper_values(g) for g in range(self._n_groups)]
        changes = self._changes(hypers)
        loaded = self._kept.pending
        self._count_discards()
        scaled = self._inf is not None
        first = scaled or any(changes) or loaded or self._discarded > 0 or self._needs_look(has, hypers)
        refused: List[Exception] = []
        given: List[Operation] = []
        if loaded and self.client.worker == 0:
            given = self._kept.give()

        def give(timeout: Optional[float]) -> None:
            try:
                for o in given:
                    o.wait(timeout)
            except PBoxDeadline as e:
                raise type(e)(
                    f"{e}. This worker has loaded a state, which the box takes before any worker "
                    "has pushed for this step: has one of the others not called "
                    "load_state_dict()?") from None
            self._kept.given()
            self._values = None

        # each of these either happens or is made again after a deadline, so it does one thing
        def begin(_timeout: Optional[float]) -> None:
            self._agreement.begin(self._said(hypers), has, self._had, None if self._resumed else loaded, bool(self._inf))

        def tell(_timeout: Optional[float]) -> None:
            self._say_rates()
            if any(changes) or (self._compress is not None and self._compress.results is not None):
                try:
                    self._send_hypers(hypers, changes)
                except (PBoxMismatch, PBoxRefused) as e:
                    refused.append(e)  # if workers differ, what they say helps more

        def compare(timeout: Optional[float]) -> None:
            self._compare(hypers, timeout)
            if refused:
                raise refused[0]
            if scaled and self._leave_out in self._todo:
                _skip.tell(self, scaler)

        def push(timeout: Optional[float]) -> None:
            if self._phases is not None:
                self._steps_before = list(self._kept.steps)
                self._submit_phases(keep, samples)
            else:
                self._pending = self._submit(keep, samples)

        def told(_timeout: Optional[float]) -> None:
            if refused:
                raise refused[0]

        # who has something to send that others may not want pushes when they agree; nobody's
        # step ends before that. What was said for a round that is left out might come after what the next step says
        self._todo = [give, begin, compare, tell, told, push, self._end] if scaled else \
            [give, begin, tell, compare, push, self._end] if first else \
            [give, begin, tell, push, compare, self._end]
        if self._may_go_ahead():
            self._todo[-1] = self._go_ahead
        if self._alike is not None:
            self._todo.insert(0, self._meet_alike)

    def _meet_alike(self, timeout: Optional[float]) -> None:
        assert self._alike is not None and self._slots is not None
        where = self._all[0].device
        self._alike.meet(self._slots.order, torch.cuda.get_device_name(where) if where.type == "cuda" else where.type, timeout)
        self._alike = None

    # ---- ahead=

    def _may_go_ahead(self) -> bool:
        """The slots of a round are computed: is there an early one for this worker to go on with? With an epoch all is here."""
        slots, stale = self._slots, self._stale
        if stale is None or slots is None or self._work is None or self._work.again or slots.ends_epoch(slots.trained):
            return False
        return len(slots.mine) > slots.ends_epoch(slots.trained + 1) and stale.is_early(stale.order(slots.mine)[0])

    def _go_ahead(self, _timeout: Optional[float]) -> None:
        assert self._work is not None and self._slots is not None
        self._work.goes_ahead()
        self._slots.prepare()

    def _early_slot_ends(self) -> None:
        slots, stale = self._slots, self._stale
        assert slots is not None and stale is not None
        # step() ends an epoch, so its last slot is not computed before the round before has ended
        if slots.count < len(slots.mine) - slots.ends_epoch(slots.trained) and stale.is_early(slots.next):
            slots.prepare()
            return
        self._todo = [self._end]
        self.wait()

    def _push_waiting(self) -> None:
        slots, stale = self._slots, self._stale
        assert slots is not None and stale is not None
        if self._failed is None and not self._todo and not stale.waits and slots.mine and slots.count == len(slots.mine):
            self._check_hypers()
            self._refuse_changed()
            with torch.no_grad():
                self._push_round(1)

    def _shows(self) -> None:
        self._remember()

    def _comes_back(self, more: bool) -> None:
        """From early slots of the next round, if this worker was there."""
        if self._stale is not None and self._work is not None:
            self._work.comes_back()
            if more:
                self._stale.next = None

    def _round_is_here(self) -> None:
        assert self._work is not None and self._stale is not None and self._slots is not None
        self._work.takes_early()
        self._stale.round_begins()
        self._stale.ended, self._of_round = True, []
        self._slots.prepare()

    def _end_early(self) -> None:
        """step() of a slot whose gradients have left: the rest goes now."""
        assert self._early is not None and self._work is not None and self._slots is not None
        if self._inf is not None:
            raise PBoxInvalid("a GradScaler scales the gradients of this slot, and they have left: leave send_early out")
        self._count_discards()
        here = self._early.has()
        has = [there or any(node[i] is not None for node in self._tree.done) for i, there in enumerate(here)]
        hypers = self._sent

        def compare(timeout: Optional[float]) -> None:
            self._agreement.begin(self._said(hypers), has, self._had, False, False)
            self._compare(hypers, timeout)

        def push(_timeout: Optional[float]) -> None:
            assert self._early is not None and self._work is not None and self._slots is not None
            sums, self._pending = self._early.end()
            self._work.pushes()
            self._tree.finish(sums, 1)
            self._slots.count += 1

        self._todo = [compare, push, self._end]
        self.wait()

    @property
    def compressed(self) -> List[Tuple[int, str, str]]:
        """What compress= has chosen so far: (from round, format of this worker's pushes, format of results), as compress= takes it. Results are
        worker 0's to choose."""
        return [] if self._compress is None else self._compress.entries

    def _end_round(self) -> None:
        self._resumed, self._in_first, self._inf, self._discarded = False, False, None, 0
        if self._work is not None:
            self._work.round_ends(self._round)
        if self._slots is not None:
            self._tree.clear()
            self._slots.end_round()
        self._catch_up(0)

    def _idle(self) -> None:
        """A round in which this worker has no slots: only its result."""
        keep: List[torch.Tensor] = []
        self._inputs(keep)

        def push(_timeout: Optional[float]) -> None:
            self._pending = self._submit(keep, 1)

        self._todo = [push, self._end]
        self.wait()

    def _leave_out(self, _timeout: Optional[float]) -> None:
        """All have heard that a GradScaler has found inf at one of them."""
        self._end_round()
        self.skipped += 1

    def _end(self, timeout: Optional[float]) -> None:
        began = time.monotonic()
        while self._phases is None:
            try:
                self._pending.wait(timeout)
                break
            except PBoxMore:
                self._comes_back(more=True)
                assert self._work is not None and self._slots is not None
                if self._work.more(self._round):  # step() returns, and the round goes on with slots that were added
                    self._slots.prepare()
                    return
                keep: List[torch.Tensor] = []
                self._inputs(keep)
                self._pending = self._submit(keep, 1)
        if self._phases is not None:
            self._phases.end(timeout)
        with torch.no_grad():
            if self._stale is not None:
                self._comes_back(more=False)
                self._stale.stalled = time.monotonic() - began
                self._stale.result_is_here()
            elif self._narrow_pull:
                self._widen()
            elif self._work is not None:
                for p, new in zip(self._all, self._work.outputs):
                    p.data.copy_(new)
        if self._compress is not None:
            self._compress.ended(None if self._stale is None else self._stale.stalled)
        self._end_round()
        if self._stale is not None:
            self._round_is_here()
        self.rounds += 1
        self._remember()

    def wait(self, timeout: Optional[float] = None) -> None:
        """Only after step() has raised PBoxDeadline: wait again for the same step."""
        end = None if timeout is None else time.monotonic() + timeout
        if self._failed is not None:
            raise self._failed
        while self._todo:
            try:
                self._todo[0](None if end is None else max(0.001, end - time.monotonic()))
            except PBoxDeadline as e:
                if "a worker has left" not in str(e):
                    raise
                raise type(e)(f"{e}. This is step {self.rounds + 1} of this worker: if one that has gone through as many batches "
                              "has left, it has left a step out, and those after it were made of different batches") from None
            except Exception as e:
                self._failed = e  # workers differ, or the session has ended: no step follows
                raise
            self._todo.pop(0)

    # ---- state

    def __setstate__(self, state: Dict[str, Any]) -> None:
        # torch's schedulers may have their optimiser in their state_dict(), so it can be copied and saved
        super().__setstate__(state)
        if "_declared" in self.__dict__:
            return  # this one, of which torch sets the state that it loads
        self._declared = False
        self._failed = PBoxInvalid(
            "this is a copy of an optimiser on the box, and takes no part in the job: make one, and load the state_dict() of "
            "the first into it")

    def _momentum_of(self) -> List[bool]:
        return [g.get("momentum", 1.0) != 0 for g in self.param_groups[:self._n_groups]]

    def state_dict(self) -> Dict[str, Any]:
        """In torch.optim's layout, with the state that the box has. Between steps; any worker,
        also one alone: the others wait in their next step."""
        fetched: Dict[torch.Tensor, Dict[str, Any]] = {}
        for o in self._parts() if self._declared else ():
            fetched.update(o._kept.fetch(o._had, o._momentum_of()))
        try:
            self.state.update(fetched)
            state = super().state_dict()
            if self._slots is not None:
                state["pbox"] = self._slots.state_dict()
            self._save_skipped(state)
            if self._declared:
                self._kept.save_steps(state)
            return state
        finally:
            for p in fetched:
                self.state.pop(p, None)

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Take hyper-parameters and state, from this or torch's optimiser. All workers load the
        same; it goes to the box with the next step(). One that goes on in a running job
        (first_round) takes hyper-parameters alone: the box has the state."""
        if self._slots is not None and "pbox" in state_dict:
            self._slots.load_state_dict(state_dict["pbox"])
        super().load_state_dict(state_dict)
        if not self._declared:
            return  # a copy
        self._load_skipped(state_dict)
        for g, group in enumerate(self.param_groups):
            self._check_group(g, group)
        for o in self._added:
            o.param_groups = [self.param_groups[o._first_group]]  # torch has made others
            o._load_kept(self.state)
        if self._in_first or not (self._resumed or self._is_newcomer):
            self._load_kept(self.state)
            if self._in_first and not self._begun:
                self._kept.given()  # nobody else has loaded one
            elif self._in_first and self.client.worker == 0:
                raise PBoxInvalid("worker 0 was killed in the first round of a run that began with a loaded state, and nobody knows whether the box has got that from "
                                  "it: start all workers again, from the checkpoint that they began with")
        elif self._resumed:
            self._kept.resume_steps(state_dict)
        for o in self._parts():
            for p in o._all:
                self.state.pop(p, None)

    def _load_kept(self, state: Dict[Any, Dict[str, Any]]) -> None:
        self._had = self._kept.load(state, [g.get("dampening", 0.0) for g in self.param_groups[:self._n_groups]])
        self._begun = any(self._had)

    def push_parameters(self) -> None:
        """Parameters were changed between steps, by all workers alike (WGAN's clamp): the next
        step() begins with those of worker 0."""
        if self._stale is not None:
            raise PBoxInvalid("push_parameters() goes without ahead=: slots of the next round have been computed on the parameters before")
        for o in self._parts():
            o._values = [p.data for p in o._all]
            o._kept.set_parameters(o._values)

    def close(self) -> None:
        """Leave the job (unless others share the session)."""
        for o in self._added:
            o.close()
        if self._early is not None:
            self._early.close()
        if self._slots is not None:
            trains_no_more(self.client, self._slots)
        if "_session" not in self.__dict__:
            return  # a copy has none
        if self._discards is not None:
            self._discards.close()
        if self._owned is not None:
            self._owned.close()
        if self._root is self:
            self._session.release()
