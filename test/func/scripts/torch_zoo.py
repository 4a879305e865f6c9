# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Small models of the kinds that people train, in the way in which their scripts do it; nothing here but main() knows of PBox.

usage: torch_zoo.py [--backend BACKEND] CASE...

Prints `loss CASE STEP VALUE`, and `sum CASE VALUE` of the parameters. Each model has gradients of 64 KiB or more.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
        self.block = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32))
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        x = self.stem(x)
        x = F.relu(x + self.block(x))
        return self.head(x.mean((2, 3)))


class Tied(nn.Module):
    """Word embeddings that are the decoder's weights, too."""

    def __init__(self, lstm=False):
        super().__init__()
        self.words = nn.Embedding(300, 64)
        self.lstm = nn.LSTM(64, 64, batch_first=True) if lstm else nn.Identity()
        self.decoder = nn.Linear(64, 300)
        self.decoder.weight = self.words.weight

    def forward(self, x):
        x = self.lstm(self.words(x))
        return self.decoder(x[0] if isinstance(x, tuple) else x)


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 48)
        layer = nn.TransformerEncoderLayer(48, 4, 96, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(48, 50)

    def forward(self, x):
        return self.head(self.layers(self.words(x)))


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(130, 130) for _ in range(3))

    def forward(self, x, which):
        return self.branches[which](x)


class Rows(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.randn(64, generator=g), torch.tensor(i % 10)


def mlp():
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))


def step(name, k, loss, optimiser):
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    print(f"loss {name} {k} {loss.item():.8f}")


def train(name, model, batch, steps=3, optimiser=torch.optim.SGD, **options):
    torch.manual_seed(10 + dist.get_rank())
    model = DDP(model, **options)
    o = optimiser([p for p in model.parameters() if p.requires_grad], lr=0.05)
    for k in range(steps):
        step(name, k, batch(model, k), o)
    return model


def words(model, k):
    x = torch.randint(0, 50, (4, 9))
    return F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())


def rows(model, k=0):
    return F.cross_entropy(model(torch.randn(8, 64)), torch.randint(0, 10, (8,)))


def cnn():
    return train("cnn", Residual(), lambda m, k: F.cross_entropy(m(torch.randn(4, 3, 8, 8)), torch.arange(4)))


def transformer():
    return train("transformer", Transformer(), words, optimiser=torch.optim.AdamW)


def lstm():
    return train("lstm", Tied(lstm=True), words)


def tied():
    return train("tied", Tied(), words, optimiser=torch.optim.Adam)


def frozen():
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 100), nn.ReLU(), nn.Linear(100, 10))
    model[0].requires_grad_(False)
    return train("frozen", model, rows)


def unused():
    return train("unused", Branches(), lambda m, k: m(torch.randn(8, 130), k % 3).square().mean(), steps=4, find_unused_parameters=True)


def accumulate():
    torch.manual_seed(10 + dist.get_rank())
    model = DDP(mlp())
    o = torch.optim.SGD(model.parameters(), lr=0.05)
    for k in range(6):
        if k % 3 < 2:
            with model.no_sync():
                loss = rows(model) / 3
                loss.backward()
        else:
            loss = rows(model) / 3
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            o.step()
            o.zero_grad()
        print(f"loss accumulate {k} {loss.item():.8f}")
    return model


def amp():
    def batch(model, k):
        with torch.autocast("cpu", torch.bfloat16):
            out = model(torch.randn(8, 64))
        return F.cross_entropy(out.float(), torch.randint(0, 10, (8,)))
    return train("amp", mlp(), batch)


def uneven():
    torch.manual_seed(10 + dist.get_rank())
    model = DDP(mlp())
    o = torch.optim.SGD(model.parameters(), lr=0.05)
    with Join([model]):
        for k in range(3 + 2 * dist.get_rank()):
            step("uneven", k, rows(model), o)
    return model


def resume():
    path = f"checkpoint.{os.getppid()}"
    model = train("resume", mlp(), rows)
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), path)
    dist.barrier()
    again = DDP(mlp())
    again.load_state_dict(torch.load(path))
    dist.barrier()
    if dist.get_rank() == 0:
        os.remove(path)
    return train("resume", again.module, rows)


def loader():
    torch.manual_seed(10 + dist.get_rank())
    data = Rows()
    sampler = DistributedSampler(data, shuffle=True)
    batches = DataLoader(data, batch_size=8, sampler=sampler, num_workers=1, multiprocessing_context="spawn")
    model = DDP(mlp())
    o = torch.optim.SGD(model.parameters(), lr=0.05)
    sampler.set_epoch(1)
    for k, (x, y) in enumerate(batches):
        step("loader", k, F.cross_entropy(model(x), y), o)
    return model


CASES = {f.__name__: f for f in (cnn, transformer, lstm, tied, frozen, unused, accumulate, amp, uneven, resume, loader)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("cases", nargs="*", default=list(CASES))
    args = parser.parse_args()
    if args.backend == "pbox":
        import pbox.torch
    dist.init_process_group(args.backend)
    for name in args.cases:
        torch.manual_seed(0)
        model = CASES[name]()
        print(f"sum {name} {sum(p.double().abs().sum().item() for p in model.parameters()):.6f}")
    # the metric of an epoch, as scripts do it
    t = torch.full((20000,), 1.0 + dist.get_rank())
    dist.all_reduce(t)
    print(f"sum metric {t.mean().item():.6f}")
    if args.backend == "pbox":
        print("carried", pbox.torch._group.total)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
