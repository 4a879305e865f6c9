# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Which run of a job is this? All workers of one start of the program say the same to the box, and no
other start does: so workers that a launcher has started again never go on with what the dead ones
left there. Launchers differ in what they set:

torch.distributed  its store belongs to this start: a random number, drawn when all are there
torchrun           the agent's store (static rendezvous), under the count of restarts; else its run
                   id, the count, and the port that it draws for each rendezvous
Slurm              job, step and count of restarts, for tasks that srun started
none of these      the box knows by the leases of the workers when a run is over
"""

import datetime
import itertools
import os
import uuid
from typing import Any, Dict, Optional

import torch.distributed as dist

_STORE_SECONDS = 600.0
_counts: Dict[str, Any] = {}


def _from_store(store: Any, key: str, world: int) -> str:
    """The last of the workers draws: then all of this start are there, and none of the one before.
    A store that outlives its workers counts on."""
    key = f"{key}/{world}"
    here = int(store.add(key, 1)) - 1
    mine = f"{key}/{here // world}"
    if here % world == world - 1:
        store.set(mine, uuid.uuid4().hex)
    store.wait([mine], datetime.timedelta(seconds=_STORE_SECONDS))
    return bytes(store.get(mine)).decode()


def _next(job: str) -> int:
    """All workers open their sessions of a job in the same order."""
    return next(_counts.setdefault(job, itertools.count()))


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6 and int(text) < 65536


def _torchrun(job: str, rank: int, world: int) -> Optional[str]:
    env = os.environ
    if "TORCHELASTIC_RUN_ID" not in env or env.get("RANK") != str(rank) or \
            env.get("WORLD_SIZE") != str(world):
        return None
    count = env.get("TORCHELASTIC_RESTART_COUNT", "0")
    where = env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", "")
    if env.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and where[0] and _is_port(where[1]):
        store = dist.TCPStore(where[0], int(where[1]), None, False,
                              datetime.timedelta(seconds=_STORE_SECONDS))
        key = "/".join(["pbox", env["TORCHELASTIC_RUN_ID"], count, job, str(_next(job))])
        return "torchrun " + _from_store(store, key, world)
    # agents of several hosts count the restarts that they have begun, each its own
    if env.get("GROUP_WORLD_SIZE", "1") != "1":
        count = ""
    return " ".join(["torchrun", env["TORCHELASTIC_RUN_ID"], count, *where, job,
                     str(_next(job))])


def _slurm(job: str, rank: int, world: int) -> Optional[str]:
    env = os.environ
    if env.get("SLURM_PROCID") != str(rank) or env.get("SLURM_NTASKS") != str(world) or \
            "SLURM_STEP_ID" not in env:
        return None
    return " ".join(["slurm", env.get("SLURM_JOB_ID", ""), env["SLURM_STEP_ID"],
                     env.get("SLURM_RESTART_COUNT", "0"), job, str(_next(job))])


def identity(job: str, rank: int, world: int) -> Optional[str]:
    """None: what the client does by itself (PBOX_RUN, or no identity). A launcher that starts
    workers again does not change PBOX_RUN, so its own is added."""
    said = os.environ.get("PBOX_RUN")
    start = _start(job, rank, world) if said != "" else None
    return f"{said} {start}" if said and start else start


def _start(job: str, rank: int, world: int) -> Optional[str]:
    if dist.is_available() and dist.is_initialized() and dist.get_rank() == rank and \
            dist.get_world_size() == world:
        store = dist.distributed_c10d._get_default_store()
        key = f"pbox/{job}/{_next(job)}"
        return "torch.distributed " + _from_store(store, key, world)
    return _torchrun(job, rank, world) or _slurm(job, rank, world)
