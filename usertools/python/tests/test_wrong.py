# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Ordinary programs that came to wrong numbers without a word: each now has torch's, or an error that names what to change. Against
the fake of the library."""

import array
import contextlib
import copy
import itertools
import logging
import queue
import threading
import unittest
import unittest.mock

import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

import pbox
import pbox.torch
from pbox import _lib
from pbox.torch import _alike, _content, _early, _finite, _model, _rates, reference
from tests import workers
from tests.test_torch import HERE, Case, FakeBucket, FakeDDP, Scaler

ALONE = dict(worker=0, workers=1, **HERE)


class Overlap(Case):
    """Results that would be written over each other."""

    def refused(self, text, make):
        with self.assertRaisesRegex(pbox.PBoxInvalid, text):
            make()
        self.assertEqual([c for c in self.lib.calls if c[0] == "submit"], [])

    def test_tied_by_data(self):
        a, b = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(4))
        b.data = a.data
        for kw in ({}, {"slots": 2}):
            self.refused("'group 0 parameter 1 .*' is the same memory as 'group 0 parameter 0 .*b.weight = a.weight",
                         lambda: pbox.torch.SGD([a, b], 1.0, **ALONE, **kw))
        c = nn.Parameter(torch.zeros(1))
        c.data = a.data[3:]
        self.refused("'group 1 parameter 0 .*' overlaps the memory of 'group 0 parameter 0",
                     lambda: pbox.torch.Adam([{"params": [a]}, {"params": [c]}], **ALONE))

    def test_twice(self):
        p = nn.Parameter(torch.zeros(4))
        self.refused("group 0 parameter 1 .* twice", lambda: pbox.torch.SGD([p, p], 1.0, **ALONE))
        frozen = nn.Parameter(torch.zeros(4), requires_grad=False)
        self.refused("twice", lambda: pbox.torch.SGD([p, frozen, frozen], 1.0, **ALONE))

    def test_tied_later(self):
        a, b = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(4))
        opt = pbox.torch.SGD([a, b], 1.0, **ALONE)
        for p in (a, b):
            p.grad = torch.ones(4)
        b.data = a.data  # with the same values: no other check sees it
        with self.assertRaisesRegex(pbox.PBoxInvalid, "is the same memory as"):
            opt.step()

    def test_neighbours(self):
        flat = torch.zeros(10)
        params = [nn.Parameter(torch.empty(0)) for _ in range(3)]
        for p, (begin, end) in zip(params, ((4, 10), (0, 4), (4, 4))):
            p.data = flat[begin:end]
        opt = pbox.torch.SGD(params, 1.0, **ALONE)
        for i, p in enumerate(params):
            p.grad = torch.full_like(p, i + 1.0)
        opt.step()
        self.assertEqual(flat.tolist(), [-2.0] * 4 + [-1.0] * 6)

    def test_tied_as_torch_does(self):
        """The same Parameter in two places, and Eager, where torch makes the step."""
        m = nn.ModuleList([nn.Linear(2, 2, bias=False) for _ in range(2)])
        m[1].weight = m[0].weight
        opt = pbox.torch.SGD(m.parameters(), 1.0, **ALONE)
        before = m[0].weight.detach().clone()
        (m[0](torch.ones(1, 2)).sum() + m[1](torch.ones(1, 2)).sum()).backward()
        opt.step()
        self.assertTrue(torch.equal(m[0].weight, before - 2))
        opt.close()
        a, b = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(4))
        b.data = a.data
        eager = pbox.torch.Eager(torch.optim.SGD([a, b], 0.5), **ALONE)
        for p, g in ((a, 1.0), (b, 2.0)):
            p.grad = torch.full((4,), g)
        eager.step()
        self.assertEqual(a.tolist(), [-1.5] * 4)
        eager.refresh()
        self.assertEqual((a.tolist(), b.tolist()), ([-1.5] * 4, [-1.5] * 4))
        eager.close()

    def test_all_reduce(self):
        t = torch.ones(8)
        client = pbox.Client("box", "j", "s", 0, 1)
        for tensors, text in (([t, t], "tensor 1 is the same memory as tensor 0"),
                              ([t[4:], t[:5]], "tensor 1 overlaps the memory of tensor 0")):
            self.refused(text, lambda: pbox.torch.all_reduce(tensors, client=client))
        pbox.torch.all_reduce([t[4:], t[:4], t[4:4]], client=client)
        self.assertEqual(t.tolist(), [1.0] * 8)

    def test_table(self):
        client = pbox.Client("box", "j", "s", 0, 1)
        table = client.declare([("a", 4), ("b", 4)], op="sum")
        flat = array.array("f", range(8))
        view = memoryview(flat)
        self.refused("output 'b' overlaps the memory of output 'a'", lambda: table.pushpull([view[:4], view[4:]], [view[:4], view[2:6]]))
        self.refused("output 'b' overlaps", lambda: table.submit_nodes(1, [[view[:4], view[4:]]], [view[:4], view[:4]]))
        table.pushpull([view[:4], view[:4]], [view[:4], view[4:]]).wait()  # inputs may share
        self.assertEqual(list(flat), [0, 1, 2, 3] * 2)
        client.close()


class NotFinite(Case):
    """A NaN or an infinity of one worker is in the parameters of all from then on."""

    BAD = (float("nan"), float("inf"), -float("inf"))

    def refuses(self, step, text):
        before = len([c for c in self.lib.calls if c[0] == "submit"])
        with self.assertRaisesRegex(pbox.PBoxInvalid, text):
            step()
        self.assertEqual(len([c for c in self.lib.calls if c[0] == "submit"]), before)

    def test_rounds(self):
        """Nothing is sent, the other worker waits, and the step is made of another batch."""
        def worker(w):
            p = nn.Parameter(torch.zeros(2, 3))
            opt = pbox.torch.SGD([p], 1.0, worker=w, workers=2, **HERE)
            for k, bad in enumerate(self.BAD):
                (p * (k + 1)).sum().backward()
                if w == 1:
                    p.grad[1, 2] = bad
                    with self.assertRaisesRegex(pbox.PBoxInvalid, "worker 1: the gradient of 'group 0 parameter 0 .*' has a NaN or an infinity"):
                        opt.step()
                    opt.zero_grad()
                    (p * (k + 1)).sum().backward()
                opt.step()
                opt.zero_grad()
            opt.close()
            return p.detach().unique().tolist()
        self.assertEqual(workers.run(2, worker), [[-6.0]] * 2)

    def test_a_sum_that_overflows_is_none(self):
        p = nn.Parameter(torch.zeros(4))
        for kw in ({}, {"slots": 1}):
            opt = pbox.torch.SGD([p], 2.0 ** -127, **ALONE, **kw)
            p.grad = torch.full((4,), 2.0 ** 127)
            opt.step()
            opt.close()
        self.assertEqual(p.tolist(), [-2.0] * 4)

    def test_large(self):
        """Rows of a large one, at once; one element of it within 32 steps; all of a bias, whatever is beside it."""
        n = 600
        p, b = nn.Parameter(torch.zeros(n, n)), nn.Parameter(torch.zeros(n))
        opt = pbox.torch.SGD([p, b], 1e-3, **ALONE)
        hook = pbox.torch.register(FakeDDP(nn.ParameterDict({"p": p, "b": b})), client=opt.client)
        for kind in ("row", "column", "bias"):
            p.grad, b.grad = torch.ones(n, n), torch.ones(n)
            if kind == "row":
                p.grad[400:402] = float("nan")
            elif kind == "column":
                p.grad[:, 5:8] = float("inf")
            else:
                b.grad[n - 1] = float("nan")
            self.refuses(opt.step, "gradient of 'group 0 parameter " + ("1" if kind == "bias" else "0"))
            with self.assertLogs("pbox", "WARNING") as log:
                hook._infinite = _finite.Told()
                pbox.torch.hook(hook, FakeBucket([p, b])).wait()
            self.assertIn(f"gradient of '{'b' if kind == 'bias' else 'p'}' has a NaN", log.output[0])
        for at in ((0, 0), (n // 2, 7), (n - 1, n - 1)):
            found = 0
            for k in range(32):
                p.grad, b.grad = torch.ones(n, n), torch.ones(n)
                p.grad[at] = float("nan")
                found += _finite.bad([p.grad], None, k) == [0]
            self.assertGreaterEqual(found, 1)
        self.assertEqual(_finite.bad([torch.full((1 << 17,), 3e38)], None, 1), [])
        opt.close()

    def test_slots(self):
        p = nn.Parameter(torch.zeros(4))
        opt = pbox.torch.SGD([p], 1.0, slots=3, **ALONE)
        for slot in range(3):
            if slot == 1:
                p.grad = torch.full((4,), float("nan"))
                self.refuses(opt.step, "worker 0: the gradient of .* in slot 1 has a NaN or an infinity")
                p.grad = None
            p.grad = torch.full((4,), 3.0)
            opt.step()
        self.assertEqual(p.tolist(), [-3.0] * 4)

    def test_as_fp16(self):
        p = nn.Parameter(torch.zeros(4))
        opt = pbox.torch.SGD([p], 1.0, push="fp16", **ALONE)
        p.grad = torch.full((4,), 65536.0)
        self.refuses(opt.step, "beyond 65504")
        p.grad = torch.full((4,), 65504.0)
        opt.step()
        self.assertEqual(p.tolist(), [-65504.0] * 4)

    def test_eager_closure(self):
        """The closure's gradient, whatever optimiser calls it."""
        for make in (lambda p: torch.optim.SGD(p, 0.1, 0.9), torch.optim.Adam, lambda p: torch.optim.LBFGS(p, max_iter=3)):
            p = nn.Parameter(torch.ones(3))
            opt = pbox.torch.Eager(make([p]), **ALONE)
            bad = [True]

            def closure():
                opt.zero_grad()
                loss = (p * p).sum() * (float("nan") if bad[0] else 1.0)
                loss.backward()
                return loss
            self.refuses(lambda: opt.step(closure), "worker 0: the gradient of 'group 0 parameter 0 .*' has a NaN or an infinity")
            self.assertEqual((p.tolist(), opt.steps), ([1.0] * 3, 0))
            bad[0] = False
            opt.step(closure)
            self.assertEqual(opt.steps, 1)
            opt.refresh()
            self.assertTrue(bool(torch.isfinite(p).all()))
            opt.close()

    def test_eager_update(self):
        """Finite gradients whose update is not."""
        for make, g, begin in ((lambda p: torch.optim.SGD(p, 1e30), 1e30, 1.0), (lambda p: torch.optim.Adam(p, eps=0.0), 0.0, 1.0)):
            p = nn.Parameter(torch.full((3,), begin))
            opt = pbox.torch.Eager(make([p]), **ALONE)
            for closure in (None, lambda: None):
                p.grad = torch.full((3,), g)
                self.refuses(lambda: opt.step(closure), "worker 0: this step makes a NaN or an infinity of 'group 0 parameter 0")
                self.assertEqual(p.tolist(), [begin] * 3)
            opt.close()
        p = nn.Parameter(torch.full((3,), 3e38))
        opt = pbox.torch.Eager(torch.optim.SGD([p], 1.5), **ALONE)
        p.grad = torch.full((3,), 3.3e38)
        opt.param_groups[0]["lr"] = 1.9
        self.refuses(opt.step, "update .* too large")
        self.refuses(opt.step, "no step follows")

    def test_hook(self):
        """It is passed on, with a warning that names worker and tensor; as fp16 of what is too large, too."""
        for kw, dtype, bad in (({}, torch.float32, float("inf")), ({}, torch.bfloat16, float("nan")), ({"compress": "bf16"}, torch.float32, float("nan")),
                               ({"compress": "fp16"}, torch.float32, 1e5), ({}, torch.float16, float("inf"))):
            params = nn.ParameterDict({"a": nn.Parameter(torch.zeros(4, dtype=dtype)), "b": nn.Parameter(torch.zeros(3, dtype=dtype))})
            hook = pbox.torch.register(FakeDDP(params), **ALONE, **kw)

            def reduce(value):
                params["a"].grad, params["b"].grad = torch.ones_like(params["a"]), torch.full_like(params["b"], value)
                return pbox.torch.hook(hook, FakeBucket(list(params.values()))).wait()
            with self.assertNoLogs("pbox", "WARNING"):
                reduce(2.0)
            with self.assertLogs("pbox", "WARNING") as log:
                out = reduce(bad)
                for _ in range(4):
                    reduce(bad)
            self.assertFalse(bool(torch.isfinite(out).all()))
            self.assertRegex(log.output[0], "worker 0: the gradient of 'b' has a NaN or an infinity .*in backward pass 2")
            self.assertRegex(log.output[1], "in backward pass 5 .4 times so far")
            self.assertEqual(len(log.output), 2)
            hook.close()

    def test_sent_early(self):
        """Before anything of the slot has left step() refuses it, as without send_early; afterwards nothing more leaves."""
        class Owner:
            def __init__(self):
                self.sent, self.failed = [], None

            def opens(self):
                return True

            def checked(self, i, g):
                return g

            def name_of(self, i):
                return f"worker 4: the gradient of '{'abc'[i]}'"

            def complete_with(self, i, g):
                return g

            def submit_alone(self, i, g):
                self.sent.append(i)

            def refused(self, error):
                self.failed = error
                return error

        for bad, sent in ((2, []), (0, [2, 1])):
            params, owner = [nn.Parameter(torch.zeros(2)) for _ in range(3)], Owner()
            early = _early.Early(owner, params)
            factors = [float("nan") if i == bad else 1.0 for i in range(3)]
            loss = sum((p * f).sum() for p, f in zip(params, factors))
            if sent:
                with self.assertRaisesRegex(pbox.PBoxInvalid, "worker 4: the gradient of 'a' has a NaN or an infinity"):
                    loss.backward()
                self.assertIsNotNone(owner.failed)
            else:
                loss.backward()
                self.assertIsNone(owner.failed)
            self.assertEqual((owner.sent, early.begun), (sent, bool(sent)))
            early.close()

    def test_grad_scaler_is_asked_first(self):
        p = nn.Parameter(torch.zeros(3))
        opt = pbox.torch.SGD([p], 1.0, **ALONE)
        p.grad = torch.tensor([1.0, float("inf"), 1.0])
        Scaler(False).step(opt)
        self.assertEqual((opt.skipped, p.tolist()), (1, [0.0] * 3))


