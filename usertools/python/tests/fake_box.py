# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A stand-in for libpbox-client and the box, in this process: the functions of
pbox_client.h over ctypes objects, for as many workers as there are threads. It moves no packet;
it is there to test what is above it without a network."""

import ctypes as ct
import queue
import threading
import time

import torch

from pbox import _lib
from pbox.torch import reference

DTYPES = {1: torch.float32, 2: torch.bfloat16, 3: torch.float16}
OPS = ["sum", "mean", "sample_mean", "weighted_mean"]
KINDS = ["none", "sgd", "momentum", "nesterov", "adam", "adamw", "add"]
HYPERS = ["", "lr", "momentum", "dampening", "weight_decay", "beta1", "beta2", "eps",
          "clip_value", "steps", "", "maximize"]
STATE = {"momentum": "b", "nesterov": "b", "adam": "mv", "adamw": "mv"}


def memory(address, elements, fmt):
    """A tensor over the caller's memory."""
    dtype = DTYPES[fmt]
    if elements == 0:
        return torch.empty(0, dtype=dtype)
    raw = (ct.c_char * (elements * (4 if fmt == 1 else 2))).from_address(address)
    return torch.frombuffer(raw, dtype=dtype)


class Table:
    def __init__(self, decl, specs):
        self.mode, self.op = decl.mode, OPS[decl.op]
        self.kind = KINDS[decl.optimiser]
        self.push, self.pull = decl.push_format, decl.pull_format
        self.specs = specs
        self.key = (decl.mode, decl.op, decl.optimiser, decl.push_format, decl.pull_format, decl.discipline)
        self.clock = decl.discipline == 1
        self.version = [0] * len(specs)
        self.value = [None] * len(specs)
        self.state = [{} for _ in specs]
        # tensor -> round -> first slot of a node -> (data, weight, number of slots)
        self.arrived = [{} for _ in specs]
        self.hyper = {}  # group -> values


class Op:
    def __init__(self, parts):
        self.left, self.code, self.text, self.notify = parts, None, b"", None


