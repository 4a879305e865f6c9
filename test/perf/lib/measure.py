# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""What the benchmarks of processes share: arguments, medians, sides that are measured in turn."""

import argparse
import json
import os
import statistics
import subprocess
import sys

import bed as beds
import box as boxes

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
MODELS = os.path.join(TOP, "test", "models")
# Of shaped links. A bucket of 32 KiB: 1 to 3 ms of their rates, so that the kernel's timers suffice to fill the
# link, and less than 1 % of what a round sends. A queue of 16 MB: neither side loses a packet.
BURST, LIMIT = 32 << 10, 16 << 20
HEADERS = 104  # Ethernet, IPv4, UDP and ours


def fragment_bytes(mtu):
    return (mtu - 90) // 64 * 64


def arguments(doc):
    p = argparse.ArgumentParser(description=doc.splitlines()[0])
    p.add_argument("--build", default=os.path.join(TOP, "build"), help="default: build")
    p.add_argument("--runs", type=int, default=5, help="batches of each side; the median counts")
    p.add_argument("--quick", action="store_true", help="least that shows that it works")
    return p


def narrow(parser, args):
    """--only KEY=VALUE[+VALUE...],...: as if the options --KEY had these values alone."""
    for word in filter(None, args.only.split(",")):
        key, equals, values = word.partition("=")
        if not equals or not isinstance(getattr(args, key, None), (str, type(None))) \
                or not hasattr(args, key):
            parser.error(f"--only: '{word}' is not KEY=VALUE of an option that takes a list")
        # the driver of a port may have a + of its own
        setattr(args, key, values.replace("+dpdk", "@dpdk").replace("+", ",").replace("@", "+"))
    return args


def need_root():
    if os.geteuid() != 0:
        sys.exit("network namespaces need root: run it with sudo")


def numbers(text):
    return [int(x) for x in text.split(",")]


def spread(values):
    """Median, least and largest."""
    return statistics.median(values), min(values), max(values)


def elements_of(model):
    """1, 25, 100 (MB of fp32) or the name of a list in test/models."""
    if model.replace(".", "").isdigit():
        return int(float(model) * 1000000) // 4
    with open(os.path.join(MODELS, model + ".csv"), encoding="utf-8") as f:
        return sum(int(line.rsplit(",", 1)[1]) for line in f.read().split("\n")[1:] if line)


def model_arguments(model):
    if model.replace(".", "").isdigit():
        return ["--elements", elements_of(model)]
    return ["--model", os.path.join(MODELS, model + ".csv")]


class PboxSide:
    """A box and pbox-perf as workers; the daemon is stopped while others are measured.

    In a direct bed it does not even exist then: its sockets would see the others' packets.
    worker_memory: the workers have ports of their own, and so many MiB; 0: kernel sockets."""

    uncounted = 1  # round of each batch, the warm-up

    def __init__(self, bed, build, name, kind, perf=(), worker_memory=0, **box_options):
        self.bed, self.build, self.name, self.perf = bed, build, name, list(perf)
        self.kind, self.options, self.worker_memory = kind, box_options, worker_memory
        self.box, self.batches = None, 0
        if not bed.direct:
            self._begin()
            self.box.pause()

    def _begin(self):
        if self.box is None:
            self.box = boxes.Box(self.bed, self.build, self.kind, **self.options)
        else:
            self.box.resume()

    def _end(self):
        if not self.bed.direct:
            self.box.pause()
        elif self.box is not None:
            self.box.stop()
            self.box = None

    def prepare(self):
        """The wires as this side wants them."""
        self.bed.join(False)

    def batch(self, model, rounds, check):
        """(seconds, CPU seconds of all, facts)."""
        self.batches += 1
        self._begin()
        own = (boxes.port_arguments(self.bed, self.kind, self.box.dir, self.worker_memory)
               if self.worker_memory else None)
        try:
            used = self.box.cpu()
            got = boxes.perf_batch(
                self.bed, self.build, self.box.address,
                [*model_arguments(model), "--rounds", rounds, "--warmup", 1, "--timeout", 60,
                 "--check", "first" if check else "none", *self.perf],
                job=f"{self.name}{self.batches}", own=own)
            # with the round that is not counted
            used = (self.box.cpu() - used) * rounds / (rounds + 1)
        finally:
            self._end()
        seconds = max(w["busy_s"] for g in got for w in g["per_worker"])
        if check and sum(g["checked"] for g in got) != elements_of(model) * self.bed.workers:
            raise RuntimeError(f"{self.name}: not every element was checked")
        return seconds, used + sum(g["cpu_s"] for g in got), {
            "retransmitted": sum(g["retransmitted"] for g in got),
            "probes": sum(g["probes"] for g in got),
            "box_cpu_s_per_round": used / rounds,
            # of one worker, for each GB that it sends and gets back
            "worker_cpu_s_per_gb": sum(g["cpu_s"] for g in got) / self.bed.workers / rounds
                                   / (elements_of(model) * 4 / 1e9),
            "p50_ms": max(g["p50_ms"] for g in got),
        }

    def stop(self):
        if self.box is not None:
            self.box.stop()


