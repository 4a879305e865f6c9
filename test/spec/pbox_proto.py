# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The PBox protocol, version 1: frames and control payloads.

Written from doc/protocol.md alone, as a second opinion on the C codec. Standard library only.
Rules are cited as there: R2.4 is rule 4 of section 2.
"""

import struct
from dataclasses import dataclass, field, fields
from typing import ClassVar

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


# ---- control payloads -----------------------------------------------------------------------

class _Reader:
    """Takes fields off a payload; Malformed where it ends too early."""

    def __init__(self, data):
        self.data, self.at = bytes(data), 0

    def take(self, n):
        if n > len(self.data) - self.at:
            raise Malformed(f"{n} bytes wanted at {self.at} of {len(self.data)}")
        self.at += n
        return self.data[self.at - n:self.at]

    def get(self, fmt):
        return struct.unpack("<" + fmt, self.take(struct.calcsize("<" + fmt)))

    def left(self):
        return len(self.data) - self.at

    def text(self, n):
        return self.take(n).decode("utf-8", "replace")


def cut(text, room):
    """The UTF-8 bytes of text, cut to room at a character (R3.4)."""
    raw = text.encode("utf-8")
    if len(raw) <= room:
        return raw
    while room > 0 and raw[room] & 0xC0 == 0x80:
        room -= 1
    return raw[:room]


def _padded(text, size, room):
    return cut(text, room).ljust(size, b"\0")


def _unpad(raw, room):
    return raw.split(b"\0", 1)[0][:room].decode("utf-8", "ignore")


def _malformed_if(condition, text):
    if condition:
        raise Malformed(text)


@dataclass
class Hello:
    TYPE: ClassVar[int] = 0x01
    min_version: int = VERSION
    max_version: int = VERSION

    def pack(self):
        return struct.pack("<BB62x", self.min_version, self.max_version)

    @classmethod
    def unpack(cls, data):
        return cls(*_Reader(data).get("BB62x"))


@dataclass
class Retry:
    TYPE: ClassVar[int] = 0x02
    cookie: int = 0
    incarnation: int = 0

    def pack(self):
        return struct.pack("<QI4x", self.cookie, self.incarnation)

    @classmethod
    def unpack(cls, data):
        return cls(*_Reader(data).get("QI4x"))


@dataclass
class Join:
    TYPE: ClassVar[int] = 0x03
    cookie: int = 0
    nonce: int = 0
    worker: int = ANY_WORKER
    workers: int = 1
    mtu: int = 1500
    window: int = 64
    policy: int = 0
    lease_ms: int = 0
    job: str = ""
    host: str = ""
    proof: bytes = bytes(PROOF_LEN)
    auth: int = 0
    run: bytes = bytes(RUN_LEN)
    number: int = 0
    revision: int = REVISION
    can: int = 0
    needs: int = 0
    slots: int = 0
    least: int = 0

    def pack(self):
        return struct.pack(
            "<QQHHHHBBBxI64s64s32s16sQIIHH284x", self.cookie, self.nonce, self.worker, self.workers,
            self.mtu, self.window, self.policy, self.auth, self.revision, self.lease_ms, _padded(self.job, 64, 63),
            _padded(self.host, 64, 63), self.proof, self.run, self.number, self.can, self.needs,
            self.slots, self.least)

    @classmethod
    def unpack(cls, data):
        *head, auth, revision, lease, job, host, proof, run, number, can, needs, slots, least = _Reader(data).get(
            "QQHHHHBBBxI64s64s32s16sQIIHH284x")
        _malformed_if(b"\0" not in job, "job name without NUL")
        return cls(*head, lease, _unpad(job, 63), _unpad(host, 63), proof, auth, run, number, revision,
                   can, needs, slots, least)


@dataclass
class Welcome:
    TYPE: ClassVar[int] = 0x04
    token: int = 0
    nonce: int = 0
    job: int = 0
    worker: int = 0
    workers: int = 0
    incarnation: int = 0
    lease_ms: int = 0
    mtu: int = 0
    window: int = 0
    proof: bytes = bytes(PROOF_LEN)
    endpoints: list = field(default_factory=list)  # of (dotted IPv4, port)
    flags: int = 0
    number: int = 0

    def pack(self):
        out = struct.pack(
            "<QQHHHHIIHHI32sQ", self.token, self.nonce, self.job, self.worker, self.workers,
            len(self.endpoints), self.incarnation, self.lease_ms, self.mtu, self.window,
            self.flags, self.proof, self.number)
        for ip, port in self.endpoints:
            out += bytes(int(b) for b in ip.split(".")) + struct.pack("<H2x", port)
        return out

    @classmethod
    def unpack(cls, data):
        r = _Reader(data)
        token, nonce, job, worker, workers, n, *rest, flags, proof, number = r.get(
            "QQHHHHIIHHI32sQ")
        _malformed_if(n > MAX_ENDPOINTS, "endpoints")
        ends = []
        for _ in range(n):
            *ip, port = r.get("BBBBH2x")
            ends.append([".".join(map(str, ip)), port])
        return cls(token, nonce, job, worker, workers, *rest, proof, ends, flags, number)

    @staticmethod
    def proven(data):
        """The part of the payload that the proof covers (R4.5)."""
        return data[:WELCOME_LEN + 8 * struct.unpack_from("<H", data, 22)[0]]


@dataclass
class Tensor:
    elements: int = 0
    group: int = 0
    name: str = ""

    def pack(self):
        name = cut(self.name, 63)
        return struct.pack("<QHH", self.elements, self.group, len(name)) + name


@dataclass
class Declare:
    TYPE: ClassVar[int] = 0x05
    table: int = 0
    tensors: int = 0
    first: int = 0
    mode: int = 0
    op: int = 0
    optimiser: int = 0
    push_format: int = 1
    pull_format: int = 1
    entries: list = field(default_factory=list)  # of Tensor
    flags: int = 0
    discipline: int = 0

    def pack(self):
        return struct.pack(
            "<IIIHBBBBBBI", self.table, self.tensors, self.first, len(self.entries), self.mode,
            self.op, self.optimiser, self.push_format, self.pull_format, self.discipline, self.flags) + b"".join(
                e.pack() for e in self.entries)

    @classmethod
    def unpack(cls, data):
        r = _Reader(data)
        table, tensors, first, count, *rest, discipline, flags = r.get("IIIHBBBBBBI")
        _malformed_if(first + count > tensors, "first + count")
        entries = []
        for _ in range(count):
            elements, group, n = r.get("QHH")
            entries.append(Tensor(elements, group, _unpad(r.take(n), 63)))
        return cls(table, tensors, first, *rest, entries, flags, discipline)


@dataclass
class Declared:
    TYPE: ClassVar[int] = 0x06
    table: int = 0
    first: int = 0
    count: int = 0

    def pack(self):
        return struct.pack("<IIH2x", self.table, self.first, self.count)

    @classmethod
    def unpack(cls, data):
        return cls(*_Reader(data).get("IIH2x"))


@dataclass
class Map:
    TYPE: ClassVar[int] = 0x07
    table: int = 0
    first: int = 0

    def pack(self):
        return struct.pack("<II", self.table, self.first)

    @classmethod
    def unpack(cls, data):
        return cls(*_Reader(data).get("II"))


@dataclass
class NotReady:
    TYPE: ClassVar[int] = 0x12
    expected: int = 0
    joined: int = 0
    declared: int = 0
    first_missing: int = 0
    silent_ms: int = 0
    text: str = ""

    def pack(self):
        text = self.text.encode("utf-8")
        return struct.pack("<HHHHIH2x", self.expected, self.joined, self.declared,
                           self.first_missing, self.silent_ms, len(text)) + text

    @classmethod
    def unpack(cls, data):
        r = _Reader(data)
        *head, n = r.get("HHHHIH2x")
        return cls(*head, r.text(n))


@dataclass
class Chunk:
    chunk_id: int = 0
    endpoint: int = 0
    elements: int = 0
    version: int = 0
    segments: list = field(default_factory=list)  # of [offset, tensor, elements]

    def pack(self):
        return struct.pack("<IHHII", self.chunk_id, self.endpoint, len(self.segments),
                           self.elements, self.version) + b"".join(
                               struct.pack("<QII", *s) for s in self.segments)


@dataclass
class Mapped:
    TYPE: ClassVar[int] = 0x08
    table: int = 0
    chunks: int = 0
    first: int = 0
    frag_elements: int = 0
    first_chunk_id: int = 0
    entries: list = field(default_factory=list)  # of Chunk
    mark: int = 0

    def pack(self):
        return struct.pack("<IIIHHII", self.table, self.chunks, self.first, len(self.entries),
                           self.mark, self.frag_elements, self.first_chunk_id) + b"".join(
                               e.pack() for e in self.entries)

    @classmethod
    def unpack(cls, data):
        r = _Reader(data)
        table, chunks, first, count, mark, *rest = r.get("IIIHHII")
        _malformed_if(first + count > chunks, "first + count")
        entries = []
        for _ in range(count):
            chunk_id, endpoint, n, elements, version = r.get("IHHII")
            _malformed_if(not 1 <= n <= MAX_SEGMENTS, "segments")
            segments = [list(r.get("QII")) for _ in range(n)]
            _malformed_if(sum(s[2] for s in segments) != elements, "elements of the segments")
            entries.append(Chunk(chunk_id, endpoint, elements, version, segments))
        return cls(table, chunks, first, *rest, entries, mark)


@dataclass
class Set:
    TYPE: ClassVar[int] = 0x09
    table: int = 0
    group: int = ALL_GROUPS
    from_round: int = 0
    params: list = field(default_factory=list)  # of [id, value]

    def pack(self):
        return struct.pack("<IHHI4x", self.table, self.group, len(self.params),
                           self.from_round) + b"".join(
                               struct.pack("<H6xd", *p) for p in self.params)

    @classmethod
    def unpack(cls, data):
        r = _Reader(data)
        table, group, count, from_round = r.get("IHHI4x")
        _malformed_if(count > MAX_SET, "count")
        return cls(table, group, from_round, [list(r.get("H6xd")) for _ in range(count)])


@dataclass
class Status:
    TYPE: ClassVar[int] = 0x0B
    first: int = 0
    flags: int = 0
    chunk: int = 0  # with WAITS
    round: int = 0
    frag: int = 0
    rack: str = ""  # with RACK

    WAITS: ClassVar[int] = 1
    RACK: ClassVar[int] = 4

    def pack(self):
        out, text = struct.pack("<HH", self.first, self.flags), self.rack.encode()
        if self.flags & (self.WAITS | self.RACK):
            out += struct.pack("<IIH2x", self.chunk, self.round, self.frag)
        return out + (struct.pack("<H2x", len(text)) + text if self.flags & self.RACK else b"")

    @classmethod
    def unpack(cls, data):
        r = _Reader(data)
        first, flags = r.get("HH")
        waits = r.get("IIH2x") if flags & (cls.WAITS | cls.RACK) else (0, 0, 0)
        return cls(first, flags, *waits, r.text(*r.get("H2x")) if flags & cls.RACK else "")


LEFT_REASON = {"unknown": 0, "itself": 1, "kicked": 2, "taken": 3, "refused": 4}


@dataclass
class Member:
    worker: int = 0
    state: int = 0
    silent_ms: int = 0
    declared: int = 0
    host: str = ""
    reason: int = 0

    def pack(self):
        return struct.pack("<HBBII20s", self.worker, self.state, self.reason, self.silent_ms,
                           self.declared, _padded(self.host, 20, 20))


@dataclass
class StatusOk:
    TYPE: ClassVar[int] = 0x0C
    workers: int = 0
    joined: int = 0
    first: int = 0
    tables: int = 0
    max_round: int = 0
    text: str = ""
    members: list = field(default_factory=list)  # of Member
    flags: int = 0

    CIRCLE: ClassVar[int] = 1

    def pack(self):
        text = self.text.encode("utf-8")
        return struct.pack("<HHHHIIHH", self.workers, self.joined, self.first, len(self.members),
                           self.tables, self.max_round, len(text), self.flags) + text + b"".join(
                               m.pack() for m in self.members)

    @classmethod
    def unpack(cls, data):
        r = _Reader(data)
        workers, joined, first, count, tables, max_round, n, flags = r.get("HHHHIIHH")
        _malformed_if(first + count > workers, "first + count")
        text = r.text(n)
        members = []
        for _ in range(count):
            worker, state, reason, silent_ms, declared, host = r.get("HBBII20s")
            members.append(Member(worker, state, silent_ms, declared, _unpad(host, 20), reason))
        return cls(workers, joined, first, tables, max_round, text, members, flags)


MAX_SLOTS = 4096
MAX_RANGES = 24  # of one worker (R15.9)
NONE_U64 = (1 << 63) - 1
UNKNOWN = 0xFFFFFFFF  # rounds of the training
HYPERS, MORE_HYPERS = 9, 4  # of WORK_OK: before the ranges, and after them


def _pack_ranges(ranges):
    return b"".join(struct.pack("<HH", *r) for r in ranges)


def _get_ranges(r, count):
    """In the order of slots, none empty, none that overlaps another."""
    ranges, at = [], 0
    for _ in range(count):
        first, end = r.get("HH")
        _malformed_if(first < at or end <= first or end > MAX_SLOTS, "range")
        ranges.append([first, end])
        at = end
    return ranges


@dataclass
class Work:
    """R15.4."""
    TYPE: ClassVar[int] = 0x13
    table: int = 0
    round: int = 0
    edition: int = 0
    slots: int = 0
    payloads: int = 0
    fits: int = 0xFFFFFFFF
    trained: int = 0
    compute: float = 0.0
    fixed: float = 0.0
    up: float = 0.0
    down: float = 0.0
    seed: int = NONE_U64
    samples: int = NONE_U64
    batch: int = 0
    ranges: list = field(default_factory=list)  # of [first, end]
    group: int = 0

    def pack(self):
        return struct.pack("<IIIHHIIddddQQIHH", self.table, self.round, self.edition, self.slots, self.payloads,
                           self.fits, self.trained, self.compute, self.fixed, self.up, self.down, self.seed,
                           self.samples, self.batch, len(self.ranges), self.group) + _pack_ranges(self.ranges)

    @classmethod
    def unpack(cls, data):
        r = _Reader(data)
        *head, count, group = r.get("IIIHHIIddddQQIHH")
        _malformed_if(count > MAX_RANGES, "ranges")
        return cls(*head, _get_ranges(r, count), group)


@dataclass
class WorkOk:
    """R15.5."""
    TYPE: ClassVar[int] = 0x14
    table: int = 0
    edition: int = 0
    plan: int = 0
    next_plan: int = 0
    next_from: int = 0
    again_ms: int = 0
    members: int = 0
    leads: int = 0
    ranges: list = field(default_factory=list)
    next_ranges: list = field(default_factory=list)
    now: int = 0
    trained: int = UNKNOWN
    hyper: list = field(default_factory=lambda: [0.0] * (HYPERS + MORE_HYPERS))  # ids 1 and on
    decided: int = 0
    decision: float = 0.0

    def pack(self):
        return struct.pack(f"<IIIIIHHHHIII{HYPERS}d", self.table, self.edition, self.plan, self.next_plan, self.next_from,
                           self.again_ms, len(self.ranges), len(self.next_ranges), self.members,
                           self.leads, self.now, self.trained, *self.hyper[:HYPERS]) + _pack_ranges(self.ranges) + \
            _pack_ranges(self.next_ranges) + struct.pack(f"<{MORE_HYPERS}dIId", *self.hyper[HYPERS:], self.decided, 0, self.decision)

    @classmethod
    def unpack(cls, data):
        r = _Reader(data)
        table, edition, plan, next_plan, next_from, again, n, after, members, leads, now, trained, *hyper = r.get(
            f"IIIIIHHHHIII{HYPERS}d")
        _malformed_if(n > MAX_RANGES or after > MAX_RANGES, "ranges")
        mine, theirs = _get_ranges(r, n), _get_ranges(r, after)
        more = r.get(f"{MORE_HYPERS}d") if r.left() >= 8 * MORE_HYPERS else [0.0] * MORE_HYPERS
        decided, decision = r.get("Ixxxxd") if r.left() >= 16 else (0, 0.0)
        return cls(table, edition, plan, next_plan, next_from, again, members, leads, mine, theirs, now, trained, [*hyper, *more],
                   decided, decision)


@dataclass
class Task:
    """R15.10a."""
    TYPE: ClassVar[int] = 0x15
    table: int = 0
    round: int = 0
    wish: int = 0
    since_us: int = 0
    first: int = 0
    end: int = 0
    ranges: list = field(default_factory=list)

    def pack(self):
        return struct.pack("<IIIIHHHxx", self.table, self.round, self.wish, self.since_us, self.first, self.end,
                           len(self.ranges)) + _pack_ranges(self.ranges)

    @classmethod
    def unpack(cls, data):
        r = _Reader(data)
        *head, first, end, count = r.get("IIIIHHHxx")
        _malformed_if(first > end or end > MAX_SLOTS, "first and end")
        _malformed_if(count > MAX_RANGES, "ranges")
        return cls(*head, first, end, _get_ranges(r, count))


@dataclass
class TaskOk:
    """R15.10b."""
    TYPE: ClassVar[int] = 0x16
    table: int = 0
    round: int = 0
    again_ms: int = 0
    ranges: list = field(default_factory=list)

    def pack(self):
        return struct.pack("<IIHH", self.table, self.round, self.again_ms, len(self.ranges)) + _pack_ranges(self.ranges)

    @classmethod
    def unpack(cls, data):
        r = _Reader(data)
        *head, count = r.get("IIHH")
        _malformed_if(count > MAX_RANGES, "ranges")
        return cls(*head, _get_ranges(r, count))


@dataclass
class BoxesOk:
    """R16.4."""
    TYPE: ClassVar[int] = 0x18
    box: int = 0
    cores: int = 0
    chunk_elements: int = 0
    mtu: int = 0
    release: str = ""
    boxes: list = field(default_factory=list)  # of [address, port]
    out: int = 0
    decides: int = 0

    def pack(self):
        return struct.pack("<HBBIIHH24s", len(self.boxes), self.box, self.decides, self.cores, self.chunk_elements, self.mtu, self.out,
                           _padded(self.release, 24, 24)) + b"".join(
                               struct.pack("<BB4sH", i, 0, bytes(map(int, at.split("."))), port)
                               for i, (at, port) in enumerate(self.boxes))

    @classmethod
    def unpack(cls, data):
        r = _Reader(data)
        n, box, decides, cores, chunk, mtu, out, release = r.get("HBBIIHH24s")
        _malformed_if(not 1 <= n <= MAX_BOXES or box >= n or decides >= n, "boxes")
        boxes = []
        for i in range(n):
            number, _, at, port = r.get("BB4sH")
            _malformed_if(number != i, "order of boxes")
            boxes.append([".".join(map(str, at)), port])
        return cls(box, cores, chunk, mtu, _unpad(release, 24), boxes, out, decides)


@dataclass
class Stats:
    """R16.8."""
    TYPE: ClassVar[int] = 0x19
    rounds: int = 0
    seconds: float = 0.0
    squares: float = 0.0
    boxes: list = field(default_factory=list)  # of [rounds, seconds, squares, exposed]

    def pack(self):
        return struct.pack("<H2xIdd", len(self.boxes), self.rounds, self.seconds, self.squares) + b"".join(
            struct.pack("<I4xddd", *box) for box in self.boxes)

    @classmethod
    def unpack(cls, data):
        r = _Reader(data)
        n, rounds, seconds, squares = r.get("H2xIdd")
        _malformed_if(not 1 <= n <= MAX_BOXES, "boxes")
        return cls(rounds, seconds, squares, [list(r.get("I4xddd")) for _ in range(n)])


@dataclass
class Homes:
    """R16.9."""
    TYPE: ClassVar[int] = 0x1B
    table: int = 0
    chunks: int = 0
    first: int = 0
    epoch: int = 0
    flags: int = 0
    out: int = 0
    homes: list = field(default_factory=list)  # of [box, endpoint, epoch, version]

    def pack(self):
        return struct.pack("<IIIHHHH", self.table, self.chunks, self.first, len(self.homes), self.epoch, self.flags,
                           self.out) + b"".join(struct.pack("<BBHI", *o) for o in self.homes)

    @classmethod
    def unpack(cls, data):
        r = _Reader(data)
        table, chunks, first, n, epoch, flags, out = r.get("IIIHHHH")
        _malformed_if(n > MAX_HOMES or first + n > chunks, "homes")
        homes = [list(r.get("BBHI")) for _ in range(n)]
        _malformed_if(any(o[0] >= MAX_BOXES for o in homes), "box of a home")
        return cls(table, chunks, first, epoch, flags, out, homes)


@dataclass
class HomesOk(Homes):
    TYPE: ClassVar[int] = 0x1C


@dataclass
class Error:
    TYPE: ClassVar[int] = 0x0F
    code: int = 0
    type: int = 0
    detail: int = 0
    text: str = ""

    def pack(self):
        text = self.text.encode("utf-8")
        return struct.pack("<HBxIH2x", self.code, self.type, self.detail, len(text)) + text

    @classmethod
    def unpack(cls, data):
        r = _Reader(data)
        *head, n = r.get("HBxIH2x")
        return cls(*head, r.text(n))

    @staticmethod
    def proven(data):
        """R9.2: (nonce, request id, what the proof is of, proof), or None without one."""
        if len(data) < 12:
            return None
        end = 12 + struct.unpack_from("<H", data, 8)[0] + 48
        if len(data) < end:
            return None
        nonce, request = struct.unpack_from("<QI", data, end - 48)
        return nonce, request, data[:end - PROOF_LEN] + bytes(PROOF_LEN), data[end - PROOF_LEN:end]


MESSAGES = {m.TYPE: m for m in (Hello, Retry, Join, Welcome, Declare, Declared, Map, Mapped,
                                NotReady, Set, Status, StatusOk, Work, WorkOk, Task, TaskOk, BoxesOk, Stats, Homes, HomesOk, Error)}


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
