#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A small PBox server in Python, from doc/protocol.md alone: it shows that the page says enough to
build one, and pbox_worker.py is tested against it. One thread, one job, no dead workers; it can
lose, repeat and damage datagrams, seeded."""

import argparse
import hashlib
import hmac
import os
import random
import select
import socket
import struct
import time

import pbox_auth
import pbox_math
import pbox_proto as proto
from pbox_proto import Header, TYPE

CHUNK = 8192  # R5.9
DROPS = ("frame_magic", "frame_version", "frame_truncated", "frame_crc", "frame_flags",
         "frame_type", "frame_auth", "frame_trailing", "control_malformed", "session_unknown",
         "session_token", "session_incarnation", "auth", "chunk_unknown", "map_epoch", "frag_range",
         "format", "length", "partial", "round_stale", "round_future", "init_forbidden")


class Refuse(Exception):
    """Answer ERROR."""

    def __init__(self, code, text="", detail=0):
        super().__init__(text)
        self.code, self.detail = proto.ERROR[code], detail
        self.proves = None  # nonce of the JOIN that is refused, where it knows the secret


class Drop(Exception):
    """Drop the frame under that name."""


class Session:
    def __init__(self, nonce, peer, host):
        self.nonce, self.peer, self.host = nonce, peer, host
        self.token = int.from_bytes(os.urandom(8), "little") | 1
        self.heard = time.monotonic()
        self.tables = {}  # number -> {first: page} as declared
        self.keys = None  # with auth: (of the worker's frames, of ours)
        self.left = False


class Fragment:
    """The state of one fragment: version, the round in progress, who waits for it."""

    def __init__(self, elements, table):
        self.elements, self.table = elements, table
        self.version, self.waiting = 0, set()
        self.parts, self.weights, self.slots = {}, {}, set()  # by first slot; all that are there
        self.aux = self.samples = 0
        self.first, self.hyper_at = 0.0, 0
        self.ready = table.declare.mode == 0
        self.pieces, self.box, self.value = {}, None, None
        self.clocks = {}  # by worker (R14.3)


class Table:
    def __init__(self, declare, number):
        self.declare, self.number = declare, number
        self.chunks, self.frags = [], {}
        self.sets = []  # (from_round, group, params)
        self.group = {}  # chunk id -> group


class FakeBox:
    def __init__(self, job="job", secret="secret", workers=1, endpoints=2, mtu=1500, window=16,
                 loss=0.0, repeat=0.0, damage=0.0, seed=1, ip="127.0.0.1", port=0, auth=False, slots=0):
        self.job_name, self.secret, self.workers = job, secret.encode(), workers
        self.named, self.slots = slots > 0, slots or workers  # R5.2b
        self.mtu, self.window = mtu, window
        self.chance = loss, repeat, damage
        self.random = random.Random(seed)
        self.incarnation = self.random.randrange(1, 1 << 32)
        self.key = os.urandom(16)
        self.auth = pbox_auth.job_key(self.secret, self.incarnation, 1) if auth else None
        self.sessions, self.tables = {}, {}
        self.worker_mtu = mtu
        self.epoch = 7
        self.drops = dict.fromkeys(DROPS, 0)
        self.socks = [self._socket(ip, port)] + [self._socket(ip, 0) for _ in range(endpoints)]
        self.stopping = False

    @staticmethod
    def _socket(ip, port):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        s.bind((ip, port))
        return s

    @property
    def address(self):
        return "%s:%d" % self.socks[0].getsockname()

    # ---- datagrams -------------------------------------------------------------------------

    def run(self):
        """Serve until stop()."""
        while not self.stopping:
            for sock in select.select(self.socks, [], [], 0.02)[0]:
                raw, peer = sock.recvfrom(65536)
                for _ in range(self._copies()):
                    self._datagram(self._damaged(raw), peer, self.socks.index(sock))
        for s in self.socks:
            s.close()

    def stop(self):
        self.stopping = True

    def _copies(self):
        loss, repeat, _ = self.chance
        if self.random.random() < loss:
            return 0
        return 2 if self.random.random() < repeat else 1

    def _damaged(self, raw):
        if self.random.random() >= self.chance[2]:
            return raw
        raw = bytearray(raw)
        raw[self.random.randrange(len(raw))] ^= 1 << self.random.randrange(8)
        return bytes(raw)

    def _send(self, header, payload, peer, where):
        header.incarnation = self.incarnation
        session = self.sessions.get(header.worker)
        if session and session.keys and session.token == header.token and \
                (payload or header.name != "ERROR" or header.aux != proto.ERROR["SESSION"]):
            raw = pbox_auth.seal(header, payload, session.keys[1], self.auth)
        else:
            raw = proto.encode_frame(header, payload)
        for _ in range(self._copies()):
            self.socks[where].sendto(self._damaged(raw), peer)

    def _answer(self, to, kind, payload, peer, where, **more):
        header = Header(type=TYPE[kind], prio=to.prio, token=to.token, job=to.job,
                        worker=to.worker, chunk=to.chunk, frag=to.frag, round=to.round, ts=to.ts)
        for name, value in more.items():
            setattr(header, name, value)
        self._send(header, payload, peer, where)

    def _datagram(self, raw, peer, where):
        for drop, header, payload in proto.decode_datagram(raw):
            if drop == "frame_version" and header.type == TYPE["HELLO"]:
                self._error(header, Refuse("VERSION", "", proto.VERSION), peer, where)
            if drop:
                self.drops[drop] += 1
                continue
            try:
                self._frame(header, payload, peer, where)
            except Drop as e:
                self.drops[str(e)] += 1
            except proto.Malformed:
                self.drops["control_malformed"] += 1
            except Refuse as e:
                self._error(header, e, peer, where)

    def _error(self, header, e, peer, where):
        if header.type < proto.FIRST_DATA_TYPE:
            payload = proto.Error(e.code, header.type, e.detail, str(e)).pack()
            if e.proves is not None:  # R9.2
                payload += struct.pack("<QI", e.proves, header.chunk) + bytes(36)
                at = len(payload) - proto.PROOF_LEN
                payload = payload[:at] + self._mac(proto.ERROR_PREFIX, payload, at)
            self._answer(header, "ERROR", payload, peer, where, frag=0, round=0)
        else:
            self._answer(header, "ERROR", b"", peer, where, aux=e.code)

    def _frame(self, h, payload, peer, where):
        name = h.name
        if name in ("HELLO", "JOIN"):
            getattr(self, "_on_" + name.lower())(h, payload, peer, where)
            return
        session = self._session(h, peer, where)
        if name == "PING":
            self._answer(h, "PONG", payload, peer, where)
        elif h.type < proto.FIRST_DATA_TYPE:
            if where == 0 and hasattr(self, "_on_" + name.lower()):
                getattr(self, "_on_" + name.lower())(h, payload, peer, session)
        else:
            self._data(h, payload, peer, where)

    def _session(self, h, peer, where):
        session = self.sessions.get(h.worker)
        drop = None
        if h.job != 1 or session is None or session.left:
            drop = "session_unknown"
        elif session.token != h.token:
            drop = "session_token"
        elif h.incarnation != self.incarnation:
            drop = "session_incarnation"
        if drop:
            self._answer(h, "ERROR", b"", peer, where, aux=proto.ERROR["SESSION"])
            raise Drop(drop)
        if bool(session.keys) != bool(h.flags & proto.AUTH) or \
                (session.keys and not pbox_auth.good(h.frame, session.keys[0], self.auth)):
            raise Drop("auth")
        session.heard, session.peer = time.monotonic(), peer
        return session

    # ---- joining (section 4) -----------------------------------------------------------------

    def _cookie(self, peer, ago=0):
        text = "%s:%d:%d" % (*peer, time.time() // 8 - ago)
        return int.from_bytes(hashlib.blake2b(text.encode(), key=self.key, digest_size=8).digest(),
                              "little")

    def _on_hello(self, h, payload, peer, where):
        m = proto.Hello.unpack(payload)
        if not m.min_version <= proto.VERSION <= m.max_version:
            raise Refuse("VERSION", "", proto.VERSION)
        retry = proto.Retry(self._cookie(peer), self.incarnation)
        self._answer(h, "RETRY", retry.pack(), peer, where)

    def _mac(self, prefix, data, at):
        zeroed = data[:at] + bytes(proto.PROOF_LEN) + data[at + proto.PROOF_LEN:]
        return hmac.new(self.secret, prefix + zeroed, hashlib.sha256).digest()

    def _on_join(self, h, payload, peer, where):
        m = proto.Join.unpack(payload)
        if m.cookie not in (self._cookie(peer), self._cookie(peer, 1)):
            raise Refuse("COOKIE", "the cookie is too old")
        if m.revision != proto.REVISION:
            raise Refuse("VERSION", f"revision {m.revision} is another release's", proto.VERSION)
        if m.job != self.job_name:
            raise Refuse("NO_JOB", f"no job {m.job} is configured")
        if self._mac(proto.JOIN_PREFIX, payload[:512], proto.JOIN_PROOF_AT) != m.proof:
            raise Refuse("SECRET", f"wrong secret for job {m.job}")
        try:
            self._admit(h, m, peer, where)
        except Refuse as e:
            e.proves = m.nonce
            raise

    def _admit(self, h, m, peer, where):
        if m.workers != self.workers:
            raise Refuse("WORKERS", f"the job has {self.workers} workers", self.workers)
        if m.needs & ~proto.CAN_SLOTS:
            raise Refuse("UNSUPPORTED", "this box has slots alone")
        if m.slots and not m.needs & proto.CAN_SLOTS:
            raise Refuse("BAD_REQUEST", "slots, and SLOTS is not in needs")
        if m.slots != (self.slots if self.named else 0):
            raise Refuse("BAD_REQUEST", f"the job has {self.slots} slots")
        if self.auth and not m.auth:
            raise Refuse("BAD_REQUEST", "the job has auth, this worker has not")
        number = self._number(m)
        session = self.sessions.get(number)
        if session is None or session.left:
            session = self.sessions[number] = Session(m.nonce, peer, m.host)
            self.worker_mtu = min(self.worker_mtu, m.mtu)
        if session.nonce != m.nonce:
            raise Refuse("WORKER_TAKEN", f"worker {number} is {session.host}")
        ends = [s.getsockname() for s in self.socks[1:]]
        w = proto.Welcome(session.token, m.nonce, 1, number, self.workers, self.incarnation, 5000,
                          self.mtu, self.window, endpoints=ends,
                          flags=proto.CAN_SLOTS | proto.CAN_CLOCK | (proto.WELCOME_AUTH if self.auth else 0), number=1)
        if self.auth:
            session.keys = pbox_auth.session_keys(self.secret, w)
        w.proof = self._mac(proto.WELCOME_PREFIX, w.pack(), proto.WELCOME_PROOF_AT)
        self._answer(h, "WELCOME", w.pack(), peer, where, token=w.token, job=1, worker=number)

    def _number(self, m):
        if m.worker != proto.ANY_WORKER:
            if m.worker >= self.workers:
                raise Refuse("WORKER_TAKEN", f"worker {m.worker} of {self.workers}")
            return m.worker
        for number, session in self.sessions.items():
            if session.nonce == m.nonce:
                return number
        free = [n for n in range(self.workers) if n not in self.sessions]
        if not free:
            raise Refuse("WORKER_TAKEN", "all workers have joined")
        return free[0]

    # ---- tables (section 5) --------------------------------------------------------------------

    def _on_declare(self, h, payload, peer, session):
        m = proto.Declare.unpack(payload)
        pages = session.tables.setdefault(m.table, {})
        for other in self.sessions.values():
            seen = other.tables.get(m.table, {}).get(m.first)
            if seen is not None and seen != m:
                raise Refuse("MISMATCH", f"table {m.table} differs from that of {other.host}")
        pages[m.first] = m
        done = proto.Declared(m.table, m.first, len(m.entries))
        self._answer(h, "DECLARED", done.pack(), peer, 0)

    @staticmethod
    def _complete(session, number):
        pages = session.tables.get(number, {})
        entries = [e for first in sorted(pages) for e in pages[first].entries]
        return entries if pages and len(entries) == next(iter(pages.values())).tensors else None

    def _on_map(self, h, payload, peer, session):
        m = proto.Map.unpack(payload)
        done = {n for n, s in self.sessions.items() if self._complete(s, m.table) is not None}
        if len(done) < self.workers:
            missing = min(set(range(self.workers)) - done)
            silent = 0xFFFFFFFF
            if missing in self.sessions:
                silent = int((time.monotonic() - self.sessions[missing].heard) * 1000)
            m = proto.NotReady(self.workers, len(self.sessions), len(done), missing, silent,
                               f"worker {missing} is missing")
            self._answer(h, "NOT_READY", m.pack(), peer, 0)
            return
        if m.table not in self.tables:
            self.tables[m.table] = self._build(m.table, session)
        table = self.tables[m.table]
        m.first = min(m.first, len(table.chunks))
        page = proto.Mapped(m.table, len(table.chunks), m.first, table.frag_elements,
                            m.table << 16)
        size = 24
        for chunk in table.chunks[m.first:]:
            size += len(chunk.pack())
            if size > min(self.mtu, self.worker_mtu) - proto.OVERHEAD:
                break
            page.entries.append(chunk)
        self._answer(h, "MAPPED", page.pack(), peer, 0, map_epoch=self.epoch)

    def _build(self, number, session):
        """Lay the tensors of a table into chunks (R5.7 to R5.9)."""
        table = Table(next(iter(session.tables[number].values())), number)
        d = table.declare
        mtu = min(self.mtu, self.worker_mtu) - (proto.TAG_LEN if self.auth else 0) - proto.clock_vector(d.discipline, self.workers)
        table.init_elements = proto.init_elements(mtu)
        f = table.frag_elements = proto.frag_elements(mtu, d.push_format, d.pull_format)
        shared = {}  # group -> segments of the chunk that small tensors share

        def close(segments, group):
            chunk = proto.Chunk((number << 16) + len(table.chunks),
                                len(table.chunks) % (len(self.socks) - 1),
                                sum(s[2] for s in segments), 0, segments)
            table.chunks.append(chunk)
            table.group[chunk.chunk_id] = group
            for i, (a, b) in enumerate(proto.fragments(chunk.elements, f)):
                table.frags[chunk.chunk_id, i] = Fragment(b - a, table)

        for i, t in enumerate(self._complete(session, number)):
            if t.elements >= f:
                for at in range(0, t.elements, CHUNK):
                    close([[at, i, min(CHUNK, t.elements - at)]], t.group)
            elif t.elements:
                segments = shared.setdefault(t.group, [])
                if len(segments) == 64 or sum(s[2] for s in segments) + t.elements > CHUNK:
                    close(shared.pop(t.group), t.group)
                    segments = shared.setdefault(t.group, [])
                segments.append([0, i, t.elements])
        for group, segments in shared.items():
            close(segments, group)
        return table

    def _on_set(self, h, payload, peer, session):
        m = proto.Set.unpack(payload)
        table = self.tables.get(m.table)
        if table is None:
            raise Refuse("BAD_REQUEST", f"no table {m.table}")
        for from_round, group, params in table.sets:
            if group == m.group and from_round == m.from_round and params != m.params:
                raise Refuse("SET_CONFLICT", "another worker set other values")
            if group == m.group and from_round > m.from_round:
                raise Refuse("SET_ORDER", f"round {from_round} was set before")
        entry = (m.from_round, m.group, m.params)
        if entry not in table.sets:
            if any(f.version >= m.from_round for f in table.frags.values()):
                raise Refuse("SET_LATE", f"round {m.from_round} is finished")
            table.sets.append(entry)
        self._answer(h, "SET_OK", b"", peer, 0)

    def _on_status(self, h, payload, peer, session):
        m = proto.Status.unpack(payload)
        room = (min(self.mtu, self.worker_mtu) - proto.OVERHEAD - 20 - 16) // 32
        members = []
        for n in range(m.first, min(self.workers, m.first + room)):
            s = self.sessions.get(n)
            members.append(proto.Member(n, 0, 0xFFFFFFFF) if s is None else proto.Member(
                n, 2 if s.left else 1, int((time.monotonic() - s.heard) * 1000), len(s.tables),
                s.host))
        last = max((f.version for t in self.tables.values() for f in t.frags.values()), default=0)
        ok = proto.StatusOk(self.workers, len(self.sessions), m.first, len(self.tables), last,
                            "a fake box", members)
        self._answer(h, "STATUS_OK", ok.pack(), peer, 0)

    def _on_leave(self, h, payload, peer, session):
        session.left = True
        self._answer(h, "LEFT", b"", peer, 0)

    # ---- data (section 6) ----------------------------------------------------------------------

    def _data(self, h, payload, peer, where):
        table = self.tables.get(h.chunk >> 16)
        index = h.chunk & 0xFFFF
        if table is None or index >= len(table.chunks) or \
                table.chunks[index].endpoint != where - 1:
            raise Drop("chunk_unknown")
        if h.map_epoch != self.epoch:
            raise Drop("map_epoch")
        frag = table.frags.get((h.chunk, h.frag))
        if frag is None:
            raise Drop("frag_range")
        if h.name == "INIT":
            self._init(h, payload, peer, where, frag)
        elif h.name == "PULL":
            if payload:
                raise Drop("length")
            self._pull(h, peer, where, frag)
        elif h.name in ("PUSH", "PUSHPULL"):
            self._contribution(h, payload, peer, where, frag)

    def _init(self, h, payload, peer, where, frag):
        table = frag.table
        if h.format != proto.FORMATS["fp32"]:
            raise Drop("format")
        if h.flags & proto.ZERO:
            payload = bytes(4 * min(table.init_elements, frag.elements - h.base))
        if h.base % table.init_elements or h.base >= frag.elements or \
                len(payload) != 4 * min(table.init_elements, frag.elements - h.base):
            raise Drop("length")
        if table.declare.mode == 0 or h.worker != 0:
            raise Drop("init_forbidden")
        if not frag.ready:
            frag.pieces.setdefault(h.base, payload)
            raw = b"".join(frag.pieces[base] for base in sorted(frag.pieces))
            if len(raw) == 4 * frag.elements:
                params = pbox_math.unpack(raw, proto.FORMATS["fp32"])
                frag.box = pbox_math.Optimiser(table.declare.optimiser, params)
                frag.value, frag.ready = params, True
                self._publish(h, frag, where)
        self._answer(h, "INIT_OK", b"", peer, where, base=h.base)

    def _wait(self, h, peer, where, frag):
        missing = [s for s in range(self.slots) if s not in frag.slots]
        owner = {s: w for w in range(self.workers) for s in pbox_math.own_slots(w, self.workers, self.slots)}
        weight = 0 if not frag.ready else owner[missing[0]] if missing else 0xFFFFFFFF
        own = [s for s in missing if owner[s] == h.worker]
        self._answer(h, "WAIT", b"", peer, where, aux=len(frag.slots), weight=weight,
                     base=own[0] if self.named and own else frag.version, flags=0 if own else proto.HAVE)

    def _result(self, h, peer, where, frag, held=0):
        fmt = frag.table.declare.pull_format
        self._answer(h, "RESULT", pbox_math.pack(frag.value, fmt), peer, where, format=fmt,
                     round=frag.version, base=frag.version, aux=frag.aux, weight=frag.samples,
                     held=held)

    def _publish(self, h, frag, where):
        """RESULT to all that wait for the version that is now current."""
        waiting, frag.waiting = frag.waiting, set()
        for number, ts, since in sorted(waiting):
            s = self.sessions[number]
            to = Header(token=s.token, job=1, worker=number, chunk=h.chunk, frag=h.frag, ts=ts)
            self._result(to, s.peer, where, frag, int((time.monotonic() - since) * 1e6))

    @staticmethod
    def _will_wait(h, frag):
        # the ts of the frame that waits now counts for all of its worker
        frag.waiting = {w for w in frag.waiting if w[0] != h.worker}
        frag.waiting.add((h.worker, h.ts, time.monotonic()))

    def _clock(self, h, payload, peer, where, frag):
        """A push to a table in clocks (R14.3, R14.4)."""
        last = frag.clocks.get(h.worker, 0)
        if not frag.ready:
            self._answer(h, "WAIT", b"", peer, where, base=frag.version)
            return
        if h.round not in (last, last + 1) or h.round == 0:
            raise Drop("round_stale" if h.round < last or h.round == 0 else "round_future")
        again = h.round == last
        if not again:
            fmt = frag.table.declare.push_format
            push = pbox_math.unpack(payload or bytes(proto.payload_bytes(fmt, frag.elements)), fmt)
            frag.value = frag.value + push * proto.bf16(h.aux)
            frag.version += 1
            frag.clocks[h.worker] = h.round
        if h.name == "PUSHPULL":
            self._latest(h, peer, where, frag)
        else:
            self._answer(h, "PUSH_OK", b"", peer, where, base=frag.version, weight=self._slowest(frag),
                         flags=proto.HAVE if again else 0)

    def _slowest(self, frag):
        return min(frag.clocks.get(w, 0) for w in range(self.workers))

    def _latest(self, h, peer, where, frag):
        fmt = frag.table.declare.pull_format
        vector = bytes(frag.clocks.get(w, 0) & 255 for w in range(proto.clock_vector(1, self.workers)))
        self._answer(h, "RESULT", pbox_math.pack(frag.value, fmt) + vector, peer, where, format=fmt, flags=proto.LAST,
                     round=frag.version, base=frag.clocks.get(h.worker, 0), aux=self.workers,
                     weight=self._slowest(frag))

    def _pull(self, h, peer, where, frag):
        if frag.table.declare.discipline:
            lacks = 0 if h.flags & proto.LATEST else h.base - self._slowest(frag)
            if not frag.ready:
                self._answer(h, "WAIT", b"", peer, where, base=frag.version)
            elif 0 < lacks < 1 << 31:  # there is no room for its wish: it comes again
                behind = min(range(self.workers), key=lambda w: frag.clocks.get(w, 0))
                self._answer(h, "WAIT", b"", peer, where, base=frag.version, weight=behind, aux=min(lacks, 65535))
            else:
                self._latest(h, peer, where, frag)
            return
        if frag.ready and (h.round == frag.version or h.flags & proto.LATEST):
            if frag.value is None:
                raise Drop("round_stale")
            self._result(h, peer, where, frag)
            return
        if h.round < frag.version:
            raise Drop("round_stale")
        if h.round > frag.version + 1:
            raise Drop("round_future")
        self._will_wait(h, frag)
        self._wait(h, peer, where, frag)

    def _contribution(self, h, payload, peer, where, frag):
        d = frag.table.declare
        if h.format != d.push_format:
            raise Drop("format")
        size = proto.payload_bytes(d.push_format, frag.elements)
        if len(payload) != (0 if h.flags & proto.ZERO else size):
            raise Drop("length")
        if not h.flags & proto.LAST:
            raise Drop("partial")
        if d.discipline:
            self._clock(h, payload, peer, where, frag)
            return
        if h.round < frag.version or h.round == 0:
            raise Drop("round_stale")
        if h.round > frag.version + 1:
            raise Drop("round_future")
        if not frag.ready:
            self._wait(h, peer, where, frag)
            return
        asks = h.name == "PUSHPULL"
        if h.round == frag.version:
            if asks:
                self._result(h, peer, where, frag)
            else:
                self._answer(h, "PUSH_OK", b"", peer, where, base=h.base)
            return
        first, slots = self._node(h, d)
        again = slots <= frag.slots
        if not again:
            hyper = self._hyper(frag, h)
            frag.parts[first] = pbox_math.unpack(payload or bytes(size), d.push_format)
            frag.weights[first] = h.weight
            frag.slots |= slots
        if asks:
            self._will_wait(h, frag)
        else:
            self._answer(h, "PUSH_OK", b"", peer, where, base=h.base)
        if len(frag.slots) == self.slots:
            self._finish(frag, hyper)
            self._publish(h, frag, where)
        elif asks and again:
            self._wait(h, peer, where, frag)

    def _node(self, h, declare):
        """(first slot, all slots) of what a frame brings (R5.2b)."""
        if not self.named:
            return h.worker, {h.worker}
        node = h.base & 0xFFFF, h.base >> 16
        own = pbox_math.own_slots(h.worker, self.workers, self.slots)
        leaves = declare.op == proto.OPS["weighted_mean"]
        if node not in ([(s, 0) for s in own] if leaves else pbox_math.nodes_of(own, self.slots)):
            raise Refuse("BAD_REQUEST")
        return node[0], set(pbox_math.node_slots(node, self.slots))

    def _hyper(self, frag, h):
        """Hyper-parameters of the round in progress (R7.2)."""
        if frag.box is None:
            return {}
        names = {number: name for name, number in proto.HYPER.items()}
        hyper = dict(frag.box.hyper)
        for from_round, group, params in frag.table.sets:
            if from_round <= h.round and group in (proto.ALL_GROUPS, frag.table.group[h.chunk]):
                hyper.update({names[i]: value for i, value in params})
        if hyper["lr"] is None:
            raise Refuse("NO_LR")
        return hyper

    def _finish(self, frag, hyper):
        order = sorted(frag.parts)
        value = pbox_math.reduce([frag.parts[n] for n in order], [frag.weights[n] for n in order],
                                 frag.table.declare.op, order, self.slots)
        frag.aux, frag.samples = self.slots, sum(frag.weights.values())
        frag.version += 1
        if frag.box is not None:
            frag.box.hyper = hyper
            frag.box.step(value, frag.version)
            value = frag.box.params
        frag.value = value
        frag.parts, frag.weights, frag.slots = {}, {}, set()


def main():
    p = argparse.ArgumentParser(description="A small PBox server for tests.")
    p.add_argument("--job", default="job")
    p.add_argument("--secret", default="secret")
    p.add_argument("--workers", type=int, default=1)
    p.add_argument("--port", type=int, default=proto.CONTROL_PORT)
    p.add_argument("--loss", type=float, default=0.0)
    args = p.parse_args()
    box = FakeBox(args.job, args.secret, args.workers, loss=args.loss, port=args.port)
    print(box.address, flush=True)
    try:
        box.run()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
