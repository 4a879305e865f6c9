# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A box behind net_chaos in network namespaces, and how its test programs report what they found.

The bed is that of the benchmarks; here it serves to be disturbed."""

import ctypes
import os
import re
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "test", "perf", "lib"))
# pylint: disable=wrong-import-position,unused-import
from bed import Bed, run, say, signals_raise  # noqa: E402
from box import Box, perf_batch  # noqa: E402

BUILD = os.environ.get("PBOX_BUILD", os.path.join(TOP, "build"))
PORT = "net_chaos0"
OFF = {"loss": "0", "burst": "0", "gilbert": "0", "dup": "0", "corrupt": "0", "truncate": "0",
       "mark": "0", "reorder": "0", "delay_us": "0", "blackhole": "0", "target": "0"}


class Tests:
    """One line a test, and the last one that test/run reads."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def check(self, name, good, detail=""):
        print(f"{'ok' if good else 'not ok'} - {name}"
              + (f": {detail}" if detail and not good else ""), flush=True)
        self.passed += bool(good)
        self.failed += not good
        return good

    def skip(self, name, reason):
        print(f"skip - {name}: {reason}", flush=True)
        self.skipped += 1

    def done(self):
        print(f"{self.passed} passed, {self.failed} failed"
              + (f", {self.skipped} skipped" if self.skipped else ""), flush=True)
        return 1 if self.failed or not self.passed else 0


def skip_unless_possible(name):
    """Ends the program with 77 where a test cannot run."""
    reason = None
    if os.geteuid() != 0:
        reason = "needs root for network namespaces"
    elif not os.access(os.path.join(BUILD, "app/pbox/pbox"), os.X_OK):
        reason = f"no pbox in {BUILD}"
    if reason:
        print(f"skip - {name}: {reason}\n0 passed, 0 failed, 1 skipped")
        sys.exit(77)


def in_namespace(name, work):
    """Run work() in a network namespace: what it opens stays there."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/self/ns/net", "rb") as home, open(f"/run/netns/{name}", "rb") as there:
        if libc.setns(there.fileno(), 0x40000000) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        try:
            return work()
        finally:
            libc.setns(home.fileno(), 0x40000000)


class PlainBox(Box):
    """One port: net_packet."""

    def __init__(self, bed, **more):
        super().__init__(bed, BUILD, "packet", memory=512, **more)

    def counters(self):
        """All of /pbox/stats, summed over instances by name."""
        return flat(self.telemetry("/pbox/stats"))


class ChaosBox(Box):
    """One port: net_chaos over net_packet."""

    counters = PlainBox.counters

    def __init__(self, bed, options=(), **more):
        super().__init__(bed, BUILD, f"{PORT},port=net_packet0,seed=1", memory=512,
                         options=options, below=["net_packet0,iface=eth0"], **more)
        self.now = {}
        self._neighbours()

    def _neighbours(self):
        """Workers know the box's MAC address for good. A damaged ARP answer is believed: all that
        protects it on a real link is Ethernet's check sequence, which a packet has lost here."""
        mac = re.search(r"\bMAC ([0-9a-f:]{17})", self.text()).group(1)
        for i in range(self.bed.workers):
            run(["ip", "-n", self.bed.ns(f"w{i}"), "neigh", "replace", self.address, "lladdr", mac,
                 "dev", "eth0", "nud", "permanent"])

    def faults(self, seed=1, **settings):
        """rx_loss=..., tx_loss=...; or loss=... for both. All others are off."""
        wanted = {f"{d}_{k}": v for d in ("rx", "tx") for k, v in OFF.items()}
        for key, value in settings.items():
            for d in ("rx_", "tx_"):
                if key.startswith(d):
                    wanted[key] = str(value)
                elif not key.startswith(("rx_", "tx_")):
                    wanted[d + key] = str(value)
        # in pieces: telemetry takes about 1 KB a command
        change = [f"{k}={v}" for k, v in wanted.items()
                  if self.now.get(k) != v or k.endswith("target")] + [f"seed={seed}"]
        for i in range(0, len(change), 8):
            answer = self.telemetry(f"/net_chaos/set,{PORT}," + ",".join(change[i:i + 8]))
            if "error" in answer:
                raise RuntimeError(answer["error"])
        self.now = wanted

    def injected(self):
        """What net_chaos has counted: {"rx_lost": ...}."""
        port = self.telemetry("/net_chaos/list")[0]
        return {k: v for k, v in self.telemetry(f"/ethdev/xstats,{port}").items()
                if k.startswith(("rx_", "tx_"))}


def stop_counted(box, tests):
    """End the box, which says what it has received, and what became of it."""
    box.child.terminate()
    box.child.wait(120)
    text = box.text()
    found = re.search(r"received (\d+) = accepted (\d+) \+ dropped (\d+)", text)
    tests.check("all that was received is accounted for",
                found and int(found[1]) == int(found[2]) + int(found[3])
                and box.child.returncode == 0, text[-500:])


def flat(tree, into=None):
    """Numbers of a tree by their last name; those of the same name are added."""
    into = {} if into is None else into
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        if isinstance(value, (dict, list)):
            flat(value, into)
        elif isinstance(value, (int, float)) and isinstance(key, str):
            into[key] = into.get(key, 0) + value
    return into


def difference(after, before):
    return {k: v - before.get(k, 0) for k, v in after.items() if v != before.get(k, 0)}
