# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The communication hook for DistributedDataParallel.

The parameters are declared at registration, as one table a dtype. A bucket is then a set
of addresses inside its flat buffer, one for each parameter, so DDP may rebuild its buckets after
the first backward pass (it does) without anything being declared again, and a worker with another
model is found, by the name of the parameter, before the first gradient.
"""

# no `from __future__ import annotations`: DDP compares the hook's annotations with types

import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import torch
import torch.distributed as dist

from .. import _buffers, _checks, _lib, _threads
from ..client import Client, Operation, Table, Tensor
from ..errors import PBoxClosed, PBoxDeadline, PBoxError, PBoxInvalid
from . import _compress, _device, _finite, _join, _ranks, _staged, _tables
from ._session import DECLARE_SECONDS, between_rounds, connect, plain_op
from ._watch import Watch

_log = logging.getLogger("pbox")
_WIRE = {"bf16": torch.bfloat16, "fp16": torch.float16}
_FIRST_BUCKET_BYTES = 1 << 20  # DDP's own default for the bucket that goes first
_MOST_GROUPS = 256  # the box remembers hyper-parameters for each, which takes memory

# after(reduced buffer), or None when this bucket does not matter to the observer
_After = Optional[Callable[[torch.Tensor], None]]
Observer = Callable[[dist.GradBucket, torch.Tensor], _After]


class Hook:
    """State of the hook; returned by register().

    client    the session
    rounds    backward passes that have been submitted
    samples   with op="weighted_mean": samples of this worker's batch, set it before backward()
    error     the first failure, as the exception that it was. (torch 1.13 makes a
              RuntimeError with its text of a failure, later releases of some.)
    observer  for tests: called with (bucket, its buffer with the local gradients); may return a
              function that is then called with the reduced buffer
    """

    def __init__(self, ddp: Any, session: Any, op: str, compress: Optional[str], declare_timeout: Optional[float],
                 entries: Union[str, List[_compress.Entry], None] = None) -> None:
        self._session = session
        self.client: Client = session.client
        self.rounds = 0
        self.samples = 1
        self.error: Optional[BaseException] = None
        self.observer: Optional[Observer] = None
        self.joined, self.joined_counts = False, True  # see _join
        self._op = op
        self._closed = False
        self._pid = os.getpid()
        self._pushed = 0  # contributions to tensors
        self._infinite = _finite.Told()
        self._compress = compress
        self._entries, self._choice = entries, _compress.Pass()
        self._tensors = 0  # declared
        self._staging: Optional[_staged.Staging] = None  # parameters on a GPU
        # parameter -> (table, its number there, or that of its first piece)
        self._place: Dict[int, Tuple[Table, int]] = {}
        self._leases: List[_tables.Lease] = []
        self._prepared: Dict[Any, "_Bucket"] = {}
        self._watch = Watch(self.client.timeout, self.client._lives)
        self._converter: Optional[ThreadPoolExecutor] = None
        if compress in _WIRE:
            # conversions back to fp32 must not hold up the progress thread
            self._converter = ThreadPoolExecutor(1, thread_name_prefix="pbox-convert")
            try:
                self._converter.submit(int)  # its thread is there before anything is sent
            except RuntimeError as e:
                raise _threads.no_more(e) from None
        if declare_timeout is None:
            declare_timeout = max(self.client.timeout, DECLARE_SECONDS)
        self._declare(ddp, declare_timeout)
        self._watch.start()

    def _declare(self, ddp: Any, timeout: Optional[float]) -> None:
        module = ddp.module
        ignored = set(getattr(ddp, "parameters_to_ignore", ()))
        for name, m in module.named_modules():
            # as DDP finds out; any other module may call anything `sparse`
            if isinstance(m, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and m.sparse and m.weight.requires_grad \
                    and (f"{name}.weight" if name else "weight") not in ignored:
                raise PBoxInvalid(
                    f"module '{name}' ({type(m).__name__}) makes sparse gradients: create it "
                    "with sparse=False")
        named = [(n, p) for n, p in module.named_parameters()
                 if p.requires_grad and n not in ignored]
        device = _device.of([p for _, p in named], lambda i: f"parameter '{named[i][0]}'")
        cap = getattr(ddp, "bucket_bytes_cap", 25 << 20)
        by_format: Dict[str, List[Tuple[str, torch.nn.Parameter]]] = {}
        for n, p in named:
            fmt = _buffers.format_of(p)
            if fmt is None:
                raise PBoxInvalid(f"parameter '{n}' has dtype {p.dtype}: PBox sums float32, "
                                  "bfloat16 and float16")
            by_format.setdefault(fmt, []).append((n, p))
        # a mean over samples, 1 from each worker, has the same bits, and can leave out who has joined
        op = plain_op(self.client, self._op)
        op = "sample_mean" if op == "mean" else op
        layouts = []
        for fmt in sorted(by_format):
            groups = _expected_buckets([p for _, p in by_format[fmt]], cap)
            layouts.append(_tables.Layout(
                tuple(Tensor(part, elements, g) for (n, p), g in zip(by_format[fmt], groups)
                      for part, elements in _parts(device, n, p)), op,
                self._compress if fmt == "fp32" and self._compress else fmt, fmt == "fp32" and self._entries is not None))
        self._leases = _tables.of(self.client).take(self.client, layouts, timeout)
        self._tensors = sum(len(layout.tensors) for layout in layouts)
        for fmt, lease in zip(sorted(by_format), self._leases):
            if fmt == "fp32" and self._entries is not None:
                self._choice.of = _compress.Compress(lease.table, self._entries, str(self._compress), str(self._compress), True)
            at = 0
            for n, p in by_format[fmt]:
                self._place[id(p)] = (lease.table, at)
                at += len(_parts(device, n, p))
        if device is not None:
            self._staging = _staged.Staging(self.client, device)

    def _weight(self) -> int:
        """Samples of this worker's contribution."""
        if self._op not in ("weighted_mean", "sample_mean"):
            return int(not self.joined or self.joined_counts)
        if self.joined:
            return 0
        return _checks.whole(self.samples, "samples of the hook", _checks.U32)

    def _prepare(self, bucket: dist.GradBucket) -> "_Bucket":
        buffer = bucket.buffer()
        params = bucket.parameters()
        # same numel and address do not mean the same order: DDP rebuilds a lone bucket reversed
        key = (buffer.data_ptr(), tuple(map(id, params)))
        b = self._prepared.get(key)
        if b is None:
            if len(self._prepared) > 4 * len(self._place) + 16:
                self._prepared.clear()  # buffers that move all the time: keep no history
            b = self._prepared[key] = _Bucket(self, buffer, bucket.gradients(), params)
        return b

    def reduce(self, bucket: dist.GradBucket) -> torch.futures.Future:
        """Start the reduction of a bucket; the future's value is its buffer."""
        if self._closed:
            raise PBoxClosed("the hook was closed: DistributedDataParallel cannot forget it, so wrap the model again")
        between_rounds(self.client, "a backward pass of DistributedDataParallel")
        weight = self._weight()
        buffer = bucket.buffer()
        self._choice.bucket(buffer, bucket.is_last())
        after = self.observer(bucket, buffer) if self.observer is not None else None
        if self._staging is None:
            return self._reduce_here(bucket, buffer, after, weight)
        return self._reduce_staged(self._staging, bucket, buffer, after, weight)

    def _reduce_here(self, bucket: dist.GradBucket, buffer: torch.Tensor, after: _After, weight: int) -> torch.futures.Future:
        b = self._prepare(bucket)
        future: torch.futures.Future = torch.futures.Future()
        it = _Reduction(self, bucket, buffer, future, after)

        def restore() -> None:
            try:
                buffer.copy_(b.wire)
                it.complete(None)
            except BaseException as e:
                it.complete(e)

        def done(err: Optional[PBoxError]) -> None:
            if err is None and self._converter is not None and b.wire is not buffer:
                self._converter.submit(restore)
            else:
                it.complete(err)

        if b.wire is not buffer:
            b.wire.copy_(buffer)
        source = buffer if b.wire.dtype == torch.float16 else b.wire
        if not self.joined and not b.looks.is_fine(source, self.rounds, b.wire.dtype):
            self._tell_infinite(b.table, [(place[1], b.wire[at:at + n]) for place, at, n in b.parts], it.number)
        op = b.table.submit_io(_lib.PUSHPULL, b.io, b.n, (b, buffer), priority=_priority(it.index), weight=weight)
        self._pushed += b.n
        it.watch()
        op.add_done_callback(done)
        if bucket.is_last():
            self.rounds += 1
        return future.then(it.value)

    def _reduce_staged(self, staging: _staged.Staging, bucket: dist.GradBucket, buffer: torch.Tensor, after: _After,
                       weight: int) -> torch.futures.Future:
        """The same with gradients on a device."""
        params = bucket.parameters()
        _staged.check_device(buffer, staging.device)
        staged = staging.bucket((buffer.numel(), buffer.dtype, tuple(map(id, params))),
                                lambda: self._pieces(buffer, bucket.gradients(), params))
        table = self._place[id(params[0])][0]
        future = staging.device.future()
        it = _Reduction(self, bucket, buffer, future, after)
        priority = _priority(it.index)

        def submit(chunk: _staged.Chunk) -> Operation:
            if not self.joined and not chunk.looks.is_fine(chunk.host, it.number):
                self._tell_infinite(table, [(number, staged.host[at:at + n]) for number, at, n in chunk.tensors], it.number)
            op = table.submit_io(_lib.PUSHPULL, chunk.io, chunk.n, (staged, chunk), priority=priority, weight=weight)
            self._pushed += chunk.n
            return op

        it.watch()
        staging.start(staged, buffer, submit, it.complete)
        if bucket.is_last():
            self.rounds += 1
            staging.pass_ends()
        return future.then(it.value)

    def _tell_infinite(self, table: Table, parts: List[Tuple[int, torch.Tensor]], number: int) -> None:
        """Say which tensors are not finite here; they go all the same, as GradScaler of all workers needs to see them."""
        found = [table.tensors[i] for i, t in parts if not _finite.is_finite(t)]
        times = self._infinite.due() if found else 0
        if not times:
            return
        again = f" ({times} times so far)" if times > 1 else ""
        narrow = f" as {self._compress}" if self._compress else ""
        _log.warning("worker %d: the gradient of %s has a NaN or an infinity%s in backward pass %d%s; so has the mean of all workers, which a step "
                     "puts into all parameters. GradScaler leaves such a step out; else look at this worker's batch, or lower the learning rate",
                     self.client.worker, _finite.names(found, list(range(len(found)))), narrow, number, again)

    def _pieces(self, buffer: torch.Tensor, grads: List[torch.Tensor], params: List[torch.Tensor]) \
            -> Tuple[torch.Tensor, torch.dtype, List[Tuple[int, int, int]]]:
        """What _staged.Staged takes: where in the buffer the declared tensors are."""
        table = _table_of(self, buffer, params)
        wire = buffer.dtype if table.push_arrays == _buffers.format_of(buffer) else _WIRE[table.push_format]
        found = []
        for p, g in zip(params, grads):
            place = self._place[id(p)]
            if p.numel() != g.numel() or place[0] is not table:
                raise PBoxInvalid("a gradient bucket does not match its parameters")
            at = (g.data_ptr() - buffer.data_ptr()) // buffer.element_size()
            for k, (_, n) in enumerate(_staged.pieces("", p.numel())):
                found.append((place[1] + k, at, n))
                at += n
        return buffer, wire, found

    @property
    def compressed(self) -> List[_compress.Entry]:
        """What compress="auto" has chosen so far, as compress= takes it: (from backward pass, pushes of this worker, results of all)."""
        return [] if self._choice.of is None else self._choice.of.entries

    def _end(self) -> None:
        """Give the tables back. A pass that has not ended well might meet another hook's there; one whose result has
        come has had all workers, so that they are in the same round."""
        self._closed = True
        whole = self._pushed == self.rounds * self._tensors
        for lease in self._leases:
            # one in a format of blocks has residuals of this model's gradients
            lease.free = whole and self.error is None and not self._watch.pending and lease.table.push_format not in _buffers.BLOCKS
        self._leases = []
        self._watch.close()
        if self._converter is not None:
            self._converter.shutdown(wait=False)
        if self._staging is not None:
            self._staging.close()

    def close(self) -> None:
        """Leave the job (unless others share the session). DDP cannot forget a hook: the next
        backward pass with gradient synchronisation fails."""
        if self._closed:
            return
        self._end()
        self._session.release()

    def __del__(self) -> None:
        # a model that is no more: the session lives on for the others, and its tables are free. A forked process has a
        # copy, and maybe a lock that nobody opens there
        if not getattr(self, "_closed", True) and self._pid == os.getpid():
            self._end()

    def __reduce__(self) -> Any:
        # torch has the hook among the attributes of a model, which is copied and saved without it
        return _Copied, ()


