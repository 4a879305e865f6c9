# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""pbox.client against the fake of the library: python3 -m unittest discover tests"""

import array
import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
import unittest.mock

import torch

import pbox
from pbox import _lib
from tests import workers
from tests.fake_box import FakeLib

try:
    import numpy
except ImportError:
    numpy = None


class Case(unittest.TestCase):
    def setUp(self):
        self.lib = FakeLib({"j": "s"})
        _lib.use(self.lib)
        self.addCleanup(_lib.use, None)

    def client(self, worker=0, n=1, **kw):
        return pbox.Client("box", "j", "s", worker, n, **kw)


class Sessions(Case):
    def test_layout(self):
        # sizes of the C structures on any 64-bit machine
        self.assertEqual(
            [ctypes.sizeof(s) for s in (_lib.Error, _lib.Conf, _lib.TensorDecl, _lib.TableDecl,
                                        _lib.Io, _lib.Op, _lib.Hyper, _lib.Stats)],
            [516, 152, 24, 40, 24, 72, 16, 296])

    def test_older_library(self):
        self.lib.conf_size = 104
        with self.assertRaisesRegex(ImportError, "older than this Python package"):
            self.client()

    def test_keep_copies(self):
        self.client().close()
        self.assertEqual(self.lib.keep_copies, 1)
        self.client(keep_copies=False).close()
        self.assertEqual(self.lib.keep_copies, 0)

    def test_clock(self):
        with self.client() as c:
            how = {"mode": "optimiser", "op": "sum", "optimiser": "add", "discipline": "clock"}
            for name, given, text in (("op", "mean", "op='mean'.*nothing to make a mean of"), ("mode", "all-reduce", "mode='all-reduce'"),
                                      ("optimiser", "sgd", "optimiser='sgd'.*run there"), ("discipline", "bound", "rounds, clock")):
                with self.assertRaisesRegex(pbox.PBoxInvalid, text):
                    c.declare([1], **{**how, name: given})
            rounds, t = c.declare([1]), c.declare([("a", 2)], **how)
            with self.assertRaisesRegex(pbox.PBoxInvalid, "discipline='clock'"):
                rounds.push([torch.zeros(1)], factor=0.5)
            with self.assertRaisesRegex(pbox.PBoxInvalid, "discipline='clock'"):
                rounds.versions()
            a = torch.ones(2)
            t.init([a]).wait()
            for bad in (0, float("nan"), 1e-45, "x"):
                with self.assertRaisesRegex(pbox.PBoxInvalid, "factor is"):
                    t.push([a], factor=bad)
            t.pull([a]).wait()
            t.push([a], factor=0.5, pulls_ago=1).wait()
            t.push([torch.ones(2)]).wait()
            t.pull([a]).wait()
            self.assertEqual(a.tolist(), [2.5, 2.5])
            for bad in (-1, 1 << 30, 1.5):
                with self.assertRaisesRegex(pbox.PBoxInvalid, "bound"):
                    t.pull([a], bound=bad)
            with self.assertRaisesRegex(pbox.PBoxInvalid, "discipline='clock'"):
                rounds.pull([torch.zeros(1)], bound=0)
            t.pull([a], bound=3).wait()
            self.assertIn(("bound", 0, 3), self.lib.calls)
            v = t.versions("a")
            self.assertEqual((v.version, v.own_seen, v.others, v.pulls), (2.0, 2, 0.0, 2))

    def test_clock_and_slots(self):
        with self.client(slots=4) as c, self.assertRaisesRegex(pbox.PBoxInvalid, "slots with clocks: "):
            c.declare([1], mode="optimiser", op="sum", optimiser="add", discipline="clock")

    def test_next_round(self):
        with self.client() as c:
            t = c.declare([("a", 2)], first_round=7)  # the job is new
            self.assertEqual(t.next_round, 1)
            t.run([array.array("f", [1, 2])])
            self.assertEqual(t.next_round, 2)
            with self.assertRaises(pbox.PBoxInvalid):
                c.declare([("a", 2)], first_round=-1)

    def test_numbers(self):
        with self.client(1, 3) as c:
            self.assertEqual((c.worker, c.workers), (1, 3))
            self.assertIn("worker 1 of 3", repr(c))
            self.assertEqual(c.status(), "job: all well")
            self.assertEqual(c.why(), "nothing")
        self.assertTrue(c.closed)
        with self.assertRaises(pbox.PBoxClosed):
            c.status()
        c.close()

    def test_a_silent_worker_is_named_while_the_wait_goes_on(self):
        with self.client(0, 2) as c:
            said = pbox._calls.Said(c)
            with self.assertNoLogs("pbox", "WARNING"):
                said._began -= 6
                said.look()  # the box hears it
            self.lib.silent = b"worker 1 (host b, silent for 11.0 s): if its process is dead, start it again with this number"
            with self.assertLogs("pbox", "WARNING") as log:
                said._began -= 6
                said.look()
            self.assertIn("worker 0 of 2 waits for worker 1 (host b, silent for 11.0 s)", log.output[0])
            with self.assertNoLogs("pbox", "WARNING"):
                said._began -= 6
                said.look()  # once a wait

    def test_transport(self):
        names = "PBOX_TRANSPORT", "PBOX_TRANSPORT_ARGS"
        for name in names:
            self.addCleanup(os.environ.pop, name, None)
            os.environ.pop(name, None)
        self.client().close()
        self.assertEqual(self.lib.transport, (None, None))
        os.environ["PBOX_TRANSPORT_ARGS"] = "-- address=10.0.0.2/24"
        os.environ["PBOX_TRANSPORT"] = "dpdk"
        self.client().close()
        self.assertEqual(self.lib.transport, (b"dpdk", b"-- address=10.0.0.2/24"))
        self.client(transport="udp").close()  # what is said goes before what is set
        self.assertEqual(self.lib.transport, (b"udp", None))

    def test_run(self):
        self.addCleanup(os.environ.pop, "PBOX_RUN", None)
        os.environ.pop("PBOX_RUN", None)
        self.client().close()
        self.assertIsNone(self.lib.run)
        self.client(run="monday 1").close()
        self.assertEqual(self.lib.run, b"monday 1")
        os.environ["PBOX_RUN"] = "tuesday"
        self.client().close()
        self.assertEqual(self.lib.run, b"tuesday")
        self.client(run="").close()
        self.assertIsNone(self.lib.run)
        self.assertEqual((pbox.PBoxRunning.code, pbox.PBoxRunEnded.code), (-14, -15))

    def test_errors_have_classes(self):
        with self.assertRaisesRegex(pbox.PBoxSecretError, "secret of job 'j' differs"):
            pbox.Client("box", "j", "wrong", 0, 1)
        with self.assertRaises(pbox.PBoxNoJob) as e:
            pbox.Client("box", "other", "s", 0, 1)
        self.assertEqual(e.exception.code, -5)
        with self.assertRaisesRegex(pbox.PBoxInvalid, "worker 4 of 4"):
            pbox.Client("box", "j", "s", 4, 4)
        self.assertTrue(issubclass(pbox.PBoxDeadline, TimeoutError))
        for name in pbox.__all__:
            cls = getattr(pbox, name)
            if name.startswith("PBox"):
                self.assertTrue(issubclass(cls, pbox.PBoxError))
                self.assertEqual(str(cls("text")), "text")

    def test_no_thread_left(self):
        """A limit of processes: an error of ours wherever a thread begins, and nothing in flight."""
        def no(_):
            raise RuntimeError("can't start new thread")
        with unittest.mock.patch.object(threading.Thread, "start", no):
            with self.assertRaisesRegex(pbox.PBoxSystemError, "no thread can be started .*can't start.*ulimit -u"):
                self.client()
        self.assertEqual(self.lib.clients, {})
        with self.client() as c:
            with unittest.mock.patch.object(threading.Thread, "start", no):
                for call in (lambda: c.declare([1]), c.status, c.why):
                    with self.assertRaisesRegex(pbox.PBoxSystemError, "TasksMax"):
                        call()
            self.assertEqual(c.declare([1]).number, 0)

    def test_import_error_says_what_to_do(self):
        env = dict(os.environ, PBOX_CLIENT_LIB="/nowhere/lib.so",
                   PYTHONPATH=os.path.dirname(os.path.dirname(pbox.__file__)))
        r = subprocess.run(
            [sys.executable, "-c", "import pbox; pbox.Client('b', 'j')"], env=env,
            capture_output=True, text=True, timeout=60)
        self.assertIn("ImportError", r.stderr)
        self.assertIn("/nowhere/lib.so", r.stderr)
        self.assertIn("meson compile", r.stderr)

    def test_fork_leaves_session_alone(self):
        c = self.client()
        pid = os.fork()
        if pid == 0:
            try:
                c.status()
            except pbox.PBoxClosed as e:
                c.close()
                os._exit(0 if "fork" in str(e) and c.closed else 1)
            os._exit(2)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertEqual(c.status(), "job: all well")
        c.close()


