# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The process group against the fake of the library: threads as ranks, each with a group, and Gloo inside."""

import datetime
import itertools
import os
import threading
import time
import unittest
import weakref
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import pbox
import pbox.torch
from pbox.torch import _carried, _group, _pieces, _run, _session, reference
from tests import workers
from tests.test_torch import HERE, Case

MINUTE = datetime.timedelta(seconds=60)
ENV = {"PBOX_BOX": "box", "PBOX_JOB": "j", "PBOX_SECRET": "s", "GLOO_SOCKET_IFNAME": "lo"}
SUM, AVG = dist.ReduceOp.SUM, dist.ReduceOp.AVG
kept = []  # groups that functions of then() have: a thread of Gloo that drops the last reference to its group joins itself, and ends the process


def tearDownModule():
    kept.clear()  # here, in the main thread, while the interpreter is whole: their threads are joined


def options(op):
    o = dist.AllreduceOptions()
    o.reduceOp = op
    return o


def bits(t):
    return t.clone().view(torch.int32 if t.dtype == torch.float32 else torch.int16)


class Pieces(unittest.TestCase):
    def test_cut(self):
        for n in [1, 4095, 4096, 4097, 16384, 16385, 65535, 100001, (1 << 20) - 1, 1 << 20, (5 << 20) + 77777, 6553600]:
            at = 0
            found = list(_pieces.cut(n))
            for i, (k, begin, elements) in enumerate(found):
                self.assertEqual(begin, at)
                self.assertTrue(elements == _pieces.SIZES[k] or (i == len(found) - 1 and k == len(_pieces.SIZES) - 1))
                at += elements
            self.assertEqual(at, n)
            for k in range(1, len(_pieces.SIZES)):
                self.assertLessEqual(sum(p[0] == k for p in found), 4)

    def test_place(self):
        """No tensor twice in an operation, and each in turn."""
        t = _pieces.Tensors("g", heads=True)
        seen = []
        for n in (6553600, 100001, 6553600, 16384):
            for operation in t.place(n):
                numbers = [i for i, _, _ in operation]
                self.assertEqual(len(set(numbers)), len(numbers))
                seen += operation
        for k, size in enumerate(_pieces.SIZES):
            mine = [i - 4 * k for i, _, _ in seen if i // 4 == k]
            self.assertEqual(mine, [i % 4 for i in range(len(mine))])
        self.assertEqual([t.head() for _ in range(5)], [20, 21, 22, 23, 20])
        self.assertEqual([s.elements for s in t.declared[-4:]], [16] * 4)
        self.assertEqual(len({s.group for s in t.declared}), len(t.declared))
        self.assertLess(sum(s.elements for s in t.declared) * 4, 23e6)


class Groups(Case):
    def setUp(self):
        super().setUp()
        patch = mock.patch.dict(os.environ, ENV)
        patch.start()
        self.addCleanup(patch.stop)
        self.groups = []
        self.addCleanup(lambda: [g.end() for g in self.groups])

    def ranks(self, n, fn, **options):
        """fn(group, rank) in n threads; options of the client."""
        store = dist.HashStore()

        def rank(r):
            session = _session.connect(worker=r, workers=n, **HERE, **options)
            g = _group.Group(store, r, n, MINUTE, session, 0)
            self.groups.append(g)
            g.declare()
            return fn(g, r)
        return workers.run(n, rank)

    def submits(self):
        return sum(c[0] == "submit" for c in self.lib.calls)

    def test_bits(self):
        """Sums are those of the ordered sum, of any length; the neighbours in memory stay as they are."""
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for n in (16384 * 2, 32769, 100001, 1 << 18):
                raw = [torch.randn(n + 10).to(dtype) for _ in range(3)]
                for op, name in ((SUM, "sum"), (AVG, "mean")):
                    def rank(g, r):
                        whole = raw[r].clone()
                        t = whole[5:-5]
                        work = g.allreduce([t], options(op))
                        self.assertTrue(work.wait())
                        self.assertIs(work.get_future().wait()[0], t)
                        self.assertTrue(torch.equal(whole[:5], raw[r][:5]) and torch.equal(whole[-5:], raw[r][-5:]))
                        return t
                    out = self.ranks(3, rank)
                    want = reference.tree_reduce([x[5:-5] for x in raw], name).to(dtype)
                    for t in out:
                        self.assertTrue(torch.equal(bits(t), bits(want)), (dtype, n, op))
                    self.close_all()

    def test_long(self):
        """More pieces of the largest size than there are tensors of it."""
        n = (5 << 20) + 12345
        raw = [torch.randn(n) for _ in range(2)]

        def rank(g, r):
            t = raw[r].clone()
            for _ in range(2):
                g.allreduce([t]).wait()
            return t
        out = self.ranks(2, rank)
        want = (raw[0] + raw[1]) * 2
        self.assertTrue(torch.equal(out[0], want) and torch.equal(out[1], want))

    def test_to_gloo(self):
        """What is small, or of another kind, goes to Gloo as it is."""
        big = 1 << 16
        tensors = [(torch.ones(16383), SUM), (torch.ones(big, dtype=torch.int64), SUM), (torch.ones(big, dtype=torch.float64), SUM),
                   (torch.ones(big), dist.ReduceOp.MAX), (torch.ones(big), dist.ReduceOp.PRODUCT), (torch.ones(big, dtype=torch.uint8), SUM)]

        def rank(g, r):
            before = self.submits()
            for t, op in tensors:
                mine = t.clone()
                g.allreduce([mine], options(op)).wait()
                self.assertEqual(mine[0], 1 if op in (dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT) else 2)
            two = [torch.ones(big), torch.ones(big)]
            g.allreduce(two).wait()
            self.assertEqual([float(t[0]) for t in two], [4, 4])
            two = [torch.ones(big), torch.ones(big)]
            g.allreduce_coalesced(two).wait()
            self.assertEqual([float(t[0]) for t in two], [2, 2])
            for wrong in (torch.ones(big, dtype=torch.int32), torch.ones(big, dtype=torch.float64)):
                with self.assertRaisesRegex(RuntimeError, "AVG"):
                    g.allreduce([wrong], options(AVG)).wait()
            index = torch.arange(big)[None]
            sparse = torch.sparse_coo_tensor(index, torch.ones(big), (big,))
            work = g.allreduce([sparse])
            work.wait()
            self.assertEqual(float(work.result()[0].to_dense()[0]), 2)
            g.barrier().wait()
            return self.submits() - before
        self.assertEqual(self.ranks(2, rank), [0, 0])

    def test_small_bf16(self):
        """Gloo of torch 1.13 has no bfloat16, so also a loss of one element goes over the box."""
        def rank(g, r):
            out = []
            for n in (1, 7, 1000, 32767):
                t = torch.full((n,), r + 1.5, dtype=torch.bfloat16)
                g.allreduce([t]).wait()
                out.append(bool((t == 4).all()))
            return out
        self.assertEqual(self.ranks(2, rank), [[True] * 4] * 2)

    def test_empty(self):
        def rank(g, r):
            with self.assertRaises(RuntimeError) as ours:
                g.allreduce([]).wait()
            with self.assertRaises(RuntimeError) as theirs:
                g.inner.allreduce([]).wait()
            self.assertEqual(str(ours.exception), str(theirs.exception))
            t = torch.empty(0)
            g.allreduce([t]).wait()
            self.assertEqual(t.numel(), 0)
        self.ranks(2, rank)

    def test_not_contiguous(self):
        base = [torch.randn(300, 400) for _ in range(2)]

        def rank(g, r):
            out = []
            for view in (lambda t: t.t(), lambda t: t[:, ::2], lambda t: t[3:, 1:300].t()):
                whole = base[r].clone()
                g.allreduce([view(whole)]).wait()
                want = base[r].clone()
                view(want).copy_(view(base[0]) + view(base[1]))
                out.append(torch.equal(whole, want))
            x = base[r].clone().view(2, 3, 100, 200).to(memory_format=torch.channels_last)
            g.allreduce([x]).wait()
            out.append(torch.equal(x, (base[0] + base[1]).view(2, 3, 100, 200)))
            return out
        self.assertEqual(self.ranks(2, rank), [[True] * 4] * 2)
        self.assertGreater(self.submits(), 0)

    def test_expanded(self):
        """Elements that share memory: as Gloo has it."""
        t = torch.ones(1).expand(1 << 17)
        self.assertIsNone(_group._carried([t], SUM))
        self.assertIsNone(_group._carried([torch.ones(1 << 17, device="meta")], SUM))
        self.assertIsNone(_group._carried([torch._neg_view(torch.ones(1 << 17))], SUM))
        self.assertIsNotNone(_group._carried(torch.ones(1 << 17), SUM))

    def test_requires_grad(self):
        def rank(g, r):
            p = torch.nn.Parameter(torch.ones(1 << 16) + r)
            g.allreduce([p]).wait()
            self.assertTrue(p.requires_grad and p.is_leaf)
            t = torch.nn.Parameter(torch.ones(300, 300)).t()
            g.allreduce([t]).wait()
            with torch.inference_mode():
                i = torch.ones(300, 300).t()
            g.allreduce([i]).wait()
            z = torch.ones(1 << 16, dtype=torch.complex64)
            g.allreduce([torch.view_as_real(z)]).wait()
            return float(p[0]), float(t[1, 2]), float(i[1, 2]), complex(z[3])
        self.assertEqual(self.ranks(2, rank), [(3, 2, 2, 2 + 0j)] * 2)

    def test_async(self):
        """A work is not complete before all ranks have come, and they complete in any order."""
        late = threading.Event()

        def rank(g, r):
            a, b = torch.full((1 << 16,), 1.0 + r), torch.full((1 << 20,), 10.0 + r)
            if r == 1:
                time.sleep(0.2)
                late.set()
            works = [g.allreduce([t]) for t in (b, a)]
            if r == 0:
                self.assertFalse(late.is_set())  # it did not wait
                self.assertFalse(any(w.is_completed() for w in works))
                self.assertIsNone(works[0].exception())
                with self.assertRaisesRegex(RuntimeError, "not done after 0.05 s"):
                    works[0].wait(datetime.timedelta(seconds=0.05))
            works[1].wait()
            self.assertEqual(float(a[-1]), 3)
            self.assertTrue(works[0].wait(MINUTE))
            self.assertTrue(works[0].is_completed() and works[0].is_success())
            self.assertEqual(float(b[-1]), 21)
        self.ranks(2, rank)

    def test_dropped(self):
        """Neither the work nor the tensor is kept by the caller."""
        def rank(g, r):
            future = g.allreduce([torch.full((70000,), 1.0)]).get_future()
            for _ in range(20):
                g.allreduce([torch.full((70000,), 1.0)])
            return float(future.wait()[0][-1])
        self.assertEqual(self.ranks(2, rank), [2, 2])

    def test_nothing_is_kept(self):
        """A group goes with its last reference, though its last work is there: Gloo's threads end with it, and do not in a forked process."""
        def rank(g, r):
            work = g.allreduce([torch.ones(70000)])
            work.wait()
            return weakref.ref(g), work
        refs = self.ranks(2, rank)
        self.groups.clear()
        self.assertTrue(workers.within(10, lambda: all(ref() is None for ref, _ in refs)))
        self.assertTrue(workers.within(10, lambda: not self.lib.made["j"].members))  # and its session

    def test_memory_that_comes_again(self):
        """It is in hugepages from the second time on."""
        with mock.patch.object(_group._buffers, "prefer_huge") as prefer:
            def rank(g, r):
                t = torch.ones(70000)
                for k in range(4):
                    g.allreduce([t]).wait()
                    g.allreduce([torch.ones(80000 + 1000 * k)]).wait()
                return t.data_ptr()
            at = self.ranks(2, rank)
            for p in at:
                self.assertEqual([c for c in prefer.call_args_list if c.args == (p, 280000)], [mock.call(p, 280000)])

    def test_then_waits(self):
        """What then() calls may wait for other all-reduces of the group, as PowerSGD's does."""
        def rank(g, r):
            def more(f, depth=0):
                t = f.value()[0]
                if depth < 3:
                    return g.allreduce([t]).get_future().then(lambda f: more(f, depth + 1)).wait()
                return float(t[0])
            return g.allreduce([torch.ones(1 << 15)]).get_future().then(more).wait()
        self.assertEqual(self.ranks(2, rank), [16, 16])

    def test_gloo_calls(self):
        """An all-reduce in what a thread of Gloo calls, which is no thread of Python."""
        def rank(g, r):
            got = []
            kept.append(g)
            for _ in range(20):
                def more(f):
                    return g.allreduce([torch.ones(1 << 15)]).get_future().wait()[0]
                got.append(g.allreduce([torch.ones(5)]).get_future().then(more).wait()[0])
            return sum(float(t) for t in got)
        self.assertEqual(self.ranks(2, rank), [40, 40])

    def test_lengths(self):
        """No table for a length."""
        def rank(g, r):
            for n in itertools.islice(itertools.count(16384, 997), 40):
                t = torch.full((n,), float(r))
                g.allreduce([t]).wait()
                self.assertEqual((float(t[0]), float(t[-1]), float(t.sum())), (1, 1, n))
            return len(g._wires)
        self.assertEqual(self.ranks(2, rank), [1, 1])
        self.assertEqual(len(self.lib.made["j"].tables), 1)

    def mismatch(self, n, fn):
        def rank(g, r):
            try:
                fn(g, r)
            except Exception as e:
                return str(e), type(g.error)
            return None
        for text, kind in self.ranks(n, rank):
            self.assertRegex(text, "other ranks reduce something else: all ranks call")
            self.assertIs(kind, pbox.PBoxMismatch)

    def test_lengths_differ(self):
        """Nothing is summed that does not belong together, and all ranks know it at once."""
        self.mismatch(3, lambda g, r: g.allreduce([torch.ones(70000 + r)]).wait())

    def test_orders_differ(self):
        def both(g, r):
            sizes = (70000, 80000)[::1 if r else -1]
            for w in [g.allreduce([torch.ones(n)]) for n in sizes]:
                w.wait()
        self.mismatch(2, both)

    def test_dtypes_differ(self):
        def rank(g, r):
            for dtype in (torch.float32, torch.bfloat16):
                g.allreduce([torch.ones(1 << 16, dtype=dtype)]).wait()
            g.allreduce([torch.ones(1 << 16, dtype=torch.bfloat16 if r else torch.float32)]).wait()
        self.mismatch(2, rank)

    def test_after_an_error(self):
        def rank(g, r):
            with self.assertRaises(Exception):
                g.allreduce([torch.ones(70000 + r)]).wait()
            with self.assertRaisesRegex(pbox.PBoxMismatch, "an earlier all_reduce of this process group has failed"):
                g.allreduce([torch.ones(70000)])
            t = torch.ones(5)
            g.allreduce([t]).wait()  # Gloo's
            return float(t[0])
        self.assertEqual(self.ranks(2, rank), [2, 2])

    def test_closed(self):
        """A wait raises what the all-reduce has failed with, and so does its future."""
        def rank(g, r):
            if r == 1:
                time.sleep(0.2)
                self.groups[0].session.client.close()
                self.groups[1].session.client.close()
                return None
            work = g.allreduce([torch.ones(1 << 16)])
            with self.assertRaisesRegex(pbox.PBoxClosed, "the client was closed"):
                work.wait()
            self.assertIsInstance(work.exception(), pbox.PBoxClosed)
            self.assertFalse(work.is_success())
            with self.assertRaisesRegex(Exception, "the client was closed"):
                work.get_future().wait()
            return type(g.error)
        self.assertIn(pbox.PBoxClosed, self.ranks(2, rank))

    def test_deadline(self):
        def rank(g, r):
            if r == 1:
                return None
            with self.assertRaisesRegex(pbox.PBoxDeadline, "all_reduce 1 of the process group, of 65536 elements, was not done within 0.5 s: waits for worker 1"):
                g.allreduce([torch.ones(1 << 16)]).wait()
            return type(g.error)
        self.assertEqual(self.ranks(2, rank, timeout=0.5), [pbox.PBoxDeadline, None])

    def test_threads(self):
        """Several threads of a rank call one after the other, and are under way at once."""
        def rank(g, r):
            tensors = [torch.full((20000 + 1000 * i,), 1.0 + i) for i in range(12)]
            works = [None] * 12

            def call(i):
                works[i] = g.allreduce([tensors[i]])
            for i in range(12):
                thread = threading.Thread(target=call, args=(i,))
                thread.start()
                thread.join()
            waits = [threading.Thread(target=w.wait) for w in works]
            for t in waits:
                t.start()
            for t in waits:
                t.join(30)
            return [float(t[-1]) for t in tensors]
        self.assertEqual(self.ranks(2, rank), [[2.0 * (1 + i) for i in range(12)]] * 2)

    def test_methods(self):
        """All that the running torch has, and no list of ours."""
        for name in _group.forwarded():
            self.assertIn(name, vars(_group._Inner))
        for name in ("broadcast", "allgather", "_allgather_base", "reduce_scatter", "alltoall_base", "barrier", "send", "recv",
                     "recv_anysource", "gather", "scatter", "reduce", "allreduce_coalesced"):
            self.assertTrue(hasattr(dist.ProcessGroup, name))
            self.assertIn(name, _group.forwarded())

        def rank(g, r):
            self.assertEqual((g.rank(), g.size(), g.name()), (r, 2, "pbox"))
            out = [[torch.zeros(2), torch.zeros(2)]]
            g.allgather(out, [torch.full((2,), float(r))]).wait()
            self.assertEqual([float(t[0]) for t in out[0]], [0, 1])
            t = torch.full((3,), float(r))
            g.broadcast([t], dist.BroadcastOptions()).wait()
            self.assertEqual(float(t[0]), 0)
            (g.send if r else g.recv)([t], 1 - r, 7).wait()
        self.ranks(2, rank)

    def test_two_groups(self):
        """Each has tables of its own: all-reduces of one do not meet those of the other."""
        store = dist.HashStore()

        def rank(r):
            made = []
            for k in range(2):
                session = _session.connect(worker=r, workers=2, **HERE)
                made.append(_group.Group(dist.PrefixStore(str(k), store), r, 2, MINUTE, session, k))
                made[k].declare()
            self.groups += made
            tensors = [torch.full((70000,), 1.0), torch.full((70000,), 5.0)]
            order = (0, 1) if r else (1, 0)
            works = [made[k].allreduce([tensors[k]]) for k in order]
            for w in works:
                w.wait()
            self.assertIs(made[0].session.client, made[1].session.client)
            return [float(t[0]) for t in tensors]
        self.assertEqual(workers.run(2, rank), [[2, 10], [2, 10]])
        self.assertEqual(len(self.lib.made["j"].tables), 2)


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(100, 200), torch.nn.Tanh(), torch.nn.Linear(200, 10))


