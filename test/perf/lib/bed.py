# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A box and its workers in network namespaces, joined by veth.

Two topologies. bridge: one Linux bridge, to which each worker and each port of the box have a veth.
direct: the box's own namespace has the other ends of the workers' veths, and a port of the box on
each, as a box with a NIC a worker has; for others, who talk among themselves, a bridge joins the
same ends.

Nothing is added to the caller's network. Namespaces carry the id of the process that made them;
the leftovers of a killed process go when the next bed is made.
"""

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time

# what is switched off for "every packet on the wire is real"
OFFLOADS = ("tso", "gso", "gro", "tx")
FEATURES = {"tcp-segmentation-offload", "generic-segmentation-offload",
            "generic-receive-offload", "tx-checksumming", "tx-udp-segmentation"}
_PRCTL = ctypes.CDLL(None).prctl


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def signals_raise():
    """SIGTERM and SIGHUP end the program as SIGINT does: through its `finally`."""
    def stop(_signal, _frame):
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGHUP, stop)


def _die_with_parent():
    _PRCTL(1, signal.SIGKILL)


def run(cmd, timeout=120, **options):
    """A short command; its output. Failure is an exception with what it said."""
    done = subprocess.run(cmd, timeout=timeout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(cmd)}: {done.stdout.strip()}")
    return done.stdout


def processor_seconds(pids):
    """CPU seconds that these processes have used, dead threads included."""
    ticks = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
                fields = f.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def softirq_seconds():
    """CPU seconds of the kernel's ksoftirqd threads."""
    pids = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as f:
                if f.read().startswith("ksoftirqd/"):
                    pids.append(int(pid))
        except OSError:
            pass
        if int(pid) > 4096:
            break
    return processor_seconds(pids)


