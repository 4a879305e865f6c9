#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Seeds of the fuzz target, written from doc/snapshot.md alone: small blocks, a stripe of 3 + 1."""

import os
import struct
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
BLOCK, DATA, PARITY, STRIPES, UNIT, ID = 512, 3, 1, 2, 256, 0x1234
TABLE = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
    TABLE.append(n)


def crc32c(data, crc=0):
    crc ^= 0xFFFFFFFF
    for b in data:
        crc = TABLE[(crc ^ b) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def gf_mul(a, b):
    r = 0
    while b:
        r ^= a if b & 1 else 0
        a = (a << 1) ^ (0x11D if a & 0x80 else 0)
        b >>= 1
    return r


def gf_inv(a):
    return next(x for x in range(256) if gf_mul(a, x) == 1)


# box 1 of 3 has chunks 0 and 2 of the table's four
PART = (1, 3, 2, ((1, 1), (0, 1), (1, 2), (2, 1)))
VALUES = {1: 8, 2: 9, 3: 9, 4: 13, 5: 13}  # of an entry, by version


def description(arrays, version=5, boxes=(0, 0, 0, ())):
    tensors = [(b"w", 100, 0), (b"b", 10, 1)]
    out = b"job".ljust(64, b"\0")
    out += struct.pack("<IIIQH6BIQ6I", 0, 9, 77, 123456789, 2, 1, 1, 4, 0, 0, arrays, 64, 110, 2, 2, 2, 3, 2,
                       1)
    box, n, epoch, homes = boxes
    if version >= 5:
        out += struct.pack("<BBHI", box, n, epoch, len(homes))
    for name, elements, group in tensors:
        out += struct.pack("<QHH", elements, group, len(name)) + name
    for _, elements, group in tensors:
        out += struct.pack("<IHH", elements, 1, group)
    for i, (_, elements, _) in enumerate(tensors):
        out += struct.pack("<QII", 0, i, elements)
    for _ in range(3):
        out += struct.pack("<IIHH", 9, 2, 2, 0)
    values = (0.1, 0.9, 0, 0, 0.9, 0.999, 1e-8, 0, 5000, 0, 0, 0, 0)[:VALUES[version]]
    out += struct.pack(f"<IIHH{len(values)}d", 1, 2, 0, 1, *values)
    return out + b"".join(struct.pack("<BxH", *home) for home in homes)


def snapshot(compress, parity=PARITY, version=5, boxes=(0, 0, 0, ())):
    meta = description(3, version, boxes)
    raw = b"".join(struct.pack("<f", i % 7) for i in range(330))
    directory, data = b"", b""
    for i in range(0, len(raw), UNIT):
        unit = raw[i:i + UNIT]
        z = zlib.compressobj(9, zlib.DEFLATED, -15)
        packed = z.compress(unit) + z.flush()
        use = compress and len(packed) < len(unit)
        directory += struct.pack("<I", len(packed) | 1 << 31 if use else len(unit))
        data += packed if use else unit
    content = meta + directory + data
    payload = BLOCK - 32
    sup = b"PBOXSNAP" + struct.pack("<IIIHHHHIQQQIIQIIII", version, 0x01020304, BLOCK, DATA, parity, STRIPES, 0,
                                    UNIT, len(meta), len(data), len(raw), crc32c(content), ID, 123456789, 0, 9,
                                    77, len(directory) // 4) + b"job".ljust(64, b"\0")
    sup += struct.pack("<QQBB", 0, 0, *boxes[:2])
    sup = sup.ljust(4092, b"\0")
    sup += struct.pack("<I", crc32c(sup))
    blocks = [content[i:i + payload].ljust(payload, b"\0") for i in range(0, len(content), payload)]
    disk = []
    for g in range(0, len(blocks), DATA * STRIPES):
        group = blocks[g:g + DATA * STRIPES]
        stripes = min(len(group), STRIPES)
        disk += group
        for p in range(parity):
            for s in range(stripes):
                rows = group[s::stripes]
                factor = [gf_inv((DATA + p) ^ c) for c in range(len(rows))]
                mul = [[gf_mul(f, x) for x in range(256)] for f in factor]
                disk.append(bytes(_xor(m[x] for m, x in zip(mul, column)) for column in zip(*rows)))
    out = sup
    for i, b in enumerate(disk):
        head = struct.pack("<IIQ", 0x4B4C4250, ID, i)
        out += head + struct.pack("<I", crc32c(b, crc32c(head))) + bytes(12) + b
    return out + sup


def _xor(values):
    r = 0
    for v in values:
        r ^= v
    return r


def damaged(f, *blocks):
    f = bytearray(f)
    for b in blocks:
        f[4096 + b * BLOCK + 100] ^= 1
    return bytes(f)


def main():
    folder = os.path.join(HERE, "corpus", "snapshot")
    os.makedirs(folder, exist_ok=True)
    plain, packed = snapshot(False), snapshot(True)
    seeds = {
        "plain": b"\0" + plain, "packed": b"\0" + packed, "no-parity": b"\0" + snapshot(True, 0),
        "rebuilt": b"\0" + damaged(plain, 0, 3), "lost": b"\0" + damaged(plain, 2, 4),
        "description-lost": b"\0" + damaged(plain, 0, 2), "first-super": b"\0" + bytes(4096) + plain[4096:],
        "cut": b"\0" + plain[:-4096 - BLOCK], "stamped": b"\1" + packed, "description": b"\5" + description(3),
        "version-1": b"\0" + snapshot(False, version=1), "version-4": b"\0" + snapshot(False, version=4),
        "box-of-several": b"\0" + snapshot(True, boxes=PART), "description-of-several": b"\5" + description(3, 5, PART),
        "description-1": b"\2" + description(3, 1),
        "too-many-tensors": b"\5" + description(1)[:104] + b"\xff" * 4 + description(1)[108:],
    }
    for name, data in seeds.items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(data)


if __name__ == "__main__":
    main()
