# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""What people do with an optimiser, done with one on the box and with torch's, side by side; for
torch_recipes. One process a worker runs all of them; each computes what torch makes of the mean of
all workers' gradients, and prints `result NAME equal` or what differs; `result NAME refused` where
PBox must say no, by REFUSED, and has. What was refused is not equal, and the other way round."""

import argparse
import copy
import io
import os
import sys
import time
import traceback
import warnings

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_  # as scripts import it: before the optimiser is made
from torch.optim import lr_scheduler as sched

import pbox
import pbox.torch

RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
RECIPES = {}
REFUSED = set("""
plateau_on_local_losses frozen_later a_branch_that_is_never_used_with_decay branches_by_turns_with_momentum a_branch_that_begins_late
stored_differently step_left_out_by_one all_reduce_of_other_sizes clip_norm_is_found clamped_weights clamped_weights_by_data
loaded_after_making too_many_param_groups amsgrad unknown_argument binary64 group_added_with_max_norm sparse
""".split())


def recipe(fn):
    RECIPES[fn.__name__] = fn
    return fn


def data(step, rank, n=8):
    g = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(n, 12, generator=g), torch.randn(n, 3, generator=g)


def mlp():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(12, 20), nn.Tanh(), nn.Linear(20, 3))


def loss_of(model, step, rank):
    x, y = data(step, rank)
    return (model(x) - y).square().mean()


def backward(model, step, rank):
    loss_of(model, step, rank).backward()


def mean_gradients(model, step, backward):
    """p.grad becomes the mean over the workers; None stays None where nobody has one."""
    params = list(model.parameters())
    parts = []
    for w in range(WORLD):
        for p in params:
            p.grad = None
        backward(model, step, w)
        parts.append([p.grad for p in params])
    for i, p in enumerate(params):
        all_g = [g[i] for g in parts]
        p.grad = None if all(g is None for g in all_g) else \
            sum(torch.zeros_like(p) if g is None else g for g in all_g) / WORLD


def difference(a, b, names=None):
    worst = 0.0
    for p, q in zip(a, b):
        p, q = p.detach(), q.detach()
        if p.numel():
            worst = max(worst, float(((p - q).abs() / q.abs().clamp(min=1)).max()))
    return "equal" if worst <= 1e-6 else f"differs by {worst:.2e}"


class Pair:
    """A model whose optimiser is on the box, and its twin with torch's."""

    def __init__(self, client, build, kind, schedule=None, backward=backward, params=None,
                 box=None, **hyper):
        self.a, self.b = build(), build()
        self.backward = backward
        params = params or (lambda m: m.parameters())
        self.box = getattr(pbox.torch, kind)(params(self.a), client=client, **hyper,
                                             **(box or {}))
        self.torch = getattr(torch.optim, kind)(params(self.b), **hyper)
        self.schedules = [schedule(o) for o in (self.box, self.torch)] if schedule else []
        self.at = 0

    def step(self, n=1, set_to_none=True):
        for _ in range(n):
            self.box.zero_grad(set_to_none=set_to_none)
            self.backward(self.a, self.at, RANK)
            self.box.step()
            mean_gradients(self.b, self.at, self.backward)
            self.torch.step()
            for s in self.schedules:
                s.step()
            self.at += 1
        return self

    def result(self):
        lr = [[g["lr"] for g in o.param_groups] for o in (self.box, self.torch)]
        assert lr[0] == lr[1], lr
        return difference(self.a.parameters(), self.b.parameters())


def refused(fn, text, kind=pbox.PBoxInvalid):
    try:
        fn()
    except kind as e:
        return "refused" if text in str(e) else f"said {e}"
    except Exception as e:
        return f"raised {type(e).__name__}: {e}"
    return "not refused"


# ---- kinds and schedules


def simple(name, kind, n=8, **kw):
    RECIPES[name] = lambda c: Pair(c, mlp, kind, **kw).step(n).result()


simple("sgd", "SGD", lr=0.1)
simple("momentum_and_decay", "SGD", lr=0.1, momentum=0.9, weight_decay=0.01)
simple("nesterov", "SGD", lr=0.1, momentum=0.9, nesterov=True)
simple("dampening", "SGD", lr=0.1, momentum=0.9, dampening=0.3)
simple("adam", "Adam", lr=0.01)
simple("adam_with_decay", "Adam", lr=0.01, weight_decay=0.1, betas=(0.8, 0.99))
simple("adamw", "AdamW", lr=0.01)
simple("maximize", "SGD", lr=0.01, momentum=0.9, weight_decay=0.1, maximize=True)
simple("maximize_adamw", "AdamW", lr=0.01, maximize=True)
simple("warm_up", "SGD", lr=0.1,
       schedule=lambda o: sched.LambdaLR(o, lambda e: min(1, (e + 1) / 5)))