class PeerSide:
    uncounted = 0

    def __init__(self, bed, peer):
        self.bed, self.peer, self.name = bed, peer, peer.name

    def prepare(self):
        self.bed.join(True)

    def batch(self, model, rounds, check):
        elements = elements_of(model)
        seconds, used, wrong = self.peer.batch(elements, rounds, check)
        if wrong:
            raise RuntimeError(f"{self.name}: {wrong} wrong elements")
        return seconds, used, {}

    def stop(self):
        self.peer.stop()


def growth_limit(workers):
    """Rounds in place before sums of sums leave fp32."""
    return int(120 / max(1, (workers - 1).bit_length()))


def interleave(bed, sides, model, runs, target, most=40):
    """Batches of all sides in turn; {side name: row}. The first batch of each checks every
    element and says how many rounds make `target` seconds."""
    rows, rounds = {}, {}
    for side in sides:
        side.prepare()
        seconds, _, _ = side.batch(model, 2, True)
        limit = min(most, growth_limit(bed.workers))
        rounds[side.name] = max(2, min(limit, round(target / (seconds / 2))))
        rows[side.name] = {"round": [], "cpu": [], "packets": [], "bytes": [], "facts": []}
    for _ in range(runs):
        for side in sides:
            n, row = rounds[side.name], rows[side.name]
            side.prepare()
            before, softirq = bed.packets(), beds.softirq_seconds()
            seconds, cpu, facts = side.batch(model, n, False)
            after, softirq = bed.packets(), beds.softirq_seconds() - softirq
            counted = n + side.uncounted
            row["round"].append(seconds / n)
            # packet work that the kernel's own threads have done is nobody's, but it counts
            row["cpu"].append(cpu / n + softirq / counted)
            row["packets"].append((after[0] - before[0]) / counted)
            row["bytes"].append((after[1] - before[1]) / counted)
            row["facts"].append(facts)
    result = {}
    for name, row in rows.items():
        middle, least, largest = spread(row["round"])
        result[name] = {
            "side": name, "rounds": rounds[name], "round_ms": middle * 1e3,
            "round_ms_min": least * 1e3, "round_ms_max": largest * 1e3,
            "gbytes_per_s": elements_of(model) * 4 / middle / 1e9,
            "cpu_s_per_round": statistics.median(row["cpu"]),
            "wire_packets_per_round": round(statistics.median(row["packets"])),
            "wire_mbytes_per_round": statistics.median(row["bytes"]) / 1e6,
        }
        for key in row["facts"][0] if row["facts"] else ():
            result[name][key] = statistics.median(f[key] for f in row["facts"])
    return result


def largest_frame(bed, side, model):
    """Of two rounds that are not measured, at the bridge's port of worker 0."""
    child = bed.start("sw", ["/usr/bin/python3", os.path.join(os.path.dirname(__file__),
                                                              "sniff.py"), "p-w0"],
                      stdout=subprocess.PIPE)
    try:
        child.stdout.readline()
        side.batch(model, 2, False)
        child.terminate()
        return int(child.communicate(timeout=10)[0].split()[1])
    finally:
        bed.end(child)


def emit(benchmark, results, summary):
    beds.say(f"{benchmark}: {len(results)} rows")
    print(json.dumps({"benchmark": benchmark, "results": results, "summary": summary}))
