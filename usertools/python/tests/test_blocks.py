# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""pbox.torch.reference's block formats against the codec that was written from the protocol alone (test/spec/pbox_block.py)."""

import math
import os
import random
import struct
import sys
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(TOP, "test", "spec"))
import pbox_block as spec  # noqa: E402

try:
    import torch

    from pbox.torch import reference
except ImportError:
    torch = None

CODE = {"int8": spec.INT8, "mxfp4": spec.MXFP4}


def bits(values):
    return [struct.pack("<f", v) if not math.isnan(v) else b"nan" for v in values]


@unittest.skipIf(torch is None, "no torch")
class Blocks(unittest.TestCase):
    def compare(self, fmt, values, residual):
        values, residual = [spec.fp32(v) for v in values], [spec.fp32(r) for r in residual]
        raw, kept = spec.encode_with_residual(CODE[fmt], values, residual)
        said, left = reference.sent(fmt, torch.tensor(values), torch.tensor(residual))
        self.assertEqual(bits(said.tolist()), bits(spec.decode(CODE[fmt], raw, len(values))))
        self.assertEqual(bits(left.tolist()), bits(kept))

    def test_all_lengths(self):
        r = random.Random(5)
        for fmt in CODE:
            for n in [*range(1, 70), 127, 128, 129, 255, 256, 300, 352]:
                self.compare(fmt, [r.gauss(0, 1) * 10 ** r.uniform(-3, 3) for _ in range(n)], [r.gauss(0, .01) for _ in range(n)])

    def test_many_scales(self):
        """Elements half-way between two codes show how the inverse of a scale is rounded: a number over a tensor is rounded twice in torch."""
        r = random.Random(6)
        for _ in range(100):
            largest = spec.fp32(r.uniform(.1, 10))
            self.compare("int8", [largest] + [(k + .5) * largest / 127 for k in range(127)], [0.0] * 128)

    def test_edges(self):
        for fmt in CODE:
            for values in ([0.0, -0.0], [1e-40, -1e-45], [2.0 ** -100, 2.0 ** -101], [3e38, 1.0], [2.0 ** 127, 1.0], [2.0 ** 126.9, -1.0], [math.inf, 1.0],
                           [math.nan, 2.0], [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0, 7.0, 4.0, -0.25, -5.0], [0.5, 127.0, 1.5, 2.5, 3.5]):
                self.compare(fmt, values, [0.0] * len(values))
                self.compare(fmt, values * 40, [1e-3] * len(values) * 40)

    def test_every_element_gets_what_was_pushed(self):
        """Over many rounds, within one step of the format (error feedback, both ways)."""
        g = torch.Generator().manual_seed(3)
        n = [2224, 352, 77]
        for fmt, step in (("int8", 1 / 127), ("mxfp4", 1 / 3)):
            c = reference.Compressed(fmt, n, 2, lambda parts: reference.tree_reduce(parts, "sum"))
            pushed, got = torch.zeros(sum(n), dtype=torch.float64), torch.zeros(sum(n), dtype=torch.float64)
            small = torch.full((sum(n),), 1e-3)
            for _ in range(200):
                both = [small + torch.randn(sum(n), generator=g) * .01 for _ in range(2)]
                both[0][::128] = 1.0  # a hundred times the others
                pushed += both[0].double() + both[1].double()
                got += c.round(both).double()
            self.assertLess(float((pushed - got).abs().max()), 2 * 3 * step * 3)


if __name__ == "__main__":
    unittest.main()
