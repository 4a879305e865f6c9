# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""What max_norm= and skip_nonfinite= take, against the fake of the library; test/func/torch_norm has their steps."""

import copy
import math

import torch

import pbox
import pbox.torch
from pbox.torch import _agree, reference
from tests import workers
from tests.test_torch import HERE, Case

ALONE = dict(worker=0, workers=1, **HERE)


def made(**options):
    return pbox.torch.SGD([torch.nn.Parameter(torch.zeros(4))], 0.1, **options)


class Norm(Case):
    def test_workers_differ(self):
        """Unequal before anything is trained."""
        for skips in ([True, False], [False, True]):
            with self.assertRaisesRegex(pbox.PBoxMismatch, "skip_nonfinite"):
                workers.run(2, lambda w, skips=skips: made(worker=w, workers=2, max_norm=1.0, skip_nonfinite=skips[w], declare_timeout=2, **HERE))
            self.close_all()

    def test_values_differ(self):
        """Schedulers have nothing to do with max_norm; where another value differs as well, both are said."""
        def advice(*names):
            return " ".join(_agree._next_steps([_agree._Difference(n, 0, 1, 2.0, 1.0) for n in names], 0))

        fixed = "max_norm= is fixed when the optimiser is made: give all workers the same"
        self.assertIn(fixed, advice("max_norm"))
        self.assertNotIn("scheduler", advice("max_norm"))
        self.assertNotIn(fixed, advice("lr"))
        self.assertIn("scheduler.step()", advice("lr"))
        self.assertTrue(fixed in advice("lr", "max_norm") and "scheduler" in advice("lr", "max_norm"))

    def test_alike(self):
        opts = workers.run(2, lambda w: made(worker=w, workers=2, max_norm=1.0, skip_nonfinite=True, declare_timeout=5, **HERE))
        self.assertEqual([o.skip_nonfinite for o in opts], [True, True])

    def test_values(self):
        for bad in (1e300, -1.0, 0, 0.0, math.inf, math.nan, 1e-50, 2.0 ** 127.5, "1", [1.0], {}):
            with self.assertRaisesRegex(pbox.PBoxInvalid, r"^max_norm is .*: needed is a number from 1.2e-38 to 1.7e\+38, or None"):
                made(max_norm=bad, **ALONE)
            with self.assertRaisesRegex(pbox.PBoxInvalid, "^max_norm is "):
                reference.Reference("sgd", [torch.nn.Parameter(torch.zeros(4))], lr=0.1, max_norm=bad)
        self.assertEqual(self.lib.calls, [])
        self.assertEqual(made(max_norm=torch.tensor(2), **ALONE).max_norm, 2.0)

    def test_count_is_kept(self):
        opt = made(max_norm=1.0, skip_nonfinite=True, **ALONE)
        opt._phases.skipped = 3
        state = copy.deepcopy(opt.state_dict())
        opt._phases.skipped = 5
        opt.load_state_dict(state)
        self.assertEqual(opt.skipped_nonfinite, 3)
        del state["skipped_nonfinite"]  # of an earlier release
        opt.load_state_dict(state)
        self.assertEqual(opt.skipped_nonfinite, 0)

    def test_without(self):
        opt = made(**ALONE)
        self.assertNotIn("skipped_nonfinite", opt.state_dict())
        self.assertEqual((opt.max_norm, opt.skip_nonfinite, opt.skipped_nonfinite), (None, False, 0))
        opt.load_state_dict(dict(opt.state_dict(), skipped_nonfinite=4))

    def test_fixed(self):
        opt = made(max_norm=1.0, skip_nonfinite=True, **ALONE)
        for name, value in (("max_norm", 2.0), ("skip_nonfinite", False)):
            with self.assertRaisesRegex(pbox.PBoxInvalid, f"^{name} = {value}: it is fixed"):
                setattr(opt, name, value)
        self.assertEqual((opt.max_norm, opt.skip_nonfinite), (1.0, True))

    def test_groups(self):
        for options in (dict(max_norm=1.0), {}):
            opt = made(**options, **ALONE)
            opt.param_groups[0]["params"][0].grad = torch.ones(4)
            opt.param_groups[0]["max_norm"] = 2.0
            before = len([c for c in self.lib.calls if c[0] == "submit"])
            with self.assertRaisesRegex(pbox.PBoxInvalid, r"param_groups\[0\] has max_norm=2.0"):
                opt.step()
            self.assertEqual(len([c for c in self.lib.calls if c[0] == "submit"]), before)
            opt.close()
        with self.assertRaisesRegex(pbox.PBoxInvalid, r"param_groups\[1\] has max_norm=3"):
            pbox.torch.SGD([{"params": [torch.nn.Parameter(torch.zeros(2))]}, {"params": [torch.nn.Parameter(torch.zeros(2))], "max_norm": 3}], 0.1, **ALONE)
