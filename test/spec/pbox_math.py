# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Element formats (R2.3), the sum of a round (R5.2) and the optimisers (R5.3), one rounding an
operation. With numpy where it can be imported, else with array: the results are the same bits."""

import array
import math
import struct
import sys

import pbox_proto as proto

try:
    import numpy
except ImportError:
    numpy = None

assert sys.byteorder == "little", "elements are little-endian (R1.3)"
MASK64 = (1 << 64) - 1


def f32(x):
    """x rounded to fp32, as a float."""
    return array.array("f", [x])[0]


class Vec:
    """A vector of fp32 without numpy. Python computes in binary64; rounding that to fp32 gives the
    correctly rounded result of one operation on fp32 operands."""

    def __init__(self, values):
        self.a = array.array("f", values)

    def __len__(self):
        return len(self.a)

    def _each(self, other, op):
        if isinstance(other, Vec):
            return Vec(op(x, y) for x, y in zip(self.a, other.a))
        y = f32(other)
        return Vec(op(x, y) for x in self.a)

    def __add__(self, other):
        return self._each(other, lambda x, y: x + y)

    def __sub__(self, other):
        return self._each(other, lambda x, y: x - y)

    def __mul__(self, other):
        return self._each(other, lambda x, y: x * y)

    def __truediv__(self, other):
        return self._each(other, lambda x, y: x / y if y else math.copysign(math.inf, x) if x
                          else math.nan)

    def tobytes(self):
        return self.a.tobytes()


def vector(values):
    return Vec(values) if numpy is None else numpy.array(values, dtype=numpy.float32)


def _sqrt(v):
    return Vec(math.sqrt(x) for x in v.a) if numpy is None else numpy.sqrt(v)


def _clamp(v, limit):
    limit = f32(limit)
    if numpy is None:
        return Vec(min(max(x, -limit), limit) for x in v.a)
    return numpy.clip(v, numpy.float32(-limit), numpy.float32(limit))


def _half(x):
    try:
        return struct.pack("<e", x)
    except OverflowError:
        return struct.pack("<e", math.copysign(math.inf, x))


def pack(v, fmt):
    """The bytes of a vector in format fmt, rounded to nearest, ties to even."""
    name = proto.FORMAT_NAMES[fmt]
    if name == "fp32":
        return v.tobytes()
    if name == "bf16":
        if numpy is None:
            bits = array.array("I", v.tobytes())
            return array.array("H", (((b + 0x7FFF + (b >> 16 & 1)) >> 16) if b & 0x7FFFFFFF
                                     <= 0x7F800000 else b >> 16 | 0x40 for b in bits)).tobytes()
        bits = numpy.ascontiguousarray(v).view(numpy.uint32).astype(numpy.uint64)
        near = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        nan = (bits & 0x7FFFFFFF) > 0x7F800000
        return numpy.where(nan, bits >> 16 | 0x40, near).astype(numpy.uint16).tobytes()
    if numpy is None:
        return b"".join(map(_half, v.a))
    with numpy.errstate(over="ignore"):
        return v.astype(numpy.float16).tobytes()


def unpack(raw, fmt):
    """The exact fp32 values of bytes in format fmt."""
    name = proto.FORMAT_NAMES[fmt]
    raw = bytes(raw)
    if name == "fp32":
        return Vec(array.array("f", raw)) if numpy is None else numpy.frombuffer(raw, numpy.float32)
    if name == "bf16":
        if numpy is None:
            return Vec(array.array("f", array.array(
                "I", (b << 16 for b in array.array("H", raw))).tobytes()))
        return (numpy.frombuffer(raw, numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)
    if numpy is None:
        return Vec(x for (x,) in struct.iter_unpack("<e", raw))
    return numpy.frombuffer(raw, numpy.float16).astype(numpy.float32)


def data(seed, worker, round_, n):
    """Deterministic test data: n fp32 values of 24 significant bits and eight magnitudes, so that
    another order of summation gives other bits."""
    key = (seed * 0x9E3779B97F4A7C15 + worker * 0xBF58476D1CE4E5B9 + round_ * 0x94D049BB133111EB
           + 1) & MASK64
    if numpy is not None:
        with numpy.errstate(over="ignore"):
            z = numpy.arange(1, n + 1, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
            z += numpy.uint64(key)
            z = (z ^ z >> numpy.uint64(30)) * numpy.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ z >> numpy.uint64(27)) * numpy.uint64(0x94D049BB133111EB)
            z ^= z >> numpy.uint64(31)
        whole = (z >> numpy.uint64(40)).astype(numpy.int64) - (1 << 23)
        scale = numpy.ldexp(1.0, (z & numpy.uint64(7)).astype(numpy.int64) - 27)
        return (whole * scale).astype(numpy.float32)
    out = []
    for i in range(1, n + 1):
        z = (i * 0x9E3779B97F4A7C15 + key) & MASK64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK64
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK64
        z ^= z >> 31
        out.append(math.ldexp((z >> 40) - (1 << 23), (z & 7) - 27))
    return Vec(out)


def own_slots(worker, workers, slots):
    """Of a job with slots (R5.2b): those of a worker."""
    return range(worker * slots // workers, (worker + 1) * slots // workers)


def nodes_of(own, slots):
    """[(first, level)]: the fewest nodes that consecutive slots consist of (R5.2b)."""
    out, at = [], own.start
    while at < own.stop:
        level = 0
        # a level more, as long as the node stays aligned, has more slots for it, and all of them are ours
        while at % (2 << level) == 0 and min(at + (2 << level), slots) <= own.stop and at + (1 << level) < slots:
            level += 1
        out.append((at, level))
        at = min(at + (1 << level), slots)
    return out


def node_slots(node, slots):
    return range(node[0], min(node[0] + (1 << node[1]), slots))


def node_value(there, node):
    """The value of a node (R5.2a) of contributions by slot."""
    return _node(there, node[0], 1 << node[1])


def _node(there, first, slots):
    """The value of a node of the tree (R5.2a); None: nothing of it is there."""
    if slots == 1:
        return there.get(first)
    left = _node(there, first, slots // 2)
    right = _node(there, first + slots // 2, slots // 2)
    if left is None or right is None:
        return right if left is None else left
    return left + right


def reduce(contributions, weights, op, slots=None, count=None):
    """The value of a round (R5.2) from the contributions, of slots 0, 1, ... if none are given. Where they
    are nodes, `slots` are their first ones, and `count` is the number of all."""
    op = {number: name for name, number in proto.OPS.items()}[op]
    if op == "weighted_mean":
        # no samples: nothing, whatever their mean is
        contributions = [v * f32(n) if n else vector([0.0] * len(v)) for v, n in zip(contributions, weights)]
    there = dict(zip(slots or range(len(contributions)), contributions))
    total = _node(there, 0, 1 << max(there).bit_length())
    if op == "sum":
        return total
    samples = (count or len(weights)) if op == "mean" else sum(weights)
    factor = 1 / samples if samples else 0.0
    return total * f32(factor)


class Optimiser:
    """The parameters of a table on the box; formulas of torch.optim 1.13."""

    def __init__(self, kind, params):
        self.kind = {number: name for name, number in proto.OPTIMISERS.items()}[kind]
        self.params, self.s0, self.s1 = params, None, None
        adam = self.kind in ("adam", "adamw")
        self.hyper = {"lr": 1e-3 if adam else 1.0 if self.kind == "add" else None, "momentum": 0.0, "dampening": 0.0,
                      "weight_decay": 1e-2 if self.kind == "adamw" else 0.0, "beta1": 0.9,
                      "beta2": 0.999, "eps": 1e-8, "clip_value": 0.0, "maximize": 0.0}

    def step(self, grad, t):
        h, p = self.hyper, self.params
        if h["maximize"]:
            grad = -grad
        if h["clip_value"]:
            grad = _clamp(grad, h["clip_value"])
        if self.kind == "add":
            self.params = p + grad * h["lr"]
            return
        if self.kind == "adamw":
            p = p * f32(1 - h["lr"] * h["weight_decay"])
        elif h["weight_decay"]:
            grad = grad + p * h["weight_decay"]
        if self.kind in ("adam", "adamw"):
            self._adam(p, grad, t)
            return
        if self.kind != "sgd" and h["momentum"]:
            if self.s0 is None:
                self.s0 = grad
            else:
                self.s0 = self.s0 * h["momentum"] + grad * f32(1 - h["dampening"])
            grad = grad + self.s0 * h["momentum"] if self.kind == "nesterov" else self.s0
        self.params = p - grad * h["lr"]

    def _adam(self, p, grad, t):
        h = self.hyper
        b1, b2 = h["beta1"], h["beta2"]
        m = grad * f32(1 - b1)
        v = grad * f32(1 - b2) * grad
        if self.s0 is not None:
            m, v = self.s0 * b1 + m, self.s1 * b2 + v
        self.s0, self.s1 = m, v
        denom = _sqrt(v) / math.sqrt(1 - b2 ** t) + h["eps"]
        self.params = p - m * (h["lr"] / (1 - b1 ** t)) / denom
