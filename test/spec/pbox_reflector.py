#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Sends back all UDP over IPv4 that comes to an interface, until it is ended, and errs in one fragment of a worker: in its
payload a bit is not what it was. With --seal its frame has a CRC that is right all the same, as if the sum had been wrong; then
it is so each time that it is asked for."""

import argparse
import socket
import sys

from pbox_proto import HEADER, HEADER_LEN, Header, crc32c

HEADERS, CRC_AT = 42, HEADER_LEN - 4


def reflect(frame):
    frame[0:6], frame[6:12] = frame[6:12], frame[0:6]
    frame[26:30], frame[30:34] = frame[30:34], frame[26:30]
    frame[34:36], frame[36:38] = frame[36:38], frame[34:36]


def contribution(frame):
    """Which one, however often it comes: a slow machine has repeats."""
    h = Header(*HEADER.unpack_from(frame, HEADERS)[2:])
    return h.job, h.worker, h.chunk, h.frag, h.round


def err(frame, bit, seal):
    payload = HEADERS + HEADER_LEN
    at = payload + (bit // 8 if bit >= 0 else len(frame) - payload + bit // 8)
    frame[at] ^= 1 << bit % 8
    frame[40:42] = b"\0\0"  # no UDP checksum
    if seal:
        crc = crc32c(bytes(frame[HEADERS:HEADERS + CRC_AT]), crc32c(bytes(frame[payload:])))
        frame[HEADERS + CRC_AT:payload] = crc.to_bytes(4, "little")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--interface", default="eth0")
    parser.add_argument("--frame", type=int, required=True, help="which one is changed, repeats not counted; 0 is the first")
    parser.add_argument("--bit", type=int, required=True, help="of the payload; -1 is its last one")
    parser.add_argument("--seal", action="store_true")
    args = parser.parse_args()
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800)) as s:
        s.bind((args.interface, 0x0800))
        print("ready", flush=True)
        seen, erred = {}, False
        while True:
            data, where = s.recvfrom(65536)
            if where[2] == socket.PACKET_OUTGOING or len(data) <= HEADERS + HEADER_LEN or data[23] != socket.IPPROTO_UDP:
                continue
            frame = bytearray(data)
            reflect(frame)
            if seen.setdefault(contribution(frame), len(seen)) == args.frame and (args.seal or not erred):
                err(frame, args.bit, args.seal)
                erred = True
            s.send(frame)


if __name__ == "__main__":
    sys.exit(main())
