# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""SIGTERM leaves the job first: launchers (torchrun, Slurm, Kubernetes) end workers with it, and
a session that is not closed lasts until its lease ends.

Only where nobody else handles the signal. A handler in Python runs in the main thread between two
instructions of the interpreter: too late where that thread is in a C call without an end of its
own (DistributedDataParallel's backward). So the C part of Python's handler writes to a pipe, at
once, and a thread of ours reads it, leaves, and ends the process as the signal would have.

That pipe is the process's one wake-up fd, and asyncio takes it for itself. Then the handler writes to the pipe, as soon
as it runs; and what nobody has is taken again with the next operation.
"""

import ctypes
import os
import signal
import threading
import time
from typing import Callable, Optional

from . import _threads
from .errors import PBoxSystemError

_LEAVE_SECONDS = 3.0  # Slurm and Kubernetes kill after 30 s, people after less
_LOOK_SECONDS = 1.0

_pid: Optional[int] = None
_leave: Optional[Callable[[], None]] = None
_pipe = -1  # its end to write to
_looked = 0.0


_ended = threading.Event()


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _handler(number: int, frame: object) -> None:
    """The thread does it all; the program does not go on meanwhile."""
    try:
        os.write(_pipe, bytes([signal.SIGTERM]))
    except OSError:
        pass  # full: it has much to read
    _ended.wait(_LEAVE_SECONDS + 1)
    _die()  # the thread has not: the signal is not lost


def _die() -> None:
    # signal.signal() is for the main thread alone
    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    libc.signal(int(signal.SIGTERM), None)  # SIG_DFL
    os.kill(os.getpid(), signal.SIGTERM)


def _take_wakeup() -> None:
    before = signal.set_wakeup_fd(_pipe, warn_on_full_buffer=False)
    if before not in (-1, _pipe):  # an event loop's
        signal.set_wakeup_fd(before)


def _drop_wakeup() -> None:
    """Before a fork: a child shares the pipe, and a data loader that is ended would end the training."""
    if _pid is None or not _is_main():
        return
    before = signal.set_wakeup_fd(-1)
    if before not in (-1, _pipe):
        signal.set_wakeup_fd(before)


def _after_fork() -> None:
    if _pid == os.getpid() and _is_main() and signal.getsignal(signal.SIGTERM) is _handler:
        _take_wakeup()


def _in_child() -> None:
    _drop_wakeup()  # another thread has forked
    if _pid is not None and signal.getsignal(signal.SIGTERM) is _handler:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


os.register_at_fork(before=_drop_wakeup, after_in_parent=_after_fork, after_in_child=_in_child)


def _end(read: int) -> None:
    while True:
        try:
            got = os.read(read, 64)
        except OSError:
            return
        if not got:
            return
        # the program may have a handler of its own by now
        if signal.SIGTERM in got and signal.getsignal(signal.SIGTERM) is _handler and _pid == os.getpid():
            break
    # a session whose box does not answer must not keep the process
    try:
        _threads.start(_leave, "pbox-leave").join(_LEAVE_SECONDS)
    except PBoxSystemError:
        _leave()
    _die()


def look() -> None:
    """With each operation: has the wake-up fd been given back? asyncio leaves none when its loop is closed."""
    global _looked
    now = time.monotonic()
    if _pid is None or now - _looked < _LOOK_SECONDS or not _is_main() or _pid != os.getpid():
        return
    _looked = now
    if signal.getsignal(signal.SIGTERM) is _handler:
        _take_wakeup()


def leave_on_sigterm(leave: Callable[[], None]) -> None:
    """Call leave() on SIGTERM, then die of it; nothing where the program handles the signal, or
    where this is not the main thread."""
    global _pid, _leave, _pipe
    if not _is_main() or _pid == os.getpid() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    read, _pipe = os.pipe()
    os.set_blocking(_pipe, False)
    try:
        _threads.start(_end, "pbox-sigterm", (read,))
    except PBoxSystemError:  # SIGTERM ends the process at once, and the box sees it as a death
        os.close(read)
        os.close(_pipe)
        return
    _pid, _leave = os.getpid(), leave
    _take_wakeup()
    signal.signal(signal.SIGTERM, _handler)
