#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Stop one thread of a process, the others go on: ptrace(2), as a debugger does. Until standard input ends, or the
process. Usage: stop_thread.py TID"""

import ctypes
import os
import select
import sys

SEIZE, INTERRUPT, WALL = 0x4206, 0x4207, 0x40000000
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long
tid = int(sys.argv[1])
for request in (SEIZE, INTERRUPT):
    if libc.ptrace(request, tid, None, None) != 0:
        sys.exit(f"thread {tid}: {os.strerror(ctypes.get_errno())}")
os.waitpid(tid, WALL)
print("stopped", flush=True)
# the kernel lets the thread go when this process ends; a thread that is gone has to be taken notice of
while not select.select([sys.stdin], [], [], 0.05)[0]:
    if os.waitpid(tid, WALL | os.WNOHANG)[0]:
        break
