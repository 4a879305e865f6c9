# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Slots of a real box, frame by frame (doc/protocol.md R5.2b, R6.2, R6.3, R6.6, R6.7): what is lost on the way, and
what a box must refuse. One process is both workers of a job with 13 slots: worker 0 owns 0 to 5, worker 1 owns 6 to 12.

Usage: slots_worker.py BOX JOB SECRET"""

import os
import sys
import time

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "spec")]

import pbox_math
import pbox_proto as proto
from cases import run_cases
from pbox_proto import Header, TYPE
from pbox_worker import BoxError, Worker

SLOTS, SECONDS = 13, 120
NODES = {0: [(0, 2), (4, 1)], 1: [(6, 1), (8, 3)]}
VALUES = {s: pbox_math.data(5, s, 1, 10) for s in range(SLOTS)}
BOX, JOB, SECRET = sys.argv[1:4]


class Pair:
    """Both workers, with one table of one fragment; round 1 is in progress."""

    def __init__(self, op="sum"):
        self.w = [Worker(BOX, JOB, SECRET, n, 2, deadline=SECONDS, slots=SLOTS) for n in (0, 1)]
        for w in self.w:
            w.join()
            w.declare(0, [(10, 0, "a")], op=proto.OPS[op])
        self.table = [w.map(0) for w in self.w][0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for w in self.w:
            w.leave()
            w.sock.close()

    def send(self, worker, kind, node=None, values=None, round_=1):
        chunk = self.table.chunks[0]
        h = Header(type=TYPE[kind], flags=proto.LAST if node else 0, chunk=chunk.chunk_id, round=round_,
                   map_epoch=self.table.epoch)
        payload = b""
        if node:
            h.base, h.format, h.weight, h.aux = proto.node_code(node), proto.FORMATS["fp32"], 1, proto.LR_MUL_ONE
            payload = pbox_math.pack(pbox_math.node_value(VALUES, node) if values is None else values, h.format)
        w = self.w[worker]
        w._send(h, payload, w.endpoints[chunk.endpoint])

    def answer(self, worker, *names):
        """The next of these frames; (header, payload)."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            for header, payload in self.w[worker]._receive(end - time.monotonic()):
                if header.type >= proto.FIRST_DATA_TYPE or header.name == "ERROR":
                    assert header.name in names, (header.name, names, header)
                    return header, payload
        raise AssertionError(f"no {names} within {SECONDS} s")

    def ask(self, worker, kind, node=None, *names, **more):
        self.send(worker, kind, node, **more)
        return self.answer(worker, *names)[0]

    def push(self, worker, node, **more):
        h = self.ask(worker, "PUSH", node, "PUSH_OK", **more)
        assert h.base == proto.node_code(node), (h.base, node)  # R6.3

    def wait(self, worker, have, base=None, aux=None, missing=None):
        """What a PULL, the probe, is answered (R6.6)."""
        h = self.ask(worker, "PULL", None, "WAIT")
        assert bool(h.flags & proto.HAVE) is have, h
        for got, want in ((h.base, base), (h.aux, aux), (h.weight, missing)):
            assert want is None or got == want, (got, want, h)

    def result(self, worker, want):
        header, payload = self.answer(worker, "RESULT")
        assert (header.round, header.aux) == (1, SLOTS), header
        assert payload == pbox_math.pack(want, proto.FORMATS["fp32"])


def whole():
    return pbox_math.reduce([VALUES[s] for s in range(SLOTS)], [1] * SLOTS, 0)


def test_in_any_order():
    with Pair() as p:
        p.send(1, "PUSHPULL", NODES[1][1])  # the last one first: nobody answers before the round is complete
        p.push(1, NODES[1][0])
        p.push(0, NODES[0][1])
        p.send(0, "PUSHPULL", NODES[0][0])
        p.result(0, whole())
        p.result(1, whole())


def test_what_wait_says():
    """The PUSH_OK of a node was lost, or the node itself: WAIT names the first slot that is missing."""
    with Pair() as p:
        p.wait(0, False, 0, 0, 0)
        p.push(0, NODES[0][0])
        p.wait(0, False, 4, 4, 0)  # goes on with its second node
        p.wait(1, False, 6, 4, 0)
        p.push(1, NODES[1][1])
        p.wait(1, False, 6, 9)  # the second one is there, the first one is not
        p.push(0, NODES[0][1])
        p.wait(0, True, aux=11, missing=1)
        p.wait(1, False, 6, 11, 1)
        p.push(0, NODES[0][0])  # a repetition: the PUSH_OK was lost
        p.wait(0, True, aux=11)
        p.send(1, "PUSHPULL", NODES[1][0])
        for n in (0, 1):  # each had asked by PULL
            p.result(n, whole())
        p.push(1, NODES[1][0])  # of the current version, again
        h = p.ask(1, "PUSHPULL", NODES[1][1], "RESULT")
        assert h.round == 1


def test_refused():
    with Pair() as p:
        for worker, node in ((0, (6, 1)), (0, (4, 2)), (1, (4, 1)), (0, (1, 1)), (0, (13, 0)), (0, (0, 13)), (1, (0, 4)),
                             (0, (4096, 0))):
            h = p.ask(worker, "PUSH", node, "ERROR", values=VALUES[0])
            assert h.aux == proto.ERROR["BAD_REQUEST"], (node, h)
        p.wait(0, False, 0, 0)  # none of it counts
    with Pair("weighted_mean") as p:
        h = p.ask(0, "PUSH", (4, 1), "ERROR")
        assert h.aux == proto.ERROR["BAD_REQUEST"], h
        p.push(0, (4, 0))


def test_leaves_of_a_predecessor():
    """A process that had the number before brought slots one by one: they are refused, and do not keep its successor from
    bringing its nodes (R5.2b)."""
    with Pair() as p:
        for node in ((0, 0), (1, 0), (0, 1), (2, 1), (4, 0), (5, 0)):
            h = p.ask(0, "PUSH", node, "ERROR")
            assert h.aux == proto.ERROR["BAD_REQUEST"], (node, h)
        p.push(0, NODES[0][0])
        p.push(0, NODES[0][1])
        p.push(1, NODES[1][0])
        p.send(1, "PUSHPULL", NODES[1][1])
        p.result(1, whole())


def test_joins():
    """Numbers of slots that a job cannot have, and two workers that differ."""
    def error(slots, worker, workers, needs=True):
        with Worker(BOX, JOB, SECRET, worker, workers, deadline=SECONDS, slots=slots) as w:
            try:
                w.join()
                w.leave()
            except BoxError as e:
                return proto.ERRORS[e.code]
        return None
    assert error(1, 0, 2) == "BAD_REQUEST"
    assert error(4097, 0, 2) == "BAD_REQUEST"
    assert error(4096, 0, 2) is None
    with Worker(BOX, JOB, SECRET, 0, 2, deadline=SECONDS, slots=SLOTS) as w:
        w.join()
        refused = error(SLOTS + 1, 1, 2), error(0, 1, 2)
        assert None not in refused, refused
        w.leave()


if __name__ == "__main__":
    names = {k: v for k, v in globals().items() if k.startswith("test_")}
    sys.exit(run_cases(names))