simple("linear_then_cosine", "AdamW", lr=0.01, n=12, schedule=lambda o: sched.SequentialLR(
    o, [sched.LinearLR(o, 0.1, total_iters=4), sched.CosineAnnealingLR(o, 8)], [4]))
simple("one_cycle", "SGD", lr=0.1, momentum=0.9, n=12,
       schedule=lambda o: sched.OneCycleLR(o, 0.2, total_steps=14))
simple("one_cycle_adam", "Adam", lr=0.01, n=12,
       schedule=lambda o: sched.OneCycleLR(o, 0.02, total_steps=14))
simple("cosine", "SGD", lr=0.1, schedule=lambda o: sched.CosineAnnealingLR(o, 8))
simple("warm_restarts", "SGD", lr=0.1, n=10,
       schedule=lambda o: sched.CosineAnnealingWarmRestarts(o, 3))
simple("step_lr", "SGD", lr=0.1, momentum=0.9, schedule=lambda o: sched.StepLR(o, 3, 0.5))
simple("cyclic", "SGD", lr=0.1, momentum=0.9, n=10,
       schedule=lambda o: sched.CyclicLR(o, 0.01, 0.1, step_size_up=3))


@recipe
def plateau(c):
    p = Pair(c, mlp, "SGD", lr=0.1)
    both = [sched.ReduceLROnPlateau(o, patience=0, threshold=10) for o in (p.box, p.torch)]
    for i in range(4):
        p.step()
        loss = torch.full((1,), float(i + RANK))
        pbox.torch.all_reduce(loss, "mean", client=c)
        for s in both:
            s.step(float(loss))
    assert p.box.param_groups[0]["lr"] < 0.1
    return p.result()


@recipe
def plateau_on_local_losses(c):
    p = Pair(c, mlp, "SGD", lr=0.1).step(2)
    s = sched.ReduceLROnPlateau(p.box, patience=0)
    s.step(1.0)
    s.step(2.0 if RANK == 0 else 0.5)
    began = time.monotonic()
    before = [q.detach().clone() for q in p.a.parameters()]
    said = refused(p.step, f"worker {0 if RANK else 1} has lr={0.01 if RANK else 0.1:g} in "
                   f"group 0, worker {RANK} (this one) lr={0.1 if RANK else 0.01:g}",
                   pbox.PBoxMismatch)
    if time.monotonic() - began > 240:
        return "late"
    same = difference(p.a.parameters(), before)
    return said if same == "equal" else f"{said}, but parameters changed"


@recipe
def param_groups(c):
    return Pair(c, mlp, "AdamW", params=lambda m: [
        {"params": m[0].parameters(), "lr": 0.02},
        {"params": m[2].parameters(), "weight_decay": 0.0}], lr=0.01,
        schedule=lambda o: sched.StepLR(o, 2, 0.5)).step(6).result()


@recipe
def param_groups_of_one_each(c):
    def wide():
        torch.manual_seed(9)
        return nn.ModuleList(nn.Linear(1, 1, bias=False) for _ in range(300))

    def every_one(m, step, rank):
        sum(layer(data(step, rank)[0][:, :1]).square().mean() * (i + 1) for i, layer in enumerate(m)).backward()
    return Pair(c, wide, "SGD", lr=1e-4, momentum=0.9, backward=every_one, params=lambda m: [
        {"params": [p], "lr": 1e-6 * (i + 1)} for i, p in enumerate(m.parameters())],
        schedule=lambda o: sched.StepLR(o, 2, 0.5)).step(4).result()


@recipe
def hyper_parameters_by_hand(c):
    p = Pair(c, mlp, "SGD", lr=0.1, momentum=0.5).step(2)
    for o in (p.box, p.torch):
        o.param_groups[0].update(lr=0.05, momentum=0.9, weight_decay=0.01)
    return p.step(3).result()


# ---- parts of a model


def half_frozen():
    m = mlp()
    m[0].weight.requires_grad_(False)
    return m


