# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""pbox.torch.Eager against the fake of the library: python3 -m unittest discover tests"""

import copy
import unittest

import torch
from torch import nn

import pbox
import pbox.torch
from pbox import _lib
from tests import workers
from tests.fake_box import FakeLib


class Case(unittest.TestCase):
    def setUp(self):
        self.lib = FakeLib()
        _lib.use(self.lib)
        self.addCleanup(_lib.use, None)

    def eager(self, inner, worker=0, n=1, **kw):
        return pbox.torch.Eager(inner, box="box", job="j", secret="s", worker=worker, workers=n, **kw)


def model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def backward(m, k=0):
    x = torch.arange(6.0).reshape(2, 3) / (k + 3)
    for p in m.parameters():
        p.grad = None
    m(x).square().sum().backward()


class Steps(Case):
    def test_one_worker_is_torch(self):
        for kind, kw in ((torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}), (torch.optim.Adam, {"lr": 0.01})):
            for staleness in ("rel", "inv", "inv_n", None, lambda v: 1.0):
                m, like = model(), model()
                opt, plain = self.eager(kind(m.parameters(), **kw), staleness=staleness), kind(like.parameters(), **kw)
                turns = [torch.optim.lr_scheduler.StepLR(o, 2, 0.5) for o in (opt, plain)]
                for k in range(5):
                    for mm, o, turn in ((m, opt, turns[0]), (like, plain, turns[1])):
                        backward(mm, k)
                        o.step()
                        turn.step()
                self.assertEqual(opt.param_groups[0]["lr"], plain.param_groups[0]["lr"])
                opt.refresh()
                for p, q in zip(m.parameters(), like.parameters()):
                    torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
                want = plain.state_dict()
                self.assertEqual(str(opt.state_dict()["param_groups"]), str(want["param_groups"]))
                self.assertEqual(opt.state_dict()["state"].keys(), want["state"].keys())
                opt.close()

    def test_two_workers(self):
        models = [model(0), model(1)]  # torch's generator is the process's

        def work(rank):
            m = models[rank]
            opt = self.eager(torch.optim.SGD(m.parameters(), lr=0.05), rank, 2)
            begin = [p.detach().clone() for p in m.parameters()]
            pbox.torch.all_reduce(torch.zeros(1), client=opt.client)  # nobody pushes before all have begun
            for k in range(6):
                backward(m, k)
                opt.step()
            opt.state_dict()
            pbox.torch.all_reduce(torch.zeros(1), client=opt.client)
            opt.refresh()
            end = [p.detach().clone() for p in m.parameters()]
            pbox.torch.all_reduce(torch.zeros(1), client=opt.client)
            opt.close()
            return begin, end

        (b0, e0), (b1, e1) = workers.run(2, work)
        # worker 0's are everybody's, with the updates that it has pushed since
        for b, x, y, other in zip(b0, b1, model(0).parameters(), model(1).parameters()):
            self.assertTrue(torch.equal(b, y))
            self.assertFalse(torch.equal(x, other))
        for x, y in zip(e0, e1):
            self.assertTrue(torch.equal(x, y))

    def test_no_number(self):
        """A gradient with a NaN or an infinity changes nothing, here or at the box, and the next step goes on."""
        m = model()
        opt = self.eager(torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9))
        for bad in (float("nan"), float("inf"), -float("inf")):
            backward(m)
            before, state = [p.detach().clone() for p in m.parameters()], copy.deepcopy(opt.state_dict())
            m[2].weight.grad[0, 1] = bad
            with self.assertRaisesRegex(pbox.PBoxInvalid, "the gradient of '.*' has a NaN or an infinity"):
                opt.step()
            for p, b in zip(m.parameters(), before):
                self.assertTrue(torch.equal(p, b))
            self.assertEqual(str(opt.state_dict()), str(state))
            backward(m)
            opt.step()
        self.assertEqual(opt.steps, 3)
        opt.refresh()
        self.assertTrue(all(torch.isfinite(p).all() for p in m.parameters()))
        opt.close()

    def test_staleness(self):
        """Another worker pushes three times between the pulls of this one."""
        def work(rank):
            p = nn.Parameter(torch.zeros(2))
            opt = self.eager(torch.optim.SGD([p], lr=1.0), rank, 2, staleness=("inv_n", None)[rank])
            self.meet(opt)
            if rank == 1:
                for _ in range(3):
                    p.grad = torch.ones(2)
                    opt.step()
                opt.state_dict()
            self.meet(opt)
            factors = []
            if rank == 0:
                for _ in range(3):
                    p.grad = -torch.ones(2)
                    opt.step()
                    factors.append((opt.tau, opt.factor))
            self.meet(opt)
            opt.refresh()
            opt.close()
            return factors, p.tolist()

        (factors, value), (_, other) = workers.run(2, work)
        self.assertEqual(factors, [(0.0, 1.0), (3.0, 0.5), (0.0, 1.0)])
        self.assertEqual(value, [-0.5, -0.5])
        self.assertEqual(value, other)

    def meet(self, opt):
        pbox.torch.all_reduce(torch.zeros(1), client=opt.client)

    def test_dropped(self):
        p = nn.Parameter(torch.zeros(2))
        opt = self.eager(torch.optim.SGD([p], lr=1.0), staleness=lambda v: 0)
        p.grad = torch.ones(2)
        opt.step()
        opt.refresh()
        self.assertEqual(p.tolist(), [0, 0])
        opt._staleness = lambda v: float("nan")
        with self.assertRaisesRegex(pbox.PBoxInvalid, "nan"):
            opt.step()
        opt.close()


