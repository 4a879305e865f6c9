# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The commands of doc/appliance.md, run as they are there, but for names: a disk is a file here, a NIC a TAP device, the
management port a forwarded one of the loopback. Marks are those of test/func/docs_blocks.py."""

import os
import subprocess
import sys
import textwrap

import checks
import machine

sys.path.insert(0, os.path.join(checks.TOP, "test", "func"))
import docs_blocks  # noqa: E402

WORKERS = 2


class Guide:
    def __init__(self, test, disk, key):
        """A folder that the commands run in, with what they expect there."""
        self.test, self.disk = test, disk
        self.folder = os.path.join(test.folder, "guide")
        os.makedirs(os.path.join(self.folder, "bin"))
        os.makedirs(os.path.join(self.folder, ".ssh"))
        for name, target in (("image", checks.IMAGE), ("usertools", os.path.join(checks.TOP, "usertools")),
                             (".ssh/id_ed25519.pub", key + ".pub"), ("bin/python3", "/usr/bin/python3"),
                             ("bin/pbox-perf", os.path.join(checks.BUILD, "app/perf/pbox-perf"))):
            os.symlink(os.path.abspath(target), os.path.join(self.folder, name))
        ssh = os.path.join(self.folder, "bin/ssh")
        with open(ssh, "w", encoding="ascii") as f:
            f.write(f"#!/bin/sh\nexec {' '.join(machine.ssh_command(key))} \"$@\"\n")
        os.chmod(ssh, 0o755)
        self.env = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}:/usr/sbin:/sbin", "HOME": self.folder, "LC_ALL": "C.UTF-8",
                    "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", **checks.library()}
        self.left = [b for b in docs_blocks.blocks(self.text()) if b.kind in ("run", "output")]
        self.said = ""

    def text(self):
        """The guide without the margin that its numbered steps have."""
        path = os.path.join(self.folder, "appliance.md")
        with open(os.path.join(checks.TOP, "doc/appliance.md"), encoding="utf-8") as f, open(path, "w", encoding="utf-8") as out:
            out.writelines(line[3:] if line.startswith("   ") else line for line in f)
        return path

    def spawn(self, text, **more):
        for name, here in (("/dev/sdX3", f"{self.disk}@@{more.pop('conf', 0)}"), ("/dev/sdX", self.disk), ("eth1", "d0"),
                           ("root@BOX", "root@127.0.0.1")):
            text = text.replace(name, here)
        return subprocess.Popen(["ip", "netns", "exec", self.test.net.name, "bash", "-e", "-o", "pipefail", "-c", text],
                                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                start_new_session=True, env={**self.env, **more})

    def run(self, b):
        more = [{}]
        if b.where == "workers":
            more = [{"RANK": str(i), "WORLD_SIZE": str(WORKERS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
                     "GLOO_SOCKET_IFNAME": "lo"} for i in range(WORKERS)]
        if "/dev/sdX3" in b.text:
            more[0]["conf"] = machine.conf_offset(os.path.join(checks.IMAGE, "pbox.img"))
        children = [self.spawn(b.text, **m) for m in more]
        try:
            self.said = "".join(c.communicate(timeout=280)[0] for c in children)
        finally:
            for c in children:
                machine.end(c)
        # the line is cut when the other end goes down
        if any(c.returncode and not (c.returncode == 255 and "reboot" in b.text) for c in children):
            raise machine.Failed(self.said[-2000:])

    def step(self, word):
        """The next block, with that word in it, and the output that the guide shows for it."""
        b = self.left.pop(0)
        name = f"guide: {textwrap.shorten(b.text.splitlines()[0], 70)}"
        if b.kind != "run" or word not in b.text:
            self.test.verdict(name, False, f"the guide has another block where '{word}' was expected")
            return
        self.test.check(name, self.run, b)
        if self.left and self.left[0].kind == "output":
            missing = docs_blocks.missing_lines(self.left.pop(0).text, self.said)
            self.test.verdict("guide: what it prints", not missing, f"not there: {missing}, among:\n{self.said[-1500:]}")

    def end(self):
        self.test.verdict("guide: all its commands have been run", not self.left, [b.text for b in self.left])
