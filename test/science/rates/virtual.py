# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Eager trainings in virtual time: pushes and pulls beside computations, and learning rates by staleness."""

import heapq
import os
import statistics
import sys

import numpy as np
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "eager"))
# pylint: disable=wrong-import-position
import problem
from models import BATCH

TRANSFER = 0.6  # of a push, and of a pull, in the fastest's computation, which is the unit of time
LOOK, MEAN = 4, 3  # the loss is looked at after so many updates; a mean of so many ends a training
RULES = (*problem.MODULATIONS, "known")


def factor(rule, tau, before, workers, median):
    """What an update counts by (doc/train-eager.md); `before`: the tau of the update before it, which its worker knows when it begins to compute."""
    return problem.factor("rel", before, workers, median) if rule == "known" else problem.factor(rule, tau, workers, median)


class Speeds:
    """How long a computation of a worker lasts.

    equal: 1. apart: 1 to 4, evenly. changing: 1, and in stretches of ten computations, a quarter of them by chance, 4.
    """

    def __init__(self, kind, workers, seed):
        self.kind, self.workers, self.g = kind, workers, np.random.default_rng(4000 + seed)
        self.left, self.now = [0] * workers, [1.0] * workers

    def next(self, i):
        if self.kind == "equal":
            # two that end at the same moment would do so again and again
            return self.g.uniform(0.98, 1.02)
        if self.kind == "apart":
            return (1 + 3 * i / max(1, self.workers - 1)) * self.g.uniform(0.98, 1.02)
        if self.left[i] == 0:
            self.left[i], self.now[i] = 10, 4.0 if self.g.random() < 0.25 else 1.0
        self.left[i] -= 1
        return self.now[i] * self.g.uniform(0.98, 1.02)


class Loss:
    """The loss that a training has come to; `ended`: True at its target, False when it has diverged."""

    def __init__(self, model):
        self.model, self.last, self.ended = model, [], None

    def look(self, w):
        loss = self.model.loss(w)
        if not loss < 50:
            self.ended = False
        self.last = self.last[1 - MEAN:] + [loss]
        if len(self.last) == MEAN and sum(self.last) / MEAN < self.model.target:
            self.ended = True
        return self.ended is not None


def alone(model, lr, momentum, seed, limit):
    """Updates that one worker needs; None: not within `limit`."""
    w, v, g, loss = model.begin(seed), 0.0, np.random.default_rng(3000 + seed), Loss(model)
    for n in range(1, limit + 1):
        v = momentum * v + model.gradient(w, torch.from_numpy(g.integers(0, len(model.y), BATCH)))
        w = w - lr * v
        if n % LOOK == 0 and loss.look(w):
            return n if loss.ended else None
    return None


def eager(model, rule, lr, momentum, workers, speeds, seed, limit):
    """(updates to the target, its virtual seconds, mean tau); None: not within `limit` updates.

    As pbox.torch.Eager: a worker pushes its update, goes on with what its pull before has brought, and its own pushes that it lacks are added to it.
    Momentum is each worker's own.
    """
    g, loss, speed = np.random.default_rng(3000 + seed), Loss(model), Speeds(speeds, workers, seed)
    w, order = model.begin(seed), iter(range(10**9))
    copy, velocity, version, own_seen = [w] * workers, [0.0] * workers, [0] * workers, [0] * workers
    pulled, pending = [(w, 0, 0)] * workers, [[] for _ in range(workers)]  # parameters, version, own pushes in them
    applied, own = 0, [0] * workers
    taus, before, seen = [0.0] * workers, [0.0] * workers, []
    events = [(speed.next(i), next(order), "computed", i, None) for i in range(workers)]
    heapq.heapify(events)

    def computed(now, i):
        velocity[i] = momentum * velocity[i] + model.gradient(copy[i], torch.from_numpy(g.integers(0, len(model.y), BATCH)))
        new, new_version, new_own = pulled[i]
        tau = new_version - version[i] - (new_own - own_seen[i])
        taus[i] += (tau - taus[i]) / 4
        seen.append(tau)
        u = velocity[i] * (-lr * factor(rule, tau, before[i], workers, statistics.median(taus)))
        before[i] = tau
        copy[i], version[i], own_seen[i] = new + u, new_version, new_own
        pending[i] = pending[i] + [u]
        # the pull that is posted now brings what the box has while it answers
        heapq.heappush(events, (now + TRANSFER / 2, next(order), "pulled", i, None))
        heapq.heappush(events, (now + TRANSFER, next(order), "applied", i, u))
        heapq.heappush(events, (now + max(speed.next(i), TRANSFER), next(order), "computed", i, None))

    while applied < limit:
        now, _, what, i, update = heapq.heappop(events)
        if what == "computed":
            computed(now, i)
        elif what == "pulled":
            pulled[i] = (sum(pending[i], w), applied, own[i])
        else:
            w = w + update
            applied += 1
            own[i] += 1
            pending[i] = pending[i][1:]
            if applied % LOOK == 0 and loss.look(w):
                return (applied, now, statistics.mean(seen)) if loss.ended else None
    return None
