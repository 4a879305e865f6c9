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
import functools
import itertools
import logging
import math
import mmap
import os
import sys
import threading
import time
import warnings
import weakref
from dataclasses import dataclass, make_dataclass
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from . import _buffers, _checks, _lib, _modes, _signal, _threads
from .errors import PBoxClosed, PBoxError, PBoxInvalid, PBoxSystemError, error_of

ANY_ROUND = 0xffffffff
MODES = {"all-reduce": 0, "optimiser": 1}
DISCIPLINES = {"rounds": 0, "clock": 1}
BOUND_MAX = (1 << 30) - 1

# a wait in C cannot be interrupted, so it is cut into pieces of this length: Python handles
# signals, and sees that the client was closed, between them
_SLICE_MS = 200

Stats = make_dataclass(
    "Stats", [(n, int) for n, _ in _lib.Stats._fields_ if n != "size"], frozen=True)
Stats.__doc__ = "Totals of a session since it was opened; see struct pbox_client_stats."
Stats.__module__ = __name__


Versions = make_dataclass(
    "Versions", [
        (n, float if c is ct.c_double else int) for n, c in _lib.Versions._fields_ if n != "size"], frozen=True)
Versions.__doc__ = "How far a table in clocks has come, as this client knows; see struct pbox_client_versions."
Versions.__module__ = __name__


@dataclass(frozen=True)
class Tensor:
    """A tensor as declared; tensors of a `group` share hyper-parameters."""

    name: str
    elements: int
    group: int = 0


_log = logging.getLogger("pbox")
# waits at the start say what they wait for, first after this time, then ever more rarely; others
# after the timeout, but not later than this
_TELL_SECONDS = 10.0
_SAY_SECONDS = 60.0
_SILENT_SECONDS = 5.0


def library_version() -> str:
    """Version of the C library in use."""
    return _lib.get().pbox_client_version().decode()


def _ms(seconds: Optional[float], what: str = "timeout") -> int:
    """Milliseconds for the library; None is its 0, 'as configured'."""
    if seconds is None:
        return 0
    return max(1, round(_checks.real(seconds, f"{what}, in seconds,", 0, 4e6) * 1000))


@functools.lru_cache(maxsize=None)
def _numbers(what: str) -> Dict[str, int]:
    """What the library knows, by name: "format", "op", "optimiser", "hyper" or "policy"."""
    names = ((_lib.get().pbox_client_name(what.encode(), n), n) for n in range(256))
    return {name.decode(): n for name, n in names if name is not None}


def _choose(table: Mapping[str, int], value: str, what: str) -> int:
    try:
        return table[value]
    except (KeyError, TypeError):
        raise PBoxInvalid(f"{what} is {value!r}: one of {', '.join(table)}") from None


def check_op(op: str) -> int:
    """The number of what a round makes of contributions; PBoxInvalid names them all."""
    return _choose(_numbers("op"), op, "op")


def _interruptible(fn: Callable[[], Any]) -> Any:
    """Run a blocking C call so that Ctrl-C gets through: signals reach only the main thread,
    and only while it is in the interpreter."""
    if threading.current_thread() is not threading.main_thread():
        return fn()
    result: List[Any] = []
    done = threading.Event()

    def run() -> None:
        try:
            result.append((fn(), None))
        except BaseException as e:
            result.append((None, e))
        finally:
            done.set()

    _threads.start(run, "pbox-call")
    done.wait()
    value, err = result[0]
    if err is not None:
        raise err
    return value


# ---- completion callbacks --------------------------------------------------------------------
#
# One C thunk for the life of the process, and a number as its context: a thunk per operation
# would have to outlive a call that the progress thread may still be in.

_notify_ids = itertools.count(1)
_notified: Dict[int, Tuple["Operation", Callable[[Optional[PBoxError]], Any]]] = {}
_in_callback = threading.local()


@_lib.DoneFn
def _on_done(ctx: int, code: int, text: Optional[bytes]) -> None:
    op, fn = _notified.pop(ctx)
    err = error_of(code, (text or b"").decode(errors="replace")) if code < 0 else None
    op._finish(err)
    _in_callback.active = True
    try:
        fn(err)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # nobody above us could catch it
    finally:
        _in_callback.active = False


