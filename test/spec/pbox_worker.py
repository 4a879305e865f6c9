#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A minimal PBox worker in Python, from doc/protocol.md alone (pbox_session.py), as a command: it pushes seeded data and checks what
comes back bit by bit; it prints one line of JSON and exits 0 if all was right, 1 if not."""

import argparse
import json
import sys
import time

import pbox_math
import pbox_proto as proto
from pbox_joining import BoxError, ShutDown, Timeout
from pbox_session import Worker


def split(elements, tensors):
    """Sizes of tensors: halves of what is left, so that there are large and small ones."""
    sizes = []
    for _ in range(tensors - 1):
        sizes.append(elements - elements // 2 if len(sizes) % 2 == 0 else elements // 3)
        elements -= sizes[-1]
    return sizes + [elements]


class Check:
    """What the box must answer, computed here for all workers."""

    def __init__(self, args, sizes):
        self.args, self.sizes = args, sizes
        self.push, self.pull = proto.FORMATS[args.format], proto.FORMATS[args.pull_format]
        self.op = proto.OPS[args.op]
        kind = proto.OPTIMISERS[args.optimiser]
        self.boxes = [pbox_math.Optimiser(kind, v) for v in self.initial()] if kind else None
        for box in self.boxes or []:
            box.hyper.update(args.hyper)
        self.mismatches, self.first = 0, None

    def initial(self):
        return [pbox_math.data(self.args.seed, 1 << 20, i, n) for i, n in enumerate(self.sizes)]

    def sent(self, worker, round_):
        return [pbox_math.data(self.args.seed + i, worker, round_, n)
                for i, n in enumerate(self.sizes)]

    def nodes(self, worker, round_):
        """[(node, values, weight)] that a worker brings in a job with slots: sums over its own."""
        args = self.args
        own = pbox_math.own_slots(worker, args.workers, args.slots)
        nodes = [(s, 0) for s in own] if args.op == "weighted_mean" else pbox_math.nodes_of(own, args.slots)
        sent = {s: self.sent(s, round_) for s in own}
        return [(n, [pbox_math.node_value({s: v[i] for s, v in sent.items()}, n) for i in range(len(self.sizes))],
                 sum(s + 1 for s in pbox_math.node_slots(n, args.slots))) for n in nodes]

    def contributions(self, round_):
        """(slots, values, weights) of which the round consists: not of nodes, unless these are rounded."""
        args = self.args
        if not args.slots or self.push == proto.FORMATS["fp32"]:
            slots = list(range(args.slots or args.workers))
            return slots, [self.sent(s, round_) for s in slots], [s + 1 for s in slots]
        nodes = [n for w in range(args.workers) for n in self.nodes(w, round_)]
        return [n[0][0] for n in nodes], [n[1] for n in nodes], [n[2] for n in nodes]

    def expected(self, round_):
        slots, values, weights = self.contributions(round_)
        parts = [[pbox_math.unpack(pbox_math.pack(v, self.push), self.push) for v in vs] for vs in values]
        sums = [pbox_math.reduce([p[i] for p in parts], weights, self.op, slots, self.args.slots)
                for i in range(len(self.sizes))]
        if self.boxes is None:
            return sums
        for box, grad in zip(self.boxes, sums):
            if len(grad):
                box.step(grad, round_)
        return [box.params for box in self.boxes]

    def compare(self, got, want, round_):
        for tensor, (a, b) in enumerate(zip(got, want)):
            size = proto.FORMAT_SIZE[self.pull]
            a, b = pbox_math.pack(a, self.pull), pbox_math.pack(b, self.pull)
            if a == b:
                continue
            bad = [i for i in range(len(b) // size)
                   if a[i * size:(i + 1) * size] != b[i * size:(i + 1) * size]]
            self.mismatches += len(bad)
            i = bad[0]
            self.first = self.first or {
                "round": round_, "tensor": tensor, "element": i,
                "got": a[i * size:(i + 1) * size].hex(), "want": b[i * size:(i + 1) * size].hex()}


def run(args, worker):
    sizes = split(args.elements, args.tensors)
    check = Check(args, sizes)
    optimiser = proto.OPTIMISERS[args.optimiser]
    worker.join()
    number = worker.worker
    worker.declare(0, [(n, 0, f"tensor.{i}") for i, n in enumerate(sizes)], int(optimiser > 0),
                   check.op, optimiser, check.push, check.pull)
    table = worker.map(0)
    if optimiser:
        if args.hyper:
            worker.set(0, args.hyper)
        if number == 0:
            worker.init(0, check.initial())
        check.compare(worker.pull(0, 0), check.initial(), 0)
    done = min((c.version for c in table.chunks), default=0) if not optimiser else 0
    for round_ in range(done + 1, done + args.rounds + 1):
        if args.slots:
            nodes = check.nodes(number, round_)
            if args.split:
                worker.push_nodes(0, round_, nodes)
            got = worker.pull(0, round_) if args.split else worker.pushpull_nodes(0, round_, nodes)
            check.compare(got, check.expected(round_), round_)
            continue
        values, weight = check.sent(number, round_), number + 1
        if args.split:
            worker.push(0, round_, values, weight)
            got = worker.pull(0, round_)
        else:
            got = worker.pushpull(0, round_, values, weight)
        check.compare(got, check.expected(round_), round_)
    worker.ping(worker.path_mtu, 0 if worker.endpoints else None)
    joined = worker.status().joined
    worker.leave()
    return {"ok": check.mismatches == 0, "worker": number, "rounds": args.rounds,
            "elements": args.elements, "chunks": len(table.chunks), "joined": joined,
            "mismatches": check.mismatches, "first_mismatch": check.first, **worker.counts}


def options(argv):
    p = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    p.add_argument("--box", required=True, help="IP[:port] of the box's control endpoint")
    p.add_argument("--job", required=True)
    p.add_argument("--secret", required=True)
    p.add_argument("--worker", type=int, default=proto.ANY_WORKER, help="number, from 0")
    p.add_argument("--workers", type=int, required=True)
    p.add_argument("--elements", type=int, required=True)
    p.add_argument("--rounds", type=int, required=True)
    p.add_argument("--tensors", type=int, default=4, help="the elements are split into these")
    p.add_argument("--op", choices=proto.OPS, default="sum")
    p.add_argument("--optimiser", choices=proto.OPTIMISERS, default="none")
    p.add_argument("--hyper", action="append", default=[], metavar="NAME=VALUE",
                   help="hyper-parameter of the optimiser, e.g. lr=0.1; may be repeated")
    p.add_argument("--format", choices=proto.FORMATS, default="fp32", help="of what is pushed")
    p.add_argument("--pull-format", choices=proto.FORMATS, default="fp32")
    p.add_argument("--split", action="store_true", help="PUSH and PULL instead of PUSHPULL")
    p.add_argument("--slots", type=int, default=0, help="of the job (R5.2b); default: as many as workers")
    p.add_argument("--mtu", type=int, default=1500)
    p.add_argument("--window", type=int, default=64)
    p.add_argument("--lease-ms", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--deadline", type=float, default=30.0, help="seconds for each step")
    args = p.parse_args(argv)
    try:
        args.hyper = {k: float(v) for k, v in (h.split("=", 1) for h in args.hyper)}
    except ValueError:
        p.error("--hyper wants NAME=VALUE")
    unknown = [k for k in args.hyper if k not in proto.HYPER]
    if unknown:
        p.error(f"--hyper {unknown[0]}: not one of {', '.join(proto.HYPER)}")
    if args.slots and not args.workers <= args.slots <= proto.MAX_SLOTS:
        p.error(f"--slots {args.slots}: {args.workers} (workers) to {proto.MAX_SLOTS}")
    if args.optimiser not in ("none", "adam", "adamw"):
        args.hyper.setdefault("lr", 0.01)
    return args


def main(argv=None):
    args = options(argv)
    start = time.monotonic()
    with Worker(args.box, args.job, args.secret, args.worker, args.workers, args.mtu, args.window,
                args.lease_ms, deadline=args.deadline, slots=args.slots) as worker:
        try:
            result = run(args, worker)
        except (Timeout, BoxError, ShutDown, OSError) as e:
            result = {"ok": False, "worker": args.worker, "error": type(e).__name__,
                      "text": str(e), **worker.counts}
    result["seconds"] = round(time.monotonic() - start, 3)
    print(json.dumps(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
