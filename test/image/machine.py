# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A box in QEMU, and workers of it in a network namespace of this machine; for the programs of test/image.

Net: a namespace whose TAP devices d0, d1, ... are the other ends of the box's data ports; QEMU runs in it as well. The
management port is QEMU's user network: it has a DHCP server, and forwards two ports of the namespace's loopback.
"""

import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import time

import stuck

METRICS, SSH = 19517, 10022  # on the namespace's loopback
MIB = 1 << 20
OVMF = "/usr/share/OVMF/OVMF_CODE.fd"


PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


class Failed(Exception):
    """Something did not happen in its time."""


class Emulator(Failed):
    """And that is proven to be a fault of QEMU's."""


def run(*command, seconds=60, check=True, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds, check=False,
                          stdin=more.pop("stdin", subprocess.DEVNULL), **more)
    if check and done.returncode:
        raise Failed(f"{' '.join(command)}: status {done.returncode}\n{done.stdout[-2000:]}")
    return done.stdout


def wait(what, seconds, condition):
    """The first result of condition() that is true; Failed after so many seconds. A question that the machine did not answer in time
    is asked again: a host that is short of CPU makes a guest slow."""
    end = time.monotonic() + seconds
    while True:
        try:
            found = condition()
        except subprocess.TimeoutExpired:
            found = None
        if found:
            return found
        if time.monotonic() > end:
            raise Failed(f"no {what} within {seconds} s")
        time.sleep(0.1)


def end(child, seconds=5):
    """Ends a process that was started here, with its group."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGTERM)
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def dies_with(parent):
    """For a child before it becomes another program: the kernel ends it with its parent, however that ends."""
    def arrange():
        # "ip netns exec" and QEMU are the same process: exec keeps this
        if LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0 or os.getppid() != parent:
            os._exit(1)
    return arrange


class Net:
    def __init__(self, ports, mtu=9000, queues=1):
        self.name, self.ports, self.mtu, self.queues = f"image-{os.getpid()}", ports, mtu, queues
        run("ip", "netns", "add", self.name)
        self.exec("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1", check=False)
        run("ip", "-n", self.name, "link", "set", "lo", "up")
        for i in range(ports):
            self.exec("ip", "tuntap", "add", f"d{i}", "mode", "tap", "vnet_hdr", *(["multi_queue"] if queues > 1 else []))
            self.exec("ethtool", "-K", f"d{i}", "tx", "off")
            self.exec("ip", "addr", "add", f"192.168.{100 + i}.10/24", "dev", f"d{i}")
        self.set_mtu(mtu)

    def set_mtu(self, mtu):
        self.mtu = mtu
        for i in range(self.ports):
            run("ip", "-n", self.name, "link", "set", f"d{i}", "mtu", str(mtu), "up")

    def exec(self, *command, **more):
        return run("ip", "netns", "exec", self.name, *command, **more)

    def start(self, log, *command, env=None):
        with open(log, "w", encoding="utf-8") as out:
            return subprocess.Popen(["ip", "netns", "exec", self.name, *command], stdout=out, stderr=subprocess.STDOUT,
                                    stdin=subprocess.DEVNULL, start_new_session=True, env={**os.environ, **(env or {})},
                                    preexec_fn=dies_with(os.getpid()))

    def close(self):
        run("ip", "netns", "del", self.name, check=False)


def accelerator():
    """KVM opens on machines where a stock kernel cannot run in it: only the CPU's own flag says that it can."""
    with open("/proc/cpuinfo", encoding="ascii") as f:
        if re.search(r"\b(vmx|svm)\b", f.read()) and os.access("/dev/kvm", os.W_OK):
            return ["-accel", "kvm", "-cpu", "host"]
    return ["-accel", "tcg,thread=multi,tb-size=512", "-cpu", "Westmere,+pdpe1gb"]


