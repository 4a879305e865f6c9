# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The models with which pbox.gpucheck measures: ResNet-50 and GPT-2 small, without torchvision or transformers, and small ones of
the same kinds for machines without a GPU. A model gives the loss of a batch."""

from typing import Any, Callable, Dict, Tuple

import torch
from torch import nn
from torch.nn import functional as F


class _Bottleneck(nn.Module):
    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        after = 4 * width
        self.way = nn.Sequential(
            nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, after, 1, bias=False), nn.BatchNorm2d(after))
        self.short = nn.Identity() if stride == 1 and before == after else nn.Sequential(
            nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.way(x) + self.short(x))


class ResNet(nn.Module):
    """He et al. 2016. ResNet-50: 25.6 million parameters."""

    def __init__(self, blocks: Tuple[int, ...] = (3, 4, 6, 3), width: int = 64, classes: int = 1000) -> None:
        super().__init__()
        layers = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        before = width
        for stage, n in enumerate(blocks):
            for k in range(n):
                layers.append(_Bottleneck(before, width << stage, 2 if k == 0 and stage > 0 else 1))
                before = 4 * (width << stage)
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.layers(x).float(), y)


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.back = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        if hasattr(F, "scaled_dot_product_attention"):  # torch 2
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            later = torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1)
            scores = (q @ k.transpose(-2, -1)) / (d // self.heads) ** 0.5
            y = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
        x = x + self.out(y.transpose(1, 2).reshape(b, n, d))
        return x + self.back(F.gelu(self.wide(self.norm2(x))))


class Gpt(nn.Module):
    """GPT-2 small: 124 million parameters, those of the output shared with the input's."""

    def __init__(self, words: int = 50257, width: int = 768, blocks: int = 12, heads: int = 12, length: int = 512) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[_Block(width, heads) for _ in range(blocks)])
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = self.norm(self.blocks(self.words(x) + self.places.weight[:x.shape[1]]))
        return F.cross_entropy(F.linear(h, self.words.weight).float().view(-1, self.words.num_embeddings), y.view(-1))


def _images(n: int, size: int, classes: int) -> Callable[[torch.Generator], Tuple[torch.Tensor, torch.Tensor]]:
    return lambda g: (torch.randn(n, 3, size, size, generator=g), torch.randint(0, classes, (n,), generator=g))


def _texts(n: int, length: int, words: int) -> Callable[[torch.Generator], Tuple[torch.Tensor, torch.Tensor]]:
    def batch(g: torch.Generator) -> Tuple[torch.Tensor, torch.Tensor]:
        x = torch.randint(0, words, (n, length + 1), generator=g)
        return x[:, :-1].contiguous(), x[:, 1:].contiguous()
    return batch


# name -> (what it is, of the full size; of a small one), each: (make, batch of a generator)
MODELS: Dict[str, Tuple[str, Tuple[Any, Any], Tuple[Any, Any]]] = {
    "resnet50": ("ResNet-50, batch 32", (ResNet, _images(32, 224, 1000)),
                 (lambda: ResNet((1, 1), 8, 10), _images(2, 32, 10))),
    "gpt2": ("GPT-2 small, batch 8 of 512", (Gpt, _texts(8, 512, 50257)),
             (lambda: Gpt(96, 32, 2, 2, 16), _texts(2, 16, 96))),
}