class _Copied:
    """What a copy of a model has in place of its hook. torch does not call it: nobody has registered it."""

    def reduce(self, bucket: dist.GradBucket) -> torch.futures.Future:
        raise PBoxInvalid("a copy of a model has no hook: pbox.torch.register(copy)")


def _priority(index: int) -> int:
    """DDP's last buckets hold the first layers, which the next forward pass needs first."""
    return max(0, 255 - index)


class _Reduction:
    """One bucket under way: completes its future once, with the result or the reason why there is none."""

    def __init__(self, hook: Hook, bucket: dist.GradBucket, buffer: torch.Tensor, future: Any, after: _After) -> None:
        self._hook, self._buffer, self._future, self._after = hook, buffer, future, after
        self.number, self.index = hook.rounds + 1, bucket.index()
        self._err: Optional[BaseException] = None
        self._watched, self._began = -1, time.monotonic()

    def watch(self) -> None:
        """Fail it when its time is over."""
        self._watched = self._hook._watch.add(self._expired)

    def complete(self, err: Optional[BaseException]) -> None:
        hook = self._hook
        hook.error = hook.error or err  # before it counts as done
        if hook._watch.remove(self._watched):  # else it is too late: the future has failed
            self._finish(err)

    def _finish(self, err: Optional[BaseException]) -> None:
        hook = self._hook
        if err is None and self._after is not None:
            try:
                if hook._staging is not None:
                    hook._staging.up.synchronize()
                self._after(self._buffer)
            except BaseException as e:
                err = e
        hook.error = hook.error or err
        self._err = err
        hook._choice.reduced()
        self._future.set_result(self._buffer)

    def _expired(self) -> None:
        try:
            why = self._hook.client.why()
        except PBoxError as e:
            why = str(e)
        self._finish(PBoxDeadline(
            f"gradient bucket {self.index} of backward pass {self.number} was not reduced in "
            f"{time.monotonic() - self._began:.1f} s (timeout {self._hook._watch.seconds:g} s): {why}"))

    def value(self, future: torch.futures.Future) -> torch.Tensor:
        # set_exception would reach DDP as "Unable to cast ... to Tensor"; raised here, in what then() calls, the text gets
        # through
        if self._err is not None:
            raise self._err
        return self._buffer


