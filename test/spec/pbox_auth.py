# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Section 11 of the PBox protocol: keys, digests, tags. From doc/protocol.md and the standards that
it names; standard library only, and slow."""

import hashlib
import hmac
import struct

from pbox_proto import AUTH, HEADER_LEN, TAG_LEN, encode_frame

# ---- SipHash-2-4 with 128 bits -----------------------------------------------------------------

_M64 = (1 << 64) - 1


def _round(v):
    a, b, c, d = v
    a = (a + b) & _M64
    b = (b << 13 | b >> 51) & _M64 ^ a
    a = (a << 32 | a >> 32) & _M64
    c = (c + d) & _M64
    d = (d << 16 | d >> 48) & _M64 ^ c
    a = (a + d) & _M64
    d = (d << 21 | d >> 43) & _M64 ^ a
    c = (c + b) & _M64
    b = (b << 17 | b >> 47) & _M64 ^ c
    c = (c << 32 | c >> 32) & _M64
    return a, b, c, d


def siphash128(key, data):
    k0, k1 = struct.unpack("<QQ", key)
    v = (k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE, k0 ^ 0x6C7967656E657261,
         k1 ^ 0x7465646279746573)
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for (m,) in struct.iter_unpack("<Q", padded):
        v = _round(_round((v[0], v[1], v[2], v[3] ^ m)))
        v = (v[0] ^ m, *v[1:])
    v = (v[0], v[1], v[2] ^ 0xEE, v[3])
    out = b""
    for xor in (0, 0xDD):
        v = (v[0], v[1] ^ xor, v[2], v[3])
        for _ in range(4):
            v = _round(v)
        out += struct.pack("<Q", v[0] ^ v[1] ^ v[2] ^ v[3])
    return out


# ---- AES-256 and GCM's hash (FIPS 197, SP 800-38D) -----------------------------------------------

def _xtime(a):
    return (a << 1 ^ 0x11B) if a & 0x80 else a << 1


def _sbox():
    box, p, q = [0] * 256, 1, 1
    while True:
        p ^= _xtime(p)  # times 3
        q ^= q << 1
        q ^= q << 2
        q ^= q << 4
        q &= 0xFF
        if q & 0x80:
            q ^= 0x09
        rotated = q
        for n in range(1, 5):
            rotated ^= (q << n | q >> (8 - n)) & 0xFF
        box[p] = rotated ^ 0x63
        if p == 1:
            break
    box[0] = 0x63
    return box


_SBOX = _sbox()


def aes256(key, block):
    words = [list(key[i:i + 4]) for i in range(0, 32, 4)]
    rcon = 1
    for i in range(8, 60):
        w = words[-1]
        if i % 8 == 0:
            w = [_SBOX[x] for x in w[1:] + w[:1]]
            w[0] ^= rcon
            rcon <<= 1
        elif i % 8 == 4:
            w = [_SBOX[x] for x in w]
        words.append([a ^ b for a, b in zip(words[i - 8], w)])
    keys = [sum(words[i:i + 4], []) for i in range(0, 60, 4)]
    s = [a ^ b for a, b in zip(block, keys[0])]
    for r in range(1, 15):
        s = [_SBOX[s[(i + 4 * (i % 4)) % 16]] for i in range(16)]
        if r < 14:
            mixed = []
            for c in range(0, 16, 4):
                col = s[c:c + 4]
                every = col[0] ^ col[1] ^ col[2] ^ col[3]
                mixed += [col[i] ^ every ^ _xtime(col[i] ^ col[(i + 1) % 4]) for i in range(4)]
            s = mixed
        s = [a ^ b for a, b in zip(s, keys[r])]
    return bytes(s)


_POWERS = {}  # of H times x^i, for each H


def _ghash(h, blocks):
    if h not in _POWERS:
        v, powers = int.from_bytes(h, "big"), []
        for _ in range(128):
            powers.append(v)
            v = v >> 1 ^ (0xE1 << 120 if v & 1 else 0)
        _POWERS[h] = powers
    powers, y = _POWERS[h], 0
    for i in range(0, len(blocks), 16):
        y ^= int.from_bytes(blocks[i:i + 16], "big")
        product, bit = 0, 127
        while y:
            if y >> bit & 1:
                product ^= powers[127 - bit]
                y &= (1 << bit) - 1
            bit -= 1
        y = product
    return y


def gcm_tag(key, nonce, extra, text):
    """The tag of AES-256-GCM over additional data and ciphertext; the nonce has 12 bytes."""
    padded = b"".join(x + bytes(-len(x) % 16) for x in (extra, text))
    y = _ghash(aes256(key, bytes(16)), padded + struct.pack(">QQ", 8 * len(extra), 8 * len(text)))
    return (y ^ int.from_bytes(aes256(key, nonce + b"\0\0\0\1"), "big")).to_bytes(16, "big")


# ---- R11.2 to R11.4 --------------------------------------------------------------------------------

def job_key(secret, incarnation, job):
    return hmac.new(secret, b"PBOX-AUTH-JOB-1" + struct.pack("<IH", incarnation, job),
                    hashlib.sha256).digest()


def session_keys(secret, welcome):
    """(of frames of the worker, of frames of the box)"""
    out = hmac.new(secret, b"PBOX-AUTH-SESSION-1" + struct.pack(
        "<QQIHH", welcome.nonce, welcome.token, welcome.incarnation, welcome.job, welcome.worker),
        hashlib.sha256).digest()
    return out[:16], out[16:]


def digest(job, payload):
    return gcm_tag(job, bytes(12), payload, b"") if payload else bytes(16)


def tag(key, job, frame):
    """Of a frame without its tag."""
    return siphash128(key, frame[:HEADER_LEN] + digest(job, frame[HEADER_LEN:]))


def seal(header, payload, key, job):
    header.flags |= AUTH
    frame = encode_frame(header, payload)
    return frame + tag(key, job, frame)


def good(raw, key, job):
    """Of the whole frame, tag included."""
    return hmac.compare_digest(tag(key, job, bytes(raw[:-TAG_LEN])), bytes(raw[-TAG_LEN:]))
