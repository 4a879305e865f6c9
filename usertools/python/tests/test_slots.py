# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Slots: the sums along the tree, the sampler, and trainings with any number of workers, against the fake of
the library."""

import array
import logging
import itertools
import pickle
import random
import threading
import unittest

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

import pbox
import pbox.torch
from pbox import _lib
from pbox.torch import _agree, _session, _slots, reference
from pbox.torch._slots import Batch, SlotLoader, Slots, SlotSampler
from pbox.torch._stale import LooseTree, Stale, early_first, quarters_of
from pbox.torch._tree import Tree, separate
from pbox.torch._work import Work
from tests import fake_box, workers
from tests.fake_box import FakeLib
from tests.test_torch import FakeBucket, FakeDDP

HERE = dict(box="box", job="j", secret="s")
BITS = reference.equal_bits
SEED_GENERATORS = _slots.seed_generators


class Trees(unittest.TestCase):
    """Each range of slots, and each way to give slots to workers."""

    V = 13

    def setUp(self):
        g = torch.Generator().manual_seed(3)
        # of some slots nothing, a -0.0, and magnitudes whose sums depend on the order
        self.values = [torch.randn(7, generator=g) * 2.0 ** (s % 5) for s in range(self.V)]
        for v in self.values:
            v[0] = -0.0
        self.absent = {2, 3, 6, 12}

    def value(self, s, i):
        """Of parameter 0 each slot has a gradient, of 1 some have none, of 2 all have none."""
        if i == 2 or (i == 1 and s in self.absent):
            return None
        return self.values[s].clone()

    def want(self, s, i):
        v = self.value(s, i)
        return torch.zeros(7) if v is None else v

    def brought(self, first, end):
        """(node, its sums) of the range first to end - 1, and the most buffers that were in use."""
        job = fake_box.Job(1, self.V)
        # the nodes of the range, of the fake: it finds them for workers
        at, nodes = first, []
        while at < end:
            size = max(n for n in (1, 2, 4, 8, 16) if at % n == 0 and min(at + n, self.V) <= end)
            nodes.append((at, min(size, self.V - at)))
            at += nodes[-1][1]
        if (first, end) == (0, self.V):
            self.assertEqual(nodes, job.nodes(0))
        tree, most = Tree(nodes), 0
        for s in range(first, end):
            self.assertFalse(tree.complete)
            tree.add([self.value(s, i) for i in range(3)], s + 1)
            most = max(most, tree.buffers)
        self.assertTrue(tree.complete)
        return nodes, tree, most

    def test_every_range(self):
        for first in range(self.V):
            for end in range(first + 1, self.V + 1):
                nodes, tree, most = self.brought(first, end)
                for (at, n), sums, samples in zip(nodes, tree.done, tree.samples):
                    self.assertEqual(samples, sum(range(at + 1, at + n + 1)))
                    for i in range(2):
                        want = reference.tree_sum({s: self.want(s, i) for s in range(at, at + n)})
                        got = sums[i]
                        if got is None:
                            got = torch.zeros(7)
                        self.assertTrue(BITS(got, want), (first, end, at, n, i))
                    self.assertIsNone(sums[2])
                k = end - first
                self.assertLessEqual(most, 2 * k.bit_length(), (first, end))
                if len(nodes) == 1:
                    self.assertLessEqual(most, k.bit_length(), (first, end))

    def test_any_division_is_the_same_sum(self):
        want = reference.tree_sum(dict(enumerate(self.values)))
        left = self.values[0].clone()
        for v in self.values[1:]:
            left += v
        self.assertFalse(BITS(left, want))  # so the order shows
        for n in range(1, self.V + 1):
            nodes = {}
            for w in range(n):
                own, tree, _ = self.brought(w * self.V // n, (w + 1) * self.V // n)
                nodes.update({at: sums[0] for (at, _), sums in zip(own, tree.done)})
            self.assertTrue(BITS(reference.tree_sum(nodes), want), n)

    def test_slots_that_go_on_the_way(self):
        """cut(): others get the last slots, at any slot of the round, and other nodes come: sums are those of what is left."""
        for first, end in itertools.combinations(range(self.V + 1), 2):
            nodes, _, _ = self.brought(first, end)
            for stop in range(first + 1, end + 1):
                left, want, _ = self.brought(first, stop)
                for at in range(first + 1, stop + 1):
                    if at == end:
                        continue  # then the last node is complete, and nothing can go
                    tree = Tree(nodes)
                    for s in range(first, at):
                        tree.add([self.value(s, i) for i in range(3)], s + 1)
                    come = [(0, 1)] if first else []
                    tree.cut([*left, *come])
                    for s in [*range(at, stop), *(first for first, _ in come)]:
                        self.assertFalse(tree.complete)
                        tree.add([self.value(s, i) for i in range(3)], s + 1)
                    self.assertTrue(tree.complete)
                    self.assertEqual(tree.samples[:len(left)], want.samples)
                    for mine, theirs in zip(tree.done, want.done):
                        for a, b in zip(mine, theirs):
                            self.assertTrue((a is None) == (b is None) and (a is None or BITS(a, b)), (first, end, stop, at))

    def test_last_slot_tensor_by_tensor(self):
        """complete_with() and finish() make the bits of add(), in any order of the tensors, and leave the gradients as they are."""
        for first in range(self.V):
            for end in range(first + 1, self.V + 1):
                nodes, want, _ = self.brought(first, end)
                tree = Tree(nodes)
                for s in range(first, end - 1):
                    tree.add([self.value(s, i) for i in range(3)], s + 1)
                last = [self.value(end - 1, i) for i in range(3)]
                copies = [None if g is None else g.clone() for g in last]
                sums = {i: tree.complete_with(i, last[i]) for i in (2, 0, 1)}
                tree.finish([sums[i] for i in range(3)], end)
                self.assertTrue(tree.complete)
                self.assertEqual(tree.samples, want.samples)
                for mine, theirs in zip(tree.done, want.done):
                    for a, b in zip(mine, theirs):
                        self.assertTrue((a is None) == (b is None) and (a is None or BITS(a, b)), (first, end))
                for a, b in zip(last, copies):
                    self.assertTrue((a is None) == (b is None) and (a is None or BITS(a, b)), (first, end))

    def test_no_new_memory(self):
        tree = Tree([(0, 8)])
        grads = [[torch.randn(5)] for _ in range(8)]
        first = grads[0][0].data_ptr()
        for g in grads:
            tree.add(g)
        self.assertEqual(tree.done[0][0].data_ptr(), first)
        self.assertEqual([g[0] for g in grads[1:]], [None] * 7)  # nobody keeps them

    def test_gradients_that_share_memory(self):
        a = torch.arange(6.0)
        grads = [a, a.view(6), a[4:], None, torch.zeros(0), torch.ones(2)]
        separate(grads)
        spans = {g.data_ptr() for g in grads if g is not None and g.numel()}
        self.assertEqual(len(spans), 4)
        self.assertTrue(torch.equal(grads[1], torch.arange(6.0)))
        self.assertTrue(torch.equal(grads[2], torch.tensor([4.0, 5.0])))

        # autograd gives both parameters of a sum of views one and the same memory
        p, q = (torch.nn.Parameter(torch.zeros(4)) for _ in range(2))
        tree, want = Tree([(0, 2)]), torch.zeros(4)
        for s in range(2):
            ((p.view(2, 2) + q.view(2, 2)) * (s + 1.0)).sum().backward()
            grads = [p.grad, q.grad]
            separate(grads)
            p.grad = q.grad = None
            tree.add(grads)
            want += s + 1.0
        self.assertTrue(torch.equal(tree.done[0][0], want))
        self.assertTrue(torch.equal(tree.done[0][1], want))


class LooseTrees(Trees):
    """Slots in any order give the sums of slots in order."""

    def test_any_order(self):
        draw = random.Random(1)
        for first in range(self.V):
            for end in range(first + 1, self.V + 1):
                nodes, want, _ = self.brought(first, end)
                tree = LooseTree(nodes, self.V)
                slots = list(range(first, end))
                draw.shuffle(slots)
                for s in slots:
                    self.assertFalse(tree.complete)
                    tree.add(s, [self.value(s, i) for i in range(3)], s + 1)
                self.assertTrue(tree.complete)
                self.assertEqual(tree.slots(), set(slots))
                self.same(tree, want)

    def test_owners_change(self):
        """Of what was computed for other nodes, what these do not cut is taken; the rest is computed again."""
        draw = random.Random(2)
        for _ in range(300):
            a, b = sorted(draw.sample(range(self.V + 1), 2))
            c, d = sorted(draw.sample(range(self.V + 1), 2))
            early = LooseTree(self.brought(a, b)[0], self.V)
            for s in draw.sample(range(a, b), draw.randint(0, b - a)):
                early.add(s, [self.value(s, i) for i in range(3)], s + 1)
            nodes, want, _ = self.brought(c, d)
            tree, had = LooseTree(nodes, self.V), early.slots()
            done = tree.take_over(early)
            self.assertLessEqual(done, had & set(range(c, d)))
            for s in set(range(c, d)) - done:
                tree.add(s, [self.value(s, i) for i in range(3)], s + 1)
            self.assertTrue(tree.complete)
            self.same(tree, want)

    def test_cut_slot_is_the_next_one_again(self):
        """ahead=: a plan that comes with the result cuts the sums of the early slot that was stepped last, and it is this worker's next one: the loader
        gives its batch once more. A batch that was not stepped is still refused."""
        slots = Slots(8, range(4, 8))

        class Training:
            def _with_slots(self, _what):
                return slots

            def _begins(self):
                pass

            _goes_on = _idle = _begins

        work = Work.__new__(Work)
        work._slots, work._stale, work.tree = slots, Stale(4, []), LooseTree([(7, 1)], 8)
        work._stale.next = LooseTree([(4, 4)], 8)
        batches = iter(SlotLoader(Training(), SlotSampler(slots, range(64), 8), [torch.tensor(i) for i in range(64)], {}))
        first = []
        for s in range(4, 8):  # round 0 is pushed: these are early ones of the next
            first.append(next(batches))
            work._stale.next.add(s, [torch.ones(1)], 1)
            slots.count = (slots.count + 1) % 4 if s < 7 else 3
        slots.mine = (7,)
        work.takes_early()
        self.assertEqual((slots.mine, slots.count), ((7,), 0))
        self.assertTrue(torch.equal(next(batches), first[-1]))
        with self.assertRaises(pbox.PBoxMismatch):
            next(batches)

    def same(self, tree, want):
        self.assertEqual(tree.samples, want.samples)
        for mine, theirs in zip(tree.done, want.done):
            for a, b in zip(mine, theirs):
                self.assertTrue((a is None) == (b is None) and (a is None or BITS(a, b)))

    def test_share(self):
        self.assertEqual([quarters_of(x) for x in (0.25, 0.5, 0.75, 1, 1.0)], [1, 2, 3, 4, 4])
        for wrong in (0.3, 1.25, -0.25, 2):
            with self.assertRaisesRegex(pbox.PBoxInvalid, "0.25, 0.5, 0.75 or 1"):
                quarters_of(wrong)
        self.assertEqual(early_first(range(1, 8), 2), (1, 4, 5, 2, 3, 6, 7))


class Numbers(Dataset):
    """Samples with an augmentation that draws from torch's and Python's generators."""

    def __init__(self, n):
        g = torch.Generator().manual_seed(9)
        self.x = torch.randn(n, 6, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x = self.x[i] + 0.01 * torch.randn(6) + 0.01 * random.random()
        return x, (x.sum() * 2).sin(), i


class Samplers(unittest.TestCase):
    def sampler(self, n=100, total=8, mine=range(8), **kw):
        slots = Slots(total, mine)
        return SlotSampler(slots, range(n), kw.pop("batch_size", 16), **kw), slots

    @staticmethod
    def walk(sampler, slots, steps=10 ** 9):
        """{(round, slot): samples}, as an optimiser goes through it."""
        out = {}
        for batch in sampler:
            if steps == 0:
                break
            steps -= 1
            out[slots.trained, slots.next] = list.__getitem__(batch, slice(None))
            last = slots.last
            slots.count += 1
            if last:
                slots.end_round()
        return out

    def test_whoever_computes(self):
        s, slots = self.sampler()
        whole = self.walk(s, slots)
        self.assertEqual(len(whole), 6 * 8)
        seen = sorted(i for b in whole.values() for i in b)
        self.assertEqual(len(set(seen)), 96)
        for cut in range(1, 8):
            parts = {}
            for mine in (range(cut), range(cut, 8)):
                parts.update(self.walk(*self.sampler(mine=mine)))
            self.assertEqual(parts, whole)
        other = self.walk(*self.sampler(seed=1))
        self.assertNotEqual(other, whole)
        second = {(r - 6, k): v for (r, k), v in self.walk(s, slots).items()}
        self.assertEqual(second.keys(), whole.keys())
        self.assertNotEqual(second, whole)  # another epoch

    def test_goes_on_in_the_middle(self):
        s, slots = self.sampler()
        whole = self.walk(s, slots)
        s, slots = self.sampler()
        got = self.walk(s, slots, 19)
        self.assertEqual((slots.trained, slots.count), (2, 3))
        got.update(self.walk(s, slots))
        self.assertEqual(got, whole)
        s, slots = self.sampler(mine=range(3, 5))  # from a checkpoint
        slots.load_state_dict({"slots": 8, "round": 4})
        self.assertEqual(self.walk(s, slots), {k: v for k, v in whole.items() if k[0] >= 4 and k[1] in (3, 4)})

    def test_epochs(self):
        s, slots = self.sampler()
        self.assertEqual((s.rounds, len(s), s.epoch), (6, 48, 0))
        first = self.walk(s, slots)
        self.assertEqual(s.epoch, 1)
        s.set_epoch(1)  # where it is
        second = self.walk(s, slots, 8)
        s.set_epoch(5)
        self.assertEqual(s.epoch, 5)
        fifth = list(self.walk(s, slots, 8).values())
        saved, trained = s.state_dict(), slots.state_dict()
        rest = list(self.walk(s, slots).values())
        s, slots = self.sampler()
        s.set_epoch(5)
        self.assertEqual([list.__getitem__(b, slice(None)) for b in s], fifth + rest)
        s, slots = self.sampler()
        slots.load_state_dict(trained)
        s.load_state_dict(saved)
        self.assertEqual(list(self.walk(s, slots).values()), rest)
        self.assertEqual(len(first), 48)
        self.assertEqual(len(second), 8)
        self.walk(s, slots, 3)
        with self.assertRaisesRegex(pbox.PBoxInvalid, "middle of a round: .* 3 of its 8"):
            s.set_epoch(9)

    def test_last_round(self):
        s, slots = self.sampler(104, drop_last=False)
        got = self.walk(s, slots)
        self.assertEqual(s.rounds, 7)
        self.assertEqual(sorted(i for b in got.values() for i in b), list(range(104)))
        self.assertEqual({len(b) for (r, _), b in got.items() if r == 6}, {1})

    def test_refused(self):
        for text, n, kw in (("8 slots share equally; take a multiple of 8, such as 24", 100, dict(batch_size=22)),
                            ("10 samples, less than one round of 16", 10, {}),
                            ("4 samples, which 8 slots cannot share equally", 100, dict(drop_last=False))):
            with self.assertRaisesRegex(pbox.PBoxInvalid, text):
                self.sampler(n, **kw)
        for text, kw in (("seed is 1.0: needed is a whole", dict(seed=1.0)), ("batch_size is 16.0", dict(batch_size=16.0))):
            with self.assertRaisesRegex(pbox.PBoxInvalid, text):
                self.sampler(**kw)
        # another library's 7, which prints as another text, is the same seed
        s, slots = self.sampler(seed=torch.tensor(7))
        self.assertTrue(torch.equal(s.order(0), self.sampler(seed=7)[0].order(0)))
        s, slots = self.sampler()
        with self.assertRaisesRegex(pbox.PBoxInvalid, "with 4 slots, this one has 8"):
            slots.load_state_dict({"slots": 4, "round": 1})
        with self.assertRaisesRegex(pbox.PBoxInvalid, "sampler with seed 1, this one has 0"):
            s.load_state_dict(self.sampler(seed=1)[0].state_dict())

    def test_not_as_a_sampler_of_samples(self):
        s, _ = self.sampler(64)
        for kw in ({}, dict(batch_size=4), dict(num_workers=1)):
            with self.assertRaisesRegex(pbox.PBoxInvalid, "batch_sampler=optimiser.sampler.*not sampler="):
                list(DataLoader(Numbers(64), sampler=s, **kw))

    def test_batch(self):
        b = Batch([4, 2, 7], 5)
        state = torch.get_rng_state()
        again = pickle.loads(pickle.dumps(b))
        self.assertTrue(torch.equal(state, torch.get_rng_state()))  # nothing was drawn or seeded
        self.assertEqual((list(again), again.seed, type(again)), ([4, 2, 7], 5, Batch))
        drawn = [(i, float(torch.rand(1)), random.random()) for i in b]
        self.assertEqual([(i, float(torch.rand(1)), random.random()) for i in again], drawn)

    def test_loader(self):
        # The same from a loader's processes, and random numbers of the training begin with each slot.
        data, got = Numbers(64), {}
        for n in (0, 2):
            slots = Slots(4, range(4))
            sampler = SlotSampler(slots, data, 16, seed=3)
            loader = DataLoader(data, batch_sampler=sampler, num_workers=n)
            got[n] = []
            for x, _, i in loader:
                got[n].append((x, i, torch.rand(2)))
                last = slots.last
                slots.count += 1
                slots.end_round() if last else slots.prepare()
        self.assertEqual(len(got[0]), 16)
        for a, b in zip(got[0], got[2]):
            for x, y in zip(a, b):
                self.assertTrue(torch.equal(x, y))
        self.assertEqual(len({float(r[0]) for _, _, r in got[0]}), 16)


def network():
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.3), torch.nn.Tanh(),
                               torch.nn.Linear(8, 1))


def bits(model):
    return b"".join(p.detach().numpy().tobytes() for p in model.parameters())


def train(model, opt, data, rounds, seed=0, loader_processes=0, schedule=True, samples=False):
    """Until the training has made so many rounds."""
    sampler = opt.sampler(data, batch_size=26, seed=seed)
    lr = torch.optim.lr_scheduler.LambdaLR(opt, lambda r: 0.9 ** opt.trained_rounds) if schedule else None
    while opt.trained_rounds < rounds:
        for x, y, i in DataLoader(data, batch_sampler=sampler, num_workers=loader_processes):
            loss = F.mse_loss(model(x).squeeze(1), y)
            loss.backward()
            if samples:
                opt.step(samples=opt.slot + 1)
            else:
                opt.step()
            assert all(p.grad is None for p in model.parameters())
            if opt.round_ended and lr is not None:
                lr.step()
            if opt.round_ended and opt.trained_rounds == rounds:
                return


class Case(unittest.TestCase):
    def setUp(self):
        self.fresh()
        self.addCleanup(_lib.use, None)
        self.addCleanup(self.close_all)

    def fresh(self):
        self.close_all()
        self.lib = FakeLib({"j": "s"})
        _lib.use(self.lib)

    def close_all(self):
        for s in list(_session._sessions.values()):
            s.client.close()
        _session._sessions.clear()
        _session._passed_in.clear()


class Turn:
    def __init__(self):
        self._lock, self._owner = threading.Lock(), None

    def __enter__(self):
        self._lock.acquire()
        self._owner = threading.get_ident()

    def __exit__(self, *_):
        self._owner = None
        self._lock.release()

    def mine(self):
        return self._owner == threading.get_ident()


class Trainings(Case):
    V = 13

    def run_workers(self, n, kind, rounds=5, state=None, op="mean", **hyper):
        """n workers over the fake. Threads share the random generators, so they take turns, and only the one
        whose turn it is seeds them."""
        self.fresh()
        turn, data = Turn(), Numbers(60)
        _slots.seed_generators = lambda value: turn.mine() and SEED_GENERATORS(value)
        self.addCleanup(setattr, _slots, "seed_generators", SEED_GENERATORS)  # where it fails

        def worker(w):
            with turn:
                model = network()
                if state is not None:
                    model.load_state_dict(state["model"])
            opt = getattr(pbox.torch, kind)(model.parameters(), slots=self.V, worker=w, workers=n, op=op, **HERE,
                                            **hyper)
            if state is not None:
                opt.load_state_dict(state["opt"])
            with turn:
                sampler = opt.sampler(data, batch_size=26, seed=7)
                begin = opt.trained_rounds
            while opt.trained_rounds < begin + rounds:
                with turn:
                    for x, y, _ in DataLoader(data, batch_sampler=sampler):
                        F.mse_loss(model(x).squeeze(1), y).backward()
                        more = dict(samples=opt.slot + 1) if op != "mean" else {}
                        if opt._slots.last:
                            break
                        opt.step(**more)
                opt.step(**more)  # waits for the others
            out = {"model": model.state_dict(), "opt": opt.state_dict()}
            opt.close()
            return bits(model), out
        out = workers.run(n, worker)
        _slots.seed_generators = SEED_GENERATORS
        self.assertEqual(len({b for b, _ in out}), 1)
        return out[0]

    def one_process(self, kind, rounds=5, op="mean", **hyper):
        model, data = network(), Numbers(60)
        opt = reference.Reference(kind, model.parameters(), slots=self.V, op=op, **hyper)
        sampler = opt.sampler(data, batch_size=26, seed=7)
        while opt.trained_rounds < rounds:
            for x, y, _ in DataLoader(data, batch_sampler=sampler):
                F.mse_loss(model(x).squeeze(1), y).backward()
                if op == "mean":
                    opt.step()
                else:
                    opt.step(samples=opt.slot + 1)
                if opt.trained_rounds == rounds:
                    break
        return bits(model)

    def test_any_number_of_workers(self):
        want = self.one_process("momentum", lr=0.1, momentum=0.9)
        for n in (1, 2, 3, 5, 8, 13):
            got, _ = self.run_workers(n, "SGD", lr=0.1, momentum=0.9)
            self.assertEqual(got, want, n)

    def test_weights(self):
        for op in ("weighted_mean", "sample_mean"):
            want = self.one_process("sgd", op=op, lr=0.1)
            for n in (1, 4):
                self.assertEqual(self.run_workers(n, "SGD", op=op, lr=0.1)[0], want, (op, n))

    def test_checkpoint_with_another_number_of_workers(self):
        want, _ = self.run_workers(3, "SGD", rounds=7, lr=0.1, momentum=0.9)
        _, saved = self.run_workers(3, "SGD", rounds=3, lr=0.1, momentum=0.9)
        self.assertEqual(saved["opt"]["pbox"], {"slots": 13, "round": 3, "seed": 7, "batch_size": 26})
        got, _ = self.run_workers(5, "SGD", rounds=4, state=saved, lr=0.1, momentum=0.9)
        self.assertEqual(got, want)

    def test_loader_processes_and_schedule(self):
        out, data = [], Numbers(60)
        for processes in (0, 2):
            self.fresh()
            model = network()
            opt = pbox.torch.Adam(model.parameters(), lr=0.01, slots=self.V, worker=0, workers=1, **HERE)
            train(model, opt, data, 4, loader_processes=processes)
            out.append(bits(model))
            opt.close()
        self.assertEqual(out[0], out[1])
        self.fresh()
        model = network()
        opt = pbox.torch.Adam(model.parameters(), lr=0.01, slots=self.V, worker=0, workers=1, **HERE)
        train(model, opt, data, 4, seed=1)
        self.assertNotEqual(bits(model), out[0])

    def test_narrow_push(self):
        got, _ = self.run_workers(3, "SGD", push="bf16", lr=0.1)
        near = self.one_process("sgd", lr=0.1)
        a, b = (torch.frombuffer(bytearray(x), dtype=torch.float32) for x in (got, near))
        self.assertLess(float((a - b).norm() / b.norm()), 0.01)
        self.assertNotEqual(got, near)

    def opt(self, slots=4, w=0, n=1, **kw):
        model = network()
        return model, pbox.torch.SGD(model.parameters(), lr=0.1, slots=slots, worker=w, workers=n, **HERE, **kw)

    def test_parameters_without_gradient(self):
        # In some slots, or in all: +0.0 for each.
        def run(n):
            self.fresh()

            def worker(w):
                a, b = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
                opt = pbox.torch.SGD([a, b], lr=0.1, slots=6, worker=w, workers=n, **HERE)
                for _ in range(2):
                    while True:
                        s = opt.slot
                        (a * (0.1 * s - 0.3)).sum().backward()
                        if s % 2 == 0:
                            (b * (s + 0.7)).sum().backward()
                        opt.step()
                        if opt.round_ended:
                            break
                opt.close()
                return a.detach().numpy().tobytes() + b.detach().numpy().tobytes()
            out = workers.run(n, worker)
            self.assertEqual(len(set(out)), 1)
            return out[0]
        want = run(1)
        for n in (2, 3, 6):
            self.assertEqual(run(n), want)

    def test_in_the_middle_of_a_round(self):
        model, opt = self.opt()
        self.assertTrue(opt.round_ended)
        model(torch.ones(2, 6)).sum().backward()
        opt.step()
        self.assertEqual((opt.slot, opt.round_ended, opt.trained_rounds), (1, False, 0))
        state = opt.state_dict()
        self.assertEqual(state["pbox"], {"slots": 4, "round": 0})
        with self.assertRaisesRegex(pbox.PBoxInvalid, r"load_state_dict\(\) in the middle of a round"):
            opt.load_state_dict(state)
        torch.optim.SGD(model.parameters(), lr=0.1).load_state_dict(state)

    def test_clip(self):
        model, opt = self.opt()
        model(torch.ones(2, 6)).sum().backward()
        with self.assertRaisesRegex(pbox.PBoxInvalid, "with 4 of them that is not clipping"):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.local_clip = True
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()

    def test_changed_parameters(self):
        model, opt = self.opt(2)
        model(torch.ones(2, 6)).sum().backward()
        opt.step()
        with torch.no_grad():
            model[0].weight.mul_(2)
        model(torch.ones(2, 6)).sum().backward()
        for _ in range(2):  # nothing has changed: it may be repaired, and the slot is still to come
            with self.assertRaisesRegex(pbox.PBoxInvalid, "changed outside of step"):
                opt.step()
        self.assertEqual(opt.slot, 1)
        opt.push_parameters()
        opt.step()
        self.assertTrue(opt.round_ended)

    def test_hyper_parameters_in_a_round(self):
        def slot(model, opt):
            model(torch.ones(2, 6)).sum().backward()
            opt.step()

        model, opt = self.opt()
        alone = network()
        for m, o in ((model, opt), (alone, reference.Reference("sgd", alone.parameters(), slots=4, lr=0.1))):
            schedule = torch.optim.lr_scheduler.ExponentialLR(o, 0.5)
            for _ in range(2):  # each round may have its own
                for _ in range(4):
                    slot(m, o)
                schedule.step()
            slot(m, o)
            schedule.step()
            with self.assertRaisesRegex(pbox.PBoxInvalid, "lr of group 0 was 0.025 .* is 0.0125 .*once a round: `if opt"):
                slot(m, o)
            o.param_groups[0]["lr"] = 0.025  # nothing was taken: it may be repaired
            for _ in range(3):
                o.step()
            self.assertEqual((o.trained_rounds, o.round_ended), (3, True))
        self.fresh()

        def worker(w):  # the worker with more than one slot notices
            m, o = self.opt(3, w, 2, timeout=1.0, patience=1.0)
            schedule = torch.optim.lr_scheduler.ExponentialLR(o, 0.5)
            with self.assertRaises((pbox.PBoxInvalid, pbox.PBoxDeadline)[1 - w:2 - w]):
                for _ in range(2):
                    slot(m, o)
                    schedule.step()
        workers.run(2, worker)

    def test_refused(self):
        with self.assertRaisesRegex(pbox.PBoxInvalid, "slots is 2: needed is 3"):
            self.opt(2, 0, 3)
        model = network()
        opt = pbox.torch.SGD(model.parameters(), lr=0.1, worker=0, workers=1, **HERE)
        for use in (lambda: opt.sampler(range(9), 3), lambda: opt.slot, lambda: opt.trained_rounds):
            with self.assertRaisesRegex(pbox.PBoxInvalid, "pass slots=V"):
                use()
        self.assertTrue(opt.round_ended)
        with self.assertRaisesRegex(pbox.PBoxInvalid, "slots is 4, and the session that is open has 1"):
            self.opt()
        self.fresh()
        model, opt = self.opt()
        with self.assertRaisesRegex(pbox.PBoxInvalid, "no slots=, .* pass slots=4"):
            pbox.torch.SGD(model.parameters(), lr=0.1, worker=0, workers=1, **HERE)
        with self.assertRaisesRegex(pbox.PBoxInvalid, "slots is 8, and the session that is open has 4"):
            pbox.torch.SGD(model.parameters(), lr=0.1, slots=8, worker=0, workers=1, **HERE)

    def test_samples_of_a_node(self):
        """Their sum goes as one number: what exceeds it is refused where it is given."""
        model = network()
        opt = pbox.torch.SGD(model.parameters(), lr=0.1, slots=4, op="weighted_mean", worker=0, workers=1, **HERE)
        for samples in (2 ** 32 - 2, 1, 1, 0, 0):
            model(torch.ones(2, 6)).sum().backward()
            if samples == 1 and opt.slot == 2:
                with self.assertRaisesRegex(pbox.PBoxInvalid, "samples, summed over the slots of a node, is 4294967296"):
                    opt.step(samples=1)
            else:
                opt.step(samples=samples)
        self.assertTrue(opt.round_ended)

    def test_hook_takes_none(self):
        class Model:
            module = network()

            def register_comm_hook(self, state, hook):
                raise AssertionError

        with self.assertRaisesRegex(pbox.PBoxInvalid, "slots= belongs to the optimisers"):
            pbox.torch.register(Model(), slots=4, worker=0, workers=1, **HERE)

    def test_hook_and_optimiser_without_slots(self):
        # They share the session of a job with slots: the hook's mean is over the workers, the optimiser is refused.
        def worker(w):
            c = pbox.Client("box", "j", "s", w, 2, slots=8)
            p = torch.nn.Parameter(torch.zeros(5))
            state = pbox.torch.register(FakeDDP(torch.nn.ParameterList([p])), client=c)
            p.grad = torch.full((5,), 2.0 + w)
            got = pbox.torch.hook(state, FakeBucket([p])).wait().clone()
            with self.assertRaisesRegex(pbox.PBoxInvalid, "no slots=, and the session has the 8 slots of the job"):
                pbox.torch.SGD([p], lr=1.0, client=c)
            state.close()
            c.close()
            return float(got[0])
        self.assertEqual(workers.run(2, worker), [2.5] * 2)

    def test_data_that_do_not_go_by_the_slot(self):
        def warned(use):
            self.fresh()
            model, opt = self.opt()
            use(opt)
            with self.assertLogs("pbox", "WARNING") as log:
                logging.getLogger("pbox").warning("end")  # at least one is needed
                for _ in range(8):
                    model(torch.ones(2, 6)).sum().backward()
                    opt.step()
            return log.output[1:]
        only, = warned(lambda opt: None)
        self.assertIn("slots=4, and the data do not go by the slot", only)

        def other(opt):  # of the same workers: they share the micro-batches
            p = torch.nn.Parameter(torch.zeros(5))
            self.kept = pbox.torch.SGD([p], lr=0.1, slots=4, worker=0, workers=1, **HERE)
            self.kept.sampler(range(64), 16)
        for use in (lambda opt: opt.sampler(range(64), 16), lambda opt: opt.slot, lambda opt: opt.trained_rounds, other):
            self.assertEqual(warned(use), [])

    def test_shrink_is_warned_of(self):
        with self.assertLogs("pbox", "WARNING") as log:
            self.opt(policy="shrink")
        self.assertIn("policy='shrink' with slots=4", log.output[0])

    def test_collectives_in_a_round(self):
        model, opt = self.opt()
        norm = torch.nn.BatchNorm1d(3)
        hook = pbox.torch.register(FakeDDP(network()), client=opt.client)
        p = torch.nn.Parameter(torch.zeros(5))
        p.grad = torch.ones(5)
        calls = (lambda: pbox.torch.all_reduce(torch.ones(2), client=opt.client),
                 lambda: pbox.torch.sync_buffers(norm, client=opt.client),
                 lambda: pbox.torch.hook(hook, FakeBucket([p])),
                 lambda: pbox.torch.register(FakeDDP(network()), client=opt.client),
                 lambda: pbox.torch.SGD([p], lr=0.1, slots=4, client=opt.client))
        for count in range(1, 4):
            model(torch.ones(2, 6)).sum().backward()
            opt.step()
            for call in calls:
                with self.assertRaisesRegex(pbox.PBoxInvalid, f"{count} of its 4 slots here.*once a round, where opt"):
                    call()
        model(torch.ones(2, 6)).sum().backward()
        opt.step()
        pbox.torch.all_reduce(torch.ones(2), client=opt.client)
        pbox.torch.sync_buffers(norm, client=opt.client)

    def test_collectives_after_an_optimiser(self):
        # One that was closed in the middle of a round holds nobody up.
        with pbox.Client("box", "j", "s", 0, 1, slots=4) as c:
            model = network()
            opt = pbox.torch.SGD(model.parameters(), lr=0.1, slots=4, client=c)
            model(torch.ones(2, 6)).sum().backward()
            opt.step()
            opt.close()
            pbox.torch.all_reduce(torch.ones(2), client=c)

    def test_rounds_differ(self):
        def worker(w):
            model, opt = self.opt(4, w, 2)
            if w == 1:
                opt.load_state_dict(dict(opt.state_dict(), pbox={"slots": 4, "round": 7}))
            with self.assertRaisesRegex(pbox.PBoxMismatch, "trained_rounds=7"):
                for _ in range(2):
                    model(torch.ones(2, 6)).sum().backward()
                    opt.step()
        workers.run(2, worker)

    def differ(self, change):
        """The texts that two workers get, one of which makes a change."""
        def worker(w):
            a, b = (torch.nn.Parameter(torch.zeros(5)) for _ in range(2))
            opt = pbox.torch.SGD([{"params": [a]}, {"params": [b]}], lr=0.1, slots=4, worker=w, workers=2, **HERE)
            change(w, opt)
            with self.assertRaises(pbox.PBoxMismatch) as e:
                for _ in range(2):
                    (a + b).sum().backward()
                    opt.step()
            return str(e.exception)
        self.fresh()
        return workers.run(2, worker)

    def test_samplers_differ(self):
        loss, data = "all_reduce of the loss", range(64)
        for change, value, step in (
                (lambda w, o: o.sampler(data, 16, seed=w), "worker 1 has seed=1, worker 0 .* seed=0", "the same seed="),
                (lambda w, o: o.sampler(data, 16 + 16 * w), "worker 1 has batch_size=32, worker 0", "same batch_size="),
                (lambda w, o: o.sampler(range(64 + w), 16), "worker 1 has samples=65, worker 0", "the same dataset"),
                (lambda w, o: w or o.sampler(data, 16), "worker 1 has batch_size=0, worker 0", r"0: none was made")):
            first, second = self.differ(change)
            self.assertRegex(first, f"^slots differ .*{value}.*{step}")
            self.assertEqual(first.count("(this one)"), 1 + 2 * ("batch_size=0" in value))  # and not by groups
            self.assertIn("worker 0 has", second)
            self.assertNotIn(loss, first + second)
        for text in self.differ(lambda w, o: w or o.load_state_dict(dict(o.state_dict(), pbox={"slots": 4, "round": 7}))):
            self.assertRegex(text, r"trained_rounds=7.*worker 1 has not called load_state_dict\(\) of its checkpoint")
            self.assertNotIn(loss, text)
        for text in self.differ(lambda w, o: o.load_state_dict(dict(o.state_dict(), pbox={"slots": 4, "round": 7 + w}))):
            self.assertRegex(text, "trained_rounds=8.*the checkpoint of the same round")
            self.assertNotIn("has not called", text)

        def rates(w, opt):
            opt.param_groups[1]["lr"] = 0.2 + w
        for text in self.differ(rates):
            self.assertRegex(text, f"^hyper-parameters differ .* has lr=[01].2 in group 1, .*{loss}")

    def test_only_one_finds_that_they_differ(self):
        done = threading.Event()

        def worker(w):
            with pbox.Client("box", "j", "s", w, 2) as c:
                agreement = _agree.Agreement(c, 1, None, 0)
                if w == 0:
                    return done.wait(30)
                out = []
                for n in (0, 3):
                    agreement.begin([{"lr": 1.0, "trained_rounds": n}], [True], [True], None)
                    out.append(agreement._explain())
                done.set()
                return out
        self.addCleanup(setattr, _agree, "_EXPLAIN_SECONDS", _agree._EXPLAIN_SECONDS)
        _agree._EXPLAIN_SECONDS = 0.2
        self.fresh()
        _, (behind, loaded) = workers.run(2, worker)
        self.assertRegex(behind, r"worker 1 .*trained_rounds=0.*has not called load_state_dict\(\)")
        self.assertNotIn("load_state_dict", loaded)

    def test_state_of_another_sampler(self):
        data = range(64)
        model, opt = self.opt()
        opt.sampler(data, 16, seed=3)
        saved = opt.state_dict()
        self.assertEqual(saved["pbox"], {"slots": 4, "round": 0, "seed": 3, "batch_size": 16})
        opt.load_state_dict(saved)
        for first in (True, False):  # the state comes before the sampler, or after it
            for kw, refused, warns in ((dict(seed=4, batch_size=16), True, 0), (dict(seed=3, batch_size=32), False, 1),
                                       (dict(seed=3, batch_size=16), False, 0)):
                self.fresh()
                model, opt = self.opt()
                calls = [lambda: opt.load_state_dict(saved), lambda: opt.sampler(data, **kw)]
                calls = calls if first else calls[::-1]
                calls[0]()
                if first:
                    self.assertEqual(opt.state_dict()["pbox"], saved["pbox"])
                with self.assertLogs("pbox", "WARNING") as log:
                    logging.getLogger("pbox").warning("at least one is needed")
                    if refused:
                        with self.assertRaisesRegex(pbox.PBoxInvalid, "seed 3, and this sampler has 4.*Pass seed=3"):
                            calls[1]()
                    else:
                        calls[1]()
                self.assertEqual(len(log.output), 1 + warns)
                if warns:
                    self.assertIn("batch_size 16, and this sampler has 32", log.output[1])
        self.fresh()
        model, opt = self.opt()
        del saved["pbox"]["seed"]
        opt.load_state_dict(saved)
        opt.sampler(data, 16, seed=4)

    def test_other_tables(self):
        # Each worker counts once in what is not by slots.
        def worker(w):
            model, opt = self.opt(8, w, 3)
            out = []
            for op in ("sum", "mean"):
                t = torch.full((3,), w + 1.0)
                pbox.torch.all_reduce(t, op, client=opt.client)
                out.append(float(t[0]))
            with self.assertRaisesRegex(pbox.PBoxInvalid, "weights belong to an optimiser with slots"):
                pbox.torch.all_reduce(torch.ones(2), "weighted_mean", client=opt.client)
            opt.close()
            return out
        self.assertEqual(workers.run(3, worker), [[6.0, 2.0]] * 3)


class Nodes(Case):
    """The client's own interface."""

    def client(self, worker=0, n=1, **kw):
        return pbox.Client("box", "j", "s", worker, n, **kw)

    def test_nodes(self):
        with self.client(2, 3, slots=13) as c:
            self.assertEqual((c.slots, c.nodes(), c.nodes(5)), (13, [(8, 5)], [(8, 5)]))
            with self.client(1, 3, slots=13) as other:
                self.assertEqual(other.nodes(), [(4, 4)])
            with self.client(0, 3, slots=13) as first:
                self.assertEqual(first.nodes(), [(0, 4)])
        with self.client(2, 3) as c:
            self.assertEqual((c.slots, c.nodes()), (3, [(2, 1)]))

    def test_pushpull(self):
        def worker(w):
            with self.client(w, 2, slots=7) as c:
                t = c.declare([("a", 2), ("b", 1)], op="sum")
                nodes = [[array.array("f", [first, n]), array.array("f", [1.0])] for first, n in c.nodes()]
                out = [array.array("f", [0, 0]), array.array("f", [0])]
                t.pushpull_nodes(nodes, out, weights=[n for _, n in c.nodes()]).wait()
                t.push_nodes([{"b": n[1]} for n in nodes]).wait()
                t.pull({"b": out[1]}).wait()
                return c.nodes(), [list(o) for o in out]
        (first, got), (second, _) = workers.run(2, worker)
        self.assertEqual(first + second, [(0, 2), (2, 1), (3, 1), (4, 3)])
        self.assertEqual(got, [[9.0, 7.0], [4.0]])

    def test_refused(self):
        with self.client(slots=4) as c:
            t = c.declare([("a", 2)], op="sum")
            a = array.array("f", [1, 2])
            for text, call in (
                    ("2 nodes, and this worker brings 1", lambda: t.pushpull_nodes([[a], [a]], [a])),
                    ("2 weights for 1 nodes", lambda: t.push_nodes([[a]], weights=[1, 2])),
                    ("weight of node 0 .* is -1", lambda: t.push_nodes([[a]], weights=[-1])),
                    ("'a' of node 0 has 4 bytes", lambda: t.push_nodes([[array.array("f", [1])]])),
                    ("of different tensors", lambda: t.pushpull_nodes([[a]], {})),
                    ("are by nodes", lambda: t.submit_nodes(_lib.PULL, [[a]]))):
                with self.assertRaisesRegex(pbox.PBoxInvalid, text):
                    call()
        with self.client(slots=4) as c:
            t = c.declare([("a", 2)], op="mean")
            a = array.array("f", [4, 8])
            for call in (lambda: t.run([a]), lambda: t.push([a])):
                with self.assertRaisesRegex(pbox.PBoxInvalid, "the 4 slots .* pushpull_nodes .*op='sample_mean'"):
                    call()
            t.pushpull_nodes([[a]], [a]).wait()
            self.assertEqual(list(a), [1.0, 2.0])
            c.declare([("a", 2)], op="sample_mean").run([a])
            self.assertEqual(list(a), [1.0, 2.0])
        for n in (0, 1, 4097):
            with self.assertRaisesRegex(pbox.PBoxInvalid, rf"slots is {n}: needed is 2 .* to 4096"):
                self.client(0, 2, slots=n)


if __name__ == "__main__":
    unittest.main()
