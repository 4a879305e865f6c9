# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Where the time of all CPUs goes while a batch runs: samples by process and stage."""

import collections
import os
import re
import signal
import subprocess

# The innermost frame that is named here is the stage: softirq work runs inside the system call
# of the sender, so the order of frames decides, not the order of this list.
STAGES = [
    ("tpacket_rcv", "packet socket: copy to ring"),
    ("__xsk_rcv", "AF_XDP: copy to ring"), ("__xsk_map_redirect", "AF_XDP: copy to ring"),
    ("skb_copy_ubufs", "packet socket: copy of sent pages"),
    ("udp_rcv", "softirq: UDP receive"), ("tcp_v4_rcv", "softirq: TCP receive"),
    ("br_handle_frame", "softirq: bridge"),
    ("ip_rcv", "softirq: IP receive"), ("ip_list_rcv", "softirq: IP receive"),
    ("veth_xmit", "veth transmit"), ("net_rx_action", "softirq: other"),
    ("skb_segment", "segmentation"),
    ("udp_sendmsg", "UDP send"), ("tcp_sendmsg", "TCP send"), ("packet_sendmsg", "packet send"),
    ("xsk_sendmsg", "AF_XDP send"), ("udp_recvmsg", "UDP receive call"),
    ("tcp_recvmsg", "TCP receive call"), ("packet_recvmsg", "packet receive call"),
    ("do_nanosleep", "sleeping and waking"), ("do_epoll_wait", "sleeping and waking"),
    ("do_sys_poll", "sleeping and waking"), ("do_futex", "sleeping and waking"),
    ("schedule", "scheduler"),
]
STAGE = dict(STAGES)
HEADER = re.compile(r"^(\S.*?)\s+(\d+)$")


def start(data):
    return subprocess.Popen(["perf", "record", "-q", "-a", "-e", "cpu-clock", "-F", "1999", "-g",
                             "-o", data], stderr=subprocess.DEVNULL)


def stop(recorder):
    recorder.send_signal(signal.SIGINT)
    recorder.wait(30)


def stage_of(frames):
    """frames: symbols, innermost first."""
    for f in frames:
        if f in STAGE:
            return STAGE[f]
    leaf = frames[0] if frames else "?"
    if "crc32" in leaf:
        return "user: CRC32C"
    if "mem" in leaf and ("cpy" in leaf or "move" in leaf or "set" in leaf):
        return "user: memory copies"
    if leaf.startswith(("avx", "sum_", "reduce_")):
        return "user: summation"
    if any(f.startswith(("entry_SYSCALL", "do_syscall_64")) for f in frames):
        return "other system calls"
    if any(f.startswith(("asm_sysvec", "asm_exc")) for f in frames):
        return "interrupts and page faults"
    return "user: other"


def stages(data):
    """[(share, process, stage)], largest first."""
    count, total = collections.Counter(), 0
    script = subprocess.Popen(["perf", "script", "-i", data, "-F", "comm,pid,ip,sym"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              errors="replace")
    comm, frames = None, []
    for line in script.stdout:
        if line.strip() == "":
            if comm is not None:
                total += 1
                name = "idle" if comm == "swapper" else comm
                count[name, "idle" if name == "idle" else stage_of(frames)] += 1
            comm, frames = None, []
        elif not line.startswith(("\t", " ")) or comm is None:
            found = HEADER.match(line.strip())
            comm = found.group(1) if found else "?"
        else:
            words = line.split(None, 1)
            frames.append(words[1].strip() if len(words) > 1 else "?")
    script.wait()
    return [(n / total, *key) for key, n in count.most_common()] if total else []


def batch(directory, name, work):
    """Run work() under perf; leaves NAME.data, and NAME.txt with stages and functions."""
    os.makedirs(directory, exist_ok=True)
    data = os.path.join(directory, name + ".data")
    recorder = start(data)
    try:
        work()
    finally:
        stop(recorder)
    with open(os.path.join(directory, name + ".txt"), "w", encoding="utf-8") as out:
        for share, process, stage in stages(data):
            if share >= 0.003:
                out.write(f"{share * 100:6.2f} %  {process:<16} {stage}\n")
        out.write("\n")
        out.flush()
        subprocess.run(["perf", "report", "-i", data, "--stdio", "--no-children", "-g", "none",
                        "--percent-limit", "0.4", "--sort", "comm,symbol"], stdout=out,
                       stderr=subprocess.DEVNULL, timeout=120, check=True)
