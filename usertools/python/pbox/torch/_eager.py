# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Eager: any optimiser of torch, at the worker; the box adds its updates as they come, and nobody waits for others.

A worker pulls while it computes, so it knows how many updates of others its gradient has not seen, and says by
which factor its own shall count.
"""

import collections
import math
import statistics
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, Tuple, Union

import torch

from .. import _buffers, _checks, _lib, _modes
from ..client import ANY_ROUND, BOUND_MAX, Client, Operation, Tensor
from ..errors import PBoxDeadline, PBoxInvalid
from . import _device, _finite, _layout, _model
from ._content import content
from ._rates import Rates, labelled
from ._session import DECLARE_SECONDS, connect, paced
from ._slots import check_schedule

Staleness = Union[str, None, Callable[[Any], float]]


def _inv(tau: float, _members: int) -> float:
    return 1 / max(1.0, tau)


def _inv_n(tau: float, members: int) -> float:
    return min(1.0, members / (1 + tau))


_BY_NAME: Dict[str, Callable[[float, int], float]] = {"inv": _inv, "inv_n": _inv_n}
_PUSHED = ("fp32", "int8", "mxfp4")
_PULLED = {"fp32": torch.float32, "bf16": torch.bfloat16}
_NAMES = "'rel', 'inv', 'inv_n', a function of a pbox.client.Versions, or None"


class _Others:
    """What each worker has found its own staleness to be, in a table of its own: an element for each."""

    def __init__(self, client: Client, timeout: float, first_round: int) -> None:
        self._worker = client.worker
        self._table = client.declare([Tensor("staleness", client.workers)], mode="optimiser", op="sum", optimiser="add",
                                     discipline="clock", timeout=timeout, first_round=first_round)
        if client.worker == 0:
            self._table.init([torch.zeros(client.workers, device="cpu")]).wait()
        self._known, self._update = torch.zeros(client.workers, device="cpu"), torch.zeros(client.workers, device="cpu")
        self._table.pull([self._known]).wait()
        self._mine = float(self._known[self._worker])  # of the process before this one, if it goes on for one
        self._median = 0.0
        self._operations: List[Operation] = []

    def median(self, tau: float) -> float:
        """Over the workers. Does not wait: the last answer that has come."""
        if all(o.test() for o in self._operations):
            self._median = statistics.median([max(0.0, float(t)) for t in self._known])
            said = self._mine + (tau - self._mine) / 4  # one update says little
            self._update[self._worker] = said - self._mine
            self._mine = said
            self._operations = [self._table.push([self._update]), self._table.pull([self._known])]
        return self._median

    def drain(self, timeout: Optional[float]) -> None:
        for o in self._operations:
            o.wait(timeout)


class Eager(torch.optim.Optimizer):
    """An optimiser of torch, whose updates are pushed to the box and added there as they come; the parameters that step() leaves are
    those that an eager pull brought during the computation, and all own updates.

        opt = pbox.torch.Eager(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), staleness="rel")

    optimizer          made of the model's parameters: float32, on the CPU or all on one GPU, dense. It runs at this worker, with its own
                       state and schedulers. All workers pass the same parameters in the same order
    staleness          the factor of an update, by tau: how many updates of others were applied between the parameters on which it was computed
                       and the newest ones. None: 1. "inv": 1/tau. "inv_n": N/(1 + tau), at most 1: as many
                       workers, N, that are equally fast have 1. "rel": (1 + m)/(1 + tau), at most 1, where m is the
                       workers' median of tau. Or a function of a pbox.client.Versions (tau is its `others`); 0 drops the update
    bound              None: nobody waits for others. s: the pull of a step waits until no worker is more than s steps behind this one (stale
                       synchronous parallel; 0: all do the same step)
    resume             True: this process goes on for one of its number that was killed: the run may have begun, and the parameters are
                       those that it has come to; `steps` is what the other one had pushed. False: all workers begin together. None: True if the run has a name
                       (PBOX_RUN, run=, or that of a launcher), which is another one for each start of the training
    push               format on the wire of what is pushed: "fp32", or "int8" or "mxfp4" (1.03 or 0.53 bytes an element): what a push does not say so
                       comes with later ones. All workers the same; in jobs of 256 workers at most
    pull               of what is pulled: "fp32", or "bf16": the box keeps fp32 parameters, and workers get rounded ones
    in_flight          pushes that the box has not confirmed, at most: step() waits for the oldest one. Memory of a model for each
    box, job, secret, worker, workers, client, declare_timeout, model, ignore: as for pbox.torch.SGD. box may name several, with commas

    The constructor waits until all workers have begun, and worker 0's parameters become everybody's; after that nobody waits for other workers, but with a
    bound. step() waits only if the pull is later than the gradient, or for a push that is too many.

    Parameters that are changed outside of step() are refused by the next one. A box that is restarted goes on where it was: each push
    counts once, and `lost` says how many of this worker's are lost (0, unless it was away meanwhile). state_dict() and load_state_dict() are those of the optimiser within, by worker: each saves its own.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, *, staleness: Staleness = "rel", bound: Optional[int] = None, in_flight: int = 2,
                 push: str = "fp32", pull: str = "fp32",
                 resume: Optional[bool] = None, box: Optional[str] = None, job: Optional[str] = None, secret: Optional[str] = None,
                 worker: Optional[int] = None, workers: Optional[int] = None, client: Optional[Client] = None,
                 declare_timeout: Optional[float] = None, model: Any = None, ignore: Sequence[str] = (), **options: Any) -> None:
        self._declared = False
        if not isinstance(optimizer, torch.optim.Optimizer) or hasattr(optimizer, "table"):
            raise PBoxInvalid(f"optimizer is a {type(optimizer).__module__}.{type(optimizer).__qualname__}: needed is one of torch.optim, which "
                              "runs at the worker")
        if not (staleness is None or callable(staleness) or staleness == "rel" or
                isinstance(staleness, str) and staleness in _BY_NAME):
            raise PBoxInvalid(f"staleness is {staleness!r}: needed is {_NAMES}")
        if bound is not None and callable(staleness):
            raise PBoxInvalid("bound= counts the steps of workers by their pushes, and staleness() may drop an update (0), which is none: "
                              "take one of the two, or staleness='rel', 'inv' or 'inv_n'")
        _modes.check("Eager", clocks=True, plan=options.get("policy") == "reassign", slots=options.get("slots") is not None, pull=pull in _buffers.BLOCKS,
                     hold=options.keys() & {"max_norm", "skip_nonfinite"})
        if push not in _PUSHED:
            raise PBoxInvalid(f"push is {push!r}: an update goes in 'fp32', 'int8' or 'mxfp4'")
        if pull not in _PULLED:
            raise PBoxInvalid(f"pull is {pull!r}: results come in 'fp32' or 'bf16'")
        self._in_flight = _checks.whole(in_flight, "in_flight", 64, 1)
        self._bound = None if bound is None else _checks.whole(bound, "bound", BOUND_MAX)
        self.inner, self._staleness = optimizer, staleness
        super().__init__(optimizer.param_groups, optimizer.defaults)
        self._bind()
        specs = self._list_parameters()
        if ignore and model is None:
            raise PBoxInvalid("ignore= is of the model's state: pass model= as well")
        self._model = None if model is None else _model.ModelState(model, ignore, self._all)
        self._session = connect(box, job, secret, worker, workers, client, **options)
        try:
            self.client: Client = self._session.client
            if declare_timeout is None:
                declare_timeout = max(self.client.timeout, DECLARE_SECONDS)
            # it needs no state of its own: it pulls before its first step
            first_round = ANY_ROUND if (bool(self.client.run) if resume is None else resume) else 0
            self.table = self.client.declare(specs, mode="optimiser", op="sum", optimiser="add", discipline="clock",
                                             push=push, pull=pull, timeout=declare_timeout, first_round=first_round)
            self._others = _Others(self.client, declare_timeout, first_round) if staleness == "rel" else None
            self._rates = None if self.client.workers == 1 else Rates(self.client, [n for n, _ in self._values()], declare_timeout, first_round)
            self._next = self._like_parameters(_PULLED[pull])
            self._updates = [self._like_parameters() for _ in range(self._in_flight)]
            self._begin(declare_timeout)
            self._compare_model(declare_timeout)
        except BaseException:
            self._session.release()
            raise
        self._declared = True
        # pushes of this worker's number so far: of the process before this one, if it goes on for one
        self.steps: int = self.table.versions().own
        self.tau, self.factor = 0.0, 1.0
        self._followers: List[Any] = []
        self._failed: Optional[Exception] = None
        self._update: Optional[List[torch.Tensor]] = None  # of a step that waits for its pull
        self._nothing: Optional[List[torch.Tensor]] = None
        if self._bound is not None:
            paced(self.client, self)

    def _bind(self) -> None:
        """The same groups and state as within: schedulers and loops may use either."""
        self.param_groups, self.state, self.defaults = self.inner.param_groups, self.inner.state, self.inner.defaults

    def _values(self) -> List[Tuple[str, float]]:
        return labelled(self.param_groups, self.inner.defaults)

    def follow(self, schedule: Any) -> Any:
        """A torch scheduler of this optimiser steps by itself from now on, once with each step of this worker's number: that of a process which
        goes on for another one begins where that one was. Do not call its step(). Returns it."""
        check_schedule(schedule)
        # of a checkpoint of an earlier run, in which steps were counted too
        self._followers.append((schedule, max(0, schedule.last_epoch - self.steps)))
        self._catch_up()
        return schedule

    def _catch_up(self) -> None:
        for s, before in self._followers:
            while s.last_epoch < self.steps + before:
                for o in (self, self.inner):
                    setattr(o, "_opt_called", True)  # by the process before, and torch warns of a scheduler that steps first
                s.step()

    def _list_parameters(self) -> List[Tensor]:
        self._all: List[torch.nn.Parameter] = []
        self._order: List[_layout.Order] = []
        self._left_out: List[Tuple[str, torch.nn.Parameter]] = []
        specs = []
        for g, group in enumerate(self.param_groups):
            for i, p, order in _layout.trained(g, group, self._left_out, "the box adds in float32; convert the model first", host=False):
                self._all.append(p)
                self._order.append(order)
                specs.append(Tensor(f"group {g} parameter {i} {_layout.label(order)}{tuple(p.shape)}", p.numel()))
        if not specs:
            raise PBoxInvalid("no parameter of the optimiser has requires_grad: there is nothing to train")
        self._device = _device.of(self._all, lambda i: specs[i].name)
        return specs

    def _like_parameters(self, dtype: torch.dtype = torch.float32) -> List[torch.Tensor]:
        """Host memory for a copy of the model: pinned, if it is on a GPU."""
        if self._device is None:
            return [torch.empty_like(p.data, dtype=dtype) for p in self._all]
        spans = [-(-_device.bytes_of(dtype) * p.numel() // 64) * 64 for p in self._all]
        memory = _device.Memory(self.client, self._device, sum(spans))
        return [memory.tensor(sum(spans[:i]), p.numel(), dtype).as_strided(p.shape, p.stride()) for i, p in enumerate(self._all)]

    def _dense(self, tensors: List[torch.Tensor]) -> List[torch.Tensor]:
        return [_layout.dense(t, o) for t, o in zip(tensors, self._order)]

    def _begin(self, timeout: float) -> None:
        if self.client.worker == 0:
            self.table.init(self._dense([p.data.cpu() for p in self._all])).wait(timeout)
        # a worker that comes back has made steps, and is bound by the others' like anybody
        self.table.pull(self._dense(self._next), bound=self._bound).wait(timeout)
        for p, new in zip(self._all, self._next):
            p.data.copy_(new)
        self._remember()
        self._pushes: Deque[Operation] = collections.deque()
        self._pull = self.table.pull(self._dense(self._next), bound=self._bound)

    def _compare_model(self, timeout: float) -> None:
        """What the optimiser does not have of the model, too. Until all have done that nobody makes a step."""
        if self._model is None:
            if self.client.workers > 1:
                _model.warn("pbox.torch.Eager")
            return
        versions = self.table.versions()
        late = bool(versions.version or versions.own)
        if self.client.workers > 1:
            self._model.meet(self.client, timeout, late, False, clock=True)
        if late:
            self._model.comes_late()

    # ---- what the box does not see

    def _remember(self) -> None:
        self._contents = [content(p.data, o) for p, o in zip(self._all, self._order)]
        self._strides = [p.stride() for p in self._all]
        self._where = self._all[0].device

    def _refuse_changed(self) -> None:
        for i, (p, c, s) in enumerate(zip(self._all, self._contents, self._strides)):
            name = self.table.tensors[i].name
            if p.stride() != s or p.dtype != torch.float32 or p.device != self._where:
                raise PBoxInvalid(f"parameter '{name}' was moved or converted after the optimiser was made (now {p.dtype}, {p.device}, strides "
                                  f"{tuple(p.stride())}): convert the model first")
            if content(p.data, self._order[i]) != c:
                raise PBoxInvalid(f"parameter '{name}' was changed outside of step(): the box does not see that, and this step would "
                                  "overwrite it. Load checkpoints before making the optimiser")
            g = p.grad
            if g is not None and (g.is_sparse or g.dtype != torch.float32 or g.device != p.device):
                _buffers.check_torch(g, f"gradient of {name}", host=self._device is None)
                raise PBoxInvalid(f"gradient of {name} has dtype {g.dtype}: needed is float32")
        _layout.check_left_out(self._left_out)

    def _refuse_infinite(self) -> None:
        """A NaN that is pushed is in everybody's parameters from then on."""
        found = _finite.bad([p.grad for p in self._all], self._device)
        if found:
            raise PBoxInvalid(f"worker {self.client.worker}: the gradient of {_finite.names(self.table.tensors, found)} has a NaN or an infinity, which this "
                              "step would put into the parameters of all workers: nothing has changed; go on with another batch, or lower the learning rate")

    def _inner_step(self, closure: Optional[Callable[[], Any]], before: List[torch.Tensor]) -> Any:
        """The optimiser's own; parameters that are not numbers afterwards are as they were before it."""
        def checked() -> Any:
            assert closure is not None
            loss = closure()
            with torch.no_grad():
                if self._model is not None:
                    self._model.first_step()
                self._refuse_infinite()  # the first time: before anything has changed
            return loss

        try:
            loss = self.inner.step() if closure is None else self.inner.step(checked)
            found = _finite.bad([p.data for p in self._all], self._device)
            if found:
                raise PBoxInvalid(f"worker {self.client.worker}: this step makes a NaN or an infinity of {_finite.names(self.table.tensors, found)}, of gradients "
                                  "that have none: parameters are as before it, and nothing was sent. The optimiser's own state has made the step: lower the "
                                  "learning rate, or raise eps; where the next step says the same, load a state")
        except BaseException:
            for b, p in zip(before, self._all):
                p.data.copy_(b)
            raise
        return loss

    # ---- a step

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """The step of the optimiser within, pushed; then the newest parameters that have come, with all own updates in them."""
        if self._failed is not None:
            raise self._failed
        if self._update is not None:
            raise PBoxInvalid("the last step has not ended: call wait(), or give up")
        if self._model is not None and closure is None:
            self._model.first_step()
        self._guarded(self._wait_for_room, None)
        self._refuse_changed()
        if closure is None:
            self._refuse_infinite()
        update = self._updates[self.steps % self._in_flight]
        before = update if self._device is None else [torch.empty_like(p.data) for p in self._all]
        for b, p in zip(before, self._all):
            b.copy_(p)
        loss = self._inner_step(closure, before)
        for b, p, u in zip(before, self._all, update):
            torch.sub(p, b, out=b)
            if u is not b:
                u.copy_(b)  # to the host; waits for it
        found = _finite.bad(update)  # from -3e38 to 3e38, say
        if found:
            self._failed = PBoxInvalid(f"worker {self.client.worker}: the update of {_finite.names(self.table.tensors, found)} is too large for a float32, and "
                                       "was not sent: no step follows. Start this worker again, with a lower learning rate")
            raise self._failed
        self._update = update
        self.wait()
        return loss

    def _guarded(self, what: Callable[[Optional[float]], None], timeout: Optional[float]) -> None:
        try:
            what(timeout)
        except (PBoxDeadline, KeyboardInterrupt):
            raise
        except Exception as e:
            self._failed = e  # the session has ended: no step follows
            raise

    def _wait_for_room(self, timeout: Optional[float]) -> None:
        while self._pushes and (len(self._pushes) >= self._in_flight or self._pushes[0].test()):
            self._pushes[0].wait(timeout)
            self._pushes.popleft()

    def wait(self, timeout: Optional[float] = None) -> None:
        """Only after step() has raised PBoxDeadline: wait again for the same step."""
        if self._failed is not None:
            raise self._failed
        if self._update is not None:
            self._guarded(self._end, timeout)

    def _factor(self, versions: Any) -> float:
        self.tau = versions.others
        if self._staleness is None:
            return 1.0
        if callable(self._staleness):
            return _checks.real(self._staleness(versions), "what staleness() has returned")
        if self._others is not None:
            return min(1.0, (1 + self._others.median(self.tau)) / (1 + self.tau))
        return _BY_NAME[str(self._staleness)](self.tau, versions.members)

    @torch.no_grad()
    def _end(self, timeout: Optional[float]) -> None:
        assert self._update is not None
        self._pull.wait(timeout)
        factor = self._factor(self.table.versions())
        if not math.isfinite(factor):
            raise PBoxInvalid(f"staleness() has returned {factor:g}: needed is a finite number")
        # as the box has it: rounded to bf16, where 0 is a push that does not count
        self.factor = factor = float(_lib.get().pbox_client_factor(factor))
        for p, new, u in zip(self._all, self._next, self._update):
            torch.add(new.to(p.device), u.to(p.device), alpha=factor, out=p.data)
        # the pull goes first: its requests are small, and would queue after the push on the way to the box. The library adds to it
        # what it lacks of the pushes that were submitted before
        if factor != 0:
            self._pushes.append(self.table.push(self._dense(self._update), factor=factor, pulls_ago=1, priority=1))
        self._pull = self.table.pull(self._dense(self._next), bound=self._bound)
        self._update = None
        if self._rates is not None:
            self._rates.exchange(self.steps, [v for _, v in self._values()])
        self.steps += 1
        self._remember()
        self._catch_up()

    def give_way(self) -> bool:
        """A step of nothing, if its pull has come: this worker waits for others, whose pulls wait for its steps. False: not now."""
        if self._failed is not None or self._update is not None or self.client.closed or not self._pull.test():
            return False
        if len(self._pushes) >= self._in_flight:
            if not self._pushes[0].test():
                return False
            self._pushes.popleft()
        if self._nothing is None:
            self._nothing = [torch.zeros_like(u) for u in self._updates[0]]
        self._pushes.append(self.table.push(self._dense(self._nothing), priority=1))
        self._pull = self.table.pull(self._dense(self._next), bound=self._bound)
        self.steps += 1
        return True

    def take_newest(self) -> None:
        """After give_way(): the parameters are not of so many steps ago."""
        self.refresh()

    def _drain(self, timeout: Optional[float] = None) -> None:
        while self._pushes:
            self._pushes[0].wait(timeout)
            self._pushes.popleft()
        self._pull.wait(timeout)
        if self._others is not None:
            self._others.drain(timeout)
        if self._rates is not None:
            self._rates.drain(timeout)

    def refresh(self, timeout: Optional[float] = None) -> None:
        """Take the newest parameters, as for an evaluation: after all workers have said that they are done they are the same for all."""
        if self._update is not None:
            raise PBoxInvalid("the last step has not ended: call wait(), or give up")

        def latest(timeout: Optional[float]) -> None:
            self._drain(timeout)
            with torch.no_grad():
                self.table.pull(self._dense(self._next)).wait(timeout)
                for p, new in zip(self._all, self._next):
                    p.data.copy_(new)
            self._remember()
            self._pull = self.table.pull(self._dense(self._next), bound=self._bound)

        self._guarded(latest, timeout)

    # ---- state

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        if self._declared:
            raise PBoxInvalid("parameters cannot be added once the optimiser was made (all workers have declared them): make a second "
                              "optimiser for them")
        super().add_param_group(param_group)

    def __setstate__(self, state: Dict[str, Any]) -> None:
        super().__setstate__(state)
        self._declared = False
        self._failed = PBoxInvalid("this is a copy of an optimiser whose updates go to the box, and takes no part in the job: make one, and load "
                                   "the state_dict() of the first into it")

    def state_dict(self) -> Dict[str, Any]:
        """Of the optimiser within, after all own pushes and pulls have ended. Each worker has its own."""
        if self._declared and self._failed is None:
            self._guarded(self._drain, None)
        return self.inner.state_dict()

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Into the optimiser within. Parameters are those of worker 0 when the optimiser was made: load them before that."""
        self.inner.load_state_dict(state_dict)
        self._bind()

    @property
    def lost(self) -> int:
        """Own pushes that are lost with a box that was restarted, by fragment (a frame's share of a parameter): this worker was away
        while the others brought the box back."""
        return int(self.client.stats().lost_pushes)

    def close(self) -> None:
        """Wait for own pushes, also for those that a restarted box gets again, and leave the job (unless others share the session)."""
        if "_session" not in self.__dict__:
            return  # a copy has none
        try:
            if self._failed is None and not self.client.closed:
                self._drain()
                _ = self.table.next_round  # it is known once a restarted box has all
        finally:
            self._session.release()
