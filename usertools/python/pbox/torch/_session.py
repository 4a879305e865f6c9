# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Sessions shared by hook, optimisers and helpers: a job has one live session a worker."""

import contextlib
import os
import threading
import weakref
from typing import Any, Dict, Iterator, List, MutableMapping, Optional, Tuple

from ..client import Client
from ..errors import PBoxError, PBoxInvalid
from . import _options, _ranks
from ._run import identity

# hosts of one job may start minutes apart: images are pulled
DECLARE_SECONDS = 600.0

_lock = threading.Lock()
_sessions: Dict[Tuple[str, str, int], "Session"] = {}


def _from_env(value: Optional[str], what: str) -> str:
    if value is None:
        value = os.environ.get("PBOX_" + what.upper())
    if value is None:
        raise PBoxInvalid(f"{what}= is missing: pass it, or set PBOX_{what.upper()}")
    return value


def check_slots(client: Client, slots: Optional[int]) -> None:
    if slots is not None and client.slots != slots:
        raise PBoxInvalid(
            f"slots is {slots}, and the session that is open has {client.slots}: pass the same slots= to what "
            "opens it (the first optimiser of the job, or pbox.Client)")


# a client may be passed in, and have several sessions: by client, the Slots of its optimisers
_trainings: MutableMapping[Client, Any] = weakref.WeakKeyDictionary()


def trains(client: Client, slots: Any) -> None:
    """An optimiser of this client has these Slots."""
    _trainings.setdefault(client, weakref.WeakSet()).add(slots)


def trains_no_more(client: Client, slots: Any) -> None:
    """It was closed: a round that is in progress is given up."""
    _trainings.get(client, set()).discard(slots)


def goes_by_slots(client: Client) -> bool:
    """Has the program asked an optimiser of this client for a sampler, or for the next slot? One suffices:
    several share micro-batches."""
    return any(slots.asked for slots in _trainings.get(client, ()))


def between_rounds(client: Client, what: str) -> None:
    """Raise for an operation of all workers while a round of slots is in progress: workers with another
    number of slots come to it in another round, or wait for this one in theirs."""
    for slots in _trainings.get(client, ()):
        slots.between_rounds(what, ". All workers call it once a round, where optimiser.round_ended is true: they may "
                             "have different numbers of slots, and would wait for each other")


# by client: optimisers whose steps others wait for (Eager with a bound)
_paced: MutableMapping[Client, Any] = weakref.WeakKeyDictionary()
_PATIENCE, _TURN = 1.0, 0.002  # seconds; the first is once: then this one is ahead by its bound


def paced(client: Client, optimizer: Any) -> None:
    """Others wait for the steps of this optimiser: keeps_pace() calls its give_way(), and then its take_newest()."""
    _paced.setdefault(client, weakref.WeakSet()).add(optimizer)


