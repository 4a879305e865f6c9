# SPDX-License-Identifier: BSD-3-Clause
"""What the machine has left for test programs, and what each of them takes of it (runner.py)."""

import json
import os
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# [seconds, CPU seconds] of each program, and, of one beyond BUDGET, why; --write-durations renews it
DURATIONS = os.path.join(TOP, "test", "durations.json")
# A program that leaves the CPU alone for more than so much of its time waits for timers and for others: a sleeper.
SLEEPS = 0.75


class Idle:
    """Whether the machine has CPU time that nobody wants."""

    PERIOD = 1.0

    def __init__(self):
        self.at, self.seen = 0.0, None

    def enough(self):
        """A tenth of it was left in the last second that was looked at; once in each such second."""
        now = time.monotonic()
        if now - self.at < self.PERIOD:
            return False
        with open("/proc/stat") as f:
            times = [int(x) for x in f.readline().split()[1:]]
        idle, total = times[3] + times[4], sum(times[:8])
        before, self.seen, self.at = self.seen, (idle, total), now
        return bool(before) and total > before[1] and (idle - before[0]) / (total - before[1]) > 0.1


class Crowd:
    """Whether processes wait for CPUs in a crowd: boxes poll, and each that waits makes all others' time longer, and so their polling."""

    MOST = 4  # that want each CPU, on the average of some ten seconds
    KEEPS = 0.95

    def __init__(self, cpus):
        self.most, self.mean = self.MOST * cpus, 0.0

    def look(self):
        """Twice a second, by a thread that does not wake together with others of this process: they would be the crowd."""
        with open("/proc/loadavg", encoding="ascii") as f:
            self.mean += (int(f.read().split()[3].split("/")[0]) - 1 - self.mean) * (1 - self.KEEPS)

    def is_there(self):
        return self.mean > self.most


class Durations:
    """What durations.json says of programs; one that it does not know takes no time, all of it on a CPU."""

    def __init__(self, path=DURATIONS):
        self.path = path
        try:
            with open(path, encoding="ascii") as f:
                self.of = json.load(f)
        except FileNotFoundError:
            self.of = {}

    def seconds(self, name):
        return self.of.get(name, (0, 0))[0]

    def cpu(self, name):
        return self.of.get(name, (0, 0))[1]

    def load(self, name):
        """How much of a CPU it takes on the average."""
        return self.cpu(name) / self.seconds(name) if self.seconds(name) > 0 else 1.0

    def sleeps(self, name):
        return self.load(name) < 1 - SLEEPS

    def grown(self, measured, n=5):
        """(name, CPU seconds more than in the file) of the programs that grew most."""
        more = [(cpu - self.cpu(name), name) for name, _, cpu in measured if name in self.of]
        return [(name, by) for by, name in sorted(more, reverse=True)[:n] if by >= 1]

    def write(self, measured, all_names=None):
        """Renew what has run; what did not run keeps its figures, and what is there no more (not in all_names) goes."""
        for name, seconds, cpu in measured:
            self.of[name] = [round(seconds, 1), round(cpu, 1)] + self.of.get(name, [])[2:]
        if all_names:
            self.of = {name: figures for name, figures in self.of.items() if name in all_names}
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(self.of[name])}" for name in sorted(self.of))
        with open(self.path, "w", encoding="ascii") as f:
            f.write(f"{{\n{lines}\n}}\n")


def memory_left():
    """Whether the machine has memory for one more program beside those that run: an eighth of it."""
    with open("/proc/meminfo", encoding="ascii") as f:
        kib = {line.split(":")[0]: int(line.split()[1]) for line in f}
    return kib["MemAvailable"] > kib["MemTotal"] / 8