class Operation:
    """A submitted operation. Wait for each, or give it a callback: until then the library and
    this object hold the arrays."""

    def __init__(self, client: "Client", handle: int, keep: Any) -> None:
        self._client = client
        self._handle = handle
        self._keep = keep
        self._error: Optional[PBoxError] = None
        self._done = False
        self._handed_over = False
        self._lock = threading.Lock()

    def _finish(self, err: Optional[PBoxError]) -> None:
        self._error, self._done, self._keep = err, True, None
        self._client._operations.pop(self._handle, None)

    def _own(self) -> None:
        if self._handed_over:
            raise PBoxInvalid("this operation has a callback: it cannot be waited for as well")

    @property
    def done(self) -> bool:
        """Has it been found complete (by wait, test or its callback)?"""
        return self._done

    def wait(self, timeout: Optional[float] = None) -> None:
        """Return when complete. After PBoxDeadline it may be waited for again. A timeout that is
        given here is one; without, see that of the Client."""
        self._own()
        waiting = _lib.Waiting(timeout_ms=_ms(timeout))
        said = _Said(self._client)
        with self._lock:
            while not self._done:
                said.look()
                err = _lib.Error()
                with self._client._call() as c:
                    code = _lib.get().pbox_client_wait_on(
                        c, self._handle, ct.byref(waiting), _SLICE_MS, ct.byref(err))
                if code == _lib.DEADLINE:
                    raise error_of(code, err.text.decode(errors="replace"))
                if code != _lib.PENDING:
                    self._finish(self._client._error(code, err))
        if self._error is not None:
            raise self._error

    def test(self) -> bool:
        """Is it complete? Does not block; raises if it failed."""
        self._own()
        with self._lock:
            if not self._done:
                err = _lib.Error()
                with self._client._call() as c:
                    code = _lib.get().pbox_client_test(c, self._handle, ct.byref(err))
                if code == _lib.PENDING:
                    return False
                self._finish(self._client._error(code, err))
        if self._error is not None:
            raise self._error
        return True

    def add_done_callback(self, fn: Callable[[Optional[PBoxError]], Any]) -> None:
        """Call fn(error or None) once, from the library's progress thread (or at once, from this
        one, if the operation has ended). It must be short: all traffic waits for it. It may
        submit, but neither wait nor close."""
        with self._lock:
            self._own()
            if self._done:
                fn(self._error)
                return
            self._handed_over = True
            key = next(_notify_ids)
            _notified[key] = (self, fn)
            with self._client._call() as c:
                code = _lib.get().pbox_client_notify(c, self._handle, _on_done, key)
            if code < 0:
                _notified.pop(key, None)
                self._handed_over = False
                raise error_of(code, "this operation cannot be given a callback")


