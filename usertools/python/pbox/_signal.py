# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""SIGTERM leaves the job first: launchers (torchrun, Slurm, Kubernetes) end workers with it, and
a session that is not closed lasts until its lease ends.

Only where nobody else handles the signal. A handler in Python runs in the main thread between two
instructions of the interpreter: too late where that thread is in a C call without an end of its
own (DistributedDataParallel's backward). So the C part of Python's handler writes to a pipe, at
once, and a thread of ours reads it, leaves, and ends the process as the signal would have.
"""

import ctypes
import os
import signal
import threading
from typing import Callable, Optional

_LEAVE_SECONDS = 3.0  # Slurm and Kubernetes kill after 30 s, people after less

_pid: Optional[int] = None
_leave: Optional[Callable[[], None]] = None


_ended = threading.Event()


def _handler(number: int, frame: object) -> None:
    """The thread does it all; the program does not go on meanwhile."""
    _ended.wait(_LEAVE_SECONDS + 1)


def _in_child() -> None:
    """A child shares the pipe: a data loader that is ended would end the training."""
    if _pid is not None and signal.getsignal(signal.SIGTERM) is _handler:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


os.register_at_fork(after_in_child=_in_child)


def _end(read: int) -> None:
    while True:
        try:
            got = os.read(read, 64)
        except OSError:
            return
        if not got:
            return
        if signal.SIGTERM in got:
            break
    if signal.getsignal(signal.SIGTERM) is not _handler or _pid != os.getpid():
        return  # the program has one of its own by now
    # a session whose box does not answer must not keep the process
    leaving = threading.Thread(target=_leave, name="pbox-leave", daemon=True)
    leaving.start()
    leaving.join(_LEAVE_SECONDS)
    # signal.signal() is for the main thread alone
    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    libc.signal(int(signal.SIGTERM), None)  # SIG_DFL
    os.kill(os.getpid(), signal.SIGTERM)


def leave_on_sigterm(leave: Callable[[], None]) -> None:
    """Call leave() on SIGTERM, then die of it; nothing where the program handles the signal, or
    where this is not the main thread."""
    global _pid, _leave
    if threading.current_thread() is not threading.main_thread() or _pid == os.getpid() or \
            signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    read, write = os.pipe()
    os.set_blocking(write, False)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    if before != -1:  # an event loop's
        signal.set_wakeup_fd(before)
        os.close(read)
        os.close(write)
        return
    _pid, _leave = os.getpid(), leave
    signal.signal(signal.SIGTERM, _handler)
    threading.Thread(target=_end, args=(read,), name="pbox-sigterm", daemon=True).start()