@contextlib.contextmanager
def keeps_pace(client: Client) -> Iterator[None]:
    """For a wait for all workers: those that have more steps to do wait in them for this one's, which does none here. So it gives
    updates of 0 meanwhile, at the pace of the slowest, as a worker with a bound does."""
    optimisers = list(_paced.get(client, ()))
    if not optimisers:
        yield
        return
    ended, given = threading.Event(), set()

    def give() -> None:
        turn = _PATIENCE
        while not ended.wait(turn):
            turn = _TURN
            try:
                given.update(o for o in optimisers if o.give_way())
            except PBoxError:
                return  # the wait itself, or the next step, says what

    thread = threading.Thread(target=give, name="pbox pace", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    for o in given:
        o.take_newest()


def plain_op(client: Client, op: str) -> str:
    """What a table of contributions by workers, and not by slots, declares for `op`. Where a job has
    slots of its own the box divides by their number; the sum of the samples, 1 from each worker, is the
    number of workers."""
    if client.slots == client.workers or op in ("sum", "sample_mean"):
        return op
    if op == "mean":
        return "sample_mean"
    raise PBoxInvalid(f"op is '{op}', and the job has slots: weights belong to an optimiser with slots=; take 'mean', "
                      "or 'sample_mean' of sums over samples")


class Session:
    """A client with a count of its users, and the tables made for all_reduce."""

    def __init__(self, client: Client, key: Optional[Tuple[str, str, int]],
                 ranks: Optional[Tuple[int, ...]] = None) -> None:
        self.client = client
        self.ranks = ranks  # of torch.distributed, by worker, where they have numbered the workers
        self.tables: Dict[Any, Any] = {}
        self.staging: Dict[Any, List[Any]] = {}  # host memory for tensors of a GPU, by device and size
        self.goes_on: Optional[bool] = None  # has an optimiser with first_round gone on in a run, or begun one?
        self._key = key
        self._users = 1

    def release(self) -> None:
        """The last user closes a session that connect() opened; a client that was passed in
        stays the caller's."""
        with _lock:
            self._users -= 1
            last = self._users == 0 and self._key is not None
            if last and self._key is not None:
                _sessions.pop(self._key, None)
        if last:
            self.staging.clear()
            self.client.close()


_passed_in: Dict[int, Session] = {}


def _open(box: str, job: str, here: _ranks.Place, slots: Optional[int]) -> Optional[Session]:
    """The session that is open, if any. Raises where it is one of other workers."""
    s = _sessions.get((box, job, here.worker))
    for (b, j, _), other in _sessions.items():
        if (b, j) == (box, job) and not other.client.closed and here.ranks and other.ranks not in (None, here.ranks):
            raise _ranks.refusal(job, _ranks.label(other.ranks), _ranks.label(here.ranks))
    if s is None or s.client.closed:
        return None
    if s.client.workers != here.workers:
        raise PBoxInvalid(
            f"the session that is open has the {s.client.workers} workers of job '{job}', and here are {here.workers}: where the "
            "ranks of a process_group are the workers, give it a job of its own (job=)")
    check_slots(s.client, slots)
    return s


def connect(box: Optional[str] = None, job: Optional[str] = None, secret: Optional[str] = None,
            worker: Optional[int] = None, workers: Optional[int] = None,
            client: Optional[Client] = None, process_group: Any = None, **options: Any) -> Session:
    """The session of this worker with that job: the one that is open, or a new one. `process_group`: whose ranks are
    the workers, if the caller does not number them; None: all ranks of torch.distributed."""
    if client is not None:
        if options:
            raise PBoxInvalid(f"{', '.join(options)}: belongs to pbox.Client where client= is "
                              "passed, or is no argument at all")
        with _lock:
            s = _passed_in.get(id(client))
            if s is None or s.client is not client:
                ranks = next((o.ranks for o in _sessions.values() if o.client is client), None)
                s = _passed_in[id(client)] = Session(client, None, ranks)
            return s
    _options.check(options, Client.__init__, "a session of pbox.torch")
    box, job = _from_env(box, "box"), _from_env(job, "job")
    elastic = options.get("least") is not None
    here = _ranks.elastic(worker, workers) if elastic else _ranks.place(worker, workers, process_group)
    key = (box, job, here.worker)
    with _lock:
        s = _open(box, job, here, options.get("slots"))
        if s is not None:
            s._users += 1
            return s
    if secret is None:
        secret = os.environ.get("PBOX_SECRET", "")  # a job that is insecure has none
    if here.ranks is not None:
        _ranks.claim(box, job, here.ranks)
    if "run" not in options and not elastic:
        options["run"] = identity(job, here.worker, here.workers, here.ranks)
    try:
        opened = Client(box, job, secret, None if here.worker == _ranks.ANY else here.worker, here.workers, **options)
    except PBoxError as e:
        if not _ranks.is_part(here.ranks):
            raise
        raise type(e)(f"{e}. The workers are the {here.workers} ranks of a process_group that is a part of torch.distributed's: it "
                      "wants a job of its own (job=), of that many workers") from e
    new = Session(opened, key, here.ranks)
    with _lock:
        _sessions[key] = new
    return new


def current() -> Session:
    """The session that is open, for helpers called without one."""
    with _lock:
        # one that was passed in may be another's
        by_client = {id(s.client): s for s in [*_passed_in.values(), *_sessions.values()]}
        live: List[Session] = [s for s in by_client.values() if not s.client.closed]
    if len(live) == 1:
        return live[0]
    raise PBoxInvalid(
        "no session is open: call pbox.torch.register or make an optimiser first, or pass "
        "client=" if not live else f"{len(live)} sessions are open: say which by client=")
