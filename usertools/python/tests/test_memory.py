# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""What memory is left, by cgroups of v1 and v2 that are folders of files."""

import os
import tempfile
import unittest

try:
    import torch  # noqa: F401
except ImportError:
    raise unittest.SkipTest("torch is missing") from None

from pbox.torch import _memory
from pbox.torch._memory import Group, Memory, left_in

MIB = 1 << 20
V1_MOUNTS = """30 20 0:26 / {0}/cpu rw - cgroup cgroup rw,cpu
31 20 0:27 / {0}/memory rw - cgroup cgroup rw,memory
32 20 0:28 / {0}/unified rw - cgroup2 cgroup2 rw
"""


class Cgroups(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = folder.name

    def write(self, at, **files):
        folder = os.path.join(self.top, at)
        os.makedirs(folder, exist_ok=True)
        for name, text in files.items():
            with open(os.path.join(folder, name.replace("__", ".")), "w") as f:
                f.write(f"{text}\n")
        return folder

    def test_found_up_to_the_root(self):
        found = _memory.groups("4:memory:/jobs/a\n1:cpu:/x\n0::/\n", V1_MOUNTS.format(self.top))
        self.assertEqual(found, [Group(f"{self.top}/memory/jobs/a", False), Group(f"{self.top}/memory/jobs", False),
                                 Group(f"{self.top}/memory", False), Group(f"{self.top}/unified", True)])

    def test_container_sees_its_own_root(self):
        mounts = "31 20 0:27 /docker/abc /cg rw - cgroup2 cgroup2 rw\n"
        self.assertEqual(_memory.groups("0::/docker/abc/w0\n", mounts), [Group("/cg/w0", True), Group("/cg", True)])
        self.assertEqual(_memory.groups("0::/docker/abc\n", mounts), [Group("/cg", True)])
        self.assertEqual(_memory.groups("0::/\n", mounts), [Group("/cg", True)])

    def test_nothing_there(self):
        self.assertEqual(_memory.groups("", ""), [])
        self.assertEqual(_memory.groups("no line of it", "neither"), [])
        self.assertIsNone(left_in(Group(os.path.join(self.top, "gone"), True)))

    def test_v2(self):
        at = self.write("a", memory__max=100 * MIB, memory__high="max", memory__current=70 * MIB,
                        memory__stat=f"anon 5\ninactive_file {10 * MIB}")
        self.assertEqual(left_in(Group(at, True)), 40 * MIB)
        self.write("a", memory__high=60 * MIB)  # below what is used
        self.assertEqual(left_in(Group(at, True)), 0)
        self.write("a", memory__max="max", memory__high="max")
        self.assertIsNone(left_in(Group(at, True)))

    def test_pressure(self):
        at = self.write("a", memory__max=100 * MIB, memory__current=MIB,
                        memory__pressure="some avg10=90.00 avg60=0.00 total=1\nfull avg10=9.90 avg60=0.00 total=1")
        self.assertEqual(left_in(Group(at, True)), 99 * MIB)
        self.write("a", memory__pressure="some avg10=90.00 avg60=0.00 total=1\nfull avg10=10.50 avg60=0.00 total=1")
        self.assertEqual(left_in(Group(at, True)), 0)

    def test_v1(self):
        at = self.write("a", memory__limit_in_bytes=100 * MIB, memory__usage_in_bytes=120 * MIB,
                        memory__soft_limit_in_bytes=9223372036854771712, memory__stat=f"total_inactive_file {MIB}")
        self.assertEqual(left_in(Group(at, False)), -19 * MIB)
        self.write("a", memory__limit_in_bytes=9223372036854771712)
        self.assertIsNone(left_in(Group(at, False)))
        self.write("a", memory__soft_limit_in_bytes=140 * MIB)
        self.assertEqual(left_in(Group(at, False)), 21 * MIB)

    def test_samples(self):
        m, used, left = Memory(), 100 * MIB, 40 * MIB
        m.used, m.left = lambda: used, lambda: left
        self.assertIsNone(m.samples(8))  # nothing is computed yet
        m._highest.extend((120 * MIB, 117 * MIB))
        self.assertEqual(m.samples(8), 13)  # 0.85 x 40 of 20 MiB
        left = 20 * MIB
        self.assertEqual(m.samples(8), 6)  # short: the reserve is not left
        left = -MIB
        self.assertEqual(m.samples(8), 0)
        used, left = 130 * MIB, MIB  # it holds already what it needs
        self.assertGreater(m.samples(8), 8)
        left = None
        self.assertIsNone(m.samples(8))

    def test_this_process(self):
        m = Memory()
        m.round_begins()
        block = bytearray(32 * MIB)
        for at in range(0, len(block), 4096):
            block[at] = 1
        m.computed()
        del block
        self.assertGreater(m._highest[0] - m.used(), 16 * MIB)
        left = m.left()
        self.assertTrue(left is None or abs(left) < 1 << 60)
        m.give_back()


if __name__ == "__main__":
    unittest.main()
