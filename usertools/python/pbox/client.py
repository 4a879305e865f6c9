# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The worker's session with a box.

    with Client(box="10.0.0.1", job="resnet", secret="...", worker=0, workers=4) as c:
        table = c.declare([Tensor("fc.weight", w.numel()), Tensor("fc.bias", b.numel())],
                          op="mean")
        table.run([w.grad, b.grad])          # in place: the mean over the workers

Arrays are torch tensors, numpy arrays or anything with the buffer protocol. Nothing is copied:
the library sends from and receives into the array's own memory, so between `submit` and
completion its contents must be left alone. Arrays are kept alive for that time.

All times are seconds. Any thread may call anything; the calls release the interpreter lock, and
Ctrl-C interrupts them.
"""

import atexit
import ctypes as ct
import logging
import mmap
import os
import threading
import warnings
import weakref
from dataclasses import make_dataclass
from typing import Any, Dict, Iterable, List, Optional, Tuple, Union

from . import _checks, _lib, _modes, _signal
from ._calls import SLICE_MS, Call, Memory, Said, Told, check_op, choose, interruptible, ms_of, numbers_of
from ._operation import Operation, in_callback
from ._table import BOUND_MAX, Table, Tensor, TensorLike, Versions, spec_of
from .errors import PBoxClosed, PBoxError, PBoxInvalid, PBoxSystemError, error_of

__all__ = ["ANY_ROUND", "BOUND_MAX", "DISCIPLINES", "MODES", "Client", "Operation", "Stats", "Table", "Tensor", "TensorLike", "Versions", "check_op",
           "library_version"]

ANY_ROUND = 0xffffffff
MODES = {"all-reduce": 0, "optimiser": 1}
DISCIPLINES = {"rounds": 0, "clock": 1}

Stats = make_dataclass(
    "Stats", [(n, int) for n, _ in _lib.Stats._fields_ if n != "size"], frozen=True)
Stats.__doc__ = "Totals of a session since it was opened; see struct pbox_client_stats."
Stats.__module__ = __name__
for _made in (Operation, Table, Tensor):
    _made.__module__ = __name__  # where people find them, and pickles of them

_log = logging.getLogger("pbox")


def library_version() -> str:
    """Version of the C library in use."""
    return _lib.get().pbox_client_version().decode()


def _check_job(box: str, job: str) -> None:
    for name, text in (("box", box), ("job", job)):
        if not isinstance(text, str) or not text:
            raise PBoxInvalid(f"{name} is {text!r}: needed is a non-empty string")


def _counts(workers: int, worker: Optional[int], slots: Optional[int]) -> Tuple[int, Optional[int], Optional[int]]:
    """How many workers and slots, and which worker: checked."""
    workers = _checks.whole(workers, "workers", _lib.MAX_WORKERS, 1)
    if worker is not None:
        worker = _checks.whole(worker, "worker", _checks.INT, -_checks.INT)
        if not 0 <= worker < workers:
            raise PBoxInvalid(f"worker {worker} of {workers}: needed is 0 to {workers - 1}")
    if slots is not None:
        slots = _checks.whole(slots, "slots", _checks.U32, -_checks.U32)
        if not workers <= slots <= _lib.MAX_SLOTS:
            raise PBoxInvalid(f"slots is {slots}: needed is {workers} (one for each worker, at least) to {_lib.MAX_SLOTS}")
    return workers, worker, slots


def _policy(policy: str) -> int:
    policies = numbers_of("policy")
    if policy not in policies:
        raise PBoxInvalid(f"policy is {policy!r}: {' and '.join(map(repr, policies))} are taken")
    return policies[policy]


def _authenticates(auth: Optional[str]) -> bool:
    said = "auth"
    if auth is None:
        said, auth = "PBOX_AUTH of the environment", os.environ.get("PBOX_AUTH", "")
    if auth not in ("", "require"):
        raise PBoxInvalid(f"{said} is {auth!r}: set it to 'require', or to '' for what the job says")
    return auth == "require"


def _fill_texts(conf: Any, **texts: Optional[str]) -> None:
    """Members of the configuration; None: not given."""
    for name, text in texts.items():
        setattr(conf, name, None if text is None else _checks.text(text, name))


def _fill_sockets(conf: Any, gso: Optional[bool], spin: float, min_rto: float) -> None:
    """How kernel sockets are used, and when what is lost is sent again."""
    if gso is not None:
        conf.gso = int(gso)
    conf.spin_us = round(_checks.real(spin, "spin, in seconds,", 0, 2000) * 1e6)
    conf.min_rto_us = round(_checks.real(min_rto, "min_rto, in seconds,", 0, 4000) * 1e6)


def _fill_transport(conf: Any, transport: Optional[str], args: Optional[str]) -> bool:
    """What carries the datagrams. Does it send from any memory without copying?"""
    if transport is None:
        transport, args = os.environ.get("PBOX_TRANSPORT", ""), os.environ.get("PBOX_TRANSPORT_ARGS", "")
    if transport == "dpdk" and _lib.of_wheel():
        raise PBoxInvalid(
            "transport is 'dpdk', which no wheel has. Install the Debian packages libpbox-client1 and libpbox-client-dpdk1 of the same "
            f"release (usertools/mkdeb makes them), and set PBOX_CLIENT_LIB={_lib.SONAME}; or leave transport empty for kernel sockets")
    _fill_texts(conf, transport=transport or None, transport_args=args or None)
    return transport in ("", "udp")


def _progress_threads(threads: Union[int, str, None]) -> int:
    if threads is None:
        said = os.environ.get("PBOX_THREADS", "") or "auto"
        if said != "auto" and not said.isdecimal():
            raise PBoxInvalid(f"PBOX_THREADS of the environment is {said!r}: set it to a number of threads, or to auto for as many "
                              "as this process has CPUs")
        threads = said if said == "auto" else int(said)
    return 0 if threads == "auto" else _checks.whole(threads, "threads", _checks.U32)


def _join(conf: Any) -> Tuple[int, Any, ct.c_void_p]:
    """pbox_client_open, which Ctrl-C interrupts."""
    lib = _lib.get()
    opened: List[ct.c_void_p] = []
    abandoned = threading.Event()
    lock = threading.Lock()

    def call() -> Tuple[int, Any, ct.c_void_p]:
        p, err = ct.c_void_p(), _lib.Error()
        code = lib.pbox_client_open(ct.byref(p), ct.byref(conf), ct.byref(err))
        with lock:
            if code == 0 and abandoned.is_set():  # Ctrl-C while joining: leave again
                lib.pbox_client_close(p)
            elif code == 0:
                opened.append(p)
        return code, err, p

    try:
        result: Tuple[int, Any, ct.c_void_p] = interruptible(call)
        return result
    except BaseException:
        with lock:
            abandoned.set()
            for p in opened:
                lib.pbox_client_close(p)
        raise


class Client:
    """One worker of one job. A context manager; close() leaves the job.

    box      "10.0.0.1", "10.0.0.1:7269" or a host name
    worker   0-based number; None: any free one
    workers  of the job, this one included
    timeout  default deadline of waits, from when the box last heard of the worker that is missing:
             one that lives and computes is waited for, up to `patience`; one that has left for
             `left` seconds, and whose number nobody has taken, ends them at once
    join_timeout  deadline of joining
    policy   what rounds do when a worker is dead: "wait" for it, "shrink": go on without it, or "reassign": its slots are done by
             others, and slots go by the workers' speeds (with slots=; see doc/train-plan.md)
    mtu, window, lease, gso, spin, min_rto, bind, host: see struct pbox_client_conf
    transport, transport_args: what carries the datagrams, "udp" or "dpdk", and its arguments;
             None: the variables PBOX_TRANSPORT and PBOX_TRANSPORT_ARGS, or kernel sockets
    auth     "require": only a box that authenticates every frame of the job (auth = yes there);
             "": as the box has it; None: the variable PBOX_AUTH, or ""
    keep_copies  keep the last result of every tensor (memory of one model; of a table in clocks also the pushes that no pull
             has shown yet, 4 at most), and go on after a restart of the box; without, that raises PBoxLost
    run      the run that this worker belongs to, any text: all workers of one start of the job say
             the same, and no other start does. The first with another one ends the run that the box
             has of this job, and begins from nothing. None: the variable PBOX_RUN; "": none. A
             job that has begun takes no new worker without first_round (PBoxRunning), but one of its run
             with policy="shrink"
    slots    shares (micro-batches) into which each round is divided, the same at all workers; None: as
             many as workers. With a number of its own the result of a round is the same on any
             number of workers: nodes() says which slots are this worker's, and as which sums it
             brings them (Table.pushpull_nodes). Operations without nodes add each worker's
             contribution once, in an order that depends on the number of workers; with
             op="mean", whose N is the number of slots, they are refused
    least    with policy="reassign": the training begins with this many workers, worker 0 among them; `workers` is the most that there
             may be, and others join while it runs, with the same `run`. None: it begins with all
    threads  progress threads, each with a part of the box's endpoints, and no more than it has; None: the variable PBOX_THREADS,
             or "auto", which is 0: the CPUs of this process, shared among the workers of its host (LOCAL_WORLD_SIZE, which torchrun sets)
    """

    def __init__(self, box: str, job: str, secret: str = "", worker: Optional[int] = None,
                 workers: int = 1, *, timeout: float = 60.0, join_timeout: float = 10.0,
                 patience: float = 1800.0, left: float = 1.2,
                 bind: Optional[str] = None, host: Optional[str] = None, mtu: int = 0,
                 window: int = 0, lease: Optional[float] = None, policy: str = "wait",
                 gso: Optional[bool] = None,
                 spin: float = 0.0, min_rto: float = 0.0,
                 transport: Optional[str] = None,
                 transport_args: Optional[str] = None, keep_copies: bool = True,
                 auth: Optional[str] = None, run: Optional[str] = None,
                 slots: Optional[int] = None, threads: Union[int, str, None] = None, least: Optional[int] = None) -> None:
        self._p: Optional[ct.c_void_p] = None
        self._pid = os.getpid()
        self._cond = threading.Condition()
        self._users = 0
        self._operations: Dict[int, Operation] = {}
        self.box, self.job, self.timeout, self.policy = box, job, timeout, policy
        _check_job(box, job)
        workers, worker, slots = _counts(workers, worker, slots)
        policy_number, authenticates = _policy(policy), _authenticates(auth)
        conf = _lib.conf()
        conf.auth, conf.policy = int(authenticates), policy_number
        conf.worker, conf.workers, conf.slots = -1 if worker is None else worker, workers, slots or 0
        _fill_texts(conf, box=box, job=job, secret=secret or "", bind=bind or None, host=host or None)
        conf.mtu, conf.window = _checks.whole(mtu, "mtu", _checks.U32), _checks.whole(window, "window", _checks.U32)
        conf.lease_ms = ms_of(lease, "lease")
        conf.timeout_ms, conf.patience_ms = ms_of(timeout), ms_of(patience, "patience")
        conf.left_ms, conf.join_timeout_ms = ms_of(left, "left"), ms_of(join_timeout, "join_timeout")
        _fill_sockets(conf, gso, spin, min_rto)
        self._any_memory = _fill_transport(conf, transport, transport_args)
        conf.keep_copies = int(keep_copies)
        self.run = os.environ.get("PBOX_RUN", "") if run is None else run
        conf.run = _checks.text(self.run, "run") or None
        conf.least = 0 if least is None else _checks.whole(least, "least", workers, 1)
        conf.threads = _progress_threads(threads)
        self._open(conf)

    def _open(self, conf: Any) -> None:
        """Join the job, and learn who this is."""
        code, err, p = _join(conf)
        self._check(code, err)
        self._p, lib = p, _lib.get()
        self.worker = int(lib.pbox_client_worker(p))
        self.workers = int(lib.pbox_client_workers(p))
        self.slots = int(lib.pbox_client_slots(p))
        _open_clients.add(self)
        _log.info("worker %d of %d has joined job '%s' at %s", self.worker, self.workers, self.job, self.box)
        _signal.leave_on_sigterm(_close_all)
        if self.stats().unproven:
            warnings.warn(f"job {self.job!r} at {self.box} is insecure (it has no secret), and this worker has one: nobody has checked "
                          "it, neither here nor there. Leave the secret out, or give the job one", RuntimeWarning, stacklevel=3)

    # ---- calls into the library

    def _call(self) -> "Call":
        return Call(self)

    @staticmethod
    def _error(code: int, err: Any) -> Optional[PBoxError]:
        return error_of(code, err.text.decode(errors="replace")) if code < 0 else None

    def _check(self, code: int, err: Any) -> None:
        e = self._error(code, err)
        if e is not None:
            raise e

    @property
    def work_due(self) -> bool:
        """Policy reassign: do other workers own other slots than when Table.work() was called last?"""
        with self._call() as p:
            return bool(_lib.get().pbox_client_work_due(p))

    def nodes(self, round: int = 0) -> List[Tuple[int, int]]:
        """The nodes of the tree over the slots that this worker brings in a round (0: its next one), as
        (first slot, number of slots), in the order of their slots. Without slots of its own a job has one for
        each worker."""
        found = (_lib.Node * _lib.MOST_NODES)()
        round = _checks.whole(round, "round", _checks.U32)
        with self._call() as p:
            n = _lib.get().pbox_client_nodes(p, round, found, len(found))
        if n < 0:
            raise error_of(n, f"the nodes of round {round} cannot be had")
        return [(node.first, node.slots) for node in found[:n]]

    # ---- tables

    def declare(self, tensors: Iterable[TensorLike], *, mode: str = "all-reduce",
                op: str = "mean", optimiser: str = "none", push: str = "fp32",
                pull: str = "fp32", timeout: Optional[float] = None,
                first_round: int = 0, discipline: str = "rounds", hold: bool = False, mixed: bool = False) -> Table:
        """Declare a table and wait until all workers have. All workers declare the same tables
        in the same order. `push` and `pull` are the formats of arrays and wire: fp32, bf16 or
        fp16; int8 or mxfp4 are those of the wire alone, with fp32 arrays and error feedback
        inside: both ways in mode "all-reduce", `pull` alone in mode "optimiser", `push` alone with discipline "clock". `op` is what a round makes of the contributions: sum, mean, sample_mean,
        weighted_mean. `first_round` is for a worker that was killed and goes on from its own
        checkpoint of round s: s + 1 (see Table.next_round). In a job that has not begun, rounds
        count from 1 all the same. ANY_ROUND: whatever round comes, for programs whose contributions
        are right in each: they have no state of their own, or get it from another worker.
        `discipline` "clock": the box adds each push as soon as it comes, and nobody waits for another
        worker; with mode="optimiser", op="sum", optimiser="add". See Table.push, pull and versions.
        `hold`: rounds have two phases, with mode="optimiser": push, Table.norm(), set_hyper(coefficient=), pull.
        `mixed`: pushes, in int8 or mxfp4, may be in fp32 as well: see Table.plain."""
        code = choose(DISCIPLINES, discipline, "discipline")
        if code:
            self._check_clock(mode, op, optimiser)
        first_round = _checks.whole(first_round, "first_round", _checks.U32)
        specs = [spec_of(i, t) for i, t in enumerate(tensors)]
        decl = (_lib.TensorDecl * max(1, len(specs)))()
        for d, t in zip(decl, specs):
            d.name, d.elements, d.group = t.name.encode(), t.elements, t.group
        formats = numbers_of("format")
        td = _lib.TableDecl(
            size=ct.sizeof(_lib.TableDecl), mode=choose(MODES, mode, "mode"),
            op=check_op(op),
            optimiser=choose(numbers_of("optimiser"), optimiser, "optimiser"),
            push_format=choose(formats, push, "push"),
            pull_format=choose(formats, pull, "pull"), n=len(specs), tensors=decl,
            first_round=first_round, discipline=code, hold=hold, mixed=mixed)
        ms = ms_of(timeout)

        def call() -> int:
            number, err = ct.c_uint32(), _lib.Error()
            with self._call() as p:
                code = _lib.get().pbox_client_declare(
                    p, ct.byref(td), ms, ct.byref(number), ct.byref(err))
            self._check(code, err)
            return number.value

        with Told(self):
            return Table(self, interruptible(call), specs, push, pull, op, discipline)

    def _check_clock(self, mode: str, op: str, optimiser: str) -> None:
        """What a table in clocks cannot have, by name."""
        for name, given, needed, why in (
                ("mode", mode, "optimiser", "the box keeps parameters"),
                ("op", op, "sum", "each push is added alone, so there is nothing to make a mean of (a push may have a factor=)"),
                ("optimiser", optimiser, "add", "workers push updates, and optimisers run there (pbox.torch.Eager)")):
            if given != needed:
                raise PBoxInvalid(f"{name}={given!r} and discipline='clock': {why}; pass {name}={needed!r}")
        _modes.check("discipline='clock'", clocks=True, slots=self.slots != self.workers, plan=self.policy == "reassign")

    def _lives(self, waiting: Any) -> bool:
        """Is it worth to wait on for the oldest operation? `waiting` is a _lib.Waiting of its own
        since that began. Does not block for long."""
        err = _lib.Error()
        if not hasattr(waiting, "said"):
            waiting.said = Said(self)
        waiting.said.look()
        try:
            with self._call() as p:
                code = _lib.get().pbox_client_wait_on(p, 0, ct.byref(waiting), 0, ct.byref(err))
        except PBoxClosed:
            return True  # which ends them by itself
        return code != _lib.DEADLINE

    def memory(self, size: int) -> Any:
        """At least so many bytes, in whole pages, from which the transport sends without copying them (with kernel sockets: any
        memory): an object with the buffer protocol. It is there as long as anything refers to it. Let it go before close()."""
        size = -(-_checks.whole(size, "size", 1 << 48, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        try:
            return mmap.mmap(-1, size) if self._any_memory else Memory(self, size).array()
        except (OSError, MemoryError) as e:
            raise PBoxSystemError(f"there are no {size / 1e6:.1f} MB of memory ({e})") from None

    # ---- looking at it

    def _text(self, fn: str) -> str:
        def call() -> str:
            buf, err = ct.create_string_buffer(1 << 16), _lib.Error()
            with self._call() as p:
                code = getattr(_lib.get(), fn)(p, buf, len(buf), ct.byref(err))
            self._check(min(code, 0), err)
            return buf.value.decode(errors="replace")

        return str(interruptible(call))

    def status(self) -> str:
        """What the job looks like from the box: members, silent ones, tables."""
        return self._text("pbox_client_status")

    def why(self) -> str:
        """What this client waits for right now, in words; "nothing" when idle. And what not_finite() says."""
        return self._text("pbox_client_why")

    def not_finite(self) -> str:
        """A result has a NaN or an infinity: which worker sent it, in which tensor, element and round; or that all of them sent finite numbers whose sum is
        not. "" if the box has found nothing like it within the last minute."""
        return self._text("pbox_client_not_finite")

    def silent(self) -> str:
        """The worker that this client waits for, if the box has not heard it for seconds: its number, host, silence and the next step. "" if the
        box hears it, or nobody is missing."""
        return self._text("pbox_client_silent")

    def stats(self) -> Any:
        """Totals since open, as a Stats object."""
        s = _lib.Stats(size=ct.sizeof(_lib.Stats))
        with self._call() as p:
            _lib.get().pbox_client_stats(p, ct.byref(s))
        return Stats(**{n: getattr(s, n) for n, _ in s._fields_ if n != "size"})

    # ---- the end

    @property
    def closed(self) -> bool:
        return self._p is None

    def close(self) -> None:
        """Leave the job and free the session. What is in flight fails with PBoxClosed."""
        if getattr(in_callback, "active", False):
            raise PBoxInvalid("close() inside a completion callback would wait for itself")
        with self._cond:
            p, self._p = self._p, None
            if p is None:
                return
            if self._pid != os.getpid():
                return  # a forked child: the session and its thread are the parent's
            # calls that other threads are in end within a slice; the library copes with those
            # that do not (declare)
            self._cond.wait_for(lambda: self._users == 0, timeout=3 * SLICE_MS / 1000)
        _lib.get().pbox_client_close(p)
        for op in list(self._operations.values()):
            if not op._handed_over:
                op._finish(PBoxClosed("the client was closed while the operation was in flight"))
        self._operations.clear()
        _open_clients.discard(self)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_p", None) is not None:
            self.close()

    def __repr__(self) -> str:
        who = "closed" if self.closed else f"worker {self.worker} of {self.workers}"
        return f"<pbox.Client box={self.box} job={self.job} {who}>"


_open_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    # the progress thread must not call back into an interpreter that is shutting down
    for c in list(_open_clients):
        c.close()
