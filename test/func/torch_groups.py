# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A training in which layers are added to the optimiser on the way (add_param_group()), for test/func/torch_groups.

    torch_groups.py one | torch | worker --workers N --job NAME [--kind KIND] [--slots V] [--torch FILE]
"""

import argparse
import hashlib
import math
import os
import time

import torch
from torch import nn

import pbox
import pbox.torch
from pbox.torch import reference

RANK = int(os.environ.get("RANK", 0))
ROUNDS, ADDED, BAD = 9, {4: 1, 6: 0}, 5  # round -> layer that is trained from it on; a NaN in a gradient of what was added, at one worker
KINDS = {"sgd": dict(lr=0.05), "momentum": dict(lr=0.05, momentum=0.9, weight_decay=0.01), "adamw": dict(lr=0.01)}


def build(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(12, 40), nn.Tanh(), nn.Linear(40, 31), nn.Tanh(), nn.Linear(31, 3))


def layers(model):
    return [m for m in model if isinstance(m, nn.Linear)]


def backward(model, at, slot):
    g = torch.Generator().manual_seed(1000 * at + slot)
    x, y = torch.randn(8, 12, generator=g), torch.randn(8, 3, generator=g)
    (model(x) - y * (1 + at)).square().mean().backward()


def adds(model, opt, at):
    if at in ADDED:
        opt.add_param_group({"params": list(layers(model)[ADDED[at]].parameters()), "lr": 0.02 * at, "weight_decay": 0.1})


def rate(opt, at):
    opt.param_groups[-1]["lr"] = 0.01 / at


def said(model, opt, name):
    h = hashlib.sha256()
    for p in model.parameters():
        h.update(p.detach().numpy().tobytes())
    state = opt.state_dict()
    steps = [sorted({float(state["state"][i]["step"]) for i in group["params"] if "step" in state["state"].get(i, {})}) for group in state["param_groups"]]
    if not any(steps):
        steps = "none"
    print(f"digest {name} {h.hexdigest()} groups {len(state['param_groups'])} steps {steps}", flush=True)


def by_torch(model, kind, slots, folder):
    first = layers(model)[2].parameters()
    opt = torch.optim.AdamW(first, **KINDS[kind]) if kind == "adamw" else torch.optim.SGD(first, **KINDS[kind])
    for at in range(1, ROUNDS + 1):
        adds(model, opt, at)
        rate(opt, at)
        model.zero_grad()
        for slot in range(slots):
            backward(model, at, slot)
        for p in model.parameters():
            p.grad /= slots
        opt.step()
    torch.save([p.detach() for p in model.parameters()], folder)


def refused(text, call):
    try:
        call()
    except pbox.PBoxInvalid as e:
        assert text in str(e), str(e)
        return
    raise AssertionError(f"not refused: {text}")


def worker(model, a):
    client = pbox.Client(os.environ["PBOX_BOX"], a.job, os.environ["PBOX_SECRET"], RANK, a.workers, slots=a.slots, timeout=60)
    kind = pbox.torch.AdamW if a.kind == "adamw" else pbox.torch.SGD
    opt = kind(layers(model)[2].parameters(), client=client, slots=a.slots, **KINDS[a.kind])
    at, spoiled = 1, False
    while at <= ROUNDS:
        if opt.round_ended:
            if RANK and at in ADDED:  # what is added has worker 0's values from then on
                with torch.no_grad():
                    for q in layers(model)[ADDED[at]].parameters():
                        q.add_(0.5)
            adds(model, opt, at)
            rate(opt, at)
        slot = opt.slot if a.slots else RANK
        if at in ADDED and a.slots and not opt.round_ended:
            refused("in the middle of a round", lambda: opt.add_param_group({"params": [nn.Parameter(torch.zeros(2))]}))
        model.zero_grad()
        backward(model, at, slot)
        if at == BAD and RANK == a.workers - 1 and not spoiled:
            # nothing of this step may be made, and the same batch comes again
            layers(model)[1].bias.grad[0] = math.nan
            refused("group 1 parameter 1", opt.step)
            spoiled = True
            continue
        opt.step()
        at += opt.round_ended
    said(model, opt, f"{a.job}.{RANK}")
    if RANK == 0:
        print("like torch", all(torch.allclose(p, q, rtol=1e-4, atol=1e-6) for p, q in zip(model.parameters(), torch.load(a.torch))), flush=True)
    state = opt.state_dict()
    opt.load_state_dict(state)
    assert [g["lr"] for g in opt.param_groups] == [g["lr"] for g in state["param_groups"]]
    rate(opt, at)
    while at == ROUNDS + 1:
        model.zero_grad()
        backward(model, at, opt.slot if a.slots else RANK)
        opt.step()
        at += opt.round_ended
    said(model, opt, f"{a.job}.{RANK}")
    time.sleep(0.2)
    opt.close()
    client.close()


def one(model, kind, slots):
    opt = reference.Reference(kind, layers(model)[2].parameters(), slots=slots, **KINDS[kind])
    for at in range(1, ROUNDS + 2):
        if at <= ROUNDS:
            adds(model, opt, at)
        rate(opt, at)
        for slot in range(slots):
            model.zero_grad()
            backward(model, at, slot)
            opt.step()
        if at >= ROUNDS:
            h = hashlib.sha256()
            for p in model.parameters():
                h.update(p.detach().numpy().tobytes())
            steps = [[float(opt._steps - s)] for s in opt._since] if kind == "adamw" else "none"
            print(f"digest one {h.hexdigest()} groups {len(opt.param_groups)} steps {steps}", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("command")
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--job", default="groups")
    p.add_argument("--kind", default="adamw")
    p.add_argument("--slots", type=int)
    p.add_argument("--torch", help="file with what torch.optim has made of it")
    a = p.parse_args()
    model = build(5)
    if a.command == "torch":
        by_torch(model, a.kind, a.slots, a.torch)
    elif a.command == "one":
        one(model, a.kind, a.slots)
    else:
        worker(model, a)


main()
