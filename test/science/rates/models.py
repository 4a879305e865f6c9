# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Three small models for trainings in virtual time: a multi-layer perceptron, a convolutional network, a character LM.

Parameters and gradients are one vector of fp32 each, so that an update is an addition. No data is fetched: Fashion-MNIST is Debian's package,
the text is the GNU GPL, which each Debian machine has.
"""

import os
import sys

import numpy as np
import torch
from torch.nn import functional as F

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(TOP, "usertools", "examples"))
# pylint: disable=wrong-import-position
import fashion

BATCH, SHOWN, CONTEXT = 32, 512, 8  # SHOWN: by so many samples the loss is looked at
TEXT = "/usr/share/common-licenses/GPL-3"
IMAGES = "/usr/share/datasets/fashion-mnist"


class Model:
    """shapes: of the parameters; those of more than one dimension begin as N(0, 1/fan-in), others as 0. target: the loss that ends a training."""

    shapes, target, soon = (), 0.0, 0.0  # soon: a loss that is reached in a few updates, for --quick
    begins = 0.0  # the learning rate with which the search for the best one begins

    def __init__(self):
        self.sizes = [int(np.prod(s)) for s in self.shapes]

    def begin(self, seed):
        g = torch.Generator().manual_seed(2000 + seed)
        return torch.cat([(torch.randn(s, generator=g) * int(np.prod(s[1:])) ** -0.5 if len(s) > 1 else torch.zeros(s)).reshape(-1)
                          for s in self.shapes])

    def parts(self, w):
        return [p.view(s) for p, s in zip(w.split(self.sizes), self.shapes)]

    def gradient(self, w, at):
        """at: the indexes of the samples of a batch."""
        flat = w.detach().requires_grad_()
        loss = F.cross_entropy(self.logits(self.parts(flat), self.x[at]), self.y[at])
        return torch.autograd.grad(loss, flat)[0]

    @torch.no_grad()
    def loss(self, w):
        return float(F.cross_entropy(self.logits(self.parts(w), self.x[:SHOWN]), self.y[:SHOWN]))


class Perceptron(Model):
    shapes, target, soon, begins = ((256, 100), (256,), (10, 256), (10,)), 0.45, 1.7, 0.4

    def __init__(self):
        super().__init__()
        g = torch.Generator().manual_seed(1000)
        self.x = torch.randn((4096, 100), generator=g)
        self.y = (torch.tanh(self.x @ torch.randn((100, 30), generator=g) / 5) @ torch.randn((30, 10), generator=g)).argmax(1)

    def logits(self, p, x):
        return F.linear(F.relu(F.linear(x, p[0], p[1])), p[2], p[3])


class Convolutional(Model):
    shapes, target, soon, begins = ((8, 1, 3, 3), (8,), (16, 8, 3, 3), (16,), (10, 16 * 49), (10,)), 0.55, 1.7, 0.2

    def __init__(self):
        super().__init__()
        images, labels = fashion.load(IMAGES, "t10k")
        self.x, self.y = fashion.normal(images[:4096]), labels[:4096].long()

    def logits(self, p, x):
        x = F.relu(F.conv2d(x, p[0], p[1], stride=2, padding=1))
        x = F.relu(F.conv2d(x, p[2], p[3], stride=2, padding=1))
        return F.linear(x.flatten(1), p[4], p[5])


class Characters(Model):
    target, soon, begins = 2.3, 3.2, 0.4

    def __init__(self):
        with open(TEXT, encoding="utf-8") as f:
            text = f.read()
        kinds = sorted(set(text))
        codes = torch.tensor([kinds.index(c) for c in text])
        windows = codes.unfold(0, CONTEXT + 1, 1)
        windows = windows[torch.randperm(len(windows), generator=torch.Generator().manual_seed(1))]
        self.x, self.y = windows[:, :-1], windows[:, -1]
        self.shapes = ((len(kinds), 16), (64, 16 * CONTEXT), (64,), (len(kinds), 64), (len(kinds),))
        super().__init__()

    def logits(self, p, x):
        return F.linear(torch.tanh(F.linear(F.embedding(x, p[0]).flatten(1), p[1], p[2])), p[3], p[4])


MODELS = {"perceptron": Perceptron, "convolutional": Convolutional, "characters": Characters}
