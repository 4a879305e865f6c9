# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""What the box's link reports about its latency.

residency.py DEVICE WORKERS: looks at the frames of a bridge port until SIGTERM, then prints lines
"NAME COUNT P50 P99 P99.9", in microseconds: served_us is the field of that name of all results,
link_us the time from a fragment's last contribution to its first result. Results are seen when
they come in from the box, contributions when they go out to it.
"""

import signal
import socket
import struct
import sys
import time

SO_RCVBUFFORCE, SO_TIMESTAMPNS = 33, 35
HEADERS = 14 + 20 + 8  # Ethernet, IPv4 without options, UDP
PUSHPULL, RESULT, MAGIC = 0x24, 0x23, 0xB5


def percentile(values, share):
    return values[min(len(values) - 1, int(share * len(values)))]


def main():
    device, workers = sys.argv[1], int(sys.argv[2])
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(time.monotonic()))
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 256 << 20)
    s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    s.bind((device, 3))  # ETH_P_ALL
    s.settimeout(0.1)
    print("ready", flush=True)
    # what a packet says is kept as it is: the time to judge it is after the run
    seen = []
    # what came before the signal counts: until the queue is empty, but not without end
    while not stop or time.monotonic() < stop[0] + 5:
        try:
            data, extra, _, _ = s.recvmsg(HEADERS + 62, 64)
        except TimeoutError:
            if stop:
                break
            continue
        if len(data) == HEADERS + 62 and data[HEADERS] == MAGIC and extra:
            seen.append((extra[0][2], data[HEADERS:]))
    arrived, last, served, link = {}, {}, [], []
    for stamp, h in seen:
        kind = h[2]
        if kind not in (PUSHPULL, RESULT):
            continue
        seconds, ns = struct.unpack("ll", stamp)
        now = seconds * 10**9 + ns
        job, worker = struct.unpack_from("<HH", h, 14)
        key = (job, *struct.unpack_from("<IH", h, 22), *struct.unpack_from("<I", h, 30))
        if kind == PUSHPULL:
            who = arrived.setdefault(key, set())
            who.add(worker)
            if len(who) == workers:
                last.setdefault(key, now)
            continue
        served.append(struct.unpack_from("<H", h, 40)[0])
        at = last.pop(key, None)
        if at is not None and now > at:
            link.append((now - at) / 1e3)
    for name, values in (("served_us", served), ("link_us", link)):
        values.sort()
        if values:
            print(name, len(values), percentile(values, 0.5), percentile(values, 0.99),
                  percentile(values, 0.999))


main()
