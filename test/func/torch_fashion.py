# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""usertools/examples/train_box_optimiser.py as it is, but that it prints `round N T` after each round (T: seconds of the machine's clock, the same for
all processes); for torch_failover_first."""

import os
import runpy
import sys
import time

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../usertools/examples")
sys.path.insert(0, EXAMPLES)
import fashion  # noqa: E402


def loss(self, value):
    self.losses.append(float(value))
    print("round", len(self.losses), f"{time.monotonic():.3f}", flush=True)


fashion.Records.loss = loss
runpy.run_path(os.path.join(EXAMPLES, "train_box_optimiser.py"), run_name="__main__")