RECIPES["frozen_with_decay"] = lambda c: Pair(
    c, half_frozen, "SGD", lr=0.1, momentum=0.9, weight_decay=0.1).step(5).result()
RECIPES["frozen_adamw"] = lambda c: Pair(c, half_frozen, "AdamW", lr=0.01).step(5).result()


@recipe
def unfrozen_later(c):
    p = Pair(c, half_frozen, "Adam", lr=0.01).step(3)
    for m in (p.a, p.b):
        m[0].weight.requires_grad_(True)
    said = refused(p.step, "second optimiser")
    second = pbox.torch.Adam([p.a[0].weight], lr=0.01, client=c)
    weight = p.a[0].weight
    for _ in range(3):  # the first one's step must not see it
        p.box.zero_grad(set_to_none=True)
        p.backward(p.a, p.at, RANK)
        second.step()
        weight.grad = None
        p.box.step()
        mean_gradients(p.b, p.at, p.backward)
        p.torch.step()
        p.at += 1
    return said if said != "refused" else p.result()


@recipe
def frozen_later(c):
    p = Pair(c, mlp, "SGD", lr=0.1, momentum=0.9).step(3)
    for m in (p.a, p.b):
        m[0].weight.requires_grad_(False)
    return refused(p.step, "no gradient at any worker")


@recipe
def frozen_later_plain(c):
    p = Pair(c, mlp, "SGD", lr=0.1).step(3)
    for m in (p.a, p.b):
        m[0].weight.requires_grad_(False)
    return p.step(3).result()


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.one, self.two = nn.Linear(12, 3), nn.Linear(12, 3)

    def forward(self, x, which):
        return (self.one, self.two)[which](x)


def branch(which):
    def backward(model, step, rank):
        x, y = data(step, rank)
        (model(x, which(step, rank)) - y).square().mean().backward()
    return backward


RECIPES["branches_by_rank"] = lambda c: Pair(
    c, Branches, "AdamW", lr=0.01, backward=branch(lambda s, r: r % 2)).step(5).result()
RECIPES["a_branch_that_is_never_used"] = lambda c: Pair(
    c, Branches, "Adam", lr=0.01, backward=branch(lambda s, r: 0)).step(5).result()
RECIPES["a_branch_that_is_never_used_with_decay"] = lambda c: refused(
    Pair(c, Branches, "AdamW", lr=0.01, backward=branch(lambda s, r: 0)).step,
    "no gradient at any worker")
RECIPES["branches_by_turns_plain"] = lambda c: Pair(
    c, Branches, "SGD", lr=0.1, backward=branch(lambda s, r: s % 2)).step(5).result()
RECIPES["branches_by_turns_with_momentum"] = lambda c: refused(
    lambda: Pair(c, Branches, "SGD", lr=0.1, momentum=0.9,
                 backward=branch(lambda s, r: s % 2)).step(5), "no gradient at any worker")
RECIPES["a_branch_that_begins_late"] = lambda c: refused(
    lambda: Pair(c, Branches, "Adam", lr=0.01,
                 backward=branch(lambda s, r: int(s > 2 and r == 0))).step(5), "first gradient")


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.embed = nn.Embedding(10, 6)
        self.lstm = nn.LSTM(6, 6, batch_first=True)
        self.out = nn.Linear(6, 10)
        self.out.weight = self.embed.weight

    def loss(self, step, rank):
        x = torch.randint(10, (4, 7), generator=torch.Generator().manual_seed(9 * step + rank))
        h, _ = self.lstm(self.embed(x[:, :-1]))
        return nn.functional.cross_entropy(self.out(h).reshape(-1, 10), x[:, 1:].reshape(-1))


RECIPES["tied_lstm"] = lambda c: Pair(
    c, Tied, "Adam", lr=0.01, backward=lambda m, s, r: m.loss(s, r).backward()).step(5).result()


def conv():
    torch.manual_seed(6)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, (1, 3)),
                         nn.Flatten(), nn.Linear(4 * 6 * 4, 2))


def conv_backward(model, step, rank):
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(7 * step + rank))
    model(x.contiguous(memory_format=torch.channels_last)).square().mean().backward()


RECIPES["channels_last"] = lambda c: Pair(
    c, lambda: conv().to(memory_format=torch.channels_last), "SGD", lr=0.1, momentum=0.9,
    backward=conv_backward).step(4).result()


