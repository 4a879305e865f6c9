# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""What the experiment eager trains, and the same trainings in virtual time: no packet, no scheduler."""

import heapq

import numpy as np

HIDDEN, BATCH, SAMPLES = 1400, 32, 4096  # 155,410 parameters, 622 KB
SHAPES = [(HIDDEN, 100), (HIDDEN,), (10, HIDDEN), (10,)]
TARGET = 0.30
MODULATIONS = ("none", "inv", "inv_n", "rel")


def data(seed):
    g = np.random.default_rng(1000 + seed)
    x = g.standard_normal((SAMPLES, 100), dtype=np.float32)
    hidden = np.tanh(x @ g.standard_normal((100, 30), dtype=np.float32) / 5)
    return x, (hidden @ g.standard_normal((30, 10), dtype=np.float32)).argmax(1)


def begin(seed):
    g = np.random.default_rng(2000 + seed)
    return [(g.standard_normal(s, dtype=np.float32) * (s[1] ** -0.5 if len(s) > 1 else 0)).astype(np.float32) for s in SHAPES]


def forward(w, x, y):
    h = np.maximum(x @ w[0].T + w[1], 0)
    z = h @ w[2].T + w[3]
    z -= z.max(1, keepdims=True)
    p = np.exp(z)
    p /= p.sum(1, keepdims=True)
    return h, p, float(-np.log(p[np.arange(len(y)), y] + 1e-12).mean())


def gradient(w, x, y):
    h, p, _ = forward(w, x, y)
    p[np.arange(len(y)), y] -= 1
    p /= len(y)
    dh = (p @ w[2]) * (h > 0)
    return [dh.T @ x, dh.sum(0), p.T @ h, p.sum(0)]


class Crossing:
    """When the mean of the last three losses comes below the target."""

    def __init__(self):
        self.last = []

    def add(self, loss):
        self.last = self.last[-2:] + [loss]
        return len(self.last) == 3 and sum(self.last) / 3 < TARGET


def factor(name, tau, workers, median):
    if name == "none":
        return 1.0
    if name == "inv":
        return 1 / max(1.0, tau)
    return min(1.0, (workers if name == "inv_n" else 1 + median) / (1 + tau))


def virtual(method, lr, seed, compute, transfer, limit):
    """(seconds, updates) to the loss; None: not within `limit` seconds. compute: of each worker; transfer: of a push, and of a pull."""
    x, y = data(seed)
    w, g, cross, n = begin(seed), np.random.default_rng(3000 + seed), Crossing(), len(compute)

    def batch():
        b = g.integers(0, SAMPLES, BATCH)
        return x[b], y[b]

    if method.startswith("bsp"):
        turn = max(compute) + transfer * (2 if method == "bsp-then" else 1)
        for k in range(1, int(limit / turn) + 1):
            grads = [gradient(w, *batch()) for _ in compute]
            w = [a - lr * np.mean([gr[i] for gr in grads], axis=0) for i, a in enumerate(w)]
            loss = forward(w, x[:512], y[:512])[2]
            if not loss < 1e6:
                return None
            if cross.add(loss):
                return k * turn, k * n
        return None
    eager, name = method.startswith("eager"), method.split(":")[-1]
    bound, waiting = int(name) if method.startswith("ssp") else 10**9, []  # those whose pull waits for the slowest
    order = iter(range(10**9))
    copy, version, applied, own = [w] * n, [0] * n, 0, [0] * n
    pulled, taus = [(w, 0, 0)] * n, [0.0] * n  # parameters, version, own pushes in them
    own_seen, pending = [0] * n, [[] for _ in compute]
    events = [(t, next(order), "computed", i, None) for i, t in enumerate(compute)]
    heapq.heapify(events)
    while events:
        now, _, what, i, update = heapq.heappop(events)
        if now > limit:
            return None
        if what == "computed":
            u = [-lr * d for d in gradient(copy[i], *batch())]
            if not eager:
                heapq.heappush(events, (now + transfer, next(order), "applied", i, u))
                continue
            new, new_version, new_own = pulled[i]
            tau = new_version - version[i] - (new_own - own_seen[i])
            taus[i] += (tau - taus[i]) / 4
            a = factor(name, tau, n, float(np.median(taus)))
            u = [a * d for d in u]
            copy[i] = [p + d for p, d in zip(new, u)]
            version[i], own_seen[i] = new_version, new_own
            pending[i] = pending[i] + [u]
            # the pull that is posted now brings what the box has while it answers
            heapq.heappush(events, (now + transfer / 2, next(order), "pulled", i, None))
            heapq.heappush(events, (now + transfer, next(order), "applied", i, u))
            heapq.heappush(events, (now + max(compute[i], transfer), next(order), "computed", i, None))
        elif what == "pulled":
            # own pushes that it lacks are added to it here
            lacks = pending[i]
            pulled[i] = ([p + sum(l[k] for l in lacks) for k, p in enumerate(w)] if lacks else w, applied, own[i])
        else:
            w = [p + d for p, d in zip(w, update)]
            applied += 1
            own[i] += 1
            if eager:
                pending[i] = pending[i][1:]
            else:
                waiting.append(i)
                low = min(own)
                for k in [k for k in waiting if own[k] - low <= bound]:
                    waiting.remove(k)
                    copy[k] = w
                    heapq.heappush(events, (now + transfer + compute[k], next(order), "computed", k, None))
            if applied % 4 == 0:
                loss = forward(w, x[:512], y[:512])[2]
                if not loss < 1e6:
                    return None
                if cross.add(loss):
                    return now, applied
    return None