class Bound(Case):
    def test_one_that_has_done_its_steps_does_not_stop_the_others(self):
        """Worker 0 makes 3 steps and waits in all_reduce(); pulls with bound 2 of worker 1 wait for its clock."""
        opts, ended = {}, []

        def work(rank):
            m = model()
            opt = opts[rank] = self.eager(torch.optim.SGD(m.parameters(), lr=0.05), rank, 2, bound=2, staleness=None)
            for k in range(3):
                backward(m, k)
                opt.step()
            for k in range(3, 12 if rank else 3):
                self.assertTrue(workers.within(10, lambda: opts[0].steps >= k - 2), f"worker 0 is at {opts[0].steps}, and step {k} waits for it")
                backward(m, k)
                opt.step()
            pbox.torch.all_reduce(torch.zeros(1), client=opt.client)
            ended.append([p.detach().clone() for p in m.parameters()])
            opt.close()

        workers.run(2, work)
        self.assertGreaterEqual(opts[0].steps, 9)
        for a, b in zip(*ended):
            self.assertTrue(torch.isfinite(a).all())


class Refused(Case):
    def refuses(self, text, inner, **kw):
        with self.assertRaisesRegex(pbox.PBoxInvalid, text):
            self.eager(inner, **kw)

    def test_made(self):
        m = model()
        sgd = torch.optim.SGD(m.parameters(), lr=0.1)
        self.refuses("staleness is 'no'", sgd, staleness="no")
        self.refuses("Eager: slots with clocks: ", sgd, slots=4)
        self.refuses("Eager: policy reassign with clocks: ", sgd, policy="reassign")
        self.refuses("in_flight is 0", sgd, in_flight=0)
        self.refuses("push is 'bf16'", sgd, push="bf16")
        self.refuses("Eager: clocks with results in blocks: ", sgd, pull="int8")
        self.refuses("torch.optim", m)
        self.refuses("float64", torch.optim.SGD([nn.Parameter(torch.zeros(2, dtype=torch.float64))], lr=1))
        self.refuses("not dense", torch.optim.SGD([nn.Parameter(torch.zeros(1).expand(3))], lr=1))
        for p in m.parameters():
            p.requires_grad_(False)
        self.refuses("nothing to train", sgd)

    def test_stepped(self):
        for change, text in ((lambda m: m[0].weight.data.clamp_(0, 0), "changed outside of step"),
                             (lambda m: m.double(), "moved or converted"),
                             (lambda m: setattr(m[2].bias, "grad", torch.ones(1)), "was frozen"),
                             (lambda m: setattr(m[0].bias, "grad", torch.zeros(4).to_sparse()), "sparse")):
            m = model()
            m[2].bias.requires_grad_(False)
            opt = self.eager(torch.optim.SGD(m.parameters(), lr=0.1))
            backward(m)
            opt.step()
            backward(m)
            change(m)
            with self.assertRaisesRegex(pbox.PBoxInvalid, text):
                opt.step()
            with self.assertRaisesRegex(pbox.PBoxInvalid, "cannot be added"):
                opt.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
            opt.close()

    def test_copy(self):
        opt = self.eager(torch.optim.SGD(model().parameters(), lr=0.1))
        with self.assertRaisesRegex(pbox.PBoxInvalid, "is a copy"):
            copy.deepcopy(opt).step()
        opt.close()

    def test_pull_is_late(self):
        p = nn.Parameter(torch.zeros(2))
        opt = self.eager(torch.optim.SGD([p], lr=1.0), staleness=None, timeout=0.05)
        self.lib.hold = True
        p.grad = torch.ones(2)
        opt.step()
        with self.assertRaises(pbox.PBoxDeadline):
            opt.step()
        with self.assertRaisesRegex(pbox.PBoxInvalid, "call wait"):
            opt.step()
        self.lib.release()
        opt.wait()
        self.assertEqual((opt.steps, p.tolist()), (2, [-2, -2]))
        opt.close()
