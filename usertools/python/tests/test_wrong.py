# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Ordinary programs that came to wrong numbers without a word: each now has torch's, or an error that names what to change. Against
the fake of the library."""

import array
import unittest

import torch
from torch import nn

import pbox
import pbox.torch
from tests.test_torch import HERE, Case

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


if __name__ == "__main__":
    unittest.main()