class Termination(unittest.TestCase):
    """SIGTERM leaves, and then ends the process, also where another has the wake-up fd."""

    BEGIN = """
import asyncio, ctypes, os, signal, socket, sys, time
from pbox import _signal
def left():
    print("left", flush=True)
def ready():
    print("ready", flush=True)
def in_c():
    mutex = ctypes.create_string_buffer(64)
    ready()
    while True:
        ctypes.CDLL(None).pthread_mutex_lock(mutex)
"""
    CASES = {
        "nobody": "_signal.leave_on_sigterm(left); in_c()",
        "another before": "a, b = socket.socketpair(); b.setblocking(False); signal.set_wakeup_fd(b.fileno())\n"
                          "_signal.leave_on_sigterm(left); ready(); time.sleep(60)",
        "another later": "_signal.leave_on_sigterm(left); a, b = socket.socketpair(); b.setblocking(False)\n"
                         "signal.set_wakeup_fd(b.fileno()); ready(); time.sleep(60)",
        "asyncio": "_signal.leave_on_sigterm(left)\nasync def main():\n"
                   "    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, print)\n"
                   "    ready(); await asyncio.sleep(60)\nasyncio.run(main())",
        "asyncio before": "async def main():\n    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, print)\n"
                          "    _signal.leave_on_sigterm(left)\n    ready(); await asyncio.sleep(60)\nasyncio.run(main())",
        # and then an operation, in whose C code the main thread stays
        "asyncio, closed": "_signal.leave_on_sigterm(left)\nasync def main():\n"
                           "    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, print)\n"
                           "asyncio.run(main()); _signal.look(); in_c()",
        "its own, for a time": "_signal.leave_on_sigterm(left)\nours = signal.signal(signal.SIGTERM, lambda *_: None)\n"
                               "os.kill(os.getpid(), signal.SIGTERM); time.sleep(0.1); signal.signal(signal.SIGTERM, ours)\n"
                               "ready(); time.sleep(60)",
    }

    def run_case(self, code):
        env = dict(os.environ, PYTHONPATH=os.path.dirname(os.path.dirname(pbox.__file__)))
        with subprocess.Popen([sys.executable, "-c", self.BEGIN + code], env=env, stdout=subprocess.PIPE, text=True) as p:
            try:
                self.assertEqual(p.stdout.readline(), "ready\n")
                p.terminate()
                return p.communicate(timeout=30)[0], p.returncode
            finally:
                p.kill()

    def test_all(self):
        for name, code in self.CASES.items():
            with self.subTest(name):
                self.assertEqual(self.run_case(code), ("left\n", -signal.SIGTERM))

    def test_the_program_handles_it(self):
        for code in ("signal.signal(signal.SIGTERM, lambda *_: os._exit(3)); _signal.leave_on_sigterm(left)",
                     "_signal.leave_on_sigterm(left); signal.signal(signal.SIGTERM, lambda *_: os._exit(3))"):
            self.assertEqual(self.run_case(code + "; ready(); time.sleep(60)"), ("", 3))

    def test_child(self):
        code = ("_signal.leave_on_sigterm(left); r, w = os.pipe(); pid = os.fork()\nif pid == 0: os.write(w, b'1'); time.sleep(60)\n"
                "os.read(r, 1); os.kill(pid, signal.SIGTERM); assert os.waitpid(pid, 0)[1] == signal.SIGTERM\nin_c()")
        self.assertEqual(self.run_case(code), ("left\n", -signal.SIGTERM))


