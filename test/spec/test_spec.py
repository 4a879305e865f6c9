#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Tests of the Python codec, and of the worker against the fake box."""

import contextlib
import json
import os
import random
import struct
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "func")]

import fake_box
import pbox_math
import pbox_proto as proto
import pbox_worker
from cases import run_cases
from pbox_proto import Header, TYPE

SAMPLES = [
    proto.Hello(1, 2), proto.Retry(0x1122334455667788, 9),
    proto.Join(1, 2, 3, 4, 5, 6, 0, 8, "job", "höst", bytes(range(32)), 1, bytes(range(16)), 9),
    proto.Welcome(1, 2, 3, 4, 5, 6, 7, 8, 9, bytes(range(32)), [["10.0.0.1", 7270]], 1, 77),
    proto.Declare(1, 3, 1, 1, 2, 3, 1, 2, [proto.Tensor(7, 1, "w"), proto.Tensor(0, 2, "")]),
    proto.Declared(1, 2, 3), proto.Map(1, 2), proto.NotReady(4, 3, 2, 1, 9, "wait"),
    proto.Mapped(1, 9, 2, 352, 5, [proto.Chunk(7, 1, 30, 4, [[0, 0, 10], [5, 1, 20]])]),
    proto.Set(1, 2, 3, [[1, 0.5], [2, -1.0]]), proto.Status(3), proto.Status(3, 1, 4, 5, 6),
    proto.StatusOk(4, 3, 1, 2, 9, "fine", [proto.Member(1, 1, 5, 2, "host")]),
    proto.Work(0, 9, 3, 4, 2, 8, 7, 0.5, 0.25, 0.125, 2.0, 1, 2, 3, [[0, 4], [4, 5]]),
    proto.WorkOk(0, 9, 3, 4, 12, 0, 2, 1, [[0, 4]], [[1, 2], [8, 9]]),
    proto.Task(1, 9, 3, 70000, 4, 8, [[0, 4], [4, 5]]), proto.TaskOk(1, 9, 40, [[6, 8]]),
    proto.BoxesOk(1, 4, 8192, 9000, "0.1.0", [["10.0.0.1", 7269], ["10.0.0.2", 7269]]),
    proto.Stats(20, 6.5, 2.125, [[20, 5.0, 1.25, 0.5], [0, 0.0, 0.0, 0.0]]),
    proto.Homes(1, 9, 3, 7, 3, 4, [[0, 0, 1, 0], [2, 0, 7, 0]]), proto.HomesOk(0, 2, 1, 2, 0, 0, [[15, 63, 2, 57]]),
    proto.Error(6, 3, 1, "taken"),
]


def test_crc32c():
    assert proto.crc32c(b"123456789") == 0xE3069283
    assert proto.crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4
    for cut in range(10):
        assert proto.crc32c(b"123456789"[cut:], proto.crc32c(b"123456789"[:cut])) == 0xE3069283


def test_header():
    h = Header(**{name: i + 1 for i, name in enumerate(proto.HEADER_FIELDS)})
    h.type, h.flags = TYPE["PUSH"], proto.LAST
    raw = proto.encode_frame(h, b"hello")
    assert len(raw) == 67 and raw[:3] == b"\xB5\x01\x20"
    assert struct.unpack_from("<H", raw, 28) == (5,)
    drop, got, payload, size = proto.decode_frame(raw)
    assert (drop, got, payload, size) == (None, h, b"hello", 67)


def test_payloads():
    assert {type(m) for m in SAMPLES} == set(proto.MESSAGES.values())
    for m in SAMPLES:
        raw = m.pack()
        assert type(m).unpack(raw) == m, m
        assert type(m).unpack(raw + b"\xFF" * 5) == m, m
        for n in range(len(raw)):
            try:
                type(m).unpack(raw[:n])
            except proto.Malformed:
                continue
            if isinstance(m, proto.WorkOk) and n >= len(raw) - 8 * proto.MORE_HYPERS - 16:
                continue  # of a box that does not know ids above 9, or decisions
            raise AssertionError(f"{m} of {n} bytes was accepted")


