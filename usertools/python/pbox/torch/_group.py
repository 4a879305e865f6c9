# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The backend "pbox" of torch.distributed: a process group with Gloo inside, of which large all-reduces of CPU tensors go over the box.

    import pbox.torch
    torch.distributed.init_process_group("pbox")       # PBOX_BOX, PBOX_JOB, PBOX_SECRET of the environment

Over the box goes, of a group with all ranks: all_reduce of one dense tensor of the CPU in float32, bfloat16 or float16; SUM of 64 KiB or more, and
what Gloo has not: AVG, and SUM of bfloat16. Everything else is Gloo's (of tensors on a GPU NCCL's, where torch has it), also each method that a release
of torch adds: forwarded is what the ProcessGroup of the running torch has. new_group() of a part of the ranks is Gloo's group.

What all ranks of an all-reduce must have alike (elements, dtype, operation, place in the order) is compared with a head of a few bytes, which
goes before the data: ranks that reduce different tensors get PBoxMismatch, and no sum of what does not belong together.

After an error the group reduces nothing any more over the box: ranks may be in different rounds.
"""

import ctypes as ct
import datetime
import functools
import hashlib
import inspect
import itertools
import os
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List, MutableSet, Optional, Tuple

import torch
import torch.distributed as dist

from .. import _buffers, _lib, _threads
from ..client import Operation, Table
from ..errors import PBoxClosed, PBoxDeadline, PBoxError, PBoxInvalid, PBoxMismatch
from . import _pieces, _run
from ._session import DECLARE_SECONDS, Session, connect, plain_op
from ._watch import Watch

NAME = "pbox"
LEAST = 64 << 10  # bytes
_MOST_GROUPS = 8  # of all ranks that have tables: a job has 1,024, and each takes memory on the box until the job ends
_THREADS = 16  # that complete works: what then() calls may wait for other all-reduces, as PowerSGD does
_numbers = itertools.count()  # of the groups of all ranks since init_process_group, which all ranks make in the same order
_groups: MutableSet[Any] = weakref.WeakSet()
_holds: List[List[Session]] = []  # of each group its session, until it has left
_leaving = threading.Lock()
_MOST_SEEN = 64  # addresses of what was reduced
_POLL = 0.002  # seconds; of a wait with a timeout
total, total_bytes = 0, 0  # all-reduces of this process that went over the box
_DigestArray = ct.c_float * _pieces.HEAD


def _carried_op(op: Any) -> Optional[str]:
    """What the box calls it; None: Gloo's."""
    if op == dist.ReduceOp.SUM:
        return "sum"
    return "mean" if op == getattr(dist.ReduceOp, "AVG", None) else None


def _carried(tensors: Any, op: Any) -> Optional[Tuple[torch.Tensor, str, str]]:
    """(tensor, format, operation) of what goes over the box; None: it does not. All ranks find the same."""
    if isinstance(tensors, (list, tuple)):
        if len(tensors) != 1:
            return None
        tensors = tensors[0]
    if type(tensors) not in (torch.Tensor, torch.nn.Parameter) or tensors.device.type != "cpu" or tensors.layout != torch.strided:
        return None
    form, name, n = _buffers.format_of(tensors), _carried_op(op), tensors.numel()
    if form is None or name is None or n == 0 or tensors.is_neg():
        return None
    if name == "sum" and form != "bf16" and n * tensors.element_size() < LEAST:
        return None
    if not tensors.is_contiguous() and torch._debug_has_internal_overlap(tensors) == 1:
        return None  # elements that share memory have no sum each
    return tensors, form, name


class _Wire:
    """A table of a group, for one format and operation."""

    def __init__(self, session: Session, name: str, form: str, op: str, timeout: float) -> None:
        self.form, self.op = form, op
        self.tensors = _pieces.Tensors(name, heads=(form, op) == ("fp32", "sum"))
        self.table: Table = session.client.declare(self.tensors.declared, op=plain_op(session.client, op), push=form, pull=form, timeout=timeout)


class _Outcome:
    """Why an all-reduce has failed: known before its future is complete."""

    error: Optional[BaseException] = None


