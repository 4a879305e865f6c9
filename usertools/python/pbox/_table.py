# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Tables: tensors that are declared together, and the operations on them."""

import ctypes as ct
import math
from dataclasses import dataclass, make_dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import _buffers, _checks, _lib, _signal
from ._calls import choose, interruptible, ms_of, numbers_of
from ._operation import Operation
from .errors import PBoxInvalid, error_of

if TYPE_CHECKING:
    from .client import Client

BOUND_MAX = (1 << 30) - 1

Versions = make_dataclass(
    "Versions", [
        (n, float if c is ct.c_double else int) for n, c in _lib.Versions._fields_ if n != "size"], frozen=True)
Versions.__doc__ = "How far a table in clocks has come, as this client knows; see struct pbox_client_versions."
Versions.__module__ = "pbox.client"  # where people find it


@dataclass(frozen=True)
class Tensor:
    """A tensor as declared; tensors of a `group` share hyper-parameters."""

    name: str
    elements: int
    group: int = 0


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
            code = _lib.get().pbox_client_work(p, self.number, work, ms_of(timeout), ct.byref(err))
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
            code = _lib.get().pbox_client_task(p, self.number, round, ct.byref(again), ms_of(timeout), ct.byref(err))
        c._check(min(code, 0), err)
        return code > 0

    def norm(self, round: int, max_norm: float = 0.0, timeout: Optional[float] = None) -> Any:
        """Of a table with hold=True: wait until all workers have pushed the round, and return the sum of the squares of all sums (a _lib.Norm).
        PBoxLost: the box was restarted, and this worker pushes the round again."""
        err, c, m = _lib.Error(), self.client, _lib.Norm()
        m.size = ct.sizeof(_lib.Norm)
        ms = ms_of(timeout)

        def call() -> None:
            with c._call() as p:
                code = _lib.get().pbox_client_norm(p, self.number, round, max_norm, ct.byref(m), ms, ct.byref(err))
            c._check(code, err)

        interruptible(call)
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
        ids = numbers_of("hyper")
        for k, (name, value) in enumerate(values.items()):
            h[k].id = choose(ids, name, "hyper-parameter")
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

        interruptible(call)

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


def spec_of(number: int, given: TensorLike) -> Tensor:
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
