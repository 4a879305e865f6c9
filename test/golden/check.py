#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The Python codec against the golden frames."""

import dataclasses
import json
import os
import struct
import sys

import make
import make_blocks
import pbox_auth
import pbox_math
import pbox_proto as proto

sys.path.insert(0, os.path.join(make.HERE, "..", "func"))
from cases import run_cases

with open(os.path.join(make.HERE, "frames.json"), encoding="utf-8") as file:
    TEXT = file.read()
with open(os.path.join(make.HERE, "frames.pcap"), "rb") as file:
    PCAP = file.read()
GOLDEN = json.loads(TEXT)
FRAMES = GOLDEN["frames"]


def outcome(raw):
    """(drop, header, payload, message) as a receiver sees a frame."""
    drop, header, payload, _ = proto.decode_frame(raw)
    message = None
    if drop is None and header.type in proto.MESSAGES and payload:
        try:
            message = proto.MESSAGES[header.type].unpack(payload)
        except proto.Malformed:
            drop = "control_malformed"
    return drop, header, payload, message


def test_decode():
    for f in FRAMES:
        drop, header, payload, message = outcome(bytes.fromhex(f["hex"]))
        assert drop == f["drop"], (f["name"], drop)
        if drop is None:
            assert dataclasses.asdict(header) == f["header"], f["name"]
            if message is not None:
                assert make.as_json(message) == f["payload"], f["name"]
            elif "values" in f["payload"]:
                values = pbox_math.vector(f["payload"]["values"])
                assert pbox_math.pack(values, header.format) == payload, f["name"]


def test_encode():
    for f in FRAMES:
        if not f["canonical"]:
            continue
        raw = bytes.fromhex(f["hex"])
        _, header, payload, message = outcome(raw)
        again = message.pack() if message is not None else payload
        assert proto.encode_frame(header, again) == raw, f["name"]


def test_datagrams():
    for d in GOLDEN["datagrams"]:
        drops = [drop for drop, _, _ in proto.decode_datagram(bytes.fromhex(d["hex"]))]
        assert drops == d["drops"], (d["name"], drops)


def test_everything_is_covered():
    good = [f for f in FRAMES if f["drop"] is None]
    assert {f["type"] for f in good} == set(proto.TYPES.values())
    assert {f["header"]["format"] for f in good} >= set(proto.FORMAT_NAMES)
    drops = {f["drop"] for f in FRAMES} | {x for d in GOLDEN["datagrams"] for x in d["drops"]}
    assert drops == {None, "frame_magic", "frame_version", "frame_truncated", "frame_crc",
                     "frame_flags", "frame_type", "frame_auth", "frame_trailing",
                     "control_malformed"}, drops
    flags = 0
    for f in good:
        flags |= f["header"]["flags"]
    assert flags == proto.KNOWN_FLAGS
    names = [f["name"] for f in FRAMES]
    assert len(set(names)) == len(names)


def test_pcap():
    assert struct.unpack_from("<IHHiIII", PCAP) == (0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    at, found = 24, []
    while at < len(PCAP):
        _, _, kept, full = struct.unpack_from("<IIII", PCAP, at)
        p = PCAP[at + 16:at + 16 + kept]
        at += 16 + kept
        assert kept == full == len(p) and p[12:14] == b"\x08\0" and p[23] == 17
        assert make.checksum(p[14:34]) == 0
        length, = struct.unpack_from(">H", p, 38)
        pseudo = p[26:34] + struct.pack(">HH", 17, length) + p[34:]
        assert make.checksum(pseudo + b"\0" * (len(pseudo) & 1)) == 0
        assert 7269 in struct.unpack_from(">HH", p, 34) or 7270 in struct.unpack_from(">HH", p, 34)
        found.append(p[42:34 + length].hex())
    assert found == [f["hex"] for f in FRAMES + GOLDEN["datagrams"]]


def test_auth():
    # SipHash's own vectors, and those of AES-256 in the paper on GCM
    key = bytes(range(16))
    assert pbox_auth.siphash128(key, b"").hex() == "a3817f04ba25a8e66df67214c7550293"
    assert pbox_auth.siphash128(key, bytes(range(8))).hex() == "3b62a9ba6258f5610f83e264f31497b4"
    assert pbox_auth.siphash128(key, bytes(range(63))).hex() == "5150d1772f50834a503e069a973fbd7c"
    assert pbox_auth.aes256(bytes(range(32)), bytes.fromhex(
        "00112233445566778899aabbccddeeff")).hex() == "8ea2b7ca516745bfeafc49904b496089"
    zero = bytes(32), bytes(12)
    assert pbox_auth.gcm_tag(*zero, b"", b"").hex() == "530f8afbc74536b9a963b4f1c4cb738b"
    assert pbox_auth.gcm_tag(*zero, b"", bytes.fromhex(
        "cea7403d4d606b6e074ec5d3baf39d18")).hex() == "d0d1c8a799996bf0265b98b5d48ab919"
    a = GOLDEN["auth"]
    job, worker, box = (bytes.fromhex(a[k]) for k in ("job_key", "worker_key", "box_key"))
    for f in FRAMES:
        if f["name"] in a["frames"]:
            raw = bytes.fromhex(f["hex"])
            assert pbox_auth.good(raw, box if f["from_box"] else worker, job), f["name"]
            assert not pbox_auth.good(raw, worker if f["from_box"] else box, job), f["name"]
            for at in (0, 40, 60, len(raw) - 17, len(raw) - 1):
                other = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1:]
                assert not pbox_auth.good(other, box if f["from_box"] else worker, job), f["name"]


def test_blocks():
    with open(os.path.join(make.HERE, "blocks.json"), encoding="utf-8") as file_:
        assert make_blocks.text(make_blocks.build()) == file_.read()


def test_regeneration():
    golden = make.build()
    assert make.text(golden) == TEXT
    assert make.pcap(golden) == PCAP


if __name__ == "__main__":
    sys.exit(run_cases(globals()))