@recipe
def stored_differently(c):
    model = conv()
    if RANK == 0:
        model = model.to(memory_format=torch.channels_last)
    with pbox.Client(os.environ["PBOX_BOX"], "other", os.environ["PBOX_SECRET"], RANK,
                     WORLD) as own:
        return refused(lambda: pbox.torch.SGD(model.parameters(), 0.1, client=own), "stored",
                       pbox.PBoxMismatch)


class Normed(nn.Module):
    """Below a layer that is not trained."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.base, self.norm, self.head = nn.Linear(12, 20), nn.BatchNorm1d(20), nn.Linear(20, 3)
        self.base.requires_grad_(False)
        # bits that no sum keeps, of another dtype, and more than a round of the exchange
        self.register_buffer("odd", torch.tensor([0x7fc00001 + seed, -1 << 31], dtype=torch.int32).view(torch.float32))
        self.register_buffer("ids", torch.arange(100000) * seed)

    def forward(self, x):
        return self.head(self.norm(self.base(x)))


def fine_tuned(name, make):
    """Workers that begin with other seeds train the model of worker 0, frozen layer and buffers too."""
    @recipe
    def run(c):
        a, want = Normed(5 + RANK), Normed(5)
        opt = make([p for p in a.parameters() if p.requires_grad], a, c)
        same = [torch.equal(p.reshape(-1).view(torch.uint8), q.reshape(-1).view(torch.uint8))
                for p, q in zip([*a.parameters(), *a.buffers()], [*want.parameters(), *want.buffers()])]
        backward(a, 0, RANK)
        opt.step()
        pbox.torch.all_reduce(torch.zeros(1), client=c)
        return "equal" if all(same) else f"{same}"
    RECIPES[name] = RECIPES.pop("run")


fine_tuned("fine_tuned", lambda p, m, c: pbox.torch.SGD(p, 0.1, client=c, model=m))
fine_tuned("fine_tuned_eager", lambda p, m, c: pbox.torch.Eager(torch.optim.SGD(p, 0.01), client=c, model=m))


# ---- the loop


@recipe
def accumulation(c):
    def twice(model, step, rank):
        for k in range(2):
            (loss_of(model, 100 * step + k, rank) / 2).backward()
    return Pair(c, mlp, "SGD", lr=0.1, momentum=0.9, backward=twice).step(4).result()


@recipe
def zeros_kept_in_gradients(c):
    p = Pair(c, mlp, "SGD", lr=0.1)
    for _ in range(2):
        p.step(1, set_to_none=True).step(1, set_to_none=False)
    return p.result()


@recipe
def closure(c):
    p = Pair(c, mlp, "SGD", lr=0.1)
    for at in range(4):
        def again():
            p.box.zero_grad()
            loss = loss_of(p.a, at, RANK)
            loss.backward()
            return loss
        assert float(p.box.step(again)) > 0
        mean_gradients(p.b, at, backward)
        p.torch.step()
    return p.result()


@recipe
def grad_scaler(c):
    p = Pair(c, mlp, "Adam", lr=0.01)
    scaler = torch.cuda.amp.GradScaler(enabled=False)
    for at in range(4):
        p.box.zero_grad()
        scaler.scale(loss_of(p.a, at, RANK)).backward()
        scaler.unscale_(p.box)
        scaler.step(p.box)
        scaler.update()
        mean_gradients(p.b, at, backward)
        p.torch.step()
    return p.result()


@recipe
def grad_scaler_finds_inf(c):
    """At the last worker, in step 2: nobody makes it. torch 1.13 has no scaler for CPUs, so this is what it does."""
    p = Pair(c, mlp, "Adam", lr=0.01)
    for at in range(6):
        p.box.zero_grad()
        backward(p.a, at, RANK)
        p.box.grad_scale, p.box.found_inf = None, torch.tensor(float(at == 2 and RANK == WORLD - 1))
        p.box.step()
        del p.box.grad_scale, p.box.found_inf
        if at != 2:
            mean_gradients(p.b, at, backward)
            p.torch.step()
    return p.result() if p.box.skipped == 1 else f"skipped {p.box.skipped}"


@recipe
def step_left_out_by_one(c):
    p = Pair(c, mlp, "Adam", lr=0.01).step(2)
    if RANK == WORLD - 1:
        p.box.zero_grad()
        backward(p.a, 2, RANK)
    return refused(lambda: p.step(), f"worker {WORLD - 1} has discarded=1" if RANK != WORLD - 1 else "this one) discarded=1",
                   pbox.PBoxMismatch)


@recipe
def all_reduce_of_other_sizes(c):
    """All get an error, and then it works again."""
    said = refused(lambda: pbox.torch.all_reduce(torch.ones(3 + RANK), client=c), "workers reduce different tensors",
                   pbox.PBoxMismatch)
    x = torch.ones(7)
    pbox.torch.all_reduce(x, client=c)
    return said if x.tolist() == [WORLD] * 7 else f"the next one is {x.tolist()}"


@recipe
def autocast(c):
    def mixed(model, step, rank):
        x, y = data(step, rank)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(x)
        (out.float() - y).square().mean().backward()
    return Pair(c, mlp, "SGD", lr=0.1, backward=mixed).step(4).result()


@recipe
def ema_and_evaluation(c):
    p = Pair(c, mlp, "Adam", lr=0.01)
    ema = [q.detach().clone() for q in p.a.parameters()]
    for _ in range(6):
        p.step()
        with torch.no_grad():
            for e, q in zip(ema, p.a.parameters()):
                e.mul_(0.9).add_(q, alpha=0.1)
            kept = [q.clone() for q in p.a.parameters()]
            for e, q in zip(ema, p.a.parameters()):
                q.copy_(e)
            p.a.eval()
            loss_of(p.a, 0, 0)
            p.a.train()
            for k, q in zip(kept, p.a.parameters()):
                q.copy_(k)
    return p.result()


@recipe
def gan(c):
    def nets():
        torch.manual_seed(8)
        return nn.Linear(4, 12), nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 1))
    (g1, d1), (g2, d2) = nets(), nets()
    kw = dict(lr=0.01, betas=(0.5, 0.999))
    og, od = (pbox.torch.Adam(m.parameters(), client=c, **kw) for m in (g1, d1))
    tg, td = (torch.optim.Adam(m.parameters(), **kw) for m in (g2, d2))

    def critic(g, d):
        def backward(m, step, rank):
            x, _ = data(step, rank)
            (d(g(x[:, :4]).detach()).mean() - d(x).mean()).backward()
        return backward

    def generator(g, d):
        def backward(m, step, rank):
            x, _ = data(step, rank)
            (-d(g(x[:, :4])).mean()).backward()
        return backward
    for at in range(4):
        for o, mine, m, make in ((od, d1, d2, critic), (og, g1, g2, generator)):
            o.zero_grad()
            make(g1, d1)(mine, at, RANK)
            o.step()
            mean_gradients(m, at, make(g2, d2))
            (td if m is d2 else tg).step()
    return difference([*g1.parameters(), *d1.parameters()], [*g2.parameters(), *d2.parameters()])


@recipe
def no_samples_at_one_worker(c):
    a, b = mlp(), mlp()
    box = pbox.torch.SGD(a.parameters(), 0.1, client=c, op="weighted_mean")
    own = torch.optim.SGD(b.parameters(), 0.1)
    counts = [3 * w for w in range(WORLD)]
    for at in range(3):
        box.zero_grad(set_to_none=True)
        if counts[RANK]:
            backward(a, at, RANK)
        box.step(samples=counts[RANK])
        own.zero_grad()
        for w, n in enumerate(counts):
            (loss_of(b, at, w) * n / sum(counts)).backward()
        own.step()
    return difference(a.parameters(), b.parameters())


# ---- checkpoints


def through_a_file(what):
    file = io.BytesIO()
    torch.save(what, file)
    file.seek(0)
    return torch.load(file)


def resumed(name, kind, build=mlp, backward=backward, **hyper):
    """Half of the training, a checkpoint, all made again, the other half."""
    @recipe
    def run(c):
        p = Pair(c, build, kind, lambda o: sched.OneCycleLR(o, 0.02, total_steps=12),
                 backward, **hyper).step(4)
        saved = through_a_file([m.state_dict() for m in (p.a, p.box, p.schedules[0])])
        q = Pair(c, build, kind, lambda o: sched.OneCycleLR(o, 0.02, total_steps=12), backward,
                 **hyper)
        del q.box
        q.a.load_state_dict(saved[0])
        q.box = getattr(pbox.torch, kind)(q.a.parameters(), client=c, **hyper)
        q.schedules[0] = sched.OneCycleLR(q.box, 0.02, total_steps=12)
        q.box.load_state_dict(saved[1])
        q.schedules[0].load_state_dict(saved[2])
        q.b, q.torch, q.at = p.b, p.torch, p.at
        q.schedules[1] = p.schedules[1]
        return q.step(5).result()
    RECIPES[name] = RECIPES.pop("run")


resumed("resumed_sgd", "SGD", lr=0.1, momentum=0.9)
resumed("resumed_nesterov", "SGD", lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)
resumed("resumed_adam", "Adam", lr=0.01)
resumed("resumed_adamw", "AdamW", lr=0.01)
resumed("resumed_frozen", "AdamW", build=half_frozen, lr=0.01)
resumed("resumed_channels_last", "Adam", build=lambda: conv().to(
    memory_format=torch.channels_last), backward=conv_backward, lr=0.01)


def equal_states(a, b):
    if a["state"].keys() != b["state"].keys():
        return f"parameters {sorted(a['state'])}, {sorted(b['state'])}"
    for i, s in a["state"].items():
        for k, v in s.items():
            v, w = torch.as_tensor(v), torch.as_tensor(b["state"][i][k])
            if v.shape != w.shape or not torch.allclose(v, w, rtol=1e-5, atol=1e-7):
                return f"state {k} of parameter {i}: {v.flatten()[:3]}, {w.flatten()[:3]}"
    return "equal"


def exchanged(name, kind, build=mlp, backward=backward, **hyper):
    """The same state in both; then each goes on with the other's."""
    @recipe
    def run(c):
        p = Pair(c, build, kind, None, backward, **hyper).step(5)
        a, b = p.box.state_dict(), p.torch.state_dict()
        same = equal_states(a, b)
        if same != "equal":
            return same
        p.box.load_state_dict(through_a_file(b))
        p.torch.load_state_dict(through_a_file(a))
        if equal_states(p.box.state_dict(), b) != "equal":
            return "a state that was loaded is not there before the next step"
        return p.step(4).result()
    RECIPES[name] = RECIPES.pop("run")


