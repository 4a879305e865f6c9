# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""What a host is: its CPUs, NUMA nodes, devices and interfaces, read from /proc and /sys or from copies of them, and
what pbox.conf and EAL's options say of it. Shared by pbox-hostcheck and pbox-setup; changes nothing."""

import os
import re
import shlex

USERSPACE = ("vfio-pci", "uio_pci_generic", "igb_uio")
BIFURCATED = ("mlx5_core", "mlx4_core")  # the kernel keeps these, DPDK shares them
PCI = r"([0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"


class ConfError(Exception):
    """The configuration or an option makes no sense."""


def cpu_list(text):
    """CPUs of '0-3,8'; EAL's '(0,1)@2' and '5@2-3' name those after the @."""
    cpus = set()
    text = re.sub(r"\([^)]*\)@", "@", text.strip())
    for part in re.split(r",(?![^(]*\))", text):
        part = part.split("@")[-1].strip("() ")
        for piece in part.split(","):
            m = re.fullmatch(r"(\d+)(?:-(\d+))?", piece)
            if m:
                cpus |= set(range(int(m[1]), int(m[2] or m[1]) + 1))
            elif piece and piece != "null":
                raise ConfError(f"'{text}' is no list of CPUs")
    return cpus


def show_cpus(cpus):
    out, rest = [], sorted(cpus)
    while rest:
        n = 1
        while n < len(rest) and rest[n] == rest[0] + n:
            n += 1
        out.append(str(rest[0]) if n == 1 else f"{rest[0]}-{rest[n - 1]}")
        rest = rest[n:]
    return ",".join(out) or "none"


