# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A training of 4 slots that is clipped by norm on the box (max_norm=), for test/func/torch_norm.

    torch_norm.py one | torch | worker --workers N [--box LIST] [--pause PHASE --folder F]
"""

import argparse
import hashlib
import math
import os
import sys
import time

import torch
from torch import nn

import pbox
import pbox.torch
from pbox.torch import reference

SLOTS = int(os.environ.get("NORM_SLOTS", 4))
ROUNDS, MAX_NORM, BAD = 9, 0.2, (4, 6)  # rounds with an infinity in one slot; who is killed in 6 has left one step out
FREE = "--free" in sys.argv  # without max_norm: what goes on from a checkpoint is the same
RANK = int(os.environ.get("RANK", 0))


def build():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(12, 300), nn.Tanh(), nn.Linear(300, 31), nn.Tanh(), nn.Linear(31, 3))


def backward(model, at, slot):
    g = torch.Generator().manual_seed(1000 * at + slot)
    x, y = torch.randn(8, 12, generator=g), torch.randn(8, 3, generator=g)
    (model(x) - y * (1 + at)).square().mean().backward()
    if at in BAD and slot == 2 and not FREE:
        next(model.parameters()).grad[3, 4] = math.inf


def said(model, opt, name):
    h = hashlib.sha256()
    for p in model.parameters():
        h.update(p.detach().numpy().tobytes())
    state = opt.state_dict()["state"]
    steps = {float(s["step"]) for s in state.values() if "step" in s}
    print(f"digest {name} {h.hexdigest()} steps {sorted(steps)} skipped {opt.state_dict().get('skipped_nonfinite', 0)}", flush=True)


def save(model, opt, at, keep):
    torch.save({"at": at, "next": opt.next_round, "model": model.state_dict(), "opt": opt.state_dict()}, keep + ".new")
    os.replace(keep + ".new", keep)


def train(model, opt, name, at=1, keep=None):
    while at <= ROUNDS:
        backward(model, at, opt.slot)
        opt.step()
        if opt.round_ended:
            if not FREE:
                print(f"norm {at} {opt.grad_norm:.17g}", flush=True)
            at += 1
            if keep:
                save(model, opt, at, keep)
    said(model, opt, name)


def by_torch():
    model = build()
    opt = torch.optim.AdamW(model.parameters(), 0.01)
    for at in range(1, ROUNDS + 1):
        opt.zero_grad()
        for slot in range(SLOTS):
            backward(model, at, slot)
        for p in model.parameters():
            p.grad /= SLOTS
        if at in BAD:
            print(f"norm {at} inf")
            continue
        norm = nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        print(f"norm {at} {float(norm):.17g}")
        opt.step()
    return model


def pauses(opt, phase, folder, rounds):
    """The phase waits once for each of some rounds, until the box was restarted. One of the optimiser itself: the end of its rounds."""
    of = opt if hasattr(opt, phase) else opt._phases
    real = getattr(of, phase)

    def waits(timeout):
        mark = os.path.join(folder, f"{phase}.{opt._round}")
        if opt._round in rounds and not os.path.exists(mark):
            with open(mark, "w"):
                pass
            while not os.path.exists(mark + ".go"):
                time.sleep(0.02)
        return real(timeout)
    setattr(of, phase, waits)


def late(client, model, path):
    opt = pbox.torch.SGD(model.parameters(), 0.01, client=client, slots=SLOTS)
    goes, at = True, 0
    while goes:
        at += 1
        while True:
            backward(model, 1, opt.slot)
            opt.step()
            if opt.round_ended:
                break
        print(f"round {at}", flush=True)
        goes = opt.agree(float(RANK == 0 and not os.path.exists(path)))
        time.sleep(0.02)
    try:
        pbox.torch.SGD(build().parameters(), 0.01, client=client, slots=SLOTS, max_norm=MAX_NORM, declare_timeout=20)
    except pbox.PBoxError as e:
        print(f"refused {type(e).__name__} {e}", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("command")
    p.add_argument("--workers", type=int)
    p.add_argument("--job", default="norm")
    p.add_argument("--pause")
    p.add_argument("--who", type=int, default=-1)  # pauses: the last worker
    p.add_argument("--plain", action="store_true")  # SGD: a restart of the box loses moments (R10.8)
    p.add_argument("--rounds", default="3,6")  # in which it pauses
    p.add_argument("--free", action="store_true")
    p.add_argument("--folder")
    p.add_argument("--keep", action="store_true")  # a checkpoint a round, in the folder; begins with the one that is there
    p.add_argument("--box", default=os.environ.get("PBOX_BOX"))
    p.add_argument("--late")  # a file: until it is there an optimiser without max_norm trains, and then one with it is made
    p.add_argument("--unequal", action="store_true")  # worker 0 alone leaves steps out
    a = p.parse_args()
    how = {} if a.free else dict(max_norm=MAX_NORM, skip_nonfinite=True)
    if a.command == "torch":
        by_torch()
        return
    model = build()
    if a.command == "one":
        opt = reference.Reference("sgd" if a.plain else "adamw", model.parameters(), lr=0.01, slots=SLOTS, **how)
        train_one(model, opt)
        return
    client = pbox.Client(a.box, a.job, os.environ["PBOX_SECRET"], RANK, a.workers, slots=SLOTS, timeout=60)
    if a.unequal:
        try:
            pbox.torch.SGD(model.parameters(), 0.01, client=client, slots=SLOTS, max_norm=MAX_NORM, skip_nonfinite=RANK == 0, declare_timeout=10)
        except (pbox.PBoxMismatch, pbox.PBoxDeadline) as e:
            print(f"refused {type(e).__name__} {e}", flush=True)
        return
    if a.late:
        late(client, model, a.late)
        return
    keep = os.path.join(a.folder, f"{a.job}.{RANK}.pt") if a.keep else None
    saved = torch.load(keep) if keep and os.path.exists(keep) else None
    if saved:
        model.load_state_dict(saved["model"])
    opt = (pbox.torch.SGD if a.plain else pbox.torch.AdamW)(model.parameters(), 0.01, client=client, slots=SLOTS, first_round=saved["next"] if saved else 0, **how)
    if saved:
        opt.load_state_dict(saved["opt"])
    elif keep:
        save(model, opt, 1, keep)
    if a.pause and RANK == a.who % a.workers:
        pauses(opt, a.pause, a.folder, [int(r) for r in a.rounds.split(",")])
    train(model, opt, f"{a.job}.{RANK}", saved["at"] if saved else 1, keep)
    opt.close()
    client.close()


def train_one(model, opt):
    for at in range(1, ROUNDS + 1):
        for slot in range(SLOTS):
            backward(model, at, slot)
            opt.step()
        print(f"norm {at} {opt.grad_norm:.17g}", flush=True)
    h = hashlib.sha256()
    for p in model.parameters():
        h.update(p.detach().numpy().tobytes())
    print(f"digest one {h.hexdigest()} steps {[] if opt.kind == 'sgd' else [float(opt._steps)]} skipped {opt.skipped_nonfinite}")


main()