exchanged("exchanged_momentum", "SGD", lr=0.1, momentum=0.9)
exchanged("exchanged_adam", "Adam", lr=0.01, weight_decay=0.01)
exchanged("exchanged_adamw", "AdamW", lr=0.01, build=half_frozen)
exchanged("exchanged_large", "Adam", lr=0.01, build=lambda: (torch.manual_seed(1), nn.Sequential(
    nn.Linear(12, 5000), nn.Tanh(), nn.Linear(5000, 3)))[1])


@recipe
def state_of_one_worker_only(c):
    p = Pair(c, mlp, "Adam", lr=0.01).step(3)
    if RANK == 0:
        s = p.box.state_dict()
        if equal_states(s, p.torch.state_dict()) != "equal":
            return "another state"
    return p.step(2).result()


@recipe
def wgan_clamp(c):
    p = Pair(c, mlp, "Adam", lr=0.05)
    for _ in range(4):
        p.step()
        for m in (p.a, p.b):
            for q in m.parameters():
                q.data.clamp_(-0.1, 0.1)
        p.box.push_parameters()
    return p.step().result()


# ---- what the box must notice


@recipe
def clip_norm_is_found(c):
    p = Pair(c, mlp, "SGD", lr=0.1)
    p.backward(p.a, 0, RANK)
    clip_grad_norm_(p.a.parameters(), float("inf"))
    said = refused(lambda: clip_grad_norm_(p.a.parameters(), 1.0), "clip_value")
    clip_grad_norm_(p.b.parameters(), 1.0)  # the twin is torch's
    return said


