#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The socket of a service manager: what is sent to it is printed, a line each, "MILLISECONDS NAME=VALUE".
Usage: notify_socket.py PATH"""

import socket
import sys
import time

s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
print("listening", flush=True)
while True:
    for line in s.recv(4096).decode().splitlines():
        print(int(time.monotonic() * 1000), line, flush=True)
