#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""For test/func/restart: what doc/protocol.md promises to who implements a worker from it, asked of a box.

usage: page_worker.py BOX SECRET     prints a line a case, and "N passed, M failed" """

import os
import select
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "spec"))
import pbox_math
import pbox_proto as proto
from cases import run_cases
from pbox_proto import TYPE, Header
from pbox_worker import BoxError, Worker

BOX, SECRET = sys.argv[1], sys.argv[2]
MAX_ROUND = 1 << 32


CASE = [""]  # each has a job of its own


def worker(number=0, workers=1, job=None, secret=SECRET, **options):
    return Worker(BOX, CASE[0] if job is None else job, secret, number, workers, deadline=60, **options)


def refused(call, *args, **options):
    """Name of the ERROR that it brings, and its detail; None: it was taken."""
    try:
        call(*args, **options)
    except BoxError as e:
        return proto.ERRORS[e.code], e.detail
    return None


def join_refused(**options):
    with worker(**options) as w:
        answer = refused(w.join)
        if answer is None:
            w.leave()
        return answer


def raw(w, data, seconds):
    """Send a datagram to the control endpoint; what comes back within the time."""
    w.sock.sendto(data, w.control)
    end, got = time.monotonic() + seconds, []
    while time.monotonic() < end and not got:
        if select.select([w.sock], [], [], 0.05)[0]:
            got.append(w.sock.recv(65536))
    return got


def table(w, number=0, elements=3000, optimiser=0):
    w.declare(number, [(elements, 0, "t")], mode=int(optimiser > 0), optimiser=optimiser)
    return w.map(number)


def test_joins():
    """R4.4: codes of JOINs that are out of range (gaps 1 and 8)."""
    assert join_refused(workers=0, number=proto.ANY_WORKER)[0] == "BAD_REQUEST"
    assert join_refused(workers=4097)[0] == "BAD_REQUEST"
    assert join_refused(number=2, workers=2)[0] == "BAD_REQUEST"
    assert join_refused(mtu=153) == ("BAD_REQUEST", 154)
    assert join_refused(job="")[0] == "NO_JOB"
    assert join_refused(window=0) is None
    assert join_refused(lease_ms=1) is None
    assert join_refused(secret="another one")[0] == "SECRET"
    assert join_refused(job="open", secret="any") is None


def test_other_versions():
    """R2.2 (S5): of another version HELLO alone is answered, and only in full length."""
    with worker() as w:
        for name in ("JOIN", "RESULT", "PONG", "ERROR", "PING"):
            frame = bytearray(proto.encode_frame(Header(type=TYPE[name], chunk=7), bytes(400), version=2))
            assert raw(w, bytes(frame), 0.5) == [], name
        assert raw(w, proto.encode_frame(Header(type=TYPE["HELLO"], chunk=7), bytes(60), version=2), 0.5) == []
        got = raw(w, proto.encode_frame(Header(type=TYPE["HELLO"], chunk=7), bytes(64), version=2), 30)
        drop, header, _, _ = proto.decode_frame(got[0])
        assert drop is None and header.name == "ERROR" and header.chunk == 7


def test_pong():
    """R8.1 (S6): 1410 bytes of PONG at the control endpoint."""
    with worker() as w:
        w.join()
        _, _, back = w.request("PING", bytes(1410))
        assert len(back) == 1410
        w.ping(w.path_mtu)
        w.leave()


def test_map():
    """R5.5 (S7): beyond the table there is none, and that is no error. Epoch in the answer (gap 12)."""
    with worker() as w:
        w.join()
        t = table(w)
        for first in (len(t.chunks), len(t.chunks) + 1, MAX_ROUND - 1):
            header, m, _ = w.request("MAP", proto.Map(0, first).pack())
            assert header.name == "MAPPED" and m.entries == [] and m.first == len(t.chunks), first
            assert header.map_epoch == t.epoch
        w.leave()


def test_limits():
    """R5.1a (gap 9): limits of tables."""
    with worker() as w:
        w.join()
        page = proto.Declare(0, (1 << 20) + 1, 0, 0, 0, 0, 1, 1, [])
        assert refused(w.request, "DECLARE", page.pack())[0] == "BAD_REQUEST"
        assert refused(w.declare, 0, [(1, 1024, "t")])[0] == "BAD_REQUEST"
        assert refused(w.declare, 1, [(1, 0, "t")])[0] == "BAD_REQUEST"  # 0 is not declared
        w.leave()


def test_sets():
    """R7.2 (gap 7, S8): SETs of different ids are merged, of none taken; a schedule may be set far in advance."""
    with worker() as w:
        w.join()
        table(w, optimiser=proto.OPTIMISERS["sgd"])
        w.set(0, {"lr": 0.5})
        w.set(0, {"weight_decay": 0.25})
        w.set(0, {"lr": 0.5, "weight_decay": 0.25})
        assert refused(w.set, 0, {"lr": 0.25})[0] == "SET_CONFLICT"
        w.set(0, {})
        for from_round in range(100, 5100, 100):
            w.set(0, {"lr": 1 / from_round}, from_round=from_round)
        w.set(0, {"lr": 0.125}, from_round=1 << 30)
        assert refused(w.set, 0, {"lr": 0.125}, from_round=5050)[0] == "SET_ORDER"
        assert refused(w.set, 0, {"lr": 0.5}, from_round=0)[0] == "SET_LATE"
        w.leave()


def test_rounds():
    """R6.5 (gap 10): the weight of RESULT has its bound; R6.6, R6.8: WAIT before INIT, INIT of round 0."""
    with worker() as w:
        w.join()
        t = table(w, elements=300)
        chunk = t.chunks[0]
        seen = []
        receive = w._receive
        w._receive = lambda wait: [seen.append(f[0]) or f for f in receive(wait)]
        w.pushpull(0, 1, [pbox_math.vector([1.0] * 300)], weight=MAX_ROUND - 1)
        result = [h for h in seen if h.name == "RESULT"][-1]
        assert result.weight == MAX_ROUND - 1 and result.aux == 1 and result.base == 1 and result.flags & proto.LAST
        # R3.2 (gap 12): control frames at a data endpoint
        header, m, _ = w.request("STATUS", proto.Status(0).pack(), to=w.endpoints[chunk.endpoint])
        assert header.name == "STATUS_OK" and m.joined == 1
        w.leave()
    with worker() as w:
        w.join()
        t = table(w, elements=300, optimiser=proto.OPTIMISERS["sgd"])
        w.set(0, {"lr": 1.0})
        chunk = t.chunks[0]
        ask = Header(type=TYPE["PULL"], chunk=chunk.chunk_id, map_epoch=t.epoch)
        end, wait = time.monotonic() + 60, None
        while wait is None and time.monotonic() < end:
            w._send(ask, b"", w.endpoints[chunk.endpoint])
            wait = next((h for h, _ in w._receive(0.5) if h.name == "WAIT"), None)
        assert wait is not None and not wait.flags & proto.HAVE and wait.base == 0 and wait.weight == 0
        w.init(0, [pbox_math.vector([2.0] * 300)])
        assert list(w.pushpull(0, 1, [pbox_math.vector([0.5] * 300)])[0]) == [1.5] * 300
        w.leave()


def test_request_zero():
    """R3.1 (gap 11): a request with id 0 is answered like any other."""
    with worker() as w:
        w.join()
        end, answer = time.monotonic() + 60, None
        while answer is None and time.monotonic() < end:
            w._send(Header(type=TYPE["STATUS"], chunk=0), proto.Status(0).pack(), w.control)
            answer = next((h for h, _ in w._receive(0.5) if h.name == "STATUS_OK"), None)
        assert answer is not None and answer.chunk == 0
        w.leave()


def test_left_and_back():
    """S9: a JOIN right after LEFT is answered, though the job is ending."""
    for _ in range(30):
        with worker() as w:
            end = time.monotonic() + 60
            while (answer := refused(w.join)) is not None:
                assert answer[0] == "WORKER_TAKEN" and answer[1] > 0 and time.monotonic() < end, answer
                time.sleep(answer[1] / 1000)
            table(w, elements=64)
            w.leave()


def test_refusal_is_told():
    """R8.3: who waits for a worker that was refused hears it, with the reason."""
    with worker(0, 2) as a, worker(1, 2) as b:
        a.join()
        a.declare(0, [(100, 0, "t")])
        b.join()
        assert refused(b.declare, 0, [(101, 0, "t")])[0] == "MISMATCH"
        _, m, _ = a.request("STATUS", proto.Status(1).pack())
        assert m.members[0].reason == proto.LEFT_REASON["refused"] and m.members[0].declared == 0
        assert "101 elements" in m.text, m.text
        b.leave()
        a.leave()


def in_its_job(test):
    CASE[0] = test.__name__
    test()


sys.exit(run_cases(globals(), in_its_job))
