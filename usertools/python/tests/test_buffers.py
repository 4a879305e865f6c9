# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Memory of callers: in hugepages where the kernel has them."""

import ctypes as ct
import mmap
import unittest

from pbox import _buffers

MIB = 1 << 20


def huge_kib(address):
    """Of the mapping that has the address."""
    inside = False
    with open("/proc/self/smaps") as f:
        for line in f:
            first = line.split()[0]
            if "-" in first:
                low, high = (int(x, 16) for x in first.split("-"))
                inside = low <= address < high
            elif inside and first == "AnonHugePages:":
                return int(line.split()[1])
    return 0


def kernel_gives():
    try:
        with open("/sys/kernel/mm/transparent_hugepage/enabled") as f:
            return "[never]" not in f.read()
    except OSError:
        return False


class PreferHuge(unittest.TestCase):
    def setUp(self):
        self.memory = mmap.mmap(-1, 16 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.view = (ct.c_char * (16 * MIB)).from_buffer(self.memory)
        self.at = ct.addressof(self.view)
        self.bytes = bytes(range(251)) * (16 * MIB // 251) + bytes(16 * MIB % 251)
        self.memory[:] = self.bytes

    def tearDown(self):
        del self.view
        self.memory.close()

    def test_what_is_there_stays(self):
        _buffers.prefer_huge(self.at + 100, 15 * MIB)
        self.assertEqual(self.memory[:], self.bytes)

    def test_pages_are_huge(self):
        if not kernel_gives():
            self.skipTest("this kernel has no transparent hugepages")
        before = huge_kib(self.at)
        _buffers.prefer_huge(self.at, 16 * MIB)
        self.memory[:] = self.bytes
        if before == huge_kib(self.at) and before == 0:
            self.skipTest("this kernel does not put pages together on demand, or has no free ones")
        self.assertGreaterEqual(huge_kib(self.at), 2048)

    def test_little_memory_is_left_alone(self):
        before = huge_kib(self.at)
        for size in (0, 1, 2 * MIB, 4 * MIB - 1):
            _buffers.prefer_huge(self.at + 4096, size)
        self.assertEqual(huge_kib(self.at), before)


if __name__ == "__main__":
    unittest.main()
