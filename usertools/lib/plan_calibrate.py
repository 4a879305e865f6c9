# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""What pbox-plan's constants are made of, measured here: bench_box, one core of a box on a port in memory.

All cases take turns, several times over, so that constants, and the cases that they are judged by, are of the same
minutes. The fastest run of each counts: what others on the same host take of its caches and cores is not the machine's.
"""

import glob
import json
import os
import random
import signal
import subprocess
import time

HERE = os.path.dirname(os.path.realpath(__file__))
# installed, and in the source tree
PROGRAMS = [os.path.join(HERE, "../../../libexec/pbox/bench_box"), os.path.join(HERE, "../../build/test/perf/box/bench_box")]
DEADLINE = 60  # seconds of one run
PAGES = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
HUGE = 3 << 30
FAR = "128M"  # of packets: more than a last-level cache

# what the constants are fitted to, (table, what, arguments)
FITTED = [("fragments", f"{n} {where}{mode}", f"--fragment {n} --resident {where}{mode}")
          for where in ("llc", "l2") for n in (1408, 4096, 8896) for mode in ("", " --lockstep")]
FITTED += [("workers", str(n), f"--workers {n} --lockstep") for n in (1, 2, 4, 32, 256, 1024)]
# those that do not divide a burst of 32: a fragment's contributions come in more than one
FITTED += [("workers", f"{n} of {size}", f"--workers {n} --fragment {size} --lockstep")
           for n, size in ((20, 1408), (10, 4096), (5, 8192), (12, 8192), (24, 8896))]
FITTED += [("workers", "12 l2", "--workers 12 --fragment 1408 --resident l2 --lockstep")]
# with eight workers everywhere, a byte of a contribution and one of a result could not be separated
FITTED += [("workers", f"{n} l2", f"--workers {n} --fragment {size} --resident l2 --lockstep") for n, size in ((2, 8192), (32, 1408))]
FITTED += [("optimisers", f"{o} {where}", f"--optimiser {o} --resident {where} --lockstep")
           for where in ("llc", "l2") for o in ("sgd", "momentum", "adam")]
FITTED += [("formats", n, f"--format {n} --lockstep") for n in ("bf16", "fp16")]
FITTED += [("model", "1G", "--model 1G --lockstep"), ("memory", "8192", f"--resident {FAR} --lockstep")]

# and what it is not: fragment, workers, more
MIXED = [(1408, 3, "--lockstep"), (1408, 32, "--lockstep"), (4096, 2, "--lockstep"), (4096, 12, "--lockstep"), (4096, 128, "--lockstep"),
         (8896, 6, "--lockstep"), (8896, 48, "--lockstep"), (8896, 512, "--lockstep"), (4096, 4, "--optimiser adam --lockstep"),
         (1408, 16, "--optimiser momentum --lockstep"), (8896, 32, "--optimiser adam --lockstep"),
         (4096, 8, "--format bf16 --lockstep"), (1408, 8, "--format fp16 --lockstep"),
         (8896, 16, "--format bf16 --optimiser momentum --lockstep"), (8896, 3, ""), (4096, 6, ""), (1408, 12, ""), (4096, 16, ""),
         (8896, 12, "--optimiser adam"), (1408, 4, "--optimiser momentum"), (4096, 24, "--format bf16"),
         (8896, 4, f"--resident {FAR} --lockstep"), (4096, 16, f"--resident {FAR} --lockstep")]


def unfitted():
    for n, workers, more in MIXED:
        yield "mixed", f"{n} bytes, {workers} workers {more.replace('--', '')}".strip(), f"--fragment {n} --workers {workers} {more}"


class HugePages:
    """Reserved as long as this runs, where that is allowed and nobody has reserved any; a box has them."""

    def __enter__(self):
        self.ours = False
        try:
            with open(PAGES, "r+", encoding="ascii") as f:
                if int(f.read()) == 0:
                    f.write(str(HUGE >> 21))
                    self.ours = True
        except (OSError, ValueError):
            pass
        return self

    def __exit__(self, *_):
        if self.ours:
            with open(PAGES, "w", encoding="ascii") as f:
                f.write("0")


def find(program):
    paths = [program] if program else PROGRAMS
    return next((p for p in map(os.path.realpath, paths) if os.access(p, os.X_OK)), None)


def text_of(path):
    with open(path, encoding="utf-8") as f:
        return f.read().strip()


def environment():
    """Of this machine, what make_machine() wants to know."""
    caches = {}
    for d in glob.glob("/sys/devices/system/cpu/cpu0/cache/index*"):
        caches[f"L{text_of(d + '/level')} {text_of(d + '/type').lower()}"] = text_of(d + "/size")
    names = [x.split(":", 1)[1].strip() for x in text_of("/proc/cpuinfo").splitlines() if x.startswith("model name")]
    return {"cpu": {"model": names[0] if names else "?", "caches": caches}, "date": time.strftime("%Y-%m-%dT%H:%M:%S%z")}


def once(program, words):
    """One run; what bench_box says of it."""
    with subprocess.Popen([program, "--json", "--runs", "1", "--verify", "1000000", *words], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as child:
        try:
            out, err = child.communicate(timeout=DEADLINE)
        except BaseException:
            child.send_signal(signal.SIGKILL)
            raise
    try:
        got = json.loads(out)["results"][0]
    except (ValueError, LookupError):
        got = {"ok": False, "why": err.strip().splitlines()[-1] if err.strip() else "no output"}
    if not got["ok"]:
        raise RuntimeError(f"bench_box {' '.join(words)}: {got['why']}")
    return got


def row(table, what, runs):
    """As in the JSON of test/perf/run; of all runs of a case the fastest, and how far the slowest is from it."""
    keys = ("fragment", "workers", "optimiser", "format", "resident", "model", "jobs", "mode")
    more = {k: runs[0][k] for k in keys}
    ns = [r["ns_per_fragment"] for r in runs]
    more["ns_per_fragment"], more["spread"], more["runs_ns"] = min(ns), round(max(ns) / min(ns), 2), ns
    more["checked_ns"] = min(r["checked_kernel_share"] * r["ns_per_fragment"] for r in runs)
    return {"table": table, "what": what, "more": more}


def measure(program, passes, check, cpus, say):
    """The results of `test/perf/run box`, in short."""
    cases = FITTED + (list(unfitted()) if check else [])
    runs, order = {c: [] for c in cases}, random.Random(1)
    alone = len(os.sched_getaffinity(0)) < 2
    with HugePages():
        for number in range(passes):
            order.shuffle(cases)
            for i, case in enumerate(cases):
                words = case[2].split() + (["--cpus", cpus] if cpus else [])
                if alone and "--lockstep" not in words:
                    words.append("--lockstep")
                runs[case].append(once(program, words))
                say(f"pass {number + 1} of {passes}, case {i + 1} of {len(cases)}")
    return {"environment": environment(), "benchmarks": {"box": {"results": [row(*c[:2], r) for c, r in runs.items()]}}}