class Alone(Case):
    """torch.distributed itself, with one rank."""

    def setUp(self):
        super().setUp()
        patch = mock.patch.dict(os.environ, ENV)
        patch.start()
        self.addCleanup(patch.stop)
        self.addCleanup(lambda: dist.is_initialized() and dist.destroy_process_group())

    def begin(self):
        dist.init_process_group("pbox", store=dist.HashStore(), rank=0, world_size=1)

    def train(self, model, steps=4):
        torch.manual_seed(2)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(steps):
            optimiser.zero_grad()
            model(torch.randn(8, 100)).square().mean().backward()
            optimiser.step()
        return torch.cat([p.detach().reshape(-1) for p in model.parameters()])

    def test_ddp(self):
        for _ in range(2):  # again after it was destroyed
            self.begin()
            self.assertEqual(dist.get_backend(), "pbox")
            for views in (False, True):
                before = _group.total
                ddp = DistributedDataParallel(network(), gradient_as_bucket_view=views)
                self.assertTrue(torch.equal(self.train(ddp), self.train(network())))
                self.assertEqual(_group.total - before, 4)
            t = torch.ones(1 << 15)
            self.assertIsNone(dist.all_reduce(t))
            self.assertIs(dist.all_reduce(t, async_op=True).wait(), True)
            dist.all_reduce(t, op=AVG)
            self.assertEqual(float(t[0]), 1)
            self.assertEqual(len([c for c in self.lib.made["j"].members]), 1)
            dist.destroy_process_group()

    def test_of_torch(self):
        self.begin()
        ddp = DistributedDataParallel(network())
        optimiser = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.SGD, lr=0.1)
        with Join([ddp, optimiser]):
            for _ in range(2):
                optimiser.zero_grad()
                ddp(torch.randn(8, 100)).square().mean().backward()
                optimiser.step()
        out = [None]
        dist.all_gather_object(out, {"a": 1})
        self.assertEqual(out, [{"a": 1}])
        group = dist.new_group([0])
        self.assertEqual(dist.get_backend(group), "pbox")
        self.assertIsInstance(group, _group.Group)
        dist.barrier()

    def test_hook_as_well(self):
        """A script that registers the hook, and has the group: one session, and gradients are the hook's."""
        self.begin()
        before = _group.total
        ddp = DistributedDataParallel(network())
        hook = pbox.torch.register(ddp)
        self.assertIs(hook.client, dist.distributed_c10d._get_default_group().session.client)
        self.assertTrue(torch.equal(self.train(ddp), self.train(network())))
        self.assertEqual((hook.rounds, _group.total), (4, before))
        hook.close()
        dist.all_reduce(torch.ones(1 << 15))
        self.assertEqual(_group.total, before + 1)

    def test_beside_another(self):
        """The default group is Gloo's."""
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        group = dist.new_group(backend="pbox")
        self.assertEqual((dist.get_backend(), dist.get_backend(group)), ("gloo", "pbox"))
        before = _group.total
        dist.all_reduce(torch.ones(1 << 15))
        self.assertEqual(_group.total, before)
        dist.all_reduce(torch.ones(1 << 15), group=group)
        self.assertEqual(_group.total, before + 1)
        self.assertTrue(torch.equal(self.train(DistributedDataParallel(network(), process_group=group)), self.train(network())))
        self.assertEqual(_group.total, before + 5)

    def test_one_does_not_come(self):
        """All are at the store, and then one fails: the others know it before the timeout of the group."""
        with mock.patch.object(_group, "connect", lambda **options: _session.connect(**{**options, "workers": 2, "timeout": 0.3})):
            with self.assertRaisesRegex(pbox.PBoxDeadline, "1 of 2 have declared"):
                self.begin()
        self.assertFalse(dist.is_initialized())

    def test_error_in_backward(self):
        self.begin()
        ddp = DistributedDataParallel(network())
        ddp(torch.randn(8, 100)).square().mean().backward()
        dist.distributed_c10d._get_default_group().session.client.close()
        with self.assertRaisesRegex(Exception, "closed"):
            ddp(torch.randn(8, 100)).square().mean().backward()

    def test_environment(self):
        for name in ("PBOX_BOX", "PBOX_JOB"):
            with mock.patch.dict(os.environ):
                del os.environ[name]
                with self.assertRaisesRegex(pbox.PBoxInvalid, f"finds no {name} in the environment: export it"):
                    self.begin()
            self.assertFalse(dist.is_initialized())
        with mock.patch.dict(os.environ, PBOX_SECRET="another"):
            with self.assertRaisesRegex(pbox.PBoxSecretError, "secret"):
                self.begin()
        self.assertFalse(dist.is_initialized())
        self.begin()

    def test_runs(self):
        """Each start is a run of its own, also where a launcher has started it again."""
        seen = set()
        for run in (None, None, "mine", ""):
            with mock.patch.dict(os.environ, **({} if run is None else {"PBOX_RUN": run})):
                self.begin()
                seen.add(self.lib.run)
                dist.destroy_process_group()
        self.assertEqual(len(seen), 4)
        self.assertIn(None, seen)
        self.assertEqual(len([r for r in seen if r and b"torch.distributed" in r]), 3)

    def test_timeouts(self):
        self.assertEqual(_group._options(datetime.timedelta(minutes=30)), {})
        self.assertEqual(_group._options(datetime.timedelta(seconds=5)), {"join_timeout": 5, "timeout": 5, "patience": 5})
        self.assertEqual(_group._options(datetime.timedelta(minutes=5)), {"patience": 300})

    def test_parts(self):
        """A group of a part of the ranks is Gloo's; so are those of all ranks after the first ones."""
        with mock.patch.object(dist, "is_initialized", lambda: True), mock.patch.object(dist, "get_world_size", lambda: 2):
            group = _group._make(dist.HashStore(), 0, 1, MINUTE)
            self.assertIsInstance(group, dist.ProcessGroupGloo)
        with mock.patch.object(dist, "is_initialized", lambda: True), mock.patch.object(dist, "get_world_size", lambda: 1), \
                mock.patch.object(_group, "_numbers", itertools.count(_group._MOST_GROUPS)):
            group = _group._make(dist.HashStore(), 0, 1, MINUTE)
            self.assertIsInstance(group, dist.ProcessGroupGloo)

    def test_report(self):
        """pbox.run says what went over the box."""
        self.begin()
        dist.all_reduce(torch.ones(1 << 18))
        with mock.patch.object(_group, "total", 3), mock.patch.object(_group, "total_bytes", 3 << 20):
            self.assertIn("carried: 3 all_reduce of the process group, 3.1 MB of each rank", _carried.lines())


class Identity(unittest.TestCase):
    def test_at_store(self):
        store = dist.HashStore()
        with mock.patch.object(_run, "_next", lambda _: 0):
            first = workers.run(3, lambda r: _run.at_store(store, "j", r, 3))
            again = workers.run(3, lambda r: _run.at_store(store, "j", r, 3))
        self.assertEqual((len(set(first)), len(set(again)), len(set(first + again))), (1, 1, 2))


if __name__ == "__main__":
    unittest.main()
