#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Holds the kernels against PyTorch: every optimiser over 100 steps, every conversion bit for bit.

Usage: check_optimisers.py path/to/libkernels_torch.so

An optimiser passes if it is within 1e-6 (relative) of torch.optim's float32 run, or no farther from
torch.optim's float64 run than twice what torch's own float32 run is: torch contracts some multiply-adds
(fma) and the kernels do not, so neither is the other's reference to the last bit.
"""
import ctypes
import sys

try:
    import numpy as np
    import torch
except ImportError as e:
    print(f"skipped: {e}: install python3-torch, and run this with the python that has it")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)

BF16, FP16 = 2, 3
KINDS = {"sgd": 1, "momentum": 2, "nesterov": 3, "adam": 4, "adamw": 5}
HYPER = ("lr", "momentum", "dampening", "weight_decay", "beta1", "beta2", "eps", "clip")
DEFAULTS = dict(momentum=0.0, dampening=0.0, weight_decay=0.0, beta1=0.9, beta2=0.999, eps=1e-8, clip=0.0)
STEPS = 100
ELEMENTS = 2501  # more than two blocks of the fused update, and a tail


class Kernels:
    """The shared library, with the types its functions take."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        p, n, s = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
        self.lib.kt_name.restype = s
        self.lib.kt_update.restype = s
        self.lib.kt_usable.argtypes = [s]
        self.lib.kt_pack.argtypes = [s, ctypes.c_int, p, p, n]
        self.lib.kt_unpack.argtypes = [s, ctypes.c_int, p, p, n]
        self.lib.kt_update.argtypes = [s, ctypes.c_int, p, ctypes.c_uint, p, p, p, p, n]

    def names(self):
        i = 0
        while name := self.lib.kt_name(i):
            if self.lib.kt_usable(name):
                yield name
            i += 1

    def pack(self, name, elem, x):
        out = np.empty(len(x), np.uint16)
        self.lib.kt_pack(name, elem, out.ctypes.data, x.ctypes.data, len(x))
        return out

    def unpack(self, name, elem, h):
        out = np.empty(len(h), np.uint32)
        self.lib.kt_unpack(name, elem, out.ctypes.data, h.ctypes.data, len(h))
        return out

    def update(self, name, kind, hyper, t, p, g, s0, s1):
        values = np.array([hyper[k] for k in HYPER])
        wrong = self.lib.kt_update(name, KINDS[kind], values.ctypes.data, t, p.ctypes.data, g.ctypes.data,
                                   s0.ctypes.data, s1.ctypes.data, len(p))
        if wrong:
            raise ValueError(wrong.decode())


class Tally:
    def __init__(self):
        self.passed = self.failed = 0

    def case(self, ok, text):
        print(("ok   " if ok else "FAIL ") + text)
        self.passed += bool(ok)
        self.failed += not ok


def aligned(x):
    """A copy on a 64-byte boundary, as the kernels want parameters and state."""
    raw = np.empty(x.nbytes + 64, np.uint8)
    at = -raw.ctypes.data % 64
    out = raw[at:at + x.nbytes].view(x.dtype)
    out[:] = x
    return out


# --- optimisers ---

def torch_optimiser(kind, parameters, h):
    if kind in ("adam", "adamw"):
        make = torch.optim.Adam if kind == "adam" else torch.optim.AdamW
        return make(parameters, lr=h["lr"], betas=(h["beta1"], h["beta2"]), eps=h["eps"],
                    weight_decay=h["weight_decay"])
    return torch.optim.SGD(parameters, lr=h["lr"], momentum=h["momentum"], dampening=h["dampening"],
                           weight_decay=h["weight_decay"], nesterov=kind == "nesterov")


def run_torch(kind, hyper, start, gradients, dtype, change):
    p = torch.nn.Parameter(torch.from_numpy(start).to(dtype, copy=True))
    optimiser = torch_optimiser(kind, [p], hyper)
    for t, g in enumerate(gradients, 1):
        for key, value in change.items() if t == STEPS // 2 else ():
            optimiser.param_groups[0][key] = value
        p.grad = torch.from_numpy(g).to(dtype, copy=True)
        if hyper["clip"]:
            torch.nn.utils.clip_grad_value_([p], hyper["clip"])
        optimiser.step()
    return p.detach().double().numpy()


def run_kernels(kernels, name, kind, hyper, start, gradients, change):
    p, s0, s1 = aligned(start), aligned(start * np.nan), aligned(start * np.nan)
    hyper = dict(hyper)
    for t, g in enumerate(gradients, 1):
        if t == STEPS // 2:
            hyper.update(change)
        kernels.update(name, kind, hyper, t, p, g, s0, s1)
    return p.astype(np.float64)


def distance(a, b):
    """The largest difference, relative to the number or, where it happens to be near zero after 100 steps that
    were not, to the root mean square of the tensor: else one element that cancels decides for all."""
    return np.max(np.abs(a - b) / np.maximum(np.abs(b), np.sqrt(np.mean(b * b))))


