# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""torch's tests of DistributedDataParallel are written for a GPU each rank. Here every device is the CPU: cuda() gives
what it was called for, a number as device is no more, and what asks for GPUs does not skip.

prepare() comes before torch.testing._internal.distributed is imported, install() after that: torch compiles functions in it.
"""

import dataclasses
import functools
import sys
import types
import unittest

import torch


def _install_expecttest():
    """torch's tests derive from its TestCase, and Debian does not have it."""
    try:
        import expecttest  # noqa: F401
    except ImportError:
        sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase, ACCEPT=False)


def _device(d):
    if isinstance(d, bool) or d is None:
        return d
    if isinstance(d, int) or (isinstance(d, (str, torch.device)) and str(d).startswith("cuda")):
        return torch.device("cpu")
    return d


def _makes(name):
    """A function with device=."""
    original = getattr(torch, name)

    @functools.wraps(original)
    def made(*args, **kwargs):
        if "device" in kwargs:
            kwargs["device"] = _device(kwargs["device"])
        return original(*args, **kwargs)
    setattr(torch, name, made)


def _to(cls):
    """.to(device), by position or by name."""
    original = cls.to

    @functools.wraps(original)
    def to(self, *args, **kwargs):
        if "device" in kwargs:
            kwargs["device"] = _device(kwargs["device"])
        if args and not isinstance(args[0], torch.Tensor):
            args = (_device(args[0]), *args[1:])
        return original(self, *args, **kwargs)
    cls.to = to


def _no_devices(cls):
    """A DistributedDataParallel has device_ids=[rank]."""
    original = cls.__init__

    @functools.wraps(original)
    def init(self, module, device_ids=None, output_device=None, *args, **kwargs):
        original(self, module, None, None, *args, **kwargs)
    cls.__init__ = init


def _never_skips(common):
    def any_number(*_):
        return lambda test: test
    common.skip_if_lt_x_gpu = common.nccl_skip_if_lt_x_gpu = common.require_n_gpus_for_nccl_backend = any_number
    common.skip_if_no_gpu = lambda test: test


def _import_shards():
    """torch 1.13 gives a field of a dataclass a default that Python 3.11 takes for mutable."""
    original = dataclasses.dataclass

    def dataclass(cls=None, **kwargs):
        if cls is None:
            return lambda cls: dataclass(cls, **kwargs)
        return original(cls, **{"unsafe_hash": "__hash__" not in cls.__dict__, **kwargs})
    dataclasses.dataclass = dataclass
    try:
        import torch.distributed._shard.sharded_tensor  # noqa: F401
    except (ImportError, TypeError, ValueError):
        pass  # tests that need it say so
    finally:
        dataclasses.dataclass = original


def prepare():
    _install_expecttest()
    _import_shards()
    # what is asked while the tests are imported
    torch.distributed.is_nccl_available = lambda: True
    torch.cuda.nccl.version = lambda: (0, 0, 0)
    try:
        from torch.nn.parallel import _replicated_tensor_ddp_utils
        _replicated_tensor_ddp_utils._set_ddp_with_replicated_tensor = lambda value: None  # torch 1.13's needs Python 3.10
    except ImportError:
        pass
    from torch.testing._internal import common_distributed
    _never_skips(common_distributed)


def install(ranks):
    torch.distributed.is_nccl_available = lambda: False
    for name in ("arange", "as_tensor", "empty", "eye", "full", "ones", "rand", "randint", "randn", "tensor", "zeros",
                 "empty_like", "full_like", "ones_like", "rand_like", "randn_like", "zeros_like"):
        _makes(name)
    for cls in (torch.Tensor, torch.nn.Module):
        _to(cls)
        cls.cuda = lambda self, *args, **kwargs: self
    _no_devices(torch.nn.parallel.DistributedDataParallel)
    torch.cuda.set_device = torch.cuda.synchronize = lambda *args, **kwargs: None
    torch.cuda.current_device = lambda: 0
    torch.cuda.device_count = lambda: ranks
