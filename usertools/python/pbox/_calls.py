# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Calls into the library: their arguments, how they are interrupted, and what a long one says."""

import ctypes as ct
import functools
import logging
import math
import mmap
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional

from . import _checks, _lib, _threads
from .errors import PBoxClosed, PBoxError, PBoxInvalid

if TYPE_CHECKING:
    from .client import Client

# a wait in C cannot be interrupted, so it is cut into pieces of this length: Python handles
# signals, and sees that the client was closed, between them
SLICE_MS = 200

_log = logging.getLogger("pbox")
# waits at the start say what they wait for, first after this time, then ever more rarely; others
# after the timeout, but not later than this
_TELL_SECONDS = 10.0
_SAY_SECONDS = 60.0
_SILENT_SECONDS = 5.0


def ms_of(seconds: Optional[float], what: str = "timeout") -> int:
    """Milliseconds for the library; None is its 0, 'as configured'."""
    if seconds is None:
        return 0
    return max(1, round(_checks.real(seconds, f"{what}, in seconds,", 0, 4e6) * 1000))


@functools.lru_cache(maxsize=None)
def numbers_of(what: str) -> Dict[str, int]:
    """What the library knows, by name: "format", "op", "optimiser", "hyper" or "policy"."""
    names = ((_lib.get().pbox_client_name(what.encode(), n), n) for n in range(256))
    return {name.decode(): n for name, n in names if name is not None}


def choose(table: Mapping[str, int], value: str, what: str) -> int:
    try:
        return table[value]
    except (KeyError, TypeError):
        raise PBoxInvalid(f"{what} is {value!r}: one of {', '.join(table)}") from None


def check_op(op: str) -> int:
    """The number of what a round makes of contributions; PBoxInvalid names them all."""
    return choose(numbers_of("op"), op, "op")


def interruptible(fn: Callable[[], Any]) -> Any:
    """Run a blocking C call so that Ctrl-C gets through: signals reach only the main thread,
    and only while it is in the interpreter."""
    if threading.current_thread() is not threading.main_thread():
        return fn()
    result: List[Any] = []
    done = threading.Event()

    def run() -> None:
        try:
            result.append((fn(), None))
        except BaseException as e:
            result.append((None, e))
        finally:
            done.set()

    _threads.start(run, "pbox-call")
    done.wait()
    value, err = result[0]
    if err is not None:
        raise err
    return value


class Call:
    """The library's pointer for the time of one call; close() waits for it to be given back."""

    __slots__ = ("_client",)

    def __init__(self, client: "Client") -> None:
        self._client = client

    def __enter__(self) -> ct.c_void_p:
        c = self._client
        with c._cond:
            if c._p is None:
                raise PBoxClosed("the client is closed")
            if c._pid != os.getpid():
                raise PBoxClosed(
                    f"the client belongs to process {c._pid}: open one after the fork")
            c._users += 1
            return c._p

    def __exit__(self, *exc: Any) -> None:
        c = self._client
        with c._cond:
            c._users -= 1
            if c._users == 0:
                c._cond.notify_all()


class Memory:
    """Of a transport that has its own. Its array refers to it."""

    def __init__(self, client: "Client", size: int) -> None:
        self._client = client
        with client._call() as p:
            self._at = _lib.get().pbox_client_alloc(p, size + mmap.PAGESIZE)
        if not self._at:
            raise MemoryError("the transport has no more")
        self._size = size

    def array(self) -> Any:
        array = (ct.c_char * self._size).from_address(-(-self._at // mmap.PAGESIZE) * mmap.PAGESIZE)
        array.memory = self  # type: ignore[attr-defined]
        return array

    def __del__(self) -> None:
        if getattr(self, "_at", None):
            try:
                with self._client._call() as p:
                    _lib.get().pbox_client_free(p, self._at)
            except PBoxClosed:
                pass  # with the session its transport has gone


class Said:
    """Says from time to time what a wait that goes on waits for: the worker that is missing may live, and compute, or
    not come any more."""

    def __init__(self, client: "Client") -> None:
        self._client, self._began = client, time.monotonic()
        self._next = min(client.timeout, _SAY_SECONDS)
        self._silent = _SILENT_SECONDS

    def _look_for_silent(self, waited: float) -> None:
        """A worker that computes is heard by the box all the time; one that is not heard has probably died. Said once a wait."""
        self._silent = waited + _SILENT_SECONDS
        try:
            text = self._client.silent()
        except PBoxError:
            return
        if text:
            self._silent = math.inf
            _log.warning("worker %d of %d waits for %s. The wait goes on: it ends %g s after that worker was heard last, if it does not come back",
                         self._client.worker, self._client.workers, text, self._client.timeout)

    def look(self) -> None:
        waited = time.monotonic() - self._began
        if waited >= self._silent:
            self._look_for_silent(waited)
        if waited < self._next:
            return
        self._next = waited + min(max(waited, 1.0), 600.0)
        try:
            text = self._client.why()
        except PBoxError as e:
            text = str(e)
        _log.warning("worker %d of %d has waited for %.0f s: %s", self._client.worker, self._client.workers, waited, text)


class Told:
    """Says from time to time what a long wait at the start waits for."""

    def __init__(self, client: "Client") -> None:
        self._client, self._done = client, threading.Event()

    def _run(self) -> None:
        began, pause = time.monotonic(), _TELL_SECONDS
        while not self._done.wait(pause):
            try:
                text = self._client.status()
            except PBoxError as e:
                text = str(e)
            if not self._done.is_set():
                _log.warning("waiting for %.0f s for the other workers: %s",
                             time.monotonic() - began, text)
            pause = min(2 * pause, 60.0)

    def __enter__(self) -> None:
        if self._client.workers > 1:
            try:
                _threads.start(self._run, "pbox-tell")
            except PBoxError:
                pass  # then nobody says it

    def __exit__(self, *exc: Any) -> None:
        self._done.set()
