# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Jobs of the experiment hps in a bed, and what their figures say."""

import json
import os
import signal
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path.insert(0, os.path.join(TOP, "test", "perf", "lib"))
# pylint: disable=wrong-import-position
import bed as beds
import box as boxes

MTU, LIMIT = 9000, 16 << 20
HIDDEN = 600  # of the network: 66,610 parameters, 266 KB


class Experiment:
    def __init__(self, args, case, scratch):
        self.args, self.case, self.scratch = args, case, scratch
        self.workers = len(case["speeds"])
        self.jobs = 0

    def words(self, box, what, rounds, slot, more=()):
        """A worker, but for its number."""
        return ["/usr/bin/python3", os.path.join(HERE, "worker.py"), what, "--box", box.address, "--job", f"hps{self.jobs}", "--workers", str(self.workers),
                "--slots", str(self.case["slots"]), "--rounds", str(rounds), "--hidden", str(HIDDEN), "--slot", str(slot), *map(str, more)]

    def env(self):
        return {"PYTHONPATH": os.path.join(TOP, "usertools", "python"), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "PBOX_THREADS": "1",
                "PBOX_CLIENT_LIB": os.path.join(self.args.build, "lib/client/so/libpbox-client.so.1")}

    def job(self, bed, box, what, rounds, slot, kill=-1, kill_round=0, ahead=0.0, more=(), dies=(), start=None, ready=None, watch=None):
        """What each worker has printed. slot: seconds of one at the slowest worker; ahead: share of the slots of a plan. dies: workers that
        may be killed, whose entry is then None. start: in place of the bed's. ready(processes) is called when all have joined, before they begin; watch(processes) then."""
        self.jobs += 1
        go = os.path.join(self.scratch, f"go{self.jobs}")
        children, slowest = [], min(self.case["speeds"])
        env = self.env()
        log = [os.path.join(self.scratch, f"log{i}") for i in range(self.workers)]
        out = [os.path.join(self.scratch, f"out{i}") for i in range(self.workers)]
        try:
            for i, speed in enumerate(self.case["speeds"]):
                with open(out[i], "wb") as f:
                    children.append((start or bed.start)(f"w{i}", self.words(box, what, rounds, slot * slowest / speed, [
                        "--worker", i, "--name", i, "--kill", kill, "--kill-round", kill_round, "--ahead", ahead, *(["--go", go] if ready else []),
                        *more]), log=log[i], stdout=f, env=env))
            if ready is not None:
                self.await_files([f"{go}.{i}" for i in range(self.workers)], children)
                ready(children)
                with open(go, "wb"):
                    pass
            if watch is not None:
                watch(children)
            end = time.monotonic() + 600
            for child in children:
                child.wait(max(0.01, end - time.monotonic()))
        finally:
            for child in children:
                bed.end(child)
        got = []
        for i, child in enumerate(children):
            if i in dies and child.returncode == -signal.SIGKILL:
                got.append(None)
                continue
            if child.returncode != (-signal.SIGKILL if i == kill else 0):
                with open(log[i], encoding="utf-8", errors="replace") as f:
                    raise RuntimeError(f"worker {i} ({what}): status {child.returncode}\n{f.read().strip()}")
            with open(out[i], encoding="utf-8") as f:
                got.append(json.loads(f.read().strip().splitlines()[-1]))
        return got

    @staticmethod
    def await_files(paths, children, seconds=120):
        end = time.monotonic() + seconds
        while not all(map(os.path.exists, paths)) and all(c.poll() is None for c in children):
            if time.monotonic() > end:
                raise RuntimeError(f"workers were not ready within {seconds} s")
            time.sleep(0.02)

    def bed(self):
        return beds.Bed("hps", self.workers, MTU, self.workers)

    def box(self, bed):
        box = boxes.Box(bed, self.args.build, "packet", n_ports=bed.ports, memory=1024, framecnt=1024)
        bed.set_offloads(False)
        bed.shape(self.case["mbit"] * (3 if self.args.quick else 1), self.case["burst"], LIMIT)
        return box

    def exchange(self, bed, box):
        """Seconds of a push and pull of the model when nobody waits for another: the least of the workers, of each round."""
        got = self.job(bed, box, "equal", 6 if self.args.quick else 40, 0.0)
        return statistics.median(list(map(min, zip(*(g["steps"] for g in got))))[3:])


class Hogs:
    """As a context: so many busy loops."""

    def __init__(self, n):
        self.n, self.children = n, []

    def __enter__(self):
        return self

    def begin(self, _workers=None):
        for _ in range(self.n):
            self.children.append(subprocess.Popen(["/usr/bin/python3", "-c", "while True: pass"], stdin=subprocess.DEVNULL))

    def __exit__(self, *_):
        for child in self.children:
            child.kill()
        for child in self.children:
            child.wait()


def lengths(ends):
    return [b - a for a, b in zip(ends, ends[1:])]


def settled(got, skip):
    """Seconds of a round, the median, after the first ones."""
    return statistics.median(lengths(got[0]["ends"])[skip:])
