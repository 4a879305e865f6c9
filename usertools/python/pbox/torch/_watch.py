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


class Watch:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ids = itertools.count()
        self._pending: Dict[int, Tuple[float, Callable[[], None]]] = {}
        self._cond = threading.Condition()
        self._thread: Optional[threading.Thread] = None
        self._closed = False

    def add(self, expired: Callable[[], None]) -> int:
        """Call expired() (on the watch's thread) unless remove() comes within the deadline."""
        with self._cond:
            key = next(self._ids)
            self._pending[key] = (time.monotonic() + self.seconds, expired)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="pbox-watch", daemon=True)
                self._thread.start()
        return key

    def remove(self, key: int) -> bool:
        """Was it still pending? Whoever gets True completes the future."""
        with self._cond:
            return self._pending.pop(key, None) is not None

    def close(self) -> None:
        with self._cond:
            self._closed = True
            self._cond.notify_all()

    def _run(self) -> None:
        while True:
            with self._cond:
                if self._closed:
                    return
                # all deadlines are equally long, so the oldest is the first; a look every
                # second costs less than a wake-up for each operation
                self._cond.wait(min(1.0, self.seconds / 4))
                now = time.monotonic()
                late = [(k, fn) for k, (at, fn) in self._pending.items() if at <= now]
            for key, fn in late:
                if self.remove(key):
                    fn()
