# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The session of a minimal PBox worker, from doc/protocol.md alone: all of it but section 10, for it ends
when the box restarts. For tests of the box, not for speed. One thread, one socket, one frame a
datagram; every call has a deadline."""

import hashlib
import hmac
import os
import random
import select
import socket
import time

import pbox_auth
import pbox_math
import pbox_proto as proto
from pbox_joining import FIRST_RTO, REFUSALS, SPREE, SPREE_TIME, BoxError, Joining, ShutDown, Timeout
from pbox_proto import Header, TYPE

MIN_RTO, MAX_RTO = 0.02, 1.0
PROBE = 0.2  # R6.9: at least 100 ms
DOUBT = 0.5  # R11.6
IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2  # Linux; not named in the socket module


class Table:
    def __init__(self, number, tensors, declare):
        self.number, self.tensors, self.declare = number, tensors, declare
        self.chunks, self.frag_elements, self.epoch = [], 0, 0


class _Item:
    """A fragment on its way: what to send, and what ends it."""

    def __init__(self, kind, chunk, frag, span, header, payload):
        self.kind, self.chunk, self.frag, self.span = kind, chunk, frag, span
        self.header, self.payload = header, payload
        self.due, self.rto, self.sent, self.probing = 0.0, 0.0, 0, False
        self.endpoint = chunk.endpoint
        self.base = header.base
        self.nodes, self.at = [self], 0  # by nodes (R6.2): what is sent for each, and which one is under way

    @property
    def last(self):
        return self.at == len(self.nodes) - 1

    def go_on(self, at):
        self.at, self.sent, self.rto, self.probing = at, 0, 0.0, False


class Worker:
    def __init__(self, box, job, secret, worker=proto.ANY_WORKER, workers=1, mtu=1500, window=64,
                 lease_ms=0, host=None, deadline=30.0, port=None, slots=0):
        ip, _, p = box.partition(":")
        self.control = (ip, int(port or p or proto.CONTROL_PORT))
        self.job_name, self.workers, self.mtu = job, workers, mtu
        self.secret = secret.encode() if isinstance(secret, str) else secret
        self.wanted, self.window, self.lease_ms = worker, window, lease_ms
        self.slots = slots  # R5.2b; 0: as many as workers
        self.host = host or socket.gethostname()
        self.deadline = deadline
        self.token = self.job = self.worker = self.incarnation = 0
        self.keys, self.job_key = None, None  # with auth: (worker's, box's)
        self.doubt = None  # since when there is a SESSION error that has no tag
        self.request_id = random.randrange(1, 1 << 30)
        self.tables = {}
        self.srtt = None
        self.counts = {"sent": 0, "received": 0, "retransmitted": 0, "bytes": 0, "ignored": 0}
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.sock.setblocking(False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    # ---- datagrams -------------------------------------------------------------------------

    def _send(self, header, payload, to, again=False):
        header.token, header.job, header.worker = self.token, self.job, self.worker
        header.incarnation = self.incarnation
        now = (1 << 32) + int(time.monotonic() * 1e6)  # R4.9: the upper half is sent, and is not 0
        header.ts, header.held = now & 0xFFFFFFFF, now >> 32 & 0xFFFFFFFF
        if again:
            header.flags |= proto.RETX
            self.counts["retransmitted"] += 1
        if self.keys:
            raw = pbox_auth.seal(header, payload, self.keys[0], self.job_key)
        else:
            raw = proto.encode_frame(header, payload)
        self.counts["sent"] += 1
        self.counts["bytes"] += len(raw)
        try:
            self.sock.sendto(raw, to)
        except (BlockingIOError, ConnectionRefusedError):
            pass  # as good as lost: the timer repeats it

    def _receive(self, wait):
        """Good frames that arrived within `wait` seconds."""
        if not select.select([self.sock], [], [], max(0.0, wait))[0]:
            return []
        out = []
        for _ in range(256):
            try:
                raw, peer = self.sock.recvfrom(65536)
            except BlockingIOError:
                break
            except ConnectionRefusedError:
                continue
            if peer[0] != self.control[0] and peer not in self.endpoints_known():
                self.counts["ignored"] += 1
                continue
            for drop, header, payload in proto.decode_datagram(raw):
                if drop or (self.token and header.token != self.token) or \
                        (self.keys and not self._authentic(header, payload)):
                    self.counts["ignored"] += 1
                    continue
                self.counts["received"] += 1
                if not self.token:  # what has no session ends none
                    out.append((header, payload))
                    continue
                if header.name == "LEFT" and header.chunk == 0 and header.aux == 1:
                    raise ShutDown("the box shuts down")
                if header.name == "ERROR" and not payload and \
                        header.aux == proto.ERROR["SESSION"]:
                    raise BoxError(header.aux, "the box does not know this session")
                if header.name in ("PING", "PONG") and (header.round or header.base):
                    self._send(Header(type=TYPE["PING"], chunk=0, round=header.round,
                                      base=header.base), b"", peer)  # R4.9: our address
                out.append((header, payload))
        return out

    def _authentic(self, header, payload):
        """R11.5; and R11.6 for an ERROR that anybody may have sent."""
        if header.flags & proto.AUTH:
            good = pbox_auth.good(header.frame, self.keys[1], self.job_key)
            if good:
                self.doubt = None
            return good
        if header.name != "ERROR" or payload or header.aux != proto.ERROR["SESSION"]:
            return False
        now = time.monotonic()
        if self.doubt is None:
            self.doubt = now
        if now - self.doubt < DOUBT:
            self._send(Header(type=TYPE["PING"], chunk=self.request_id + (1 << 31)), b"",
                       self.control)
            return False
        return True

    def endpoints_known(self):
        return getattr(self, "endpoints", [])

    # ---- control ---------------------------------------------------------------------------

    def request(self, kind, payload=b"", to=None, what=""):
        """Send a request until it is answered (R3.1); (header, message) of the answer. Raises
        BoxError for an ERROR."""
        self.request_id += 1
        end = time.monotonic() + self.deadline
        rto, due, sent = FIRST_RTO, 0.0, 0
        while time.monotonic() < end:
            now = time.monotonic()
            if now >= due:
                header = Header(type=TYPE[kind], chunk=self.request_id)
                self._send(header, payload, to or self.control, sent > 0)
                due, rto, sent = now + rto, min(rto * 2, MAX_RTO), sent + 1
            for header, raw in self._receive(min(due, end) - time.monotonic()):
                if header.type >= proto.FIRST_DATA_TYPE or header.chunk != self.request_id:
                    continue
                message = proto.MESSAGES.get(header.type)
                try:
                    message = message.unpack(raw) if message and raw else raw
                except proto.Malformed:
                    self.counts["ignored"] += 1
                    continue
                if header.name == "ERROR":
                    code = message.code if raw else header.aux
                    raise BoxError(code, getattr(message, "text", ""),
                                   getattr(message, "detail", 0))
                return header, message, raw
        raise Timeout(f"no answer to {kind} {what} within {self.deadline} s")

    def join(self):
        """HELLO, JOIN, WELCOME (section 4). A refusal with a proof is raised at once, one without when R9.3 says so."""
        join = proto.Join(nonce=int.from_bytes(os.urandom(8), "little"), worker=self.wanted,
                          workers=self.workers, mtu=self.mtu, window=self.window,
                          lease_ms=self.lease_ms, job=self.job_name, host=self.host, auth=1, can=proto.CAN_CLOCK)
        if self.slots:
            join.slots, join.needs = self.slots, proto.CAN_SLOTS
            join.can |= proto.CAN_SLOTS
        j, end = Joining(), time.monotonic() + self.deadline
        while time.monotonic() < end:
            now = time.monotonic()
            if now >= j.due:
                if j.refusals >= REFUSALS:
                    raise j.refusal
                self._ask_to_join(j, join)
                if j.tried < len(j.cookies):
                    j.due = j.next_spree
                else:
                    j.due, j.rto = now + j.rto, min(j.rto * 2, MAX_RTO)
            for header, raw in self._receive(min(j.due, end) - time.monotonic()):
                if header.chunk not in j.ids or header.name not in ("RETRY", "ERROR", "WELCOME"):
                    continue
                try:
                    message = proto.MESSAGES[header.type].unpack(raw)
                except proto.Malformed:
                    self.counts["ignored"] += 1
                    continue
                if header.name == "RETRY":
                    j.retry(message.cookie)
                elif header.name == "ERROR":
                    self._refused(j, join, header, message, raw)
                elif self._welcomed(j, join, header, message, raw):
                    return message
        if j.refusal:
            raise j.refusal
        raise Timeout(f"nobody took this worker in within {self.deadline} s")

    def _ask_to_join(self, j, join):
        if j.refused or not j.ids:
            j.ids, j.refused = [random.randrange(1, 1 << 32), *j.ids[:1]], False
            j.rto = FIRST_RTO
        if not j.cookies:
            j.heard = 0
            self._send(Header(type=TYPE["HELLO"], chunk=j.ids[0]), proto.Hello().pack(), self.control)
            return
        if j.tried == len(j.cookies):
            j.tried = 0
        for join.cookie in j.cookies[j.tried:j.tried + SPREE]:
            join.proof = bytes(proto.PROOF_LEN)
            join.proof = self._hmac(proto.JOIN_PREFIX, join.pack())
            self._send(Header(type=TYPE["JOIN"], chunk=j.ids[0]), join.pack(), self.control)
            j.tried += 1
        j.next_spree = time.monotonic() + SPREE_TIME

    def _refused(self, j, join, header, message, raw):
        if message.code == proto.ERROR["COOKIE"]:
            j.cookies, j.tried, j.refusals = j.cookies[j.tried:], 0, 0
            if not j.cookies:
                j.due = time.monotonic() + FIRST_RTO
            return
        if message.code == proto.ERROR["VERSION"] and message.detail == proto.VERSION:
            return  # it speaks ours: the HELLO was damaged
        error = BoxError(message.code, message.text, message.detail)
        proven = proto.Error.proven(raw)
        if self.secret and proven and proven[0] == join.nonce and proven[1] in j.ids and \
                hmac.compare_digest(self._hmac(proto.ERROR_PREFIX, proven[2]), proven[3]):
            raise error
        j.refuse(header, message.code, error)

    def _welcomed(self, j, join, header, welcome, raw):
        if welcome.nonce != join.nonce:
            return False
        covered = bytearray(proto.Welcome.proven(raw))
        at = proto.WELCOME_PROOF_AT
        covered[at:at + proto.PROOF_LEN] = bytes(proto.PROOF_LEN)
        # R4.5: a job without a secret has the empty one, and takes workers that have one
        keys = [self.secret] + ([b""] if welcome.flags & proto.WELCOME_INSECURE else [])
        if not any(hmac.compare_digest(hmac.new(key, proto.WELCOME_PREFIX + bytes(covered), hashlib.sha256).digest(),
                                       welcome.proof) for key in keys):
            j.refuse(header, "WELCOME", BoxError(proto.ERROR["SECRET"], "the box does not know the secret"))
            return False
        if not self._keys(header, welcome):
            return False
        if self.slots and not welcome.flags & proto.CAN_SLOTS:  # R4.10
            raise BoxError(proto.ERROR["UNSUPPORTED"], "the box takes no slots")
        self.token, self.job, self.worker = welcome.token, welcome.job, welcome.worker
        self.incarnation = welcome.incarnation
        self.welcome = welcome
        self.endpoints = [tuple(e) for e in welcome.endpoints]
        self.path_mtu = min(self.mtu, welcome.mtu) - (proto.TAG_LEN if self.keys else 0)
        self.cwnd = [float(max(1, welcome.window))] * len(self.endpoints)
        return True

    def _keys(self, header, welcome):
        """The keys of a session with auth (R11.2); False where WELCOME's tag is not good (R11.7)."""
        if not welcome.flags & proto.WELCOME_AUTH:
            return True
        keys = pbox_auth.session_keys(self.secret, welcome)
        job = pbox_auth.job_key(self.secret, welcome.incarnation, welcome.job)
        if not header.flags & proto.AUTH or not pbox_auth.good(header.frame, keys[1], job):
            return False
        self.keys, self.job_key = keys, job
        return True

    def _hmac(self, prefix, payload):
        return hmac.new(self.secret, prefix + payload, hashlib.sha256).digest()

    def declare(self, number, tensors, mode=0, op=0, optimiser=0, push_format=1, pull_format=1, discipline=0):
        """Declare a table: tensors is a list of (elements, group, name)."""
        entries = [proto.Tensor(*t) for t in tensors]
        if discipline and not self.welcome.flags & proto.CAN_CLOCK:  # R4.10
            raise BoxError(proto.ERROR["UNSUPPORTED"], "the box has no tables in clocks")
        page = proto.Declare(number, len(entries), 0, mode, op, optimiser, push_format, pull_format,
                             discipline=discipline)
        self.tables[number] = Table(number, entries, page)
        room = self.path_mtu - proto.OVERHEAD
        first = 0
        while True:
            page.first, page.entries, size = first, [], 24
            while first + len(page.entries) < len(entries):
                entry = entries[first + len(page.entries)]
                size += len(entry.pack())
                if size > room:
                    break
                page.entries.append(entry)
            self.request("DECLARE", page.pack(), what=f"table {number}")
            first += len(page.entries)
            if first >= len(entries):
                return self.tables[number]

    def map(self, number):
        """Wait for the others and learn the chunks of a table (R5.5)."""
        table = self.tables[number]
        end = time.monotonic() + self.deadline
        table.chunks = []
        while True:
            ask = proto.Map(number, len(table.chunks)).pack()
            header, m, _ = self.request("MAP", ask, what=f"table {number}")
            if header.name == "NOT_READY":
                if time.monotonic() > end:
                    raise Timeout(f"not ready: {m.joined} of {m.expected} joined, {m.declared} "
                                  f"declared, worker {m.first_missing} missing: {m.text}")
                time.sleep(0.05)
                continue
            if m.first != len(table.chunks):
                continue
            table.chunks += m.entries
            table.frag_elements, table.epoch = m.frag_elements, header.map_epoch
            if len(table.chunks) >= m.chunks:
                return table

    def set(self, number, params, group=proto.ALL_GROUPS, from_round=1):
        """Set hyper-parameters by name."""
        pairs = [(proto.HYPER[name], value) for name, value in params.items()]
        self.request("SET", proto.Set(number, group, from_round, pairs).pack())

    def status(self):
        """All pages of STATUS as one."""
        whole = None
        while whole is None or len(whole.members) < whole.workers:
            first = len(whole.members) if whole else 0
            _, m, _ = self.request("STATUS", proto.Status(first).pack())
            if whole is None:
                whole = m
            else:
                whole.members += m.members
            if not m.members:
                break
        return whole

    def ping(self, size=0, endpoint=None):
        """Seconds of the round trip; the datagram has `size` bytes of IP packet."""
        start = time.monotonic()
        payload = bytes(i & 0xFF for i in range(max(0, size - proto.OVERHEAD)))
        to = None if endpoint is None else self.endpoints[endpoint]
        _, _, raw = self.request("PING", payload, to)
        if raw != payload:
            raise BoxError(0, "PONG differs from PING")
        return time.monotonic() - start

    def leave(self):
        """End the session (R8.4)."""
        try:
            self.request("LEAVE")
        except BoxError as e:
            if e.code != proto.ERROR["SESSION"]:
                raise
        self.token, self.keys = 0, None

    # ---- data ------------------------------------------------------------------------------

    def _items(self, table, kind, type_, round_, raw, fmt, flags=0, weight=0):
        """One item for each fragment; raw: bytes of each tensor, or None."""
        size = proto.FORMAT_SIZE[fmt] if raw is not None else 0
        out = []
        for chunk in table.chunks:
            whole = b"" if raw is None else b"".join(
                raw[tensor][at * size:(at + n) * size] for at, tensor, n in chunk.segments)
            for frag, (a, b) in enumerate(proto.fragments(chunk.elements, table.frag_elements)):
                header = Header(type=TYPE[type_], flags=flags, chunk=chunk.chunk_id, frag=frag,
                                round=round_, map_epoch=table.epoch)
                payload = whole[a * size:b * size]
                if raw is not None:
                    header.format = fmt
                    if kind != "init":
                        header.aux, header.weight = proto.LR_MUL_ONE, weight
                        if payload.count(0) == len(payload):
                            header.flags |= proto.ZERO
                            payload = b""
                out.append(_Item(kind, chunk, frag, (a, b), header, payload))
        return out

    @staticmethod
    def _key(item):
        base = item.base if item.kind == "init" else 0
        kind = "pull" if item.kind == "pushpull" else item.kind
        return kind, item.header.chunk, item.header.frag, base

    def _rto(self):
        return MIN_RTO if self.srtt is None else min(max(4 * self.srtt, MIN_RTO), MAX_RTO)

    def _transmit(self, item, table, now):
        """Send an item, or probe for it (R6.4)."""
        header, payload = item.nodes[item.at].header, item.nodes[item.at].payload
        if not item.last:
            header.type = TYPE["PUSH"]
        if item.probing and item.kind == "pushpull":
            header = Header(type=TYPE["PULL"], chunk=header.chunk, frag=header.frag,
                            round=header.round, map_epoch=table.epoch)
            payload = b""
        self._send(header, payload, self.endpoints[item.endpoint], item.sent > 0)
        item.rto = PROBE if item.probing else min(item.rto * 2, MAX_RTO) or max(self._rto(),
                                                                                FIRST_RTO)
        item.sent += 1
        item.due = now + item.rto

    def _exchange(self, table, items, finish):
        """Bring all items to their end within the windows of their endpoints (R6.9)."""
        queues = [[] for _ in self.endpoints]
        for item in reversed(items):
            queues[item.endpoint].append(item)
        active, flying = {}, [0] * len(self.endpoints)
        left, end = len(items), time.monotonic() + self.deadline
        while left:
            now = time.monotonic()
            if now > end:
                raise Timeout(f"{left} of {len(items)} fragments of table {table.number} "
                              f"unfinished after {self.deadline} s")
            for e, queue in enumerate(queues):
                while queue and flying[e] < min(int(self.cwnd[e]), self.welcome.window or 1):
                    item = queue.pop()
                    active[self._key(item)] = item
                    flying[e] += 1
                    self._transmit(item, table, now)
            due = end
            for item in active.values():
                if item.due <= now:
                    if not item.probing:
                        self.cwnd[item.endpoint] = max(1.0, self.cwnd[item.endpoint] / 2)
                    self._transmit(item, table, now)
                due = min(due, item.due)
            for header, payload in self._receive(due - time.monotonic()):
                item = self._answered(header, payload, active, table, finish)
                if item is not None:
                    flying[item.endpoint] -= 1
                    left -= 1

    def _answered(self, header, payload, active, table, finish):
        """Take an answer to a data frame; the item that it ends, or None."""
        kind = {"PUSH_OK": "push", "RESULT": "pull", "WAIT": "pull", "INIT_OK": "init"}.get(
            header.name)
        if header.name == "ERROR" and not payload:
            raise BoxError(header.aux, f"chunk {header.chunk} fragment {header.frag} "
                           f"round {header.round}")
        key = kind, header.chunk, header.frag, header.base if kind == "init" else 0
        item = active.get(key)
        if item is None and header.name == "WAIT":  # a PUSH before INIT is answered WAIT (R6.8)
            item = active.get(("push",) + key[1:])
        if item is None and header.name == "PUSH_OK":  # of a node that is not the last one (R6.2)
            item = active.get(("pull",) + key[1:])
        if item is None or (header.round != item.header.round and not item.header.flags & proto.LATEST and
                            not (table.declare.discipline and item.kind == "pull")):
            self.counts["ignored"] += 1
            return None
        now = time.monotonic()
        rtt = ((int(now * 1e6) - header.ts - header.held) & 0xFFFFFFFF) / 1e6
        if rtt < 10:
            self.srtt = rtt if self.srtt is None else 0.875 * self.srtt + 0.125 * rtt
        if header.name == "PUSH_OK" and self.slots and (
                header.base != item.nodes[item.at].header.base or not item.last):
            if header.base == item.nodes[item.at].header.base:  # R6.3: else a copy, of a node before
                item.go_on(item.at + 1)
                self._transmit(item, table, now)
            return None
        if header.name == "WAIT" and self.slots and item.kind != "pull" and \
                not header.flags & proto.HAVE:  # R6.6
            item.go_on(self._with_slot(item, header.base))
            item.due = now + PROBE / 4  # it may wait for INIT
            return None
        if header.name == "WAIT":
            have = header.flags & proto.HAVE or item.kind == "pull"
            if item.probing and not have:
                item.probing, item.rto, item.due = False, 0.0, now  # it was lost: again, at once
            elif have:
                item.probing, item.due = True, now + PROBE
            else:
                item.due = now + PROBE / 2
            return None
        if not finish(item, header, payload):
            self.counts["ignored"] += 1
            return None
        window = self.welcome.window or 1
        at = self.cwnd[item.endpoint]
        self.cwnd[item.endpoint] = min(window, at + 1 / at)
        return active.pop(key)

    def _with_slot(self, item, slot):
        """The number of the item's node that has this slot."""
        starts = [n.header.base & 0xFFFF for n in item.nodes]
        return max([i for i, first in enumerate(starts) if first <= slot], default=0)

    def _collector(self, table):
        """(store, finish): finish puts RESULTs into store, the bytes of each tensor."""
        fmt = table.declare.pull_format
        size = proto.FORMAT_SIZE[fmt]
        store = [bytearray(t.elements * size) for t in table.tensors]

        def finish(item, header, payload):
            a, b = item.span
            if header.flags & proto.ZERO:
                payload = bytes((b - a) * size)
            if header.format != fmt or len(payload) != (b - a) * size:
                return False
            at = 0  # first element of the segment within the chunk
            for offset, tensor, n in item.chunk.segments:
                lo, hi = max(a, at), min(b, at + n)
                if lo < hi:
                    to = (offset + lo - at) * size
                    store[tensor][to:to + (hi - lo) * size] = \
                        payload[(lo - a) * size:(hi - a) * size]
                at += n
            return True

        return store, finish

    def _packed(self, table, values, fmt):
        return [pbox_math.pack(v, fmt) for v in values]

    def _unpacked(self, table, store):
        return [pbox_math.unpack(raw, table.declare.pull_format) for raw in store]

    def init(self, number, values):
        """Worker 0 of an optimiser table: the initial parameters, a vector for each tensor."""
        table = self.tables[number]
        raw = self._packed(table, values, proto.FORMATS["fp32"])
        step = proto.init_elements(self.path_mtu)
        items = []
        # P is of the smallest MTU of box and workers, which F shows where P x 4 bytes are F
        # elements of the wider format
        wide = max(proto.FORMAT_SIZE[table.declare.push_format],
                   proto.FORMAT_SIZE[table.declare.pull_format])
        step = min(step, table.frag_elements * wide // 4)
        for item in self._items(table, "init", "INIT", 0, raw, proto.FORMATS["fp32"]):
            for base in range(0, len(item.payload) // 4, step):
                header = Header(**vars(item.header))
                header.base = base
                items.append(_Item("init", item.chunk, item.frag, item.span, header,
                                   item.payload[base * 4:(base + step) * 4]))
        self._exchange(table, items, lambda *_: True)

    def own_nodes(self):
        """[(first, level)] of what this worker brings in a round (R5.2b)."""
        return pbox_math.nodes_of(pbox_math.own_slots(self.worker, self.workers, self.slots), self.slots)

    def _by_nodes(self, table, kind, type_, round_, nodes):
        """Items of a list of (node, values, weight), sent one after the other (R6.2)."""
        fmt, out = table.declare.push_format, None
        for node, values, weight in nodes:
            items = self._items(table, kind, type_, round_, self._packed(table, values, fmt), fmt, proto.LAST, weight)
            for item in items:
                item.header.base = proto.node_code(node)
            out = [[i] for i in items] if out is None else [[*a, b] for a, b in zip(out, items)]
        for group in out:
            group[0].nodes = group
        return [group[0] for group in out]

    def push_nodes(self, number, round_, nodes):
        table = self.tables[number]
        self._exchange(table, self._by_nodes(table, "push", "PUSH", round_, nodes), lambda *_: True)

    def pushpull_nodes(self, number, round_, nodes):
        table = self.tables[number]
        store, finish = self._collector(table)
        self._exchange(table, self._by_nodes(table, "pushpull", "PUSHPULL", round_, nodes), finish)
        return self._unpacked(table, store)

    def push(self, number, round_, values, weight=1):
        table = self.tables[number]
        fmt = table.declare.push_format
        items = self._items(table, "push", "PUSH", round_, self._packed(table, values, fmt), fmt,
                            proto.LAST, weight)
        self._exchange(table, items, lambda *_: True)

    def push_clock(self, number, clock, values, factor=proto.LR_MUL_ONE):
        """The push with this clock to a table in clocks (section 14); factor: the bits of a bf16 number."""
        table = self.tables[number]
        fmt = table.declare.push_format
        items = self._items(table, "push", "PUSH", clock, self._packed(table, values, fmt), fmt, proto.LAST, 1)
        for item in items:
            item.header.aux = factor
        self._exchange(table, items, lambda *_: True)

    def pull_clock(self, number, clock, bound=None):
        """(values, slowest clock) of the latest version, with all pushes up to this clock (R14.7); bound: so many clocks any worker may
        lack (R14.6)."""
        table = self.tables[number]
        store, finish = self._collector(table)
        slowest = []

        def take(item, header, payload):
            elements = payload[:len(payload) - proto.clock_vector(1, self.workers)]
            vector = payload[len(elements):]
            if vector and vector[self.worker] != header.base & 255:
                raise ValueError(f"the vector {vector.hex()} does not have clock {header.base} of worker {self.worker}")
            slowest.append(header.weight)
            return header.base == clock and finish(item, header, elements)

        items = self._items(table, "pull", "PULL", 0, None, 0, proto.LATEST if bound is None else 0)
        for item in items:
            item.header.base = 0 if bound is None else clock - bound & 0xFFFFFFFF
        self._exchange(table, items, take)
        return self._unpacked(table, store), min(slowest)

    def pull(self, number, round_=0, latest=False):
        table = self.tables[number]
        store, finish = self._collector(table)
        flags = proto.LATEST if latest else 0
        self._exchange(table, self._items(table, "pull", "PULL", round_, None, 0, flags), finish)
        return self._unpacked(table, store)

    def pushpull(self, number, round_, values, weight=1):
        table = self.tables[number]
        fmt = table.declare.push_format
        store, finish = self._collector(table)
        items = self._items(table, "pushpull", "PUSHPULL", round_,
                            self._packed(table, values, fmt), fmt, proto.LAST, weight)
        self._exchange(table, items, finish)
        return self._unpacked(table, store)
