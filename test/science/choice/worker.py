# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A worker of the experiment choice: Fashion-MNIST by SGD on the box, in fp32, in a format of blocks, or with compress="auto".

Computation takes as long as is said, of which what is real is a part. Prints one JSON object: seconds of each round, test loss (worker 0), digest of
the parameters, and what was chosen.
"""

import argparse
import hashlib
import json
import os
import sys
import time

import torch
import torch.nn.functional as F

import pbox.torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "usertools", "examples"))
# pylint: disable=wrong-import-position
import fashion


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--box", required=True)
    p.add_argument("--job", required=True)
    p.add_argument("--method", required=True, help="fp32, int8, mxfp4, or auto")
    p.add_argument("--compute", type=float, required=True, help="seconds of a round; 0: no computation, and gradients of the first batch")
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--rounds", type=int, required=True)
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--data", required=True)
    args = p.parse_args()
    rank, workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    model = fashion.network(args.seed)
    how = {"compress": "auto"} if args.method == "auto" else {"push": args.method, "pull": args.method}
    opt = pbox.torch.SGD(model.parameters(), lr=args.lr, box=args.box, job=args.job, secret="", worker=rank, workers=workers, model=model, timeout=120.0, **how)
    seconds = []
    data = iter(fashion.Batches(args, rank, workers))
    for r in range(args.rounds):
        began = time.monotonic()
        if args.compute > 0 or r == 0:
            images, labels = next(data)
            opt.zero_grad()
            F.cross_entropy(model(images), labels).backward()
        time.sleep(max(0.0, args.compute - (time.monotonic() - began)))
        opt.step()
        seconds.append(time.monotonic() - began)
    out = {"seconds": seconds, "chosen": opt.compressed,
           "digest": hashlib.sha256(torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy().tobytes()).hexdigest()[:16]}
    if rank == 0 and args.compute > 0:
        images, labels = fashion.load(args.data, "t10k")
        with torch.no_grad():
            out["loss"] = float(F.cross_entropy(model(fashion.normal(images)), labels))
    opt.close()
    print(json.dumps(out), flush=True)


main()
