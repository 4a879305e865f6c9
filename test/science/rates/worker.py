# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A host with some workers of real eager trainings, a thread each: one training after the other, as they are listed in a JSON file.

A worker sleeps for what its computation would take. Each looks at the loss of the parameters that its step() left; the first host ends a training
when a mean of three looks of its workers is at the target, or after its limit of updates, and prints a line of JSON.
"""

import argparse
import json
import os
import threading
import time

import numpy as np
import torch

import models
import pbox
import pbox.torch
import virtual


class Training:
    """One training, as one host sees it. ended: a file that the first host makes."""

    def __init__(self, t, args, number):
        self.t, self.args, self.number = t, args, number
        self.ended = os.path.join(args.scratch, f"ended.{number}")
        self.lock, self.last, self.got, self.errors = threading.Lock(), [], None, []

    def look(self, loss, version):
        """A host's worker has come so far; only the first host's count."""
        with self.lock:
            self.last = self.last[1 - virtual.MEAN:] + [loss]
            reached = len(self.last) == virtual.MEAN and sum(self.last) / virtual.MEAN < self.t["target"]
            if self.args.host == 0 and self.got is None and (reached or version >= self.t["limit"] or not loss < virtual.DIVERGED):
                self.got = {"updates": version if reached else None}
                with open(self.ended, "w", encoding="ascii"):
                    pass

    def work(self, model, worker):
        try:
            self.train(model, worker)
        except (pbox.PBoxError, RuntimeError) as e:
            self.errors.append(f"worker {worker}: {e}")
            with open(self.ended, "w", encoding="ascii"):
                pass

    def train(self, model, worker):
        t = self.t
        seed, workers = t["seed"], t["workers"]
        speeds, g = virtual.Speeds(t["speeds"], workers, 100 * seed + worker), np.random.default_rng(3000 + 100 * seed + worker)
        parameters = [torch.nn.Parameter(p[0]) for p in model.begin(seed, 1)]
        client = pbox.Client(self.args.box, f"rates{self.number}", "", worker, workers, join_timeout=120, left=60)
        inner = torch.optim.SGD(parameters, lr=t["lr"], momentum=t["momentum"])
        opt = pbox.torch.Eager(inner, staleness=None if t["rule"] == "none" else t["rule"], client=client)
        pbox.torch.all_reduce(torch.zeros(1), client=client)
        taus = []
        while not os.path.exists(self.ended):
            until = time.monotonic() + speeds.next(worker) * t["compute"]
            runs = [p.detach()[None] for p in parameters]
            gradient = model.gradient(runs, torch.from_numpy(g.integers(0, len(model.y), models.BATCH)))
            for p, d in zip(parameters, gradient):
                p.grad = d[0]
            time.sleep(max(0.0, until - time.monotonic()))
            opt.step()
            versions = opt.table.versions()
            taus.append(versions.others)
            self.look(model.losses([p.detach()[None] for p in parameters])[0], versions.version)
        with self.lock:
            if self.got is not None:
                self.got.setdefault("taus", []).extend(taus)
        client.close()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--box", required=True)
    p.add_argument("--trainings", required=True, help="a JSON file")
    p.add_argument("--host", type=int, required=True)
    p.add_argument("--hosts", type=int, required=True)
    p.add_argument("--scratch", required=True, help="a folder, the same for all hosts")
    args = p.parse_args()
    torch.set_num_threads(1)
    with open(args.trainings, encoding="utf-8") as f:
        trainings = json.load(f)
    known = {}
    for number, t in enumerate(trainings):
        if t["model"] not in known:
            known[t["model"]] = models.MODELS[t["model"]]()
        model, training = known[t["model"]], Training(t, args, number)
        threads = [threading.Thread(target=training.work, args=(model, i)) for i in range(args.host, t["workers"], args.hosts)]
        for x in threads:
            x.start()
        for x in threads:
            x.join()
        if training.errors:
            raise SystemExit("; ".join(training.errors[:3]))
        if args.host == 0:
            taus = training.got.pop("taus")
            print(json.dumps({**training.got, "tau": float(np.mean(taus[len(taus) // 4:]))}), flush=True)


main()