def size_of(text):
    m = re.fullmatch(r"(\d+)([KMG]?)", text)
    return int(m[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[m[2]] if m else None


class Conf:
    """The global keys of a pbox.conf, its ports {name: {key: value}}, and the lines of both; the keys of its [cluster]."""

    def __init__(self, path=None):
        self.path, self.keys, self.ports, self.cluster, self.lines = path, {}, {}, {}, {}
        if path:
            self._read()

    def _read(self):
        try:
            with open(self.path, encoding="utf-8") as f:
                lines = f.read().splitlines()
        except OSError as e:
            raise ConfError(f"{self.path}: {e.strerror}") from e
        here, name = self.keys, None
        for number, line in enumerate(lines, 1):
            line = re.sub(r"(^|\s)[#;].*", "", line).strip()
            section = re.fullmatch(r"\[(\w+) +(.+)\]", line)
            if section:  # jobs are not the host's business
                name = section[2].strip() if section[1] == "port" else None
                here = self.ports.setdefault(name, {}) if name else self.cluster if section[1] == "cluster" else {}
            elif "=" in line:
                key, value = line.split("=", 1)
                here[key.strip()] = value.strip().strip('"')
            elif line:
                raise ConfError(f"{self.path} line {number}: neither a section nor 'key = value'")
            self.lines.setdefault(name if section else line.split("=")[0].strip(), number)

    def where(self, what):
        """Where a port's section or a global key is."""
        return f"{self.path} line {self.lines[what]}" if what in self.lines else str(self.path)


class Eal:
    """What of EAL's options a host has to provide: lcores, devices that are allowed, virtual ones."""

    def __init__(self, words=()):
        self.lcores, self.allow, self.vdev = None, [], []
        names = {"-l": "lcores", "--lcores": "lcores", "-a": "allow", "--allow": "allow", "--vdev": "vdev"}
        words = iter(words)
        for word in words:
            name, _, value = word.partition("=")
            if name not in names:
                continue
            value = value or next(words, "")
            if names[name] == "lcores":
                self.lcores = value
            else:
                getattr(self, names[name]).append(value)

    def device_of(self, port):
        """What a [port ...] section names; a number is an index of the devices that are allowed."""
        return self.allow[int(port)] if port.isdigit() and int(port) < len(self.allow) else port

    def iface_of(self, vdev):
        """(there is such a --vdev, its kernel interface or None)"""
        for text in self.vdev:
            device, _, rest = text.partition(",")
            if device == vdev:
                m = re.search(r"(?:^|,)iface=([^,]+)", rest)
                return True, m[1] if m and "/" not in m[1] else None
        return False, None

    @classmethod
    def of_file(cls, text):
        """Of a file with a line EAL_ARGS=..., as systemd reads it."""
        m = re.search(r"^\s*EAL_ARGS=(.*)$", text or "", re.M)
        words = shlex.split(m[1]) if m else []
        return cls(shlex.split(words[0]) if len(words) == 1 else words)


def full_pci(name):
    return name if name.count(":") == 2 else "0000:" + name


class Machine:
    """A host below a root directory; its /sys and /proc may be elsewhere."""

    def __init__(self, root="/", sysfs=None, proc=None):
        self.tree = {"sys": sysfs or os.path.join(root, "sys"), "proc": proc or os.path.join(root, "proc")}
        self.root = root
        self.online = cpu_list(self.read("sys/devices/system/cpu/online") or "")
        self.nodes = sorted(int(n[4:]) for n in self.ls("sys/devices/system/node") if re.fullmatch(r"node\d+", n)) or [0]
        self.node_cpus = {n: cpu_list(self.read(f"sys/devices/system/node/node{n}/cpulist") or "") for n in self.nodes}
        self.cmdline = (self.read("proc/cmdline") or "").split()
        self.cpuinfo = self.read("proc/cpuinfo") or ""
        self.flags = set((re.search(r"^flags\s*:(.*)$", self.cpuinfo, re.M) or ["", ""])[1].split())

    def path(self, path):
        """Of 'sys/...', 'proc/...' or any other path below the root."""
        first, _, rest = path.partition("/")
        return os.path.join(self.tree[first], rest) if first in self.tree else os.path.join(self.root, path)

    def read(self, path):
        """The text of a file, or None."""
        try:
            with open(self.path(path), encoding="utf-8", errors="replace") as f:
                return f.read().strip()
        except OSError:
            return None

    def ls(self, path):
        try:
            return sorted(os.listdir(self.path(path)))
        except OSError:
            return []

    def link(self, path):
        """The last part of where a symbolic link goes, or None."""
        try:
            return os.path.basename(os.readlink(self.path(path)))
        except OSError:
            return None

    def booted_with(self, key):
        """The value of a word of the kernel command line; '' without one, None if it is not there."""
        for word in self.cmdline:
            if word == key or word.startswith(key + "="):
                return word[len(key) + 1:]
        return None

    def node_of(self, cpu):
        return next((n for n, cpus in self.node_cpus.items() if cpu in cpus), 0)

    def twins(self, cpu):
        """The hyper-threads of its physical core, itself among them."""
        return cpu_list(self.read(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") or str(cpu))

    # ---- hugepages ----

    def hugepages_dir(self, node):
        base = f"sys/devices/system/node/node{node}/hugepages"
        return base if self.ls(base) or len(self.nodes) > 1 else "sys/kernel/mm/hugepages"

    def hugepages(self, node):
        """{size in bytes: (free, all)}"""
        base = self.hugepages_dir(node)
        return {int(name[10:-2]) * 1024: tuple(int(self.read(f"{base}/{name}/{what}_hugepages") or 0) for what in ("free", "nr"))
                for name in self.ls(base)}

    # ---- devices ----

    def device(self, pci):
        return f"sys/bus/pci/devices/{pci}"

    def nics(self):
        """Network devices of the PCI bus."""
        return [d for d in self.ls("sys/bus/pci/devices") if (self.read(f"{self.device(d)}/class") or "").startswith("0x0200")]

    def driver(self, pci):
        return self.link(f"{self.device(pci)}/driver")

    def pci_node(self, pci):
        """None: the firmware does not say."""
        node = self.read(f"{self.device(pci)}/numa_node")
        return int(node) if node and int(node) >= 0 else None

    def interfaces(self, pci):
        """The kernel's interfaces of a device; virtio has them one level below."""
        base = self.device(pci)
        found = self.ls(f"{base}/net")
        for child in self.ls(base):
            if re.fullmatch(r"virtio\d+", child):
                found += self.ls(f"{base}/{child}/net")
        return found

    def group(self, pci):
        """All devices of its IOMMU group; empty: it has none."""
        return self.ls(f"{self.device(pci)}/iommu_group/devices")

    def holder(self, pci):
        """A process that has the device by vfio: its number and name. None: nobody, or this user may not see it."""
        group = self.link(f"{self.device(pci)}/iommu_group")
        files = {f"/dev/vfio/{group}", f"/dev/vfio/noiommu-{group}"}
        for pid in self.ls("proc") if group else []:
            for fd in self.ls(f"proc/{pid}/fd") if pid.isdigit() else []:
                try:
                    if os.readlink(self.path(f"proc/{pid}/fd/{fd}")) in files:
                        return f"process {pid} ({self.read(f'proc/{pid}/comm')})"
                except OSError:
                    continue  # closed meanwhile
        return None

    def default_routes(self):
        """Interfaces that the host's default routes go through."""
        found = set()
        for line in (self.read("proc/net/route") or "").splitlines()[1:]:
            words = line.split()
            if words[1:2] == ["00000000"] and words[7:8] in ([], ["00000000"]):
                found.add(words[0])
        for line in (self.read("proc/net/ipv6_route") or "").splitlines():
            words = line.split()
            if words[:2] == ["0" * 32, "00"] and words[-1] != "lo":
                found.add(words[-1])
        return found
