# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""pbox.torch against the fake of the library."""

import copy
import os
import pickle
import tempfile
import threading
import unittest
import unittest.mock
import warnings

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import pbox
import pbox.torch
from pbox import _lib
from pbox.torch import _hook, _join, _ranks, _session, reference
from tests import workers
from tests.fake_box import FakeLib, Job

HERE = dict(box="box", job="j", secret="s")


class Case(unittest.TestCase):
    def setUp(self):
        self.lib = FakeLib({"j": "s"})
        _lib.use(self.lib)
        self.addCleanup(_lib.use, None)
        self.addCleanup(self.close_all)
        torch.manual_seed(0)

    def close_all(self):
        for s in list(_session._sessions.values()):
            s.client.close()
        pbox.client._close_all()  # those of the test's own: not of the library that follows
        _session._sessions.clear()
        _session._passed_in.clear()


def model():
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))


class FakeBucket:
    """The part of dist.GradBucket that the hook uses, for tests with several workers: DDP has
    one a process."""

    def __init__(self, params, index=0, last=True):
        self._params, self._index, self._last = params, index, last
        self._buffer = torch.cat([p.grad.reshape(-1) for p in params])

    def buffer(self):
        return self._buffer

    def parameters(self):
        return self._params

    def gradients(self):
        out, at = [], 0
        for p in self._params:
            out.append(self._buffer[at:at + p.numel()].view_as(p))
            at += p.numel()
        return out

    def index(self):
        return self._index

    def is_last(self):
        return self._last


class FakeDDP:
    def __init__(self, module):
        self.module = module
        self.hook = None

    def register_comm_hook(self, state, hook):
        self.hook = (state, hook)


