# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The formats of blocks, written from doc/protocol.md R13.3 alone. All numbers are Python's (binary64) and have fp32
values: a sum, a product or a quotient of two that is rounded to fp32 afterwards is what fp32 arithmetic gives."""

import math
import struct

INT8, MXFP4 = 16, 20
UNIT, MX_BLOCK = 128, 32
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def fp32(x):
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def floats(raw):
    return list(struct.unpack(f"<{len(raw) // 4}f", raw))


def raw_of(values):
    return struct.pack(f"<{len(values)}f", *values)


def payload_bytes(fmt, n):
    return -(-n // UNIT) * 4 + (n if fmt == INT8 else (n + 1) // 2)


def finite(block):
    return all(math.isfinite(u) and abs(u) < 2.0 ** 127 for u in block)


def nearest(values, x):
    """The index of the value nearest to x; of two, the even one."""
    return min(range(len(values)), key=lambda i: (abs(values[i] - x), i % 2))


def int8_block(block):
    """(scale, codes)"""
    if not finite(block):
        return math.nan, [0] * len(block)
    largest = max(map(abs, block))
    if largest < 2.0 ** -100:
        return 0.0, [0] * len(block)
    return fp32(largest / 127), [round(fp32(u * fp32(127 / largest))) for u in block]


def mxfp4_block(block):
    """(byte of the scale, codes)"""
    if not finite(block):
        return 255, [0] * len(block)
    largest = max(map(abs, block))
    power = max(-127, math.frexp(largest)[1] - 1 - 2) if largest else -127
    codes = [nearest(E2M1, min(abs(math.ldexp(u, -power)), 6.0)) | (8 if math.copysign(1, u) < 0 else 0) for u in block]
    return power + 127, codes


def encode(fmt, values):
    out = b""
    for at in range(0, len(values), UNIT):
        unit = values[at:at + UNIT]
        if fmt == INT8:
            scale, codes = int8_block(unit)
            out += (struct.pack("<I", 0x7FC00000) if math.isnan(scale) else struct.pack("<f", scale))
            out += struct.pack(f"{len(codes)}b", *codes)
            continue
        blocks = [mxfp4_block(unit[b:b + MX_BLOCK]) for b in range(0, len(unit), MX_BLOCK)]
        codes = sum((c for _, c in blocks), [])
        codes += [0] * (len(codes) % 2)
        out += bytes([s for s, _ in blocks] + [0] * (4 - len(blocks)))
        out += bytes(low | high << 4 for low, high in zip(codes[::2], codes[1::2]))
    return out


def decode(fmt, raw, n):
    values = []
    for i in range(n):
        unit, k = raw[payload_bytes(fmt, i // UNIT * UNIT):], i % UNIT
        if fmt == INT8:
            scale, q = struct.unpack_from("<f", unit)[0], float(struct.unpack_from("b", unit, 4 + k)[0])
        else:
            scale = math.nan if unit[k // MX_BLOCK] == 255 else 2.0 ** (unit[k // MX_BLOCK] - 127)
            code = unit[4 + k // 2] >> k % 2 * 4 & 15
            q = math.copysign(E2M1[code & 7], -1 if code & 8 else 1)
        values.append(fp32(scale * q))
    return values


def encode_with_residual(fmt, values, residual):
    """(payload, new residual)"""
    u = [fp32(a + b) for a, b in zip(values, residual)]
    raw = encode(fmt, u)
    size = UNIT if fmt == INT8 else MX_BLOCK
    said, kept = decode(fmt, raw, len(u)), []
    for at in range(0, len(u), size):
        good = finite(u[at:at + size])
        kept += [fp32(a - b) for a, b in zip(u[at:at + size], said[at:at + size])] if good else residual[at:at + size]
    return raw, kept
