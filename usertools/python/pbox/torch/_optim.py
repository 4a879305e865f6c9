# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Optimisers that run on the box: push gradients, get parameters.

The box holds the parameters and the optimiser's state; workers hold a copy of the parameters,
which step() overwrites in place. So all workers have the same bits after every step.

What a step does in each mode (with slots, by plan, ...) is a strategy's: see _strategy.py.
"""

import math
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import torch

from .. import _buffers, _checks, _modes
from ..client import ANY_ROUND, Client, Table
from ..errors import PBoxDeadline, PBoxInvalid, PBoxMismatch, PBoxRunning
from . import _added, _clip, _compress, _exchange, _finite, _model, _norm, _returns, _round, _skip
from ._agree import Agreement, Alone, Hypers
from ._ahead import Ahead
from ._by_plan import ByPlan
from ._by_slots import BySlots
from ._hypers import Sent
from ._sends_early import SendsEarly
from ._session import DECLARE_SECONDS, between_rounds, connect
from ._slots import SlotTraining
from ._stale import QUARTERS, quarters_of
from ._state import State
from ._strategy import SAMPLED, How, Step, Strategy
from ._trained import Trained
from ._tree import Sums
from ._used import Used
from ._whole import Whole

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
    _strategy: Strategy = Strategy(None)  # type: ignore[arg-type]
    _compress: Any = _compress.Off()
    _added: "Sequence[BoxOptimizer]" = ()  # of groups that were added
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
        if not 0 <= _checks.real(clip_value, "clip_value") < math.inf:
            raise PBoxInvalid(f"clip_value is {clip_value}: needed is 0 (off) or more")
        max_norm = _norm.number(max_norm)
        super().__init__(params, dict(defaults, clip_value=clip_value))
        self._n_groups = len(self.param_groups)
        # steps that all leave out have a round of the agreement, and none of the parameters: a checkpoint has both
        first_round = _checks.whole(first_round, "first_round", (1 << 64) - 1)
        first_round, skipped = first_round & _checks.U32, first_round >> 32
        by_slots = slots is not None or options.get("policy") == "reassign"
        chosen: Any = None
        if compress is not None:
            chosen, push, pull = _compress.parse(compress, push, pull, not by_slots)
            if send_early:
                raise PBoxInvalid("compress= goes without send_early: gradients leave before it is known what the exchange costs")
        self._check_blocks(by_slots, options, max_norm is not None or skip_nonfinite, push, pull)
        self._how = How(op, push, pull, slots, max_norm, bool(skip_nonfinite), chosen, not by_slots, send_early, quarters_of(ahead) if ahead else 0, steal)
        if self._how.quarters and (send_early or first_round or options.get("least") is not None):
            raise PBoxInvalid("ahead= goes without send_early, first_round and least: who begins in a running job lacks the parameters of the round "
                              "before")
        self._steals = steal
        _modes.check(type(self).__name__, steal=steal, ahead=self._how.quarters)
        self.local_clip, self._local_backward = local_clip, local_backward
        self._params = self._list_parameters()
        self._model = _model.of(model, ignore, self._params.all)
        if slots is not None and client is None:
            options["slots"] = slots
        self._session = connect(box, job, secret, worker, workers, client, **options) if part_of is None else part_of._session
        try:
            self.client: Client = self._session.client
            between_rounds(self.client, "another optimiser")
            self._strategy = self._choose()
            self._slots, self._stale = self._strategy.slots, self._strategy.stale
            timeout = max(self.client.timeout, DECLARE_SECONDS) if declare_timeout is None else declare_timeout
            self._begin(first_round, skipped, timeout)
            self._meet(first_round, timeout)
        except BaseException:
            if self._is_root:
                self._session.release()
            raise
        self._reset(skipped)
        _clip.watch(self, self._params.all)
        self._strategy.made()

    @property
    def _is_root(self) -> bool:
        """Is it what the program has made, and not of a group that was added?"""
        return self._root is self

    # ---- setting up

    def _check_blocks(self, by_slots: bool, options: Dict[str, Any], phases: bool, push: str, pull: str) -> None:
        """What does not go together by the arguments alone; the rest is known when there is a session (doc/modes.md)."""
        policy = options.get("policy")
        _modes.check(type(self).__name__, slots=by_slots, plan=policy == "reassign", shrink=policy == "shrink", hold=phases,
                     push=push in _buffers.BLOCKS, pull=pull in _buffers.BLOCKS)

    def _list_parameters(self) -> Trained:
        """What the box gets to see: all that want a gradient now."""
        how = self._how
        # workers that differ in it must not meet: a declaration has it in its names
        label = f", {how.quarters} of {QUARTERS} slots ahead" if how.quarters else ", sent early" if how.sends_early else \
            ", skip_nonfinite" if how.skip_nonfinite else ""
        return Trained(self.param_groups, self._check_group, self._first_group, label)

    def _check_group(self, number: int, group: Dict[str, Any]) -> None:
        """Raise for what the box cannot do (subclasses)."""

    def _choose(self) -> Strategy:
        """By what the constructor got, and the policy of the session."""
        how = self._how
        if how.slots is None:
            return Whole(self)
        if self.client.policy != "reassign":
            return BySlots(self)
        return Ahead(self) if how.quarters else SendsEarly(self) if how.sends_early else ByPlan(self)

    @property
    def _is_compared(self) -> bool:
        """Do workers compare their steps? With policy shrink they come back between them, and by plan they come and go."""
        return self.client.workers > 1 and self.client.policy not in ("shrink", "reassign")

    def _begin(self, first_round: int, skipped: int, timeout: float) -> None:
        """Declare the table, and make what belongs to it."""
        how, client = self._how, self.client
        if how.phases:
            _modes.check(type(self).__name__, hold=True, plan=client.policy == "reassign", shrink=client.policy == "shrink",
                         gpu=self._params.device is not None)
        if client.policy == "reassign" and self._model.names:
            # the job has this table alone, so what must not differ is in its names
            self._params.add_label(f"{_model.LABEL}{self._model.label()}")
        elif not self._model.given and client.workers > 1 and self._is_root:
            _model.warn(f"pbox.torch.{type(self).__name__}")
        self._resumed = False
        try:
            self.table: Table = self._declare(first_round, timeout)
        except PBoxMismatch as e:
            raise _model.explained(e)
        if how.phases:
            self._phases = _norm.Phases(self.table, how.max_norm, how.skip_nonfinite)
        self._agreement: Union[Agreement, Alone] = Alone() if not self._is_compared else Agreement(
            client, len(self._params.all), timeout, first_round if first_round == ANY_ROUND else first_round + skipped)
        self._declared = True
        if how.compress is not None:
            self._compress = _compress.Compress(self.table, how.compress, how.push, how.pull, how.compresses_pull)
        self._strategy.begin()
        self._exchange = _exchange.choose(self, self._strategy.NODES)
        self._strategy.prepared()
        self._kept = State(self.table, self._arrays, self._counted, self._params.all, self._params.group_of, self._params.order, len(self.param_groups))
        self._sent = Sent(self)

    def _declare(self, first_round: int, timeout: float) -> Table:
        """In the first round of a run its number alone does not say whether this worker begins with the others, or goes on alone: the box knows, if the
        worker does not say that it goes on (R12.6)."""
        how = self._how

        def declare(first_round: int, timeout: float) -> Table:
            return self.client.declare(self._params.specs, mode="optimiser", op=self._strategy.wire_op, optimiser=self._optimiser, push=how.push, pull=how.pull,
                                       timeout=timeout, first_round=first_round, hold=how.phases, mixed=how.compress is not None)

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

    def _meet(self, first_round: int, timeout: float) -> None:
        """All workers begin with the same parameters, and the same model; or this one goes on."""
        # in a job that has not begun, rounds begin with 1, and there is nothing to go on with
        self._in_first = self._resumed
        self._resumed |= first_round > 0 and self.table.next_round == first_round > 1
        if first_round > 0:
            self._session.goes_on = self._resumed
        if not self._resumed and not self._is_newcomer:
            self._exchange.share()
        elif self._in_first:
            self._exchange.give()
        self._returns = _returns.choose(self, timeout, first_round)
        self._compare_model(timeout)
        late = (self._resumed and not self._in_first) or self._returns.back
        self._strategy.start(timeout, late, first_round)
        self._discards = _skip.Discards(self._params.all) if self._is_compared and not self._local_backward else _skip.Uncounted()

    def _compare_model(self, timeout: float) -> None:
        """What the optimiser does not have of the model, too."""
        if self.client.workers == 1:
            return
        back = self._returns.back
        if self.client.policy != "reassign":
            self._model.meet(self.client, timeout, self._resumed or back, self._resumed)
        if self._is_newcomer or (back and not self._resumed):
            self._model.comes_late()

    def _reset(self, skipped: int) -> None:
        """No step was made yet."""
        self._went_on = self._resumed
        self.rounds = self._round = 0
        self.skipped = skipped if self._resumed else 0
        self._discarded = self._looks = 0  # batches, and times that gradients were looked at
        self._inf: Optional[bool] = None  # in this round; None: no GradScaler
        # a gradient at any worker, in a step before? Who goes on does not know, so: yes
        self._used = Used(self._params, (self._resumed and not self._in_first) or self._is_newcomer)
        self._failed: Optional[Exception] = None
        self._values: Optional[List[torch.Tensor]] = None  # of push_parameters
        self._todo: List[Step] = []
        self._remember()

    # ---- what people ask

    @property
    def early_tensors(self) -> int:
        """Tensors that have left during backward passes so far (send_early)."""
        return self._strategy.early_tensors

    @property
    def stolen_slots(self) -> int:
        """Slots of others that this worker has computed so far (steal)."""
        return self._strategy.stolen

    @property
    def lost_slots(self) -> int:
        """Slots of this worker that others have computed so far as it was late (steal)."""
        return self._strategy.lost

    @property
    def leads(self) -> bool:
        """Is this the one worker that saves and evaluates? With policy "reassign" the lowest number of those that
        are there; else worker 0."""
        return self._strategy.leads

    @property
    def compressed(self) -> List[Tuple[int, str, str]]:
        """What compress= has chosen so far: (from round, format of this worker's pushes, format of results), as compress= takes it. Results are
        worker 0's to choose."""
        return list(self._compress.entries)

    @property
    def next_round(self) -> int:
        """Number of the next step's round: `first_round` of who goes on from a checkpoint that is
        taken now. (In the upper 32 bits it has the number of steps that all have left out.)"""
        return self.table.next_round + (self.skipped << 32)

    @property
    def shares(self) -> int:
        """Of how many gradients a step makes the mean: slots, or workers."""
        return self._strategy.shares

    def agree(self, value: float = 0.0, timeout: Optional[float] = None) -> float:
        """One decision for all workers: the number that the worker which `leads` passes, in float64, at each of them. All call it after the same round (where
        `round_ended` is true), once a round; what the others pass is not looked at. So an early stop, or a scheduler that follows the loss, is the same
        everywhere: `if optimiser.agree(optimiser.leads and worse()): break`.

        timeout  seconds; None: that of the client
        """
        return self._strategy.agree(float(value), timeout)

    # ---- groups that are added

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """As in torch: from the next step on these parameters are trained as well, and their state begins then. All workers call it between the same
        steps, with as many parameters, and get those of worker 0. The box gets a table more, so a step has a round more."""
        if not self._declared:
            super().add_param_group(param_group)
            return
        _added.check(self)
        before = len(self.param_groups)
        super().add_param_group(param_group)
        try:
            self._check_group(before, self.param_groups[before])
            self._added = [*self._added, _added.made_of(self, self.param_groups[before])]
        except BaseException:
            del self.param_groups[before:]
            raise

    def _parts(self) -> "List[BoxOptimizer]":
        """Itself, and those of groups that were added."""
        return [self._root, *self._root._added]

    # ---- what sampler(), loader() and follow() ask (SlotTraining)

    @property
    def _is_newcomer(self) -> bool:
        return self._strategy.newcomer

    def _begins(self) -> None:
        self._strategy.enter()

    def _push_waiting(self) -> None:
        self._strategy.push_waiting()

    def _shows(self) -> None:
        self._remember()

    def _idle(self) -> None:
        self._strategy.idle()

    def _sampler_made(self) -> None:
        self._strategy.sampler_made()

    def _check_follow(self) -> None:
        if not self._returns.follows:
            super()._check_follow()

    def _catch_up(self, less: int) -> None:
        super()._catch_up(less)
        self._returns.catch_up(self._followers)

    # ---- what is looked at before anything is sent

    def _remember(self) -> None:
        self._params.remember(self.rounds)

    def _refuse_changed(self) -> None:
        """Parameters that somebody else has changed would be overwritten, unless push_parameters() was called."""
        for o in self._parts():
            if o._values is None:
                o._params.refuse_changed(o._strategy.differ)

    def _slot_grads(self) -> Sums:
        self._count_discards()
        grads: Sums = self._params.gradients()
        self._refuse_infinite(grads)
        return grads

    def _count_discards(self) -> None:
        self._discarded += self._discards.take()

    def _refuse_infinite(self, grads: Sequence[Optional[torch.Tensor]]) -> None:
        """Raise for gradients that would be in everybody's parameters; a GradScaler has looked at them itself."""
        self._looks += 1
        skips = self._inf is not None or self._phases.skip_nonfinite
        found = [] if skips else _finite.bad(grads, self._params.device, self._looks)
        if not found:
            return
        where = self._strategy.where()
        for o in self._parts():
            o._count_discards()
            o._discarded = 0  # the batch of this step is made again, or another one in its place
            o._strategy.discard()
        raise PBoxInvalid(
            f"worker {self.client.worker}: the gradient of {_finite.names(self.table.tensors, found)}{where} has a NaN or an infinity, which this step would "
            "put into the parameters of all workers: nothing was sent, and they wait for this step. Make it with another batch, look for what overflows "
            f"(torch.autograd.set_detect_anomaly), or lower the learning rate; with float16 take a GradScaler{self._whose()}")

    def _whose(self) -> str:
        """The gradients are not finite as the parameters are not: who sent what made them so."""
        with torch.no_grad():
            if not _finite.bad(self._params.values(), self._params.device):
                return ""
        return _finite.sender(self.client, ". The parameters themselves have one")

    # ---- a step

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
        self._model.first_step()
        if self._todo:
            raise PBoxInvalid("the last step has not ended: call wait(), or give up")
        _norm.check_groups(self.param_groups)
        samples = self._check_samples(samples)
        self._strategy.begin_step()
        inf = _skip.unscale(self, scaler)
        if inf is not None:
            self._scales(inf)
        self._strategy.step(samples, scaler)
        return loss

    def _check_samples(self, samples: Optional[int]) -> int:
        if (samples is not None) != (self._how.op in SAMPLED):
            raise PBoxInvalid(
                f"op is '{self._how.op}': step(samples=n) belongs to {' and '.join(SAMPLED)}")
        if samples is None:
            return 1
        samples = _checks.whole(samples, "samples", _checks.U32)
        self._strategy.check_samples(samples)
        return samples

    def _scales(self, inf: bool) -> None:
        """A GradScaler has looked at the gradients of this step."""
        if self.client.policy in ("shrink", "reassign") and self.client.workers > 1:
            raise PBoxInvalid(f"a GradScaler leaves steps out, and with policy={self.client.policy!r} workers cannot agree on that: take "
                              "policy='wait', or bfloat16, which needs no scaling")
        self._inf = bool(self._inf) or inf
        for o in self._added:
            o._inf = self._inf

    def _push_round(self, samples: int, scaler: Any = None) -> None:
        """Gradients are complete: push them, and wait."""
        self._returns.meet(None)
        self._compress.round_begins(None if self._inf else self._strategy.gradients)
        for g, group in enumerate(self.param_groups):
            self._check_group(g, group)
        keeps: List[List[torch.Tensor]] = [[] for _ in self._parts()]
        inputs = [o._strategy.fill(keep) for o, keep in zip(self._parts(), keeps)]
        for o, has, keep in zip(self._parts(), inputs, keeps):
            o._todo = _round.steps(o, samples, has, keep, scaler if o is self else None)
        self._go([*self._todo, *self._rest()])

    def _rest(self) -> List[Step]:
        """The rounds of groups that were added come after this one's."""
        return [o.wait for o in self._added]

    def _said(self, hypers: Hypers) -> Hypers:
        """What all workers must have alike."""
        told = self._strategy.told()
        return [dict(h, discarded=self._discarded, grad_scaler=self._inf is not None, **told) for h in hypers]

    def _compare(self, hypers: Hypers, timeout: Optional[float]) -> None:
        """Wait for what the other workers say, and raise for what the box would do otherwise
        than torch."""
        has, had, inf = self._agreement.check(timeout)
        if inf:  # with a GradScaler at one all have one: nobody has pushed
            self._todo[1:] = [self._leave_out, *self._rest()]
        else:
            self._used.compare(has, had, hypers)

    def _leave_out(self, _timeout: Optional[float]) -> None:
        """All have heard that a GradScaler has found inf at one of them."""
        self._end_round()
        self.skipped += 1

    def _end(self, timeout: Optional[float]) -> None:
        if not self._strategy.wait(timeout):
            return
        with torch.no_grad():
            self._strategy.take()
        self._compress.ended(self._strategy.stalled)
        self._end_round()
        self._strategy.round_is_here()
        self.rounds += 1
        self._remember()

    def _end_round(self) -> None:
        self._resumed, self._in_first, self._inf, self._discarded = False, False, None, 0
        self._strategy.end_round()
        self._catch_up(0)

    def _go(self, steps: Sequence[Step]) -> None:
        """What is left of a step, each after the one before."""
        self._todo = list(steps)
        self.wait()

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
            fetched.update(o._kept.fetch(o._used.had, o._momentum_of()))
        try:
            self.state.update(fetched)
            state = super().state_dict()
            self._strategy.save(state)
            self._phases.save(state)
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
        self._strategy.load(state_dict)
        super().load_state_dict(state_dict)
        if not self._declared:
            return  # a copy
        self._phases.load(state_dict)
        for g, group in enumerate(self.param_groups):
            self._check_group(g, group)
        for o in self._added:
            o.param_groups = [self.param_groups[o._first_group]]  # torch has made others
            o._load_kept(self.state)
        if self._in_first or not (self._resumed or self._is_newcomer):
            self._load_kept(self.state)
            if self._in_first and not self._used.begun:
                self._kept.given()  # nobody else has loaded one
            elif self._in_first and self.client.worker == 0:
                raise PBoxInvalid("worker 0 was killed in the first round of a run that began with a loaded state, and nobody knows whether the box has got that from "
                                  "it: start all workers again, from the checkpoint that they began with")
        elif self._resumed:
            self._kept.resume_steps(state_dict)
        for o in self._parts():
            for p in o._params.all:
                self.state.pop(p, None)

    def _load_kept(self, state: Dict[Any, Dict[str, Any]]) -> None:
        self._used.load(self._kept.load(state, [g.get("dampening", 0.0) for g in self.param_groups[:self._n_groups]]))

    def push_parameters(self) -> None:
        """Parameters were changed between steps, by all workers alike (WGAN's clamp): the next
        step() begins with those of worker 0."""
        self._strategy.check_push_parameters()
        for o in self._parts():
            o._values = o._params.values()
            o._kept.set_parameters(o._values)

    def close(self) -> None:
        """Leave the job (unless others share the session)."""
        for o in self._added:
            o.close()
        if "_session" not in self.__dict__:
            return  # a copy has none
        self._strategy.close()
        self._discards.close()
        if self._is_root:
            self._session.release()
