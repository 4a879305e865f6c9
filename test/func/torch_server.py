# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Starts programs by fork from a process that has imported torch, which takes more than a second of a CPU; for torch.sh.

usage: torch_server.py FOLDER [images]     images: these are loaded before, too

Reads requests from the FIFO `ask` in that folder, and answers each in the FIFO `answer` with a line: the process id. A request is
strings that end with a zero byte: network namespace, log, working directory, number of arguments, the program and its arguments, the
environment (NAME=VALUE), and an empty one. When a program has ended, the file PID has its status, as a shell has it. Programs are
children of this process, and end with it; it ends with the shell that has started it.
"""

import ctypes
import gc
import os
import selectors
import signal
import sys

import numpy  # noqa: F401
import torch
import torch.distributed  # noqa: F401
import torch.nn.parallel  # noqa: F401
import torch.utils.data  # noqa: F401

import pbox.torch  # noqa: F401
import pbox.torch.reference  # noqa: F401

CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


class Request:
    """Strings of one request, as they come."""

    def __init__(self):
        self.strings, self.part = [], b""

    def add(self, data):
        """True when it is complete."""
        *strings, self.part = (self.part + data).split(b"\0")
        self.strings += strings
        return len(self.strings) > 4 and b"" in self.strings[4 + int(self.strings[3]):]

    def take(self):
        net, log, folder, n = self.strings[:4]
        end = 4 + int(n)
        argv = [os.fsdecode(s) for s in self.strings[4:end]]
        env = dict(s.split(b"=", 1) for s in self.strings[end:self.strings.index(b"", end)])
        self.strings = []
        return net, log, folder, argv, env


def become(net, log, folder, argv, env):
    """In the child: what the shell and `ip netns exec` would have done."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)
    fd = os.open(b"/run/netns/" + net, os.O_RDONLY)
    if LIBC.setns(fd, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"namespace {net.decode()}")
    os.close(fd)
    os.chdir(folder)
    os.environb.clear()
    os.environb.update(env)
    sys.argv = argv
    sys.path[0] = os.path.dirname(os.path.abspath(argv[0]))


def serve(folder):
    """Returns in each child, where nothing of the server is left."""
    # opened for both, so that there is no end of file between two requests
    ask, answer = (os.open(os.path.join(folder, name), os.O_RDWR) for name in ("ask", "answer"))
    request, running = Request(), {}
    with selectors.DefaultSelector() as s:
        s.register(ask, selectors.EVENT_READ)
        while True:
            for key, _ in s.select():
                if key.fd != ask:
                    s.unregister(key.fd)
                    os.close(key.fd)
                    pid = running.pop(key.fd)
                    ended(folder, pid, os.waitpid(pid, 0)[1])
                elif request.add(os.read(ask, 65536)):
                    what = request.take()
                    ready, child = os.pipe()
                    pid = os.fork()
                    if pid == 0:
                        for fd in (ask, answer, ready, *running):
                            os.close(fd)
                        become(*what)
                        os.close(child)
                        return
                    os.close(child)
                    os.read(ready, 1)  # until it is there, or has failed: who has its id may stop it at once
                    os.close(ready)
                    if os.path.exists(f"{folder}/{pid}"):
                        os.remove(f"{folder}/{pid}")  # of an earlier process with this id
                    fd = os.pidfd_open(pid)
                    running[fd] = pid
                    s.register(fd, selectors.EVENT_READ)
                    os.write(answer, b"%d\n" % pid)


def ended(folder, pid, status):
    code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    with open(f"{folder}/{pid}.new", "w", encoding="ascii") as f:
        print(code, file=f)
    os.rename(f"{folder}/{pid}.new", f"{folder}/{pid}")


LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
torch.set_num_threads(1)
if sys.argv[2:] == ["images"]:
    import torch_slots
    if torch_slots.os.path.isdir(torch_slots.DATA):
        torch_slots.images(torch_slots.DATA)
gc.collect()
gc.freeze()  # children share the pages
serve(sys.argv[1])
# as the interpreter does with a program: in this module, so that it ends as one does, too
with open(sys.argv[0], encoding="utf-8") as _file:
    _code = compile(_file.read(), sys.argv[0], "exec")
for _name in [n for n in globals() if not n.startswith("__")]:
    if _name not in ("_code", "_name"):
        del globals()[_name]
__file__, __doc__ = __import__("sys").argv[0], None
exec(_code)  # pylint: disable=exec-used
