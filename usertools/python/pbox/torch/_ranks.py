# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Which worker is this, of how many: what the caller says, else the process group whose ranks are the
workers, else RANK and WORLD_SIZE.

A job is one group of workers. So two process groups of one program need two jobs: in one they would
add up each other's gradients, or end each other's run.
"""

import os
from typing import Any, NamedTuple, Optional, Tuple

import torch.distributed as dist

from ..errors import PBoxInvalid


ANY = -1  # a free number


class Place(NamedTuple):
    worker: int
    workers: int
    # of torch.distributed, by worker; None: somebody else has numbered the workers
    ranks: Optional[Tuple[int, ...]] = None


def _env_number(name: str) -> int:
    value = os.environ[name]
    if not value.isascii() or not value.isdigit():
        raise PBoxInvalid(f"{name} of the environment is {value!r}, and not a number: set it as "
                          "torchrun does, or pass worker= and workers=")
    return int(value)


def _initialised() -> bool:
    return dist.is_available() and dist.is_initialized()


def _ranks_of(group: Any) -> Tuple[int, ...]:
    if group is None:
        return tuple(range(dist.get_world_size()))
    return tuple(dist.get_process_group_ranks(group))


def place(worker: Optional[int], workers: Optional[int], group: Any = None) -> Place:
    """`group`: of torch.distributed; None: all its ranks."""
    if worker is not None and workers is not None:
        return Place(worker, workers)
    if _initialised():
        rank, world = dist.get_rank(group), dist.get_world_size(group)
        if rank < 0:
            raise PBoxInvalid(f"rank {dist.get_rank()} is not in this process_group: only its ranks call this")
        if worker is None and workers is None:
            return Place(rank, world, _ranks_of(group))
    elif group is not None:
        raise PBoxInvalid("process_group belongs to torch.distributed: call init_process_group first")
    elif "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        rank, world = _env_number("RANK"), _env_number("WORLD_SIZE")
    else:
        raise PBoxInvalid(
            "which worker is this, and of how many? Pass worker= and workers=, set RANK and "
            "WORLD_SIZE, or call torch.distributed.init_process_group first")
    return Place(rank if worker is None else worker, world if workers is None else workers)


def elastic(worker: Optional[int], workers: Optional[int]) -> Place:
    """Workers come and go (least=): each start of one is a world of its own, so nobody's ranks are the workers."""
    if workers is None:
        raise PBoxInvalid("least= needs workers=, the most workers that there may be")
    return Place(ANY if worker is None else worker, workers)


def _text(ranks: str) -> str:
    return f"[{ranks.replace(',', ', ')}]"


def label(ranks: Tuple[int, ...]) -> str:
    return ",".join(map(str, ranks))


def is_part(ranks: Optional[Tuple[int, ...]]) -> bool:
    return ranks is not None and len(ranks) < dist.get_world_size()


def refusal(job: str, theirs: str, mine: str) -> PBoxInvalid:
    return PBoxInvalid(
        f"job '{job}' has been that of ranks {_text(theirs)} of torch.distributed since it was opened, and this process_group has "
        f"ranks {_text(mine)}: a job is one group of workers. Give each process_group a job of its own (job=)")


def claim(box: str, job: str, ranks: Tuple[int, ...]) -> None:
    """Raise if other ranks of this program have the job: the first who comes to the store has it for its group.
    All ranks of a group find the same."""
    store = dist.distributed_c10d._get_default_store()
    # a store may outlive a start that had another number of ranks
    key, mine = f"pbox/{box}/{job}/{dist.get_world_size()}/ranks", label(ranks)
    try:
        theirs = bytes(store.compare_set(key, "", mine)).decode()
    except (RuntimeError, AttributeError):
        return  # a store that has no such operation: the box refuses the second group, with other words
    if theirs != mine:
        raise refusal(job, theirs, mine)


def check_module(module: Any, workers: int, ranks: Optional[Tuple[int, ...]], job: str) -> None:
    """Raise if a DistributedDataParallel model has another process group than the session has workers. A group of one
    rank reduces nothing by itself, and may be anybody's."""
    group = getattr(module, "process_group", None)
    if group is None or not _initialised() or dist.get_world_size(group) == 1:
        return
    mine = _ranks_of(group)
    if len(mine) != workers:
        raise PBoxInvalid(
            f"the model's process_group has {len(mine)} ranks ({_text(label(mine))} of torch.distributed), and the session of job "
            f"'{job}' has {workers} workers: pass the job of that process_group (job=), or a client of its ranks")
    if ranks not in (None, mine):
        raise refusal(job, label(ranks), label(mine))
