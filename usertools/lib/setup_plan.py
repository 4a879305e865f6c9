# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""What pbox-setup has to do for a configuration: which NICs to bind, pages to reserve and cores to isolate, and what
is in the way. Looks only; setup_apply does it."""

import os
import re

from pbox_host import BIFURCATED, PCI, USERSPACE, ConfError, cpu_list, full_pci, show_cpus, size_of

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
PAGE_NAMES = {"2M": 2 * MIB, "1G": GIB}
CORES_OF_PORT = 4  # data cores for each port of a node: one sums more than 100 Gbit/s
CORES_MAX = 64  # pbox's
CORE_MEMORY = 16 * MIB  # answers and rings of a data core
PARAMETERS_LEAST = 64 * MIB
PIECE = {2 * MIB: 16 * GIB, GIB: 32 * GIB}  # the largest that DPDK gives at a time, by size of page
BOOT_FILE = "etc/default/grub.d/pbox.cfg"
BOOT_MARK = "# written by pbox-setup"


def cpus(text):
    return show_cpus(cpu_list(text)) if isinstance(text, str) else show_cpus(text)


class Plan:
    """All of it; `errors` not empty: nothing of it may be done. Each is (subject, what was found, the next step)."""

    def __init__(self, machine, conf, eal, args):
        self.machine, self.conf, self.eal, self.args = machine, conf, eal, args
        self.errors, self.notes = [], []
        self.boot_fixes = 0  # errors that the kernel's arguments fix
        self.management = management(machine, args.management, self.errors)
        self.ports = self._ports()
        self._cores()
        self.memory = [self._memory(node) for node in self._used_nodes()]
        self.kernel_args = self._kernel_args()
        self.eal_args = self._eal_args()

    # ---- ports ----

    def _ports(self):
        if not self.conf.ports:
            self.errors.append((str(self.conf.path), "has no [port ...] section", "name the ports: pbox-setup auto --write FILE"))
        ports = [self._port(name, keys) for name, keys in self.conf.ports.items()]
        seen = {}
        for p in ports:
            if p["pci"] in seen:
                self._wrong(p["name"], f"is the same device as [port {seen[p['pci']]}]", "remove one of them")
            elif p["pci"]:
                seen[p["pci"]] = p["name"]
        return ports

    def _wrong(self, name, found, fix):
        self.errors.append((f"port {name} ({self.conf.where(name)})", found, fix))

    def _port(self, name, keys):
        m, port = self.machine, {"name": name, "pci": None, "interfaces": [], "driver": None, "node": None, "action": "keep",
                                 "mtu": keys.get("mtu", "auto"), "queues": keys.get("queues", "auto")}
        real = self.eal.device_of(name)
        if re.fullmatch(PCI, real):
            self._pci_port(port, full_pci(real))
            return port
        known, iface = self.eal.iface_of(real)
        if iface:
            self._kernel_port(port, iface)
        elif not known and m.ls(f"sys/class/net/{real}"):
            pci = next((d for d in m.nics() if real in m.interfaces(d)), None)
            self._wrong(name, "is an interface of the kernel", f"write its address: [port {pci}]" if pci else
                        f"[port net_packet0], and --vdev net_packet0,iface={real} in {self.args.eal}")
        elif not known and name.isdigit():
            free = [d for d in m.nics() if not in_use(m, d, self.management)]
            self._wrong(name, "is a number of EAL's, which are not known before it runs",
                        f"write the NIC's address, [port {(free or ['0000:03:00.0'])[0]}] (NICs here: {nic_list(m)}); or let it be written: "
                        "pbox-setup auto --write FILE")
        elif not known:
            self._wrong(name, "is no address of a PCI device, and no --vdev of EAL",
                        f"NICs here: {nic_list(m)}; or add --vdev {real},... to EAL_ARGS in {self.args.eal}")
        return port

    def _pci_port(self, port, pci):
        m, name = self.machine, port["name"]
        port.update(pci=pci, driver=m.driver(pci), node=m.pci_node(pci), interfaces=m.interfaces(pci))
        kind = m.read(f"{m.device(pci)}/class")
        if kind is None:
            self._wrong(name, "there is no such PCI device", f"NICs here: {nic_list(m)}")
            return
        if not kind.startswith("0x0200"):
            self._wrong(name, f"is no NIC (class {kind})", f"NICs here: {nic_list(m)}")
            return
        used = in_use(m, pci, self.management)
        if used:
            self._wrong(name, *used)
            return
        if port["driver"] in BIFURCATED:
            self.notes.append(f"port {name}: stays with {port['driver']}, which DPDK shares with the kernel")
        elif port["driver"] != self.args.driver:
            port["action"] = "bind"
        self._iommu(port)

    def _iommu(self, port):
        m, name, pci, driver = self.machine, port["name"], port["pci"], self.args.driver
        if port["driver"] in BIFURCATED or driver != "vfio-pci":
            return
        if not m.group(pci):
            if not self.args.noiommu:
                self.boot_fixes += 1
                self._wrong(name, "has no IOMMU group: vfio-pci cannot keep it from memory that is not its own",
                            "switch VT-d or AMD-Vi on in the firmware, boot with " + iommu_args(m) + " (pbox-setup apply "
                            "--boot-args); or leave it to the kernel as a net_packet port; or --noiommu")
            return
        configured = {full_pci(n) for n in self.conf.ports if re.fullmatch(PCI, n)}
        for other in m.group(pci):
            held = m.driver(other)
            if other != pci and other not in configured and held not in (None, "vfio-pci", "pcieport", "shpchp"):
                self._wrong(name, f"shares its IOMMU group with {other}, which {held} has",
                            f"unbind that one too, make it a port, or move the card to another slot ({len(m.group(pci))} devices)")

    def _kernel_port(self, port, iface):
        m, name = self.machine, port["name"]
        port.update(interfaces=[iface], action="up")
        base = f"sys/class/net/{iface}"
        if not m.ls(base):
            self._wrong(name, f"there is no interface {iface}", f"interfaces: {', '.join(m.ls('sys/class/net')) or 'none'}; iface= of "
                        f"--vdev {name} in {self.args.eal}")
            return
        used = interface_in_use(m, iface, self.management)
        if used:
            self._wrong(name, *used)
        pci = next((d for d in m.nics() if iface in m.interfaces(d)), None)
        port["node"] = m.pci_node(pci) if pci else None

    # ---- cores ----

    def _cores(self):
        m, text = self.machine, self.args.cores or self.eal.lcores
        if text:
            self.data = cpu_list(text)
            gone = self.data - m.online
            if gone:
                self.errors.append(("cores", f"CPUs {cpus(gone)} are not online", f"choose from {cpus(m.online)}"))
        else:
            self.data = choose_cores(m, self.ports)
        self.isolated = set().union(*(m.twins(c) for c in self.data)) & m.online if self.data else set()
        self.others = m.online - self.isolated
        if not self.others:
            self.isolated, self.others = set(), m.online
            self.notes.append(f"cores {cpus(self.data)}: no CPU is left for the kernel, nothing is isolated")

    def _used_nodes(self):
        used = {p["node"] for p in self.ports if p["node"] is not None} | {self.machine.node_of(c) for c in self.data}
        return sorted(used & set(self.machine.nodes)) or self.machine.nodes[:1]

    # ---- memory ----

    def _packets(self, node):
        """What packets take of a node (doc/operate-configure.md, "Memory"), generously."""
        here = sum(self.machine.node_of(c) == node for c in self.data)
        hold, total = int(self.conf.keys.get("hold", 4096)), here * CORE_MEMORY
        for p in self.ports:
            if p["node"] not in (None, node):
                continue
            mtu = int(p["mtu"]) if p["mtu"].isdigit() else 1500
            queues = int(p["queues"]) if p["queues"].isdigit() else max(here, 1)
            room = -(-mtu // KIB) * KIB + 512
            total += queues * (hold + 4096) * room
        return total

    def _memory(self, node):
        m, text = self.machine, self.conf.keys.get("memory", "auto")
        fixed = None if text == "auto" else size_of(text)
        if text != "auto" and fixed is None:
            raise ConfError(f"{self.conf.where('memory')}: memory = {text} is no size: 8G, 512M or auto")
        pages = m.hugepages(node)
        have = sum(size * n[1] for size, n in pages.items())
        free, packets = node_free(m, node), self._packets(node)
        least = packets + (fixed or PARAMETERS_LEAST)
        want = least if fixed else auto_memory(free + have, least, GIB if self._page(node, GIB) == GIB else 2 * MIB)
        plan = {"node": node, "have": have, "want": want, "size": self._page(node, want), "least": least, "free": free}
        subject = f"memory of node {node}"
        if not pages:
            self.errors.append((subject, "the kernel has no hugepages", "a kernel with CONFIG_HUGETLBFS"))
        elif have >= want or (have >= least and not fixed):
            plan["want"] = have  # reserved at boot, or by hand: enough
        elif want - have > free:
            what = f"memory = {text} ({self.conf.where('memory')})" if fixed else f"{PARAMETERS_LEAST // MIB} MiB of parameters"
            self.errors.append((subject, f"{what} and {packets // MIB} MiB of packets need {(want - have) // MIB + 1} MiB more of hugepages, "
                                f"and {free // MIB} MiB can be had", "lower memory, hold, mtu or queues, or give the node memory"))
        return plan

    def _page(self, node, want):
        """The size of page to reserve: large ones can be had at boot, hardly later."""
        if self.args.pages in PAGE_NAMES:
            size = PAGE_NAMES[self.args.pages]
            if size not in self.machine.hugepages(node):
                raise ConfError(f"--pages {self.args.pages}: the CPU or the kernel has no pages of that size")
            return size
        large = self.machine.hugepages(node).get(GIB)
        return GIB if large and large[1] > 0 and want >= GIB else 2 * MIB

    # ---- kernel, EAL ----

    def _kernel_args(self):
        words = []
        if self.isolated:
            text = cpus(self.isolated)
            words += [f"isolcpus=managed_irq,domain,{text}", f"nohz_full={text}", f"rcu_nocbs={text}", f"irqaffinity={cpus(self.others)}"]
        if any(p["pci"] for p in self.ports):
            words += iommu_args(self.machine).split()
        large = self.args.pages == "1G" or (self.args.pages == "auto" and "pdpe1gb" in self.machine.flags and all(
            p["want"] >= 4 * GIB for p in self.memory))
        size, name = (GIB, "1G") if large else (2 * MIB, "2M")
        counts = [f"{p['node']}:{-(-p['want'] // size)}" for p in self.memory]
        if len(self.machine.nodes) == 1:
            counts = [c.partition(":")[2] for c in counts]
        return words + ([f"default_hugepagesz={name}"] if large else []) + [f"hugepagesz={name}", "hugepages=" + ",".join(counts)]

    def missing_args(self):
        return [w for w in self.kernel_args if not w.startswith(("hugepage", "default_huge")) and w not in self.machine.cmdline]

    def _eal_args(self):
        allow = [w for p in self.ports if p["pci"] for w in ("-a", p["pci"])]
        vdev = [w for v in self.eal.vdev for w in ("--vdev", v)]
        return ["-l", cpus(self.data), *(allow or ["--no-pci"]), *vdev, "--in-memory"]

    def as_json(self):
        return {
            "ports": self.ports, "management": [{"interface": i, "why": w} for i, w in sorted(self.management.items())],
            "cores": {"data": cpus(self.data), "isolated": cpus(self.isolated), "others": cpus(self.others)},
            "memory": self.memory, "kernel_args": " ".join(self.kernel_args), "kernel_args_missing": " ".join(self.missing_args()),
            "eal_args": " ".join(self.eal_args), "notes": self.notes,
            "errors": [dict(zip(("subject", "found", "fix"), e)) for e in self.errors]}


# ---- who uses a NIC ------------------------------------------------------------------------------------


def management(machine, named, errors):
    """{interface: why it is nobody else's}: named, with a default route, the way back to who is logged in; and what lies
    below these (ports of a bridge or bond, the interface of a VLAN)."""
    found = {i: "has the default route of this host" for i in machine.default_routes()}
    client = os.environ.get("SSH_CONNECTION", "").split()
    if client and (way := route_to(machine, client[0])):
        found.setdefault(way, f"leads to {client[0]}, where you are logged in from")
    for name in [] if named in (None, "none") else named.split(","):
        names = machine.interfaces(full_pci(name)) if re.fullmatch(PCI, name) else [name]
        for i in names:
            if not machine.ls(f"sys/class/net/{i}"):
                errors.append((f"management port {i}", "there is no such interface",
                               f"interfaces: {', '.join(machine.ls('sys/class/net')) or 'none'}"))
            found[i] = "is named as management port"
    todo = list(found)
    while todo:
        upper = todo.pop()
        for entry in machine.ls(f"sys/class/net/{upper}"):
            if entry.startswith("lower_") and entry[6:] not in found:
                found[entry[6:]] = f"carries {upper}, which {found[upper]}"
                todo.append(entry[6:])
    return found


def route_to(machine, address):
    """The interface of the longest prefix of the kernel's IPv4 routes; None: none, or another family."""
    if not re.fullmatch(r"\d+(\.\d+){3}", address):
        return None
    ip, best = int.from_bytes(bytes(int(x) for x in address.split(".")), "little"), (-1, None)
    for line in (machine.read("proc/net/route") or "").splitlines()[1:]:
        words = line.split()
        if len(words) > 7 and ip & int(words[7], 16) == int(words[1], 16):
            best = max(best, (bin(int(words[7], 16)).count("1"), words[0]))
    return best[1]


def interface_in_use(machine, iface, management_ports):
    """(what is wrong, the next step), or None."""
    base = f"sys/class/net/{iface}"
    if iface in management_ports:
        return f"{iface} {management_ports[iface]}: it is the management port", "name another NIC: that one stays with the kernel"
    master = machine.link(f"{base}/master")
    if master:
        kind = "bond" if machine.ls(f"sys/class/net/{master}/bonding") else "bridge" if machine.ls(
            f"sys/class/net/{master}/bridge") else "device"
        return f"{iface} is in use by the {kind} {master}", f"ip link set {iface} nomaster, for good in the network configuration; or another NIC"
    upper = [e[6:] for e in machine.ls(base) if e.startswith("upper_")]
    if upper:
        return f"{iface} carries {', '.join(upper)}", f"ip link del {upper[0]}, for good in the network configuration; or another NIC"
    return None


def in_use(machine, pci, management_ports):
    for iface in machine.interfaces(pci):
        used = interface_in_use(machine, iface, management_ports)
        if used:
            return used
    vfs = int(machine.read(f"{machine.device(pci)}/sriov_numvfs") or 0)
    if vfs:
        return f"has {vfs} virtual functions, which would go", f"echo 0 > /sys/bus/pci/devices/{pci}/sriov_numvfs; or make them the ports"
    return None


def nic_list(machine):
    return ", ".join(f"{d} ({'/'.join(machine.interfaces(d) + [machine.driver(d) or 'no driver'])})" for d in machine.nics()) or "none"


def iommu_args(machine):
    return "intel_iommu=on iommu=pt" if "GenuineIntel" in machine.cpuinfo else "iommu=pt"


# ---- cores and memory ----------------------------------------------------------------------------------


def choose_cores(machine, ports):
    """Data cores: one hyper-thread of each physical core, on the nodes of ports, four for each port at most. CPU 0's
    physical core is never one, and two CPUs are left where there are four."""
    online, kept = machine.online, machine.twins(min(machine.online or {0}))
    nodes = {p["node"] if p["node"] in machine.node_cpus else None for p in ports} or {None}
    free = {}
    for cpu in sorted(online - kept):
        if cpu == min(machine.twins(cpu) & online):
            free.setdefault(machine.node_of(cpu), []).append(cpu)
    chosen = {}
    for node in nodes:
        here = sum(p["node"] == node for p in ports)
        homes = [node] if free.get(node) else sorted(free)
        for home in homes:
            chosen[home] = free[home][:max(len(chosen.get(home, [])), CORES_OF_PORT * here)]
    if not any(chosen.values()):
        return {min(online)} if online else {0}

    def left():
        return len(online) - len(set().union(*(machine.twins(c) for cs in chosen.values() for c in cs)))
    while sum(map(len, chosen.values())) > CORES_MAX or (left() < 2 and max(map(len, chosen.values())) > 1):
        max(chosen.values(), key=len).pop()
    return {c for cs in chosen.values() for c in cs}


def node_free(machine, node):
    """Bytes that hugepages can be made of: free memory and the page cache, but for what the kernel keeps."""
    text = machine.read(f"sys/devices/system/node/node{node}/meminfo") or machine.read("proc/meminfo") or ""
    kib = {key: int(n) for key, n in re.findall(r"(\w+(?:\(\w+\))?):\s+(\d+) kB", text)}
    total, free = (kib.get(k, 0) * KIB for k in ("MemTotal", "MemFree"))
    cache = (kib.get("Active(file)", 0) + kib.get("Inactive(file)", 0)) * KIB
    return max(free + cache - min(total // 8, GIB), 0)


def auto_memory(available, least, page):
    """Three quarters of large memory, half of small; and no more than the largest piece of parameters."""
    share = available * 3 // 4 if available >= 8 * GIB else available // 2
    return max(least, min(share, PIECE[page] * 4 // 3))


def known_driver(driver):
    return driver in USERSPACE or driver in BIFURCATED or driver in PMD_OF_KERNEL


# drivers of the kernel whose devices DPDK 22.11 drives, too
PMD_OF_KERNEL = frozenset((
    "e1000", "e1000e", "igb", "igbvf", "igc", "ixgbe", "ixgbevf", "i40e", "iavf", "ice", "virtio-pci", "vmxnet3", "ena", "bnxt_en",
    "bnx2x", "cxgb4", "enic", "qede", "sfc", "hns3", "ionic", "nfp", "atlantic", "gve", "liquidio", "fm10k", "hinic", "mlx4_core",
    "mlx5_core", "ngbe", "txgbe"))