class Table:
    """Tensors declared together; made by Client.declare."""

    def __init__(self, client: "Client", number: int, tensors: Sequence[Tensor], push: str,
                 pull: str, op: str, discipline: str = "rounds") -> None:
        self.discipline = discipline
        self.client = client
        self.number = number
        self.tensors = tuple(tensors)
        self.push_format = push
        self.pull_format = pull
        self.push_arrays, self.pull_arrays = _buffers.arrays_of(push), _buffers.arrays_of(pull)
        # the box would divide by the slots what was added once for each worker
        self._by_nodes_only = op == "mean" and client.slots != client.workers
        self._index = {t.name: i for i, t in enumerate(self.tensors)}

    def __len__(self) -> int:
        return len(self.tensors)

    def _numbered(self, arrays: Any) -> List[Tuple[int, Any]]:
        """Arrays in the table's order, or {name or number: array} for some of its tensors."""
        if isinstance(arrays, Mapping):
            out = []
            for key, a in arrays.items():
                i = self._index.get(key, -1) if isinstance(key, str) else key
                if not isinstance(i, int) or not 0 <= i < len(self.tensors):
                    raise PBoxInvalid(f"table {self.number} has no tensor {key!r}")
                out.append((i, a))
            return out
        arrays = list(arrays)
        if len(arrays) != len(self.tensors):
            raise PBoxInvalid(
                f"{len(arrays)} arrays for the {len(self.tensors)} tensors of table "
                f"{self.number}: pass all, or a dict of some by name")
        return list(enumerate(arrays))

    def submit(self, kind: int, inputs: Any = None, outputs: Any = None, *, priority: int = 0,
               weight: int = 1, factor: Optional[float] = None, pulls_ago: int = 0, bound: Optional[int] = None) -> Operation:
        """Start an operation (_lib.PUSHPULL, PUSH, PULL or INIT). `inputs` and `outputs` are
        arrays for all tensors, or dicts for some, by name or number. `factor`, `pulls_ago`: see push(); `bound`: see pull()."""
        ins = dict(self._numbered(inputs)) if inputs is not None else {}
        outs = dict(self._numbered(outputs)) if outputs is not None else {}
        numbers = list(ins if inputs is not None else outs)
        if inputs is not None and outputs is not None and ins.keys() != outs.keys():
            raise PBoxInvalid("inputs and outputs are of different tensors")
        io = (_lib.Io * max(1, len(numbers)))()
        keep: List[Any] = [io]
        push = "fp32" if kind in (_lib.INIT, _lib.GIVE) else self.push_arrays
        pull = "fp32" if kind == _lib.FETCH else self.pull_arrays
        for k, i in enumerate(numbers):
            t = self.tensors[i]
            io[k].tensor = i
            if inputs is not None:
                io[k].input, ref = _buffers.address_of(
                    ins[i], t.elements, push, False, f"input '{t.name}'")
                keep.append(ref)
            if outputs is not None:
                io[k].output, ref = _buffers.address_of(
                    outs[i], t.elements, pull, True, f"output '{t.name}'")
                keep.append(ref)
        if outputs is not None:
            self._check_apart(io, numbers, pull)
        return self.submit_io(kind, io, len(numbers), keep, priority=priority, weight=weight, factor=factor,
                              pulls_ago=pulls_ago, bound=bound)

    def _check_apart(self, io: Any, numbers: Sequence[int], pull: str) -> None:
        """Raise for outputs that would be written over each other: each tensor has a result of its own."""
        size = _buffers.BYTES[pull]
        end, last = 0, -1
        for at, i in sorted((io[k].output, i) for k, i in enumerate(numbers) if self.tensors[i].elements > 0):
            if at < end:
                raise PBoxInvalid(f"output '{self.tensors[i].name}' overlaps the memory of output '{self.tensors[last].name}': each has a result of "
                                  "its own, and the one that came last would overwrite the other. Pass memory of its own for each")
            end, last = at + self.tensors[i].elements * size, i

    def _clock(self, factor: Optional[float], pulls_ago: int, bound: Optional[int]) -> Dict[str, Any]:
        """What an operation on a table in clocks says of itself."""
        if factor is None and not pulls_ago and bound is None:
            return {}
        if self.discipline != "clock":
            raise PBoxInvalid(f"factor=, pulls_ago= and bound= belong to tables in clocks, and table {self.number} is in rounds: declare it with "
                              "discipline='clock'")
        if bound is not None:
            return {"bounded": 1, "bound": _checks.whole(bound, "bound", BOUND_MAX)}
        given = 1.0 if factor is None else _checks.real(factor, "factor")
        if not math.isfinite(given) or _lib.get().pbox_client_factor(given) == 0:
            raise PBoxInvalid(f"factor is {given:g}: needed is a finite number other than 0 (a push that shall not count is none)")
        return {"factor": given, "pulls_ago": _checks.whole(pulls_ago, "pulls_ago", 1)}

    def submit_io(self, kind: int, io: Any, n: int, keep: Any, *, priority: int = 0,
                  weight: int = 1, factor: Optional[float] = None, pulls_ago: int = 0, bound: Optional[int] = None) -> Operation:
        """Start an operation on prepared addresses (for bindings): `io` is an array of
        _lib.Io; `keep` is held until the operation ends."""
        clock = self._clock(factor, pulls_ago, bound)
        weight = _checks.whole(weight, "weight (the number of samples)", _checks.U32)
        if self._by_nodes_only and kind in (_lib.PUSHPULL, _lib.PUSH):
            raise PBoxInvalid(
                f"table {self.number} has op='mean', whose N is the {self.client.slots} slots of the job, and this is a "
                f"contribution of one of {self.client.workers} workers: take pushpull_nodes (sums over slots), or declare "
                "op='sample_mean' for the mean over the workers")
        return self._begin(keep, priority, kind=kind, io=io, n=n, weight=weight, **clock)

    def _begin(self, keep: Any, priority: int, **what: Any) -> Operation:
        handle, err, c = ct.c_uint64(), _lib.Error(), self.client
        op = _lib.Op(size=ct.sizeof(_lib.Op), table=self.number, priority=_checks.whole(priority, "priority", 255), **what)
        with c._call() as p:
            code = _lib.get().pbox_client_submit(p, ct.byref(op), ct.byref(handle), ct.byref(err))
        c._check(code, err)
        _signal.look()
        operation = Operation(c, handle.value, keep)
        # the library writes into the arrays even if the caller drops the operation
        c._operations[handle.value] = operation
        return operation

    # ---- by nodes (Client(slots=))

    def submit_nodes(self, kind: int, inputs: Sequence[Any], outputs: Any = None, *,
                     weights: Optional[Sequence[int]] = None, priority: int = 0) -> Operation:
        """Start a PUSHPULL or PUSH of one contribution for each node of Client.nodes(): `inputs`
        are the arrays of each, as submit() takes them. `weights`: samples of each node."""
        parts = [dict(self._numbered(arrays)) for arrays in inputs]
        numbers = list(parts[0]) if parts else []
        outs = dict(self._numbered(outputs)) if outputs is not None else None
        if any(p.keys() != parts[0].keys() for p in parts) or (
                outs is not None and outs.keys() != set(numbers)):
            raise PBoxInvalid("inputs of the nodes, and outputs, are of different tensors")
        io = (_lib.Io * max(1, len(numbers)))()
        addresses = (ct.c_void_p * max(1, len(parts) * len(numbers)))()
        keep: List[Any] = []
        for k, i in enumerate(numbers):
            t = self.tensors[i]
            io[k].tensor = i
            for j, part in enumerate(parts):
                addresses[j * len(numbers) + k], ref = _buffers.address_of(
                    part[i], t.elements, self.push_arrays, False, f"input '{t.name}' of node {j}")
                keep.append(ref)
            if outs is not None:
                io[k].output, ref = _buffers.address_of(
                    outs[i], t.elements, self.pull_arrays, True, f"output '{t.name}'")
                keep.append(ref)
        if outs is not None:
            self._check_apart(io, numbers, self.pull_arrays)
        if weights is None:
            weights = [1] * len(parts)
        if len(weights) != len(parts):
            raise PBoxInvalid(f"{len(weights)} weights for {len(parts)} nodes")
        return self.submit_nodes_io(kind, io, len(numbers), addresses, weights, keep, priority=priority)

    def submit_nodes_io(self, kind: int, io: Any, n: int, addresses: Any, weights: Sequence[int],
                        keep: Any, *, priority: int = 0, again: bool = False) -> Operation:
        """Start an operation by nodes on prepared addresses (for bindings), as many nodes as there
        are weights: addresses[node * n + i] is what io[i].input would be. `addresses`, `io` and
        `keep` are held until the operation ends. again: in the round of the last push, once more, after PBoxMore."""
        if kind not in (_lib.PUSHPULL, _lib.PUSH):
            raise PBoxInvalid("only PUSHPULL and PUSH are by nodes")
        weights = [_checks.whole(w, f"weight of node {j} (the number of samples)", _checks.U32)
                   for j, w in enumerate(weights)]
        samples = (ct.c_uint32 * max(1, len(weights)))(*weights)
        return self._begin((keep, io, addresses, samples), priority, kind=kind, io=io, n=n, by_nodes=1, again=again, nodes=len(weights),
                           node_in=addresses, node_weight=samples)

    # ---- work by plan (Client(policy="reassign"))

    def work(self, report: Any = None, timeout: Optional[float] = None) -> Any:
        """Report the last round (a _lib.Work, filled in place), and learn which slots are this worker's:
        Client.nodes() says them afterwards. No push may be unfinished."""
        work = report if report is not None else _lib.Work()
        work.size = ct.sizeof(_lib.Work)
        err, c = _lib.Error(), self.client
        with c._call() as p:
            code = _lib.get().pbox_client_work(p, self.number, work, _ms(timeout), ct.byref(err))
        c._check(code, err)
        return work

    def slot_begin(self, round: int, slot: int) -> bool:
        """This worker begins a slot of that round now, unless it is False: then another one does it. From the first call for a round on the
        box may give slots that are not begun to others; Client.nodes() is without them then."""
        with self.client._call() as p:
            code = int(_lib.get().pbox_client_slot_begin(p, self.number, round, slot))
        if code < 0:
            raise error_of(code, f"slot {slot} of round {round} cannot be begun")
        return bool(code)

    def task(self, round: int, timeout: Optional[float] = None) -> bool:
        """This worker has computed its slots of the round, and has not pushed them: are there some of another one that would end later? Then
        Client.nodes() is with them, in this round. The box is asked for 0.1 seconds at the most, while it asks the others."""
        err, c, again = _lib.Error(), self.client, ct.c_uint32(0)
        with c._call() as p:
            code = _lib.get().pbox_client_task(p, self.number, round, ct.byref(again), _ms(timeout), ct.byref(err))
        c._check(min(code, 0), err)
        return code > 0

    def norm(self, round: int, max_norm: float = 0.0, timeout: Optional[float] = None) -> Any:
        """Of a table with hold=True: wait until all workers have pushed the round, and return the sum of the squares of all sums (a _lib.Norm).
        PBoxLost: the box was restarted, and this worker pushes the round again."""
        err, c, m = _lib.Error(), self.client, _lib.Norm()
        m.size = ct.sizeof(_lib.Norm)
        ms = _ms(timeout)

        def call() -> None:
            with c._call() as p:
                code = _lib.get().pbox_client_norm(p, self.number, round, max_norm, ct.byref(m), ms, ct.byref(err))
            c._check(code, err)

        _interruptible(call)
        return m

    def pushpull_nodes(self, inputs: Sequence[Any], outputs: Any, *,
                       weights: Optional[Sequence[int]] = None, priority: int = 0) -> Operation:
        """Start this worker's next round with the sum over each of its nodes (Client.nodes(); with
        op="weighted_mean" each slot is a node of its own); the result goes to `outputs`."""
        return self.submit_nodes(_lib.PUSHPULL, inputs, outputs, weights=weights,
                                 priority=priority)

    def push_nodes(self, inputs: Sequence[Any], *, weights: Optional[Sequence[int]] = None,
                   priority: int = 0) -> Operation:
        """As pushpull_nodes, without asking for the result."""
        return self.submit_nodes(_lib.PUSH, inputs, weights=weights, priority=priority)

    @property
    def next_round(self) -> int:
        """Number of the round that the next push contributes to. A checkpoint taken now is that
        of the round before; who starts again from it says first_round=next_round."""
        with self.client._call() as p:
            return int(_lib.get().pbox_client_next_round(p, self.number))

    def pushpull(self, inputs: Any, outputs: Any = None, *, priority: int = 0,
                 weight: int = 1) -> Operation:
        """Start this worker's next round; the result goes to `outputs` (default: in place)."""
        return self.submit(_lib.PUSHPULL, inputs, inputs if outputs is None else outputs,
                           priority=priority, weight=weight)

    def run(self, inputs: Any, outputs: Any = None, *, weight: int = 1,
            timeout: Optional[float] = None) -> None:
        """pushpull and wait."""
        self.pushpull(inputs, outputs, weight=weight).wait(timeout)

    def push(self, inputs: Any, *, priority: int = 0, weight: int = 1, factor: Optional[float] = None,
             pulls_ago: int = 0) -> Operation:
        """Start a push: contribute to the next round without asking for its result. Of a table in clocks: the box
        adds it as soon as it comes, times `factor` (rounded to bf16; None: 1). `pulls_ago` says on what it was computed,
        0: what the last pull brought, 1: the pull before; for people."""
        return self.submit(_lib.PUSH, inputs, priority=priority, weight=weight, factor=factor, pulls_ago=pulls_ago)

    def pull(self, outputs: Any, *, priority: int = 0, bound: Optional[int] = None) -> Operation:
        """Start a pull of the version that this client's last push leads to; at first: of the
        initial one. Of a table in clocks: the latest, with all own pushes that were submitted before it. It waits until no worker is
        more than `bound` pushes behind these (0: all have pushed as often; None: it does not wait), for a dead one too, until the
        job goes on without that (policy shrink) or it leaves."""
        return self.submit(_lib.PULL, None, outputs, priority=priority, bound=bound)

    def versions(self, tensor: Union[int, str, None] = None) -> Any:
        """Of a table in clocks: how far it has come, as this client knows from the answers so far, as a Versions
        object. `tensor`: its name or number; None: the whole table."""
        if self.discipline != "clock":
            raise PBoxInvalid(f"versions() belongs to tables in clocks, and table {self.number} is in rounds: declare it with "
                              "discipline='clock', or see next_round")
        number = _lib.ALL_TENSORS
        if tensor is not None:
            (number, _), = self._numbered({tensor: None})
        v, err, c = _lib.Versions(size=ct.sizeof(_lib.Versions)), _lib.Error(), self.client
        with c._call() as p:
            code = _lib.get().pbox_client_versions(p, self.number, number, ct.byref(v), ct.byref(err))
        c._check(code, err)
        return Versions(**{n: getattr(v, n) for n, _ in v._fields_ if n != "size"})

    def init(self, inputs: Any) -> Operation:
        """Start sending the initial parameters (fp32; optimiser tables; worker 0 only)."""
        return self.submit(_lib.INIT, inputs)

    def fetch(self, array: int, outputs: Any) -> Operation:
        """Start fetching what the box keeps of the version that this client's last push led to,
        in fp32: 0 parameters, 1 and 2 the optimiser's state. `outputs` are of all tensors."""
        array = _checks.whole(array, "array", 2)
        return self.submit(_lib.FETCH, None, outputs, weight=array)

    def give(self, array: int, inputs: Any) -> Operation:
        """Start giving an array back (worker 0 only). No worker may push until it has ended."""
        array = _checks.whole(array, "array", 2)
        return self.submit(_lib.GIVE, inputs, weight=array)

    def set_hyper(self, group: Optional[int] = None, from_round: int = 0,
                  **values: float) -> None:
        """Set hyper-parameters (lr=..., momentum=..., see doc/optimisers.md) of a group (None: all) from a
        round on (0: this client's next). Returns when the box holds them."""
        h = (_lib.Hyper * max(1, len(values)))()
        ids = _numbers("hyper")
        for k, (name, value) in enumerate(values.items()):
            h[k].id = _choose(ids, name, "hyper-parameter")
            h[k].value = _checks.real(value, name)
        g = _lib.ALL_GROUPS if group is None else _checks.whole(group, "group", _lib.ALL_GROUPS)
        from_round = _checks.whole(from_round, "from_round", _checks.U32)
        c = self.client

        def call() -> None:
            err = _lib.Error()
            with c._call() as p:
                code = _lib.get().pbox_client_set(
                    p, self.number, g, from_round, h, len(values), ct.byref(err))
            c._check(code, err)

        _interruptible(call)

    def plain(self, plain: bool, from_round: int = 0) -> None:
        """Of a table declared with mixed=True: this client's pushes are in fp32 from a round on (0: its next), or in the push format again, in which
        they begin. Said before a push of that round; rounds never go back. Each client says it for itself."""
        from_round, err, c = _checks.whole(from_round, "from_round", _checks.U32), _lib.Error(), self.client
        with c._call() as p:
            code = _lib.get().pbox_client_plain(p, self.number, from_round, int(plain), ct.byref(err))
        c._check(code, err)

    def decide(self, from_round: int, value: float) -> None:
        """Policy reassign: what all workers do before a round (any number; R15.11). Who leads sends it, and each that has heard it. PBoxMismatch: another
        worker has decided otherwise."""
        h, err, c = (_lib.Hyper * 1)(_lib.Hyper(_lib.DECISION, value)), _lib.Error(), self.client
        with c._call() as p:
            code = _lib.get().pbox_client_set(p, self.number, _lib.ALL_GROUPS, from_round, h, 1, ct.byref(err))
        c._check(code, err)


