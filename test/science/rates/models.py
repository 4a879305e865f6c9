# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Three small models for trainings in virtual time: a multi-layer perceptron, a convolutional network, a character LM.

Each has many runs at once, of the same samples: a tensor of parameters has the run as its first dimension. No data is fetched: Fashion-MNIST is
Debian's package, the text is the GNU GPL, which each Debian machine has.
"""

import ctypes
import os
import sys

import numpy as np
import torch
from torch.nn import functional as F

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(TOP, "usertools", "examples"))
# pylint: disable=wrong-import-position
import fashion

# memory that the allocator gives back after each operation costs more than the operation
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
for which in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
    ctypes.CDLL(None).mallopt(which, 1 << 30)
BATCH, SHOWN, CONTEXT = 32, 512, 8  # SHOWN: by so many samples the loss is looked at
PART = 64  # of them at once, so that what is between the layers stays in a cache
TEXT = "/usr/share/common-licenses/GPL-3"
IMAGES = "/usr/share/datasets/fashion-mnist"


class Model:
    """shapes: of the parameters; those of more than one dimension begin as N(0, 1/fan-in), others as 0. target: the loss that ends a training."""

    shapes, target, soon = (), 0.0, 0.0  # soon: a loss that is reached in a few updates, for --quick
    begins = 0.0  # the learning rate with which the search for the best one begins

    def begin(self, seed, runs):
        """The parameters, a tensor a shape: all runs begin alike."""
        g = torch.Generator().manual_seed(2000 + seed)
        one = [torch.randn(s, generator=g) * int(np.prod(s[1:])) ** -0.5 if len(s) > 1 else torch.zeros(s) for s in self.shapes]
        return [p.expand(runs, *p.shape).contiguous() for p in one]

    def cross_entropy(self, w, at):
        logits = self.logits(w, self.x[at])
        y = self.y[at].expand(logits.shape[:2])
        return F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none").view(y.shape).mean(1)

    def gradient(self, w, at):
        """at: the indexes of the samples of a batch."""
        w = [p.detach().requires_grad_() for p in w]
        return torch.autograd.grad(self.cross_entropy(w, at).sum(), w)

    @torch.no_grad()
    def losses(self, w):
        """Of each run."""
        parts = [self.cross_entropy(w, slice(i, i + PART)) for i in range(0, SHOWN, PART)]
        return (sum(parts) / len(parts)).tolist()


class Perceptron(Model):
    shapes, target, soon, begins = ((256, 100), (256,), (10, 256), (10,)), 0.45, 1.7, 0.4

    def __init__(self):
        g = torch.Generator().manual_seed(1000)
        self.x = torch.randn((4096, 100), generator=g)
        self.y = (torch.tanh(self.x @ torch.randn((100, 30), generator=g) / 5) @ torch.randn((30, 10), generator=g)).argmax(1)

    def logits(self, w, x):
        return linear(F.relu(linear(x, w[0], w[1])), w[2], w[3])


class Convolutional(Model):
    shapes, target, soon, begins = ((8, 1, 3, 3), (8,), (16, 8, 3, 3), (16,), (10, 16 * 49), (10,)), 0.55, 1.7, 0.2

    def __init__(self):
        images, labels = fashion.load(IMAGES, "t10k")
        self.x, self.y = fashion.normal(images[:4096]), labels[:4096].long()

    def logits(self, w, x):
        runs = len(w[0])
        x = F.relu(F.conv2d(x, w[0].flatten(0, 1), w[1].flatten(), stride=2, padding=1))  # the same samples for all
        x = F.relu(F.conv2d(x, w[2].flatten(0, 1), w[3].flatten(), stride=2, padding=1, groups=runs))
        return linear(x.view(len(x), runs, -1).transpose(0, 1), w[4], w[5])


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

    def logits(self, w, x):
        runs, kinds, _ = w[0].shape
        embedded = torch.matmul(F.one_hot(x.flatten(), kinds).float(), w[0])
        return linear(torch.tanh(linear(embedded.view(runs, len(x), -1), w[1], w[2])), w[3], w[4])


def linear(x, weight, bias):
    """x: one for all runs, or one a run."""
    return torch.matmul(x, weight.transpose(1, 2)) + bias[:, None]


MODELS = {"perceptron": Perceptron, "convolutional": Convolutional, "characters": Characters}
