# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A configuration for the hardware that pbox-setup finds: each NIC but those of the management becomes a port."""

import ipaddress
import os
import shutil
import subprocess

from pbox_host import BIFURCATED, USERSPACE
from setup_plan import in_use, iommu_args, known_driver, nic_list

MARK = "# written by pbox-setup auto"
NET = 100  # the first port's address is 192.168.100.1
LEASE = os.path.join(os.path.dirname(os.path.realpath(__file__)), "setup_lease.sh")


class AutoError(Exception):
    """(subject, what was found, the next step)"""


def found_ports(machine, management_ports, args):
    """([port], [note]): a port has name, pci, interface, mac, driver, node, mtu, vdev."""
    if not management_ports and args.management != "none":
        raise AutoError("management port", "no interface has a default route", "name it: --management IFACE, or --management none; "
                        f"NICs: {nic_list(machine)}")
    ports, notes = [], []
    for pci in machine.nics():
        ifaces, driver = machine.interfaces(pci), machine.driver(pci)
        names = f"{pci} ({'/'.join(ifaces + [driver or 'no driver'])})"
        used = in_use(machine, pci, management_ports)
        if used:
            notes.append(f"{names} is left alone: {used[0]}")
            continue
        if machine.link(f"{machine.device(pci)}/physfn"):
            notes.append(f"{names} is left alone: a virtual function, made for somebody")
            continue
        iface = ifaces[0] if ifaces else None
        port = {"name": pci, "pci": pci, "interface": iface, "driver": driver, "node": machine.pci_node(pci), "vdev": None,
                "mac": machine.read(f"sys/class/net/{iface}/address"), "mtu": machine.read(f"sys/class/net/{iface}/mtu")}
        why = None
        if driver and not known_driver(driver):
            why = f"DPDK has no driver for devices of {driver}"
        elif driver not in BIFURCATED + USERSPACE and not machine.group(pci) and not args.noiommu and args.driver == "vfio-pci":
            why = f"it has no IOMMU group (firmware; boot with {iommu_args(machine)}; auto again)"
        if why and not iface:
            notes.append(f"{names} is left alone: {why}, and the kernel has no interface of it")
            continue
        if why:
            number = sum(p["vdev"] is not None for p in ports)
            port.update(name=f"net_packet{number}", vdev=f"net_packet{number},iface={iface}")
            notes.append(f"{names} stays with the kernel, and is a port by net_packet: {why}")
        ports.append(port)
    if not ports:
        raise AutoError("ports", "no NIC is left for data; NICs: " + nic_list(machine) + "".join(f"; {n}" for n in notes),
                        "add one, or name another management port: --management IFACE")
    return ports, notes


def kernel_networks(machine):
    found = []
    for line in (machine.read("proc/net/route") or "").splitlines()[1:]:
        words = line.split()
        if len(words) > 7 and words[7] != "00000000":
            address, mask = (int.from_bytes(int(words[i], 16).to_bytes(4, "little"), "big") for i in (1, 7))
            found.append(ipaddress.ip_network((address, bin(mask).count("1")), strict=False))
    return found


def addresses(machine, ports, seconds, notes):
    """Each port's address: by DHCP within so many seconds (0: not asked), else 192.168.(100 + i).1/24."""
    leases, taken, number = dhcp([p["interface"] for p in ports if p["interface"]], seconds, notes), kernel_networks(machine), NET
    taken += [ipaddress.ip_network(address, strict=False) for address, _ in leases.values()]
    for port in ports:
        lease = leases.get(port["interface"])
        if lease:
            port.update(address=lease[0], origin="DHCP", mtu=lease[1] or port["mtu"])
        else:
            while any(ipaddress.ip_network(f"192.168.{number}.0/24").overlaps(n) for n in taken):
                number += 1
            port.update(address=f"192.168.{number}.1/24", origin="default")
            number += 1


def dhcp(ifaces, seconds, notes):
    """{interface: (address/length, MTU or None)}; all are asked at the same time."""
    client = [shutil.which("udhcpc")] if shutil.which("udhcpc") else [shutil.which("busybox"), "udhcpc"]
    if seconds <= 0:
        return {}
    if client[0] is None:
        notes.append("there is no udhcpc, nor busybox, to ask for addresses with: all ports have the default")
        return {}
    asked, found = {}, {}
    for iface in ifaces:
        subprocess.run(["ip", "link", "set", iface, "up"], check=False)
        asked[iface] = subprocess.Popen(client + ["-i", iface, "-q", "-n", "-f", "-t", str(max(seconds // 2, 1)), "-T", "2", "-O", "mtu",
                                                  "-s", LEASE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for iface, child in asked.items():
        try:
            text, _ = child.communicate(timeout=seconds + 5)
        except subprocess.TimeoutExpired:
            child.kill()
            text, _ = child.communicate()
        words = text.split()
        if words and "/" in words[0]:
            found[iface] = words[0], words[1] if len(words) > 1 else None
    return found


def conf_text(ports, secret):
    lines = [f"{MARK}: change it as you like, and remove this line so that it stays", ""]
    for p in ports:
        about = ", ".join(x for x in (p["pci"], p["interface"], p["mac"], p["driver"],
                                      f"node {p['node']}" if p["node"] is not None else None) if x)
        lines += [f"# {about}; address: {p['origin']}", f"[port {p['name']}]", f"address = {p['address']}"]
        if int(p["mtu"] or 0) > 1500:  # the least that pbox takes, and its default
            lines.append(f"mtu = {p['mtu']}")
        lines.append("")
    lines += ["[job *]", f"secret = file:{secret}" if secret else
              "# anybody who reaches the ports may join\ninsecure = yes"]
    return "\n".join(lines) + "\n"