TensorLike = Union[Tensor, Tuple[str, int], Tuple[str, int, int], int]


def _spec(number: int, given: TensorLike) -> Tensor:
    """As declared, with a name that C sees whole and numbers that fit its own."""
    if isinstance(given, tuple):
        if not 2 <= len(given) <= 3:
            raise PBoxInvalid(f"tensor {number} is {given!r}: needed is (name, elements) or (name, elements, group)")
        given = Tensor(*given)
    elif not isinstance(given, Tensor):
        given = Tensor(str(number), given)
    _checks.text(given.name, f"name of tensor {number}")
    what = f"tensor '{given.name}': number of "
    return Tensor(given.name, _checks.whole(given.elements, what + "elements", _lib.MAX_ELEMENTS),
                  _checks.whole(given.group, what + "its group", _lib.ALL_GROUPS - 1))


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


def _authenticates(auth: Optional[str]) -> bool:
    said = "auth"
    if auth is None:
        said, auth = "PBOX_AUTH of the environment", os.environ.get("PBOX_AUTH", "")
    if auth not in ("", "require"):
        raise PBoxInvalid(f"{said} is {auth!r}: set it to 'require', or to '' for what the job says")
    return auth == "require"


def _transport_of(transport: Optional[str], args: Optional[str]) -> Tuple[str, Optional[str]]:
    if transport is None:
        transport, args = os.environ.get("PBOX_TRANSPORT", ""), os.environ.get("PBOX_TRANSPORT_ARGS", "")
    if transport == "dpdk" and _lib.of_wheel():
        raise PBoxInvalid(
            "transport is 'dpdk', which no wheel has. Install the Debian packages libpbox-client1 and libpbox-client-dpdk1 of the same "
            f"release (usertools/mkdeb makes them), and set PBOX_CLIENT_LIB={_lib.SONAME}; or leave transport empty for kernel sockets")
    return transport, args


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
        result: Tuple[int, Any, ct.c_void_p] = _interruptible(call)
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
        for name, text in (("box", box), ("job", job)):
            if not isinstance(text, str) or not text:
                raise PBoxInvalid(f"{name} is {text!r}: needed is a non-empty string")
        workers, worker, slots = _counts(workers, worker, slots)
        policies = _numbers("policy")
        if policy not in policies:
            raise PBoxInvalid(f"policy is {policy!r}: {' and '.join(map(repr, policies))} are taken")
        authenticates = _authenticates(auth)
        conf = _lib.conf()
        conf.auth = int(authenticates)
        conf.box, conf.job = _checks.text(box, "box"), _checks.text(job, "job")
        conf.secret = _checks.text(secret or "", "secret")
        conf.bind = _checks.text(bind, "bind") if bind else None
        conf.host = _checks.text(host, "host") if host else None
        conf.worker = -1 if worker is None else worker
        conf.workers = workers
        conf.mtu, conf.window = _checks.whole(mtu, "mtu", _checks.U32), _checks.whole(window, "window", _checks.U32)
        conf.lease_ms = _ms(lease, "lease")
        conf.policy = policies[policy]
        conf.timeout_ms, conf.patience_ms = _ms(timeout), _ms(patience, "patience")
        conf.left_ms, conf.join_timeout_ms = _ms(left, "left"), _ms(join_timeout, "join_timeout")
        if gso is not None:
            conf.gso = int(gso)
        conf.spin_us = round(_checks.real(spin, "spin, in seconds,", 0, 2000) * 1e6)
        conf.min_rto_us = round(_checks.real(min_rto, "min_rto, in seconds,", 0, 4000) * 1e6)
        transport, transport_args = _transport_of(transport, transport_args)
        self._any_memory = transport in ("", "udp")
        conf.keep_copies = int(keep_copies)
        conf.transport = _checks.text(transport, "transport") if transport else None
        conf.transport_args = _checks.text(transport_args, "transport_args") if transport_args else None
        self.run = os.environ.get("PBOX_RUN", "") if run is None else run
        conf.run = _checks.text(self.run, "run") or None
        conf.slots = slots or 0
        conf.least = 0 if least is None else _checks.whole(least, "least", workers, 1)
        conf.threads = _progress_threads(threads)
        code, err, p = _join(conf)
        self._check(code, err)
        self._p, lib = p, _lib.get()
        self.worker = int(lib.pbox_client_worker(p))
        self.workers = int(lib.pbox_client_workers(p))
        self.slots = int(lib.pbox_client_slots(p))
        _open_clients.add(self)
        _log.info("worker %d of %d has joined job '%s' at %s", self.worker, self.workers, job, box)
        _signal.leave_on_sigterm(_close_all)
        if self.stats().unproven:
            warnings.warn(f"job {job!r} at {box} is insecure (it has no secret), and this worker has one: nobody has checked "
                          "it, neither here nor there. Leave the secret out, or give the job one", RuntimeWarning, stacklevel=2)

    # ---- calls into the library

    def _call(self) -> "_Call":
        return _Call(self)

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
        code = _choose(DISCIPLINES, discipline, "discipline")
        if code:
            self._check_clock(mode, op, optimiser)
        first_round = _checks.whole(first_round, "first_round", _checks.U32)
        specs = [_spec(i, t) for i, t in enumerate(tensors)]
        decl = (_lib.TensorDecl * max(1, len(specs)))()
        for d, t in zip(decl, specs):
            d.name, d.elements, d.group = t.name.encode(), t.elements, t.group
        formats = _numbers("format")
        td = _lib.TableDecl(
            size=ct.sizeof(_lib.TableDecl), mode=_choose(MODES, mode, "mode"),
            op=check_op(op),
            optimiser=_choose(_numbers("optimiser"), optimiser, "optimiser"),
            push_format=_choose(formats, push, "push"),
            pull_format=_choose(formats, pull, "pull"), n=len(specs), tensors=decl,
            first_round=first_round, discipline=code, hold=hold, mixed=mixed)
        ms = _ms(timeout)

        def call() -> int:
            number, err = ct.c_uint32(), _lib.Error()
            with self._call() as p:
                code = _lib.get().pbox_client_declare(
                    p, ct.byref(td), ms, ct.byref(number), ct.byref(err))
            self._check(code, err)
            return number.value

        with _Told(self):
            return Table(self, _interruptible(call), specs, push, pull, op, discipline)

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
            waiting.said = _Said(self)
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
            return mmap.mmap(-1, size) if self._any_memory else _Memory(self, size).array()
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

        return str(_interruptible(call))

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
        if getattr(_in_callback, "active", False):
            raise PBoxInvalid("close() inside a completion callback would wait for itself")
        with self._cond:
            p, self._p = self._p, None
            if p is None:
                return
            if self._pid != os.getpid():
                return  # a forked child: the session and its thread are the parent's
            # calls that other threads are in end within a slice; the library copes with those
            # that do not (declare)
            self._cond.wait_for(lambda: self._users == 0, timeout=3 * _SLICE_MS / 1000)
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


