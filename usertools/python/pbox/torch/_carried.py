# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Puts the gradient hook into the DistributedDataParallel models of a script that knows nothing of PBox, and says at the end what went over
the box.

The class itself is changed, in place: a class of ours in its place would not pass isinstance and pickle. A model is noted when it is made.
At its first forward pass with gradients it gets a hook, unless the script has given it one; that is a matter of this rank alone. The box is
asked in the first backward pass, to which all ranks come.
"""

# no `from __future__ import annotations`: DDP compares the hook's annotations with types

import functools
import gc
import itertools
import os
import sys
import threading
import weakref
from typing import Any, Callable, List, MutableMapping, Optional, Tuple

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from .. import _buffers
from ..errors import PBoxError, PBoxInvalid
from . import _device, _group, _hook, _join

_MOST_LINES = 8
_numbers = itertools.count()
_noted: List["Model"] = []  # as they were made
_of: MutableMapping[Any, "Model"] = weakref.WeakKeyDictionary()
_lock = threading.Lock()
_register_comm_hook: Optional[Callable[..., None]] = None  # torch's own


class Model:
    """A model that was noted, and the state of its hook.

    reason  why it is not carried
    state   the Hook, from the first backward pass until the model has gone
    """

    def __init__(self, ddp: Any) -> None:
        self.name = f"{type(ddp.module).__name__} (model {next(_numbers) + 1})"
        self.reason: Optional[str] = None
        self.state: Optional[_hook.Hook] = None
        self.error: Optional[BaseException] = None
        self.attached = False
        self.theirs: Optional[Tuple[Any, Any]] = None
        self.bytes = sum(p.numel() * p.element_size() for p in _params(ddp))
        self._rounds = 0
        self._joined: Tuple[bool, bool] = (False, True)
        self._ddp = weakref.ref(ddp, self._gone)
        # a rank may come to the end of its inputs before the first backward pass
        _join.watch(ddp, self)

    def _gone(self, _: Any) -> None:
        self._rounds, self.state = self.rounds, None  # the hook gives its tables back

    @property
    def rounds(self) -> int:
        return self._rounds if self.state is None else self.state.rounds

    # what _join sets
    @property
    def joined(self) -> bool:
        return self._joined[0]

    @joined.setter
    def joined(self, value: bool) -> None:
        self._joined = value, self._joined[1]
        self._tell_joined()

    @property
    def joined_counts(self) -> bool:
        return self._joined[1]

    @joined_counts.setter
    def joined_counts(self, value: bool) -> None:
        self._joined = self._joined[0], value
        self._tell_joined()

    def _tell_joined(self) -> None:
        if self.state is not None:
            self.state.joined, self.state.joined_counts = self._joined

    def attach(self, ddp: Any) -> None:
        """Give it the hook, or know why not. Nothing is sent."""
        if self.attached or self.reason is not None:
            return
        self.reason = _refused(ddp)
        if self.reason is None:
            assert _register_comm_hook is not None
            _register_comm_hook(ddp, self, _late)
            self.attached = True

    def register(self) -> None:
        """With the box, and all other ranks."""
        ddp = self._ddp()
        if ddp is None or self.state is not None or self.theirs is not None:
            return
        if self.error is not None:
            raise self.error
        try:
            self.state = _hook.register(_WithHook(ddp))
        except BaseException as e:
            self.error = e
            raise
        self._tell_joined()

    def __reduce__(self) -> Any:
        # torch may have the hook's state among the attributes of a model, which is copied and saved without it
        return _hook._Copied, ()


class _WithHook:
    """A model that has its hook already, for register()."""

    def __init__(self, ddp: Any) -> None:
        self._ddp = ddp

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ddp, name)

    def register_comm_hook(self, state: Any, hook: Any) -> None:
        pass


def _late(model: Model, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    if model.theirs is not None:
        return model.theirs[1](model.theirs[0], bucket)
    if model.state is None:
        with _lock:
            # all that are in this pass, in the order in which they were made: it is the same at all ranks
            for m in list(_noted):
                if m.attached:
                    m.register()
    assert model.state is not None
    return _hook.hook(model.state, bucket)


def _params(ddp: Any) -> List[torch.nn.Parameter]:
    ignored = set(getattr(ddp, "parameters_to_ignore", ()))
    return [p for n, p in ddp.module.named_parameters() if p.requires_grad and n not in ignored]


def _refused(ddp: Any) -> Optional[str]:
    """Why PBox does not carry it; all ranks find the same."""
    if getattr(ddp, "static_graph", False):
        return "static_graph=True"
    if getattr(ddp, "mixed_precision", None) is not None:
        return "mixed_precision= of DistributedDataParallel"
    if dist.get_world_size(ddp.process_group) != dist.get_world_size():
        return "its process_group is a part of the ranks"
    if any(isinstance(m, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and m.sparse for m in ddp.module.modules()):
        return "sparse gradients"
    params = _params(ddp)
    for p in params:
        if _buffers.format_of(p) is None:
            return f"parameters are {p.dtype}".replace("torch.", "") + ": float32, bfloat16 and float16 are carried"
    try:
        _device.of(params, lambda i: f"parameter {i}")
    except PBoxInvalid as e:
        return str(e)
    return None


def install() -> None:
    """Change DistributedDataParallel. Once a process."""
    global _register_comm_hook
    if _register_comm_hook is not None:
        return
    cls: Any = DistributedDataParallel
    init, forward, join_hook = cls.__init__, cls.forward, cls.join_hook
    register = _register_comm_hook = cls.register_comm_hook
    builtin = getattr(cls, "_register_builtin_comm_hook", None)

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        _of[self] = model = Model(self)
        _noted.append(model)

    @functools.wraps(forward)
    def with_hook(self: Any, *args: Any, **kwargs: Any) -> Any:
        model = _of.get(self)
        if model is not None and torch.is_grad_enabled() and self.require_backward_grad_sync:
            model.attach(self)
        return forward(self, *args, **kwargs)

    @functools.wraps(join_hook)
    def joins(self: Any, **kwargs: Any) -> Any:
        model = _of.get(self)
        if model is not None:
            model.attach(self)  # a rank without inputs makes no forward pass, and takes part in those of the others
        return join_hook(self, **kwargs)

    @functools.wraps(register)
    def register_comm_hook(self: Any, state: Any, hook: Any) -> None:
        model = _of.get(self)
        if model is not None and model.attached and model.state is None and model.theirs is None:
            self._check_comm_hook(hook)
            model.theirs = state, hook
        else:
            register(self, state, hook)
        if model is None:
            return
        if isinstance(state, _hook.Hook):
            model.state = state  # the script knows PBox
        else:
            model.reason = f"the script has registered a hook of its own, {getattr(hook, '__qualname__', hook)}"

    cls.__init__, cls.forward, cls.join_hook, cls.register_comm_hook = __init__, with_hook, joins, register_comm_hook
    if builtin is not None:
        @functools.wraps(builtin)
        def _register_builtin_comm_hook(self: Any, kind: Any) -> None:
            builtin(self, kind)
            if self in _of:
                _of[self].reason = f"the script has registered torch's hook {kind}"

        cls._register_builtin_comm_hook = _register_builtin_comm_hook


def _size(n: float) -> str:
    for unit in "bytes", "kB", "MB", "GB":
        if n < 1000 or unit == "GB":
            break
        n /= 1000
    return f"{n:.0f} {unit}" if unit == "bytes" else f"{n:.1f} {unit}"


def _sharded() -> int:
    """Models that torch shards, as far as they are there."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    cls = getattr(fsdp, "FullyShardedDataParallel", None)
    return 0 if cls is None else sum(isinstance(o, cls) for o in gc.get_objects())


