# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Eager trainings in virtual time: pushes and pulls beside computations, and learning rates by staleness.

What happens when does not depend on rules and learning rates. So runs that differ in these alone go side by side, each with its own parameters: update by
update, with the same samples. The one that comes to the loss first has needed the fewest updates.
"""

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
FAR, SELDOM = 1.2, 4  # times the target: there it is looked at each fourth time
DIVERGED = 50.0  # a loss
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


class Losses:
    """What each run has come to."""

    def __init__(self, model, runs):
        self.model, self.last = model, [[] for _ in range(runs)]

    def look(self, w, applied):
        """By run: True at the target, False when it has diverged; others are not in it."""
        if applied % LOOK:
            return {}
        near = [i for i, last in enumerate(self.last)
                if not last or last[-1] < FAR * self.model.target or applied % (LOOK * SELDOM) == 0]
        if not near:
            return {}
        ended, rows = {}, torch.tensor(near)
        for i, loss in zip(near, self.model.losses(w if len(near) == len(self.last) else [p[rows] for p in w])):
            self.last[i] = self.last[i][1 - MEAN:] + [loss]
            if not loss < DIVERGED:
                ended[i] = False
            elif len(self.last[i]) == MEAN and sum(self.last[i]) / MEAN < self.model.target:
                ended[i] = True
        return ended


class Runs:
    """Runs side by side: what each has come to, and which go on. key: what the caller calls it by."""

    def __init__(self, model, keys, enough):
        self.going, self.got, self.enough = list(keys), dict.fromkeys(keys), enough
        self.losses = Losses(model, len(self.going))

    def look(self, w, applied, result):
        """The indexes of the runs that go on; None: all of them."""
        ended = self.losses.look(w, applied)
        for i, reached in ended.items():
            if reached:
                self.got[self.going[i]] = result()
        gone = {self.going[i] for i in ended}
        if any(ended.values()):
            gone |= {k for k in self.going if self.enough(k, self.got)}
        if not gone:
            return None
        keep = [i for i, k in enumerate(self.going) if k not in gone]
        self.going = [self.going[i] for i in keep]
        self.losses.last = [self.losses.last[i] for i in keep]
        return torch.tensor(keep, dtype=torch.long)


def by_run(factors, parts):
    """A number a run, times the tensors."""
    return [p * factors.view(-1, *[1] * (p.dim() - 1)) for p in parts]


def never(_key, _got):
    return False


def alone(model, rates, momentum, seed, limit, enough=never):
    """{key: updates that one worker needs} of `rates`, {key: learning rate}; None: not within `limit`, or not until enough(key, {key: updates})."""
    g, runs = np.random.default_rng(3000 + seed), Runs(model, rates, enough)
    lr = torch.tensor([rates[k] for k in rates])
    w = model.begin(seed, len(rates))
    v = [torch.zeros_like(p) for p in w]
    for n in range(1, limit + 1):
        gradient = model.gradient(w, torch.from_numpy(g.integers(0, len(model.y), BATCH)))
        v = [momentum * a + b for a, b in zip(v, gradient)]
        w = [a + b for a, b in zip(w, by_run(-lr, v))]
        keep = runs.look(w, n, lambda n=n: n)
        if keep is not None:
            w, v, lr = [p[keep] for p in w], [p[keep] for p in v], lr[keep]
        if not runs.going:
            break
    return runs.got


class Worker:
    """One worker of all runs: what it computes with, and what its next pull brings."""

    def __init__(self, w):
        self.copy, self.pulled = [p.clone() for p in w], [p.clone() for p in w]
        self.velocity, self.update = ([torch.zeros_like(p) for p in w] for _ in range(2))
        self.version = self.pulled_version = 0  # of copy, of pulled
        self.own_seen = self.pulled_own = self.own = 0  # own pushes in copy, in pulled, applied
        self.tau_mean = self.before = 0.0

    def keep(self, rows):
        for name in ("copy", "pulled", "velocity", "update"):
            setattr(self, name, [p[rows] for p in getattr(self, name)])


def eager(model, runs, momentum, workers, speeds, seed, limit, enough=never):
    """{key: (updates to the target, its virtual seconds, mean tau)} of `runs`, {key: (rule, learning rate)}; None: not within `limit` updates, or not
    until enough(key, what there is so far).

    As pbox.torch.Eager: a worker pushes its update, goes on with what its pull before has brought, and its own pushes that it lacks are added to it.
    Momentum is each worker's own.
    """
    g, speed, order = np.random.default_rng(3000 + seed), Speeds(speeds, workers, seed), iter(range(10**9))
    going, w = Runs(model, runs, enough), model.begin(seed, len(runs))
    them, applied, seen = [Worker(w) for _ in range(workers)], 0, []
    events = [(speed.next(i), next(order), "computed", i) for i in range(workers)]
    heapq.heapify(events)

    def computed(now, i):
        me = them[i]
        gradient = model.gradient(me.copy, torch.from_numpy(g.integers(0, len(model.y), BATCH)))
        tau = me.pulled_version - me.version - (me.pulled_own - me.own_seen)
        me.tau_mean += (tau - me.tau_mean) / 4
        seen.append(tau)
        median = statistics.median(x.tau_mean for x in them)
        factors = torch.tensor([-runs[k][1] * factor(runs[k][0], tau, me.before, workers, median) for k in going.going])
        me.before, me.version, me.own_seen = tau, me.pulled_version, me.pulled_own
        for v, d in zip(me.velocity, gradient):
            v.mul_(momentum).add_(d)
        for p, n, u, v in zip(me.copy, me.pulled, me.update, me.velocity):
            torch.mul(v, factors.view(-1, *[1] * (v.dim() - 1)), out=u)
            torch.add(n, u, out=p)
        # the pull that is posted now brings what the box has while it answers
        heapq.heappush(events, (now + TRANSFER / 2, next(order), "pulled", i))
        heapq.heappush(events, (now + TRANSFER, next(order), "applied", i))
        heapq.heappush(events, (now + max(speed.next(i), TRANSFER), next(order), "computed", i))

    while applied < limit and going.going:
        now, _, what, i = heapq.heappop(events)
        me = them[i]
        if what == "computed":
            computed(now, i)
        elif what == "pulled":
            me.pulled_version, me.pulled_own = applied, me.own
            for n, p, u in zip(me.pulled, w, me.update):  # its update is still on its way
                torch.add(p, u, out=n)
        else:
            for p, u in zip(w, me.update):
                p.add_(u)
            applied += 1
            me.own += 1
            keep = going.look(w, applied, lambda now=now: (applied, now, statistics.mean(seen)))
            if keep is not None:
                w = [p[keep] for p in w]
                for x in them:
                    x.keep(keep)
    return going.got