class Hooks(Case):
    def reduced(self, compress, n=3, **kw):
        raw = [[torch.randn(17, 3), torch.randn(4)] for _ in range(n)]

        def worker(w):
            m = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(17, 3)),
                                        torch.nn.Parameter(torch.zeros(4))])
            state = pbox.torch.register(FakeDDP(m), worker=w, workers=n, compress=compress,
                                        **HERE, **kw)
            state.samples = w + 1
            for p, g in zip(m, raw[w]):
                p.grad = g.clone()
            for order in (list(m), list(m)[::-1]):
                b = FakeBucket(order)
                got = pbox.torch.hook(state, b).wait()
                assert got is b.buffer() or got.data_ptr() == b.buffer().data_ptr()
            state.close()
            return got
        out = workers.run(n, worker)
        flat = [torch.cat([g[1].reshape(-1), g[0].reshape(-1)]) for g in raw]
        return flat, out

    def test_bits_of_the_ordered_mean(self):
        flat, out = self.reduced(None)
        for o in out:
            self.assertTrue(reference.equal_bits(o, reference.tree_reduce(flat)))

    def test_weighted(self):
        flat, out = self.reduced(None, op="weighted_mean")
        want = reference.tree_reduce(flat, "weighted_mean", [1, 2, 3])
        self.assertTrue(reference.equal_bits(out[0], want))

    def test_compressed(self):
        for fmt, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
            flat, out = self.reduced(fmt)
            want = reference.tree_reduce([f.to(dtype) for f in flat]).to(dtype).float()
            for o in out:
                self.assertTrue(reference.equal_bits(o, want))

    def test_ddp(self):
        os.environ.update(RANK="0", WORLD_SIZE="1")
        with tempfile.TemporaryDirectory() as d:
            dist.init_process_group("gloo", init_method=f"file://{d}/store", rank=0,
                                    world_size=1)
            try:
                self.ddp()
            finally:
                dist.destroy_process_group()

    def ddp(self):
        for views in (False, True):
            ddp = DistributedDataParallel(model(), bucket_cap_mb=1e-4,
                                          gradient_as_bucket_view=views)
            twin = model()
            twin.load_state_dict(ddp.module.state_dict())
            seen = []
            state = pbox.torch.register(ddp, **HERE)

            def observe(bucket, local):
                raw = local.clone()
                return lambda result: seen.append(reference.equal_bits(raw, result))
            state.observer = observe
            for _ in range(4):
                x = torch.randn(7, 6)
                for m in (ddp, twin):
                    m.zero_grad()
                    m(x).square().sum().backward()
                for p, q in zip(ddp.parameters(), twin.parameters()):
                    self.assertTrue(reference.equal_bits(p.grad, q.grad))
            self.assertEqual(state.rounds, 4)
            self.assertTrue(all(seen) and len(seen) >= 4)
            # DDP has rebuilt its buckets, and still there was one table
            self.assertEqual(len(list(self.lib.jobs["j"].tables)), 1)
            self.lib.hold = True
            state._watch.seconds = 0.5
            # torch 1.13 makes a RuntimeError of what a hook raises, later ones leave some as they are
            with self.assertRaisesRegex((RuntimeError, pbox.PBoxDeadline), r"not reduced in [0-9.]+ s \(timeout 0.5 s\): waits for"):
                ddp(torch.randn(7, 6)).sum().backward()
            self.assertIsInstance(state.error, pbox.PBoxDeadline)
            self.lib.hold = False
            state.close()
            state.error = None
            with self.assertRaisesRegex((RuntimeError, pbox.PBoxClosed), "hook was closed"):
                ddp(torch.randn(7, 6)).sum().backward()
            self.assertIsInstance(state.error, pbox.PBoxClosed)

    def one(self, params=None, w=0, n=1, **kw):
        """A hook, and what reduces gradients of ones with it."""
        m = torch.nn.ParameterList(params or [torch.nn.Parameter(torch.zeros(4))])
        state = pbox.torch.register(FakeDDP(m), worker=w, workers=n, **{**HERE, **kw})

        def reduce(value=1.0):
            for p in m:
                p.grad = torch.full_like(p, value)
            return pbox.torch.hook(state, FakeBucket(list(m))).wait().tolist()
        return state, reduce

    def test_joined(self):
        """A rank without inputs (torch's Join) is no sample."""
        def worker(w):
            out, client = [], pbox.Client("box", "j", "s", w, 2)
            for op in ("mean", "sum", "weighted_mean"):
                for all_count in (True, False):
                    state, reduce = self.one(w=w, n=2, op=op, client=client)
                    state.samples, state.joined, state.joined_counts = 12, w == 1, all_count
                    out.append(reduce(2.0 if w == 0 else 0.0)[0])
                    state.close()
            client.close()
            return out
        self.assertEqual(workers.run(2, worker), [[1, 2, 2, 2, 2, 2]] * 2)

    def test_join_hook(self):
        seen = []

        class Inner(_join.JoinHook):
            def main_hook(self):
                seen.append((state.joined, state.joined_counts))

            def post_hook(self, last):
                seen.append(last)
        state = type("", (), {"joined": False, "joined_counts": True})()
        for all_count in (True, False):
            shadow = _join._Shadow(Inner(), state, all_count)
            shadow.main_hook()
            self.assertFalse(state.joined)
            shadow.post_hook(True)
        self.assertEqual(seen, [(True, True), True, (True, False), True])

    def test_samples_are_whole(self):
        state, reduce = self.one(op="weighted_mean")
        before = len(self.lib.calls)
        for bad in (2.5, -1, 1 << 32, None, "3"):
            state.samples = bad
            with self.assertRaisesRegex(pbox.PBoxInvalid, "samples of the hook is"):
                reduce()
        self.assertEqual(len(self.lib.calls), before)
        state.samples = torch.tensor(3)
        self.assertEqual(reduce(), [1.0] * 4)

    def test_tables_are_used_again(self):
        def worker(w):
            with pbox.Client("box", "j", "s", w, 2) as client:
                last = None
                for i in range(12):  # each with another hook before it closed, at one of the workers or the other
                    state, reduce = self.one(w=w, n=2, client=client)
                    self.assertEqual(reduce(float(w)), [0.5] * 4)
                    if i % 2 == w and last is not None:
                        last.close()
                        last = None
                    elif last is not None:
                        last.__del__()  # dropped
                    last = state
                    reduce = None
                bf16 = torch.nn.Parameter(torch.zeros(4, dtype=torch.bfloat16))
                for _ in range(3):
                    state, reduce = self.one([bf16, torch.nn.Parameter(torch.zeros(5))], w, 2, client=client)
                    state.close()
                return client
        workers.run(2, worker)
        # two at a time, bf16 and fp32 of the second model, and what they agree with
        tables = [[(t[0], t[1]) for t in table.specs] for table in self.lib.made["j"].tables]
        self.assertEqual(sorted(tables), [[("0", 4)], [("0", 4)], [("0", 4)], [("1", 5)],
                                          [("register() of the workers", 832)]])

    def test_a_table_of_a_pass_that_failed_is_not_used_again(self):
        client = pbox.Client("box", "j", "s", 0, 1)
        state, reduce = self.one(client=client)
        reduce()
        self.lib.hold, state._watch.seconds = True, 0.5
        with self.assertRaisesRegex(RuntimeError, "not reduced in"):
            reduce()
        self.lib.release()
        state.close()
        second, reduce = self.one(client=client)
        self.assertEqual(reduce(3.0), [3.0] * 4)
        self.assertNotEqual(second._place.popitem()[1][0].number, 0)

    def test_other_models_are_found_with_tables_to_spare(self):
        def worker(w):
            client = pbox.Client("box", "j", "s", w, 2, timeout=5)
            self.one(w=w, n=2, client=client)[0].close()
            try:
                self.one([torch.nn.Parameter(torch.zeros(4 + w))], w, 2, client=client, declare_timeout=5)
            except pbox.PBoxError as e:
                return str(e)
        said = workers.run(2, worker)
        self.assertTrue(any("elements here and" in str(text) for text in said), said)

    def test_more_buckets_than_groups(self):
        params = [torch.nn.Parameter(torch.zeros(2)) for _ in range(1000)]
        for n, most in ((1, 1), (256, 256), (257, 129), (1000, 250)):
            groups = _hook._expected_buckets(params[:n], 8)
            self.assertEqual(groups, sorted(groups, reverse=True))
            self.assertEqual(len(set(groups)), most)

    def test_sparse_by_name_only(self):
        class Layer(torch.nn.Linear):
            sparse = True
        frozen = torch.nn.Embedding(4, 2, sparse=True)
        frozen.weight.requires_grad_(False)
        ignored = FakeDDP(torch.nn.ModuleList([torch.nn.Embedding(4, 2, sparse=True), torch.nn.Linear(2, 2)]))
        ignored.parameters_to_ignore = ["0.weight"]
        for ddp in (FakeDDP(Layer(2, 2)), FakeDDP(torch.nn.ModuleList([frozen, torch.nn.Linear(2, 2)])), ignored):
            pbox.torch.register(ddp, worker=0, workers=1, **HERE).close()

    def test_copies(self):
        state, _ = self.one()
        for copied in (copy.deepcopy(state), pickle.loads(pickle.dumps(state))):
            with self.assertRaisesRegex(pbox.PBoxInvalid, "register"):
                copied.reduce(None)
        opt = pbox.torch.SGD([torch.nn.Parameter(torch.zeros(2))], 0.1, worker=0, workers=1, **HERE)
        for copied in (copy.copy(opt), copy.deepcopy(opt), pickle.loads(pickle.dumps(opt))):
            copied.load_state_dict(opt.state_dict())
            self.assertEqual(copied.state_dict(), opt.state_dict())
            for call in (copied.step, copied.wait):
                with self.assertRaisesRegex(pbox.PBoxInvalid, "state_dict"):
                    call()
            copied.close()
        self.assertFalse(opt.client.closed)

    def test_refused(self):
        with self.assertRaisesRegex(pbox.PBoxInvalid, "sparse=False"):
            pbox.torch.register(FakeDDP(torch.nn.Embedding(4, 2, sparse=True)), worker=0,
                                workers=1, **HERE)
        with self.assertRaisesRegex(pbox.PBoxInvalid, "on meta"):
            pbox.torch.register(FakeDDP(torch.nn.Linear(4, 2, device="meta")), worker=0,
                                workers=1, **HERE)
        with self.assertRaisesRegex(pbox.PBoxInvalid, "dtype torch.float64"):
            pbox.torch.register(FakeDDP(torch.nn.Linear(4, 2).double()), worker=0, workers=1,
                                **HERE)
        with self.assertRaisesRegex(pbox.PBoxInvalid, "DistributedDataParallel"):
            pbox.torch.register(model(), **HERE)
        with self.assertRaisesRegex(pbox.PBoxInvalid, "compress is 'int4'"):
            pbox.torch.register(FakeDDP(model()), compress="int4", **HERE)
        self.assertEqual(_session._sessions, {})

    def test_a_wait_that_goes_on_says_so(self):
        m = model()
        state = pbox.torch.register(FakeDDP(m), worker=0, workers=1, timeout=0.4, **HERE)
        for p in m.parameters():
            p.grad = torch.ones_like(p)
        self.lib.hold = self.lib.lives = True
        with self.assertLogs("pbox") as log:
            future = pbox.torch.hook(state, FakeBucket(list(m.parameters())))
            threading.Timer(2.0, self.lib.release).start()
            future.wait()
        self.assertRegex(log.output[0], "worker 0 of 1 has waited for [01] s: waits for worker 1")
        state.close()

    def test_no_thread_left(self):
        def no(thread, begin=threading.Thread.start):
            if thread.name.startswith(self.without):
                raise RuntimeError("can't start new thread")
            begin(thread)
        with unittest.mock.patch.object(threading.Thread, "start", no):
            for self.without in ("pbox-watch", "pbox-convert"):
                with self.assertRaisesRegex(pbox.PBoxSystemError, "no thread can be started"):
                    pbox.torch.register(FakeDDP(model()), worker=0, workers=1, compress="bf16", **HERE)
        self.assertEqual(_session._sessions, {})

    def test_session_from_environment(self):
        for k in ("RANK", "WORLD_SIZE", "PBOX_BOX"):
            os.environ.pop(k, None)
        with self.assertRaisesRegex(pbox.PBoxInvalid, "RANK and WORLD_SIZE"):
            pbox.torch.register(FakeDDP(model()), **HERE)
        with self.assertRaisesRegex(pbox.PBoxInvalid, "box= is missing"):
            pbox.torch.register(FakeDDP(model()), worker=0, workers=1)
        os.environ.update(RANK="x", WORLD_SIZE="1")
        with self.assertRaisesRegex(pbox.PBoxInvalid, "RANK of the environment is 'x'"):
            pbox.torch.register(FakeDDP(model()), **HERE)
        os.environ["PBOX_AUTH"] = "yes"
        with self.assertRaisesRegex(pbox.PBoxInvalid, "PBOX_AUTH of the environment is 'yes'"):
            pbox.torch.register(FakeDDP(model()), worker=0, workers=1, **HERE)
        del os.environ["PBOX_AUTH"]
        os.environ.update(PBOX_BOX="box", PBOX_JOB="j", PBOX_SECRET="s", RANK="0",
                          WORLD_SIZE="1")
        try:
            pbox.torch.register(FakeDDP(model())).close()
        finally:
            for k in ("PBOX_BOX", "PBOX_JOB", "PBOX_SECRET", "RANK", "WORLD_SIZE"):
                del os.environ[k]


