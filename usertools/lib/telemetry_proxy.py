# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The telemetry of a box for readers alone: who may connect here can watch, and can change nothing.

Anyone who may write to DPDK's own telemetry socket may also end sessions, drain the box and take snapshots, so that
is its owner's alone. This hands on the questions of ALLOWED, from any number of connections over one to the box.
"""

import collections
import json
import os
import selectors
import socket
import stat
import sys
import time

from pbox_box import BUFFER, BoxError

PROXY = "/run/pbox-telemetry.sock"
# all that the exporter asks; none of these changes the box, whatever its parameters are
ALLOWED = {"/pbox/" + name for name in ("counters", "stats", "cores", "ports", "pools", "drops", "health", "jobs", "workers",
                                  "work", "tables", "boxes", "racks", "moving", "times", "why")}
READERS = 32
# this one asks a data core as well: no more often in a second
ASKS_CORES, OFTEN = "/pbox/why", 20
FIRST_FD = 3  # systemd's


def listener(path):
    """The socket that systemd hands over, or one at a path."""
    if os.environ.get("LISTEN_PID") == str(os.getpid()) and os.environ.get("LISTEN_FDS") == "1":
        return socket.socket(fileno=FIRST_FD)
    if os.path.exists(path) and stat.S_ISSOCK(os.stat(path).st_mode):
        os.unlink(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.bind(path)
    sock.listen(READERS)
    return sock


class Proxy:
    def __init__(self, box, sock):
        self.box, self.sock, self.readers = box, sock, set()
        self.asked = collections.deque(maxlen=OFTEN)  # when cores were asked
        self.selector = selectors.DefaultSelector()
        sock.setblocking(False)
        self.selector.register(sock, selectors.EVENT_READ)

    def upstream(self, line):
        """The box's answer, as it came; a box that was started again is found again."""
        for attempt in range(2):
            try:
                if self.box.sock is None:
                    self.box.connect()
                self.box.sock.send(line)
                answer = self.box.sock.recv(BUFFER)
                if answer:
                    return answer
                raise BoxError("the box has gone")
            except (OSError, BoxError) as e:
                self.box.close()
                if attempt:
                    raise BoxError(str(e)) from e
        return b""

    def accept(self):
        reader, _ = self.sock.accept()
        try:
            if len(self.readers) >= READERS:
                raise BoxError("too many readers")
            if self.box.sock is None:
                self.box.connect()
            reader.setblocking(False)
            reader.send(json.dumps(self.box.about).encode())
        except (OSError, BoxError) as e:
            print(f"pbox-exporter: {e}", file=sys.stderr)
            reader.close()
            return
        self.readers.add(reader)
        self.selector.register(reader, selectors.EVENT_READ)

    def drop(self, reader):
        self.selector.unregister(reader)
        self.readers.discard(reader)
        reader.close()

    def too_often(self, command):
        now = time.monotonic()
        if command != ASKS_CORES:
            return False
        if len(self.asked) == OFTEN and now - self.asked[0] < 1:
            return True
        self.asked.append(now)
        return False

    def serve(self, reader):
        try:
            line = reader.recv(4096)
            if not line:
                raise BoxError("it has gone")
            command = line.split(b",")[0].decode(errors="replace")
            if command in ALLOWED and self.too_often(command):
                answer = json.dumps({command: {"error": f"readers ask this {OFTEN} times a second at most"}}).encode()
            elif command in ALLOWED:
                answer = self.upstream(line)
            else:
                answer = json.dumps({command: {"error": "this socket is for watching: ask as the box's user"}}).encode()
            reader.send(answer)  # who does not read is dropped: nobody waits for him
        except (OSError, BoxError):
            self.drop(reader)

    def run(self):
        while True:
            for key, _ in self.selector.select():
                try:
                    if key.fileobj is self.sock:
                        self.accept()
                    elif key.fileobj in self.readers:
                        self.serve(key.fileobj)
                except BlockingIOError:
                    pass


def serve_proxy(box, path=None):
    try:
        sock = listener(path or PROXY)
    except OSError as e:
        print(f"pbox-exporter: {path or PROXY}: {e}", file=sys.stderr)
        return 2
    try:
        Proxy(box, sock).run()
    except KeyboardInterrupt:
        pass
    return 0