class Bed:
    """Namespaces NAME<pid>-sw (the bridge br0), -box (eth0, eth1, ...), -w0, -w1, ... (eth0).

    direct: the box is in -sw, its ports on p-w0, p-w1, ..."""

    SWITCH = "10.78.0.254"

    def __init__(self, name, workers, mtu, ports=1, direct=False):
        self.prefix = f"{name}{os.getpid()}"
        self.workers, self.mtu, self.direct = workers, mtu, direct
        self.ports = 0 if direct else ports
        self.bridged = True
        self.running = []
        self.offloads = None
        remove_leftovers(name)

    def ns(self, who):
        return f"{self.prefix}-{'sw' if self.direct and who == 'box' else who}"

    def box_device(self, k):
        """The interface of port k of the box."""
        return f"p-w{k}" if self.direct else f"eth{k}"

    def worker_address(self, i):
        return f"10.78.0.{10 + i}"

    def box_address(self, k=0):
        return f"10.78.0.{101 + k}"

    def __enter__(self):
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for child in reversed(self.running):
            self.end(child)
        remove_namespaces(self.prefix + "-")

    def _make(self):
        sw = self.ns("sw")
        names = [sw, self.ns("box")] + [self.ns(f"w{i}") for i in range(self.workers)]
        for n in dict.fromkeys(names):
            run(["ip", "netns", "add", n])
            run(["ip", "netns", "exec", n, "sysctl", "-qw",
                 "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1"])
        self._batch(sw, [f"link add br0 mtu {self.mtu} type bridge forward_delay 0 stp_state 0 "
                         "mcast_snooping 0",
                         f"addr add {self.SWITCH}/24 dev br0", "link set lo up",
                         "link set br0 up"])
        # where the kernel has bridge netfilter, every frame would pass iptables as well
        subprocess.run(["ip", "netns", "exec", sw, "sysctl", "-qw",
                        "net.bridge.bridge-nf-call-iptables=0"], timeout=120,
                       stderr=subprocess.DEVNULL, check=False)
        for k in range(self.ports):
            # no address: the kernel of the box's ports stays silent
            self._attach("box", f"eth{k}", f"p-box{k}", None)
        for i in range(self.workers):
            self._attach(f"w{i}", "eth0", f"p-w{i}", self.worker_address(i))

    def _batch(self, ns, lines):
        run(["ip", "-n", ns, "-batch", "-"], input="\n".join(lines) + "\n")

    def _attach(self, who, inside, outside, address):
        ns = self.ns(who)
        # one queue: AF_XDP has a socket for one
        queues = f"mtu {self.mtu} numtxqueues 1 numrxqueues 1"
        self._batch(self.ns("sw"), [
            f"link add {outside} {queues} type veth peer name {inside} netns {ns} {queues}",
            f"link set {outside} master br0 up"])
        self._batch(ns, ["link set lo up"]
                    + ([f"addr add {address}/24 dev {inside}"] if address else [])
                    + [f"link set {inside} up"])

    def links(self):
        """(namespace, device) of both ends of every veth."""
        for k in range(self.ports):
            yield self.ns("box"), f"eth{k}"
            yield self.ns("sw"), f"p-box{k}"
        for i in range(self.workers):
            yield self.ns(f"w{i}"), "eth0"
            yield self.ns("sw"), f"p-w{i}"

    def set_offloads(self, on, also=()):
        """Segmentation and checksum offloads at both ends of every veth; checks that they took.

        also: (feature, value) pairs that the workers' own ends get on top."""
        wanted = (on, tuple(also))
        if self.offloads == wanted:
            return
        for ns, dev in self.links():
            value = "on" if on else "off"
            words = [w for f in OFFLOADS for w in (f, value)]
            if ns.startswith(self.ns("w")):
                words += [w for pair in also for w in pair]
            subprocess.run(["ip", "netns", "exec", ns, "ethtool", "-K", dev, *words], timeout=120,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            if on:
                continue
            text = run(["ip", "netns", "exec", ns, "ethtool", "-k", dev])
            state = dict(re.findall(r"^\s*([\w-]+): (on|off)", text, re.M))
            left = [f for f in FEATURES if state.get(f) == "on"]
            if left:
                raise RuntimeError(f"{ns} {dev}: {', '.join(left)} cannot be switched off")
        self.offloads = wanted

    def join(self, bridged):
        """Of a direct bed: do the workers' veths meet in the bridge, or end at the box?"""
        if not self.direct or bridged == self.bridged:
            return
        self._batch(self.ns("sw"), [
            f"link set p-w{i} " + ("master br0" if bridged else "nomaster")
            for i in range(self.workers)])
        self.bridged = bridged

    def packets(self):
        """Packets and bytes that have entered the bridge: each frame once. Without a bridge those
        that the box has sent as well."""
        links = json.loads(run(["ip", "-n", self.ns("sw"), "-s", "-j", "link"]))
        count = [x["stats64"][way] for x in links if x["ifname"].startswith("p-")
                 for way in (("rx",) if self.bridged else ("rx", "tx"))]
        return sum(x["packets"] for x in count), sum(x["bytes"] for x in count)

    def shape(self, rate_mbit, burst, limit):
        """A token bucket at both ends of every veth: so much each way for each worker and port."""
        for ns, dev in self.links():
            run(["tc", "-n", ns, "qdisc", "replace", "dev", dev, "root", "tbf", "rate",
                 f"{rate_mbit}mbit", "burst", str(burst), "limit", str(limit)])

    def shaper_drops(self):
        dropped = 0
        for ns, dev in self.links():
            for q in json.loads(run(["tc", "-n", ns, "-s", "-j", "qdisc", "show", "dev", dev])):
                dropped += q.get("drops", 0)
        return dropped

    # ---- processes --------------------------------------------------------------------------

    def start(self, who, cmd, log=None, stdout=None, env=None):
        """A process in a namespace. ip becomes the command: the id is the command's."""
        out = stdout if stdout is not None else subprocess.DEVNULL
        err = open(log, "ab") if log else subprocess.DEVNULL
        try:
            child = subprocess.Popen(["ip", "netns", "exec", self.ns(who), *cmd],
                                     stdin=subprocess.DEVNULL,
                                     stdout=err if log and stdout is None else out, stderr=err,
                                     preexec_fn=_die_with_parent,
                                     env={**os.environ, **(env or {})})
        finally:
            if log:
                err.close()
        self.running.append(child)
        return child

    def end(self, child, seconds=5):
        if child.poll() is None:
            child.send_signal(signal.SIGCONT)
            child.terminate()
            try:
                child.wait(seconds)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        if child in self.running:
            self.running.remove(child)


def remove_namespaces(prefix):
    for line in run(["ip", "netns", "list"]).splitlines():
        name = line.split()[0] if line.split() else ""
        if not name.startswith(prefix):
            continue
        # what is left in a namespace of ours is a child of what was started in it
        for pid in run(["ip", "netns", "pids", name]).split():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except OSError:
                pass
        subprocess.run(["ip", "netns", "del", name], timeout=120, check=False)


def remove_leftovers(name):
    """Namespaces of this benchmark whose maker is gone."""
    for line in run(["ip", "netns", "list"]).splitlines():
        found = re.match(rf"({re.escape(name)}(\d+))-sw\b", line)
        if found and not os.path.exists(f"/proc/{found.group(2)}"):
            remove_namespaces(found.group(1) + "-")


def await_text(path, pattern, child, seconds):
    """The line of a log that matches, within that time and while the process lives."""
    end = time.monotonic() + seconds
    while True:
        with open(path, encoding="utf-8", errors="replace") as f:
            text = f.read()
        found = re.search(pattern, text, re.M)
        if found:
            return found
        if child.poll() is not None or time.monotonic() > end:
            tail = "\n".join(text.splitlines()[-12:])
            why = "it ended" if child.poll() is not None else f"not after {seconds} s"
            raise RuntimeError(f"no /{pattern}/ in {path}: {why}\n{tail}")
        time.sleep(0.02)