class ProcessGroups(Case):
    """Whose ranks are the workers: a job is one group."""

    class Store(dict):
        def compare_set(self, key, expected, value):
            assert expected == ""
            return self.setdefault(key, value).encode()

    def as_rank(self, rank, groups=()):
        """torch.distributed as rank 0, 1, 2 or 3 sees it."""
        members = dict(groups)

        def of(group):
            return members.get(group, [0, 1, 2, 3])
        fakes = {"is_initialized": lambda: True, "get_world_size": lambda group=None: len(of(group)),
                 "get_rank": lambda group=None: of(group).index(rank) if rank in of(group) else -1,
                 "get_process_group_ranks": of}
        for name, fn in fakes.items():
            patch = unittest.mock.patch.object(dist, name, fn)
            patch.start()
            self.addCleanup(patch.stop)
        patch = unittest.mock.patch.object(dist.distributed_c10d, "_get_default_store", lambda: self.store)
        patch.start()
        self.addCleanup(patch.stop)

    def setUp(self):
        super().setUp()
        self.store = self.Store()
        self.lib.secrets = None

    def test_place(self):
        self.as_rank(3, {"g": [1, 3]})
        self.assertEqual(_ranks.place(None, None), (3, 4, (0, 1, 2, 3)))
        self.assertEqual(_ranks.place(None, None, "g"), (1, 2, (1, 3)))
        self.assertEqual(_ranks.place(0, 7, "g"), (0, 7, None))
        self.as_rank(2, {"g": [1, 3]})
        with self.assertRaisesRegex(pbox.PBoxInvalid, "rank 2 is not in this process_group"):
            _ranks.place(None, None, "g")

    def test_a_job_is_one_group(self):
        self.as_rank(0, {"g": [0, 2]})
        _ranks.claim("box", "j", (1, 3))
        with self.assertRaisesRegex(pbox.PBoxInvalid, r"ranks \[1, 3\].* this process_group has ranks \[0, 2\]"):
            _session.connect("box", "j", "s", process_group="g", run="")
        s = _session.connect("box", "k", "s", process_group="g", run="")
        self.assertEqual((s.client.worker, s.client.workers), (0, 2))
        self.assertIs(_session.connect("box", "k", "s", process_group="g"), s)
        with self.assertRaisesRegex(pbox.PBoxInvalid, "process_group"):
            _session.connect("box", "k", "s")
        with self.assertRaisesRegex(pbox.PBoxInvalid, "process_group"):
            _session.connect("box", "k", "s", 0, 4)

    def test_a_model_of_another_group(self):
        self.as_rank(0, {"g": [0, 2], "h": [0, 1], "one": [0]})
        client = _session.connect("box", "k", "s", process_group="g", run="").client
        ddp = FakeDDP(model())
        for group, text in (("h", r"ranks \[0, 2\].* process_group has ranks \[0, 1\]"),
                            ("world", r"process_group has 4 ranks .*job 'k' has 2 workers")):
            ddp.process_group = group
            with self.assertRaisesRegex(pbox.PBoxInvalid, text):
                pbox.torch.register(ddp, client=client)
        bn = torch.nn.BatchNorm1d(2)
        bn.process_group = "h"
        with self.assertRaisesRegex(pbox.PBoxInvalid, "process_group"):
            pbox.torch.sync_buffers(bn)
        # of one process: it reduces nothing, and the caller has named the workers
        _ranks.check_module(type("", (), {"process_group": "one"})(), 2, (0, 2), "k")

    def test_the_box_has_another_number_of_workers(self):
        self.as_rank(0, {"g": [0, 2]})
        self.lib.jobs["k"] = Job(4, 2)
        with self.assertRaisesRegex(pbox.PBoxMismatch, "4 workers.*process_group"):
            _session.connect("box", "k", "s", process_group="g", run="")