def _table_of(hook: Hook, buffer: torch.Tensor, params: List[torch.Tensor]) -> Table:
    """DDP never mixes dtypes in a bucket."""
    if any(id(p) not in hook._place for p in params) or _buffers.format_of(buffer) is None:
        raise PBoxInvalid(
            "DDP reduces a parameter that the model did not have, or had in another dtype, "
            "when pbox.torch.register was called: register after the model is complete")
    return hook._place[id(params[0])][0]


class _Bucket:
    """Addresses of a bucket's parameters inside its buffer."""

    def __init__(self, hook: Hook, buffer: torch.Tensor, grads: List[torch.Tensor],
                 params: List[torch.Tensor]) -> None:
        _buffers.check_torch(buffer, "the gradient bucket")
        self.table = _table_of(hook, buffer, params)
        places = [hook._place[id(p)] for p in params]
        self.wire = buffer
        if self.table.push_arrays != _buffers.format_of(buffer):
            self.wire = torch.empty_like(buffer, dtype=_WIRE[self.table.push_format])
        size, old = self.wire.element_size(), buffer.element_size()
        _buffers.prefer_huge(self.wire.data_ptr(), self.wire.numel() * size)
        self.n = len(places)
        self.parts = [(place, (g.data_ptr() - buffer.data_ptr()) // old, g.numel()) for place, g in zip(places, grads)]
        self.looks = _finite.Flat([(at, n) for _, at, n in self.parts])
        self.io = (_lib.Io * self.n)()
        for io, place, p, g in zip(self.io, places, params, grads):
            if p.numel() != g.numel() or place[0] is not self.table:
                raise PBoxInvalid("a gradient bucket does not match its parameters")
            at = self.wire.data_ptr() + (g.data_ptr() - buffer.data_ptr()) // old * size
            io.tensor, io.input, io.output = place[1], at, at


def _parts(device: Optional[_device.Device], name: str, p: torch.Tensor) -> List[Tuple[str, int]]:
    """As what a parameter is declared: (name, elements). Bits do not depend on it."""
    return [(name, p.numel())] if device is None else _staged.pieces(name, p.numel())


def _expected_buckets(params: List[torch.nn.Parameter], cap: int) -> List[int]:
    """About the buckets that DDP will make: small parameters share fragments within a group, and
    a fragment shared by two buckets would wait for the later one."""
    groups = [0] * len(params)
    group, filled, limit = 0, 0, min(cap, _FIRST_BUCKET_BYTES)
    for i in reversed(range(len(params))):
        groups[i] = group
        filled += params[i].numel() * params[i].element_size()
        if filled >= limit:
            group, filled, limit = group + 1, 0, cap
    # neighbours share a group where there are more than a table has: they are ready one after the other
    share = -(-(max(groups, default=0) + 1) // _MOST_GROUPS)
    return [g // share for g in groups]


def hook(state: Hook, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The communication hook itself: ddp.register_comm_hook(state, hook) is what register()
    does; call it from a hook of your own to do something before or after."""
    try:
        return state.reduce(bucket)
    except BaseException as e:
        state.error = state.error or e
        raise


def register(ddp: Any, box: Optional[str] = None, job: Optional[str] = None,
             secret: Optional[str] = None, worker: Optional[int] = None,
             workers: Optional[int] = None, *, op: str = "mean",
             compress: Any = None, client: Optional[Client] = None,
             declare_timeout: Optional[float] = None, **options: Any) -> Hook:
    """Let PBox reduce the gradients of a DistributedDataParallel model.

    The only change to a DDP script: after `ddp = DistributedDataParallel(model)`,

        import pbox.torch
        pbox.torch.register(ddp, box="10.0.0.1", job="resnet", secret="...")

    Blocks until all workers have registered the same model. From then on gradients are the mean
    over the workers, summed in a fixed order: the same bits in every run and on every worker,
    whatever the order of arrival.

    box, job, secret   default: PBOX_BOX, PBOX_JOB, PBOX_SECRET of the environment
    worker, workers    default: rank and size of the model's process_group. One that is a part of torch.distributed's ranks needs a
                       job of its own
    op                 "mean", "sum", or "weighted_mean" (see Hook.samples)
    compress           None, "bf16" or "fp16": format of fp32 gradients on the wire; they are
                       summed in fp32 and rounded once. "int8" or "mxfp4": 3.9 and 7.5 times fewer bytes,
                       both ways; what a round does not send goes with the next one (error feedback). "auto": fp32 or int8 as
                       long as each is worth it; a list repeats what was chosen (Hook.compressed). See doc/train-reference.md
    options            of pbox.Client: timeout, mtu, window, ...
    """
    entries = None
    if compress == "auto" or (compress is not None and not isinstance(compress, str)):
        entries, compress, _ = _compress.parse(compress, "fp32", "fp32", True)
    if compress is not None and compress not in _WIRE and compress not in _buffers.BLOCKS:
        raise PBoxInvalid(f"compress is {compress!r}: None, 'bf16', 'fp16', 'int8', 'mxfp4', 'auto', or a list")
    if not hasattr(ddp, "register_comm_hook"):
        raise PBoxInvalid(
            f"register() wants a DistributedDataParallel model, not {type(ddp).__name__}: for "
            "training without DDP see pbox.torch.SGD, Adam and AdamW")
    if "slots" in options:
        raise PBoxInvalid("slots= belongs to the optimisers of pbox.torch: DDP adds up a worker's micro-batches itself, from "
                          "left to right, so the bits would depend on the number of workers all the same")
    if client is None:
        options.setdefault("process_group", getattr(ddp, "process_group", None))
    session = connect(box, job, secret, worker, workers, client, **options)
    try:
        _ranks.check_module(ddp, session.client.workers, session.ranks, session.client.job)
        between_rounds(session.client, "register()")
        state = Hook(ddp, session, op, compress, declare_timeout, entries)
        _join.watch(ddp, state)
        ddp.register_comm_hook(state, hook)
    except BaseException:
        session.release()
        raise
    return state