class Tables(Case):
    def test_mean_in_place(self):
        def worker(w):
            with self.client(w, 3) as c:
                t = c.declare([pbox.Tensor("a", 5), ("b", 2), 3], op="mean")
                data = [torch.full((n,), float(w + 1)) for n in (5, 2, 3)]
                t.run(data)
                t.run({"b": data[1]})
                return data
        for data in workers.run(3, worker):
            self.assertEqual([d.tolist() for d in data], [[2.0] * 5, [2.0] * 2, [2.0] * 3])

    def test_kinds_of_arrays(self):
        with self.client() as c:
            t = c.declare([4])
            a = array.array("f", [1, 2, 3, 4])
            out = array.array("f", [0] * 4)
            t.run([a], [out])
            self.assertEqual(out, a)
            t.run([memoryview(a)], [memoryview(out).cast("B")])
            t.run([bytes(16)], [out])
            self.assertEqual(out.tolist(), [0] * 4)
            if numpy:
                n = numpy.arange(4, dtype=numpy.float32)
                n.flags.writeable = False
                t.run([n], [out])
                self.assertEqual(out.tolist(), [0, 1, 2, 3])
            h = c.declare([4], push="bf16", pull="bf16")
            b = torch.tensor([1, 2, 3, 4], dtype=torch.bfloat16)
            h.run([b])
            self.assertEqual(b.tolist(), [1, 2, 3, 4])

    def test_refused_arrays(self):
        with self.client() as c:
            t = c.declare([pbox.Tensor("w", 4)])
            good = torch.zeros(4)
            for bad, text in (
                    (torch.zeros(5), "'w' has 5 elements, declared were 4"),
                    (torch.zeros(4, dtype=torch.float64), "float64.*declared fp32"),
                    (torch.zeros(4, 2)[:, 0], "not contiguous"),
                    (torch.zeros(4).to_sparse(), "sparse"),
                    (torch.zeros(4, device="meta"), "copy it to the CPU"),
                    ([1.0] * 4, "is a list"),
                    (array.array("d", [0] * 4), "format 'd'"),
                    (array.array("f", [0] * 3), "has 12 bytes")):
                with self.assertRaisesRegex(pbox.PBoxInvalid, text):
                    t.run([bad], [good])
            with self.assertRaisesRegex(pbox.PBoxInvalid, "read-only"):
                t.run([good], [bytes(16)])
            with self.assertRaisesRegex(pbox.PBoxInvalid, "2 arrays for the 1"):
                t.run([good, good])
            with self.assertRaisesRegex(pbox.PBoxInvalid, "no tensor 'x'"):
                t.run({"x": good})
            with self.assertRaisesRegex(pbox.PBoxInvalid, "op is 'avg'"):
                c.declare([1], op="avg")

    def test_export_is_held_until_done(self):
        def worker(w):
            with self.client(w, 2) as c:
                t = c.declare([4])
                if w == 1:
                    started.wait(10)
                    t.run([array.array("f", [0] * 4)])
                    return
                a = bytearray(16)
                op = t.pushpull([a])
                with self.assertRaises(BufferError):
                    a.append(1)
                started.set()
                op.wait(10)
                del op
                gc.collect()
                a.append(1)
        started = threading.Event()
        workers.run(2, worker)

    def test_empty_tensor(self):
        with self.client() as c:
            c.declare([0, 2]).run([torch.zeros(0), torch.zeros(2)])

    def test_push_pull_and_hypers(self):
        with self.client() as c:
            t = c.declare([3], mode="optimiser", optimiser="sgd")
            t.set_hyper(lr=0.5)
            t.init([torch.ones(3)]).wait()
            out = torch.zeros(3)
            t.pull([out]).wait()
            self.assertEqual(out.tolist(), [1.0] * 3)
            t.push([torch.ones(3)]).wait()
            t.pull([out]).wait()
            self.assertEqual(out.tolist(), [0.5] * 3)
            with self.assertRaisesRegex(pbox.PBoxInvalid, "'speed'"):
                t.set_hyper(speed=1)

    def test_numbers_that_ctypes_would_cut(self):
        """Or refuse, after something was sent: by name, before."""
        with self.client() as c:
            before = len(self.lib.calls)
            for bad, text in (((2 ** 64 + 3,), "tensor 'x': number of elements is 18446744073709551619"),
                              ((3.0,), "elements is 3.0: needed is a whole number"), ((-1,), "elements is -1"),
                              ((3, 2 ** 16 + 1), "its group is 65537"), ((3, 0.5), "its group is 0.5"),
                              (("3",), "elements is '3'"), ((None,), "elements is None")):
                with self.assertRaisesRegex(pbox.PBoxInvalid, text):
                    c.declare([("x", *bad)])
            for bad, text in ((("a\0b", 3), "name of tensor 0 has a NUL"), ((3, 3), "name of tensor 0 is 3"),
                              (("x", 1, 2, 3), "tensor 0 is"), (("\ud800", 3), "UTF-8")):
                with self.assertRaisesRegex(pbox.PBoxInvalid, text):
                    c.declare([bad])
            t = c.declare([("x", 2)], op="weighted_mean")
            x = [torch.ones(2)]
            for call, text in (
                    (lambda: c.declare([1], first_round=2 ** 32), "first_round is 4294967296"),
                    (lambda: c.declare([1], first_round=1.0), "first_round is 1.0"),
                    (lambda: c.declare([1], timeout="3"), "timeout, in seconds, is '3'"),
                    (lambda: t.run(x, weight=2.0), "weight .* is 2.0"),
                    (lambda: t.run(x, weight=2 ** 32), "weight .* is 4294967296"),
                    (lambda: t.pushpull(x, priority=256), "priority is 256"),
                    (lambda: t.pushpull(x, priority=1.0), "priority is 1.0"),
                    (lambda: t.pushpull_nodes([x], x, weights=[0.5]), "weight of node 0 .* is 0.5"),
                    (lambda: t.run({0.0: x[0]}), "no tensor 0.0"),
                    (lambda: t.fetch(3, x), "array is 3"),
                    (lambda: t.set_hyper(2 ** 16, lr=1.0), "group is 65536"),
                    (lambda: t.set_hyper(0, 2 ** 32, lr=1.0), "from_round is 4294967296"),
                    (lambda: t.set_hyper(lr="1"), "lr is '1': needed is a number"),
                    (lambda: t.set_hyper(lr=10 ** 400), "lr is 10000000"),
                    (lambda: c.nodes(2 ** 32 + 1), "round is 4294967297")):
                with self.assertRaisesRegex(pbox.PBoxInvalid, text):
                    call()
            self.assertEqual(len(self.lib.calls), before)
            t.run(x, weight=torch.tensor(3))  # numbers of other kinds are welcome
            for wait, text in (("3", "is '3'"), (float("nan"), "is nan"), (5e6, r"is 5e\+06"), (-1, "is -1")):
                with self.assertRaisesRegex(pbox.PBoxInvalid, "timeout, in seconds, " + text):
                    t.pull(x).wait(wait)

    def test_arguments_of_a_session(self):
        for text, bad in ((f"{k}\\b.* {said}|^{k} {said}", {k: v}) for k, v, said in (
                ("workers", 2 ** 32 + 1, "is 4294967297"), ("workers", 0, "is 0"), ("workers", 1.0, "is 1.0"),
                ("mtu", 2 ** 32 + 1500, "is 4294968796"), ("window", -1, "is -1"), ("spin", 1e5, "is 100000"),
                ("min_rto", float("nan"), "is nan"), ("slots", 4.0, "is 4.0"), ("slots", 2 ** 40 + 4, "is 1099511627780"),
                ("threads", 2.0, "is 2.0"), ("threads", -1, "is -1"),
                ("timeout", "3", "is '3'"), ("lease", 1e9, r"is 1e\+09"), ("patience", -1, "is -1"),
                ("run", "a\0b", "has a NUL"), ("host", "a\0b", "has a NUL"), ("bind", 3, "is 3"),
                ("transport_args", "a\0b", "has a NUL"))):
            with self.assertRaisesRegex(pbox.PBoxInvalid, text):
                pbox.Client("box", "j", "s", **{"worker": 0, "workers": 1, "transport": "udp", **bad})
        with self.assertRaisesRegex(pbox.PBoxInvalid, "secret has a NUL"):
            pbox.Client("box", "j", "s\0t", 0, 1)
        with self.assertRaisesRegex(pbox.PBoxInvalid, "worker is 0.5"):
            pbox.Client("box", "j", "s", 0.5, 2)
        with unittest.mock.patch.dict(os.environ, PBOX_THREADS="two"), \
                self.assertRaisesRegex(pbox.PBoxInvalid, "PBOX_THREADS of the environment is 'two'"):
            pbox.Client("box", "j", "s", 0, 1)
        self.assertEqual(self.lib.clients, {})

    def test_mismatch(self):
        def worker(w):
            with self.client(w, 2, timeout=0.5) as c:
                try:
                    c.declare([("fc", 4 + w)])
                except pbox.PBoxError as e:
                    return e
        kinds = sorted(type(e).__name__ for e in workers.run(2, worker))
        self.assertEqual(kinds, ["PBoxDeadline", "PBoxMismatch"])


