# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A training that torchrun starts again, from the last checkpoint; for torch_elastic.

With DDP and the hook, or with the optimiser on the box. Rank 0 writes a checkpoint of model and
optimiser after every fifth step. In --folder each rank appends to `log.RANK`:

    begin COUNT STEP PID    started for the COUNTth time, from that step
    step N
    error CLASS TEXT        what PBox said, before the process ends with status 3
    steps N, digest HEX     at the end: after --steps, or once rank 0 has seen the file `stop`

Rank 1 ends with status 17 when it sees the file `fail`, and removes it.
"""

import argparse
import hashlib
import os
import sys
import time

import torch
import torch.distributed as dist

import pbox
import pbox.torch

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
EVERY = 5


class Hook:
    """torch's optimiser after DDP with the hook."""

    def __init__(self, model, options):
        dist.init_process_group("gloo")
        self.module = torch.nn.parallel.DistributedDataParallel(model)
        self.hook = pbox.torch.register(self.module, **options)
        self.optimiser = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

    def any(self, flag):
        dist.all_reduce(flag)

    def error(self):
        return self.hook.error

    def close(self):
        dist.barrier()
        self.hook.close()


class Box:
    """The optimiser on the box, without torch.distributed."""

    def __init__(self, model, options):
        self.module = model
        self.optimiser = pbox.torch.SGD(model.parameters(), 0.05, momentum=0.9, **options)

    def any(self, flag):
        pbox.torch.all_reduce([flag], client=self.optimiser.client)

    def error(self):
        return None

    def close(self):
        self.any(torch.zeros(1))
        self.optimiser.close()


class Training:
    def __init__(self, args):
        self.args = args
        self.path = os.path.join(args.folder, "checkpoint")
        self.log = open(os.path.join(args.folder, f"log.{RANK}"), "a", buffering=1)

    def say(self, *what):
        self.log.write(" ".join(map(str, what)) + "\n")

    def sees(self, name):
        return os.path.exists(os.path.join(self.args.folder, name))

    def save(self, done, model, optimiser):
        torch.save({"step": done, "model": model.state_dict(),
                    "optimiser": optimiser.state_dict()}, self.path + ".new")
        os.rename(self.path + ".new", self.path)

    def step(self, side, done):
        g = torch.Generator().manual_seed(1000 * done + RANK)
        x = torch.randn(16, 61, generator=g)
        side.optimiser.zero_grad()
        (side.module(x) - x[:, :1].sin()).square().mean().backward()
        side.optimiser.step()

    def run(self):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(61, 257), torch.nn.Tanh(),
                                    torch.nn.Linear(257, 1))
        done, saved = 0, None
        if os.path.exists(self.path):
            saved = torch.load(self.path)
            done = saved["step"]
            model.load_state_dict(saved["model"])
        # longer than torchrun takes: the sessions of the processes before are still there
        side = (Hook if self.args.mode == "hook" else Box)(
            model, {"job": self.args.job, "lease": 300.0, "join_timeout": 120.0,
                    "timeout": 120.0})
        self.side = side
        if saved is not None:
            side.optimiser.load_state_dict(saved["optimiser"])
        self.say("begin", os.environ.get("TORCHELASTIC_RESTART_COUNT", 0), done, os.getpid())
        stop = torch.zeros(1)
        while not stop.item() and done < self.args.steps:
            self.step(side, done)
            done += 1
            if RANK == 0 and done % EVERY == 0:
                self.save(done, model, side.optimiser)
            self.say("step", done)
            if RANK == 1 and self.sees("fail"):
                os.remove(os.path.join(self.args.folder, "fail"))
                os._exit(17)
            stop.fill_(RANK == 0 and self.sees("stop"))
            side.any(stop)
            time.sleep(self.args.pause)
        side.close()
        bits = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
        self.say("steps", done)
        self.say("digest", hashlib.sha256(bits).hexdigest()[:32])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("mode", choices=("hook", "box"))
    p.add_argument("--folder", required=True)
    p.add_argument("--job", required=True)
    p.add_argument("--steps", type=int, default=10 ** 9)
    p.add_argument("--pause", type=float, default=0.05)
    args = p.parse_args()
    torch.set_num_threads(1)
    training = Training(args)
    try:
        training.run()
    except Exception as e:
        side = getattr(training, "side", None)
        error = side.error() if side is not None and side.error() is not None else e
        training.say("error", type(error).__name__, " ".join(str(error).split()))
        os._exit(3)
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may outlive everything else


if __name__ == "__main__":
    main()