class Optimisers(Case):
    def same_steps(self, make, kind, n=3, steps=5, sched=False, **hyper):
        """n workers on the box against one process with the ordered mean, bit for bit."""
        torch.manual_seed(1)
        start = [torch.randn(7, 3), torch.randn(5)]
        grads = [[[torch.randn(7, 3), torch.randn(5)] for _ in range(n)] for _ in range(steps)]

        def worker(w):
            # all but worker 0 start elsewhere
            params = [torch.nn.Parameter(s.clone() + w) for s in start]
            opt = make(params, worker=w, workers=n, **HERE)
            lr = torch.optim.lr_scheduler.StepLR(opt, 2, 0.5) if sched else None
            for s in range(steps):
                for p, g in zip(params, grads[s][w]):
                    p.grad = g.clone()
                opt.step()
                if lr:
                    lr.step()
            opt.close()
            return [p.detach() for p in params]
        out = workers.run(n, worker)
        params = [torch.nn.Parameter(s.clone()) for s in start]
        ref = reference.Reference(kind, params, **hyper)
        lr = torch.optim.lr_scheduler.StepLR(ref, 2, 0.5) if sched else None
        for s in range(steps):
            for i, p in enumerate(params):
                p.grad = reference.tree_reduce([grads[s][w][i] for w in range(n)])
            ref.step()
            if lr:
                lr.step()
        for got in out:
            for a, b in zip(got, params):
                self.assertTrue(reference.equal_bits(a, b.detach()))
        return params

    def test_kinds(self):
        o = pbox.torch
        self.same_steps(lambda p, **k: o.SGD(p, 0.1, **k), "sgd", lr=0.1)
        self.same_steps(lambda p, **k: o.SGD(p, 0.1, 0.9, weight_decay=0.01, **k), "momentum",
                        lr=0.1, momentum=0.9, weight_decay=0.01)
        self.same_steps(lambda p, **k: o.SGD(p, 0.1, 0.9, nesterov=True, **k), "nesterov",
                        lr=0.1, momentum=0.9)
        self.same_steps(lambda p, **k: o.Adam(p, 0.01, **k), "adam", lr=0.01)
        self.same_steps(lambda p, **k: o.AdamW(p, **k), "adamw")

    def test_scheduler_is_followed(self):
        self.same_steps(lambda p, **k: pbox.torch.SGD(p, 0.1, 0.9, **k), "momentum", sched=True,
                        lr=0.1, momentum=0.9)
        sent = [v for c, w, g, v in (c for c in self.lib.calls if c[0] == "set") if w == 0]
        self.assertEqual([v["lr"] for v in sent], [0.1, 0.05, 0.025])
        self.assertEqual(sorted(sent[1]), ["lr"])

    def test_reference_is_torchs_within_rounding(self):
        for kind, make in (
                ("momentum", lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=0.01)),
                ("nesterov", lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=0.01,
                                                       nesterov=True)),
                ("adam", lambda p: torch.optim.Adam(p, 0.1, weight_decay=0.01)),
                ("adamw", lambda p: torch.optim.AdamW(p, 0.1, weight_decay=0.01)),
                ("maximize", lambda p: torch.optim.SGD(p, 0.01, 0.9, weight_decay=0.01, maximize=True))):
            climbs, kind = kind == "maximize", "momentum" if kind == "maximize" else kind
            p = torch.nn.Parameter(torch.randn(100))
            q = torch.nn.Parameter(p.detach().clone())
            a = make([p])
            b = reference.Reference(kind, [q], lr=0.01 if climbs else 0.1, weight_decay=0.01, maximize=climbs,
                                    **({"momentum": 0.9} if "adam" not in kind else {}))
            for _ in range(20):
                p.grad = torch.randn(100)
                q.grad = p.grad.clone()
                a.step()
                b.step()
            self.assertTrue(torch.allclose(p, q, rtol=1e-5, atol=1e-6), kind)

    def one(self, make=pbox.torch.SGD, n=4, **kw):
        p = torch.nn.Parameter(torch.ones(n))
        return p, make([p], lr=0.5, worker=0, workers=1, **HERE, **kw)

    def test_no_gradient_at_any_worker(self):
        p, opt = self.one(weight_decay=0.5)
        with self.assertRaisesRegex(pbox.PBoxInvalid, "no gradient at any worker"):
            opt.step()
        self.assertEqual(p.tolist(), [1.0] * 4)
        opt.close()
        for make in (pbox.torch.SGD, pbox.torch.Adam):
            p, opt = self.one(make)  # a step on zeros is none
            opt.step()
            self.assertEqual(p.tolist(), [1.0] * 4)
            opt.close()
        p, opt = self.one(pbox.torch.Adam)
        q = torch.nn.Parameter(torch.ones(1))
        opt.close()
        opt = pbox.torch.Adam([p, q], 0.1, worker=0, workers=1, **HERE)
        p.grad = torch.ones(4)
        opt.step()
        q.grad = torch.ones(1)
        with self.assertRaisesRegex(pbox.PBoxInvalid, "first gradient in a later step"):
            opt.step()

    def test_frozen(self):
        a, b = (torch.nn.Parameter(torch.ones(2), requires_grad=r) for r in (False, True))
        opt = pbox.torch.AdamW([a, b], 0.1, worker=0, workers=1, **HERE)
        self.assertEqual(len(opt.table), 1)
        b.grad = torch.ones(2)
        opt.step()
        self.assertEqual(a.tolist(), [1, 1])
        a.grad = torch.ones(2)
        with self.assertRaisesRegex(pbox.PBoxInvalid, "frozen"):
            opt.step()

    def test_warm_up(self):
        self.same_steps(lambda p, **k: self.changed(pbox.torch.SGD(p, 0.5, **k)), "sgd", lr=0.1)

    @staticmethod
    def changed(opt):
        opt.param_groups[0]["lr"] = 0.1
        return opt

    def test_workers_that_differ(self):
        def worker(w):
            p = torch.nn.Parameter(torch.zeros(2))
            opt = pbox.torch.SGD([p], 0.1, worker=w, workers=2, **HERE)
            p.grad = torch.ones(2)
            opt.step()
            if w == 0:
                opt.param_groups[0]["lr"] = 0.01
            try:
                opt.step()
            except pbox.PBoxMismatch as e:
                return str(e), p.detach().clone()
            finally:
                opt.close()
        for w, (text, p) in enumerate(workers.run(2, worker)):
            self.assertIn(f"worker {1 - w} has lr={[0.1, 0.01][w]:g}", text)
            self.assertTrue(torch.allclose(p, torch.full((2,), -0.1)))

    def test_clip_grad_norm_is_found(self):
        from torch.nn.utils import clip_grad_norm_

        def worker(w):
            p = torch.nn.Parameter(torch.zeros(2))
            opt = pbox.torch.SGD([p], 0.1, worker=w, workers=2, **HERE)
            p.grad = torch.ones(2)
            clip_grad_norm_([p], float("inf"))
            try:
                torch.nn.utils.clip_grad_norm_([p], 0.1)
            except pbox.PBoxInvalid as e:
                return str(e), p.grad.tolist()
            finally:
                opt.close()
        for text, grad in workers.run(2, worker):
            self.assertIn("clip_value", text)
            self.assertEqual(grad, [1, 1])

    def test_channels_last(self):
        x = torch.randn(4, 3, 2, 2)
        p = torch.nn.Parameter(x.clone().contiguous(memory_format=torch.channels_last))
        for kw in ({}, {"push": "bf16", "pull": "bf16"}):
            with torch.no_grad():
                p.copy_(x)
            opt = pbox.torch.SGD([p], 1.0, worker=0, workers=1, **HERE, **kw)
            g = torch.arange(48.).reshape(4, 3, 2, 2)
            p.grad = g
            opt.step()
            opt.close()
            self.assertTrue(torch.allclose(p, x - g, rtol=1e-2, atol=1e-1))
        self.assertIn("stored 0,2,3,1", opt.table.tensors[0].name)

    def test_groups_are_hyper_groups(self):
        a, b = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
        opt = pbox.torch.SGD([{"params": [a]}, {"params": [b], "lr": 0.25}], lr=0.5, worker=0,
                             workers=1, **HERE)
        a.grad, b.grad = torch.ones(2), torch.ones(2)
        opt.step()
        self.assertEqual((a.tolist(), b.tolist()), ([0.5] * 2, [0.75] * 2))

    def test_groups_are_added(self):
        a, b = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
        opt = pbox.torch.SGD([a], lr=0.5, momentum=0.9, worker=0, workers=1, **HERE)
        a.grad = torch.ones(2)
        opt.step()
        opt.add_param_group({"params": [b], "lr": 0.25})
        self.assertEqual(opt._added[0].table.tensors[0].name, "group 1 parameter 0 (2,)")
        before = len([c for c in self.lib.calls if c[0] == "submit"])
        a.grad, b.grad = torch.ones(2), torch.full((2,), float("nan"))
        with self.assertRaisesRegex(pbox.PBoxInvalid, "group 1 parameter 0"):
            opt.step()
        self.assertEqual(len([c for c in self.lib.calls if c[0] == "submit"]), before)
        with torch.no_grad():
            b.add_(1.0)
        b.grad = torch.ones(2)
        with self.assertRaisesRegex(pbox.PBoxInvalid, "group 1 parameter 0.* was changed outside"):
            opt.step()
        opt.push_parameters()
        opt.param_groups[1]["lr"] = 0.125
        opt.step()
        self.assertEqual(b.tolist(), [1.875] * 2)
        opt.load_state_dict(opt.state_dict())
        self.assertIs(opt._added[0].param_groups[0], opt.param_groups[1])
        for again in ([a], [b], [torch.nn.Parameter(a.data)]):
            with self.assertRaises((ValueError, pbox.PBoxInvalid)):
                opt.add_param_group({"params": again})
            self.assertEqual((len(opt.param_groups), len(opt._added)), (2, 1))
        opt.close()

    def test_groups_that_cannot_be_added(self):
        def refused(text, *params, **options):
            opt = pbox.torch.SGD([torch.nn.Parameter(torch.ones(2))], 0.1, worker=0, workers=1, **options, **HERE)
            with self.assertRaisesRegex(pbox.PBoxInvalid, text):
                opt.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))], **dict(params)})
            self.assertEqual(len(opt.param_groups), 1)
            opt.close()

        refused("all parameters have one norm", max_norm=1.0)
        refused("all parameters have one norm", skip_nonfinite=True)
        refused("policy='shrink' a job has the tables", policy="shrink")
        refused("made without", ("momentum", 0.9))

    def test_maximize_is_the_boxs(self):
        p = torch.nn.Parameter(torch.ones(2))
        opt = pbox.torch.AdamW([p], 0.5, maximize=True, worker=0, workers=1, **HERE)
        p.grad = torch.ones(2)
        opt.step()
        sent = [v for c, w, g, v in (c for c in self.lib.calls if c[0] == "set")]
        self.assertEqual(sent[-1]["maximize"], 1.0)
        opt.param_groups[0]["maximize"] = False
        p.grad = torch.ones(2)
        opt.step()
        sent = [v for c, w, g, v in (c for c in self.lib.calls if c[0] == "set")]
        self.assertEqual(sent[-1], {"maximize": 0.0})
        opt.close()

    def test_samples(self):
        def worker(w):
            p = torch.nn.Parameter(torch.zeros(2))
            opt = pbox.torch.SGD([p], 1.0, worker=w, workers=2, op="weighted_mean", **HERE)
            p.grad = torch.full((2,), float(w))
            if w == 0:
                with self.assertRaisesRegex(pbox.PBoxInvalid, "samples"):
                    opt.step()
            opt.step(samples=1 if w == 0 else 3)
            opt.close()
            return p.tolist()
        self.assertEqual(workers.run(2, worker), [[-0.75] * 2] * 2)

    def test_samples_that_are_no_number_of_samples(self):
        """Nothing was sent, so the step can be made right."""
        p = torch.nn.Parameter(torch.zeros(2))
        opt = pbox.torch.SGD([p], 1.0, worker=0, workers=1, op="weighted_mean", **HERE)
        p.grad = torch.ones(2)
        before = len(self.lib.calls)
        for bad in (2.0, -1, 2 ** 32, "2", torch.ones(2)):
            with self.assertRaisesRegex(pbox.PBoxInvalid, "samples is "):
                opt.step(samples=bad)
        opt.param_groups[0]["lr"] = "1"
        with self.assertRaisesRegex(pbox.PBoxInvalid, "lr of group 0 is '1'"):
            opt.step(samples=2)
        opt.param_groups[0]["lr"] = 1.0
        self.assertEqual(len(self.lib.calls), before)
        opt.step(samples=torch.tensor(2))
        self.assertEqual(p.tolist(), [-1.0] * 2)

    def test_formats(self):
        p, opt = self.one(push="bf16", pull="fp16")
        p.grad = torch.tensor([1.0, 1 / 3, 0, 1e-3])
        opt.step()
        want = (1 - 0.5 * p.grad.bfloat16().float()).half().float()
        self.assertEqual(p.tolist(), want.tolist())

    def test_clip_and_closure(self):
        p, opt = self.one(clip_value=0.25)

        def closure():
            opt.zero_grad()
            loss = p.sum()
            loss.backward()
            return loss
        self.assertEqual(float(opt.step(closure)), 4.0)
        self.assertEqual(p.tolist(), [0.875] * 4)

    def test_gradients_of_any_stride(self):
        p = torch.nn.Parameter(torch.zeros(2, 3))
        opt = pbox.torch.SGD([p], 1.0, worker=0, workers=1, **HERE)
        g = torch.arange(6.).reshape(3, 2).t()
        p.grad = g
        opt.step()
        self.assertTrue(torch.equal(p, -g))

    def test_refused(self):
        for p, text in ((torch.zeros(3, dtype=torch.float64), "float64"),
                        (torch.zeros(3, device="meta"), "copy it to the CPU"),
                        (torch.zeros(3, 8)[:, ::2], "not dense")):
            with self.assertRaisesRegex(pbox.PBoxInvalid, text):
                pbox.torch.SGD([torch.nn.Parameter(p)], 0.1, worker=0, workers=1, **HERE)
        with self.assertRaisesRegex(pbox.PBoxInvalid, "amsgrad"):
            pbox.torch.Adam([torch.nn.Parameter(torch.zeros(1))], amsgrad=True, worker=0,
                            workers=1, **HERE)
        with self.assertRaisesRegex(pbox.PBoxInvalid, "nesterov"):
            self.one(nesterov=True)
        emb = torch.nn.Embedding(4, 1, sparse=True)
        emb(torch.tensor([1])).sum().backward()
        opt = pbox.torch.SGD(emb.parameters(), 0.1, worker=0, workers=1, **HERE)
        with self.assertRaisesRegex(pbox.PBoxInvalid, "sparse"):
            opt.step()

    def test_outside_changes(self):
        p, opt = self.one()
        opt.step()
        with torch.no_grad():
            kept = p.clone()
            p.add_(1)
            p.copy_(kept)  # there and back, as EMA does
        opt.step()
        p.data.clamp_(max=0.5)
        with self.assertRaisesRegex(pbox.PBoxInvalid, "changed outside"):
            opt.step()
        p.data.copy_(kept)
        for _ in range(5):
            opt.step()
        with torch.no_grad():
            p.add_(1)
        with self.assertRaisesRegex(pbox.PBoxInvalid, "changed outside"):
            opt.step()

    def test_state_dict(self):
        p, opt = self.one(pbox.torch.SGD, momentum=0.9)
        s = opt.state_dict()
        s["param_groups"][0]["lr"] = 0.125
        opt.load_state_dict(s)
        p.grad = torch.ones(4)
        opt.step()
        self.assertEqual(p.tolist(), [0.875] * 4)

    def test_deadline_and_wait(self):
        p, opt = self.one(timeout=0.3)
        p.grad = torch.ones(4)
        self.lib.hold = True
        with self.assertRaises(pbox.PBoxDeadline):
            opt.step()
        with self.assertRaisesRegex(pbox.PBoxInvalid, "not ended"):
            opt.step()
        self.lib.release()
        opt.wait()
        self.assertEqual((p.tolist(), opt.rounds), ([0.5] * 4, 1))

    def test_deadline_of_hyper_parameters_and_wait(self):
        def worker(w):
            p = torch.nn.Parameter(torch.zeros(2))
            opt = pbox.torch.SGD([p], 1.0, worker=w, workers=2, **HERE)
            p.grad = torch.ones(2)
            for lr in (1.0, 0.5, 0.25):
                opt.param_groups[0]["lr"] = lr
                self.lib.lost_sets[w] = 1 - w
                if w == 0:
                    with self.assertRaisesRegex(pbox.PBoxDeadline, "no answer"):
                        opt.step()
                    opt.wait()
                else:
                    opt.step()
            opt.close()
            return p.tolist()
        self.assertEqual(workers.run(2, worker), [[-1.75] * 2] * 2)


