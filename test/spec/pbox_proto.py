# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The PBox protocol, version 1: control payloads. With all of pbox_frame.py.

Written from doc/protocol.md alone, as a second opinion on the C codec. Standard library only.
Rules are cited as there: R2.4 is rule 4 of section 2.
"""

import struct
from dataclasses import dataclass, field
from typing import ClassVar

from pbox_frame import *  # noqa: F403


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
