#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Writes frames.json and frames.pcap. The files are frozen: they change only with the protocol's
version, and this script stays so that a reader sees where they came from."""

import dataclasses
import json
import math
import os
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir, "spec"))

import pbox_auth
import pbox_block
import pbox_math
import pbox_proto as proto
from pbox_proto import Header, TYPE

BOX = 0x0123456789ABCDEF, 7, 2, 0xCAFEBABE  # token, job, worker, incarnation
VALUES = [1.0, -2.5, 0.15625, 0.0, 65504.0, -0.0, 2.0 ** -14, 3.0]
FROM_BOX = {"RETRY", "WELCOME", "DECLARED", "MAPPED", "SET_OK", "STATUS_OK", "LEFT", "ERROR",
            "PONG", "NOT_READY", "PUSH_OK", "RESULT", "WAIT", "INIT_OK", "RESTORE_OK", "FETCHED", "NORM_OK",
            "WORK_OK", "TASK_OK", "BOXES_OK", "STATS_OK", "HOMES_OK", "MOVED"}


def header(kind, joined=True, **more):
    h = Header(type=TYPE[kind], ts=0x00BC614E)
    if joined:
        h.token, h.job, h.worker, h.incarnation = BOX
    for name, value in more.items():
        setattr(h, name, value)
    return h


def data(kind, **more):
    return header(kind, chunk=0x00010003, round=41, map_epoch=5, frag=6, **more)


class Set:
    def __init__(self):
        self.frames, self.datagrams = [], []

    def add(self, name, rule, h, payload=b"", message=None, drop=None, **bad):
        """One frame; message is what its payload says, drop what the receiver does with it.
        frame: canonical is false where an encoder would write other bytes for the same fields."""
        canonical = bad.pop("canonical", drop is None)
        from_box = bad.pop("from_box", proto.TYPES.get(h.type) in FROM_BOX)
        raw = bad.pop("raw", None) or proto.encode_frame(h, payload, **bad)
        entry = {"name": name, "rule": rule, "hex": raw.hex(), "drop": drop,
                 "from_box": from_box,
                 "control": h.type < proto.FIRST_DATA_TYPE, "canonical": canonical,
                 "type": proto.TYPES.get(h.type, "?"), "header": dataclasses.asdict(h),
                 "payload": as_json(message)}
        self.frames.append(entry)
        return raw

    def control(self, name, rule, message, joined=True, **more):
        kind = proto.TYPES[message.TYPE]
        answer = {"served": 17} if kind in FROM_BOX else {}
        h = header(kind, joined, chunk=len(self.frames) + 1, **answer, **more)
        return self.add(name, rule, h, message.pack(), message)

    def elements(self, name, rule, h, fmt, values=None):
        h.format = fmt
        raw = pbox_math.pack(pbox_math.vector(VALUES if values is None else values), fmt)
        exact = pbox_math.unpack(raw, fmt).tobytes()
        return self.add(name, rule, h, raw,
                        {"values": list(struct.unpack(f"<{len(exact) // 4}f", exact))})


    def blocks(self, name, h, fmt, n):
        """R13.5: units with scales of their own, one with a NaN."""
        values = [math.nan if i == 290 else ((i * 37) % 255 - 127) * 2.0 ** (i // 32 - 4) for i in range(n)]
        h.format, h.fmt_arg = fmt, proto.BLOCK_ARG[fmt]
        return self.add(name, "R13.5", h, pbox_block.encode(fmt, values))


def as_json(message):
    if message is None:
        return {}
    if dataclasses.is_dataclass(message):
        message = dataclasses.asdict(message)
    return {k: v.hex() if isinstance(v, bytes) else v for k, v in message.items()}


def control_frames(s):
    proof = bytes(range(0x40, 0x60))
    name63 = "j" * 61 + "é"
    s.control("hello", "R4.1", proto.Hello(1, 1), joined=False)
    s.control("hello of newer versions", "R4.1", proto.Hello(1, 3), joined=False)
    s.control("retry", "R4.2", proto.Retry(0x1020304050607080, BOX[3]), joined=False,
              incarnation=BOX[3])
    s.control("join", "R4.3", proto.Join(0x1020304050607080, 0x7766554433221100, 2, 4, 9000, 512, 0,
                                         2500, "resnet", "node7.example", proof,
                                         number=0x0006532100000003), joined=False)
    s.control("join of any worker with the longest name", "R4.3", proto.Join(
        1, 2, proto.ANY_WORKER, 4096, 1500, 64, 1, 0, name63, "", proof,
        run=bytes(range(0xA0, 0xB0))), joined=False)
    s.control("welcome", "R4.5", proto.Welcome(BOX[0], 0x7766554433221100, 7, 2, 4, BOX[3], 5000,
                                               9000, 256, proof, [["10.0.0.1", 7270],
                                                                  ["10.0.1.1", 7271]],
                                               number=0x0006532100000003))
    s.control("welcome of 64 endpoints", "R4.5", proto.Welcome(
        1, 2, 3, 4, 5, 6, 7, 1500, 9, proof, [[f"10.1.{i}.1", 7270 + i] for i in range(64)],
        number=1))
    s.control("declare", "R5.1", proto.Declare(0, 3, 0, 1, 1, 4, 2, 1, [
        proto.Tensor(1 << 33, 0, "embedding.weight"), proto.Tensor(10, 1, "größe"),
        proto.Tensor(0, 1, "")]))
    s.control("declare, a later page", "R5.1", proto.Declare(3, 1000, 999, 0, 3, 0, 3, 2, [
        proto.Tensor(1, 65535, "n" * 63)]))
    s.control("declare of an empty table", "R5.1", proto.Declare(1))
    s.control("declared", "R5.4", proto.Declared(3, 999, 1))
    s.control("map", "R5.5", proto.Map(3, 88))
    s.control("not ready", "R5.6", proto.NotReady(4, 3, 2, 3, 0xFFFFFFFF,
                                                  "worker 3 has not joined"))
    s.control("mapped", "R5.7", proto.Mapped(3, 91, 88, 352, 0x00030000, [
        proto.Chunk(0x00030058, 1, 8192, 12, [[1 << 33, 0, 8192]]),
        proto.Chunk(0x00030059, 0, 60, 0, [[0, 1, 10], [0, 2, 20], [5, 7, 30]])]))
    s.control("mapped, the most segments", "R5.7", proto.Mapped(0, 1, 0, 704, 0, [
        proto.Chunk(0, 0, 2080, 1, [[0, i, i + 1] for i in range(64)])]))
    s.control("mapped of a table that began with a snapshot", "R16.16", proto.Mapped(
        0, 1, 0, 704, 0, [proto.Chunk(0, 0, 7, 64, [[0, 0, 7]])], 0xBEEF))
    s.control("mapped of an empty table", "R5.7", proto.Mapped(1, 0, 0, 352, 0x00010000))
    s.control("set", "R7.1", proto.Set(0, proto.ALL_GROUPS, 1, [[1, 0.1], [5, 0.9], [7, 1e-8]]))
    s.control("set of 16 parameters", "R7.1", proto.Set(0, 1, 0x80000000, [
        [i % 8 + 1, -1.5 * i] for i in range(16)]))
    s.add("set_ok", "R7.3", header("SET_OK", chunk=90))
    s.control("status", "R8.3", proto.Status(1))
    s.control("status_ok", "R8.3", proto.StatusOk(4, 3, 1, 2, 1234, "round 1234: worker 3 silent", [
        proto.Member(1, 1, 12, 2, "node1"), proto.Member(2, 3, 60000, 2, "a-host-of-20-bytes--"),
        proto.Member(3, 0, 0xFFFFFFFF, 0, "")]))
    s.control("status_ok of who has left", "R8.3", proto.StatusOk(2, 1, 1, 1, 7, "", [
        proto.Member(1, 2, 1500, 1, "node1", proto.LEFT_REASON["kicked"])]))
    s.add("leave", "R8.4", header("LEAVE", chunk=91))
    s.add("left", "R8.4", header("LEFT", chunk=91))
    s.add("left because the box stops", "R8.4", header("LEFT", aux=1))
    s.add("ping", "R8.1", header("PING", chunk=92), b"any payload")
    s.add("pong", "R8.1", header("PONG", chunk=92), b"any payload")
    for code, name in proto.ERRORS.items():
        if name != "UNSUPPORTED":
            s.control(f"error {name}", "R9.1", proto.Error(code, TYPE["JOIN"], 100 + code,
                                                           f"what is wrong: {name}"))
    s.add("error session, header only", "R4.8", header("ERROR", chunk=93, aux=8))


def data_frames(s):
    ask = {"flags": proto.LAST, "aux": proto.LR_MUL_ONE, "weight": 32}
    done = {"served": 9, "held": 1500}
    for fmt, name in proto.FORMAT_NAMES.items():
        s.elements(f"push {name}", "R6.2", data("PUSH", **ask), fmt)
        s.elements(f"pushpull {name}", "R6.2", data("PUSHPULL", prio=255, **ask), fmt)
        s.elements(f"result {name}", "R6.5",
                   data("RESULT", base=41, aux=4, weight=128, **done), fmt)
    for name, fmt in proto.BLOCK_FORMATS.items():
        for n in (1, 33, 128, 300):
            s.blocks(f"pushpull {name}, {n} elements", data("PUSHPULL", **ask), fmt, n)
        s.blocks(f"result {name}", data("RESULT", base=41, aux=4, weight=128, **done), fmt, 352)
    full = [i * 0.25 - 44 for i in range(352)]
    s.elements("pushpull of a full fragment", "R5.8", data("PUSHPULL", **ask), 1, full)
    zero = dict(ask, flags=proto.LAST | proto.ZERO)
    s.add("pushpull of zeros", "R6.2", data("PUSHPULL", format=1, **zero))
    s.elements("pushpull again", "R6.7", data("PUSHPULL", **dict(ask, flags=3)), 1)
    s.elements("pushpull that has seen congestion", "R6.10",
               data("PUSHPULL", **dict(ask, flags=proto.LAST | proto.ECE)), 2)
    s.add("push_ok", "R6.3", data("PUSH_OK", **done))
    s.add("pull", "R6.4", data("PULL"))
    s.add("pull of the latest", "R6.4", data("PULL", flags=proto.LATEST))
    s.add("pull of a snapshot (reserved)", "R2", data("PULL", flags=proto.CUT))
    s.add("wait that has it", "R6.6", data("WAIT", flags=proto.HAVE, aux=3, weight=3, served=2))
    s.add("wait that has not", "R6.6", data("WAIT", aux=0, weight=0xFFFFFFFF))
    s.elements("init", "R6.8", header("INIT", chunk=3, map_epoch=5, frag=6, base=352), 1)
    s.add("init_ok", "R6.8", header("INIT_OK", chunk=3, map_epoch=5, frag=6, base=352))
    s.add("error to a data frame", "R9.1",
          header("ERROR", chunk=0x00010003, frag=6, round=41, aux=14))
    # each field has bytes of its own, so that no two can be swapped unnoticed, and the first bit 0,
    # since JSON parsers hold 63 bits
    every = {}
    for i, (name, code) in enumerate(zip(proto.HEADER_FIELDS, proto.HEADER.format[3:])):
        mask = (1 << 8 * struct.calcsize(code)) - 1
        every[name] = 0x7172737475767778 - i * 0x0102030405060708 & mask
    every.update(type=TYPE["RESULT"], flags=0xEF, format=1, crc=0, length=0)
    s.add("every field", "R2", Header(**every))


def dropped_frames(s):
    def h(**more):
        return header("PING", chunk=200, **more)

    s.add("another magic", "R2.1", h(), b"x", drop="frame_magic", magic=0xB4)
    s.add("another version", "R2.1", header("HELLO", False, chunk=200), proto.Hello(2, 2).pack(),
          drop="frame_version", version=2)
    good = proto.encode_frame(h(), b"truncated")
    s.add("a payload that ends too early", "R2.1", h(length=9), drop="frame_truncated",
          raw=good[:-1])
    s.add("a header that ends too early", "R2.1", h(length=9), drop="frame_truncated",
          raw=good[:61])
    s.add("a tag that ends too early", "R2.1", h(flags=proto.AUTH), b"x", drop="frame_truncated",
          tag=bytes(15))
    s.add("a wrong CRC", "R2.4", h(), b"x", drop="frame_crc", crc=0xDEADBEEF)
    bit = bytearray(proto.encode_frame(h(), b"one bit"))
    bit[-1] ^= 0x80
    s.add("a bit of the payload", "R2.4", h(length=7), drop="frame_crc", raw=bytes(bit))
    s.add("a wrong CRC before unknown flags and type", "R2.1", h(flags=0x8000, type=0x99), b"x",
          drop="frame_crc", crc=0)
    s.add("unknown flags", "R2.1", h(flags=0x0100), b"x", drop="frame_flags")
    s.add("unknown flags before the type", "R2.1", h(flags=0x8000, type=0x99), drop="frame_flags")
    s.add("an unknown type", "R2.1", h(type=0x1F), drop="frame_type")
    s.add("an unknown type of a data frame", "R2.1", h(type=0x30), drop="frame_type")
    s.add("type 0", "R2.1", h(type=0), drop="frame_type")
    s.add("a type before its tag", "R2.1", h(type=0x40, flags=proto.AUTH), drop="frame_type",
          tag=bytes(16))
    s.add("a tag", "R2.1", header("HELLO", False, chunk=200, flags=proto.AUTH),
          proto.Hello().pack(), drop="frame_auth", tag=bytes(range(16)))


def malformed_frames(s):
    def bad(name, message, payload):
        s.add(name, "R3.3", header(proto.TYPES[message], chunk=201), payload,
              drop="control_malformed")

    samples = {f["header"]["type"]: f for f in s.frames
               if f["drop"] is None and f["payload"] and f["control"]}
    for type_, f in sorted(samples.items()):
        payload = bytes.fromhex(f["hex"])[proto.HEADER_LEN:]
        bad(f"{f['type']} a byte short", type_, payload[:-1])
        message = proto.MESSAGES[type_].unpack(payload)
        s.add(f"{f['type']} with a tail", "R3.3", header(f["type"], chunk=202), payload + b"tail",
              message, canonical=False)
    bad("join, name without NUL", 0x03, bytes(32) + b"n" * 64 + bytes(416))
    bad("welcome of 65 endpoints", 0x04, bytes(22) + b"\x41\0" + bytes(56 + 65 * 8))
    bad("declare beyond its tensors", 0x05, proto.Declare(0, 1, 1, entries=[proto.Tensor()]).pack())
    bad("declare, first + count wraps", 0x05,
        proto.Declare(0, 1, 0xFFFFFFFF, entries=[proto.Tensor()]).pack())
    chunk = proto.Chunk(0, 0, 30, 1, [[0, 0, 10], [0, 1, 19]])
    bad("mapped, segments that do not add up", 0x08, proto.Mapped(0, 1, 0, 1, 0, [chunk]).pack())
    chunk = proto.Chunk(0, 0, 0, 1, [])
    bad("mapped, no segments", 0x08, proto.Mapped(0, 1, 0, 1, 0, [chunk]).pack())
    chunk = proto.Chunk(0, 0, 65, 1, [[0, i, 1] for i in range(65)])
    bad("mapped, 65 segments", 0x08, proto.Mapped(0, 1, 0, 1, 0, [chunk]).pack())
    bad("mapped beyond its chunks", 0x08, proto.Mapped(0, 0, 0, 1, 0, [
        proto.Chunk(0, 0, 1, 1, [[0, 0, 1]])]).pack())
    bad("set of 17 parameters", 0x09, proto.Set(params=[[1, 0.5]] * 17).pack())
    bad("work with a range that ends before it begins", 0x13, proto.Work(ranges=[[4, 4]]).pack())
    bad("work with ranges that overlap", 0x13, proto.Work(ranges=[[0, 4], [3, 8]]).pack())
    bad("work_ok with 25 ranges", 0x14, proto.WorkOk(ranges=[[i, i + 1] for i in range(25)]).pack())
    bad("task that gives up less than nothing", 0x15, proto.Task(first=5, end=4).pack())
    bad("task with a range that is cut off", 0x15, proto.Task(ranges=[[0, 4]]).pack()[:-1])
    bad("task_ok with 25 ranges", 0x16, proto.TaskOk(ranges=[[i, i + 1] for i in range(25)]).pack())
    two = [["10.0.0.1", 7269], ["10.0.0.2", 7269]]
    bad("boxes_ok of a box beyond them", 0x18, proto.BoxesOk(2, 1, 8192, 1500, "0.1.0", two).pack())
    bad("boxes_ok, one beyond them decides", 0x18, proto.BoxesOk(0, 1, 8192, 1500, "0.1.0", two, decides=2).pack())
    bad("boxes_ok of no box", 0x18, proto.BoxesOk(0, 1, 8192, 1500, "0.1.0").pack())
    bad("boxes_ok out of order", 0x18, proto.BoxesOk(0, 1, 8192, 1500, "0.1.0", two).pack()[:-8] + bytes(8))
    bad("stats of no box", 0x19, proto.Stats().pack())
    bad("stats of 17 boxes", 0x19, proto.Stats(boxes=[[1, 0.5, 0.25, 0.0]] * 17).pack())
    bad("status_ok beyond its workers", 0x0C, proto.StatusOk(1, 1, 1, 0, 0, "",
                                                            [proto.Member()]).pack())


def restart_frames(s):
    """Section 10. Behind the others, whose request ids are their places in the list."""
    s.control("declare after a restart", "R10.2", proto.Declare(
        0, 2, 0, 1, 1, 4, 2, 1, [proto.Tensor(1 << 33, 0, "embedding.weight")],
        proto.DECLARE_RESTORE))
    s.control("declare of who goes on", "R12.6", proto.Declare(
        0, 1, 0, 0, 1, 0, 1, 1, [proto.Tensor(10, 0, "bias")], proto.DECLARE_CONTINUE))
    s.control("declare with unknown flags", "R3.3", proto.Declare(0, 0, 0, flags=0x80402010))
    s.add("ping of the box", "R8.1", header("PING", chunk=0), from_box=True)
    hold = {"flags": proto.HAVE, "aux": 4, "weight": 128}
    s.add("restore", "R10.5", data("RESTORE", format=1, **hold))
    s.add("restore of what it cannot give", "R10.5", data("RESTORE", format=3))
    for fmt, name in proto.FORMAT_NAMES.items():
        s.elements(f"restore {name}", "R10.5", data("RESTORE", **hold), fmt)
    for aux, name in enumerate(("done", "noted", "give", "lost")):
        s.add(f"restore_ok {name}", "R10.5",
              data("RESTORE_OK", base=42, aux=aux, weight=3 if name == "noted" else 0, served=2))


def state_frames(s):
    """R6.13 and R6.14: parameters and state, for checkpoints."""
    s.add("fetch", "R6.13", data("FETCH", base=352, aux=1))
    for array in range(3):
        s.elements(f"fetched of array {array}", "R6.13",
                   data("FETCHED", base=352, aux=array, served=3), 1)
    s.elements("init that gives state", "R6.14",
               data("INIT", flags=proto.LATEST, base=352, aux=2), 1)
    s.control("set of steps", "R6.14", proto.Set(0, 1, 1, [[9, 1000.0]]))
    s.add("norm", "R6.15", data("NORM"))
    s.add("norm that asks who is missing", "R6.15", data("NORM", flags=proto.RETX))
    s.add("norm_ok before the sums", "R6.15", data("NORM_OK", weight=2))
    s.add("norm_ok", "R6.15", data("NORM_OK"), struct.pack("<QQQIId", 0x0123456789ABCDEF, 5, 0, 3, 1, 0.0))
    s.add("norm_ok after a restart", "R6.15", data("NORM_OK"), struct.pack("<QQQIId", 0, 0, 0, 0, 0, 0.5))
    s.control("set of a coefficient", "R6.15", proto.Set(0, 0xFFFF, 7, [[12, 0.5]]))
    s.control("set of a step that is left out", "R6.15", proto.Set(0, 0, 8, [[12, -1.0], [9, -1.0]]))


def echo_frames(s):
    """R4.9: the nonce that proves an address is in `round` (low half) and `base`."""
    nonce = {"round": 0x89ABCDEF, "base": 0x01234567}
    s.add("ping that asks for an echo", "R4.9", header("PING", chunk=0, **nonce), from_box=True)
    s.add("ping that echoes", "R4.9", header("PING", chunk=0, **nonce))
    s.add("pong that asks for an echo", "R4.9", header("PONG", chunk=92, **nonce), b"any payload")


def slot_frames(s):
    """A job with slots of its own."""
    slots = 1 << proto.CAPABILITIES["slots"]
    ask = {"flags": proto.LAST, "aux": proto.LR_MUL_ONE, "weight": 32}
    s.control("join of a job with 32 slots", "R5.2b", proto.Join(
        1, 2, 0, 3, 1500, 64, 0, 0, "resnet", "node7", can=slots, needs=slots, slots=32), joined=False)
    s.elements("push of slots 8 to 11", "R5.2b", data("PUSH", **dict(ask, base=8 + 65536 * 2)), 1)
    s.elements("pushpull of slot 12", "R5.2b", data("PUSHPULL", **dict(ask, base=12)), 1)
    s.add("push_ok of slots 8 to 11", "R6.3", data("PUSH_OK", base=8 + 65536 * 2))
    s.add("wait without slot 10", "R6.6", data("WAIT", base=10, aux=17, weight=1))


def circle_frames(s):
    s.control("status of a rack", "R18.8", proto.Status(0, proto.Status.RACK, 0, 0, 0, "worker 3 (host gpu3)"))
    s.control("status of who waits", "R8.3a", proto.Status(1, proto.Status.WAITS, 0x00020001, 7, 3))
    s.control("status_ok of a circle", "R8.3a", proto.StatusOk(
        2, 2, 1, 3, 9, "worker 1 waits for worker 0, with round 2 of tensor 'b' of table 1",
        [proto.Member(1, 1, 10, 3, "gpu1")], proto.StatusOk.CIRCLE))


def clock_frames(s):
    """A table in clocks: `round` of pushes is the clock, that of a RESULT the version."""
    ask = {"flags": proto.LAST, "aux": 0x3F00, "weight": 32}  # a factor of 0.5
    s.control("declare of a table in clocks", "R14.1", proto.Declare(
        1, 1, 0, 1, 0, 6, 1, 2, [proto.Tensor(10, 0, "bias")], 0, proto.DISCIPLINES["clock"]))
    s.elements("push of clock 41", "R14.5", data("PUSH", **dict(ask, base=93)), 1)
    s.elements("pushpull of clock 41", "R14.5", data("PUSHPULL", **dict(ask, base=93)), 1)
    s.add("push_ok that became version 95", "R14.5", data("PUSH_OK", base=95, weight=17))
    s.add("push_ok of what was there", "R14.5", data("PUSH_OK", flags=proto.HAVE, base=99, weight=18))
    s.add("pull of a table in clocks", "R14.6", dataclasses.replace(data("PULL", flags=proto.LATEST), round=0))
    s.add("pull with a bound", "R14.6", dataclasses.replace(data("PULL"), round=0, base=38))
    vector = bytes((0x12, 0x29, 0xFF))
    elements = pbox_math.pack(pbox_math.vector(VALUES), 1)
    s.add("result of version 99", "R14.10", dataclasses.replace(
        data("RESULT", flags=proto.LAST, base=41, aux=3, weight=18, served=3, format=1), round=99), elements + vector)
    held = dict(base=41, aux=0x5711, weight=18, flags=proto.HAVE, format=1)
    s.add("restore of version 99", "R14.11", dataclasses.replace(data("RESTORE", **held), round=99))
    s.add("restore with the payload of version 99", "R14.11", dataclasses.replace(
        data("RESTORE", **held), round=99), elements + vector)
    s.add("restore_ok with clock 42", "R14.11", dataclasses.replace(data("RESTORE_OK", base=99, weight=42), round=99))
    s.add("wait for worker 2, which lacks 3 clocks", "R14.5", dataclasses.replace(data("WAIT", base=99, aux=3, weight=2), round=0))
    s.add("wait beyond the rate", "R14.3", data("WAIT", base=99, weight=0xFFFFFFFF))
    s.control("error LOST of a table in clocks", "R14.9", proto.Error(
        proto.ERROR["LOST"], TYPE["DECLARE"], 1, "the box was restarted, and the job has 300 workers"))


def work_frames(s):
    """Section 15: work by plan."""
    needs = 1 << proto.CAPABILITIES["slots"] | 1 << proto.CAPABILITIES["work"]
    s.control("join of a job with a plan", "R15.1", proto.Join(
        1, 2, 0, 3, 1500, 64, 0, 2, "resnet", "node7", can=needs, needs=needs, slots=32), joined=False)
    s.control("join of an elastic job", "R15.1a", proto.Join(
        1, 2, proto.ANY_WORKER, 8, 1500, 64, 0, 2, "resnet", "node7", can=needs, needs=needs, slots=32, least=2, run=bytes(range(16))), joined=False)
    s.control("work without a report", "R15.4", proto.Work(0, 1, 0))
    s.control("work of a newcomer", "R15.7a", proto.Work(0, 43, 7, trained=proto.UNKNOWN, group=1023))
    s.control("work with a report", "R15.4", proto.Work(
        0, 42, 7, 11, 3, 0xFFFFFFFF, 41, 0.125, 0.5, 1e-3, 2.5e-3, 4711, 60000, 512, [[0, 8], [8, 10], [31, 32]]))
    s.control("work_ok", "R15.5", proto.WorkOk(0, 7, 3, 0, 0, 0, 4, 0, [[0, 8], [8, 10]]))
    s.control("work_ok with a plan that waits", "R15.5", proto.WorkOk(
        0, 0xFFFFFFFF, 3, 4, 44, 0, 3, 1, [[0, 16]], [[0, 4], [28, 4096]]))
    s.control("work_ok to a newcomer", "R15.7a", proto.WorkOk(
        0, 9, 3, 4, 46, 0, 4, 0, [], [[0, 3]], 43, 1042, [0.1, 0.9, 0.0, 1e-4, 0.9, 0.999, 1e-8, 0.0, 12.0, 0.0, 1.0, 0.0, 0.0]))
    s.control("work_ok with a decision", "R15.11", proto.WorkOk(0, 9, 3, 0, 0, 0, 4, 0, [[0, 8]], decided=44, decision=0.28125))
    s.control("work_ok while owners change", "R15.5", proto.WorkOk(0, 8, 3, 0, 0, 2, 4, 0))
    s.control("task: all are computed", "R15.10a", proto.Task(0, 42, ranges=[[0, 8], [12, 13]]))
    s.control("task: what is left, and what is given up", "R15.10a", proto.Task(0, 42, 0x10000007, 125000, 6, 8, [[4, 6], [30, 4096]]))
    s.control("task_ok", "R15.10b", proto.TaskOk(0, 42, 0, [[0, 8], [14, 16]]))
    s.control("task_ok while others are asked", "R15.10b", proto.TaskOk(0, 42, 1))
    s.control("task_ok without slots", "R15.10b", proto.TaskOk(0, 0xFFFFFFFF))


def boxes_frames(s):
    """Section 16: a job at several boxes."""
    boxes = 1 << proto.CAPABILITIES["boxes"]
    s.control("join at the second box", "R16.3", proto.Join(
        1, 2, 0, 3, 1500, 64, 0, 0, "resnet", "node7", can=boxes, needs=boxes, number=8), joined=False)
    s.control("error ELSEWHERE with the first box", "R16.3", proto.Error(
        proto.ERROR["ELSEWHERE"], TYPE["JOIN"], 0x0100000A, "its first box is 10.0.0.1"), joined=False)
    s.add("boxes", "R16.4", header("BOXES", chunk=96))
    s.control("boxes_ok", "R16.4", proto.BoxesOk(1, 4, 8192, 9000, "0.1.0", [
        ["10.0.0.1", 7269], ["10.0.0.2", 7269], ["192.168.7.9", 7269]]))
    s.control("stats", "R16.8", proto.Stats(20, 6.5, 2.125, [[20, 5.0, 1.25, 0.5], [0, 0.0, 0.0, 0.0], [19, 4.0, 1.0, 1e-3]]))
    s.add("stats_ok", "R16.8", header("STATS_OK", chunk=97))
    s.control("mapped over two boxes", "R16.5", proto.Mapped(0, 2, 0, 512, 0, [
        proto.Chunk(0, 3, 512, 9, [[0, 0, 512]]), proto.Chunk(1, 0x0100, 512, 0, [[512, 0, 512]])]))


def later_frames(s):
    """Section 13: what a later release sends, and this one refuses by its name."""
    every = sum(1 << bit for bit in proto.CAPABILITIES.values())
    s.control("join with capabilities", "R4.10", proto.Join(
        1, 2, 3, 4, 1500, 64, 0, 0, "resnet", "node7", can=every, needs=0x80000042), joined=False)
    s.control("welcome with capabilities", "R4.10", proto.Welcome(
        1, 2, 3, 0, 2, 6, 5000, 1500, 9, bytes(32), [["10.0.0.1", 7270]], every, 1))
    s.control("declare of a clock table", "R13.3", proto.Declare(
        0, 1, 0, 1, 0, 6, 16, 1, [proto.Tensor(10, 0, "bias")], proto.DECLARE_MIXED,
        proto.DISCIPLINES["clock"]))
    s.control("error UNSUPPORTED", "R9.1", proto.Error(proto.ERROR["UNSUPPORTED"], TYPE["DECLARE"], 0,
                                                       "this box does not know discipline clock"))
    s.add("moved", "R16.10", header("MOVED", chunk=0x00010003, round=41))


def homes_frames(s):
    """Section 16: chunks that move."""
    s.control("homes, the question", "R16.9", proto.Homes(0, 0, 0, 0))
    s.control("homes said", "R16.9", proto.Homes(0, 3, 0, 7, 3, 0, [[0, 0, 1, 0], [2, 0, 7, 0], [1, 0, 6, 0]]))
    s.control("homes_ok of box 2", "R16.9", proto.HomesOk(0, 3, 0, 7, 0, 2, [[0, 0, 1, 0], [2, 4, 7, 41], [1, 0, 6, 0]]))
    s.add("moved with an epoch", "R16.10", header("MOVED", chunk=3, round=41, map_epoch=7, frag=6))
    for name, message in (
            ("homes beyond the chunks", proto.Homes(0, 1, 1, 2, 1, 0, [[0, 0, 1, 0]]).pack()),
            ("homes of a 17th box", proto.Homes(0, 1, 0, 2, 1, 0, [[16, 0, 1, 0]]).pack()),
            ("homes that end too early", proto.Homes(0, 1, 0, 2, 0, 0, [[1, 0, 2, 0]]).pack()[:-1])):
        s.add(name, "R3.3", header("HOMES", chunk=201), message, drop="control_malformed")
    s.control("homes said by a map without box 1", "R16.12", proto.Homes(0, 2, 0, 8, 1, 2, [[0, 0, 1, 0], [2, 0, 8, 0]]))
    s.control("boxes_ok, the third one is out", "R16.12", proto.BoxesOk(0, 4, 8192, 9000, "0.1.0", [
        ["10.0.0.1", 7269], ["10.0.0.2", 7269], ["192.168.7.9", 7269]], 4))
    s.control("homes said by a map by which box 2 decides", "R16.14", proto.Homes(
        0, 2, 0, 257, 1 | 2 << 12, 1, [[1, 0, 1, 0], [2, 0, 257, 0]]))
    s.control("boxes_ok, the second one decides", "R16.14", proto.BoxesOk(2, 4, 8192, 9000, "0.1.0", [
        ["10.0.0.1", 7269], ["10.0.0.2", 7269], ["192.168.7.9", 7269]], 1, 1))


def auth_frames(s):
    """Section 11. How to make their tags is told beside them."""
    secret = b"a secret of 26 characters."
    w = proto.Welcome(BOX[0], 0x7766554433221100, BOX[1], BOX[2], 4, BOX[3], 5000, 9000, 256,
                      bytes(range(0x40, 0x60)), [["10.0.0.1", 7270]], proto.WELCOME_AUTH, 8)
    job = pbox_auth.job_key(secret, BOX[3], BOX[1])
    worker, box = pbox_auth.session_keys(secret, w)
    s.control("join with auth", "R11.1", proto.Join(1, 2, 3, 4, 1500, 64, 0, 0, "resnet", "node7",
                                                    bytes(32), 1), joined=False)
    first = len(s.frames)

    def add(name, h, payload=b"", message=None):
        key = box if h.name in FROM_BOX else worker
        s.add(name, "R11.4", h, payload, message, raw=pbox_auth.seal(h, payload, key, job),
              canonical=False)

    add("welcome with a tag", header("WELCOME", chunk=94), w.pack(), w)
    add("pull with a tag", data("PULL"))
    add("pushpull with a tag", data("PUSHPULL", flags=proto.LAST, format=1), bytes(range(256)) * 4)
    add("result with a tag", data("RESULT", format=1, served=7), bytes(range(200)) * 5 + b"end.")
    add("ping with a tag", header("PING", chunk=95), b"odd")
    return {"secret": secret.decode(), "job_key": job.hex(), "worker_key": worker.hex(),
            "box_key": box.hex(), "welcome": as_json(w),
            "frames": [f["name"] for f in s.frames[first:]]}


def datagrams(s):
    frame = {f["name"]: bytes.fromhex(f["hex"]) for f in s.frames}

    def add(name, rule, raw, drops):
        s.datagrams.append({"name": name, "rule": rule, "hex": raw.hex(), "drops": drops})

    train = frame["pushpull fp32"] + frame["pull"] + frame["push bf16"]
    add("a train", "R1.2", train, [None] * 3)
    add("a train with a byte behind it", "R1.2", train + b"\xB5", [None] * 3 + ["frame_trailing"])
    add("a train with 61 bytes behind it", "R1.2", train + frame["pull"][:61],
        [None] * 3 + ["frame_trailing"])
    add("a train that is cut", "R1.2", train[:-1], [None] * 2 + ["frame_truncated"])
    add("a train with a damaged frame", "R2.1", frame["pull"] + frame["a wrong CRC"] +
        frame["unknown flags"] + frame["an unknown type"] + frame["a tag"] + frame["pull"],
        [None, "frame_crc", "frame_flags", "frame_type", "frame_auth", None])
    add("a train with a foreign frame", "R2.1", frame["pull"] + frame["another magic"] +
        frame["pull"], [None, "frame_magic"])
    add("a train with another version", "R2.1", frame["pull"] + frame["another version"] +
        frame["pull"], [None, "frame_version"])


def carry_frames(s):
    """R16.13: what goes with a chunk that moves."""
    def moved(kind, **more):
        return dataclasses.replace(data(kind), **{"map_epoch": 7, **more})

    part = {"base": 352, "aux": 2}
    s.add("restore of a fragment that box 2 has", "R16.13", moved("RESTORE", format=1, flags=proto.HAVE, base=3))
    s.add("restore_ok fetch", "R16.13", moved("RESTORE_OK", base=42, aux=proto.RESTORE_FETCH, weight=3))
    s.add("fetch of a chunk that has moved", "R16.13", moved("FETCH", round=0, flags=proto.LATEST, **part))
    s.elements("fetched of a chunk that has moved", "R16.13", moved("FETCHED", flags=proto.LATEST, weight=128, **part), 1)
    s.add("fetched of a fragment that the box has not", "R16.13", moved("FETCHED", round=0, flags=proto.LATEST, format=1))
    s.elements("init that brings a part", "R16.13", moved("INIT", flags=proto.HAVE, weight=128, **part), 1)
    s.add("init_ok of a part", "R16.13", moved("INIT_OK", flags=proto.HAVE, **part))


def build():
    s = Set()
    control_frames(s)
    data_frames(s)
    dropped_frames(s)
    malformed_frames(s)
    restart_frames(s)
    auth = auth_frames(s)
    datagrams(s)
    state_frames(s)
    echo_frames(s)
    work_frames(s)
    boxes_frames(s)
    later_frames(s)
    slot_frames(s)
    circle_frames(s)
    clock_frames(s)
    homes_frames(s)
    carry_frames(s)
    return {"protocol": proto.VERSION, "frames": s.frames, "datagrams": s.datagrams, "auth": auth}


# ---- pcap -----------------------------------------------------------------------------------

def checksum(data_):
    total = sum(struct.unpack(f">{len(data_) // 2}H", data_))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def packet(raw, ident, from_box, control):
    """Ethernet, IPv4 with Don't Fragment, UDP with its checksum."""
    ends = [(bytes([192, 0, 2, 1]), 7269 if control else 7270, b"\x02\0\0\0\0\x01"),
            (bytes([192, 0, 2, 12]), 40002, b"\x02\0\0\0\0\x02")]
    src, dst = ends if from_box else ends[::-1]
    udp = struct.pack(">HHHH", src[1], dst[1], 8 + len(raw), 0)
    pseudo = src[0] + dst[0] + struct.pack(">HH", 17, 8 + len(raw))
    summed = checksum(pseudo + udp + raw + b"\0" * (len(raw) & 1)) or 0xFFFF
    udp = udp[:6] + struct.pack(">H", summed)
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 28 + len(raw), ident, 0x4000, 64, 17, 0)
    ip += src[0] + dst[0]
    ip = ip[:10] + struct.pack(">H", checksum(ip)) + ip[12:]
    return dst[2] + src[2] + b"\x08\0" + ip + udp + raw


def pcap(golden):
    out = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    entries = [(f["hex"], f["from_box"], f["control"]) for f in golden["frames"]]
    entries += [(d["hex"], False, False) for d in golden["datagrams"]]
    for i, (raw, from_box, control) in enumerate(entries):
        p = packet(bytes.fromhex(raw), i + 1, from_box, control)
        out += struct.pack("<IIII", 1767225600 + i // 1000, i % 1000 * 1000, len(p), len(p)) + p
    return out


def text(golden):
    return json.dumps(golden, indent=1, ensure_ascii=False) + "\n"


def main():
    golden = build()
    with open(os.path.join(HERE, "frames.json"), "w", encoding="utf-8") as f:
        f.write(text(golden))
    with open(os.path.join(HERE, "frames.pcap"), "wb") as f:
        f.write(pcap(golden))


if __name__ == "__main__":
    main()
