# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A group of cgroups with a share of the CPUs and a memory limit each, of v1 or v2, whichever the machine has.

They are removed at the end, and what an earlier process was not able to remove (kill -9) is by the next one.
"""

import os
import time

NAME = "pbox-hps"
PERIOD_US = 10_000  # of a share: a slot is longer, so that it takes the same time wherever it begins
LEAST_US = 1_000  # the kernel takes no less


class NoCgroups(Exception):
    """This machine, or this user, cannot make any; the text says why."""


def _write(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="ascii") as f:
        f.write(str(value))


def _read(folder, name):
    with open(os.path.join(folder, name), encoding="ascii") as f:
        return f.read().strip()


def hierarchies(mountinfo=None):
    """{"cpu": folder, "memory": folder}, and whether they are of v2."""
    v1, v2 = {}, None
    if mountinfo is None:
        with open("/proc/self/mountinfo", encoding="ascii", errors="replace") as f:
            mountinfo = f.read()
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        at, kind = left.split()[4], right.split()
        if kind[0] == "cgroup2":
            v2 = at
        elif kind[0] == "cgroup":
            v1.update((c, at) for c in ("cpu", "memory") if c in kind[2].split(","))
    if len(v1) == 2:
        return v1, False
    if v2 is not None and {"cpu", "memory"} <= set(_read(v2, "cgroup.controllers").split()):
        return {"cpu": v2, "memory": v2}, True
    raise NoCgroups("no cgroups with the controllers cpu and memory are mounted, neither v1 nor v2: see mount -t cgroup,cgroup2")


class Cgroups:
    """As a context: cgroups 0 to n - 1."""

    def __init__(self, n):
        self.n = n
        self._folders, self.v2 = hierarchies()
        self._top = {c: os.path.join(at, f"{NAME}-{os.getpid()}") for c, at in self._folders.items()}

    def __enter__(self):
        try:
            for at in set(self._folders.values()):
                self._remove_left(at)
            for top in sorted(set(self._top.values())):
                if self.v2:
                    _write(os.path.dirname(top), "cgroup.subtree_control", "+cpu +memory")
                os.mkdir(top)
                if self.v2:
                    _write(top, "cgroup.subtree_control", "+cpu +memory")
                for i in range(self.n):
                    os.mkdir(os.path.join(top, f"w{i}"))
        except OSError as e:
            self.close()
            raise NoCgroups(f"{e.filename}: {e.strerror}: making cgroups needs root, in a container the right to delegate them") from None
        return self

    def __exit__(self, *_):
        self.close()

    def folder(self, i, controller):
        return os.path.join(self._top[controller], f"w{i}")

    def enter(self, i):
        """This process, and what it starts. (For preexec_fn.)"""
        for controller in self._top if not self.v2 else ("cpu",):
            _write(self.folder(i, controller), "cgroup.procs", os.getpid())

    def limit_cpu(self, i, cpus):
        """So many CPUs; None: no limit."""
        at = self.folder(i, "cpu")
        quota = None if cpus is None else max(LEAST_US, int(cpus * PERIOD_US))
        if self.v2:
            _write(at, "cpu.max", f"{'max' if quota is None else quota} {PERIOD_US}")
        else:
            _write(at, "cpu.cfs_period_us", PERIOD_US)
            _write(at, "cpu.cfs_quota_us", -1 if quota is None else quota)

    def limit_memory(self, i, size):
        """Bytes that it cannot exceed."""
        _write(self.folder(i, "memory"), "memory.max" if self.v2 else "memory.limit_in_bytes", size)

    def ask_memory(self, i, size):
        """Bytes that it should not exceed: nothing is killed for that."""
        _write(self.folder(i, "memory"), "memory.high" if self.v2 else "memory.soft_limit_in_bytes", size)

    def memory_used(self, i):
        return int(_read(self.folder(i, "memory"), "memory.current" if self.v2 else "memory.usage_in_bytes"))

    @staticmethod
    def _remove(top):
        """A cgroup whose processes have just ended may be busy for a moment."""
        inner = [os.path.join(top, name) for name in os.listdir(top) if os.path.isdir(os.path.join(top, name))]
        for folder in [*inner, top]:
            for attempt in range(50):
                try:
                    os.rmdir(folder)
                    break
                except OSError:
                    if attempt == 49:
                        raise
                    time.sleep(0.1)

    def _remove_left(self, at):
        for name in os.listdir(at):
            pid = name[len(NAME) + 1:]
            if name.startswith(NAME + "-") and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
                try:
                    self._remove(os.path.join(at, name))
                except OSError:
                    pass  # its processes live still

    def close(self):
        for top in set(self._top.values()):
            if os.path.isdir(top):
                self._remove(top)
