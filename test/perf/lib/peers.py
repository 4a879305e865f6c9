# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""All-reduce of others on a bed's wires: Gloo (through PyTorch) and Open MPI.

Their processes live as long as the bed and wait in a read between batches, so that they use no CPU
while another side is measured.
"""

import os
import select
import shutil
import subprocess
import tempfile
import time

from bed import run, say

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = "/usr/bin/python3"  # Debian's, which has torch


class Peer:
    """N ranks, one a namespace, each commanded through a FIFO and answering through another."""

    def __init__(self, bed, name):
        self.bed, self.name = bed, name
        self.dir = tempfile.mkdtemp(prefix=f"{bed.prefix}-{name}")
        self.log = os.path.join(self.dir, "log")
        self.commands, self.answers, self.children = [], [], []
        for i in range(bed.workers):
            for kind, ends in (("commands", self.commands), ("answers", self.answers)):
                path = os.path.join(self.dir, f"{kind}.{i}")
                os.mkfifo(path)
                # for both directions: opening waits for nobody
                ends.append(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        try:
            self._launch()
        except BaseException:
            self.stop()
            raise

    def _launch(self):
        raise NotImplementedError

    def batch(self, elements, rounds, check, seconds=180):
        """(seconds, CPU seconds of all, wrong elements) of so many rounds; the slowest rank's."""
        for fd in self.commands:
            os.write(fd, f"{elements} {rounds} {int(check)}\n".encode())
        end = time.monotonic() + seconds
        slowest = used = bad = 0
        for i, fd in enumerate(self.answers):
            took, cpu, wrong = self._answer(fd, i, end).split()
            slowest = max(slowest, float(took))
            used += float(cpu)
            bad += int(wrong)
        return slowest, used, bad

    def _answer(self, fd, rank, end):
        text = b""
        while not text.endswith(b"\n"):
            if time.monotonic() > end or any(c.poll() is not None for c in self.children):
                with open(self.log, encoding="utf-8", errors="replace") as f:
                    raise RuntimeError(f"{self.name}: no answer of rank {rank}\n{f.read()[-2000:]}")
            if select.select([fd], [], [], 0.1)[0]:
                text += os.read(fd, 4096)
        return text.decode()

    def stop(self):
        for fd in self.commands + self.answers:
            os.close(fd)
        self.commands, self.answers = [], []
        for child in self.children:
            self.bed.end(child)
        shutil.rmtree(self.dir, ignore_errors=True)


class Gloo(Peer):
    def _launch(self):
        for i in range(self.bed.workers):
            self.children.append(self.bed.start(
                f"w{i}", [PYTHON, os.path.join(HERE, "gloo_peer.py"),
                          os.path.join(self.dir, "store"), str(i), str(self.bed.workers),
                          os.path.join(self.dir, f"commands.{i}"),
                          os.path.join(self.dir, f"answers.{i}")],
                log=self.log, env={"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0",
                                   "PYTHONDONTWRITEBYTECODE": "1"}))


# In place of ssh: a host is a namespace. mpirun calls it with the address and a shell command.
AGENT = """#!/bin/sh
host=$1
shift
exec ip netns exec "{prefix}-w$((${{host##*.}} - 10))" unshare -u \\
	sh -c 'hostname "worker-$1"; shift; exec sh -c "$*"' sh "${{host##*.}}" "$@"
"""
RING = ["--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm",
        "4"]


class OpenMpi(Peer):
    """ring: that algorithm, else what Open MPI chooses by itself."""

    def __init__(self, bed, program, ring):
        self.program, self.ring = program, ring
        super().__init__(bed, "openmpi-ring" if ring else "openmpi")

    def _launch(self):
        agent = os.path.join(self.dir, "agent")
        with open(agent, "w", encoding="ascii") as f:
            f.write(AGENT.format(prefix=self.bed.prefix))
        os.chmod(agent, 0o755)
        hosts = ",".join(f"{self.bed.worker_address(i)}:1" for i in range(self.bed.workers))
        self.children.append(self.bed.start(
            "sw", ["mpirun", "--host", hosts, "-np", str(self.bed.workers), "--bind-to", "none",
                   "--map-by", "node",
                   "--mca", "plm", "rsh", "--mca", "plm_rsh_agent", agent,
                   "--mca", "plm_rsh_no_tree_spawn", "1", "--mca", "pml", "ob1",
                   "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "eth0",
                   "--mca", "oob_tcp_if_include", "10.78.0.0/24",
                   # with fewer CPUs than ranks a spinning rank keeps the others from working
                   "--mca", "mpi_yield_when_idle", "1", *(RING if self.ring else []),
                   self.program, self.dir],
            log=self.log, env={"OMPI_ALLOW_RUN_AS_ROOT": "1",
                               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}))


def missing():
    """Why a peer cannot run here: {name: reason}."""
    reasons = {}
    if subprocess.call([PYTHON, "-c", "import torch.distributed"], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL) != 0:
        reasons["gloo"] = f"{PYTHON} has no torch"
    if shutil.which("mpirun") is None or shutil.which("mpicc") is None:
        reasons["openmpi"] = "no mpirun or mpicc (packages openmpi-bin, libopenmpi-dev)"
    return reasons


def compile_mpi(directory):
    """Once: ranks that start must not find it half written."""
    program = os.path.join(directory, "mpi_peer")
    if os.path.exists(program):
        return program
    run(["mpicc", "-O2", "-D_GNU_SOURCE", "-o", program, os.path.join(HERE, "mpi_peer.c"), "-lm"],
        timeout=60)
    return program


def launch(bed, names, directory):
    """The peers of these names that can run: {name: Peer}."""
    absent, peers = missing(), {}
    for name in names:
        kind = name.split("-")[0]
        if kind in absent:
            say(f"  without {name}: {absent[kind]}")
            continue
        if kind == "gloo":
            peers[name] = Gloo(bed, "gloo")
        else:
            peers[name] = OpenMpi(bed, compile_mpi(directory), name.endswith("-ring"))
    return peers
