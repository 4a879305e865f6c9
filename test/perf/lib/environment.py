# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""What figures depend on: the machine, its state, the versions."""

import datetime
import glob
import os
import platform
import re
import subprocess

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def _read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read().strip()
    except OSError:
        return None


def _said(cmd):
    """First line of what a command says; None without it."""
    try:
        done = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip().split("\n")[0] or None


def _package(name):
    return _said(["dpkg-query", "-W", "-f", "${Version}", name])


def _cpu():
    text = _read("/proc/cpuinfo") or ""
    cpu = {}
    for key, name in (("model name", "model"), ("cpu MHz", "mhz"), ("microcode", "microcode")):
        found = re.search(rf"^{key}\s*: (.*)$", text, re.M)
        cpu[name] = found.group(1) if found else None
    flags = re.search(r"^flags\s*: (.*)$", text, re.M)
    flags = flags.group(1).split() if flags else []
    cpu["vector"] = [x for x in ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "vpclmulqdq")
                     if x in flags]
    cpu["virtual"] = "hypervisor" in flags
    cpu["online"] = len(os.sched_getaffinity(0))
    cpu["caches"] = {}
    for d in sorted(glob.glob("/sys/devices/system/cpu/cpu0/cache/index*")):
        cpu["caches"][f"L{_read(d + '/level')} {(_read(d + '/type') or '').lower()}"] = \
            _read(d + "/size")
    cpu["governor"] = _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    return cpu


def _hugepages():
    pages = {}
    for d in glob.glob("/sys/kernel/mm/hugepages/hugepages-*"):
        pages[d.rsplit("-", 1)[1]] = {k: int(_read(f"{d}/{k}_hugepages") or 0)
                                      for k in ("nr", "free")}
    return pages


def read(build):
    """A dictionary for the JSON."""
    git = ["git", "-C", TOP]
    return {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "cpu": _cpu(),
        "memory_kib": int((re.search(r"MemTotal:\s+(\d+)", _read("/proc/meminfo") or "")
                           or [0, 0])[1]),
        "numa_nodes": len(glob.glob("/sys/devices/system/node/node[0-9]*")),
        "kernel": platform.release(),
        "hugepages": _hugepages(),
        "transparent_hugepages": _read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "load_average": os.getloadavg(),
        "revision": _said(git + ["rev-parse", "HEAD"]),
        "modified": bool(_said(git + ["status", "--porcelain", "--untracked-files=no"])),
        "buildtype": _buildtype(build),
        "versions": {
            "compiler": _said(["cc", "--version"]),
            "dpdk": _package("libdpdk-dev"),
            "isal": _package("libisal-dev"),
            "torch": _package("python3-torch"),
            "gloo": _package("libgloo0"),
            "openmpi": _package("openmpi-bin"),
            "iproute2": _package("iproute2"),
        },
    }


def _buildtype(build):
    path = os.path.join(build, "meson-info", "intro-buildoptions.json")
    found = re.search(r'"name": "buildtype", "value": "(\w+)"', _read(path) or "")
    return found.group(1) if found else None


def people(env):
    """A few lines of it."""
    cpu, v = env["cpu"], env["versions"]
    caches = ", ".join(f"{k} {x}" for k, x in cpu["caches"].items()) or "caches not known"
    return "\n".join([
        f"{cpu['online']} CPUs {cpu['model']}" + (" (virtual)" if cpu["virtual"] else "")
        + f", {caches}; {env['memory_kib'] >> 20} GiB",
        f"Linux {env['kernel']}, governor {cpu['governor'] or 'unknown'}, load "
        + " ".join(f"{x:.2f}" for x in env["load_average"]) + f", {env['date']}",
        f"PBox {(env['revision'] or 'unknown')[:12]}{' + changes' if env['modified'] else ''} "
        f"({env['buildtype']}), DPDK {v['dpdk']}, PyTorch {v['torch']}, Gloo {v['gloo']}, "
        f"Open MPI {v['openmpi']}",
    ])
