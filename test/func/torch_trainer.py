# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A training that is killed and goes on; for torch_restart.

train    a worker: RANK, WORLD_SIZE, PBOX_BOX and PBOX_SECRET say who and where. After every step it
         writes a checkpoint (--folder), from which the next process of that rank goes on. It ends
         with --steps, or after the step in which worker 0 has seen the file `stop` there. After
         the step in which it has seen `hold` all workers write `held.RANK` with the number of
         that step, and wait until `hold` is gone. It prints `open T`, `step N T` (seconds of the machine's clock), `digest HEX`, `steps N`.
expect   the digest that a run of --steps must have, computed here: after each step that the file
         `rollbacks` names (lines `STEP SNAPSHOT`) the optimiser's state is that of the step of
         the snapshot, and parameters stay
report   what `event NAME T` lines and the workers' logs say: how long until it went on
"""

import argparse
import hashlib
import os
import statistics
import sys
import time

RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def say(*what):
    print(*what, flush=True)


def batch(torch, step, rank=RANK):
    g = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(16, 301, generator=g)
    return x, x[:, :1].sin()


class Mean:
    """The optimiser of torch here, after an all-reduce of the gradients."""

    def __init__(self, torch, client, model, args, first_round):
        self.params = list(model.parameters())
        self.table = client.declare(
            [(f"p{i}", p.numel()) for i, p in enumerate(self.params)], op="mean",
            first_round=first_round)
        self.inner = torch.optim.SGD(self.params, args.lr, args.momentum)

    def step(self):
        self.table.run([p.grad for p in self.params])
        self.inner.step()

    def state(self):
        return self.inner.state_dict()

    def load(self, state):
        self.inner.load_state_dict(state)


class Box:
    """The optimiser on the box."""

    def __init__(self, torch, client, model, args, first_round):
        import pbox.torch
        if args.optimiser == "adam":
            self.opt = pbox.torch.Adam(model.parameters(), args.lr, client=client,
                                       first_round=first_round)
        else:
            self.opt = pbox.torch.SGD(model.parameters(), args.lr, args.momentum, client=client,
                                      first_round=first_round)
        self.table = self.opt.table

    def step(self):
        self.opt.step()

    def state(self):
        return None

    def load(self, state):
        pass


def save(torch, path, what):
    torch.save(what, path + ".new")
    os.rename(path + ".new", path)


def network(torch):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(301, 257), torch.nn.Tanh(),
                               torch.nn.Linear(257, 63), torch.nn.Tanh(),
                               torch.nn.Linear(63, 1))


def loss_of(torch, model, step, rank):
    x, y = batch(torch, step, rank)
    model.zero_grad(set_to_none=True)
    loss = (model(x) - y).square().mean()
    loss.backward()
    return loss


def digest(model):
    h = hashlib.sha256()
    for p in model.parameters():
        h.update(p.detach().numpy().tobytes())
    return h.hexdigest()[:32]


def hold(folder, step):
    """All workers wait at this step until the file `hold` is gone."""
    mine = os.path.join(folder, f"held.{RANK}")
    with open(mine + ".new", "w") as f:
        f.write(f"{step}\n")
    os.rename(mine + ".new", mine)
    while os.path.exists(os.path.join(folder, "hold")):
        time.sleep(0.02)
    os.remove(mine)


def train(args):
    import torch
    import pbox
    model = network(torch)
    path = os.path.join(args.folder, f"checkpoint.{RANK}")
    done, first_round, state = 0, 0, None
    if os.path.exists(path):
        c = torch.load(path)
        done, first_round, state = c["step"], c["next_round"], c["state"]
        model.load_state_dict(c["model"])
    say("open", time.monotonic())
    client = pbox.Client(os.environ["PBOX_BOX"], args.job, os.environ["PBOX_SECRET"], RANK, WORLD,
                         timeout=args.timeout, join_timeout=args.timeout, left=args.timeout, lease=args.lease)
    opt = (Box if args.mode == "box" else Mean)(torch, client, model, args, first_round)
    if state is not None:
        opt.load(state)
    votes = client.declare([("stop", 1)], op="sum", first_round=first_round)
    vote, stop = torch.zeros(1), False
    while not stop and done < args.steps:
        loss = loss_of(torch, model, done, RANK)
        opt.step()
        seen = [RANK == 0 and os.path.exists(os.path.join(args.folder, f)) for f in ("stop", "hold")]
        vote.fill_(2 * seen[0] + seen[1])
        votes.run([vote])
        stop, held = vote.item() >= 2, vote.item() == 1
        done += 1
        save(torch, path, {"step": done, "next_round": opt.table.next_round,
                           "model": model.state_dict(), "state": opt.state()})
        say("step", done, time.monotonic())
        if held:
            hold(args.folder, done)
        time.sleep(args.pause)
    s = client.stats()
    norm = torch.cat([p.detach().flatten() for p in model.parameters()]).double()
    say("digest", digest(model))
    say("steps", done)
    say("loss", f"{loss.item():.6f}")
    say("restarts", s.restarts, "fragments", s.restored_fragments, "ms", s.restore_ms)
    if RANK == 0:
        torch.save(norm, os.path.join(args.folder, "final"))
    client.close()


def expect(args):
    import torch
    from pbox.torch.reference import Reference, tree_reduce
    model, back, kept = network(torch), {}, {}
    path = os.path.join(args.folder, "rollbacks")
    if os.path.exists(path):
        with open(path) as f:
            back = {int(a): int(b) for a, b in (line.split() for line in f)}
    hyper = {} if args.optimiser == "adam" else {"momentum": args.momentum}
    opt = Reference("adam" if args.optimiser == "adam" else "momentum", model.parameters(),
                    lr=args.lr, **hyper)
    params = list(model.parameters())
    for done in range(1, args.steps + 1):
        grads = []
        for rank in range(args.workers):
            loss_of(torch, model, done - 1, rank)
            grads.append([p.grad.clone() for p in params])
        for i, p in enumerate(params):
            p.grad = tree_reduce([g[i] for g in grads])
        opt.step()
        if done in back.values():
            kept[done] = [{k: v.clone() for k, v in opt.state[p].items()} for p in params]
        if done in back:
            for p, s in zip(params, kept[back[done]]):
                opt.state[p].update({k: v.clone() for k, v in s.items()})
    say("digest", digest(model))
    torch.save(torch.cat([p.detach().flatten() for p in params]).double(),
               os.path.join(args.folder, "final"))


def times(path, word):
    with open(path) as f:
        return [float(line.split()[-1]) for line in f if line.startswith(word + " ")]


def report(args):
    """Per kind of event: from its second half (the restart, SIGCONT) to the next step that a worker
    ends; for restarts of workers from their opening the session, too."""
    logs = sorted(os.path.join(args.folder, n) for n in os.listdir(args.folder)
                  if n.startswith("worker."))
    steps = sorted(t for p in logs for t in times(p, "step"))
    opens = sorted(t for p in logs for t in times(p, "open"))
    found = {}
    with open(os.path.join(args.folder, "events")) as f:
        for line in f:
            name, t = line.split()
            t = float(t)
            after = [s for s in steps if s > t]
            if not after:
                continue
            found.setdefault(name, []).append(after[0] - t)
            if name == "worker":
                joined = [o for o in opens if o > t][:1]
                after = [s for s in steps if joined and s > joined[0]]
                if after:
                    found.setdefault("worker-joining", []).append(after[0] - joined[0])
    for name, v in sorted(found.items()):
        say("result", name, f"n {len(v)} median {statistics.median(v):.2f} max {max(v):.2f}")


def compare(args):
    """Relative distance of two final models."""
    import torch
    a, b = (torch.load(os.path.join(d, "final")) for d in (args.folder, args.other))
    say(f"{((a - b).norm() / b.norm()).item():.2e}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("command", choices=("train", "expect", "report", "compare"))
    p.add_argument("--folder", required=True)
    p.add_argument("--other")
    p.add_argument("--job", default="test")
    p.add_argument("--mode", choices=("mean", "box"), default="mean")
    p.add_argument("--optimiser", choices=("sgd", "adam"), default="sgd")
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--momentum", type=float, default=0)
    p.add_argument("--steps", type=int, default=10 ** 9)
    p.add_argument("--pause", type=float, default=0)
    p.add_argument("--timeout", type=float, default=300)
    p.add_argument("--lease", type=float, default=10)
    args = p.parse_args()
    globals()[args.command](args)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
