# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""What goes together (doc/modes.md), asked of pbox.torch against the fake of the library: for each two modes that a script can say, what the
page says, in its words. test/unit/engine/test_modes.c asks the box, test/unit/worker/test_modes.c the library in C, test/unit/conf the configuration.
"""

import contextlib
import itertools
import os
import re
import unittest.mock

import torch

import pbox
import pbox.torch
from pbox import _modes
from pbox.torch import stand_in
from tests.test_torch import HERE, Case

FIRST = ("rounds", "slots", "plan", "steal", "ahead", "clocks", "boxes", "gpu", "threads", "snapshots", "shrink")
COLUMNS = ("optimiser", "push", "pull", "racks", "hold")
OF_BOXES = {"boxes", "snapshots", "racks"}  # the fake has no box
TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
BOX = "test/unit/engine/test_modes.c"
# that train with both, beside the JOIN and DECLARE that BOX makes of each pair
TRAINED = {
    "rounds boxes": "test/func/fleet", "clocks boxes": "test/func/fleet_eager", "boxes hold": "test/func/torch_norm_boxes",
    "boxes snapshots": "test/func/snapshot_fleet", "rounds snapshots": "test/func/torch_snapshot", "slots snapshots": "test/func/snapshot",
    "rounds racks": "test/func/racks", "rounds plan": "test/func/torch_plan", "slots plan": "test/func/torch_plan", "plan steal": "test/func/torch_steal",
    "plan ahead": "test/func/torch_ahead", "rounds gpu": "test/func/torch_gpu", "slots gpu": "test/func/torch_gpu", "rounds hold": "test/func/torch_norm",
    "rounds push": "test/func/torch_nodes", "slots push": "test/func/torch_nodes", "plan push": "test/func/torch_nodes", "steal push": "test/func/torch_nodes",
    "rounds pull": "test/func/torch_replica", "gpu push": "test/func/torch_gpu", "gpu pull": "test/func/torch_gpu",
}


def row(one, other):
    """As the page has it: their own row, or the first one of what they need."""
    rows = [p for p in _modes.PAIRS if {p[0], p[1]} == {one, other}]
    used = {one, other, *_modes.NEEDS[one], *_modes.NEEDS[other]}
    return (rows + [p for p in _modes.PAIRS if {p[0], p[1]} <= used] + [None])[0]


class Modes(Case):
    def make(self, uses):
        """What a script makes that uses these."""
        options = {"worker": 0, "workers": 1, **HERE}
        for use, name, value in (("slots", "slots", 4), ("shrink", "policy", "shrink"), ("plan", "policy", "reassign"), ("threads", "threads", 2),
                                 ("steal", "steal", True), ("ahead", "ahead", 0.5), ("push", "push", "int8"), ("pull", "pull", "int8"), ("hold", "max_norm", 1.0)):
            if use in uses:
                options[name] = value
        params = [torch.nn.Parameter(torch.zeros(4))]
        if "clocks" in uses:
            return pbox.torch.Eager(torch.optim.SGD(params, lr=0.1), **{k: v for k, v in options.items() if k not in ("steal", "ahead")})
        if "plan" in uses:  # the fake has no plans: the constructor is done but for asking for the first one
            with unittest.mock.patch("pbox.torch._by_plan.Work") as work:
                work.return_value.newcomer = False
                return pbox.torch.SGD(params, 0.1, **options)
        return pbox.torch.SGD(params, 0.1, **options)

    def ask(self, one, other):
        refused = row(one, other)
        uses = {one, other, *_modes.NEEDS[one], *_modes.NEEDS[other]}
        if uses & OF_BOXES:
            self.assertTrue(refused is None or refused[2] != "PYTHON", (one, other))
            return
        if {"plan", "shrink"} <= uses:  # one option of a script: workers differ, and the box says so
            self.assertEqual(refused[2], "BAD_REQUEST")
            return
        gpu = stand_in.StandIn().instead_of_host() if "gpu" in uses else contextlib.nullcontext()
        with self.subTest(one=one, other=other), gpu:
            if refused is None and uses & {"push", "pull"}:  # the fake has no such formats: the constructor comes to where it asks for them
                with self.assertRaisesRegex(pbox.PBoxInvalid, "is 'int8': one of"):
                    self.make(uses)
            elif refused is None:
                self.make(uses).close()
            else:
                text = f"{_modes.NAMES[refused[0]]} with {_modes.NAMES[refused[1]]}: {refused[3]}"
                with self.assertRaisesRegex(pbox.PBoxInvalid, re.escape(text)):
                    self.make(uses)
        self.close_all()

    def test_first(self):
        pairs = list(itertools.combinations(FIRST, 2))
        self.assertEqual(len(pairs), 55)
        for one, other in pairs:
            self.ask(one, other)

    def test_columns(self):
        for one, other in itertools.product(FIRST, COLUMNS):
            self.ask(one, other)
        for one, other in itertools.combinations(COLUMNS, 2):
            self.ask(one, other)

    def test_all_modes_are_asked(self):
        self.assertEqual(FIRST + COLUMNS, tuple(_modes.NAMES))

    def test_trained(self):
        for pair, name in TRAINED.items():
            one, other = pair.split()
            self.assertIsNone(row(one, other), pair)
            self.assertTrue(os.path.exists(os.path.join(TOP, name)), name)
        self.assertTrue(os.path.exists(os.path.join(TOP, BOX)))

    def test_client(self):
        """Without torch."""
        how = {"mode": "optimiser", "op": "sum", "optimiser": "add", "discipline": "clock"}
        with pbox.Client("box", "j", "s", 0, 1, slots=4) as c, self.assertRaisesRegex(pbox.PBoxInvalid, "slots with clocks: slots are shares of a round"):
            c.declare([1], **how)