def optimiser_cases():
    decays = (0.0, 0.05)
    for lr in (0.1, 0.003):
        for wd in decays:
            yield "sgd", dict(lr=lr, weight_decay=wd)
            yield "sgd", dict(lr=lr, weight_decay=wd, clip=0.5)
            for momentum in (0.9, 0.5):
                for damp in (0.0, 0.3):
                    yield "momentum", dict(lr=lr, weight_decay=wd, momentum=momentum, dampening=damp)
                yield "nesterov", dict(lr=lr, weight_decay=wd, momentum=momentum)
            yield "momentum", dict(lr=lr, weight_decay=wd, momentum=0.9, clip=0.5)
    yield "momentum", dict(lr=0.1, momentum=0.0, dampening=0.3)
    for kind in ("adam", "adamw"):
        for wd in (0.0, 0.01, 0.3):
            for betas in ((0.9, 0.999), (0.5, 0.9), (0.0, 0.99)):
                for eps in (1e-8, 1e-3):
                    yield kind, dict(lr=0.001, weight_decay=wd, beta1=betas[0], beta2=betas[1], eps=eps)
        yield kind, dict(lr=0.05, weight_decay=0.01, clip=0.25)


def check_optimisers(kernels, tally):
    rng = np.random.default_rng(1)
    start = rng.standard_normal(ELEMENTS).astype(np.float32)
    gradients = [rng.standard_normal(ELEMENTS).astype(np.float32) for _ in range(STEPS)]
    for kind, some in optimiser_cases():
        hyper = {**DEFAULTS, **some}
        change = {"lr": hyper["lr"] * 0.1}
        single = run_torch(kind, hyper, start, gradients, torch.float32, change)
        double = run_torch(kind, hyper, start, gradients, torch.float64, change)
        theirs = distance(single, double)
        for name in kernels.names():
            p = run_kernels(kernels, name, kind, hyper, start, gradients, change)
            to_single, to_double = distance(p, single), distance(p, double)
            text = " ".join(f"{k}={v}" for k, v in some.items())
            tally.case(to_single <= 1e-6 or to_double <= 2 * theirs,
                       f"{name.decode()} {kind} {text}: {to_single:.1e} from torch float32, {to_double:.1e} from "
                       f"float64 (torch float32: {theirs:.1e})")


# --- conversions ---

TORCH_TYPE = {BF16: torch.bfloat16, FP16: torch.float16}
TYPE_NAME = {BF16: "bf16", FP16: "fp16"}


def boundary_patterns():
    """Every upper half with the lower halves where rounding turns."""
    low = np.array([0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x2000, 0x2FFF, 0x3000, 0x3001, 0x7FFF, 0x8000, 0x8001,
                    0xFFFF], np.uint32)
    return (np.arange(65536, dtype=np.uint32)[:, None] << 16 | low).ravel()


def torch_pack(elem, bits, contiguous):
    """What tensor.to() gives. Over a stride torch runs the scalar conversion of c10, which is its definition;
    over contiguous memory its vector code, which turns every NaN into 0xFFFF for bf16."""
    x = torch.from_numpy(bits.view(np.float32))
    if not contiguous:
        x = torch.stack([x, x], 1)[:, 0]
    return x.to(TORCH_TYPE[elem]).contiguous().view(torch.int16).numpy().view(np.uint16)


def check_conversions(kernels, tally):
    rng = np.random.default_rng(2)
    halves = np.arange(65536, dtype=np.uint16)
    random = rng.integers(0, 1 << 32, 12_000_000, dtype=np.uint32)
    bits = np.concatenate([boundary_patterns(), random])
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    for elem in (BF16, FP16):
        wide = torch.from_numpy(halves.view(np.int16)).view(TORCH_TYPE[elem]).to(torch.float32)
        wide = wide.view(torch.int32).numpy().view(np.uint32)
        scalar, vector = torch_pack(elem, bits, False), torch_pack(elem, bits, True)
        for name in kernels.names():
            text = f"{name.decode()} {TYPE_NAME[elem]}"
            wrong = np.count_nonzero(kernels.unpack(name, elem, halves) != wide)
            tally.case(wrong == 0, f"{text}: unpack of all 65536 patterns, {wrong} differ")
            packed = kernels.pack(name, elem, bits)
            wrong = np.count_nonzero(packed != scalar)
            tally.case(wrong == 0, f"{text}: pack of {len(bits)} patterns, {wrong} differ")
            wrong = np.count_nonzero((packed != vector) & ~nan)
            tally.case(wrong == 0, f"{text}: pack against torch's vector code without NaN, {wrong} differ")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    kernels, tally = Kernels(sys.argv[1]), Tally()
    torch.set_num_threads(1)
    check_conversions(kernels, tally)
    check_optimisers(kernels, tally)
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
