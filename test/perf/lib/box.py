# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The daemon and pbox-perf in a bed."""

import glob
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

from bed import await_text, processor_seconds

# device string of a port; {i} is its number, {dev} the box's interface
VDEVS = {
    "af_packet": "net_af_packet{i},iface={dev},framesz={framesz},blocksz={blocksz},framecnt={framecnt}",
    "af_xdp": "net_af_xdp{i},iface={dev},busy_budget=0",
    "packet": "net_packet{i},iface={dev}",
    "vhost": "net_vhost{i},iface={dir}/vhost{i},queues=1",
}
# what a worker with a port of its own has on the other side
WORKER_VDEVS = {
    "packet": "net_packet0,iface=eth0",
    "vhost": "net_virtio_user0,path={dir}/vhost{i},queues=1,packed_vq=1,in_order=1,queue_size=1024",
}
XDP_MTU = 3400  # veth lets no larger frames pass to AF_XDP


def vdev(kind, i, mtu, dev, directory, framecnt=4096):
    """Frames of net_af_packet must fit: framesz divides blocksz, longer frames are cut."""
    small = mtu <= 1500
    return VDEVS.get(kind, kind).format(
        i=i, mtu=mtu, dev=dev, dir=directory, framesz=2048 if small else 9216, blocksz=65536 if small else 36864,
        framecnt=framecnt)


def device_name(text):
    return text.split(",")[0]


def hugepages_free():
    """{page KiB: pages free}."""
    free = {}
    for path in glob.glob("/sys/kernel/mm/hugepages/hugepages-*kB"):
        with open(path + "/free_hugepages", encoding="ascii") as f:
            free[int(path.rsplit("-", 1)[1][:-2])] = int(f.read())
    return free


def memory_arguments(mib, pages="auto"):
    """EAL arguments, and what they take: hugepages where enough are free.

    PBOX_PERF_PAGES=none: not even then. Another program's may be gone before the box has them."""
    if pages == "auto":
        pages = os.environ.get("PBOX_PERF_PAGES", pages)
    if pages == "none":
        return ["--no-huge", "-m", str(mib)], "none"
    for kib, free in sorted(hugepages_free().items()):
        if free * kib >= mib * 1024 and pages in ("auto", str(kib)):
            return ["--in-memory", "-m", str(mib)], f"{kib} KiB"
    if pages != "auto":
        raise RuntimeError(f"not enough free hugepages of {pages} KiB for {mib} MiB")
    return ["--no-huge", "-m", str(mib)], "none"


def floating():
    """An lcore that runs, like every other process here, on whichever CPU is free."""
    return "0@(" + ",".join(map(str, sorted(os.sched_getaffinity(0)))) + ")"


