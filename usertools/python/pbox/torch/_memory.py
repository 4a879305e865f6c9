# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""What memory a worker has left for the slots of a round, and what these take.

Left is the least of what the cgroups of this process (v1 and v2, each up to the root) and the machine allow: the limit minus what is used,
without pages of files that the kernel can drop. Where a cgroup says that all its processes wait for memory at times (PSI), nothing is
left. What a round takes is the highest that this process was in rounds before, minus what it is now.
"""

import collections
import ctypes
import os
from typing import Deque, Dict, Iterator, List, NamedTuple, Optional, Tuple

# of what is left, for what else goes on in the cgroup
RESERVE = 0.15
# a tenth of its time, over ten seconds, all processes of the cgroup waited for memory
PRESSURE = 10.0
# rounds whose highest use is remembered
_ROUNDS = 16
_UNLIMITED = 1 << 60  # v1 says so with a number near 2^63


class Group(NamedTuple):
    """A memory cgroup: its folder, and whether that is of v2."""
    folder: str
    v2: bool


def _read(*path: str) -> Optional[str]:
    try:
        with open(os.path.join(*path)) as f:
            return f.read()
    except (OSError, ValueError):
        return None


def _number(text: Optional[str]) -> Optional[int]:
    """None: there is no such file, or no limit ("max")."""
    text = (text or "").strip()
    return int(text) if text.isdigit() and int(text) < _UNLIMITED else None


def _mounts(mountinfo: str) -> Iterator[Tuple[str, str, bool]]:
    """(root in the hierarchy, mount point, is it v2?) of the hierarchies that may have memory."""
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2" or (kind[0] == "cgroup" and "memory" in kind[2].split(",")):
            yield fields[3], fields[4], kind[0] == "cgroup2"


def groups(cgroup: Optional[str] = None, mountinfo: Optional[str] = None) -> List[Group]:
    """The memory cgroups of this process, from its own up to the root. (The texts are those of /proc/self/cgroup and mountinfo.)"""
    paths: Dict[bool, str] = {}
    for line in ((_read("/proc/self/cgroup") or "") if cgroup is None else cgroup).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(",") or (number, controllers) == ("0", ""):
            paths[controllers == ""] = path
    found = []
    for root, mounted, v2 in _mounts((_read("/proc/self/mountinfo") or "") if mountinfo is None else mountinfo):
        if v2 not in paths:
            continue
        # in a container the hierarchy may be mounted from its own cgroup on, and the path begins at the machine's root
        at = os.path.relpath(paths[v2], root)
        at = "" if at == "." or at.startswith("..") else at
        while True:
            found.append(Group(os.path.join(mounted, at) if at else mounted, v2))
            if not at:
                break
            at = os.path.dirname(at)
    return found


def _statistic(text: Optional[str], name: str) -> int:
    for line in (text or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdigit():
            return int(value)
    return 0


def _full_pressure(text: Optional[str]) -> float:
    """avg10 of the line `full` of a PSI file, percent."""
    for line in (text or "").splitlines():
        if line.startswith("full "):
            for field in line.split():
                if field.startswith("avg10="):
                    return float(field[6:])
    return 0.0


def left_in(group: Group) -> Optional[int]:
    """Bytes; None: no limit. Below 0: more is used than is allowed."""
    if group.v2:
        limits = [_number(_read(group.folder, name)) for name in ("memory.max", "memory.high")]
        used, idle = _number(_read(group.folder, "memory.current")), "inactive_file"
        if _full_pressure(_read(group.folder, "memory.pressure")) >= PRESSURE:
            return 0
    else:
        limits = [_number(_read(group.folder, name)) for name in ("memory.limit_in_bytes", "memory.soft_limit_in_bytes")]
        used, idle = _number(_read(group.folder, "memory.usage_in_bytes")), "total_inactive_file"
    given = [limit for limit in limits if limit is not None]
    if not given or used is None:
        return None
    return min(given) - used + _statistic(_read(group.folder, "memory.stat"), idle)


def _of_machine() -> Optional[int]:
    for line in (_read("/proc/meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _of_process(name: str) -> int:
    """VmRSS or VmHWM, bytes."""
    for line in (_read("/proc/self/status") or "").splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return 0


class Memory:
    """Of this process. round_begins(), computed() and samples() in this order in each round; any of them may be left out."""

    def __init__(self) -> None:
        self._groups = groups()
        self._highest: Deque[int] = collections.deque(maxlen=_ROUNDS)

    def left(self) -> Optional[int]:
        """Bytes that may be used besides what is used now; None: nothing says so."""
        given = [left for left in (*map(left_in, self._groups), _of_machine()) if left is not None]
        return min(given) if given else None

    def used(self) -> int:
        return _of_process("VmRSS")

    def round_begins(self) -> None:
        """From here on the highest use is that of this round."""
        try:
            with open("/proc/self/clear_refs", "w") as f:
                f.write("5")
        except OSError:
            pass  # then it is the highest of all rounds

    def computed(self) -> None:
        self._highest.append(_of_process("VmHWM"))

    def samples(self, slot: int) -> Optional[int]:
        """Samples of a slot of which this worker can hold all that it computes with; `slot`: samples of one. None: not known."""
        left = self.left()
        if left is None:
            return None
        if not self._highest:  # nothing has been computed yet
            return 0 if left <= 0 else None
        more = max(0, max(self._highest) - self.used())
        share = (1 - RESERVE) * left / max(1, more)
        return 0 if left <= 0 else min((1 << 32) - 2, int(share * slot))

    @staticmethod
    def give_back() -> None:
        """What the allocator keeps for later goes back to the machine, where the C library can do that."""
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