class _Reduction:
    """One all-reduce under way: completes its future once, with the tensor or the reason why there is none."""

    def __init__(self, group: "Group", number: int, tensor: torch.Tensor, wire: _Wire) -> None:
        self._group, self._tensor, self._wire = group, tensor, wire
        self.number = number
        self.future: torch.futures.Future = torch.futures.Future()
        self.outcome = _Outcome()
        self._lock, self._left, self._watched = threading.Lock(), 0, -1
        self._mine, self._sums = _DigestArray(), _DigestArray()
        self._tail: Optional[torch.Tensor] = None
        with torch.inference_mode(tensor.is_inference()):
            self.flat = tensor.detach().contiguous().view(-1)
            n = self.flat.numel()
            self._whole = n - n % _pieces.SMALLEST
            if self._whole < n:  # the rest of its tensor is zeros
                self._tail = torch.zeros(_pieces.SMALLEST, dtype=tensor.dtype, device="cpu")
                self._tail[:n - self._whole].copy_(self.flat[self._whole:])

    def submit(self, heads: _Wire) -> None:
        """In the order in which all ranks submit. Raises PBoxError."""
        operations = self._wire.tensors.place(self.flat.numel())
        self._left = 1 + len(operations)
        self._watched = self._group.watch.add(self._expired)
        try:
            head = (_lib.Io * 1)()
            self._mine[:] = list(hashlib.sha256(self._says().encode()).digest()[:_pieces.HEAD])
            head[0].tensor, head[0].input, head[0].output = heads.tensors.head(), ct.addressof(self._mine), ct.addressof(self._sums)
            self._start(heads.table, head, self._compare)
            for pieces in operations:
                self._start(self._wire.table, self._io(pieces), None)
        except BaseException as e:
            self._group.error = self._group.error or e
            self._group.watch.remove(self._watched)
            raise

    def _says(self) -> str:
        return f"{self.number} {self._wire.form} {self._wire.op} {self.flat.numel()}"

    def _io(self, pieces: List[Tuple[int, int, int]]) -> Any:
        io = (_lib.Io * len(pieces))()
        size = self.flat.element_size()
        for one, (tensor, at, _) in zip(io, pieces):
            one.tensor = tensor
            if at < self._whole:
                one.input = one.output = self.flat.data_ptr() + at * size
            else:
                assert self._tail is not None
                one.input = one.output = self._tail.data_ptr()
        return io

    def _start(self, table: Table, io: Any, check: Optional[Callable[[], None]]) -> None:
        op: Operation = table.submit_io(_lib.PUSHPULL, io, len(io), (io, self.flat, self._tail, self._mine, self._sums))

        def done(err: Optional[BaseException]) -> None:
            if err is None and check is not None:
                try:
                    check()
                except PBoxError as e:
                    err = e
            self._ended(err)

        op.add_done_callback(done)

    def _compare(self) -> None:
        n = self._group.size()
        if any(theirs != n * mine for mine, theirs in zip(self._mine, self._sums)):
            raise PBoxMismatch(
                f"rank {self._group.rank()} reduces {self.flat.numel()} elements of {self._wire.form} ({self._wire.op}) as all_reduce {self.number} of its "
                "process group, and other ranks reduce something else: all ranks call all_reduce of a group with tensors of the same size "
                "and dtype, in the same order")

    def _ended(self, err: Optional[BaseException]) -> None:
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if err is not None or last:
            self._complete(err)

    def _complete(self, err: Optional[BaseException]) -> None:
        if err is not None:
            self._group.error = self._group.error or err  # before it counts as done
        if self._group.watch.remove(self._watched):  # else it has failed before
            self._group.run(lambda: self._finish(err))

    def _expired(self) -> None:
        client = self._group.session.client
        try:
            why = client.why()
        except PBoxError as e:
            why = str(e)
        err = PBoxDeadline(f"all_reduce {self.number} of the process group, of {self.flat.numel()} elements, was not done within "
                           f"{self._group.watch.seconds:g} s: {why}")
        self._group.error = self._group.error or err
        self._group.run(lambda: self._finish(err))

    def _finish(self, err: Optional[BaseException]) -> None:
        """On a thread of its own: what then() calls may wait."""
        if err is None:
            try:
                with torch.inference_mode(self._tensor.is_inference()):
                    if self._tail is not None:
                        self.flat[self._whole:].copy_(self._tail[:self.flat.numel() - self._whole])
                    if not self._tensor.is_contiguous():
                        self._tensor.detach().copy_(self.flat.view(self._tensor.shape))
            except BaseException as e:
                err = e
        self.outcome.error = err
        self.future.set_result([self._tensor])

    def value(self, future: torch.futures.Future) -> List[torch.Tensor]:
        # set_exception would reach DDP without its text; what is raised in what then() calls gets through
        if self.outcome.error is not None:
            raise self.outcome.error
        return [self._tensor]


