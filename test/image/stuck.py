# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Why a box in QEMU says nothing: what its CPUs do, whether it reads its disk, and how far its kernel came. The kernel has to
be quiet on the console, but has its log in memory. From outside: nothing in the box has to work for it."""

import mmap
import os
import re
import struct
import time

MIB = 1 << 20
PIECE, OVERLAP = 256 * MIB, MIB  # of the memory, in a file; the log is smaller than the overlap
BANNER = b"Linux version "
LONGEST = 2048  # more than any record
STALE = "QEMU's fault: its CPUs hang on the translation of a breakpoint that is no longer in memory, at"
NUMBER = (1 << 62) - 1  # of a record; the two bits above say what state it has


def records(memory, at):
    """Texts of printk's ring from there on: each is after its record's number, at a multiple of 8 bytes. CPUs that write at
    the same time may change places."""
    number, begin, out = struct.unpack_from("<Q", memory, at)[0], at + 8, []
    place = begin + 8
    while place + 8 <= len(memory) and place - begin < LONGEST:
        found = struct.unpack_from("<Q", memory, place)[0]
        if 0 < (found - number) & NUMBER <= 16 or 0 < (number - found) & NUMBER <= 16:
            out.append(memory[begin:place])
            number, begin = found, place + 8
            place += 8
        place += 8
    out.append(memory[begin:begin + LONGEST].partition(b"\0")[0])
    return [text(x) for x in out]


def text(record):
    """Of what printk was given it has moved the text over the level, two bytes, in the same place: the end is there twice."""
    out = record.rstrip(b"\0").removesuffix(b"\n")
    return (out[:-2] if len(out) > 3 and out[-2:] == out[-4:-2] else out).decode("utf-8", "replace")


def kernel_logs(memory):
    """All logs of kernels in that memory; one of an earlier start may have survived a reset."""
    out, at = [], memory.find(BANNER)
    while at >= 0:
        if at >= 8 and at % 8 == 0:
            lines = records(memory, at - 8)
            if len(lines) > 4:  # the banner has other places as well
                out.append(lines)
        at = memory.find(BANNER, at + 1)
    return out


def ram(megabytes):
    """(begin, end) of a Q35's memory: what would reach into the hole for devices is above 4 GiB."""
    size = megabytes * MIB
    low = size if size < 2816 * MIB else 2048 * MIB
    return [(0, low)] + ([(4096 * MIB, 4096 * MIB + size - low)] if size > low else [])


def logs_of(box):
    out, path = [], os.path.join(box.folder, "memory")
    for begin, end in ram(box.memory):
        for at in range(begin, end, PIECE):
            answer = box.monitor("pmemsave", val=at, size=min(PIECE + OVERLAP, end - at), filename=path)
            if "error" in answer:
                raise OSError(answer["error"]["desc"])
            with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as memory:
                out += [x for x in kernel_logs(memory) if x not in out]
            os.remove(path)
    return out


def human(box, command):
    return box.monitor("human-monitor-command", **{"command-line": command})["return"].replace("\r", "")


def cpus(registers):
    """A line for each: where it is, in which mode, whether it is halted."""
    found = re.findall(r"^CPU#(\d+)\n.*?^([ER]IP=.*?)$.*?^CS =(\w+)", registers, re.M | re.S)
    return [f"CPU {n}: {where} CS={segment}" for n, where, segment in found]


def at(box, cpu, size, address, count=1):
    """Words of that CPU's memory."""
    answer = box.monitor("human-monitor-command", **{"command-line": f"x/{count}{size}x {address:#x}", "cpu-index": cpu})["return"]
    return [int(x, 16) for line in answer.splitlines() for x in line.partition(":")[2].split()]


