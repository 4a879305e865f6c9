#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Writes blocks.json: payloads in the formats of blocks (R13.3), as frozen as the frames are."""

import json
import math
import os
import random
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir, "spec"))

import pbox_block as block

LENGTHS = [1, 2, 33, 129, 160]
FORMATS = {"int8": block.INT8, "mxfp4": block.MXFP4}


def materials(r):
    """name -> a function that gives one element"""
    odd = [0.0, -0.0, 2.0 ** -149, -2.0 ** -130, 1.0, 2.0 ** -101, 2.0 ** 20]
    eighths = [k / 8 for k in range(-64, 65)]  # ties of E2M1, and beyond its largest value
    return {
        "gauss": lambda: block.fp32(r.gauss(0, 1)),
        "ties": lambda: r.choice(eighths),
        "steps": lambda: r.randrange(-254, 255) / 2,
        "tiny": lambda: block.fp32(r.gauss(0, 1) * 2.0 ** -100),
        "subnormal": lambda: block.fp32(r.gauss(0, 1) * 2.0 ** -132),
        "large": lambda: block.fp32(r.uniform(-1, 1) * 2.0 ** 127),
        "huge": lambda: block.fp32(r.choice([1.0, -2.0 ** 127]) if r.random() < .02 else r.gauss(0, 1)),
        "odd": lambda: r.choice(odd),
        "zeros": lambda: r.choice([0.0, -0.0]),
        "infinite": lambda: r.choice([math.inf, -math.inf, math.nan]) if r.random() < .02 else r.gauss(0, 1),
    }


def build():
    r = random.Random(53)
    cases = []
    for name, give in materials(r).items():
        for n in LENGTHS:
            values = block.floats(block.raw_of([give() for _ in range(n)]))
            residual = [block.fp32(r.gauss(0, .01)) if n % 3 else 0.0 for _ in range(n)]
            for fmt, number in FORMATS.items():
                raw, kept = block.encode_with_residual(number, values, residual)
                cases.append({"name": f"{name} {n}", "format": fmt, "elements": n,
                              "in": block.raw_of(values).hex(), "residual": block.raw_of(residual).hex(),
                              "payload": raw.hex(), "residual_after": block.raw_of(kept).hex()})
    return {"cases": cases}


def text(blocks):
    return json.dumps(blocks, indent=0) + "\n"


if __name__ == "__main__":
    with open(os.path.join(HERE, "blocks.json"), "w", encoding="utf-8") as out:
        out.write(text(build()))