class Scaler:
    """What GradScaler does for an optimiser that has _step_supports_amp_scaling. torch 1.13 has none for CPUs."""

    def __init__(self, passes_itself, scale=2.0 ** 10):
        self.passes_itself, self.scale, self._per_optimizer_states = passes_itself, scale, {}

    def unscale_(self, opt):
        found = torch.zeros(1)
        for p in (p for g in opt.param_groups for p in g["params"] if p.grad is not None):
            p.grad.div_(self.scale)
            found += not bool(torch.isfinite(p.grad).all())
        self._per_optimizer_states[id(opt)].update(stage=State("UNSCALED"), found_inf_per_device={"cpu": found})

    def step(self, opt, unscaled=False):
        assert opt._step_supports_amp_scaling
        self._per_optimizer_states[id(opt)] = dict(stage=State("READY"), found_inf_per_device={})
        if unscaled:
            self.unscale_(opt)
        if self.passes_itself:
            return opt.step(grad_scaler=self)
        finite = all(bool(torch.isfinite(p.grad).all()) for g in opt.param_groups for p in g["params"])
        opt.grad_scale = None if unscaled else torch.tensor([self.scale])
        opt.found_inf = torch.tensor(float(not finite))
        if unscaled:
            opt.found_inf = self._per_optimizer_states[id(opt)]["found_inf_per_device"]["cpu"]
        try:
            return opt.step()
        finally:
            del opt.grad_scale, opt.found_inf

    def update(self, opt):
        if self.passes_itself:
            self.scale *= 0.5 if any(self._per_optimizer_states[id(opt)]["found_inf_per_device"].values()) else 1.0


