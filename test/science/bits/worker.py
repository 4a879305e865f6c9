# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A worker of the experiment bits: Fashion-MNIST by DistributedDataParallel, again and again, each time with other bits of the gradients.

fp32, int8, mxfp4        by the hook of PBox
box, box:int8, box:mxfp4 with the optimiser on the box, both ways in that format
int8:none, mxfp4:none    the same values without error feedback: the reference codec around Gloo's sum
gloo                     by torch's own all-reduce
pertensor, perchannel    torch's quantisation hooks, over Gloo
bf16                     torch's bf16_compress_hook, over Gloo

Prints one JSON object a training: method, seed, digest of the parameters, CPU seconds of this process; worker 0 also loss and accuracy of the test images.
"""

import argparse
import hashlib
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, quantization_hooks
from torch.nn.parallel import DistributedDataParallel

import pbox.torch
from pbox.torch import reference

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "usertools", "examples"))
# pylint: disable=wrong-import-position
import fashion


def without_feedback(fmt):
    """Nothing of what a payload does not say is kept, at workers and box; two workers, whose sum has no order."""
    def hook(_state, bucket):
        g = bucket.buffer()
        none = torch.zeros_like(g)
        g.copy_(reference.sent(fmt, g, none)[0])
        dist.all_reduce(g)
        g.copy_(reference.sent(fmt, g * 0.5, none)[0])
        done = torch.futures.Future()
        done.set_result(g)
        return done
    return hook


class Gathering:
    """torch.distributed as the quantisation hooks expect it: what has been gathered is one tensor, the first of a list."""

    def __getattr__(self, name):
        return getattr(dist, name)

    @staticmethod
    def all_gather(out, one, group=None, async_op=True):
        work = dist.all_gather(out, one, group=group, async_op=async_op)

        class Work:
            @staticmethod
            def get_future():
                return work.get_future().then(lambda done: (done.wait(), [torch.stack(out)])[1])
        return Work()


def register(model, method, args, job):
    """What there is to close afterwards, or None."""
    if method in ("fp32", "int8", "mxfp4"):
        return pbox.torch.register(model, box=args.box, job=job, secret="", compress=None if method == "fp32" else method, timeout=60.0)
    if method.endswith(":none"):
        model.register_comm_hook(None, without_feedback(method.split(":")[0]))
    elif method == "bf16":
        model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    elif method != "gloo":
        model.register_comm_hook(None, getattr(quantization_hooks, f"quantization_{method}_hook"))
    return None


def digest(model):
    return hashlib.sha256(torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy().tobytes()).hexdigest()[:16]


def test(model, args):
    images, labels = fashion.load(args.data, "t10k")
    model.eval()
    with torch.no_grad():
        out = torch.cat([model(fashion.normal(images[i:i + 1000])) for i in range(0, len(labels), 1000)])
    return {"loss": F.cross_entropy(out, labels).item(), "accuracy": (out.argmax(1) == labels).float().mean().item()}


def train(args, method, seed, job):
    args.seed = seed
    if method.split(":")[0] == "box":
        model, fmt = fashion.network(seed), method.partition(":")[2] or "fp32"
        optimiser = hook = pbox.torch.SGD(model.parameters(), lr=args.lr, momentum=args.momentum, box=args.box, job=job, secret="", push=fmt, pull=fmt,
                                          model=model, timeout=60.0)
    else:
        model = DistributedDataParallel(fashion.network(seed))
        hook = register(model, method, args, job)
        optimiser = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
    batches = fashion.Batches(args, dist.get_rank(), dist.get_world_size())
    rate = fashion.schedule(optimiser, batches.total)
    began, cpu = time.monotonic(), time.process_time()
    for images, labels in batches:
        optimiser.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimiser.step()
        rate.step()
    got = {"cpu": time.process_time() - cpu, "seconds": time.monotonic() - began, "rounds": batches.total, "digest": digest(model)}
    if dist.get_rank() == 0:
        got.update(test(getattr(model, "module", model), args))
    dist.barrier()
    if hook is not None:
        hook.close()
    return got


def main():
    p = fashion.options(__doc__)
    p.add_argument("--methods", required=True)
    p.add_argument("--seeds", type=int, required=True)
    args = p.parse_args()
    torch.set_num_threads(1)
    # the quantisation hooks are written for NCCL: they move to CUDA by name what is there already
    torch.nn.Module.cuda = lambda self, device=None: self
    torch.Tensor.cuda = lambda self, *a, **k: self
    quantization_hooks.dist = Gathering()
    dist.init_process_group("gloo")
    for seed in range(1, args.seeds + 1):
        for n, method in enumerate(args.methods.split(",")):
            try:
                got = train(args, method, seed, f"bits{seed}.{n}")
            except (RuntimeError, TypeError) as e:
                if method != "bf16":  # which some releases have for NCCL alone
                    raise
                got = {"error": str(e).splitlines()[0]}
            print(json.dumps({"method": method, "seed": seed, **got}), flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)  # gloo's threads outlive destroy_process_group in some versions of torch