def lines() -> List[str]:
    """What the box has carried, and what not."""
    carried = [m for m in _noted if m.rounds]
    others = [(m, m.reason or (f"{type(m.error).__name__}: {m.error}" if m.error else
                               "no backward pass with gradient synchronisation")) for m in _noted if not m.rounds]
    said = [f"carried by {os.environ.get('PBOX_BOX')}, job '{os.environ.get('PBOX_JOB')}': {len(carried)} of {len(_noted)} models, "
            f"{sum(m.rounds for m in carried)} rounds, {_size(sum(m.rounds * m.bytes for m in carried))} of gradients of each rank"]
    said += [f"carried: {m.name}: {m.rounds} rounds of {_size(m.bytes)}" for m in carried[:_MOST_LINES]]
    said += [f"not carried: {m.name}: {why}" for m, why in others[:_MOST_LINES]]
    more = max(0, len(carried) - _MOST_LINES) + max(0, len(others) - _MOST_LINES)
    if more:
        said.append(f"and {more} more models")
    if not _noted:
        said.append("not carried: this process has made no DistributedDataParallel model; processes that a script starts itself are not seen")
    n = _sharded()
    if n:
        said.append(f"not carried: {n} FullyShardedDataParallel modules: PBox has no reduce-scatter")
    if _group.total:
        said.append(f"carried: {_group.total} all_reduce of the process group, {_size(_group.total_bytes)} of each rank")
    if carried or _group.total:
        said.append("not carried: all else that the script does with torch.distributed, as broadcasts of parameters and buffers")
    return said


def report() -> None:
    """When the script has ended. Rank 0 says it; others say what has failed."""
    rank = os.environ.get("RANK", "0")
    said = lines() if rank == "0" else [f"rank {rank}: {m.name}: {type(m.error).__name__}: {m.error}" for m in _noted
                                        if isinstance(m.error, PBoxError)]
    if said:
        print("\n".join(f"pbox: {line}" for line in said), file=sys.stderr, flush=True)