class State:
    def __init__(self, name):
        self.name = name


class LeftOut(Case):
    """A step that one worker leaves out."""

    def trained(self, batch, n=2, steps=6, **kw):
        """What n workers end with, one of which may be an error: batch(worker, step, optimiser, parameter)."""
        def worker(w):
            p = torch.nn.Parameter(torch.zeros(3))
            opt = pbox.torch.SGD([p], lr=1.0, worker=w, workers=n, timeout=5.0, **HERE, **kw)
            try:
                for k in range(steps):
                    batch(w, k, opt, p)
                return p.detach().tolist(), opt.skipped, opt.next_round
            except pbox.PBoxError as e:
                return e
            finally:
                opt.close()
        out = workers.run(n, worker)
        self.close_all()
        return out

    @staticmethod
    def gradient(w, k, p):
        """10**w * (k + 1)"""
        (p * 10.0 ** w * (k + 1)).sum().backward()

    def test_by_one_alone(self):
        """Each way to take gradients away: the step after that is an error of both that names it."""
        def away(p, opt, how):
            if how == "none":
                p.grad = None
            elif how == "zeros":
                p.grad.zero_()
            else:
                opt.zero_grad(set_to_none=how == "optimiser")
        for how in ("optimiser", "optimiser's zeros", "none", "zeros"):
            def batch(w, k, opt, p):
                if p.grad is not None:
                    away(p, opt, how)
                self.gradient(w, k, p)
                if not (k == 3 and w == 1):
                    opt.step()
            for w, e in enumerate(self.trained(batch)):
                self.assertIsInstance(e, pbox.PBoxMismatch)
                self.assertRegex(str(e), f"^steps differ .* worker {1 - w} has discarded={1 - w}, worker {w} .*"
                                 f"discarded={w}. The gradients of so many batches were thrown away")

    def test_by_one_alone_with_slots(self):
        def batch(w, k, opt, p):
            opt.zero_grad()
            self.gradient(w, k, p)
            if not (k == 3 and w == 1):
                opt.step()
        for e in self.trained(batch, slots=4):
            self.assertRegex(str(e), "worker [01] has discarded=")

    def test_by_one_that_leaves_then(self):
        """Gradients that come from elsewhere leave no trace; in the end a step is missing."""
        def batch(w, k, opt, p):
            p.grad = torch.full((3,), 10.0 ** w * (k + 1))
            if not (k == 3 and w == 1):
                opt.step()
        self.lib.left_text = "given up after 0.1 s, as a worker has left or was refused"
        first, _ = self.trained(batch)
        self.assertRegex(str(first), "a worker has left .* step 6 of this worker: .* it has left a step out")

    def test_by_all(self):
        def batch(w, k, opt, p):
            opt.zero_grad()
            self.gradient(w, k, p)
            if k != 3:
                opt.step()
        want = [-5.5 * (1 + 2 + 3 + 5 + 6)] * 3
        self.assertEqual(self.trained(batch), [(want, 0, 6)] * 2)

    def test_what_is_no_step_left_out(self):
        def accumulates(w, k, opt, p):  # another number of parts, or none: as many samples
            opt.zero_grad(set_to_none=k % 2 == 0)
            for part in range([1, 3, 0][w]):
                self.gradient(part - w, k, p)
                if part == 0:
                    p.grad = p.grad * 1.0  # of code of its own that clips, at one worker
            opt.step()
        self.assertTrue(all(isinstance(r, tuple) for r in self.trained(accumulates, n=3)))

        def looks(w, k, opt, p):
            opt.zero_grad()
            self.gradient(w, k, p)
            if w == 1:  # without a trace in p.grad
                torch.autograd.grad((p * 7).sum(), [p])
            opt.step()
        want = [-5.5 * 21] * 3
        self.assertEqual(self.trained(looks), [(want, 0, 7)] * 2)

        def tries(w, k, opt, p):
            for _ in range(1 + w):
                opt.zero_grad()
                self.gradient(w, k, p)
            opt.step()
        self.assertEqual(self.trained(tries, local_backward=True), [(want, 0, 7)] * 2)
        self.assertIsInstance(self.trained(tries)[0], pbox.PBoxMismatch)

    def test_grad_scaler(self):
        """One worker finds inf, in a step in which the learning rate changes as well: all leave it out."""
        for passes_itself in (False, True):
            for unscaled in (False, True):
                scalers = [Scaler(passes_itself, 2.0 ** (8 + w)) for w in range(2)]

                def batch(w, k, opt, p):
                    opt.zero_grad()
                    ((p * 10.0 ** w * (k + 1)).sum() * scalers[w].scale).backward()
                    if k == 3 and w == 1:
                        p.grad[1] = float("inf")
                    opt.param_groups[0]["lr"] = 1.0 / 2 ** (k // 3)
                    scalers[w].step(opt, unscaled)
                    scalers[w].update(opt)
                want = [-5.5 * (1 + 2 + 3 + 5 / 2 + 6 / 2)] * 3
                self.assertEqual(self.trained(batch), [(want, 1, 6 + (1 << 32))] * 2)
                self.assertEqual([s.scale for s in scalers], [2.0 ** (8 + w - passes_itself) for w in range(2)])

    def test_grad_scaler_alone(self):
        scaler = Scaler(False)

        def batch(w, k, opt, p):
            opt.zero_grad()
            ((p * (k + 1)).sum() * scaler.scale).backward()
            if k == 3:
                p.grad[1] = float("nan")
            scaler.step(opt)
        self.assertEqual(self.trained(batch, n=1), [([-17.0] * 3, 1, 6 + (1 << 32))])

    def test_grad_scaler_with_slots(self):
        """In one of the slots: the round is left out, and the next one begins."""
        scaler = Scaler(False)

        def batch(w, k, opt, p):
            for slot in range(2):
                self.assertEqual(opt.slot, 2 * w + slot)
                ((p * (4 * k + opt.slot)).sum() * scaler.scale).backward()
                if k == 1 and opt.slot == 2:
                    p.grad[0] = float("inf")
                scaler.step(opt)
            self.assertEqual(opt.trained_rounds, k + 1)
        self.assertEqual(self.trained(batch, steps=3, slots=4), [([-1.5 - 9.5] * 3, 1, 3 + (1 << 32))] * 2)

    def test_grad_scaler_at_one_worker(self):
        scaler = Scaler(False)

        def batch(w, k, opt, p):
            (p * scaler.scale).sum().backward()
            scaler.step(opt) if w else opt.step()
        for e in self.trained(batch):
            self.assertRegex(str(e), "^steps differ .* has grad_scaler=[01].*belongs to all workers, or to none")

        def shrinks(w, k, opt, p):
            (p * scaler.scale).sum().backward()
            scaler.step(opt)
        for e in self.trained(shrinks, policy="shrink"):
            self.assertRegex(str(e), "GradScaler leaves steps out, and with policy='shrink'")

    def test_grad_scaler_and_a_group_that_was_added(self):
        """An infinity in either is one for both, at all workers."""
        for passes_itself in (True, False):
            def worker(w, passes_itself=passes_itself):
                scaler = Scaler(passes_itself)
                p, q = torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.zeros(3))
                opt = pbox.torch.SGD([p], lr=1.0, worker=w, workers=2, timeout=5.0, **HERE)
                opt.add_param_group({"params": [q]})
                seen = []
                for k in range(4):
                    opt.zero_grad()
                    ((p + 2 * q) * scaler.scale * (k + 1)).sum().backward()
                    if k == 1 and w == 0:
                        q.grad[1] = float("inf")
                    if k == 2 and w == 1:
                        p.grad[0] = float("inf")
                    scaler.step(opt)
                    seen.append((p[0].item(), q[0].item(), opt.skipped, opt._added[0].skipped))
                opt.close()
                return seen
            for seen in workers.run(2, worker):
                self.assertEqual(seen, [(-1, -2, 0, 0), (-1, -2, 1, 1), (-1, -2, 2, 2), (-5, -10, 2, 2)])
            self.close_all()

    def test_goes_on_after_steps_left_out(self):
        """The agreement has had a round for each of them, the parameters have not."""
        self.assertEqual(len(self.trained(lambda *_: None)), 2)
        workers.run(2, lambda w: pbox.torch.SGD([torch.nn.Parameter(torch.zeros(1))], 1.0, worker=w, workers=2,
                                                first_round=7 + (2 << 32), **HERE))
        self.assertEqual(sorted(self.lib.first_rounds), [0, 0, 0, 0, 7, 7, 9, 9])

    def test_unknown_arguments(self):
        opt = pbox.torch.SGD([torch.nn.Parameter(torch.ones(1))], 0.1, worker=0, workers=1, **HERE)
        with self.assertRaisesRegex(TypeError, "and not sample$"):
            opt.step(sample=3)