class Operations(Case):
    def test_deadline_then_success(self):
        with self.client(timeout=0.3) as c:
            t = c.declare([1])
            self.lib.hold = True
            x = torch.ones(1)
            op = t.pushpull([x])
            self.assertFalse(op.test())
            t0 = time.monotonic()
            with self.assertRaises(pbox.PBoxDeadline):
                op.wait()
            self.assertGreater(time.monotonic() - t0, 0.25)
            self.lib.release()
            op.wait()
            self.assertTrue(op.done and op.test())
            self.assertEqual(c._operations, {})

    def test_a_wait_that_goes_on_says_so(self):
        """The worker that is missing lives, so there is no error for long: once by then, and then more rarely."""
        with self.client(timeout=0.3) as c:
            self.lib.hold = self.lib.lives = True
            op = c.declare([1]).pushpull([torch.ones(1)])
            threading.Timer(0.9, self.lib.release).start()
            with self.assertLogs("pbox") as log:
                op.wait()
            self.assertEqual(len(log.output), 1)
            self.assertRegex(log.output[0], "worker 0 of 1 has waited for 0 s: waits for worker 1")

    def test_callback(self):
        with self.client() as c:
            t = c.declare([1])
            self.lib.hold = True
            got, seen = [], threading.Event()
            op = t.pushpull([torch.ones(1)])
            op.add_done_callback(lambda e: (got.append((e, threading.current_thread())),
                                            seen.set()))
            with self.assertRaisesRegex(pbox.PBoxInvalid, "callback"):
                op.wait()
            del op
            gc.collect()
            self.lib.release()
            self.assertTrue(seen.wait(10))
            self.assertIsNone(got[0][0])
            self.assertIsNot(got[0][1], threading.main_thread())

    def test_close_fails_what_is_in_flight(self):
        c = self.client()
        t = c.declare([1])
        self.lib.hold = True
        errors, seen = [], threading.Event()
        t.pushpull([torch.ones(1)]).add_done_callback(lambda e: (errors.append(e), seen.set()))

        def wait():
            try:
                op.wait(30)
            except pbox.PBoxError as e:
                errors.append(e)
        op = t.pushpull([torch.ones(1)])
        waiter = threading.Thread(target=wait)
        waiter.start()
        time.sleep(0.1)
        c.close()
        waiter.join(10)
        self.assertTrue(seen.wait(10))
        self.assertEqual([type(e) for e in errors], [pbox.PBoxClosed] * 2)

    def test_close_inside_callback_is_refused(self):
        with self.client() as c:
            t = c.declare([1])
            got, seen = [], threading.Event()

            def close(_):
                try:
                    c.close()
                except pbox.PBoxInvalid as e:
                    got.append(e)
                seen.set()
            t.pushpull([torch.ones(1)]).add_done_callback(close)
            self.assertTrue(seen.wait(10))
            self.assertEqual(len(got), 1)

    def test_ctrl_c_interrupts(self):
        class Interrupt(Exception):
            pass

        def handler(*_):
            raise Interrupt
        old = signal.signal(signal.SIGALRM, handler)
        self.addCleanup(signal.signal, signal.SIGALRM, old)
        with self.client(0, 2) as c:
            for fn in (lambda: c.declare([1], timeout=30),):
                t0 = time.monotonic()
                signal.setitimer(signal.ITIMER_REAL, 0.2)
                with self.assertRaises(Interrupt):
                    fn()
                self.assertLess(time.monotonic() - t0, 5)
        with pbox.Client("box", "j", "s", 0, 1) as c:
            t = c.declare([1])
            self.lib.hold = True
            op = t.pushpull([torch.ones(1)])
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with self.assertRaises(Interrupt):
                op.wait(30)


if __name__ == "__main__":
    unittest.main()