class Job:
    def __init__(self, workers, slots):
        self.workers, self.members, self.tables, self.declared = workers, {}, [], {}
        self.slots = slots or workers
        self.past = {}  # by worker: the rounds of its last session

    def nodes(self, worker):
        """[(first slot, number of slots)] of a worker."""
        at, end = (w * self.slots // self.workers for w in (worker, worker + 1))
        out = []
        while at < end:
            size = 1
            while at % (2 * size) == 0 and min(at + 2 * size, self.slots) <= end and at + size < self.slots:
                size *= 2
            out.append((at, min(size, self.slots - at)))
            at += out[-1][1]
        return out


class Client:
    def __init__(self, job, worker, timeout):
        self.job, self.worker, self.timeout = job, worker, timeout
        self.ops, self.next, self.rounds, self.tables, self.closed = {}, 1, {}, 0, False
        self.seen = {}  # table in clocks -> [(version, own)] of pulls
        self.waiting = []  # (table, tensor, version, address or None, op)
        self.n_ops = 0
        self.queue = queue.Queue()
        threading.Thread(target=self._progress, daemon=True).start()

    def _progress(self):
        while True:
            call = self.queue.get()
            if call is None:
                return
            call()


class FakeLib:
    """Assign one to pbox._lib.use(). `secrets` are the jobs that exist; `hold` delays every
    result until it is cleared; so many `lost_sets` of a worker are not answered in time."""

    def __init__(self, secrets=None):
        self.silent = b""
        self.not_finite = b""
        self.most_tables = -1  # of a job; -1: no limit
        self.secrets = secrets
        self.cond = threading.Condition()
        self.jobs = {}
        self.made = {}  # by name: the last job, also when all have left it
        self.clients = {}
        self.calls = []
        self.hold = False
        self.first_rounds = []  # as declared
        self.lives = False  # who is missing: waits go on
        self.lost_sets = {}  # by worker
        self.left_text = ""  # what a wait is ended with when a worker has left

    # ---- helpers

    def _fail(self, err, code, text):
        if err is not None:
            err._obj.code, err._obj.text = code, text.encode()
        return code

    def _c(self, p):
        return self.clients[p.value if hasattr(p, "value") else p]

    def _end(self, client, op, code=0, text=""):
        op.code, op.text = code, text.encode()
        client.n_ops += 1
        self.cond.notify_all()
        if op.notify:
            self._call_back(client, op)

    def _call_back(self, client, op):
        fn, ctx = op.notify
        client.queue.put(lambda: fn(ctx, op.code, op.text))

    def _advance(self):
        """Finish every round that is complete, then answer who waits."""
        if self.hold:
            return
        for job in self.jobs.values():
            for t in job.tables:
                for i, rounds in enumerate(t.arrived):
                    r = t.version[i] + 1
                    while sum(slots for _, _, slots in rounds.get(r, {}).values()) == job.slots:
                        self._round(t, i, r, rounds.pop(r), job.slots)
                        r += 1
            for c in job.members.values():
                for w in list(c.waiting):
                    t, i, version, out, op = w
                    if t.version[i] < version or (version == 0 and t.value[i] is None):
                        continue
                    c.waiting.remove(w)
                    if t.clock and i == 0:
                        own = c.rounds.get((c.job.tables.index(t), 0), 0)
                        c.seen.setdefault(c.job.tables.index(t), []).append((t.version[0], own))
                    if out is not None:
                        m = memory(out, t.specs[i][1], t.pull)
                        m.copy_(t.value[i])
                    op.left -= 1
                    if op.left == 0:
                        self._end(c, op)

    def _round(self, t, i, r, parts, slots):
        order = sorted(parts)
        values, weights = [parts[s][0] for s in order], [parts[s][1] for s in order]
        if t.op == "mean":  # over the slots, and not over the nodes
            g = reference.tree_reduce(values, "sum", None, order) * reference.fp32(1 / slots)
        else:
            g = reference.tree_reduce(values, t.op, weights, order)
        t.version[i] = r
        if t.mode == 0:
            t.value[i] = g
        else:
            h = dict(momentum=0.0, dampening=0.0, weight_decay=0.0, beta1=.9, beta2=.999,
                     eps=1e-8)
            h.update(t.hyper[t.specs[i][2]])
            r += int(h.pop("steps", 0))
            t.value[i] = reference.update(t.kind, t.value[i], g, t.state[i], h, r)

    @staticmethod
    def _array(t, i, array):
        if array == 0:
            return t.value[i]
        return t.state[i].setdefault(STATE[t.kind][array - 1], torch.zeros_like(t.value[i]))

    # ---- the interface

    conf_size = 1 << 20  # of a library that is as new as it can be

    def pbox_client_version(self):
        return b"fake"

    def pbox_client_name(self, what, number):
        names = {b"format": ["", "fp32", "bf16", "fp16"], b"op": OPS, b"optimiser": KINDS,
                 b"hyper": HYPERS, b"policy": ["wait", "shrink", "reassign"]}[what]
        return names[number].encode() or None if number < len(names) else None

    def pbox_client_conf_init_sized(self, conf, size):
        conf._obj.size, conf._obj.keep_copies = min(size, self.conf_size), 1
        conf._obj.timeout_ms, conf._obj.join_timeout_ms, conf._obj.gso = 60000, 10000, -1

    def pbox_client_open(self, out, conf, err):
        c = conf._obj
        self.transport = c.transport, c.transport_args
        self.keep_copies, self.run = c.keep_copies, c.run
        name = c.job.decode()
        with self.cond:
            if self.secrets is not None:
                if name not in self.secrets:
                    return self._fail(err, -5, f"the box has no job '{name}'")
                if self.secrets[name] != c.secret.decode():
                    return self._fail(err, -6, f"the secret of job '{name}' differs")
            job = self.made[name] = self.jobs.setdefault(name, Job(c.workers, c.slots))
            if job.slots != (c.slots or c.workers):
                return self._fail(err, -8, f"the others joined with {job.slots} slots")
            if job.workers != c.workers:
                return self._fail(err, -8, f"the others joined with {job.workers} workers")
            worker = c.worker
            if worker < 0:
                worker = min(set(range(job.workers)) - set(job.members))
            if worker in job.members:
                return self._fail(err, -7, f"worker {worker} has a live session")
            client = job.members[worker] = Client(job, worker, c.timeout_ms)
            p = 4096 + len(self.clients)
            self.clients[p] = client
            out._obj.value = p
        return 0

    def pbox_client_worker(self, p):
        return self._c(p).worker

    def pbox_client_workers(self, p):
        return self._c(p).job.workers

    def pbox_client_slots(self, p):
        return self._c(p).job.slots

    def pbox_client_nodes(self, p, round_, out, cap):
        nodes = self._c(p).job.nodes(self._c(p).worker)
        assert len(nodes) <= cap
        for k, (first, slots) in enumerate(nodes):
            out[k].first, out[k].slots = first, slots
        return len(nodes)

    def pbox_client_declare(self, p, decl, timeout, number, err):
        c, d = self._c(p), decl._obj
        specs = [(d.tensors[i].name.decode(), d.tensors[i].elements, d.tensors[i].group)
                 for i in range(d.n)]
        with self.cond:
            if c.tables == self.most_tables:
                return self._fail(err, -12, "the declaration of a table needs more than the job may take")
            n, c.tables = c.tables, c.tables + 1
            self.first_rounds.append(d.first_round)
            if n == len(c.job.tables):
                c.job.tables.append(Table(d, specs))
            t = c.job.tables[n]
            for a, b in zip(t.specs, specs):
                if a != b:
                    return self._fail(
                        err, -8, f"tensor '{b[0]}' has {b[1]} elements here and {a[1]} there, where it is '{a[0]}'")
            if t.key != Table(d, specs).key or len(t.specs) != len(specs):
                return self._fail(err, -8, "tables differ")
            c.job.declared.setdefault(n, set()).add(c.worker)
            for i in range(len(specs)):  # who comes back goes on with the others' rounds, or its own clock
                begin = c.job.past.get(c.worker, {}).get((n, i), 0) if t.clock else t.version[i]
                if begin:
                    c.rounds[n, i] = begin
            self.cond.notify_all()
            end = time.monotonic() + (timeout or c.timeout) / 1000
            while len(c.job.declared[n]) < c.job.workers:
                if c.closed:
                    return self._fail(err, -13, "closed")
                if not self.cond.wait(end - time.monotonic()):
                    return self._fail(
                        err, -9, f"{len(c.job.declared[n])} of {c.job.workers} have declared")
        number._obj.value = n
        return 0

    def pbox_client_next_round(self, p, table):
        c = self._c(p)
        with self.cond:
            return 1 + max([r for (t, _), r in c.rounds.items() if t == table], default=0)

    def pbox_client_set(self, p, table, group, from_round, h, n, err):
        t = self._c(p).job.tables[table]
        values = {HYPERS[h[i].id]: h[i].value for i in range(n)}
        with self.cond:
            if self.lost_sets.get(self._c(p).worker, 0) > 0:
                self.lost_sets[self._c(p).worker] -= 1
                return self._fail(err, -9, "no answer")
            self.calls.append(("set", self._c(p).worker, group, values))
            groups = {s[2] for s in t.specs} if group == 0xFFFF else {group}
            for g in groups:
                t.hyper.setdefault(g, {}).update(values)
        return 0

    def pbox_client_factor(self, factor):
        return float(torch.tensor(factor).bfloat16())

    def pbox_client_versions(self, p, table, tensor, out, err):
        c, v = self._c(p), out._obj
        with self.cond:
            seen = c.seen.get(table, [])
            v.pulls, v.members, v.own = min(len(seen), 2), c.job.workers, c.rounds.get((table, 0), 0)
            if seen:
                v.version, v.own_seen = seen[-1]
                v.lowest = v.highest = seen[-1][0]
            if len(seen) > 1:
                v.others = seen[-1][0] - seen[-2][0] - (seen[-1][1] - seen[-2][1])
        return 0

    def pbox_client_submit(self, p, op, handle, err):
        c, o = self._c(p), op._obj
        own, table, kind, io, n, priority = c.job.nodes(c.worker), o.table, o.kind, o.io, o.n, o.priority
        if o.by_nodes and o.nodes != len(own):
            return self._fail(err, -1, f"{o.nodes} nodes, and this worker brings {len(own)}")
        if o.bounded:
            self.calls.append(("bound", c.worker, o.bound))
        factor = self.pbox_client_factor(o.factor or 1.0)
        if o.by_nodes:
            nodes = [(first, o.node_in[j * n:(j + 1) * n], o.node_weight[j], slots) for j, (first, slots) in enumerate(own)]
        else:
            nodes = [(own[0][0], [io[k].input for k in range(n)], o.weight, sum(slots for _, slots in own))]
        t = c.job.tables[table]
        weight = nodes[0][2]
        with self.cond:
            if c.closed:
                return self._fail(err, -13, "closed")
            op = Op(n)
            c.ops[c.next] = op
            handle._obj.value = c.next
            c.next += 1
            self.calls.append(("submit", c.worker, table, kind, priority, weight))
            if n == 0:
                self._end(c, op)
            for k in range(n):
                i, elements = io[k].tensor, t.specs[io[k].tensor][1]
                r = c.rounds.get((table, i), 0)
                if kind in (_lib.PUSHPULL, _lib.PUSH):
                    r += 1
                    c.rounds[table, i] = r
                    if t.clock:
                        t.version[i] += 1
                        t.value[i] = t.value[i] + factor * memory(nodes[0][1][k], elements, t.push)
                    for first, inputs, samples, slots in () if t.clock else nodes:
                        data = memory(inputs[k], elements, t.push).clone()
                        t.arrived[i].setdefault(r, {})[first] = (data, samples, slots)
                elif kind == _lib.INIT:
                    t.value[i] = memory(io[k].input, elements, 1).clone()
                elif kind == _lib.FETCH:
                    memory(io[k].output, elements, 1).copy_(self._array(t, i, weight))
                elif kind == _lib.GIVE:
                    self._array(t, i, weight).copy_(memory(io[k].input, elements, 1))
                if kind in (_lib.PUSH, _lib.INIT, _lib.FETCH, _lib.GIVE):
                    op.left -= 1
                    if op.left == 0:
                        self._end(c, op)
                else:
                    c.waiting.append((t, i, 0 if t.clock else r, io[k].output, op))
            self._advance()
        return 0

    def pbox_client_wait_on(self, p, handle, waiting, slice_ms, err):
        w = waiting._obj
        if not handle:
            return _lib.PENDING if self.lives else _lib.DEADLINE
        if not w.state[0]:
            w.state[0] = int((time.monotonic() + (w.timeout_ms or self._c(p).timeout) / 1000) * 1000)
        left = max(1, w.state[0] - int(time.monotonic() * 1000))
        code = self.pbox_client_wait(p, handle, min(left, slice_ms), err)
        if self.left_text and code == _lib.DEADLINE and err._obj.text == self.left_text.encode():
            return code
        return _lib.PENDING if code == _lib.DEADLINE and (left > slice_ms or self.lives) else code

    def pbox_client_wait(self, p, handle, timeout, err):
        c = self._c(p)
        with self.cond:
            op = c.ops[handle]
            end = time.monotonic() + timeout / 1000
            while op.code is None:
                if self.left_text and len(c.job.members) < c.job.workers:
                    return self._fail(err, -9, self.left_text)
                left = end - time.monotonic()
                if left <= 0 or not self.cond.wait(left):
                    return self._fail(err, -9, "the other workers have not pushed")
            del c.ops[handle]
            return self._fail(err, op.code, op.text.decode()) if op.code else 0

    def pbox_client_test(self, p, handle, err):
        with self.cond:
            if self._c(p).ops[handle].code is None:
                return _lib.PENDING
        return self.pbox_client_wait(p, handle, 1, err)

    def pbox_client_notify(self, p, handle, fn, ctx):
        c = self._c(p)
        with self.cond:
            op = c.ops.pop(handle)
            op.notify = (fn, ctx)
            c.waiting_ops = getattr(c, "waiting_ops", []) + [op]
            if op.code is not None:
                self._call_back(c, op)
        return 0

    def pbox_client_status(self, p, text, cap, err):
        text.value = b"job: all well"
        return 0

    def pbox_client_why(self, p, text, cap, err):
        c = self._c(p)
        text.value = b"waits for worker 1" if c.waiting else b"nothing"
        return 0

    def pbox_client_silent(self, p, text, cap, err):
        text.value = self.silent
        return int(bool(self.silent))

    def pbox_client_not_finite(self, p, text, cap, err):
        text.value = self.not_finite
        return int(bool(self.not_finite))

    def pbox_client_stats(self, p, stats):
        stats._obj.operations_done = self._c(p).n_ops

    def pbox_client_close(self, p):
        c = self._c(p)
        with self.cond:
            c.closed = True
            ops = list(c.ops.values()) + getattr(c, "waiting_ops", [])
            for op in ops:
                if op.code is None:
                    self._end(c, op, -13, "the client was closed")
            c.waiting.clear()
            c.job.members.pop(c.worker, None)
            c.job.past[c.worker] = c.rounds
            if not c.job.members:
                self.jobs = {n: j for n, j in self.jobs.items() if j is not c.job}
            self.cond.notify_all()
        c.queue.put(None)

    def release(self):
        with self.cond:
            self.hold = False
            self._advance()
