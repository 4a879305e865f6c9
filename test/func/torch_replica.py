# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A worker of test/func/torch_replica: trains with an optimiser on the box whose results are differences in a block format, and compares every step
with pbox.torch.reference.

torch_replica.py JOB PULL STEPS [OPTION...]. Prints `round N DIGEST` and, where the reference is there, `same N`; `differs N ...` is a failure.

A step is made of 24 micro-batches, divided among the workers. Their gradients are rounded to multiples of 2^-16, so that sums are exact, and the
same for any number of workers.
"""

import argparse
import hashlib
import os
import time

import torch

import pbox
import pbox.torch
from pbox.torch import reference

RANK = int(os.environ["RANK"])
PARTS = 24
GRID = 2.0 ** 16


def make_model():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(70, 90), torch.nn.Tanh(), torch.nn.Linear(90, 17), torch.nn.Tanh(), torch.nn.Linear(17, 1))


def gradients(model, step, parts):
    """The sum over these micro-batches, and their mean loss."""
    params = list(model.parameters())
    sums = [torch.zeros_like(p) for p in params]
    total = 0.0
    for k in parts:
        x = torch.randn(16, 70, generator=torch.Generator().manual_seed(1000 * step + k))
        loss = (model(x)[:, 0] - x[:, :5].sum(1).sin()).square().mean() / PARTS
        total += float(loss)
        for s, g in zip(sums, torch.autograd.grad(loss, params)):
            s += (g * GRID).round() / GRID
    return sums, total


def digest(tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().contiguous().view(torch.int32).numpy().tobytes())
    return h.hexdigest()[:16]


OPTIMISERS = {
    "sgd": ("SGD", dict(lr=0.05)),
    "momentum": ("SGD", dict(lr=0.02, momentum=0.9, weight_decay=1e-3)),
    "nesterov": ("SGD", dict(lr=0.02, momentum=0.9, nesterov=True)),
    "adam": ("Adam", dict(lr=2e-3)),
    "adamw": ("AdamW", dict(lr=2e-3)),
}


def in_one_process(args, model, kind, hyper):
    """The same training, by the reference."""
    adam = dict(hyper)
    sizes = [p.numel() for p in model.parameters()]
    slots = (args.slots or args.workers) if args.push != "fp32" else None
    return reference.Reference(kind, model.parameters(), op="sum", pull=args.pull, push=args.push, slots=slots, workers=args.workers,
                               fragments=reference.fragments_of(sizes, mtu=args.mtu, cores=args.cores), compress=args.compress or (), **adam)


def compare(step, model, other):
    mine, theirs = (torch.cat([p.detach().reshape(-1) for p in m.parameters()]) for m in (model, other))
    if reference.equal_bits(mine, theirs):
        print("same", step, flush=True)
        return
    i = int((mine.view(torch.int32) != theirs.view(torch.int32)).nonzero()[0])
    print("differs", step, "element", i, float(mine[i]), float(theirs[i]), flush=True)


def save(path, model, opt):
    torch.save({"model": model.state_dict(), "round": opt.next_round}, path + ".new")
    os.replace(path + ".new", path)


def of_worker(args, worker):
    return range(worker * PARTS // args.workers, (worker + 1) * PARTS // args.workers)


def shares(args):
    """Which micro-batches come together in each step() of the reference."""
    if args.slots:
        return [[k] for k in range(PARTS)]
    return [range(PARTS)] if args.push == "fp32" else [of_worker(args, w) for w in range(args.workers)]


def give(model, step, parts):
    sums, loss = gradients(model, step, parts)
    for p, g in zip(model.parameters(), sums):
        p.grad = g
    return loss


def train(args):
    model, other = make_model(), make_model()
    if args.checkpoint:
        args.checkpoint += f".{RANK}"
    name, hyper = OPTIMISERS[args.optimiser]
    first = 0
    if args.checkpoint and os.path.exists(args.checkpoint):
        kept = torch.load(args.checkpoint)
        model.load_state_dict(kept["model"])
        first = kept["round"]
    opt = getattr(pbox.torch, name)(model.parameters(), op="sum", push=args.push, pull=args.pull, job=args.job, workers=args.workers, worker=RANK,
                                    model=model, timeout=args.timeout, first_round=first, slots=args.slots or None, compress=args.compress or None, **hyper)
    ref = None if args.no_reference or RANK > 0 else in_one_process(args, other, args.optimiser, hyper)
    mine = of_worker(args, RANK)
    loss = 0.0
    for step in range(first or 1, args.steps + 1):
        for k in mine[:-1] if args.slots else ():
            give(model, step, [k])
            opt.step()
        loss = give(model, step, mine[-1:] if args.slots else mine) * (len(mine) if args.slots else 1)
        if args.overwrites == step:
            with torch.no_grad():
                next(model.parameters()).mul_(1.5)
        opt.step()
        if args.checkpoint:
            save(args.checkpoint, model, opt)
        print("round", step, digest(model.parameters()), flush=True)
        if ref is not None:
            for parts in shares(args):
                give(other, step, parts)
                ref.step()
            compare(step, model, other)
        time.sleep(args.pause)
        while args.until and step == args.steps // 2 and not os.path.exists(args.until):
            time.sleep(0.02)
    print("loss", loss * args.workers, flush=True)
    stats = opt.client.stats()
    print("bytes", stats.useful_rx_bytes, flush=True)
    print("sent", stats.useful_tx_bytes, flush=True)
    print("chosen", opt.compressed, flush=True)
    opt.close()
    print("end", flush=True)


def refused(args):
    """What does not go, by name."""
    def tries(*texts, **how):
        model = make_model()
        try:
            pbox.torch.SGD(model.parameters(), lr=0.1, job=args.job + "." + str(tries.n), workers=1, worker=0, timeout=args.timeout, **how)
        except pbox.PBoxInvalid as e:
            print("refused" if all(t in str(e) for t in texts) else "other text", how, e, flush=True)
        else:
            print("taken", how, flush=True)
        tries.n += 1
    tries.n = 0
    tries("pushes in blocks with two phases", "push fp32", push="int8", max_norm=1.0)
    tries("slots with results in blocks", "pull fp32", pull="mxfp4", slots=4)
    tries("results in blocks with two phases", "pull fp32", pull="int8", max_norm=1.0)
    tries("results in blocks with two phases", "pull fp32", pull="int8", skip_nonfinite=True)
    tries("keep_copies", pull="int8", keep_copies=False)
    tries("keep_copies", push="int8", keep_copies=False)
    for text, compress in (("'auto', or a list", "always"), ("without entries", []), ("rounds begin with 1", [(0, "int8")]),
                           ("later than the one before", [(5, "int8"), (5, "fp32")]), ("fp32, int8 and mxfp4", [(1, "bf16")]),
                           ("'a'", [("a", "int8")]), ("one of them", [(1, "int8"), (9, "mxfp4")]), ("(round, format)", ["int8"])):
        tries("compress", text, compress=compress)
    tries("push='bf16'", "compress", compress="auto", push="bf16")
    tries("pushes in blocks with two phases", "push fp32", compress="auto", max_norm=1.0)
    tries("send_early", "compress", compress="auto", slots=4, policy="reassign", send_early=True)
    tries("weighted_mean", "sample_mean", compress="auto", op="weighted_mean")
    print("end", flush=True)


def entries(text):
    if text in ("", "auto"):
        return text
    rows = [e.split(":") for e in text.split(",")]
    return [(int(r[0]), r[1], r[-1]) for r in rows]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("job")
    p.add_argument("pull")
    p.add_argument("steps", type=int)
    p.add_argument("--workers", type=int, default=1)
    p.add_argument("--optimiser", default="adam", choices=OPTIMISERS)
    p.add_argument("--push", default="fp32")
    p.add_argument("--slots", type=int, default=0, choices=(0, PARTS), help="each micro-batch is a slot")
    p.add_argument("--mtu", type=int, default=9000)
    p.add_argument("--cores", type=int, default=1)
    p.add_argument("--pause", type=float, default=0.0)
    p.add_argument("--timeout", type=float, default=60.0)
    p.add_argument("--until", default="", help="after half of the steps: wait until this file is there")
    p.add_argument("--checkpoint", default="", help="after each step; a process that finds one goes on from it")
    p.add_argument("--overwrites", type=int, default=0, help="change a parameter before this step")
    p.add_argument("--no-reference", action="store_true")
    p.add_argument("--compress", type=entries, default="", help="ROUND:PUSH[:PULL],... or auto")
    p.add_argument("--refused", action="store_true")
    args = p.parse_args()
    torch.set_num_threads(1)
    (refused if args.refused else train)(args)


main()