@recipe
def clip_value(c):
    a, b = mlp(), mlp()
    box = pbox.torch.SGD(a.parameters(), 0.1, client=c, clip_value=0.01)
    own = torch.optim.SGD(b.parameters(), 0.1)
    for at in range(4):
        box.zero_grad()
        backward(a, at, RANK)
        box.step()
        mean_gradients(b, at, backward)
        nn.utils.clip_grad_value_(b.parameters(), 0.01)
        own.step()
    return difference(a.parameters(), b.parameters())


@recipe
def clamped_weights(c):
    p = Pair(c, mlp, "SGD", lr=0.1).step(2)
    with torch.no_grad():
        for q in p.a.parameters():
            q.clamp_(-0.01, 0.01)
    return refused(p.step, "changed outside of step()")


@recipe
def clamped_weights_by_data(c):
    p = Pair(c, mlp, "SGD", lr=0.1).step(2)
    for q in p.a.parameters():
        q.data.clamp_(-0.01, 0.01)
    return refused(p.step, "changed outside of step()")


@recipe
def loaded_after_making(c):
    p = Pair(c, mlp, "SGD", lr=0.1)
    p.a.load_state_dict({k: v + 1 for k, v in p.a.state_dict().items()})
    return refused(p.step, "changed outside of step()")