def test_noise():
    rng = random.Random(1)
    for _ in range(3000):
        kind = rng.choice(SAMPLES)
        raw = bytearray(kind.pack())
        for _ in range(rng.randrange(4)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        with contextlib.suppress(proto.Malformed):
            type(kind).unpack(raw[:rng.randrange(len(raw) + 1)])
        proto.decode_datagram(bytes(raw))


def test_formats():
    v = pbox_math.vector([1.0, -2.5, 0.0, 65504.0, 1e6, 3.14159274, 1.00390625, 1.01171875])
    assert pbox_math.pack(v, 1) == struct.pack("<8f", 1.0, -2.5, 0.0, 65504.0, 1e6, 3.14159274,
                                               1.00390625, 1.01171875)
    bf = struct.unpack("<8H", pbox_math.pack(v, 2))
    assert bf[:3] == (0x3F80, 0xC020, 0) and bf[5:] == (0x4049, 0x3F80, 0x3F82)
    assert struct.unpack("<8H", pbox_math.pack(v, 3))[3:5] == (0x7BFF, 0x7C00)
    for fmt in (1, 2, 3):
        raw = pbox_math.pack(v, fmt)
        assert pbox_math.pack(pbox_math.unpack(raw, fmt), fmt) == raw


def test_mean_of_nothing():
    """R5.2: the mean of no samples may be NaN, and brings nothing."""
    nan, two = pbox_math.vector([float("nan"), float("inf")]), pbox_math.vector([2, 2])
    mean = proto.OPS["weighted_mean"]
    assert list(pbox_math.reduce([nan, two], [0, 4], mean).tobytes()) == list(two.tobytes())
    assert not any(pbox_math.reduce([nan, nan], [0, 0], mean).tobytes())


def numbers():
    """A digest of all of pbox_math, to compare numpy with the standard library."""
    out = []
    parts = [pbox_math.data(3, w, 1, 257) for w in range(3)]
    for op in proto.OPS.values():
        out.append(pbox_math.reduce(parts, [1, 2, 3], op).tobytes())
    for kind in list(proto.OPTIMISERS.values())[1:]:
        box = pbox_math.Optimiser(kind, pbox_math.data(1, 9, 9, 257))
        box.hyper.update(lr=0.01, momentum=0.9, weight_decay=0.01, clip_value=5.0)
        for t in range(1, 5):
            box.step(parts[t % 3], t)
        out += [box.params.tobytes()] + [pbox_math.pack(box.params, f) for f in (2, 3)]
    return [b.hex() for b in out]


def test_numpy_and_not():
    with_numpy, pbox_math.numpy = pbox_math.numpy, None
    try:
        plain = numbers()
    finally:
        pbox_math.numpy = with_numpy
    assert plain == numbers()


# ---- the worker against the fake box --------------------------------------------------------

def play(workers, options, one=(), right=True, box_class=fake_box.FakeBox, **box_options):
    """Run that many workers of the command against a fake box; their results."""
    box = box_class(workers=workers, **box_options)
    thread = threading.Thread(target=box.run)
    thread.start()
    results = [None] * workers

    def work(i):
        argv = ["--box", box.address, "--job", "job", "--secret", "secret", "--worker", str(i),
                "--workers", str(workers), *options, *(one if i == 0 else ())]
        args = pbox_worker.options(argv)
        with pbox_worker.Worker(args.box, args.job, args.secret, args.worker, args.workers,
                                args.mtu, args.window, deadline=args.deadline, slots=args.slots) as w:
            results[i] = pbox_worker.run(args, w)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(workers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    box.stop()
    thread.join()
    for r in results:
        assert r and r["ok"] is right and r["rounds"] > 0, results
    return box, results


def test_allreduce():
    box, _ = play(3, ["--elements", "30000", "--rounds", "3"])
    assert not any(v for k, v in box.drops.items()), box.drops
    assert len(box.tables[0].chunks) > 3


def test_one_worker():
    play(1, ["--elements", "5000", "--rounds", "2"])


class WrongBox(fake_box.FakeBox):
    """Sums from right to left."""

    def _finish(self, frag, hyper):
        last = self.slots - 1
        frag.parts = {last - n: v for n, v in frag.parts.items()}
        super()._finish(frag, hyper)


def test_another_order_is_noticed():
    _, results = play(3, ["--elements", "3000", "--rounds", "1"], right=False, box_class=WrongBox)
    assert all(r["first_mismatch"]["round"] == 1 for r in results), results


def test_many_small_tensors():
    box, _ = play(2, ["--elements", "3000", "--rounds", "2", "--tensors", "150"])
    assert any(len(c.segments) > 1 for c in box.tables[0].chunks)


def test_no_elements():
    play(2, ["--elements", "0", "--rounds", "1", "--tensors", "1"])


def test_push_then_pull():
    play(3, ["--elements", "9000", "--rounds", "3", "--split"])


def test_operations():
    for op in ("mean", "sample_mean", "weighted_mean"):
        play(3, ["--elements", "3000", "--rounds", "2", "--op", op])


def test_narrow_formats():
    for push, pull in (("bf16", "fp32"), ("fp16", "fp32"), ("bf16", "bf16"), ("fp32", "fp16")):
        play(2, ["--elements", "4000", "--rounds", "2", "--format", push, "--pull-format", pull])


def test_optimisers():
    for name in ("sgd", "momentum", "nesterov", "adam", "adamw", "add"):
        hyper = ["--hyper", "momentum=0.9"] if name in ("momentum", "nesterov") else []
        play(2, ["--elements", "4000", "--rounds", "3", "--optimiser", name, "--op", "mean",
                 *hyper])


def test_clocks():
    """Section 14: pushes count once, in whatever order workers send them."""
    sizes, rounds, pulled = (3000, 1, 500), 5, {}
    box = fake_box.FakeBox(workers=2, loss=0.1, repeat=0.1)
    thread = threading.Thread(target=box.run, daemon=True)
    thread.start()

    def work(number):
        with pbox_worker.Worker(box.address, "job", "secret", worker=number, workers=2) as w:
            w.join()
            w.declare(0, [(n, 0, str(n)) for n in sizes], mode=1, optimiser=6, discipline=1)
            w.map(0)
            if number == 0:
                w.init(0, [pbox_math.vector([8.0] * n) for n in sizes])
            for clock in range(1, rounds + 1):
                w.push_clock(0, clock, [pbox_math.vector([float(2 << 8 * number)] * n) for n in sizes], 0x3F00)
                bound = clock % 3 or None
                values, slowest = w.pull_clock(0, clock, bound)
                assert slowest <= clock and (bound is None or slowest >= clock - bound)
                for v in values:  # all of its own, and of the other no more than there are
                    for x in set(pbox_math.pack(v, 1)[4 * i:4 * i + 4] for i in range(len(v))):
                        x = int(struct.unpack("<f", x)[0]) - 8
                        assert x >> 8 * number & 0xFF == clock and x >> 8 * (1 - number) & 0xFF <= rounds, x
            while slowest < rounds:
                values, slowest = w.pull_clock(0, rounds)
            pulled[number] = [pbox_math.pack(v, 1) for v in values]
            w.leave()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    box.stop()
    thread.join()
    assert pulled[0] == pulled[1] == [pbox_math.pack(pbox_math.vector([8.0 + 5 * 257] * n), 1) for n in sizes]


def test_optimiser_with_narrow_formats():
    play(2, ["--elements", "4000", "--rounds", "2", "--optimiser", "sgd", "--format", "bf16",
             "--pull-format", "bf16"])


def test_small_mtu():
    play(2, ["--elements", "4000", "--rounds", "2"], one=["--mtu", "576"])


def test_loss():
    _, results = play(3, ["--elements", "9000", "--rounds", "3", "--deadline", "60"], loss=0.1,
                      repeat=0.1, damage=0.05)
    assert sum(r["retransmitted"] for r in results) > 0


def test_loss_with_optimiser_and_push():
    play(2, ["--elements", "6000", "--rounds", "3", "--deadline", "60", "--split", "--optimiser",
             "adam"], loss=0.1, repeat=0.1)


def test_nodes_of_a_range():
    assert pbox_math.nodes_of(range(13), 13) == [(0, 4)]
    assert pbox_math.nodes_of(range(8, 13), 13) == [(8, 3)]
    assert pbox_math.nodes_of(range(12, 13), 13) == [(12, 0)]
    assert pbox_math.nodes_of(range(1, 13), 13) == [(1, 0), (2, 1), (4, 2), (8, 3)]
    for slots in (1, 2, 13, 32):
        for workers in range(1, slots + 1):
            for w in range(workers):
                own = pbox_math.own_slots(w, workers, slots)
                nodes = pbox_math.nodes_of(own, slots)
                assert [s for n in nodes for s in pbox_math.node_slots(n, slots)] == list(own)
                assert all(n[0] % (1 << n[1]) == 0 for n in nodes)


def test_slots():
    for workers in (1, 3, 5):
        box, _ = play(workers, ["--elements", "3000", "--rounds", "2", "--slots", "13"], slots=13)
        assert not any(box.drops.values()), box.drops
    play(2, ["--elements", "3000", "--rounds", "2", "--slots", "13", "--op", "weighted_mean"], slots=13)
    play(2, ["--elements", "3000", "--rounds", "2", "--slots", "13", "--split"], slots=13)
    play(2, ["--elements", "3000", "--rounds", "2", "--slots", "13", "--format", "bf16"], slots=13)


def test_slots_operations():
    for op in ("mean", "sample_mean", "weighted_mean"):
        play(3, ["--elements", "2000", "--rounds", "2", "--op", op, "--slots", "7"], slots=7)
    play(3, ["--elements", "2000", "--rounds", "2", "--op", "mean", "--slots", "7", "--optimiser", "adam"], slots=7)


def test_slots_with_loss():
    """Answers to PUSH are lost as well: the worker repeats the node, or goes on as WAIT says."""
    for more in ([], ["--split"], ["--op", "weighted_mean"]):
        _, results = play(3, ["--elements", "5000", "--rounds", "2", "--slots", "13", "--deadline", "60", *more],
                          slots=13, loss=0.1, repeat=0.1, damage=0.05)
        assert sum(r["retransmitted"] for r in results) > 0


class LeftFold(fake_box.FakeBox):
    """Sums from left to right, and not along the tree."""

    def _finish(self, frag, hyper):
        total = None
        for n in sorted(frag.parts):
            total = frag.parts[n] if total is None else total + frag.parts[n]
        frag.parts = {0: total}
        frag.weights = {0: sum(frag.weights.values())}
        super()._finish(frag, hyper)


def test_another_tree_is_noticed():
    play(2, ["--elements", "3000", "--rounds", "1", "--slots", "13"], slots=13, right=False, box_class=LeftFold)


def test_auth():
    box, _ = play(2, ["--elements", "4000", "--rounds", "2"], auth=True)
    assert not any(box.drops.values()), box.drops
    assert box.tables[0].frag_elements == (1500 - 106) // 64 * 64 // 4
    play(2, ["--elements", "3000", "--rounds", "2", "--optimiser", "adam", "--split"], auth=True)
    play(2, ["--elements", "3000", "--rounds", "2", "--deadline", "60"], auth=True, loss=0.1,
         repeat=0.1, damage=0.05)


def until(true):
    """The other thread may have got no CPU yet."""
    end = time.monotonic() + 120
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_forgeries():
    """Frames that are right but for their tags: neither end takes them."""
    box = fake_box.FakeBox(workers=1, auth=True)
    thread = threading.Thread(target=box.run)
    thread.start()
    try:
        with pbox_worker.Worker(box.address, "job", "secret", 0, 1, deadline=120) as w:
            w.join()
            w.ping()
            keys = w.keys
            for wrong in (None, (bytes(16), keys[1])):
                w.keys = wrong
                dropped = box.drops["auth"]
                w.deadline = 0.3
                try:
                    w.ping()
                    raise AssertionError("a PING without a good tag was answered")
                except pbox_worker.Timeout:
                    until(lambda at=dropped: box.drops["auth"] > at)
            w.keys, w.deadline = keys, 120
            # somebody else says that the box stops, and that it does not know us
            me = ("127.0.0.1", w.sock.getsockname()[1])
            ids = {"token": w.token, "job": w.job, "worker": w.worker,
                   "incarnation": w.incarnation}
            for kind, aux, tag in (("LEFT", 1, b""), ("LEFT", 1, bytes(16)),
                                   ("ERROR", proto.ERROR["SESSION"], b"")):
                h = proto.Header(type=proto.TYPE[kind], aux=aux,
                                 flags=proto.AUTH if tag else 0, **ids)
                box.socks[0].sendto(proto.encode_frame(h, tag=tag), me)
                ignored = w.counts["ignored"]
                w.ping()
                assert w.counts["ignored"] > ignored, kind
            w.leave()
    finally:
        box.stop()
        thread.join()


def refused(box, **options):
    """The ERROR that a join with these options brings, by name."""
    given = {"job": "job", "secret": "secret", "worker": 0, "workers": 2, "deadline": 120.0}
    with pbox_worker.Worker(box.address, **{**given, **options}) as w:
        try:
            w.join()
        except pbox_worker.BoxError as e:
            return proto.ERRORS[e.code]
    return None


def test_refusals():
    box = fake_box.FakeBox(workers=2)
    thread = threading.Thread(target=box.run)
    thread.start()
    try:
        assert refused(box, job="other") == "NO_JOB"
        assert refused(box, secret="wrong") == "SECRET"
        assert refused(box, workers=3) == "WORKERS"
        assert refused(box, worker=2) == "WORKER_TAKEN"
        assert refused(box) is None
        assert refused(box) == "WORKER_TAKEN"
        with pbox_worker.Worker(box.address, "job", "secret", 1, 2, deadline=120) as w:
            w.join()
            w.declare(0, [(10, 0, "a")])
            for w.deadline in (0.5, 5, 50):  # longer where the box got no CPU meanwhile
                try:
                    w.map(0)
                    raise AssertionError("mapped without worker 0")
                except pbox_worker.Timeout as e:
                    said = str(e)
                if "worker 0 missing" in said:
                    break
            assert "worker 0 missing" in said, said
            w.deadline = 120
            w.token ^= 1
            try:
                w.request("STATUS", proto.Status().pack())
                raise AssertionError("a foreign token was taken")
            except pbox_worker.BoxError as e:
                assert proto.ERRORS[e.code] == "SESSION"
    finally:
        box.stop()
        thread.join()


class ForgedBox(fake_box.FakeBox):
    """Somebody sees each HELLO and JOIN, and answers it first (R9.3)."""

    code = "SECRET"

    def _on_hello(self, h, payload, peer, where):
        for cookie in range(1, 21):
            self._answer(h, "RETRY", proto.Retry(cookie, self.incarnation).pack(), peer, where)
        super()._on_hello(h, payload, peer, where)

    def _on_join(self, h, payload, peer, where):
        m = proto.Join.unpack(payload)
        forged = proto.Error(proto.ERROR[self.code], h.type, 0, "go away").pack()
        self._answer(h, "ERROR", forged, peer, where)
        self._answer(h, "ERROR", forged, peer, where)
        self._answer(h, "WELCOME", proto.Welcome(9, m.nonce, number=1).pack(), peer, where)
        super()._on_join(h, payload, peer, where)


def test_forged_refusals():
    for code in ("SECRET", "NO_JOB", "WORKERS", "VERSION"):
        play(2, ["--elements", "100", "--rounds", "1"], box_class=type("Box", (ForgedBox,), {"code": code}))


class SilentBox(fake_box.FakeBox):
    """So many JOINs are seen only by somebody who refuses them, and has no proof or a wrong one."""

    left, secret_of_it, asked = 0, b"", ()

    def _on_join(self, h, payload, peer, where):
        self.asked = (*self.asked, h.chunk)
        if self.left == 0:
            super()._on_join(h, payload, peer, where)
            return
        self.left -= 1
        m = proto.Join.unpack(payload)
        refusal = fake_box.Refuse("WORKERS", "go away")
        refusal.proves = m.nonce
        secret, self.secret = self.secret, self.secret_of_it
        try:
            self._error(h, refusal, peer, where)
        finally:
            self.secret = secret


def test_refusals_of_a_stranger():
    for left, secret, want, asked in ((2, b"", None, 3), (1000, b"other", "WORKERS", 3),
                                      (1000, b"secret", "WORKERS", 1)):
        box = SilentBox(workers=2)
        box.left, box.secret_of_it = left, secret
        thread = threading.Thread(target=box.run)
        thread.start()
        try:
            assert refused(box, deadline=120.0) == want, want
            assert len(set(box.asked)) == asked, (box.asked, asked)
        finally:
            box.stop()
            thread.join()


def test_no_box():
    with pbox_worker.Worker("127.0.0.1:9", "job", "secret", deadline=0.3) as w:
        try:
            w.join()
            raise AssertionError("joined nothing")
        except pbox_worker.Timeout:
            pass


def test_command():
    box = fake_box.FakeBox(workers=1)
    thread = threading.Thread(target=box.run)
    thread.start()
    here = os.path.dirname(os.path.abspath(__file__))
    argv = [sys.executable, os.path.join(here, "pbox_worker.py"), "--box", box.address, "--job",
            "job", "--worker", "0", "--workers", "1", "--elements", "2000", "--rounds", "2"]
    good = subprocess.run([*argv, "--secret", "secret"], stdout=subprocess.PIPE, timeout=240,
                          check=False)
    bad = subprocess.run([*argv, "--secret", "wrong"], stdout=subprocess.PIPE, timeout=240,
                         check=False)
    box.stop()
    thread.join()
    assert good.returncode == 0 and json.loads(good.stdout)["ok"] is True, good
    assert bad.returncode == 1 and "SECRET" in json.loads(bad.stdout)["text"], bad


if __name__ == "__main__":
    sys.exit(run_cases({name: globals()[name] for name in sys.argv[1:]} or globals()))
