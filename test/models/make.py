#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Make lists of tensors of real networks: name and number of elements, in the order in which the
framework keeps them (named_parameters()).

Vision networks are built by torchvision without weights; the transformers for text follow from
their published configurations by formula. README.md says which.
"""

import argparse
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))

VISION = """
alexnet convnext_base convnext_large convnext_tiny deeplabv3_resnet50 densenet121 densenet161
densenet169 densenet201 efficientnet_b0 efficientnet_b4 efficientnet_b7 efficientnet_v2_s
fasterrcnn_resnet50_fpn fcn_resnet101 googlenet inception_v3 maskrcnn_resnet50_fpn maxvit_t
mnasnet0_5 mnasnet1_0 mobilenet_v2 mobilenet_v3_large mobilenet_v3_small r3d_18 raft_large
regnet_x_400mf regnet_y_16gf regnet_y_8gf resnet101 resnet152 resnet18 resnet34 resnet50
resnext101_64x4d resnext50_32x4d shufflenet_v2_x0_5 shufflenet_v2_x1_0 squeezenet1_0
squeezenet1_1 ssd300_vgg16 ssdlite320_mobilenet_v3_large swin_b swin_s swin_t vgg11 vgg16 vgg19
vit_b_16 vit_l_16 wide_resnet101_2 wide_resnet50_2
""".split()


def vision(name):
    import torch
    from torchvision import models

    # nobody looks at the values: leave them as they are
    for f in ("kaiming_normal_", "kaiming_uniform_", "xavier_normal_", "xavier_uniform_",
              "trunc_normal_", "normal_", "uniform_"):
        setattr(torch.nn.init, f, lambda t, *a, **k: t)
    options = {"weights": None}
    build = models.get_model_builder(name)
    if name in ("googlenet", "inception_v3"):
        options["init_weights"] = False  # the auxiliary heads stay, as in training
    if any(x in name for x in ("rcnn", "deeplab", "fcn_", "ssd")):
        options["weights_backbone"] = None
    return [(n, p.numel()) for n, p in build(**options).named_parameters() if p.requires_grad]


def bert(vocabulary, hidden, layers, feed_forward, positions=512):
    """Devlin et al., 2018: encoder with pooler, without heads."""
    def linear(name, n_in, n_out):
        return [(f"{name}.weight", n_in * n_out), (f"{name}.bias", n_out)]

    def norm(name):
        return [(f"{name}.LayerNorm.weight", hidden), (f"{name}.LayerNorm.bias", hidden)]

    out = [("embeddings.word_embeddings.weight", vocabulary * hidden),
           ("embeddings.position_embeddings.weight", positions * hidden),
           ("embeddings.token_type_embeddings.weight", 2 * hidden)] + norm("embeddings")
    for i in range(layers):
        at = f"encoder.layer.{i}"
        for x in ("self.query", "self.key", "self.value", "output.dense"):
            out += linear(f"{at}.attention.{x}", hidden, hidden)
        out += norm(f"{at}.attention.output")
        out += linear(f"{at}.intermediate.dense", hidden, feed_forward)
        out += linear(f"{at}.output.dense", feed_forward, hidden) + norm(f"{at}.output")
    return out + linear("pooler.dense", hidden, hidden)


def gpt2(hidden, layers, vocabulary=50257, positions=1024):
    """Radford et al., 2019: the head shares the token embedding."""
    def pair(name, n_in, n_out):
        return [(f"{name}.weight", n_in * n_out), (f"{name}.bias", n_out)]

    out = [("transformer.wte.weight", vocabulary * hidden),
           ("transformer.wpe.weight", positions * hidden)]
    for i in range(layers):
        at = f"transformer.h.{i}"
        out += pair(f"{at}.ln_1", 1, hidden)
        out += pair(f"{at}.attn.c_attn", hidden, 3 * hidden)
        out += pair(f"{at}.attn.c_proj", hidden, hidden)
        out += pair(f"{at}.ln_2", 1, hidden)
        out += pair(f"{at}.mlp.c_fc", hidden, 4 * hidden)
        out += pair(f"{at}.mlp.c_proj", 4 * hidden, hidden)
    return out + pair("transformer.ln_f", 1, hidden)


TEXT = {
    "bert_base_uncased": lambda: bert(30522, 768, 12, 3072),
    "bert_large_uncased": lambda: bert(30522, 1024, 24, 4096),
    "gpt2": lambda: gpt2(768, 12),
    "gpt2_medium": lambda: gpt2(1024, 24),
    "gpt2_large": lambda: gpt2(1280, 36),
    "gpt2_xl": lambda: gpt2(1600, 48),
}


def text_of(tensors):
    return "tensor,elements\n" + "".join(f"{name},{n}\n" for name, n in tensors)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("name", nargs="*", help="networks; text: all that need no torchvision (default: all; with --check those in this folder)")
    p.add_argument("--to", metavar="DIR", default=HERE, help="where they are written (default: this folder)")
    p.add_argument("--check", action="store_true", help="write nothing: compare those in DIR with what would be made")
    args = p.parse_args()
    here = [f[:-4] for f in os.listdir(args.to) if f.endswith(".csv")]
    names = sorted(TEXT) if args.name == ["text"] else args.name or sorted(here if args.check else [*VISION, *TEXT])
    wrong = 0
    for name in names:
        tensors = TEXT[name]() if name in TEXT else vision(name)
        path = os.path.join(args.to, name + ".csv")
        if args.check:
            with open(path) as f:
                same = f.read() == text_of(tensors)
            print(f"{'ok' if same else 'not ok'} - {name}")
            wrong += not same
        else:
            with open(path, "w") as f:
                f.write(text_of(tensors))
            print(f"{name}: {len(tensors)} tensors, {sum(n for _, n in tensors)} elements")
    if args.check:
        print(f"{len(names) - wrong} passed, {wrong} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