class Machine:
    """A box of four CPUs with an IOMMU. With two nodes the first half of the data ports hangs on node 0, the others on node 1;
    with one there is nothing that says where they are. network: it starts from boot.ipxe of that folder, by TFTP. web: what is in
    that folder is at http://10.0.2.100."""

    def __init__(self, net, folder, disk=None, cdrom=None, network=None, uefi=False, model="virtio-net-pci", nodes=2, memory=3072, web=None):
        self.net, self.folder, self.memory = net, folder, memory
        self.serial_log = os.path.join(folder, "serial.log")
        self.seen, self.child, self.qmp = 0, None, None
        self.started = 0.0
        c = ["qemu-system-x86_64", "-name", f"{net.name},debug-threads=on", *accelerator(), "-M", "q35", "-display", "none",
             "-vga", "none", "-nodefaults", "-m", str(memory),
             "-smp", f"4,sockets={nodes},cores={4 // nodes},threads=1", "-device", "intel-iommu,intremap=on,device-iotlb=on",
             "-device", "virtio-rng-pci", "-global", "ICH9-LPC.noreboot=false", "-action", "watchdog=reset",
             "-chardev", f"socket,id=console,path={folder}/serial,server=on,wait=off,logfile={self.serial_log},logappend=on",
             "-serial", "chardev:console", "-qmp", f"unix:{folder}/qmp,server=on,wait=off"]
        if nodes == 2:
            c += self.two_nodes(memory // 2)
        if uefi:
            c += ["-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={OVMF}"]
        if disk:
            c += ["-drive", f"if=none,id=disk,format=raw,file={disk}", "-device", "ide-hd,drive=disk,bus=ide.0,bootindex=1"]
        if cdrom:
            c += ["-drive", f"if=none,id=cd,format=raw,readonly=on,file={cdrom}", "-device", "ide-cd,drive=cd,bus=ide.1,bootindex=2"]
        tftp = f",tftp={network},bootfile=boot.ipxe" if network else ""
        http = f",guestfwd=tcp:10.0.2.100:80-cmd:busybox httpd -i -h {web}" if web else ""
        c += ["-netdev", f"user,id=mgmt,restrict=on,hostfwd=tcp:127.0.0.1:{METRICS}-:9517,hostfwd=tcp:127.0.0.1:{SSH}-:22{tftp}{http}",
              "-device", "e1000e,netdev=mgmt,mac=52:54:00:00:00:01,bus=pcie.0,addr=8," + ("bootindex=3" if network else "romfile=")]
        for i in range(net.ports):
            more = f",disable-legacy=on,iommu_platform=on,ats=on,host_mtu={net.mtu}" if model == "virtio-net-pci" else ""
            bus = f"pxb{i * nodes // net.ports}" if nodes == 2 else "pcie.0"
            queues = f",queues={net.queues}" if net.queues > 1 else ""
            more += f",mq=on,vectors={2 * net.queues + 2}" if queues else ""
            c += ["-device", f"pcie-root-port,id=rp{i},bus={bus},chassis={i + 1},slot={i + 1}",
                  "-netdev", f"tap,id=n{i},ifname=d{i},script=no,downscript=no,vhost=off{queues}",
                  "-device", f"{model},id=nic{i},netdev=n{i},mac=52:54:00:00:01:0{i},romfile=,bus=rp{i}{more}"]
        self.command = c

    @staticmethod
    def two_nodes(half):
        return ["-object", f"memory-backend-ram,id=m0,size={half}M", "-object", f"memory-backend-ram,id=m1,size={half}M",
                "-numa", "node,nodeid=0,cpus=0-1,memdev=m0", "-numa", "node,nodeid=1,cpus=2-3,memdev=m1",
                "-numa", "dist,src=0,dst=1,val=21",
                "-device", "pxb-pcie,id=pxb0,bus_nr=64,bus=pcie.0,numa_node=0",
                "-device", "pxb-pcie,id=pxb1,bus_nr=128,bus=pcie.0,numa_node=1"]

    def start(self):
        """Power on."""
        for name in ("serial", "qmp"):
            if os.path.exists(os.path.join(self.folder, name)):
                os.remove(os.path.join(self.folder, name))
        self.seen = os.path.getsize(self.serial_log) if os.path.exists(self.serial_log) else 0
        self.started = time.monotonic()
        self.child = self.net.start(os.path.join(self.folder, "qemu.log"), *self.command)
        wait("QEMU", 20, lambda: self.child.poll() is not None or os.path.exists(os.path.join(self.folder, "qmp")))
        if self.child.poll() is not None:
            with open(os.path.join(self.folder, "qemu.log"), encoding="utf-8") as f:
                raise Failed("QEMU: " + f.read()[-2000:])

    def text(self):
        """What the console has said since the power was switched on."""
        if not os.path.exists(self.serial_log):
            return ""
        with open(self.serial_log, encoding="utf-8", errors="replace") as f:
            f.seek(self.seen)
            return f.read().replace("\r", "")

    def says(self, pattern, seconds, since=0):
        """Waits for a line of the console."""
        def look():
            if self.child.poll() is not None:
                raise Failed(f"QEMU ended; waiting for /{pattern}/")
            return re.search(pattern, self.text()[since:], re.M)
        try:
            return wait(f"/{pattern}/ on the console", seconds, look)
        except Failed as e:
            # what would come at once is no reason to look into the machine
            why = "\n" + stuck.report(self) if seconds >= 60 and self.child.poll() is None else ""
            kind = Emulator if stuck.STALE in why else Failed
            raise kind(f"{e}; its last lines:\n{self.text()[-1500:]}{why}") from None

    def key(self, key):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(os.path.join(self.folder, "serial"))
            s.sendall(key.encode())
            time.sleep(0.2)

    def monitor(self, command, **arguments):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(20)
            s.connect(os.path.join(self.folder, "qmp"))
            f = s.makefile("rw")
            f.readline()
            for c in ({"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments}):
                f.write(json.dumps(c) + "\n")
                f.flush()
                while True:
                    answer = json.loads(f.readline())
                    if "return" in answer or "error" in answer:
                        break
            return answer

    def metrics(self, seconds=600):
        """(name, labels) -> value, of the exporter on the management address: all of them. It starts when the box does, and later
        than that; a box that is busy in an emulated machine may not have answered each of its questions."""
        def ask():
            try:
                return self.ask_metrics()
            except Failed:
                return None
        return wait("metrics on the management address", seconds, ask)

    def ask_metrics(self):
        text = self.net.exec("/usr/bin/python3", "-c", "import sys, urllib.request as u; "
                             f"sys.stdout.write(u.urlopen('http://127.0.0.1:{METRICS}/metrics', timeout=20).read().decode())")
        out = {}
        for name, labels, value in re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", text, re.M):
            out[name, labels] = float(value)
        if out["pbox_up", ""] != 1 or out["pbox_scrape_errors", ""] != 0:
            raise Failed("the box has not answered all of the exporter")
        return out

    def ssh(self, key, *command, seconds=240, **more):
        return self.net.exec(*ssh_command(key), "root@127.0.0.1", *command, seconds=seconds, **more)

    def power_cut(self):
        if self.child and self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()

    def power_button(self, seconds=300):
        """Switches it off as an operator does."""
        self.monitor("system_powerdown")
        self.child.wait(seconds)

    def close(self):
        if self.child:
            end(self.child)


def ssh_command(key):
    return ["/usr/bin/ssh", "-q", "-p", str(SSH), "-i", key, "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
            "-o", "BatchMode=yes", "-o", "ConnectTimeout=20"]


def new_key(path):
    """Makes one, without a passphrase; gives its public half."""
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path)
    with open(path + ".pub", encoding="ascii") as f:
        return f.read()


def new_disk(image, path, room=256):
    """A disk with that image, and room after it."""
    run("cp", "--sparse=always", image, path)
    with open(path, "r+b") as f:
        f.truncate(os.path.getsize(path) + room * MIB)


def conf_offset(disk):
    text = run("sfdisk", "--json", disk)  # after what it has to say about room at the end
    table = json.loads(text[text.index("{"):])["partitiontable"]
    return next(p["start"] * 512 for p in table["partitions"] if p.get("name") == "pbox-conf")


def configure(disk, folder, **files):
    """Puts files on PBOX-CONF; '_' in a name is '.', an empty text removes."""
    at = f"{disk}@@{conf_offset(disk)}"
    for name, text in files.items():
        name = name.replace("_conf", ".conf").replace("_secret", ".secret")
        run("mdel", "-i", at, f"::/{name}", check=False)
        if text:
            path = os.path.join(folder, "file")
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
            run("mcopy", "-o", "-i", at, path, f"::/{name}")
