# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Threads of ours, and what to say where the system has none left."""

import threading
from typing import Any, Callable, Tuple

from .errors import PBoxSystemError


def no_more(error: BaseException) -> PBoxSystemError:
    return PBoxSystemError(f"no thread can be started in this process ({error}): a limit of processes is reached, of the user "
                           "('ulimit -u'), the service (TasksMax=) or the container (pids.max), or memory is; raise it, or run fewer")


def start(target: Callable[..., None], name: str, args: Tuple[Any, ...] = ()) -> threading.Thread:
    thread = threading.Thread(target=target, name=name, args=args, daemon=True)
    try:
        thread.start()
    except (RuntimeError, MemoryError) as e:
        raise no_more(e) from None
    return thread