class Helpers(Case):
    def test_all_reduce_and_buffers(self):
        def worker(w):
            c = pbox.Client("box", "j", "s", w, 2)
            x, y = torch.full((3,), w + 1.0), torch.full((2,), w + 1.0).bfloat16()
            pbox.torch.all_reduce([x, y], client=c)
            for op in pbox.torch.all_reduce([x, y], client=c, async_op=True):
                op.wait()
            bn = torch.nn.BatchNorm1d(3)
            bn.running_mean.fill_(w)
            pbox.torch.sync_buffers(bn, client=c)
            c.close()
            return x.tolist(), y.tolist(), bn.running_mean.tolist()
        for r in workers.run(2, worker):
            self.assertEqual(r, ([6.0] * 3, [6.0] * 2, [0.5] * 3))

    def test_too_many_sizes(self):
        """The error says what takes the memory, and what worked before still does."""
        with pbox.Client("box", "j", "s", 0, 1) as c:
            self.lib.most_tables = 6
            x = torch.ones(5)
            with self.assertRaisesRegex(pbox.PBoxMemoryError, r"combination of sizes, dtype and op, after [0-9]+ others: .*Pad or flatten.*may take"):
                for n in range(5, 20):
                    pbox.torch.all_reduce(torch.ones(n), client=c)
            pbox.torch.all_reduce(x, client=c)
            self.assertEqual(x.tolist(), [1.0] * 5)

    def test_workers_that_reduce_other_tensors(self):
        """An error for all, by both sizes; and then it works again."""
        one, two, half = torch.ones(3), torch.ones(4), torch.ones(3, dtype=torch.bfloat16)

        def worker(w):
            c = pbox.Client("box", "j", "s", w, 2)
            said = []
            for tensors, op in (((one, two)[w], "sum"), ([one, two][:1 + w], "sum"), ((one, half)[w], "sum"),
                                (one, ("sum", "mean")[w]), ([one, two][::1 - 2 * w], "sum")):
                tensors = [t.clone() for t in ([tensors] if torch.is_tensor(tensors) else tensors)]
                with self.assertRaises(pbox.PBoxMismatch) as e:
                    pbox.torch.all_reduce(tensors, op, client=c)
                self.assertTrue(all((t == 1).all() for t in tensors))
                said.append(str(e.exception))
                x = torch.ones(10 + len(said))
                pbox.torch.all_reduce(x, client=c)
                self.assertEqual(x.tolist(), [2.0] * len(x))
            with self.assertRaisesRegex(pbox.PBoxInvalid, "op is 'avg'"):
                pbox.torch.all_reduce(one, "avg", client=c)
            c.close()
            return said
        first, second = workers.run(2, worker)
        self.assertRegex(first[0], "worker 1 has 1 tensors of 4 elements in all; worker 0 .this one. has 1 of 3 .op 'sum' of fp32 "
                         "tensors of 3 elements")
        self.assertRegex(second[1], "worker 0 has 1 tensors of 3 elements .*this one. has 2 of 7 .*of 3, 4 elements")
        for text in first[2:] + second[2:]:
            self.assertIn("as many elements in all, but other sizes, dtypes or op", text)

    def test_agreement_after_a_deadline(self):
        """The same question is waited for, and not asked again."""
        late = threading.Event()

        def worker(w):
            c = pbox.Client("box", "j", "s", w, 2, timeout=0.3)
            pbox.torch.all_reduce(torch.ones(1), client=c, timeout=20)
            if w == 0:
                with self.assertRaises(pbox.PBoxDeadline):
                    pbox.torch.all_reduce(torch.ones(2), client=c)
                late.set()
            else:
                late.wait(10)
            x = torch.ones(2)
            pbox.torch.all_reduce(x, client=c, timeout=20)
            self.assertEqual(x.tolist(), [2.0] * 2)
            c.close()
        workers.run(2, worker)

    def test_current_session(self):
        with self.assertRaisesRegex(pbox.PBoxInvalid, "no session is open"):
            pbox.torch.all_reduce(torch.ones(1))
        opt = pbox.torch.SGD([torch.nn.Parameter(torch.ones(1))], 0.1, worker=0, workers=1,
                             **HERE)
        x = torch.ones(2)
        pbox.torch.all_reduce(x)
        self.assertEqual(x.tolist(), [1, 1])
        opt.close()
        self.assertTrue(opt.client.closed)


if __name__ == "__main__":
    unittest.main()