def stale_breakpoint(box, samples=400):
    """Where a CPU hangs on a breakpoint that is no more: an address, or None. A kernel changes its code under way by way of
    breakpoints. QEMU below 8.1 can keep the translation of one that another CPU has just removed (fixed by its "accel/tcg: Always
    lock pages before translation"): the CPU traps, finds no breakpoint in memory, tries the instruction again, traps, forever; the
    others do so as well, or wait for its locks. It is that if a CPU is seen three times at the entry of its handler for
    breakpoints, from one address that holds none."""
    handlers, seen = {}, {}
    for _ in range(samples):
        box.monitor("stop")
        try:
            for cpu, one in enumerate(re.split(r"^CPU#\d+\n", human(box, "info registers -a"), flags=re.M)[1:]):
                has = dict(re.findall(r"\b(RIP|RSP|IDT)= *([0-9a-f]+)", one))
                if len(has) < 3:  # not yet in long mode
                    continue
                if cpu not in handlers:
                    low, high = at(box, cpu, "g", int(has["IDT"], 16) + 48, 2)
                    handlers[cpu] = low & 0xffff | low >> 48 << 16 | (high & 0xffffffff) << 32
                if int(has["RIP"], 16) != handlers[cpu]:
                    continue
                place = at(box, cpu, "g", int(has["RSP"], 16))[0] - 1
                if at(box, cpu, "b", place) != [0xcc]:
                    seen[place] = seen.get(place, 0) + 1
                    if seen[place] == 3:
                        return place
        finally:
            box.monitor("cont")
        time.sleep(0.01)
    return None


def threads(box):
    """QEMU's: whether they run, wait, or for what."""
    out, tasks = [], f"/proc/{box.child.pid}/task"
    for task in os.listdir(tasks):
        with open(f"{tasks}/{task}/stat", encoding="ascii") as f:
            name, _, rest = f.read().rpartition(")")
        with open(f"{tasks}/{task}/wchan", encoding="ascii") as f:
            where = f.read()
        fields = rest.split()
        out.append(f"{name.partition('(')[2]}: {fields[0]}, {int(fields[11]) + int(fields[12])} ticks, in {where}")
    return out


def report(box):
    """What there is to know, in some thirty lines; all of it in the folder, as stuck-SECONDS."""
    short, path = [], os.path.join(box.folder, f"stuck-{time.monotonic() - box.started:.0f}")
    with open(path, "w", encoding="utf-8") as whole:
        def step(title, function):
            try:
                lines, more = function()
            except (OSError, ValueError, KeyError, IndexError) as e:
                lines, more = [f"{title}: {type(e).__name__}: {e}"], ""
            short.extend(lines)
            whole.write("\n".join([f"==== {title}", *lines, more, ""]))
            whole.flush()

        def registers():
            all_of_them = human(box, "info registers -a")
            return cpus(all_of_them), all_of_them

        def disk():
            stats = human(box, "info blockstats")
            return re.findall(r"^disk\S*: rd_bytes=\d+ wr_bytes=\d+ rd_operations=\d+", stats, re.M), stats

        def breakpoint_():
            place = stale_breakpoint(box)
            return [f"{STALE} {place:#x}"] if place else [], ""

        def log():
            box.monitor("stop")  # a watchdog does not wait
            try:
                found = logs_of(box)
            finally:
                box.monitor("cont")
            lines = [] if found else ["there is no kernel's log in its memory: none was started"]
            for one in found:
                lines += [f"a kernel's log, {len(one)} lines; the last:"] + ["  " + x for x in one[-6:]]
            return lines, "\n".join("\n".join(["", *one]) for one in found)

        step("QEMU's threads", lambda: ([], "\n".join(threads(box))))
        for _ in range(2):
            step("registers", registers)
            step("disk", disk)
            time.sleep(1)
        step("QEMU's threads, later", lambda: ([], "\n".join(threads(box))))
        step("interrupts", lambda: ([], human(box, "info pic") + human(box, "info lapic") + human(box, "info irq")))
        step("log", log)
        step("breakpoint", breakpoint_)
    return "\n".join(short + [f"more: {path}"])
