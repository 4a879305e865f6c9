#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Run a command as a systemd unit would, where no systemd runs: its user's rights, capabilities,
read-only file system, and its filter of system calls. Usage: under_unit.py UNIT UID DIR COMMAND...

DIR is the unit's run-time directory. To be started as root in a mount namespace of its own
(ip netns exec makes one). What is not done here: devices, and what hides files (/tmp
is read-only instead of empty).
"""

import errno
import os
import subprocess
import sys

import seccomp

# socket(2)'s domains
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16, "AF_PACKET": 17}
INSIDE = "PBOX_UNDER_UNIT"


def settings(path):
    found = {}
    with open(path) as f:
        for line in f:
            key, sep, value = line.strip().partition("=")
            if sep and not key.startswith("#"):
                found.setdefault(key, []).append(value)
    return found


def calls_of(word):
    if not word.startswith("@"):
        return {word}
    text = subprocess.run(["systemd-analyze", "--no-pager", "syscall-filter", word], check=True,
                          capture_output=True, text=True).stdout
    calls = set()
    for line in text.splitlines()[1:]:
        name = line.strip()
        if name and not name.startswith("#"):
            calls |= calls_of(name)
    return calls


def allowed(lists):
    calls = set()
    for text in lists:
        words = set().union(*(calls_of(w) for w in text.lstrip("~").split()))
        calls = calls - words if text.startswith("~") else calls | words
    return calls


def mounts(directory):
    """ProtectSystem=strict, RuntimeDirectory"""
    for cmd in (["mount", "--make-rprivate", "/"],
                ["mount", "--bind", directory, directory],
                ["mount", "-o", "remount,bind,ro", "/"]):
        subprocess.run(cmd, check=True)


def load_filter(unit):
    f = seccomp.SyscallFilter(seccomp.ERRNO(errno.EPERM))
    for name in sorted(allowed(unit["SystemCallFilter"])):
        try:
            if seccomp.resolve_syscall(seccomp.Arch(), name) < 0:
                continue
        except ValueError:
            continue
        if name == "socket":
            for family in unit["RestrictAddressFamilies"][0].split():
                f.add_rule(seccomp.ALLOW, name,
                           seccomp.Arg(0, seccomp.EQ, FAMILIES[family]))
        elif name in ("mmap", "mprotect"):  # MemoryDenyWriteExecute
            f.add_rule(seccomp.ALLOW, name, seccomp.Arg(2, seccomp.MASKED_EQ, 6, 0))
            f.add_rule(seccomp.ALLOW, name, seccomp.Arg(2, seccomp.MASKED_EQ, 6, 2))
            f.add_rule(seccomp.ALLOW, name, seccomp.Arg(2, seccomp.MASKED_EQ, 6, 4))
        else:
            f.add_rule(seccomp.ALLOW, name)
    f.load()


def main():
    path, uid, directory, command = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
    unit = settings(path)
    if os.geteuid() == 0 and not os.environ.pop(INSIDE, None):
        mounts(directory)
        os.environ[INSIDE] = "1"
        caps = [c.removeprefix("CAP_").lower() for c in unit.get("AmbientCapabilities", [""])[0].split()]
        bound = [c.removeprefix("CAP_").lower() for c in unit["CapabilityBoundingSet"][0].split()]
        gained = ",".join("+" + c for c in caps) or "-all"
        os.execvp("setpriv", ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups",
                              "--inh-caps", gained, "--ambient-caps", gained,
                              "--bounding-set", ",".join(["-all"] + ["+" + c for c in bound]),
                              "--no-new-privs", sys.executable, *sys.argv])
    os.environ["RUNTIME_DIRECTORY"] = directory
    os.umask(int(unit["UMask"][0], 8))
    load_filter(unit)
    os.execv(command[0], command)


main()