def bad(name, make, text, kind=pbox.PBoxInvalid):
    RECIPES[name] = lambda c: refused(lambda: make(c), text, kind)


bad("too_many_param_groups", lambda c: pbox.torch.SGD(
    [{"params": [nn.Parameter(torch.zeros(1))]} for _ in range(1025)], 0.1, client=c), "1025 parameter groups")
bad("amsgrad", lambda c: pbox.torch.Adam(mlp().parameters(), amsgrad=True, client=c), "amsgrad")
bad("unknown_argument", lambda c: pbox.torch.SGD(mlp().parameters(), 0.1, client=c, eta=1), "eta")
bad("binary64", lambda c: pbox.torch.SGD(mlp().double().parameters(), 0.1, client=c), "float64")
bad("group_added_with_max_norm", lambda c: pbox.torch.SGD(mlp().parameters(), 0.1, client=c, max_norm=1.0)
    .add_param_group({"params": list(mlp().parameters())}), "all parameters have one norm")


@recipe
def sparse(c):
    emb = nn.Embedding(4, 2, sparse=True)
    opt = pbox.torch.SGD(emb.parameters(), 0.1, client=c)
    emb(torch.tensor([1])).sum().backward()
    return refused(opt.step, "sparse")


# ---- the hook


def hooked(make, backward=backward, steps=3, clip=None, **kw):
    def run(c):
        ddp = DistributedDataParallel(make(), bucket_cap_mb=0.001, **kw)
        twin = make()
        hook = pbox.torch.register(ddp, client=c)
        opts = [torch.optim.AdamW(m.parameters(), 0.01) for m in (ddp, twin)]
        for at in range(steps):
            opts[0].zero_grad()
            backward(ddp, at, RANK)
            mean_gradients(twin, at, backward if not isinstance(backward, _Accumulated)
                           else backward.plain)
            for m, o in zip((ddp, twin), opts):
                if clip:
                    clip_grad_norm_(m.parameters(), clip)
                o.step()
        hook.close()
        return difference(ddp.parameters(), twin.parameters())
    return run


class _Accumulated:
    """Two micro-batches, the first without synchronisation."""

    def __call__(self, ddp, step, rank):
        with ddp.no_sync():
            (loss_of(ddp, 100 * step, rank) / 2).backward()
        (loss_of(ddp, 100 * step + 1, rank) / 2).backward()

    @staticmethod
    def plain(model, step, rank):
        for k in range(2):
            (loss_of(model, 100 * step + k, rank) / 2).backward()


class Joined:
    """Rank 1 has no inputs left after 3 of 5 steps; what rank 0 gets then (gradient 2 from itself)."""

    def __init__(self, want, op="mean", samples=1, **kw):
        self.want, self.op, self.samples, self.kw = want, op, samples, kw

    def __call__(self, c):
        ddp = DistributedDataParallel(nn.Linear(1, 1, bias=False))
        hook = pbox.torch.register(ddp, client=c, op=self.op)
        hook.samples = self.samples
        with Join([ddp], **self.kw):
            for _ in range(5 - 2 * RANK):
                ddp.zero_grad()
                ddp(torch.full((4, 1), 2.0 + 8 * RANK)).mean().backward()
        hook.close()
        got = ddp.module.weight.grad.item()
        want = self.want if RANK == 0 else 6.0 if self.op != "sum" else 12.0
        return "equal" if got == want else f"{got}, not {want}"


RECIPES["hook_join"] = Joined(1.0)
RECIPES["hook_join_who_is_there"] = Joined(2.0, divide_by_initial_world_size=False)
RECIPES["hook_join_sum"] = Joined(2.0, op="sum")
RECIPES["hook_join_weighted"] = Joined(2.0, op="weighted_mean", samples=12)


