# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Finds out that gradients are clipped here, although the optimiser runs on the box.

torch.nn.utils.clip_grad_norm_ between backward() and step() sees this worker's own gradients,
before the box makes their mean: each worker would scale by a factor of its own, which is
another algorithm than clipping the gradient of the whole batch. It has no error to show, so it
is made one.
"""

import functools
import math
import sys
import weakref
from typing import Any, Callable, Iterable

import torch

from ..errors import PBoxInvalid

_NAMES = ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_", "clip_grads_with_norm_")

# id of a parameter -> the optimiser on the box that has it
_owners: "weakref.WeakValueDictionary[int, Any]" = weakref.WeakValueDictionary()
_installed = False


def watch(optimiser: Any, params: Iterable[torch.nn.Parameter]) -> None:
    """From now on clipping gradients of these parameters here is an error."""
    _install()
    for p in params:
        _owners[id(p)] = optimiser


def _check(name: str, parameters: Any, limit: Any) -> None:
    if isinstance(limit, (int, float)) and limit == math.inf:
        return  # only wants to know the norm
    one = isinstance(parameters, torch.Tensor)
    for p in [parameters] if one else parameters:
        opt = _owners.get(id(p))
        if opt is None or opt.local_clip or opt.client.closed or opt.shares == 1:
            continue
        raise PBoxInvalid(
            f"{name} clips this worker's own gradients, before the box makes their mean: with "
            f"{opt.shares} of them that is not clipping the gradient of the batch. Take "
            f"{type(opt).__name__}(..., max_norm=) to clip the mean by its norm on the box, or clip_value= to clamp each "
            "element of it (and leave this call out). If each worker's own shall be clipped: local_clip=True")


def _wrap(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(fn)
    def checked(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        limit = args[0] if args else kwargs.get("max_norm", kwargs.get("clip_value"))
        if not isinstance(parameters, torch.Tensor):
            parameters = list(parameters)  # a generator can be read once
        _check(name, parameters, limit)
        return fn(parameters, *args, **kwargs)
    return checked


def _install() -> None:
    """Put the check around torch's functions, wherever they were imported to by now."""
    global _installed
    if _installed:
        return
    _installed = True
    utils = torch.nn.utils
    originals = {}
    for name in _NAMES:
        fn = getattr(utils, name, None)
        if fn is not None:
            originals[id(fn)] = fn, _wrap(fn, name)
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if not isinstance(names, dict):
            continue
        for key, value in list(names.items()):
            found = originals.get(id(value))
            if found is not None and value is found[0]:
                try:
                    setattr(module, key, found[1])
                except (AttributeError, TypeError):
                    pass  # a module that lets nobody change it