class GradientMemory(Case):
    """Slots, and p.grad in memory of the program, which it writes again for the next slot."""

    SLOTS = 6

    def trained(self, kind, op="mean", **kw):
        torch.manual_seed(3)
        params = [nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(5))]
        sizes = [p.numel() for p in params]
        flat = torch.zeros(sum(sizes))
        opt = pbox.torch.SGD(params, 0.1, 0.9, slots=self.SLOTS, op=op, **ALONE, **kw)
        opt.slot
        kept = []
        for k in range(2 * self.SLOTS):
            views = list(flat.split(sizes))
            loss = sum((p * (i + 1.5 + k) * torch.arange(1.0, p.numel() + 1).view_as(p)).sum() for i, p in enumerate(params))
            if kind in ("view", "data", "twice"):
                flat.zero_()
                for p, v in zip(params, views):
                    p.grad = v.view_as(p).data if kind == "data" else v.view_as(p)
            if kind == "twice":
                (loss / 2).backward(retain_graph=True)
                (loss / 2).backward()
            elif kind == "assigned":
                for p, v, g in zip(params, views, torch.autograd.grad(loss, params)):
                    p.grad = v.view_as(p).copy_(g)
            elif kind == "fresh memory":  # a buffer that nothing has written to before autograd adds to it
                for p in params:
                    p.grad = torch.zeros_like(p)
                    kept.append(p.grad)
                loss.backward()
            else:
                loss.backward()
            samples = {"samples": k + 1} if op != "mean" else {}
            opt.step(**samples)
            flat.fill_(float(k))  # the program's, as it likes
            for t in kept:
                t.fill_(77.0)
        opt.close()
        return torch.cat([p.detach().flatten() for p in params])

    def test_bits(self):
        for op in ("mean", "weighted_mean"):
            want = self.trained("autograd's", op)
            for kind in ("view", "data", "twice", "assigned", "fresh memory"):
                self.assertTrue(reference.equal_bits(self.trained(kind, op), want), (op, kind))

    def test_nothing_is_copied_of_autograds(self):
        p = nn.Parameter(torch.zeros(4))
        for backward in (lambda: (p * 2).sum().backward(), lambda: [(p * 2).sum().backward() for _ in range(2)]):
            opt = pbox.torch.SGD([p], 1.0, slots=2, **ALONE)
            backward()
            at = p.grad.data_ptr()
            opt.step()
            self.assertEqual(opt._strategy.tree._stack[0][0][0].data_ptr(), at)
            opt.close()
            p.grad = None


