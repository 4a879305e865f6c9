# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""pbox-testps in this machine's memory: its workers on one CPU, the box or a reflector on another."""

import json
import os
import shutil
import subprocess
import tempfile

MEMORY = 1536  # MiB


def cpus():
    """(of the workers and of all that waits, of the box): one CPU where there is no other."""
    have = sorted(os.sched_getaffinity(0))
    return have[0], have[-1]


def free_huge_mib():
    try:
        with open("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", encoding="ascii") as f:
            return int(f.read()) * 2
    except (OSError, ValueError):
        return 0


def command(build, *arguments):
    near, far = cpus()
    pages = ["--no-huge"] if free_huge_mib() < MEMORY + 64 else ["--in-memory"]
    return [os.path.join(build, "app/test-ps/pbox-testps"), "--lcores", f"0@{near},1@{near},2@{far}", *pages, "-m",
            str(MEMORY), "--no-pci", "--log-level", "error", "--no-telemetry", "--file-prefix",
            f"testps{os.getpid()}", "--", "--loopback", *map(str, arguments)]


def run(build, *arguments, timeout=170):
    """What --json says."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.json")
        done = subprocess.run(command(build, *arguments, "--json", out), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=timeout, check=False)
        shutil.rmtree(f"/var/run/dpdk/testps{os.getpid()}", ignore_errors=True)
        if done.returncode != 0:
            raise SystemExit(f"pbox-testps {' '.join(map(str, arguments))}: {done.stdout.strip()[-400:]}")
        with open(out, encoding="utf-8") as f:
            return json.load(f)