class _Work(dist._Work):
    """Of a future. torch's own work of one (_create_work_from_future) returns from wait() also where the future has failed: then the tensor
    has no sum, and nobody knows it."""

    def __init__(self, reduction: _Reduction) -> None:
        super().__init__()
        self._outcome = reduction.outcome  # and not the reduction, which has the group
        self._future = reduction.future.then(reduction.value)

    def wait(self, timeout: Optional[datetime.timedelta] = None) -> bool:
        """Return when the tensor has its sum, within `timeout` (None or 0: there is none). Raises what the all-reduce has failed with."""
        if timeout:
            end = time.monotonic() + timeout.total_seconds()
            while not self._future.done():
                if time.monotonic() > end:
                    raise RuntimeError(f"the all_reduce is not done after {timeout.total_seconds():g} s, the timeout of this wait")
                time.sleep(_POLL)
        try:
            self._future.wait()
        except RuntimeError:  # torch's, with the text
            raise (self._outcome.error or RuntimeError("the all_reduce has failed")) from None
        return True

    def get_future(self) -> torch.futures.Future:
        return self._future

    def is_completed(self) -> bool:
        return bool(self._future.done())

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> Optional[BaseException]:
        """Why it has failed; None: it has not, or is not complete."""
        try:
            if self.is_completed():
                self._future.value()
        except RuntimeError as e:
            return self._outcome.error or e
        return None

    def result(self) -> List[torch.Tensor]:
        return list(self._future.value())

    def synchronize(self) -> None:
        self.wait()


def _on_gpu(args: Any) -> bool:
    """Is the first tensor, in whatever lists, on a GPU?"""
    for a in args:
        if isinstance(a, torch.Tensor):
            return bool(a.is_cuda)
        if isinstance(a, (list, tuple)) and a:
            return _on_gpu(a)
    return False


def _gloo(store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Tuple[Any, Any]:
    """Gloo's group, and NCCL's or None. In torch 2 both are in one group, which finds the one of a tensor's device by itself."""
    gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, timeout=timeout)
    nccl = None
    if torch.cuda.is_available() and dist.is_nccl_available():
        nccl = dist.ProcessGroupNCCL(dist.PrefixStore("nccl", store), rank, size, timeout=timeout)
    if isinstance(gloo, dist.ProcessGroup):
        return gloo, nccl
    kinds: Any = getattr(dist.ProcessGroup, "BackendType")
    both: Any = dist.ProcessGroup(store, rank, size)  # type: ignore[call-arg]
    both._set_default_backend(kinds.GLOO)
    both._register_backend(torch.device("cpu"), kinds.GLOO, gloo)
    if torch.cuda.is_available():
        both._register_backend(torch.device("cuda"), kinds.GLOO if nccl is None else kinds.NCCL, nccl or gloo)
    return both, None


class _Inner(dist.ProcessGroup):
    """A group of which others do the work: Gloo's, and NCCL's for tensors on a GPU (`device`; None: they are Gloo's, too)."""

    def __init__(self, rank: int, size: int, inner: Any, device: Any) -> None:
        super().__init__(rank, size)
        self.inner, self.device = inner, device

    def getBackendName(self) -> str:
        return NAME

    def _for(self, *args: Any) -> Any:
        return self.inner if self.device is None or not _on_gpu(args) else self.device


