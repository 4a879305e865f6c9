# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The largest frame that passes a device, to prove that packets are real.

sniff.py DEVICE: until SIGTERM, then prints "FRAMES LARGEST".
"""

import signal
import socket
import sys
import time

ETH_P_ALL = 3


def main():
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(time.monotonic()))
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    s.bind((sys.argv[1], 0))
    s.settimeout(0.1)
    frames = largest = 0
    print("ready", flush=True)
    # what came before the signal counts: until the queue is empty, but not without end
    while not stop or time.monotonic() < stop[0] + 5:
        try:
            # the length of the whole frame, of which only so much is taken
            size = s.recv_into(bytearray(64), 64, socket.MSG_TRUNC)
        except TimeoutError:
            if stop:
                break
            continue
        frames += 1
        largest = max(largest, size)
    print(frames, largest, flush=True)


main()
