# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""PBox for PyTorch (1.13 and later, tensors of the CPU and of CUDA).

register        a DistributedDataParallel model: its gradients are reduced by the box
SGD, Adam, AdamW  optimisers that run on the box, with or without torch.distributed
Eager           any optimiser of torch, at the worker: nobody waits for others
all_reduce      any tensors, in place
sync_buffers    the mean of a module's buffers

To import it makes the backend "pbox" known to torch.distributed.init_process_group.
"""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as e:
    if e.name != "torch":
        raise
    import sys
    raise ModuleNotFoundError(f"pbox.torch needs PyTorch, which {sys.executable} does not have: install it there (pip install torch; on Debian python3-torch, for "
                              "/usr/bin/python3). pbox.Client does without", name="torch") from None

from ._collective import all_reduce, sync_buffers
from ._eager import Eager
from . import _group
from ._hook import Hook, hook, register
from . import _kinds
from ._kinds import *
from ._optim import BoxOptimizer

_group.install()
__all__ = _kinds.__all__ + ["BoxOptimizer", "Eager", "Hook", "all_reduce", "hook", "register", "sync_buffers"]
