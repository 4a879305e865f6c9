# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Says which reductions are those of a rank that has no inputs left (torch.distributed.algorithms.Join): it takes
part in the others' with gradients of zeros, which are no samples."""

import functools
import weakref
from typing import Any, MutableMapping

from torch.distributed.algorithms.join import JoinHook
from torch.nn.parallel import DistributedDataParallel

# model -> the hook that reduces for it
_hooks: MutableMapping[Any, Any] = weakref.WeakKeyDictionary()
_installed = False


class _Shadow(JoinHook):
    def __init__(self, inner: JoinHook, hook: Any, all_count: bool) -> None:
        self._inner, self._hook, self._all_count = inner, hook, all_count

    def main_hook(self) -> None:
        self._hook.joined, self._hook.joined_counts = True, self._all_count
        try:
            self._inner.main_hook()
        finally:
            self._hook.joined = False

    def post_hook(self, is_last_joiner: bool) -> None:
        self._inner.post_hook(is_last_joiner)


def watch(ddp: Any, hook: Any) -> None:
    """From now on hook.joined says whether this rank has joined while the others train, and joined_counts whether
    the mean is over it as well (torch's divide_by_initial_world_size)."""
    global _installed
    if not isinstance(ddp, DistributedDataParallel):
        return
    _hooks[ddp] = hook
    if _installed:
        return
    _installed = True
    # of the class: an attribute of the model would be in its copies and files
    original = DistributedDataParallel.join_hook

    @functools.wraps(original)
    def join_hook(self: Any, **kwargs: Any) -> Any:
        inner, own = original(self, **kwargs), _hooks.get(self)
        return inner if own is None else _Shadow(inner, own, kwargs.get("divide_by_initial_world_size", True))

    DistributedDataParallel.join_hook = join_hook  # type: ignore[method-assign]