class Box:
    """A daemon that serves any job on the bed's box ports first, first + 1, ...

    In a direct bed all of them have one address."""

    def __init__(self, bed, build, kind, n_ports=1, first=0, memory=1536, idle="sleep", lcores=None,
                 options=(), eal=(), pages="auto", framecnt=4096, below=(), jobs=()):
        """below: devices that those of the ports use, as net_chaos does. jobs: lines of
        sections of jobs, besides the one that lets anybody in."""
        self.bed, self.kind = bed, kind
        self.dir = tempfile.mkdtemp(prefix=bed.prefix + "-box")
        self.log = os.path.join(self.dir, "log")
        self.address = bed.box_address(first)
        devices = [vdev(kind, first + k, bed.mtu, bed.box_device(first + k), self.dir, framecnt)
                   for k in range(n_ports)]
        self.prefix = f"{bed.prefix}-{first}"
        with open(os.path.join(self.dir, "conf"), "w", encoding="ascii") as f:
            f.write(f"cores-idle = {idle}\nlease = 20s\n" + "".join(f"{o}\n" for o in options))
            for k, device in enumerate(devices):
                f.write(f"\n[port {device_name(device)}]\nmtu = {bed.mtu}\naddress = "
                        f"{bed.box_address(0 if bed.direct else first + k)}/24\n"
                        + ("shared = yes\n" if bed.direct and n_ports > 1 else ""))
            f.write("\n[job *]\ninsecure = yes\n" + "".join(f"{j}\n" for j in jobs))
        memory_words, self.pages = memory_arguments(memory, pages)
        cmd = [os.path.join(build, "app/pbox/pbox"), "--lcores", lcores or floating(),
               *memory_words, "--no-pci",
               "--file-prefix", self.prefix]
        for device in [*below, *devices]:
            cmd += ["--vdev", device]
        cmd += [*eal, "--", "--config", os.path.join(self.dir, "conf")]
        begin = time.monotonic()
        open(self.log, "w", encoding="ascii").close()
        self.child = bed.start("box", cmd, log=self.log)
        try:
            await_text(self.log, r"\bready\b", self.child, 120)
        except BaseException:
            self.stop()
            raise
        self.start_seconds = time.monotonic() - begin

    def pause(self):
        self.child.send_signal(signal.SIGSTOP)

    def resume(self):
        self.child.send_signal(signal.SIGCONT)

    def cpu(self):
        return processor_seconds([self.child.pid])

    def telemetry(self, command):
        """A reply of the telemetry socket, parsed."""
        done = subprocess.run(["dpdk-telemetry.py", "-f", self.prefix], input=command + "\n",
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              timeout=120, check=True)
        return json.loads(done.stdout.strip().splitlines()[-1])[command.split(",")[0]]

    def text(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def stop(self):
        self.bed.end(self.child)
        shutil.rmtree(self.dir, ignore_errors=True)
        for run_dir in ("/run", "/var/run"):
            shutil.rmtree(f"{run_dir}/dpdk/{self.prefix}", ignore_errors=True)


def port_arguments(bed, kind, directory, memory):
    """What gives worker i a port of its own instead of kernel sockets: a function of i."""
    def words(i):
        device = WORKER_VDEVS[kind].format(i=i, dir=directory)
        return ["--transport", "dpdk", "--transport-args",
                f"--no-huge -m {memory} --no-pci --file-prefix {bed.prefix}-w{i} "
                f"-d librte_net_packet.so --lcores {floating()} --vdev {device} -- "
                f"address=10.78.0.{60 + i}/24 idle=sleep"]
    return words


def perf_batch(bed, build, address, arguments, seconds=120, job="perf", local=1, own=None,
               workers=None):
    """pbox-perf once in each worker's namespace, all for one job; what each has printed.

    address: of the box, or a function of i. local: workers in each namespace. own: arguments of worker i. workers: in so many namespaces,
    not in all. Any failure or wrong element is an exception."""
    children = []
    workers = workers or bed.workers
    with tempfile.TemporaryDirectory(prefix=bed.prefix) as d:
        try:
            for i in range(workers):
                with open(os.path.join(d, f"{i}.json"), "wb") as out:
                    children.append(bed.start(
                        f"w{i}", [os.path.join(build, "app/perf/pbox-perf"),
                                  address(i) if callable(address) else address, "--job",
                                  job, "--workers", str(workers * local), "--worker",
                                  str(i * local), "--local", str(local),
                                  "--quiet", "--json", *map(str, arguments),
                                  *(own(i) if own else [])],
                        stdout=out, log=os.path.join(d, f"{i}.log"),
                        # EAL trusts no driver named by a path below a directory like /tmp
                        env={"LD_LIBRARY_PATH": os.path.join(build, "drivers/net/packet")}))
            end = time.monotonic() + seconds
            for child in children:
                child.wait(max(0.01, end - time.monotonic()))
        finally:
            for child in children:
                bed.end(child)
        result = []
        for i, child in enumerate(children):
            if child.returncode != 0:
                with open(os.path.join(d, f"{i}.log"), encoding="utf-8") as f:
                    raise RuntimeError(f"pbox-perf of worker {i}: {f.read().strip()}")
            with open(os.path.join(d, f"{i}.json"), encoding="utf-8") as f:
                result.append(json.load(f))
    return result