class _Memory:
    """Of a transport that has its own. Its array refers to it."""

    def __init__(self, client: Client, size: int) -> None:
        self._client = client
        with client._call() as p:
            self._at = _lib.get().pbox_client_alloc(p, size + mmap.PAGESIZE)
        if not self._at:
            raise MemoryError("the transport has no more")
        self._size = size

    def array(self) -> Any:
        array = (ct.c_char * self._size).from_address(-(-self._at // mmap.PAGESIZE) * mmap.PAGESIZE)
        array.memory = self  # type: ignore[attr-defined]
        return array

    def __del__(self) -> None:
        if getattr(self, "_at", None):
            try:
                with self._client._call() as p:
                    _lib.get().pbox_client_free(p, self._at)
            except PBoxClosed:
                pass  # with the session its transport has gone


class _Said:
    """Says from time to time what a wait that goes on waits for: the worker that is missing may live, and compute, or
    not come any more."""

    def __init__(self, client: Client) -> None:
        self._client, self._began = client, time.monotonic()
        self._next = min(client.timeout, _SAY_SECONDS)
        self._silent = _SILENT_SECONDS

    def _look_for_silent(self, waited: float) -> None:
        """A worker that computes is heard by the box all the time; one that is not heard has probably died. Said once a wait."""
        self._silent = waited + _SILENT_SECONDS
        try:
            text = self._client.silent()
        except PBoxError:
            return
        if text:
            self._silent = math.inf
            _log.warning("worker %d of %d waits for %s. The wait goes on: it ends %g s after that worker was heard last, if it does not come back",
                         self._client.worker, self._client.workers, text, self._client.timeout)

    def look(self) -> None:
        waited = time.monotonic() - self._began
        if waited >= self._silent:
            self._look_for_silent(waited)
        if waited < self._next:
            return
        self._next = waited + min(max(waited, 1.0), 600.0)
        try:
            text = self._client.why()
        except PBoxError as e:
            text = str(e)
        _log.warning("worker %d of %d has waited for %.0f s: %s", self._client.worker, self._client.workers, waited, text)


class _Told:
    """Says from time to time what a long wait at the start waits for."""

    def __init__(self, client: Client) -> None:
        self._client, self._done = client, threading.Event()

    def _run(self) -> None:
        began, pause = time.monotonic(), _TELL_SECONDS
        while not self._done.wait(pause):
            try:
                text = self._client.status()
            except PBoxError as e:
                text = str(e)
            if not self._done.is_set():
                _log.warning("waiting for %.0f s for the other workers: %s",
                             time.monotonic() - began, text)
            pause = min(2 * pause, 60.0)

    def __enter__(self) -> None:
        if self._client.workers > 1:
            try:
                _threads.start(self._run, "pbox-tell")
            except PBoxError:
                pass  # then nobody says it

    def __exit__(self, *exc: Any) -> None:
        self._done.set()


class _Call:
    """The library's pointer for the time of one call; close() waits for it to be given back."""

    __slots__ = ("_client",)

    def __init__(self, client: Client) -> None:
        self._client = client

    def __enter__(self) -> ct.c_void_p:
        c = self._client
        with c._cond:
            if c._p is None:
                raise PBoxClosed("the client is closed")
            if c._pid != os.getpid():
                raise PBoxClosed(
                    f"the client belongs to process {c._pid}: open one after the fork")
            c._users += 1
            return c._p

    def __exit__(self, *exc: Any) -> None:
        c = self._client
        with c._cond:
            c._users -= 1
            if c._users == 0:
                c._cond.notify_all()


_open_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    # the progress thread must not call back into an interpreter that is shutting down
    for c in list(_open_clients):
        c.close()
