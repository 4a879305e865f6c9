# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""compress=: the choice, from rounds that take what a model says, and the checks of what a program gives."""

import math
import unittest

import torch

from pbox.errors import PBoxInvalid
from pbox.torch import _compress
from pbox.torch._compress import EXPOSED, HIDDEN, NO_GAIN, Ladder


def play(ladder, rounds, seconds, error=None):
    """Rounds of a model: seconds(step) has those of a round and of its exchange. The steps taken: (round, step, why)."""
    out = []
    for r in range(1, rounds + 1):
        if ladder.ended(*seconds(ladder.step), error(r) if error else 0.0, 0.02):
            out.append((r, ladder.step, ladder.why))
    return out


def exchange(compute, up, down):
    """A round whose exchange is up + down in fp32, and a quarter of that in codes."""
    def seconds(step):
        x = (up if step < 1 else up / 4) + (down if step < 2 else down / 4)
        return compute + x, x
    return seconds


class TheChoice(unittest.TestCase):
    def test_hidden_stays_at_fp32(self):
        self.assertEqual(play(Ladder(3), 2000, exchange(1.0, 0.03, 0.03)), [])

    def test_exposed_goes_up_a_step_at_a_time(self):
        steps = play(Ladder(3), 2000, exchange(1.0, 2.0, 2.0))
        self.assertEqual([(s, w) for _, s, w in steps], [(1, EXPOSED), (2, EXPOSED)])
        self.assertEqual(steps[0][0], _compress.FIRST)
        self.assertGreaterEqual(steps[1][0] - steps[0][0], _compress.APART)

    def test_a_worker_that_does_not_lead_has_one_step(self):
        self.assertEqual([s for _, s, _ in play(Ladder(2), 500, exchange(1.0, 2.0, 2.0))], [1])

    def test_a_step_that_gains_nothing_is_taken_back_and_tried_seldom(self):
        steps = play(Ladder(2), 4000, lambda step: (2.0, 1.0))  # others are waited for
        self.assertEqual([w for _, _, w in steps[:2]], [EXPOSED, NO_GAIN])
        tries = [r for r, s, _ in steps if s == 1]
        gaps = [b - a for a, b in zip(tries, tries[1:])]
        self.assertTrue(all(b >= 1.8 * a for a, b in zip(gaps, gaps[1:])) and len(tries) <= 5, tries)

    def test_hidden_at_last_goes_back_and_returns(self):
        slow = exchange(1.0, 2.0, 0.0)
        ladder = Ladder(2)
        play(ladder, 100, slow)
        self.assertEqual(ladder.step, 1)
        steps = play(ladder, 1000, lambda step: (4.0, 0.04))
        self.assertEqual(steps[0][1:], (0, HIDDEN))
        self.assertEqual([s for _, s, _ in play(ladder, 100, slow)], [1])

    def test_codes_that_are_far_from_the_gradient_are_not_taken(self):
        self.assertEqual(play(Ladder(3), 150, exchange(1.0, 2.0, 2.0), lambda r: 0.5), [])
        ladder = Ladder(2)
        play(ladder, 60, exchange(1.0, 2.0, 2.0))
        steps = play(ladder, 60, exchange(1.0, 2.0, 2.0), lambda r: 0.5 if r == 10 else None)
        self.assertEqual([(s, w) for _, s, w in steps], [(0, _compress.ERROR)])

    def test_codes_are_not_taken_before_a_sample(self):
        self.assertEqual(play(Ladder(3), 40, exchange(1.0, 2.0, 2.0), lambda r: None), [])

    def test_both_ways_go_back_where_codes_are_far_from_the_gradient(self):
        ladder = Ladder(3)
        play(ladder, 60, exchange(1.0, 2.0, 2.0))
        self.assertEqual(ladder.step, 2)
        self.assertEqual([s for _, s, _ in play(ladder, 30, exchange(1.0, 2.0, 2.0), lambda r: 0.5)], [0])

    def test_changes_are_apart(self):
        at = 0
        for r, _, _ in play(Ladder(3), 5000, lambda step: (1 + 0.5 * (step % 2), 0.5)):
            self.assertTrue(at == 0 or r - at >= _compress.APART, (at, r))
            at = r


class TheError(unittest.TestCase):
    def test_of_normal_values(self):
        torch.manual_seed(1)
        g = [torch.randn(5000), None, torch.randn(3, 7), torch.zeros(0)]
        self.assertTrue(0.004 < _compress.error_of("int8", g) < 0.01)
        self.assertTrue(0.08 < _compress.error_of("mxfp4", g) < 0.15)

    def test_of_zeros_and_of_what_is_not_finite(self):
        self.assertEqual(_compress.error_of("int8", [torch.zeros(1000)]), 0)
        self.assertEqual(_compress.error_of("int8", [None]), 0)
        self.assertEqual(_compress.error_of("int8", [torch.full((1000,), math.inf)]), math.inf)

    def test_values_that_one_outlier_hides(self):
        g = torch.full((4096,), 1e-3)
        g[::128] = 0.3
        self.assertGreater(_compress.error_of("int8", [g]), 0.02)


class TheArgument(unittest.TestCase):
    def test_auto_takes_int8_where_nothing_is_said(self):
        self.assertEqual(_compress.parse("auto", "fp32", "fp32", True), ("auto", "int8", "int8"))
        self.assertEqual(_compress.parse("auto", "mxfp4", "fp32", False), ("auto", "mxfp4", "fp32"))
        self.assertEqual(_compress.parse("auto", "fp32", "bf16", False), ("auto", "int8", "bf16"))

    def test_a_list(self):
        self.assertEqual(_compress.parse([(1, "fp32"), (200, "mxfp4")], "fp32", "fp32", True),
                         ([(1, "fp32", "fp32"), (200, "mxfp4", "mxfp4")], "mxfp4", "mxfp4"))
        self.assertEqual(_compress.parse([[3, "int8", "fp32"]], "fp32", "fp32", False), ([(3, "int8", "fp32")], "int8", "fp32"))

    def test_refused(self):
        for compress, push, text in (("on", "fp32", "'auto', or a list"), ([], "fp32", "without entries"), (7, "fp32", "without entries"),
                                     ([(1,)], "fp32", "(round, format)"), ([(2, "int8"), (2, "fp32")], "fp32", "later than the one before"),
                                     ([(1, "bf16")], "fp32", "int8 and mxfp4"), ("auto", "bf16", "push='bf16'"),
                                     ([(1, "int8")], "mxfp4", "one of them")):
            with self.assertRaises(PBoxInvalid) as e:
                _compress.parse(compress, push, "fp32", True)
            self.assertIn(text, str(e.exception))


if __name__ == "__main__":
    unittest.main()
