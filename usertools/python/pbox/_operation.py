# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Operations that were submitted: they are waited for, or call back."""

import ctypes as ct
import itertools
import sys
import threading
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Tuple

from . import _lib
from ._calls import SLICE_MS, Said, ms_of
from .errors import PBoxError, PBoxInvalid, error_of

if TYPE_CHECKING:
    from .client import Client

# One C thunk for the life of the process, and a number as its context: a thunk per operation
# would have to outlive a call that the progress thread may still be in.

_notify_ids = itertools.count(1)
_notified: Dict[int, Tuple["Operation", Callable[[Optional[PBoxError]], Any]]] = {}
in_callback = threading.local()


@_lib.DoneFn
def _on_done(ctx: int, code: int, text: Optional[bytes]) -> None:
    op, fn = _notified.pop(ctx)
    err = error_of(code, (text or b"").decode(errors="replace")) if code < 0 else None
    op._finish(err)
    in_callback.active = True
    try:
        fn(err)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # nobody above us could catch it
    finally:
        in_callback.active = False


class Operation:
    """A submitted operation. Wait for each, or give it a callback: until then the library and
    this object hold the arrays."""

    def __init__(self, client: "Client", handle: int, keep: Any) -> None:
        self._client = client
        self._handle = handle
        self._keep = keep
        self._error: Optional[PBoxError] = None
        self._done = False
        self._handed_over = False
        self._lock = threading.Lock()

    def _finish(self, err: Optional[PBoxError]) -> None:
        self._error, self._done, self._keep = err, True, None
        self._client._operations.pop(self._handle, None)

    def _own(self) -> None:
        if self._handed_over:
            raise PBoxInvalid("this operation has a callback: it cannot be waited for as well")

    @property
    def done(self) -> bool:
        """Has it been found complete (by wait, test or its callback)?"""
        return self._done

    def wait(self, timeout: Optional[float] = None) -> None:
        """Return when complete. After PBoxDeadline it may be waited for again. A timeout that is
        given here is one; without, see that of the Client."""
        self._own()
        waiting = _lib.Waiting(timeout_ms=ms_of(timeout))
        said = Said(self._client)
        with self._lock:
            while not self._done:
                said.look()
                err = _lib.Error()
                with self._client._call() as c:
                    code = _lib.get().pbox_client_wait_on(
                        c, self._handle, ct.byref(waiting), SLICE_MS, ct.byref(err))
                if code == _lib.DEADLINE:
                    raise error_of(code, err.text.decode(errors="replace"))
                if code != _lib.PENDING:
                    self._finish(self._client._error(code, err))
        if self._error is not None:
            raise self._error

    def test(self) -> bool:
        """Is it complete? Does not block; raises if it failed."""
        self._own()
        with self._lock:
            if not self._done:
                err = _lib.Error()
                with self._client._call() as c:
                    code = _lib.get().pbox_client_test(c, self._handle, ct.byref(err))
                if code == _lib.PENDING:
                    return False
                self._finish(self._client._error(code, err))
        if self._error is not None:
            raise self._error
        return True

    def add_done_callback(self, fn: Callable[[Optional[PBoxError]], Any]) -> None:
        """Call fn(error or None) once, from the library's progress thread (or at once, from this
        one, if the operation has ended). It must be short: all traffic waits for it. It may
        submit, but neither wait nor close."""
        with self._lock:
            self._own()
            if self._done:
                fn(self._error)
                return
            self._handed_over = True
            key = next(_notify_ids)
            _notified[key] = (self, fn)
            with self._client._call() as c:
                code = _lib.get().pbox_client_notify(c, self._handle, _on_done, key)
            if code < 0:
                _notified.pop(key, None)
                self._handed_over = False
                raise error_of(code, "this operation cannot be given a callback")
