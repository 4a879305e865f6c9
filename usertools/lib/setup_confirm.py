# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""pbox-setup apply --confirm SECONDS: what it changes is taken back unless `pbox-setup confirm` comes within that time, so that one who
has cut himself off gets his host back.

A process of its own waits; it is there before anything changes, and outlives a login that ends. Who takes the record away first, it by
its time or `confirm`, has decided. Its clock is not the time of day.
"""

import contextlib
import fcntl
import json
import os
import secrets
import subprocess
import time

from setup_apply import EAL, RUN, ApplyError, Changer, write_file
from setup_plan import BOOT_FILE

RECORD = f"{RUN}/confirm.json"
TAKING = f"{RUN}/confirm.taking"
LOG = f"{RUN}/confirm.log"
LOCK = f"{RUN}/lock"
LEAST, MOST = 10, 86400  # seconds
AGAIN = 2.0  # seconds between two attempts to take back what a process still has
ATTEMPTS = 300


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@contextlib.contextmanager
def alone(machine):
    """One changes the host at a time; a process that ends lets go."""
    path = machine.path(LOCK)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        try:
            yield
        finally:  # it stays for the process that waits
            if not os.path.exists(machine.path(RECORD)):
                with contextlib.suppress(OSError):
                    os.remove(path)


def pending(machine):
    """The record of what is not confirmed; None: nothing is."""
    try:
        with open(machine.path(RECORD), encoding="utf-8") as f:
            return json.load(f)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as e:
        raise ApplyError(f"/{RECORD}", f"cannot be read: {e}", "pbox-setup undo, and remove it") from e


def refuse_pending(machine):
    record = pending(machine)
    if record is not None:
        raise ApplyError("pbox-setup", f"what was applied before is not confirmed: it is taken back in {max(0, record['until'] - now()):.0f} s",
                         "pbox-setup confirm, or pbox-setup undo")


def read(machine, path):
    """With its last line end; None: it is not there."""
    try:
        with open(machine.path(path), encoding="utf-8") as f:
            return f.read()
    except OSError:
        return None


def put_back(machine, path, text):
    if text is not None:
        write_file(machine.path(path), text)
    elif os.path.exists(machine.path(path)):
        os.remove(machine.path(path))


def begin(machine, program, seconds):
    """Before anything changes: the record, and the process that waits."""
    record = {"token": secrets.token_hex(8), "until": now() + seconds, "keep": len(Changer(machine, print).changes), "eal": read(machine, EAL),
              "boot": read(machine, BOOT_FILE)}
    write_file(machine.path(RECORD), json.dumps(record) + "\n")
    command = [program, "await-confirm", "--root", machine.path("").rstrip("/") or "/", "--token", record["token"]]
    unit = ["systemd-run", "--quiet", "--collect", f"--unit=pbox-setup-confirm-{record['token']}"]
    try:
        # a login's end may end all of its processes: not those of a unit
        if machine.tree["sys"] != "/sys" or not os.path.isdir("/run/systemd/system") or subprocess.run(
                [*unit, *command], stdin=subprocess.DEVNULL, check=False).returncode:
            with open(machine.path(LOG), "a", encoding="utf-8") as log:
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/")  # pylint: disable=consider-using-with
    except OSError as e:
        forget(machine)
        raise ApplyError("--confirm", f"the process that waits does not start: {e}", "nothing is changed: apply without --confirm, from the console") from e
    return record


def applied(machine, record, seconds):
    """All is done: the time begins now. False: nothing had to be done, and nothing is to be confirmed."""
    same = len(Changer(machine, print).changes) == record["keep"] and read(machine, EAL) == record["eal"] and read(machine, BOOT_FILE) == record["boot"]
    if same:
        forget(machine)
    else:
        write_file(machine.path(RECORD), json.dumps(record | {"until": now() + seconds}) + "\n")
    return not same


def forget(machine):
    """True: there was something to be confirmed, and nobody takes it back now."""
    try:
        os.remove(machine.path(RECORD))
        return True
    except FileNotFoundError:
        return False


def wait(machine, token):
    """Until it is confirmed, or its time is over, and it is taken back. The exit status."""
    while True:
        record = pending(machine)
        if record is None or record["token"] != token:
            return 0
        if record["until"] > now():
            time.sleep(min(0.5, max(0.01, record["until"] - now())))
            continue
        with alone(machine):  # not in the middle of an apply
            record = pending(machine)
            if record is None or record["token"] != token:
                return 0
            if record["until"] > now():
                continue
            try:
                os.rename(machine.path(RECORD), machine.path(TAKING))
            except FileNotFoundError:
                return 0  # confirmed just now
            return take_back(machine, record)


def take_back(machine, record):
    print("not confirmed in time: it is taken back", flush=True)
    failed = []
    for attempt in range(ATTEMPTS):
        failed = Changer(machine, lambda text: print(text, flush=True)).undo(record["keep"])
        if not failed:
            break
        if attempt == 0 and machine.tree["sys"] == "/sys":  # the box has the NIC that is to go back
            subprocess.run(["systemctl", "stop", "pbox.service"], check=False)
        time.sleep(AGAIN)
    put_back(machine, EAL, record["eal"])
    put_back(machine, BOOT_FILE, record["boot"])
    os.remove(machine.path(TAKING))
    for subject, what, fix in failed:
        print(f"{subject}: {what}\n    next: {fix}", flush=True)
    return 1 if failed else 0
