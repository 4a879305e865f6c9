#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""One side of test/func/tenants.

    victim:  a session: a round of a small table, a PING to the control endpoint, and one to a data endpoint to compare,
             every 100 ms until SIGTERM. {"rounds", "wrong": whose sums had other bits, "pings", "again": were sent again after
             2 s, "lost": never answered, "p50_ms", "p100_ms", "data_p100_ms", "session": it is still the same}
    greedy:  a session of another job, with a table of small fragments; MAPs, STATUSes and DECLAREs at so
             many Mbit/s on the wire, for so long and until it has sent so many. {"sent", "mbits", "seconds"}
    declare: so many DECLAREs, each of one tensor of 2^20, far from the one before, table after table.
             {"sent", "said": what the box answered at last}
    cycle:   so many times: joins, declares a table of 1000 tensors, maps it every other time, and leaves: its job ends.
             {"cycles"}
    crowd:   joins --job.0, --job.1, ... of 1024 workers each, and then of one, until SIGTERM; "full" when the box has refused
             eight in a row of these too. {"joined", "refused"}
"""

import argparse
import json
import os
import signal
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "spec"))
# pylint: disable=wrong-import-position
import pbox_math  # noqa: E402
import pbox_proto as proto  # noqa: E402
import pbox_worker  # noqa: E402
from pbox_proto import TYPE, Header  # noqa: E402

TENSOR = (2000000, 0, "t")
WIRE = 42  # bytes of headers of a frame on Ethernet
ROUND = 1000  # elements of the victim's table
DEADLINE = 120
QUOTAS = 6000  # a second: more than the quota of who floods, however slowly it can send


def pong(w, number, to):
    """(milliseconds until it comes, or None; how often it was sent again)"""
    begin = time.monotonic()
    for again in range(DEADLINE // 2):
        sent = time.monotonic()
        w._send(Header(type=TYPE["PING"], chunk=number), b"", to)  # pylint: disable=protected-access
        while time.monotonic() < sent + 2:
            for h, _ in w._receive(0.05):  # pylint: disable=protected-access
                if h.name == "PONG" and h.chunk == number:
                    return (time.monotonic() - begin) * 1e3, again
    return None, again


def victim(_a, w):
    state = {"run": True}
    signal.signal(signal.SIGTERM, lambda *_: state.update(run=False))
    w.declare(0, [(ROUND, 0, "t")])
    w.map(0)
    print("joined", flush=True)
    took, data, number, due, rounds, wrong, more = [], [], 1 << 20, time.monotonic(), 0, 0, 0
    while state["run"]:
        number += 2
        rounds += 1
        values = pbox_math.data(1, 0, rounds, ROUND)
        got = w.pushpull(0, rounds, [values])
        fp32 = proto.FORMATS["fp32"]
        wrong += pbox_math.pack(got[0], fp32) != pbox_math.pack(values, fp32)
        for n, to, into in ((number, w.control, took), (number + 1, w.endpoints[0], data)):
            ms, again = pong(w, n, to)
            into.append(ms)
            more += again
        due = max(due + 0.1, time.monotonic())
        time.sleep(max(0, due - time.monotonic()))
    try:
        w.ping()
        w.leave()
        session = True
    except (pbox_worker.BoxError, pbox_worker.Timeout):
        session = False
    good = sorted(x for x in took if x is not None) or [0]
    print(json.dumps({"rounds": rounds, "wrong": wrong, "pings": len(took) + len(data), "again": more,
                      "lost": (took + data).count(None), "p50_ms": round(good[len(good) // 2], 2),
                      "p100_ms": round(good[-1], 2), "data_p100_ms": round(max(x or 0 for x in data), 2),
                      "session": session}), flush=True)


def requests():
    """What it asks, again and again."""
    page = proto.Declare(0, 1, 0, 0, 0, 0, 1, 1)
    page.entries = [proto.Tensor(*TENSOR)]
    ask = ("MAP", proto.Map(table=0, first=0).pack())
    return (ask, ask, ask, ("STATUS", struct.pack("<HH", 0, 0)), ("DECLARE", page.pack()))


def greedy(a, w):
    w.declare(0, [TENSOR])
    w.map(0)
    def frames_of_now():  # newer ones: only these renew the lease, and few of one moment count as the session's
        ts = int(time.monotonic() * 1e6) & 0xFFFFFFFF
        return [proto.encode_frame(
            Header(type=TYPE[kind], chunk=99, token=w.token, job=w.job, worker=w.worker,
                   incarnation=w.incarnation, ts=ts), payload)
                for kind, payload in requests()]
    frames = frames_of_now()
    w.sock.setblocking(True)
    w.sock.connect(w.control)
    rate = a.mbits * 1e6 / 8
    sent = wire = i = 0
    print("begins", flush=True)
    begin = time.monotonic()
    while (now := time.monotonic()) < begin + a.seconds or sent < a.frames + QUOTAS * (now - begin):
        room = int((now - begin) * rate) - wire
        for _ in range(min(room // (WIRE + 70), 256)):
            if i % 50 == 0:
                frames = frames_of_now()
            f = frames[i % len(frames)]
            i += 1
            try:
                w.sock.send(f)
            except OSError:
                continue
            sent += 1
            wire += len(f) + WIRE
        if room < 20000:
            time.sleep(0.0005)
    took = time.monotonic() - begin
    leave = proto.encode_frame(Header(type=TYPE["LEAVE"], chunk=100, token=w.token, job=w.job, worker=w.worker,
                                      incarnation=w.incarnation))
    for _ in range(20):  # its quota is used up: the box takes one when it has earned that
        time.sleep(0.05)
        w.sock.send(leave)
    print(json.dumps({"sent": sent, "mbits": round(wire * 8e-6 / took, 1), "seconds": round(took, 1)}), flush=True)


def declare(a, w):
    per_page, sent, said = 51, 0, "nothing"  # a record for each tensor: so many in a page of memory
    w.sock.setblocking(True)
    while sent < a.frames:
        for _ in range(256):
            table, at = divmod(sent * per_page, 1 << 20)
            page = proto.Declare(table, 1 << 20, at, 0, 0, 0, 1, 1)
            page.entries = [proto.Tensor(1000, 0, "t")]
            w.sock.sendto(proto.encode_frame(
                Header(type=TYPE["DECLARE"], chunk=sent & 0xFFFFFF, token=w.token, job=w.job, worker=w.worker,
                       incarnation=w.incarnation, ts=int(time.monotonic() * 1e6) & 0xFFFFFFFF), page.pack()), w.control)
            sent += 1
        w.sock.setblocking(False)
        w.status()  # it has worked on them
        w.sock.setblocking(True)
    w.sock.setblocking(False)
    try:
        page.table = 0
        w.request("DECLARE", page.pack())
    except pbox_worker.BoxError as e:
        said = str(e)
    w.leave()
    print(json.dumps({"sent": sent, "said": said}), flush=True)


def cycle(a):
    for i in range(a.frames):
        with pbox_worker.Worker(a.box, a.job, a.secret, 0, 1, host=a.what, lease_ms=a.lease * 1000, deadline=DEADLINE) as w:
            w.join()
            w.declare(0, [(1 + i % 7, 0, f"layer{i % 10}.{t}.weight") for t in range(1000)])
            if i % 2:
                w.map(0)
            w.leave()
    print(json.dumps({"cycles": a.frames}), flush=True)


def crowd(a):
    state = {"run": True}
    signal.signal(signal.SIGTERM, lambda *_: state.update(run=False))
    there, refused, row, workers, told = [], 0, 0, 1024, False
    while state["run"]:
        w = pbox_worker.Worker(a.box, f"{a.job}.{len(there) + refused}", a.secret, 0, workers, host="crowd",
                               lease_ms=a.lease * 1000, deadline=DEADLINE)
        try:
            w.join()
            there.append(w)
            row = 0
        except pbox_worker.BoxError as e:
            if e.code not in (proto.ERROR["FULL"], proto.ERROR["NO_MEMORY"]):
                raise
            refused += 1
            row += 1
        if row >= 8 and workers > 1:
            workers, row = 1, 0
        elif row >= 8 and not told:
            told = True
            print("full", flush=True)
        time.sleep(0.1 if told else 0)
    for w in there:
        w.leave()
    print(json.dumps({"joined": len(there), "refused": refused}), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("what", choices=("victim", "greedy", "declare", "cycle", "crowd"))
    p.add_argument("--box", required=True)
    p.add_argument("--job", required=True)
    p.add_argument("--secret", default="")
    p.add_argument("--mbits", type=float, default=23)
    p.add_argument("--seconds", type=float, default=6)
    p.add_argument("--frames", type=int, default=0)
    p.add_argument("--lease", type=int, default=60, help="seconds")
    a = p.parse_args()
    if a.what in ("crowd", "cycle"):
        {"crowd": crowd, "cycle": cycle}[a.what](a)
        return
    with pbox_worker.Worker(a.box, a.job, a.secret, 0, 1, host=a.what,
                            lease_ms=a.lease * 1000, deadline=DEADLINE,
                            mtu=160 if a.what == "greedy" else 1500) as w:
        w.join()
        {"victim": victim, "greedy": greedy, "declare": declare}[a.what](a, w)


if __name__ == "__main__":
    main()