@recipe
def hook_of_a_process_group(c):
    own, other = [dist.new_group([r]) for r in range(WORLD)], dist.new_group()
    ddp = DistributedDataParallel(nn.Linear(1, 1, bias=False), process_group=own[RANK])
    said = refused(lambda: pbox.torch.register(ddp, job="other", secret=os.environ["PBOX_SECRET"]), "process_group",
                   (pbox.PBoxInvalid, pbox.PBoxMismatch))  # of two workers; and only one of the groups can have it
    if said != "refused":
        return said
    hook = pbox.torch.register(ddp, job=f"single{RANK}")
    ddp(torch.full((4, 1), 2.0 + 8 * RANK)).mean().backward()
    hook.close()
    if ddp.module.weight.grad.item() != 2.0 + 8 * RANK:
        return f"{ddp.module.weight.grad.item()}, not of this group"
    ddp = DistributedDataParallel(nn.Linear(1, 1, bias=False), process_group=other)
    hook = pbox.torch.register(ddp, client=c)
    ddp(torch.full((4, 1), 2.0 + 8 * RANK)).mean().backward()
    hook.close()
    return "equal" if ddp.module.weight.grad.item() == 6.0 else "not the mean of all"


@recipe
def hook_copied(c):
    ddp = DistributedDataParallel(mlp())
    hook = pbox.torch.register(ddp, client=c)
    backward(ddp, 0, RANK)
    torch.save(ddp, file := io.BytesIO())
    file.seek(0)
    models = [ddp, copy.deepcopy(ddp), torch.load(file)]
    for m in models[1:]:
        backward(m, 1, RANK)  # by torch's own all-reduce
    ddp.zero_grad()
    backward(ddp, 1, RANK)
    hook.close()
    for m in models[1:]:
        for p, q in zip(m.parameters(), ddp.parameters()):
            p.grad = p.grad if torch.allclose(p.grad, q.grad, atol=1e-6) else None
            if p.grad is None:
                return "a copy has other gradients"
    return "equal"


@recipe
def hooks_without_end(c):
    """Each has a table of 4 MB: as many as the job's memory never has."""
    for i in range(200):
        ddp = DistributedDataParallel(nn.Linear(1000, 1000, bias=False), broadcast_buffers=False)
        hook = pbox.torch.register(ddp, client=c)
        if i % 50 == 0:
            ddp(torch.full((1, 1000), RANK + 1.0)).sum().backward()
            if not (ddp.module.weight.grad == 1.5).all():
                return "not the mean"
        if i % 3 != RANK:
            hook.close()  # else it is dropped
    return "equal"


class Wide(nn.Module):
    """300 parameters of a bucket each."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(8)
        self.layers = nn.ModuleList(nn.Linear(12, 24, bias=False) for _ in range(300))

    def forward(self, x):
        return sum(layer(x)[:, :3] for layer in self.layers)


RECIPES["hook_with_300_buckets"] = hooked(Wide)
RECIPES["hook"] = hooked(mlp)
RECIPES["hook_clip_by_norm"] = hooked(mlp, clip=0.01)
RECIPES["hook_no_sync"] = hooked(mlp, _Accumulated())
RECIPES["hook_frozen"] = hooked(half_frozen)
RECIPES["hook_channels_last"] = hooked(
    lambda: conv().to(memory_format=torch.channels_last), conv_backward)
RECIPES["hook_unused"] = hooked(Branches, branch(lambda s, r: r % 2),
                                find_unused_parameters=True)
RECIPES["hook_views"] = hooked(mlp, gradient_as_bucket_view=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("names", nargs="*")
    p.add_argument("--timeout", type=float, default=300)
    args = p.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    failed = 0
    client = pbox.Client(os.environ["PBOX_BOX"], "test", os.environ["PBOX_SECRET"], RANK, WORLD,
                         timeout=args.timeout, join_timeout=args.timeout)
    for name in args.names or RECIPES:
        try:
            said = RECIPES[name](client)
        except Exception:
            said = traceback.format_exc().strip().replace("\n", " | ")
        want = "refused" if name in REFUSED else "equal"
        if said != want:
            failed += 1
            said = f"wrong: {said}, not {want}"
        print("result", name, said, flush=True)
        dist.barrier()
    client.close()
    sys.stdout.flush()
    os._exit(failed > 0)


if __name__ == "__main__":
    main()
