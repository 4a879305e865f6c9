# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Verdicts of the tests in test/image, and what they have in common."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import machine
import stuck

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("PBOX_BUILD", os.path.join(TOP, "build"))
IMAGE = os.environ.get("PBOX_IMAGE", os.path.join(TOP, "build", "image"))
# emulated CPUs on a machine that has other work: only a hang takes so long
SERVES = 280


class Test:
    """ok and not ok lines, a folder that stays when something failed, and the last line that the runner reads."""

    def __init__(self):
        self.passed = self.failed = 0
        self.folder = tempfile.mkdtemp(prefix="image-")
        self.net = self.box = self.disk = self.key = None
        if os.geteuid() != 0 or not os.path.exists(os.path.join(IMAGE, "pbox.img")) or not shutil.which("qemu-system-x86_64"):
            print(f"skip - {sys.argv[0]}: needs root, QEMU and an image in {IMAGE} (usertools/pbox-mkimage)")
            print("0 passed, 0 failed, 1 skipped")
            sys.exit(77)

        def stop(number, _frame):
            sys.exit(128 + number)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, stop)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _trace):
        if kind:
            self.verdict("it came to its end", False, f"{kind.__name__}: {error}")
        if self.box:
            self.box.close()
        if self.net:
            self.net.close()
        if self.failed:
            print(f"logs: {self.folder}")
        else:
            shutil.rmtree(self.folder)
        print(f"{self.passed} passed, {self.failed} failed", flush=True)
        sys.exit(1 if self.failed else 0)

    def verdict(self, name, good, detail=""):
        print(("ok - " if good else "not ok - ") + name, flush=True)
        if good:
            self.passed += 1
        else:
            self.failed += 1
            print("\n".join("    " + x for x in str(detail).splitlines()[-60:]), flush=True)
        return good

    def check(self, name, function, *args, **named):
        """What function gives; a Failed, or a time that is over, is a failure of the test and gives None."""
        try:
            out = function(*args, **named)
        except (machine.Failed, subprocess.TimeoutExpired, OSError, KeyError, ValueError) as e:
            self.verdict(name, False, e)
            return None
        self.verdict(name, True)
        return out

    def installed(self, **files):
        """self.disk with the image, with files on its PBOX-CONF, and self.key to log in with."""
        self.disk, self.key = os.path.join(self.folder, "disk"), os.path.join(self.folder, "key")
        machine.new_disk(os.path.join(IMAGE, "pbox.img"), self.disk)
        machine.configure(self.disk, self.folder, authorized_keys=machine.new_key(self.key), **files)

    def serves(self, since=0):
        """Waits for it; once more, from the power button, where QEMU has hung it."""
        try:
            self.box.says(r"^PBox is serving$", SERVES, since)
        except machine.Emulator as e:
            print("\n".join("    " + x for x in [f"once more, from power-on: {stuck.STALE}...", *str(e).splitlines()]), flush=True)
            self.box.power_cut()
            self.box.start()
            self.box.says(r"^PBox is serving$", SERVES)

    def serving(self, name):
        """Waits for it, and says how long it took from the power button."""
        self.serves()
        self.verdict(f"{name}: serving {time.monotonic() - self.box.started:.0f} s after power-on", True)


def library():
    """Variables for programs in Python that load the client's library of this build."""
    client = os.path.join(BUILD, "lib/client/so")
    return {"PBOX_CLIENT_LIB": os.path.join(client, "libpbox-client.so.1"), "LD_LIBRARY_PATH": client,
            "PYTHONPATH": os.path.join(TOP, "usertools/python")}


def reachable(test, key):
    """ssh answers a little later than the box serves."""
    machine.wait("login", 600, lambda: test.box.ssh(key, "echo here", check=False, seconds=60).strip() == "here")


def perf(net, box="192.168.100.1", job="perf", secret="", more=(), seconds=240):
    """pbox-perf, two workers in one process over ordinary sockets; every element compared. A client gives a data core two
    seconds for its first answer, which an emulated one may not have on a machine with other work: then once more, and again."""
    for _ in range(3):
        out = net.exec(os.path.join(BUILD, "app/perf/pbox-perf"), box, "--job", job, "--secret", secret, "--workers", "2", "--local", "2",
                       "--join-timeout", "60", "--timeout", "120", *more, seconds=seconds, check=False)
        if "does not answer PING" not in out:
            break
        print("    once more: a data core did not answer within 2 s", flush=True)
    found = re.search(r"checked (\d+) elements, (\d+) wrong", out)
    if not found or int(found[1]) == 0 or int(found[2]) != 0:
        raise machine.Failed(out[-2000:])
    return out


def secret_of(box):
    return box.says(r"any job may join with the secret (\S+)$", 30)[1]