# of the object itself, or not of an object
_OWN = {"rank", "size", "name", "boxed", "unbox", "getBackendName"}


def _forward(name: str) -> Callable[..., Any]:
    base = getattr(dist.ProcessGroup, name)

    def method(self: _Inner, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("_set_group"):
            base(self, *args, **kwargs)  # what it is called is asked of this object, too
        return getattr(self._for(*args, *kwargs.values()), name)(*args, **kwargs)

    method.__name__, method.__doc__ = name, f"{name} of Gloo's group, or of NCCL's for tensors on a GPU."
    return method


def forwarded() -> List[str]:
    """The methods of the running torch that are Gloo's."""
    return [name for name in dir(dist.ProcessGroup)
            if not name.startswith("__") and name not in _OWN
            and callable(getattr(dist.ProcessGroup, name)) and not isinstance(getattr(dist.ProcessGroup, name), type)]


for _name in forwarded():
    setattr(_Inner, _name, _forward(_name))


class Group(_Inner):
    """See above. Any thread; calls of several threads at once are in an order that may differ between ranks, as with Gloo.

    carried  all-reduces that went over the box
    timeout  seconds, that of init_process_group
    error    the first failure; nothing goes over the box after it
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: datetime.timedelta, session: Session, number: int) -> None:
        super().__init__(rank, size, *_gloo(store, rank, size, timeout))
        self.session = session
        self.error: Optional[BaseException] = None
        self.carried = 0
        self._name = f"group {number}"
        self.timeout = timeout.total_seconds() or DECLARE_SECONDS
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._wires: Dict[Tuple[str, str], _Wire] = {}
        self._heads: Optional[_Wire] = None
        self._seen: Dict[Tuple[int, int], int] = {}
        # The last work of each thread: torch 1.13 does not keep the Python part of a work, which C++ (DDP) asks for its future at once, from the same
        # thread; it may be complete by then. Not in a threading.local(): threads of Gloo lose theirs where no Python can run any more
        self._given: Dict[int, _Work] = {}
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="pbox-group")
        try:
            self._executor.submit(int)  # a thread is there before anything is sent
        except RuntimeError as e:
            raise _threads.no_more(e) from None
        self._held = [session]
        self.watch = Watch(session.client.timeout, session.client._lives, functools.partial(_leave, self._held))
        self.watch.start()
        _holds[:] = [held for held in _holds if held] + [self._held]
        self._closed = False

    def declare(self, timeout: Optional[float] = None) -> None:
        """The table for sums of float32. Blocks until all ranks have come, within `timeout` (seconds; None: that of the group)."""
        with self._lock:
            if self._heads is None:
                self._heads = self._wires["fp32", "sum"] = _Wire(self.session, self._name, "fp32", "sum", timeout or self.timeout)

    def _wire(self, form: str, op: str) -> _Wire:
        self.declare()
        found = self._wires.get((form, op))
        if found is None:
            found = self._wires[form, op] = _Wire(self.session, self._name, form, op, self.timeout)
        return found

    def allreduce(self, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        """A work, whose future has a list of the tensor. Blocks only in the first call with a dtype (and in that with AVG), until all ranks
        have come. Raises PBoxError where the group has failed before."""
        how = args[0] if args else kwargs.get("opts", kwargs.get("op", dist.ReduceOp.SUM))
        it = _carried(tensors, getattr(how, "reduceOp", how)) if len(args) + len(kwargs) <= 1 else None
        if it is None:
            return super().allreduce(tensors, *args, **kwargs)
        global total, total_bytes
        tensor, form, op = it
        with self._lock:
            self._check()
            try:
                wire = self._wire(form, op)
            except PBoxError as e:
                self.error = e
                raise
            assert self._heads is not None
            reduction = _Reduction(self, self.carried + 1, tensor, wire)
            self._looks_at(reduction.flat)
            self.carried += 1
            total, total_bytes = total + 1, total_bytes + tensor.numel() * tensor.element_size()
            reduction.submit(self._heads)
        work = self._given[threading.get_ident()] = _Work(reduction)
        return work

    def _looks_at(self, flat: torch.Tensor) -> None:
        """Memory that comes for the second time, as DDP's buckets do, is better in hugepages."""
        place = flat.data_ptr(), flat.numel() * flat.element_size()
        times = self._seen.get(place, 0) + 1
        if len(self._seen) >= _MOST_SEEN and times == 1:
            self._seen.clear()
        self._seen[place] = times
        if times == 2:
            _buffers.prefer_huge(*place)

    def _check(self) -> None:
        if self._closed:
            raise PBoxClosed("the process group was destroyed: its session with the box has ended")
        if self.error is not None:
            kind = type(self.error) if isinstance(self.error, PBoxError) else PBoxInvalid
            raise kind(f"an earlier all_reduce of this process group has failed, and ranks may be in different rounds since: {self.error}")

    def run(self, fn: Callable[[], None]) -> None:
        """On a thread that completes works."""
        try:
            self._executor.submit(fn)
        except RuntimeError:  # the interpreter ends
            fn()

    def end(self) -> None:
        """Leave the box. torch does not say that a group was destroyed: at the next init_process_group, or when nobody has it any more."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self.watch.close()
        self._executor.shutdown(wait=False)
        _leave(self._held)

    def __del__(self) -> None:
        # In whatever the thread does just now, locks of ours included: so the thread of the watch leaves the box, and that of the executor ends by
        # itself. A forked process has a copy, and no such thread
        if not getattr(self, "_closed", True) and self._pid == os.getpid():
            self._closed = True
            self.watch.close()


def _leave(held: List[Session]) -> None:
    """Once, by the one that comes first. Nobody returns before it is done."""
    with _leaving:
        if held:
            held.pop().release()


def _options(timeout: datetime.timedelta) -> Dict[str, Any]:
    """Of the session: no wait is longer than the group's."""
    seconds = timeout.total_seconds()
    options: Dict[str, Any] = {}
    for name, default in (("join_timeout", 10), ("timeout", 60), ("patience", 1800)):
        if 0 < seconds < default:
            options[name] = seconds
    return options


def _without_box(store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Any:
    inner, device = _gloo(store, rank, size, timeout)
    return inner if device is None else _Inner(rank, size, inner, device)


def _make(store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Any:
    """What init_process_group and new_group call. Raises PBoxError where the box does not take this worker."""
    global _numbers
    first = not dist.is_initialized()
    if not first and size != dist.get_world_size():
        return _without_box(store, rank, size, timeout)
    for name, what in (("PBOX_BOX", "the address of the box"), ("PBOX_JOB", "the name of the job")):
        if not os.environ.get(name):
            raise PBoxInvalid(f"the backend '{NAME}' of torch.distributed finds no {name} in the environment: export it as {what}, and PBOX_SECRET as the "
                              "job's secret; or take the backend 'gloo'")
    options = _options(timeout)
    if first:
        for group in list(_groups):  # of a default group that was destroyed
            group.end()
        for held in _holds:  # and of those that nobody has any more: their watches may not have come to it
            _leave(held)
        _holds.clear()
        _numbers = itertools.count()
        # torch knows this store when the group is made
        options.update(worker=rank, workers=size, run=_run.at_store(store, os.environ["PBOX_JOB"], rank, size))
    number = next(_numbers)
    if number >= _MOST_GROUPS:
        return _without_box(store, rank, size, timeout)
    session = connect(**options)
    try:
        group = Group(store, rank, size, timeout, session, number)
    except BaseException:
        session.release()
        raise
    _groups.add(group)
    if first:
        # all ranks were at the store a moment ago: who does not come now has failed
        group.declare(min(group.timeout, session.client.timeout))
    return group


def install() -> None:
    """Make the name known to torch. Once a process."""
    if hasattr(dist.Backend, NAME.upper()):
        return
    more = {"devices": ["cpu", "cuda"]} if "devices" in inspect.signature(dist.Backend.register_backend).parameters else {}
    dist.Backend.register_backend(NAME, _make, **more)
