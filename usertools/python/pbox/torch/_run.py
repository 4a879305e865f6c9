# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Which run of a job is this? All workers of one start of the program say the same to the box, and no
other start does: so workers that a launcher has started again never go on with what the dead ones
left there. Launchers differ in what they set:

torch.distributed  its store belongs to this start: a random number, drawn when all are there
torchrun           the agent's store (static rendezvous), the same way; else its run id, the count of restarts, and the
                   port that it draws for each rendezvous
Slurm              job, step and count of restarts, for tasks that srun started
none of these      the box knows by the leases of the workers when a run is over
"""

import datetime
import itertools
import logging
import os
import time
import uuid
from typing import Any, Dict, List, Optional, Tuple

import torch.distributed as dist

from ..errors import PBoxDeadline, PBoxUnreachable

_log = logging.getLogger("pbox")
_STORE_SECONDS = 600.0
_CONNECT_SECONDS = 60.0  # the agent has it before it starts workers
_TELL_SECONDS = 10.0
_counts: Dict[str, Any] = {}


class _Meeting:
    """The workers of a start come together at a store, which may outlive them: an earlier start may have come so far as
    it likes. Each process has a number of its own, as many as were started before it as this worker. Worker 0 offers
    an identity to the processes that came last, again whenever one comes, and the one that all of them have taken is
    that of the run. `add` alone asks without waiting, so all but the offer are counters."""

    def __init__(self, store: Any, key: str, rank: int, world: int) -> None:
        self._store, self._key, self._rank, self._world = store, f"{key}/{world}", rank, world
        self._arrivals = self._offers = 0
        self._offered = ""
        self._mine = self._count(f"came/{rank}", 1)
        self._count("arrivals", 1)

    def _count(self, name: str, more: int = 0) -> int:
        return int(self._store.add(f"{self._key}/{name}", more))

    def _came(self) -> List[int]:
        """How many processes of each worker."""
        return [self._count(f"came/{r}") for r in range(self._world)]

    def _offer(self) -> str:
        arrivals = self._count("arrivals")
        if arrivals != self._arrivals:
            came = self._came()  # who comes meanwhile is seen next time
            self._arrivals, self._offered = arrivals, ""
            if all(came):
                self._offered = uuid.uuid4().hex
                self._store.set(f"{self._key}/offer", " ".join([self._offered, *map(str, came)]))
                self._count("offers", 1)
        if not self._offered or self._count(f"taken/{self._offered}") < self._world - 1:
            return ""
        self._count(f"begun/{self._offered}", 1)
        return self._offered

    def _follow(self) -> str:
        offers = self._count("offers")
        if offers != self._offers:
            offered, *came = bytes(self._store.get(f"{self._key}/offer")).decode().split()
            self._offers = offers
            if int(came[self._rank]) != self._mine:
                offered = ""
            if offered and offered != self._offered:
                self._count(f"taken/{offered}", 1)
            self._offered = offered
        return self._offered if self._offered and self._count(f"begun/{self._offered}") else ""

    def missing(self) -> str:
        absent = [str(r) for r, n in enumerate(self._came()) if n == 0]
        if not absent and self._rank != 0 and not self._offered:
            return "worker 0, or it has begun without this process: was this worker started again alone? Start all again"
        if not absent:
            return "one of those that came last: is it alive, or was it ended and not started again?"
        more = f" and {len(absent) - 8} more" if len(absent) > 8 else ""
        return f"worker{'s' if len(absent) > 1 else ''} {', '.join(absent[:8])}{more}: start it, or look at its log"

    def identity(self, where: str) -> str:
        began, pause, say = time.monotonic(), 0.005, _TELL_SECONDS
        while True:
            found = self._follow() if self._rank else self._offer()
            if found:
                return found
            waited = time.monotonic() - began
            text = f"worker {self._rank} of {self._world} has asked {where} for the others of this start for {waited:.0f} s; missing is "
            if waited > _STORE_SECONDS:
                raise PBoxDeadline(text + self.missing())
            if waited > say:
                _log.warning("%s%s", text, self.missing())
                say += min(say, 60.0)
            time.sleep(pause)
            pause = min(pause * 1.5, 0.2)


def _from_store(store: Any, key: str, rank: int, world: int, where: str) -> str:
    try:
        return _Meeting(store, key, rank, world).identity(where)
    except RuntimeError as e:  # of torch: the store has gone
        raise PBoxUnreachable(f"{where} does not answer, with which the workers of a start find each other ({e}): has "
                              "the process that has it ended? PBOX_RUN= (empty) does without") from None


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
        named = f"torchrun's store at {where[0]}:{where[1]}"
        try:
            store = dist.TCPStore(where[0], int(where[1]), None, False,
                                  datetime.timedelta(seconds=_CONNECT_SECONDS))
        except RuntimeError as e:
            raise PBoxUnreachable(f"{named} cannot be reached ({e}): is the agent there alive?") from None
        # without the count of restarts: agents of several hosts have each its own
        key = "/".join(["pbox", env["TORCHELASTIC_RUN_ID"], job, str(_next(job))])
        return "torchrun " + _from_store(store, key, rank, world, named)
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


def identity(job: str, rank: int, world: int, ranks: Optional[Tuple[int, ...]] = None) -> Optional[str]:
    """None: what the client does by itself (PBOX_RUN, or no identity). A launcher that starts
    workers again does not change PBOX_RUN, so its own is added. `ranks`: those of torch.distributed that
    are the workers, where it has numbered them."""
    said = os.environ.get("PBOX_RUN")
    start = _start(job, rank, world, ranks) if said != "" else None
    return f"{said} {start}" if said and start else start


def at_store(store: Any, job: str, rank: int, world: int) -> Optional[str]:
    """As identity(), of a start whose store torch.distributed does not know yet: init_process_group is not over."""
    said = os.environ.get("PBOX_RUN")
    if said == "":
        return None
    start = "torch.distributed " + _from_store(store, f"pbox/{job}/{_next(job)}", rank, world, "torch.distributed's store")
    return f"{said} {start}" if said else start


def _start(job: str, rank: int, world: int, ranks: Optional[Tuple[int, ...]]) -> Optional[str]:
    if dist.is_available() and dist.is_initialized() and \
            (ranks is not None or (dist.get_rank() == rank and dist.get_world_size() == world)):
        store = dist.distributed_c10d._get_default_store()
        key = f"pbox/{job}/{_next(job)}"
        return "torch.distributed " + _from_store(store, key, rank, world, "torch.distributed's store")
    return _torchrun(job, rank, world) or _slurm(job, rank, world)
