# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Puts a hook into every DistributedDataParallel model in place of torch's own all-reduce: PBox's, or torch's
allreduce_hook, which shows what any hook changes for a test. Or the process group "pbox" in place of Gloo's: then all that can be goes over the
box, small tensors too.

A test may register a hook of its own, and torch takes one. So PBox's is made with the model, which all ranks make, and
given to torch with the first forward pass or Join, if there is no other by then.
"""

import functools
import os
import weakref

import torch.distributed as dist
from torch.distributed.algorithms import join
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import pbox
import pbox.torch

# model -> (state, hook) that is to be registered, or the error of making one
_waiting = weakref.WeakKeyDictionary()
reduced = 0  # buckets, by PBox


def _job(model):
    """A job is one group of ranks."""
    ranks = dist.get_process_group_ranks(model.process_group)
    return "ranks-" + "-".join(map(str, ranks))


def _of_pbox(model, timeout):
    found = []
    model.register_comm_hook = lambda state, hook: found.append((state, hook))
    try:
        pbox.torch.register(model, job=_job(model), timeout=timeout)
    except pbox.PBoxInvalid as e:  # it is so on all ranks, and nothing was sent: raised where gradients would be reduced
        found.append(e)
    finally:
        del model.register_comm_hook
    return found[0] if isinstance(found[0], Exception) else (found[0][0], _counted)


@functools.wraps(pbox.torch.hook)
def _counted(state, bucket):
    global reduced
    reduced += 1
    return pbox.torch.hook(state, bucket)


def _give(model):
    waiting = _waiting.pop(model, None)
    if isinstance(waiting, Exception):
        raise waiting
    if waiting is not None:
        DistributedDataParallel.register_comm_hook(model, *waiting)


def _install_group():
    begin = dist.init_process_group

    @functools.wraps(begin)
    def init_process_group(backend, *args, **kwargs):
        return begin("pbox" if backend == "gloo" else backend, *args, **kwargs)
    dist.init_process_group = init_process_group
    os.environ["PBOX_JOB"] = "ranks-0-1-2"
    # Join gives the reducer the work of an all-reduce of one element, and torch 1.13 does not keep the Python part of that
    pbox.torch._group.LEAST = 64


def count():
    """What the box has reduced for this process."""
    return reduced + pbox.torch._group.total


def install(kind, timeout):
    """kind: "pbox" or "allreduce_hook"; "group"; or "gloo": nothing is changed."""
    if kind == "group":
        _install_group()
    if kind in ("group", "gloo"):
        return

    def before(cls, name, do):
        original = getattr(cls, name)

        @functools.wraps(original)
        def wrapped(self, *args, **kwargs):
            do(self, *args)
            return original(self, *args, **kwargs)
        setattr(cls, name, wrapped)

    make = DistributedDataParallel.__init__

    @functools.wraps(make)
    def init(self, *args, **kwargs):
        make(self, *args, **kwargs)
        _waiting[self] = _of_pbox(self, timeout) if kind == "pbox" else (None, default_hooks.allreduce_hook)
    DistributedDataParallel.__init__ = init

    before(DistributedDataParallel, "register_comm_hook", lambda self, *_: _waiting.pop(self, None))
    before(DistributedDataParallel, "_register_builtin_comm_hook", lambda self, *_: _waiting.pop(self, None))
    before(DistributedDataParallel, "forward", lambda self, *_: _give(self))
    before(join.Join, "__init__", lambda self, joinables, *_: [
        _give(j) for j in joinables if isinstance(j, DistributedDataParallel)])


def close():
    """Leave the jobs: processes of torch.multiprocessing end without what was registered for their end."""
    for session in list(pbox.torch._session._sessions.values()):
        session.client.close()