class Frozen(nn.Module):
    """A frozen layer, batch norm, and buffers of other types."""

    def __init__(self, seed, large=0):
        super().__init__()
        g = torch.Generator().manual_seed(seed)
        self.base, self.norm, self.head = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=g))
        self.base.requires_grad_(False)
        odd = torch.tensor([0x7fc00001 + seed, -1 << 31, 1], dtype=torch.int32).view(torch.float32)  # a NaN with a payload, -0.0, the smallest
        self.register_buffer("odd", odd)
        self.register_buffer("ids", torch.arange(5) + seed)
        self.register_buffer("mask", torch.tensor([True, False, seed > 0]), persistent=False)
        self.register_buffer("one", torch.tensor(seed, dtype=torch.float64))
        self.register_buffer("narrow", torch.tensor([seed], dtype=torch.bfloat16))
        self.register_buffer("large", torch.full((large,), seed, dtype=torch.uint8))

    def forward(self, x):
        return self.head(self.norm(self.base(x)))

    def bits(self):
        return [_model.bytes_of(t).tolist() for t in [*self.parameters(), *self.buffers()] if t is not self.large]


class Schedules(Case):
    """A worker that comes back, or goes by steps of its own, and whose schedule is another one."""

    def setUp(self):
        super().setUp()
        _model._warned = True
        patch = unittest.mock.patch.object(_rates, "EVERY", 0.0)
        patch.start()
        self.addCleanup(patch.stop)

    def back(self, come, rates=((1.0, 0.25),) * 2, follow=True):
        """Two workers with policy shrink make 5 rounds; then worker 1 is another process, which come(optimiser) makes ready, and both make 4 more."""
        done = threading.Barrier(2)

        def make(w, again=False):
            p = nn.Parameter(torch.zeros(2))
            opt = pbox.torch.SGD([p], 1.0, worker=w, workers=2, policy="shrink", timeout=10.0, **HERE)
            if not again:
                opt.follow(torch.optim.lr_scheduler.StepLR(opt, 2, 0.5))
            return p, opt

        def steps(p, opt, n):
            for _ in range(n):
                p.grad = torch.ones(2)
                opt.step()

        def worker(w):
            p, opt = make(w)
            steps(p, opt, 5)
            done.wait(20)
            if w == 1:
                opt.close()
                p, opt = make(w, True)
                self.assertTrue(opt._returns.back)
                come(opt)
            done.wait(20)
            try:
                steps(p, opt, 4)
            except pbox.PBoxError as e:
                self.lib.left_text = "a worker has left"
                return e
            finally:
                opt.close()
            return p.tolist(), opt.param_groups[0]["lr"]
        return workers.run(2, worker)

    def test_with_follow(self):
        want = -sum(0.5 ** (k // 2) for k in range(9))
        for out in self.back(lambda opt: opt.follow(torch.optim.lr_scheduler.StepLR(opt, 2, 0.5))):
            self.assertEqual(out, ([want] * 2, 0.5 ** 4))

    def test_with_a_fresh_one(self):
        left, e = self.back(lambda opt: torch.optim.lr_scheduler.StepLR(opt, 2, 0.5))
        self.assertIsInstance(e, pbox.PBoxMismatch)
        self.assertRegex(str(e), "worker 1 has come back to a running job, .* worker 0 has made round 5: lr of group 0=0.25 there and lr of group 0=1 here.*follow")
        self.assertIsInstance(left, pbox.PBoxDeadline)
        sets = [v for c, w, g, v in (c for c in self.lib.calls if c[0] == "set") if w == 1]
        self.assertEqual([v["lr"] for v in sets], [1.0, 0.5, 0.25])

    def test_with_slots(self):
        """Nobody can read the job's values there: they stay as they are."""
        def worker(w):
            p = nn.Parameter(torch.zeros(2))
            opt = pbox.torch.SGD([p], 0.25, worker=w, workers=2, policy="shrink", slots=2, **HERE)
            p.grad = torch.ones(2)
            opt.step()
            meet.wait(20)
            if w == 1:
                opt.close()
                p = nn.Parameter(torch.zeros(2))
                opt = pbox.torch.SGD([p], 1.0, worker=w, workers=2, policy="shrink", slots=2, **HERE)
            meet.wait(20)
            for _ in range(2):
                p.grad = torch.ones(2)
                opt.step()
                if w == 1:
                    opt.param_groups[0]["lr"] = 50.0
            opt.close()
            return p.tolist()
        meet = threading.Barrier(2)
        with self.assertLogs("pbox", "WARNING") as log:
            self.assertEqual(workers.run(2, worker), [[-0.75] * 2] * 2)
        self.assertIn("leaves them to the others", " ".join(log.output))

    def eager(self, w, lr, follow, n=2):
        p = nn.Parameter(torch.zeros(2))
        opt = pbox.torch.Eager(torch.optim.SGD([p], lr), staleness=None, resume=True, worker=w, workers=n, **HERE)
        turn = torch.optim.lr_scheduler.StepLR(opt, 3, 0.1)
        return p, opt, opt.follow(turn) if follow else turn

    def test_eager_goes_on(self):
        def run(p, opt, turn, follow, n):
            for _ in range(n):
                p.grad = torch.ones(2)
                opt.step()
                if not follow:
                    turn.step()
            return opt.param_groups[0]["lr"]
        for follow in (True, False):
            made = self.eager(0, 1.0, follow, 1)
            run(*made, follow, 7)
            self.lib.jobs["j"].members["another"] = type("", (), {"waiting": [], "job": self.lib.jobs["j"]})()  # the run goes on
            made[1].close()
            p, opt, turn = made = self.eager(0, 1.0, follow, 1)
            self.assertEqual(opt.steps, 7)
            self.assertAlmostEqual(run(*made, follow, 1), 0.01 if follow else 1.0)
            opt.close()
            self.lib.jobs.clear()
        with self.assertRaisesRegex(pbox.PBoxInvalid, "ReduceLROnPlateau"):
            p, opt, _ = self.eager(0, 1.0, True, 1)
            opt.follow(torch.optim.lr_scheduler.ReduceLROnPlateau(opt))
        with self.assertRaisesRegex(pbox.PBoxInvalid, "no last_epoch"):
            opt.follow(torch.optim.lr_scheduler.ChainedScheduler([torch.optim.lr_scheduler.StepLR(opt, 3)]))

    def test_eager_rates(self):
        """50 times as high at one of three, or only later: said once, with both values and the step."""
        for rates, late, text in (((0.1, 5.0, 0.1), 0, "worker 1 has made its step [0-7] with lr of group 0=5 there and lr of group 0=0.1 here, at worker [02]"),
                                  ((0.1, 0.1, 0.1), 4, "worker 1 has made its step [4-7] with lr of group 0=0.7 there and lr of group 0=0.1 here, at worker [02]"),
                                  ((0.1, 0.1, 0.1), 0, "")):
            def worker(w):
                p = nn.Parameter(torch.zeros(2))
                opt = pbox.torch.Eager(torch.optim.SGD([p], rates[w]), staleness=None, worker=w, workers=3, **HERE)
                for k in range(8):
                    if late and k == late and w == 1:
                        opt.param_groups[0]["lr"] = 0.7
                    p.grad = torch.ones(2)
                    opt.step()
                    opt.state_dict()
                    pbox.torch.all_reduce(torch.zeros(1), client=opt.client)
                opt.close()
            with self.assertLogs("pbox", "WARNING") as log:
                logging.getLogger("pbox").warning("-")
                workers.run(3, worker)
            self.close_all()
            said = [t for t in log.output if "has made its step" in t and "at worker 1:" not in t]
            self.assertEqual(len(said), 2 if text else 0, log.output)
            for t in said:
                self.assertRegex(t, text)

    def test_rows(self):
        for said in (_rates.Said(0, ()), _rates.Said(70000, (0.1, -1e-300, 1e16, 0.0)), _rates.Said(2 ** 32 - 1, (float("inf"),) * 9)):
            row = _rates._row(said)
            self.assertTrue(all(0 <= x < 65537 for x in row))
            self.assertEqual(_rates._said([float(x) for x in row]), said)
            if said.values:
                row[-1] ^= 1
                self.assertIsNone(_rates._said(row))


class ComputeAlike(Case):
    """Whether the same slot can have the same bits at two workers."""

    def said(self, change=None, data=None, rounds=2):
        datasets = data or [TensorDataset(torch.arange(24.0))] * 2

        def worker(w):
            p = nn.Parameter(torch.zeros(1))
            opt = pbox.torch.SGD([p], 1.0, slots=4, worker=w, workers=2, model=nn.ParameterList([p]), **HERE)
            opt.sampler(datasets[w], 8, 5)
            for _ in range(rounds * 2):
                p.grad = torch.ones(1)
                opt.step()
            opt.close()

        def mine(samples, device, real=_alike.Alike._mine):
            values = list(real(samples, device))
            if change is not None and threading.current_thread() is not first[0]:
                values[change[0]] = change[1]
            return tuple(values)
        first = []

        def first_of(w):
            if w == 0:
                first.append(threading.current_thread())
            ready.wait(10)
            worker(w)
        ready = threading.Barrier(2)
        with unittest.mock.patch.object(_alike.Alike, "_mine", staticmethod(mine)), self.assertLogs("pbox", "WARNING") as log:
            logging.getLogger("pbox").warning("-")
            workers.run(2, first_of)
        self.close_all()
        return [t for t in log.output if "do not compute alike" in t]

    def test_each(self):
        self.assertEqual(self.said(), [])
        for change, text in (((0, "9.9.9"), r"\(torch: 9.9.9 at worker 1, 1\S+ at worker 0\)|\(torch: \S+ at worker 0, 9.9.9 at worker 1\)"),
                             ((1, "64"), "threads: 64 at worker 1, .* at worker 0|threads: .* at worker 0, 64 at worker 1"),
                             ((2, "AVX7"), "CPU path: AVX7 at worker 1|CPU path: .* at worker 0, AVX7 at worker 1")):
            said = self.said(change)
            self.assertEqual(len(said), 2)  # of each worker, in the first round alone
            for t in said:
                self.assertRegex(t, text)

    def test_samples(self):
        """As many, in another order; and the same ones."""
        a, b = torch.randn(24, generator=torch.Generator().manual_seed(1)), {"x": 1, "y": [2.5, "z"]}
        for data, differ in (([TensorDataset(a), TensorDataset(a.flip(0))], True), ([TensorDataset(a), TensorDataset(a.clone())], False),
                             ([[dict(b, i=i) for i in range(24)], [dict(b, i=23 - i) for i in range(24)]], True)):
            said = self.said(data=data)
            self.assertEqual(len(said), 2 if differ else 0)
            for t in said:
                self.assertRegex(t, r"samples of the first round: \w+ at worker \d, \w+ at worker \d")


class ByData(Case):
    """p.data.mul_() leaves no trace but in the contents, and would be overwritten."""

    def trained(self, change, steps=200, n=40):
        """After how many steps is it found?"""
        params = [nn.Parameter(torch.ones(i % 7 + 1)) for i in range(n)]
        opt = pbox.torch.SGD(params, 1e-3, **ALONE)
        for k in range(steps):
            for p in params:
                p.grad = torch.ones_like(p)
            try:
                opt.step()
            except pbox.PBoxInvalid as e:
                self.assertIn("was changed outside of step()" if n == 1 else "outside of step()", str(e))
                return k
            finally:
                if k == steps - 1:
                    opt.close()
            change(k, params)
        return None

    def test_all(self):
        """Whenever it happens: the next step."""
        for when in (0, 5, 63, 70, 101):
            for fn in (lambda p: p.data.mul_(0.5), lambda p: p.data.clamp_(-0.1, 0.1), lambda p: p.data.add_(1e-7)):
                self.assertEqual(self.trained(lambda k, params: [fn(p) for p in params] if k == when else None), when + 1)

    def test_one(self):
        """One parameter, in each step: within the next ones."""
        for i in (0, 17, 39):
            found = self.trained(lambda k, params: params[i].data.mul_(0.999) if k >= 10 else None)
            self.assertIsNotNone(found)
            self.assertLessEqual(found, 10 + 41)
        self.assertIsNone(self.trained(lambda k, params: None))

    def test_contents(self):
        """Each bit counts, at each place of a memory."""
        flat = torch.arange(20.0)
        for begin in (0, 1, 2, 3):
            for n in (0, 1, 2, 3, 8, 9):
                t = flat[begin:begin + n]
                was = _content.of(t)
                for i in range(n):
                    for bit in (0, 22, 31):
                        t.view(torch.int32)[i] ^= (1 << bit) if bit < 31 else -(1 << 31)
                        self.assertNotEqual(_content.of(t), was)
                        t.view(torch.int32)[i] ^= (1 << bit) if bit < 31 else -(1 << 31)
                self.assertEqual(_content.of(t), was)


class Buffers(Case):
    """sync_buffers makes the mean of what differs; a mean of equal ones may have other bits."""

    def module(self, w, double=0.0):
        m = nn.BatchNorm1d(3)
        m.running_mean.fill_(w + 1.0)
        m.register_buffer("mask", torch.full((4,), torch.finfo(torch.float32).min))
        m.register_buffer("tenth", torch.tensor([0.1, -0.0, float("-inf"), 1e-45]))
        m.register_buffer("narrow", torch.tensor([0.1], dtype=torch.bfloat16))
        m.register_buffer("wide", torch.tensor([0.1 + double], dtype=torch.float64))
        m.register_buffer("nothing", torch.zeros(0))
        alias = torch.full((2,), float(w))
        m.register_buffer("one", alias)
        m.register_buffer("same", alias[:1])
        return m

    def test_equal_ones_stay(self):
        def worker(w):
            c = pbox.Client("box", "j", "s", w, 3)
            m = self.module(w)
            for _ in range(2):
                pbox.torch.sync_buffers(m, client=c)
            tables = len(self.lib.jobs["j"].tables)
            pbox.torch.sync_buffers(m, client=c)
            self.assertEqual(len(self.lib.jobs["j"].tables), tables)
            c.close()
            return m
        for m in workers.run(3, worker):
            want = self.module(0)
            self.assertEqual((m.running_mean.tolist(), m.one.tolist(), m.same.tolist()), ([2.0] * 3, [1.0] * 2, [1.0]))
            for name in ("mask", "tenth", "running_var", "narrow", "wide"):
                self.assertEqual(_model.bytes_of(m.get_buffer(name)).tolist(), _model.bytes_of(want.get_buffer(name)).tolist(), name)

    def test_names(self):
        def worker(w):
            c = pbox.Client("box", "j", "s", w, 3)
            try:
                pbox.torch.sync_buffers(nn.Sequential(self.module(w, float(w))), client=c)
            except pbox.PBoxInvalid as e:
                return str(e)
            finally:
                c.close()
        for text in workers.run(3, worker):
            self.assertRegex(text, r"buffer '0.wide' has dtype torch.float64, and differs between workers")


class Shards(Sampler):
    """What trainers put around a batch_sampler: every second batch."""

    def __init__(self, inner):
        self.inner = inner

    def __len__(self):
        return len(self.inner) // 2

    def __iter__(self):
        for i, batch in enumerate(self.inner):
            if i % 2 == 1:
                yield batch


class Batches(Case):
    """A batch belongs to a slot; step() of another one is an error."""

    SLOTS, ROUNDS = 4, 3

    def setUp(self):
        super().setUp()
        self.data = TensorDataset(torch.arange(4.0 * self.SLOTS * self.ROUNDS))

    def run_with(self, feed, processes=0, limit=None, **kw):
        """What the steps were made of, with feed(optimiser, loader) as the loop's batches."""
        p = nn.Parameter(torch.zeros(1))
        opt = pbox.torch.SGD([p], 1.0, slots=self.SLOTS, **ALONE)
        seen = []
        try:
            sampler = opt.sampler(self.data, 4 * self.SLOTS, 5, **kw)
            loader = DataLoader(self.data, batch_sampler=Shards(sampler) if feed is None else sampler, num_workers=processes)
            for (x,) in (loader if feed is None else feed(opt, loader)):
                seen += x.tolist()
                # as dropout has it
                (p * torch.rand(1) * x.sum()).sum().backward()
                opt.step()
                if len(seen) == limit:
                    break
            return seen, p.item()
        finally:
            opt.close()

    @staticmethod
    def ahead(opt, loader):
        held = None
        for batch in loader:
            if held is not None:
                yield held
            held = batch
        yield held

    @staticmethod
    def skips(opt, loader):
        for i, batch in enumerate(loader):
            if i >= 2:
                yield batch

    def refused(self, feed, text, **kw):
        with self.assertRaisesRegex(pbox.PBoxMismatch, text):
            self.run_with(feed, **kw)

    def test_as_it_should_be(self):
        want = self.run_with(lambda opt, loader: loader)
        self.assertEqual(sorted(want[0]), list(range(len(self.data))))
        for processes in (0, 1, 2):
            self.assertEqual(self.run_with(lambda opt, loader: loader, processes), want)
            self.assertEqual(self.run_with(self.ahead, processes, early=1), want)

    def test_others(self):
        for processes in (0, 2):
            self.refused(self.skips, r"step\(\) ends slot 0 of round 0, and the last batch that was taken is that of slot 2 of round 0", processes=processes)
            self.refused(self.ahead, r"ends slot 0 of round 0, .* that of slot 1 of round 0.*early=n", processes=processes)
            self.refused(lambda opt, loader: itertools.cycle(loader), r"ends slot 0 of round 3, .* that of slot 3 of round 2", processes=processes)
            self.refused(None, r"step\(\) ends slot \d of round \d, and the last batch that was taken is that of slot", processes=processes)

    def test_loader(self):
        def trained(feed):
            p = nn.Parameter(torch.zeros(1))
            opt = pbox.torch.SGD([p], 1.0, slots=self.SLOTS, **ALONE)
            seen = []
            try:
                for (x,) in feed(opt, opt.loader(self.data, 4 * self.SLOTS, 5)):
                    seen += x.tolist()
                    p.grad = x.sum().reshape(1)
                    opt.step()
                return seen
            finally:
                opt.close()
        self.assertEqual(sorted(trained(lambda opt, loader: loader)), list(range(len(self.data))))
        for feed in (self.skips, self.ahead):
            with self.assertRaisesRegex(pbox.PBoxMismatch, r"batch of slot 0 of round 0 was taken from loader\(\), no step\(\) has ended"):
                trained(feed)

    def test_a_thread_that_fetches(self):
        """Its batches seed the generators in the middle of a forward pass."""
        def feed(opt, loader):
            q = queue.Queue(1)

            def fetch():
                for batch in loader:
                    q.put(batch)
                q.put(None)
            t = threading.Thread(target=fetch, name="prefetcher", daemon=True)
            t.start()
            try:
                while True:
                    batch = q.get(timeout=30)
                    if batch is None:
                        return
                    yield batch
            finally:
                while t.is_alive():
                    with contextlib.suppress(queue.Empty):
                        q.get(timeout=0.01)
        for processes in (0, 1):
            with self.assertRaisesRegex(pbox.PBoxInvalid, "thread 'prefetcher' fetches the batches, and 'MainThread' trains"):
                self.run_with(feed, processes)

    def test_another_thread_for_all(self):
        out = workers.run(1, lambda w: self.run_with(lambda opt, loader: loader))
        self.assertEqual(sorted(out[0][0]), list(range(len(self.data))))


class States(Case):
    """What an optimiser does not have of the model: workers that differ in it train different models."""

    def setUp(self):
        super().setUp()
        _model._warned = False
        self.makes = {"box": lambda m, **kw: pbox.torch.SGD([p for p in m.parameters() if p.requires_grad], 0.1, **kw),
                      "slots": lambda m, **kw: pbox.torch.SGD(m.parameters(), 0.1, slots=4, **kw),
                      "shrink": lambda m, **kw: pbox.torch.Adam(m.parameters(), policy="shrink", **kw),
                      "eager": lambda m, **kw: pbox.torch.Eager(torch.optim.SGD(m.parameters(), 0.1), **kw)}

    def made(self, make, seeds, large=0, **kw):
        """Models, and errors, of workers with these seeds."""
        def worker(w):
            m = Frozen(seeds[w], large)
            try:
                opt = make(m, model=m, worker=w, workers=len(seeds), declare_timeout=10.0, **HERE, **kw)
            except pbox.PBoxError as e:
                return m, e
            pbox.torch.all_reduce(torch.zeros(1), client=opt.client)  # tables of all go on alike
            opt.close()
            return m, None
        out = workers.run(len(seeds), worker)
        self.close_all()
        return out

    def test_worker_0s_are_everybodys(self):
        want = Frozen(7).bits()
        for kind, make in self.makes.items():
            with self.assertLogs("pbox", "WARNING") as log:
                out = self.made(make, (7, 8, 7))
            for m, e in out:
                self.assertIsNone(e, kind)
                self.assertEqual(m.bits(), want, kind)
            self.assertRegex(log.output[0], "'base.weight', 'base.bias', 'odd', 'ids' and 2 more of the model differed between workers")

    def test_equal_ones_send_nothing(self):
        self.made(self.makes["box"], (7, 7))
        sent = [c for c in self.lib.calls if c[0] == "submit" and c[3] == _lib.PUSHPULL]
        self.assertEqual(len(sent), 6)  # two workers: digests, and the test's own all_reduce, with what it agrees on

    def test_ignored(self):
        for ignore in (["*"], ["base.*", "odd", "ids", "mask", "one", "narrow", "large", "norm.*"]):
            out = self.made(self.makes["box"], (7, 8), ignore=ignore)
            self.assertEqual([int(m.one) for m, _ in out], [7, 8])
        _, e = self.made(self.makes["box"], (7,), ignore=["no"])[0]
        self.assertRegex(str(e), "ignore has 'no', and the model has no such")

    def test_too_large(self):
        with unittest.mock.patch.object(_model, "MOST_BYTES", 1 << 20):
            for m, e in self.made(self.makes["box"], (7, 8), large=2 << 20):
                self.assertIsInstance(e, pbox.PBoxMismatch)
                self.assertRegex(str(e), "'base.weight'.* differ between workers, 2 MiB, and 1 MiB at most are sent")
                self.assertIn(int(m.one), (7, 8))
        out = self.made(self.makes["box"], (7, 8), large=300001)
        self.assertEqual([m.large.unique().tolist() for m, _ in out], [[7]] * 2)

    def test_without_model(self):
        m = nn.Linear(2, 2)
        with self.assertLogs("pbox", "WARNING") as log:
            for _ in range(2):
                workers.run(2, lambda w: pbox.torch.SGD(copy.deepcopy(m).parameters(), 0.1, worker=w, workers=2, **HERE).close())
        self.assertEqual(len([t for t in log.output if "has no model=" in t]), 1)
        with self.assertRaisesRegex(pbox.PBoxInvalid, "pass model= as well"):
            pbox.torch.SGD(m.parameters(), 0.1, ignore=["x"], **ALONE)
        with self.assertRaisesRegex(pbox.PBoxInvalid, "none of this optimiser's parameters"):
            pbox.torch.SGD(m.parameters(), 0.1, model=nn.Linear(2, 2), **ALONE)
        with self.assertRaisesRegex(pbox.PBoxInvalid, "model is a OrderedDict|needed is a torch.nn.Module"):
            pbox.torch.SGD(m.parameters(), 0.1, model=m.state_dict(), **ALONE)

    def test_a_state_of_the_start(self):
        """A worker that comes to a running job: frozen ones must be alike, and buffers that change are an error at its first step."""
        m, out = Frozen(7), None
        state = _model.ModelState(m, (), [p for p in m.parameters() if p.requires_grad])
        known = torch.frombuffer(bytearray(b"".join(state.digests)), dtype=torch.float32)
        for seed, resumed in ((7, False), (7, True), (8, False), (8, True)):
            other = Frozen(seed)
            late = _model.ModelState(other, (), [p for p in other.parameters() if p.requires_grad])
            try:
                late._compare(known, resumed)
                out = None
            except pbox.PBoxMismatch as e:
                out = str(e)
            self.assertEqual(out is None, seed == 7)
        late = _model.ModelState(m, (), [p for p in m.parameters() if p.requires_grad])
        late.comes_late()
        m(torch.randn(4, 3))
        with self.assertRaisesRegex(pbox.PBoxMismatch, "'norm.running_mean', 'norm.running_var', 'norm.num_batches_tracked' of the model change in training"):
            late.first_step()
        late.first_step()
        late = _model.ModelState(m, ["norm.*"], [p for p in m.parameters() if p.requires_grad])
        late.comes_late()
        m(torch.randn(4, 3))
        late.first_step()


if __name__ == "__main__":
    unittest.main()
