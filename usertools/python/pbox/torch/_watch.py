# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Deadlines for operations that complete a future.

The library's waits have deadlines; its callbacks have none, since nobody waits in it. DDP waits
for the hook's futures without a limit, so a worker that died would hang the others' backward
pass. One thread a hook watches for that.
"""

import itertools
import threading
import time
from typing import Callable, Dict, Optional, Tuple

from .. import _lib, _threads


class Watch:
    def __init__(self, seconds: float,
                 lives: Optional[Callable[[object], bool]] = None,
                 ended: Optional[Callable[[], None]] = None) -> None:
        """lives(state): is it worth to wait on, for what is pending? Asked once a second; state is
        a new _lib.Waiting each time that something else is the oldest. ended() is called after close(), on the watch's thread."""
        self.seconds = seconds
        self._lives, self._ended = lives, ended
        self._ids = itertools.count()
        self._pending: Dict[int, Tuple[float, Callable[[], None]]] = {}
        self._cond = threading.Condition()
        self._thread: Optional[threading.Thread] = None
        self._closed = False

    def start(self) -> None:
        """Before there is anything to watch: a system that has no thread for it says so here."""
        self._thread = _threads.start(self._run, "pbox-watch")

    def add(self, expired: Callable[[], None]) -> int:
        """Call expired() (on the watch's thread) unless remove() comes within the deadline."""
        with self._cond:
            key = next(self._ids)
            self._pending[key] = (time.monotonic() + self.seconds, expired)
        return key

    def remove(self, key: int) -> bool:
        """Was it still pending? The caller that gets True completes the future."""
        with self._cond:
            return self._pending.pop(key, None) is not None

    @property
    def pending(self) -> bool:
        return bool(self._pending)

    def close(self) -> None:
        with self._cond:
            self._closed = True
            self._cond.notify_all()

    def _run(self) -> None:
        self._look()
        if self._ended is not None:
            self._ended()

    def _look(self) -> None:
        oldest, waiting = None, None
        while True:
            with self._cond:
                if self._closed:
                    return
                # all deadlines are equally long, so the oldest is the first; a look every
                # second costs less than a wake-up for each operation
                self._cond.wait(min(1.0, self.seconds / 4))
                now = time.monotonic()
                pending = list(self._pending.items())
            late = [(k, fn) for k, (at, fn) in pending if at <= now]
            if pending and self._lives is not None:
                key, (at, _) = pending[0]
                if key != oldest:
                    oldest, waiting = key, _lib.Waiting()
                if now - (at - self.seconds) > 1.0 or late:
                    late = [] if self._lives(waiting) else [(k, fn) for k, (_, fn) in pending]
            for key, fn in late:
                if self.remove(key):
                    fn()
