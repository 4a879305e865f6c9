# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The PBox protocol, version 1: frames, and the numbers of all of it.

Written from doc/protocol.md alone, as a second opinion on the C codec. Standard library only.
Rules are cited as there: R2.4 is rule 4 of section 2.
"""

import struct
from dataclasses import dataclass, fields

MAGIC = 0xB5
VERSION = 1
HEADER = struct.Struct("<BBBBHQHHIIHHIIHHBBHIIII")
HEADER_LEN = 62
TAG_LEN = 16
assert HEADER.size == HEADER_LEN
CONTROL_PORT = 7269
OVERHEAD = 20 + 8 + HEADER_LEN
ANY_WORKER = 0xFFFF
ALL_GROUPS = 0xFFFF
LR_MUL_ONE = 0x3F80
MAX_ENDPOINTS = 64
MAX_SEGMENTS = 64
MAX_SET = 16
MAX_BOXES = 16
MAX_HOMES = 160
HOMES_RESTORE, HOMES_PREPARE = 1, 2

TYPES = {
    0x01: "HELLO", 0x02: "RETRY", 0x03: "JOIN", 0x04: "WELCOME", 0x05: "DECLARE",
    0x06: "DECLARED", 0x07: "MAP", 0x08: "MAPPED", 0x09: "SET", 0x0A: "SET_OK",
    0x0B: "STATUS", 0x0C: "STATUS_OK", 0x0D: "LEAVE", 0x0E: "LEFT", 0x0F: "ERROR",
    0x10: "PING", 0x11: "PONG", 0x12: "NOT_READY", 0x20: "PUSH", 0x21: "PUSH_OK",
    0x22: "PULL", 0x23: "RESULT", 0x24: "PUSHPULL", 0x25: "WAIT", 0x26: "INIT",
    0x27: "INIT_OK", 0x28: "RESTORE", 0x29: "RESTORE_OK",
    0x2B: "FETCH", 0x2C: "FETCHED", 0x2D: "NORM", 0x2E: "NORM_OK",
    0x13: "WORK", 0x14: "WORK_OK", 0x17: "BOXES", 0x18: "BOXES_OK",
    0x1B: "HOMES", 0x1C: "HOMES_OK",
    0x15: "TASK", 0x16: "TASK_OK",
    0x19: "STATS", 0x1A: "STATS_OK",
    0x2A: "MOVED",
}
TYPE = {name: number for number, name in TYPES.items()}
FIRST_DATA_TYPE = 0x20

FLAGS = {"LAST": 0x01, "RETX": 0x02, "ECE": 0x04, "ZERO": 0x08, "AUTH": 0x10, "CUT": 0x20,
         "HAVE": 0x40, "LATEST": 0x80}
LAST, RETX, ECE, ZERO, AUTH, CUT, HAVE, LATEST = FLAGS.values()
KNOWN_FLAGS = 0xFF

FORMATS = {"fp32": 1, "bf16": 2, "fp16": 3}
BLOCK_FORMATS = {"int8": 16, "mxfp4": 20}  # R13.5; pbox_block.py has the codec
BLOCK_ARG = {16: 7, 20: 5}  # fmt_arg
FORMAT_NAMES = {number: name for name, number in FORMATS.items()}
FORMAT_SIZE = {1: 4, 2: 2, 3: 2}
DECLARE_RESTORE = 0x1
DECLARE_CONTINUE = 0x2
DECLARE_MIXED = 0x4
DISCIPLINES = {"rounds": 0, "clock": 1, "turn": 2}
CAPABILITIES = {"clock": 1, "block": 2, "work": 3, "boxes": 4, "slots": 6, "norm": 7}  # bits (R4.10)
CAN_SLOTS, CAN_CLOCK = 1 << CAPABILITIES["slots"], 1 << CAPABILITIES["clock"]
MAX_SLOTS, MAX_LEVEL = 4096, 12  # R5.2b
RESTORE_DONE, RESTORE_NOTED, RESTORE_GIVE, RESTORE_LOST, RESTORE_LATE, RESTORE_FETCH = range(6)  # RESTORE_OK (R10.5)
OPS = {"sum": 0, "mean": 1, "sample_mean": 2, "weighted_mean": 3}
OPTIMISERS = {"none": 0, "sgd": 1, "momentum": 2, "nesterov": 3, "adam": 4, "adamw": 5, "add": 6}
HYPER = {"lr": 1, "momentum": 2, "dampening": 3, "weight_decay": 4, "beta1": 5, "beta2": 6,
         "eps": 7, "clip_value": 8, "steps": 9, "plain": 10, "maximize": 11, "coefficient": 12, "max_norm": 13}
ERRORS = {
    1: "VERSION", 2: "COOKIE", 3: "NO_JOB", 4: "SECRET", 5: "WORKERS", 6: "WORKER_TAKEN",
    7: "FULL", 8: "SESSION", 9: "MISMATCH", 10: "BAD_REQUEST", 11: "SET_LATE",
    12: "SET_CONFLICT", 13: "SET_ORDER", 14: "NO_LR", 15: "NO_MEMORY", 16: "SHUTDOWN",
    17: "LOST", 18: "RUNNING", 19: "RUN_ENDED", 20: "UNSUPPORTED", 21: "ELSEWHERE",
}
ERROR = {name: number for number, name in ERRORS.items()}
REVISION = 1  # R4.4
JOIN_PREFIX = b"PBOX-JOIN-1"
WELCOME_AUTH = 0x1
WELCOME_INSECURE = 0x20
WELCOME_PREFIX = b"PBOX-WELCOME-1"
ERROR_PREFIX = b"PBOX-ERROR-1"
JOIN_PROOF_AT = 160
WELCOME_PROOF_AT = 40
PROOF_LEN = 32
RUN_LEN = 16
WELCOME_LEN = 80


def bf16(bits):
    """The number that bits of bf16 are."""
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


class Malformed(ValueError):
    """control_malformed (R3.3)."""


def node_code(node):
    """`base` of a frame that brings a node (first, level) (R5.2b)."""
    return node[0] | node[1] << 16


# ---- CRC32C (R2.4) -------------------------------------------------------------------------

def _crc_tables():
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    # two bytes a step: the table of all 16-bit values
    wide = [0] * 65536
    for n in range(65536):
        c = n >> 8 ^ table[n & 0xFF]
        wide[n] = c >> 8 ^ table[c & 0xFF]
    return table, wide


_CRC, _CRC16 = _crc_tables()


def crc32c(data, crc=0):
    """CRC32C of data, continuing crc."""
    crc ^= 0xFFFFFFFF
    wide = _CRC16
    even = len(data) & ~1
    for (word,) in struct.iter_unpack("<H", data[:even]):
        crc = crc >> 16 ^ wide[(crc ^ word) & 0xFFFF]
    if even != len(data):
        crc = crc >> 8 ^ _CRC[(crc ^ data[even]) & 0xFF]
    return crc ^ 0xFFFFFFFF


# ---- frames (sections 1 and 2) --------------------------------------------------------------

@dataclass
class Header:
    type: int = 0
    prio: int = 0
    flags: int = 0
    token: int = 0
    job: int = 0
    worker: int = 0
    incarnation: int = 0
    chunk: int = 0
    frag: int = 0
    length: int = 0
    round: int = 0
    base: int = 0
    map_epoch: int = 0
    served: int = 0
    format: int = 0
    fmt_arg: int = 0
    aux: int = 0
    weight: int = 0
    ts: int = 0
    held: int = 0
    crc: int = 0

    @property
    def name(self):
        return TYPES.get(self.type, "?")


HEADER_FIELDS = [f.name for f in fields(Header)]


def encode_frame(header, payload=b"", magic=MAGIC, version=VERSION, crc=None, tag=b""):
    """The bytes of a frame; sets header.length and header.crc. magic, version, crc and tag are
    there to make bad ones."""
    header.length = len(payload)
    values = [getattr(header, name) for name in HEADER_FIELDS[:-1]]
    head = HEADER.pack(magic, version, *values, 0)[:-4]
    header.crc = crc32c(head, crc32c(payload)) if crc is None else crc
    return head + struct.pack("<I", header.crc) + payload + tag


def decode_frame(data, first=True):
    """(drop, header, payload, size) of the frame at the start of data. drop is None or the name of
    R2.1; size is None when the rest of the datagram goes with the frame."""
    if len(data) < HEADER_LEN:
        return ("frame_truncated" if first else "frame_trailing"), None, b"", None
    magic, version, *values = HEADER.unpack_from(data)
    if magic != MAGIC:
        return "frame_magic", None, b"", None
    header = Header(*values)
    if version != VERSION:
        return "frame_version", header, b"", None
    size = HEADER_LEN + header.length + (TAG_LEN if header.flags & AUTH else 0)
    if size > len(data):
        return "frame_truncated", header, b"", None
    header.frame = bytes(data[:size])  # with its tag
    payload = bytes(data[HEADER_LEN:HEADER_LEN + header.length])
    if crc32c(data[:HEADER_LEN - 4], crc32c(payload)) != header.crc:
        return "frame_crc", header, payload, size
    if header.flags & ~KNOWN_FLAGS:
        return "frame_flags", header, payload, size
    if header.type not in TYPES:
        return "frame_type", header, payload, size
    if header.flags & AUTH and TYPES[header.type] in ("HELLO", "RETRY", "JOIN"):
        return "frame_auth", header, payload, size
    return None, header, payload, size


def decode_datagram(data):
    """[(drop, header, payload)] of all frames of a datagram (R1.2)."""
    out, at = [], 0
    data = memoryview(data)
    while at < len(data) or not out:
        drop, header, payload, size = decode_frame(data[at:], at == 0)
        out.append((drop, header, payload))
        if size is None:
            break
        at += size
    return out


# ---- chunks ---------------------------------------------------------------------------------

def payload_room(mtu):
    """Bytes of elements in a frame (R5.8)."""
    return (mtu - OVERHEAD) // 64 * 64


def payload_bytes(fmt, elements):
    return FORMAT_SIZE[fmt] * elements


def clock_vector(discipline, workers):
    """Bytes after the elements of RESULT and RESTORE (R14.10)."""
    return workers if discipline == DISCIPLINES["clock"] and workers <= 256 else 0


def frag_elements(mtu, push_format, pull_format):
    return payload_room(mtu) // max(FORMAT_SIZE[push_format], FORMAT_SIZE[pull_format])


def init_elements(mtu):
    return payload_room(mtu) // 4


def fragments(elements, per_fragment):
    """[(first element, end)] of the fragments of a chunk."""
    return [(at, min(at + per_fragment, elements)) for at in range(0, elements, per_fragment)]
