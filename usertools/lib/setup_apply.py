# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Do what a plan of pbox-setup says, and undo it. Every change is written down before it is made, with what was there."""

import json
import os
import subprocess
import time

from pbox_host import USERSPACE, full_pci
from setup_plan import BOOT_FILE, BOOT_MARK, GIB, MIB

RUN = "run/pbox-setup"
STATE = f"{RUN}/state.json"
EAL = f"{RUN}/eal"
BIND_SECONDS = 5


class ApplyError(Exception):
    """(subject, what was found, the next step)"""


def write_file(path, text):
    """Whole or not at all."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as f:
        f.write(text)
    os.replace(path + ".new", path)


class Changer:
    def __init__(self, machine, say):
        self.machine, self.say = machine, say
        try:
            with open(machine.path(STATE), encoding="utf-8") as f:
                self.changes = json.load(f)["changes"]
        except OSError:
            self.changes = []
        except (ValueError, KeyError) as e:
            raise ApplyError(f"/{STATE}", f"is damaged: {e}", "remove it, and restart the host to be sure of its state") from e
        self.before = len(self.changes)

    def save(self):
        write_file(self.machine.path(STATE), json.dumps({"changes": self.changes}, indent=1) + "\n")

    def note(self, kind, what, was):
        """Once for each apply: what one of them changes, it can take back without those before it."""
        if not any(c["kind"] == kind and c["what"] == what for c in self.changes[self.before:]):
            self.changes.append({"kind": kind, "what": what, "was": was})
            self.save()

    def put(self, path, text):
        """Into a file of the kernel."""
        try:
            with open(self.machine.path(path), "w", encoding="utf-8") as f:
                f.write(text)
        except OSError as e:
            raise ApplyError(f"/{path}", f"cannot be written: {e.strerror}", "run it as root, outside of a container") from e

    def set(self, path, text):
        was = self.machine.read(path)
        if was != text:
            self.note("value", path, was)
            self.put(path, text)

    # ---- drivers ----

    def load(self, driver):
        m = self.machine
        if m.ls(f"sys/bus/pci/drivers/{driver}") or os.path.isdir(m.path(f"sys/bus/pci/drivers/{driver}")):
            return
        failed = "not here"
        if m.tree["sys"] == "/sys":
            done = subprocess.run(["modprobe", driver], stderr=subprocess.PIPE, text=True, check=False)
            failed = done.stderr.strip() if done.returncode else ""
        if failed:
            raise ApplyError(f"driver {driver}", f"is not loaded: {failed}", f"modprobe {driver}; a kernel that has it")

    def bind(self, pci, driver):
        """Give a device to a driver; '' leaves the choice to the kernel."""
        m, base = self.machine, self.machine.device(pci)
        holder = m.holder(pci)
        if holder:  # the kernel would wait for it, without end
            raise ApplyError(f"port {pci}", f"is used by {holder}", "systemctl stop pbox, or end that process")
        self.put(f"{base}/driver_override", (driver or "") + "\n")
        if m.driver(pci):
            self.put(f"{base}/driver/unbind", pci)
        self.put("sys/bus/pci/drivers_probe", pci)

    def wait_for(self, pci, driver, fix):
        end = time.monotonic() + BIND_SECONDS
        while self.machine.driver(pci) != driver:
            if time.monotonic() > end:
                raise ApplyError(f"port {pci}", f"has the driver {self.machine.driver(pci) or 'none'} and not {driver}", fix)
            time.sleep(0.02)

    def take(self, pci, driver):
        was = self.machine.driver(pci)
        self.note("driver", pci, was)
        self.bind(pci, driver)
        self.wait_for(pci, driver, "dmesg | tail says why; all devices of its IOMMU group must be free")
        self.say(f"port {pci}: {was or 'no driver'} -> {driver}")

    # ---- memory, interfaces ----

    def reserve(self, plan):
        m, node, size = self.machine, plan["node"], plan["size"]
        if plan["want"] <= plan["have"]:
            return
        path = f"{m.hugepages_dir(node)}/hugepages-{size // 1024}kB/nr_hugepages"
        now = int(m.read(path) or 0)
        wanted = now + -(-(plan["want"] - plan["have"]) // size)
        self.set(path, str(wanted))
        got = int(m.read(path) or 0)
        name = f"{size // MIB} MiB" if size < GIB else f"{size // GIB} GiB"
        if got < wanted:
            raise ApplyError(f"memory of node {node}", f"only {got} of {wanted} pages of {name} could be had: it is in use, or in pieces",
                             "reserve at boot: pbox-setup apply --boot-args, then restart the host" +
                             ("; or --pages 2M" if size == GIB else "; or lower memory"))
        self.say(f"node {node}: {now} -> {got} pages of {name}")

    def up(self, iface, mtu):
        base = f"sys/class/net/{iface}"
        if mtu.isdigit() and int(self.machine.read(f"{base}/mtu") or 0) < int(mtu):
            self.set(f"{base}/mtu", mtu)
        flags = int(self.machine.read(f"{base}/flags") or "0", 16)
        if not flags & 1:
            self.set(f"{base}/flags", hex(flags | 1))
            self.say(f"interface {iface}: up")

    def boot_file(self, words):
        m, text = self.machine, self.machine.read(BOOT_FILE)
        if text is not None and not text.startswith(BOOT_MARK):
            raise ApplyError(f"/{BOOT_FILE}", "is not pbox-setup's", "move it away")
        write_file(m.path(BOOT_FILE), f'{BOOT_MARK}; pbox-setup undo removes it\n'
                   f'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT {" ".join(words)}"\n')
        self.say(f"/{BOOT_FILE}: written; update-grub, and restart the host")

    # ---- back ----

    def undo(self, keep=0):
        """The latest change first, but for the `keep` oldest. What cannot be undone stays noted: (subject, why, the next step)."""
        failed = []
        for change in reversed(self.changes[keep:]):
            try:
                self.undo_one(change)
                self.changes.remove(change)
            except ApplyError as e:
                failed.append(e.args)
        if self.changes:
            self.save()
        else:
            for path in (STATE, EAL):
                if os.path.exists(self.machine.path(path)):
                    os.remove(self.machine.path(path))
        return failed

    def undo_one(self, change):
        m, what, was = self.machine, change["what"], change["was"]
        if change["kind"] == "value":
            self.put(what, was or "0")
            self.say(f"/{what}: {was}")
            return
        if not m.ls(m.device(what)):
            self.say(f"port {what}: is not there any more")
            return
        self.bind(what, was if was in USERSPACE else None)
        if was:
            self.wait_for(what, was, f"modprobe {was}")
        self.say(f"port {what}: {was or 'no driver'}")

    def undo_boot_file(self):
        if (self.machine.read(BOOT_FILE) or "").startswith(BOOT_MARK):
            os.remove(self.machine.path(BOOT_FILE))
            self.say(f"/{BOOT_FILE}: removed; update-grub, and restart the host")


def apply(plan, say):
    """All of a plan without errors, or nothing: what was done is undone when a step fails."""
    c, m, args = Changer(plan.machine, say), plan.machine, plan.args
    if args.boot_args:  # first, and it stays: it repairs what may fail below
        c.boot_file(plan.kernel_args)
    try:
        for node in plan.memory:
            c.reserve(node)
        bound = [p for p in plan.ports if p["action"] == "bind"]
        if bound:
            c.load(args.driver)
        if args.noiommu and any(not m.group(full_pci(p["pci"])) for p in bound):
            mode = "sys/module/vfio/parameters/enable_unsafe_noiommu_mode"
            if m.read(mode) is None:
                raise ApplyError("--noiommu", "this kernel has no such mode (Debian's have none)", "--driver uio_pci_generic, and "
                                 "the box as root; or ports on net_packet")
            c.set(mode, "Y")
        for p in bound:
            c.take(p["pci"], args.driver)
        for p in plan.ports:
            if p["action"] == "up":
                c.up(p["interfaces"][0], p["mtu"])
        c.save()
        write_file(m.path(EAL), "EAL_ARGS=" + " ".join(plan.eal_args) + "\n")
    except ApplyError:
        c.undo(c.before)
        raise
