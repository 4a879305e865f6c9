# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""One exception for each code of the C library; the text is the library's own.

All are subclasses of :class:`PBoxError`. Where Python has a built-in exception of the same
meaning the class derives from that too, so that ``except TimeoutError`` works as expected.
"""

from typing import Dict, Type


class PBoxError(Exception):
    """Base of all; ``code`` is that of ``pbox_client.h``."""

    code = 0


class PBoxInvalid(PBoxError, ValueError):
    """An argument is out of range, or a buffer does not fit its tensor."""

    code = -1


class PBoxSystemError(PBoxError, OSError):
    """A system call failed."""

    code = -2

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class PBoxUnreachable(PBoxError, ConnectionError):
    """Nothing answered within the deadline."""

    code = -3

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class PBoxVersionError(PBoxError):
    """Box and library speak different versions of the protocol."""

    code = -4


class PBoxNoJob(PBoxError):
    """The box has no job of that name."""

    code = -5


class PBoxSecretError(PBoxError):
    """The job's secret differs between this worker and the box."""

    code = -6


class PBoxRefused(PBoxError):
    """The box refused for another reason, which the text gives."""

    code = -7


class PBoxMismatch(PBoxError):
    """Workers disagree on tensors, on hyper-parameters or on their number."""

    code = -8


class PBoxDeadline(PBoxError, TimeoutError):
    """A wait expired; the text says what was missing. The operation may be waited for again."""

    code = -9

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class PBoxLost(PBoxError, ConnectionError):
    """The session ended, and what it held cannot be had again."""

    code = -10

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class PBoxMtuError(PBoxError):
    """Frames of the configured size do not get through."""

    code = -11


class PBoxMemoryError(PBoxError, MemoryError):
    """Out of memory, here or on the box (the text says which)."""

    code = -12


class PBoxClosed(PBoxError):
    """The client was closed, by this or another thread."""

    code = -13


class PBoxRunning(PBoxError):
    """The job's run has begun without this worker, and another worker lives in it."""

    code = -14


class PBoxRunEnded(PBoxError):
    """Another run of the job has begun: this worker's is over."""

    code = -15


class PBoxMore(PBoxError):
    """Policy reassign: the round waits for slots that this worker has got. Table.work() says which."""

    code = -16


_BY_CODE: Dict[int, Type[PBoxError]] = {
    c.code: c for c in (
        PBoxInvalid, PBoxSystemError, PBoxUnreachable, PBoxVersionError, PBoxNoJob,
        PBoxSecretError, PBoxRefused, PBoxMismatch, PBoxDeadline, PBoxLost, PBoxMtuError,
        PBoxMemoryError, PBoxClosed, PBoxRunning, PBoxRunEnded, PBoxMore)
}


def error_of(code: int, text: str) -> PBoxError:
    """The exception for a negative code; unknown codes (a newer library) stay a PBoxError."""
    cls = _BY_CODE.get(code)
    if cls is None:
        err = PBoxError(text or f"unknown error {code}")
        err.code = code
        return err
    return cls(text or (cls.__doc__ or "").splitlines()[0])
