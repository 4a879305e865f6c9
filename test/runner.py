#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Build PBox and run its test suites; the body of test/run.

A test is a program. It says what it did in one of these ways, else its exit status counts as
one test (0 passed, 77 skipped):
  - CUnit's summary;
  - a last line `N passed, N failed` (`, N skipped` may follow), with `skip - NAME: REASON` lines.

Programs run side by side: most of them wait for timers and for other processes. durations.json says how long each
takes, and how much of that on a CPU. Sleepers begin first, the longest before the others, as many as fit: half of the CPUs
is what all of them may want together. They are no reason not to start another program. Of the others two always run, more as
long as the CPUs have time left, so that neighbours of the machine do not starve them. Where more processes want each CPU than
Crowd.MOST, no sleeper begins: on a slow machine the same programs want more of it than the file says. Those that measure (ALONE) run one
after the other, when nothing else of ours does.

A program of processes or threads in real time (in_real_time()) that failed beside others runs once more, alone, after all
others: a machine that gives it no CPU for seconds is no defect. If it passes then, that counts, and
the last lines name it as unsteady, with what failed the first time. More than SECOND_CHANCES failures
are no accident; a sanitizer's report, lint, simulator, fuzzers and what has no clock have no excuse: these count at once.

Ended by a signal, it ends all that it started within five seconds: what does not end politely is killed, whatever session
it is in (orphans become children of this process), and network namespaces and mounts go with the mount namespace that it
has for itself.
"""

import argparse
import ctypes
import heapq
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import changed
from resources import DURATIONS, Crowd, Durations, Idle, memory_left

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SUMMARY = re.compile(r"^(?:[\w-]+: )?(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", re.M)
CUNIT = re.compile(r"^\s+tests\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s*$", re.M)
SKIP = re.compile(r"^skip - (.*)$", re.M)
SKIPPED = 77  # exit status of a program that cannot run here, or not to its end
SUITES = {
    "lint": "format, licence lines, forbidden functions, exported names, layers, circles of files, ABI, spelling, shell scripts",
    "unit": "CUnit tests of each library and driver",
    "golden": "the frozen frames, and the Python side written from the specification",
    "sim": "the engine in virtual time on lossy networks, and planted bugs",
    "chaos": "a box on bad networks, and among enemies: results, goodput, bytes",
    "fuzz": "each fuzz target over its corpus, with address and undefined-behaviour sanitizers",
    "sanitize": "unit tests with address and undefined-behaviour sanitizers",
    "torch": "optimisers and conversions against PyTorch",
    "func": "real processes in network namespaces",
    "science": "the experiments of doc/science*.md, each as short as it can be (minutes; only when it is named)",
    "torch_ddp": "torch's own tests of DistributedDataParallel with PBox's hook, and over its process group (minutes; only when it is named)",
    "image": "the appliance's image, built and booted in QEMU (minutes; only when it is named)",
}
NAMED = ["science", "torch_ddp", "image"]  # not by default
MACHINE = ["torch_ddp", "image"]  # want it for themselves
QUICK = ["lint", "unit", "golden", "sim", "chaos"]
# suites that depend on the CPU time that the machine gives them, and of the unit tests those with threads, sockets and clocks
AGAIN = {"func", "chaos", "python", "science"}
AGAIN_UNITS = re.compile("^(unit|sanitize) (client|control|dataplane|guard|port|testps)(_|$)")
REPORT = re.compile(r"ERROR: \w+Sanitizer|runtime error: |SUMMARY: \w+Sanitizer|broken invariant")
FAILED_LINE = re.compile(r"^\s*(?:not ok - .*|FAIL(?:ED)?[: ].*|\d+\. .* - CU_ASSERT.*|AssertionError.*|.*failed: .*)$", re.M)
SECOND_CHANCES = 3
# what is judged there is a speed
ALONE = {"chaos table"}
BUDGET = 60  # CPU seconds of a program; one beyond is named in red, and the lint wants its reason
# Sanitizers see the same at -O1, and their reports need lines only: half of the time to compile of -O2 -g.
SANITIZED = ["-Dwerror=true", "-Doptimization=1", "-Ddebug=false", "-Dc_args=-g1", "-Db_sanitize=address,undefined",
             "-Db_lundef=false"]
# corpora are small: a build without optimisation is done sooner, by more than their replay takes longer
FUZZ_OPTIONS = SANITIZED + ["-Doptimization=0", "-Dfuzzers=true", "-Ddpdk=disabled", "-Dtests=disabled"]


class Result:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.cpu = 0.0  # seconds of all programs and builds
        self.reasons = []
        self.broken = []
        self.unsteady = []
        self.measured = []  # name, seconds, CPU seconds

    def add(self, name, passed, failed, skipped, reasons=()):
        self.passed += passed
        self.failed += failed
        self.skipped += skipped
        self.reasons += [f"{name}: {r}" for r in reasons]
        if failed:
            self.broken.append(name)


class Program:
    """A test program, or (with `then`) a step that brings forth others."""

    def __init__(self, name, cmd, timeout, env=None, cwd=TOP, then=None):
        self.name, self.cmd, self.timeout, self.env, self.cwd = name, cmd, timeout, env, cwd
        self.then = then
        self.again = False
        self.status, self.text, self.seconds, self.cpu = None, "", 0.0, 0.0
        self.log = ""

    def run(self, logs):
        self.log = os.path.join(logs, re.sub(r"[^\w.-]+", "_", self.name) + ".log")
        begin = time.monotonic()
        with open(self.log, "w") as out:
            with STARTS:  # none begins once stop() has it
                child = subprocess.Popen(self.cmd, cwd=self.cwd, stdout=out, stderr=subprocess.STDOUT,
                                         stdin=subprocess.DEVNULL,
                                         env={**os.environ, **(self.env or {})}, start_new_session=True)
                RUNNING.add(child.pid)
            try:
                self.status = self.await_end(child, begin)
            finally:
                RUNNING.discard(child.pid)
            if self.status == 124:
                out.write(f"\nstopped after {self.timeout} s\n")
        with open(self.log, errors="replace") as f:
            self.text = f.read()
        self.seconds = time.monotonic() - begin

    def await_end(self, child, begin):
        """Its exit status; 124 when it had to be ended."""
        for signal_, seconds in ((None, self.timeout), (signal.SIGTERM, 20), (signal.SIGKILL, 60)):
            # first politely, so that a test cleans its namespaces up
            if signal_:
                os.killpg(child.pid, signal_)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                pid, status, used = os.wait4(child.pid, os.WNOHANG)
                if pid:
                    child.returncode = os.waitstatus_to_exitcode(status)
                    self.cpu = used.ru_utime + used.ru_stime
                    return 124 if signal_ else child.returncode
                time.sleep(0.02 if time.monotonic() - begin < 2 else 0.2)
        return 124


RUNNING = set()  # process groups of the programs under way
STARTS = threading.RLock()  # held by who starts one


def in_real_time(program):
    return program.name.split()[0] in AGAIN or bool(AGAIN_UNITS.match(program.name))


def first_failure(text):
    """What a log says of why its program failed, in a line."""
    found = FAILED_LINE.search(text)
    lines = text.strip().splitlines()
    return (found[0] if found else lines[-1] if lines else "nothing was printed").strip()[:160]


def judge(text, status):
    """Numbers of one program: passed, failed, skipped, reasons."""
    reasons = SKIP.findall(text)
    found = SUMMARY.findall(text)
    if found:
        passed, failed, skipped = (int(x or 0) for x in found[-1])
        if status == SKIPPED:
            skipped = skipped or 1
        elif status != 0 and failed == 0:
            failed = 1
        return passed, failed, skipped, reasons
    found = CUNIT.findall(text)
    if found:
        ran, failed = int(found[-1][1]), int(found[-1][3])
        if status != 0 and failed == 0:
            failed = 1
        return ran - failed, failed, 0, reasons
    if status == SKIPPED:
        return 0, 0, 1, reasons or ["it says that it cannot run here"]
    return (1, 0, 0, reasons) if status == 0 else (0, 1, 0, reasons)


RED, NOT_RED = ("\033[31m", "\033[0m") if sys.stdout.isatty() else ("** ", "")


class Pool:
    """Runs programs and says what became of each: up to `jobs` that compute at once, and beside them those that sleep."""

    ALWAYS = 2
    SLEEPERS = 8  # for each that computes
    BETWEEN = 0.5  # seconds from one sleeper to the next: what they begin with is no sleep

    def __init__(self, result, logs, jobs, chances=SECOND_CHANCES, durations=None):
        self.result, self.logs, self.jobs, self.chances = result, logs, jobs, chances
        self.durations = durations or Durations()
        self.queue, self.sleepers, self.alone, self.failed = [], [], [], []
        self.n, self.busy, self.asleep, self.slept = 0, 0, 0, 0.0
        self.begun = -self.BETWEEN
        self.cpus = len(os.sched_getaffinity(0))
        self.changed = threading.Condition()
        self.idle = Idle()
        self.crowd = Crowd(self.cpus)

    def sleeps(self, program):
        return self.jobs > 1 and not program.then and self.durations.sleeps(program.name)

    def add(self, program):
        if program.name in ALONE:
            self.alone.append(program)
            return
        self.n += 1
        # the longest first; steps that others wait for before all
        first = -1e9 if program.then else -self.durations.seconds(program.name)
        heapq.heappush(self.sleepers if self.sleeps(program) else self.queue, (first, self.n, program))

    def report(self, p):
        passed, failed, skipped, reasons = judge(p.text, p.status)
        self.result.cpu += p.cpu
        if not failed:
            self.result.measured.append((p.name, p.seconds, p.cpu))
        if p.then and not failed:
            return  # a step that went well is no test
        again = failed and not p.again and in_real_time(p) and not REPORT.search(p.text)
        if again:
            self.failed.append((p, (passed, failed, skipped, reasons)))
        else:
            self.result.add(p.name, passed, failed, skipped, reasons)
        verdict = "FAIL" if failed else ("skip" if skipped and not passed else "ok")
        print(f"  {verdict:4} {p.name}: {passed} passed, {failed} failed"
              + (f", {skipped} skipped" if skipped else "")
              + f"  ({p.seconds:.1f} s, CPU {p.cpu:.1f} s)" + self.over_budget(p), flush=True)
        if failed:
            print("\n".join("       | " + x for x in p.text.splitlines()[-40:]))
            print(f"       log: {os.path.relpath(p.log, TOP)}", flush=True)

    def over_budget(self, p):
        if p.cpu <= BUDGET or p.then or p.name.endswith(" build"):
            return ""
        return f"  {RED}beyond {BUDGET} CPU seconds{NOT_RED}"

    def sleeper_fits(self):
        """Whether the next sleeper may begin: with it they want no more than half of the CPUs."""
        if not self.sleepers or self.asleep >= self.SLEEPERS * self.jobs or time.monotonic() - self.begun < self.BETWEEN:
            return False
        load = self.durations.load(self.sleepers[0][2].name)
        return self.asleep == 0 or (not self.crowd.is_there() and self.slept + load <= self.cpus / 2 and memory_left())

    def room(self):
        """Whether one more program that computes may begin."""
        return self.busy < min(self.ALWAYS, self.jobs) or (self.busy < self.jobs and self.idle.enough())

    def next(self):
        """The next program when there is room for it; None: nothing is left, and nothing will come."""
        with self.changed:
            while True:
                if not self.queue and not self.sleepers and not self.busy and not self.asleep:
                    self.changed.notify_all()
                    return None
                # steps first: others wait for them
                if self.queue and self.queue[0][2].then and self.room():
                    return self.begin(self.queue)
                if self.sleeper_fits():
                    return self.begin(self.sleepers)
                if self.queue and self.room():
                    return self.begin(self.queue)
                self.changed.wait(0.3)

    def begin(self, queue):
        self.count(queue[0][2], 1)
        if queue is self.sleepers:
            self.begun = time.monotonic()
        return heapq.heappop(queue)[2]

    def count(self, program, n):
        """One more that runs, or (-1) one less."""
        if self.sleeps(program):
            self.asleep += n
            self.slept += n * self.durations.load(program.name)
        else:
            self.busy += n

    def work(self):
        while program := self.next():
            try:
                program.run(self.logs)
            except OSError as e:  # it could not be started
                program.status, program.text = 127, str(e)
            with self.changed:
                self.report(program)
                if program.then and program.status == 0:
                    for p in program.then():
                        self.add(p)
                self.count(program, -1)
                self.changed.notify_all()

    def run(self):
        threads = [threading.Thread(target=self.work, daemon=True)
                   for _ in range(self.jobs if self.jobs == 1 else self.jobs * (1 + self.SLEEPERS))]
        for t in threads:
            t.start()
        for t in threads:
            while t.is_alive():
                t.join(0.5)  # so that the main thread gets its signals
                self.crowd.look()
                self.result.cpu += reap_orphans()
        for program in self.alone:
            program.run(self.logs)
            self.report(program)
        self.alone = []
        self.run_failed_again()

    def run_failed_again(self):
        """Programs of AGAIN that failed, alone; what they do now counts."""
        failed, self.failed = self.failed, []
        if len(failed) > self.chances:
            for p, numbers in failed:
                self.result.add(p.name, *numbers)
            return
        for p, _ in failed:
            first, why = p.log + ".first", first_failure(p.text)
            os.replace(p.log, first)
            print(f"again, alone: {p.name}: {why}", flush=True)
            p.again = True
            p.run(self.logs)
            self.report(p)
            if p.name not in self.result.broken:
                self.result.unsteady.append(f"{p.name}: {why} ({os.path.relpath(first, TOP)})")


def build_command(directory, options=()):
    """What configures and builds a folder, in a shell."""
    setup = " ".join(["meson", "setup", directory, *options])
    return ["sh", "-c", f"[ -e {directory}/build.ninja ] || {setup} || exit; exec ninja -C {directory}"]


def build_targets(suite, directory, options, wanted, then, env=None):
    """Steps that configure a folder and build there what `wanted()` names, a fraction of the whole; then `then()`."""
    def made():
        files = [os.path.relpath(f, os.path.join(TOP, directory)) for f in wanted()]
        return [Program(suite + " build", ["ninja", "-C", directory, *files], 1800, env, then=then)]
    setup = " ".join(["meson", "setup", directory, *options])
    # one that is there is brought up to date: it may lack tests that came since
    again = f"[ ! -e {directory}/build.ninja ] || exec ninja -C {directory} build.ninja"
    return Program(suite + " setup", ["sh", "-c", f"{again}; exec {setup}"], 600, env, then=made)


def build(directory, options=(), env=None):
    p = Program("build " + directory, build_command(directory, options), 3600, env)
    logs = os.path.join(TOP, directory)
    os.makedirs(logs, exist_ok=True)
    p.run(logs)
    if p.status != 0:
        print("\n".join(p.text.splitlines()[-40:]))
        print(f"building {directory} failed: {os.path.relpath(p.log, TOP)}")
        print("0 passed, 1 failed")
        sys.exit(1)
    os.remove(p.log)
    return p.cpu


def introspect(what, directory):
    return json.loads(subprocess.check_output(["meson", "introspect", "--" + what, directory], cwd=TOP, text=True))


def meson_tests(directory):
    for t in introspect("tests", directory):
        suite = t["suite"][0].split(":")[-1] if t["suite"] else "unit"
        yield suite, t["name"], t["cmd"], t["env"], t["timeout"]


def sanitized(name):
    """Whether a unit test runs with sanitizers: a man page is the same with them."""
    return not re.search("(^|_)man(_|$)", name)


def sanitized_files(directory):
    made = {t["id"]: t["filename"] for t in introspect("targets", directory)}
    for t in introspect("tests", directory):
        if t["suite"][0].endswith(":unit") and sanitized(t["name"]):
            for d in t["depends"]:
                yield from made[d]


def fuzz_files(directory):
    for t in introspect("targets", directory):
        if t["name"].startswith("fuzz_"):
            yield from t["filename"]


def scripts(folder, *prefixes):
    directory = os.path.join(TOP, "test", folder)
    if not os.path.isdir(directory):
        return []
    return [os.path.join(directory, f) for f in sorted(os.listdir(directory))
            if f.startswith(prefixes or "") and os.access(os.path.join(directory, f), os.X_OK)
            and os.path.isfile(os.path.join(directory, f))]


def fuzz_programs(directory):
    for folder in sorted(os.listdir(os.path.join(TOP, "test", "fuzz"))):
        corpora = os.path.join(TOP, "test", "fuzz", folder, "corpus")
        if not os.path.isdir(corpora):
            continue
        for target in sorted(os.listdir(corpora)):
            exe = os.path.join(TOP, directory, "test", "fuzz_" + target)
            # its own status for a crash is 77, which here means skipped
            yield Program(f"fuzz {target}", [exe, "-runs=0", "-error_exitcode=1",
                                             os.path.join(corpora, target)], 1800,
                          {"UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"})


def unit_programs(suite, directory, env, patience, left_out=()):
    for s, name, cmd, test_env, timeout in meson_tests(directory):
        if s == ("unit" if suite == "sanitize" else suite) and name not in left_out \
                and (suite != "sanitize" or sanitized(name)):
            yield Program(f"{suite} {name}", cmd, patience * timeout, {**env, **test_env},
                          os.path.join(TOP, directory))


def programs(suite, only=(), directory="build", patience=1, left_out=()):
    """The programs of a suite. `patience` is a factor for their deadlines."""
    env = {"PBOX_BUILD": os.path.join(TOP, directory)}
    # what runs beside others takes longer
    patience *= 2
    if suite == "lint":
        return [Program("lint", [os.path.join(TOP, ".ci", "lint")], 600, env)]
    if suite == "fuzz":
        return [build_targets("fuzz", "build-fuzz", FUZZ_OPTIONS, lambda: fuzz_files("build-fuzz"),
                              lambda: fuzz_programs("build-fuzz"), {"CC": "clang"})]
    if suite == "sanitize":
        return [build_targets("sanitize", "build-asan", SANITIZED, lambda: sanitized_files("build-asan"),
                              lambda: unit_programs("sanitize", "build-asan", {}, 4 * patience))]
    if suite == "golden":
        return [Program("golden frames", ["/usr/bin/python3", "test/golden/check.py"], 240),
                Program("python worker of the specification",
                        ["/usr/bin/python3", "test/spec/test_spec.py"], 600)]
    if suite == "image":
        image = os.path.join(TOP, directory, "image")
        env = {**env, "PBOX_IMAGE": image}
        return [Program("image build", [os.path.join(TOP, "usertools", "pbox-mkimage"), image], 1800)] + [
            Program("image " + os.path.basename(path), [path], 1800, env) for path in scripts("image")]
    if suite == "science":
        return [Program("science " + os.path.basename(path), [path], patience * 900, env) for path in scripts("science/checks")]
    if suite == "torch_ddp":
        return [Program("torch_ddp " + os.path.basename(path), [path], 1800, env) for path in scripts("torch_ddp")]
    if suite == "func":
        return [Program("func " + os.path.basename(path), [path], patience * 900, env)
                for path in scripts("func") if os.path.basename(path) not in left_out
                and (not only or any(x in os.path.basename(path) for x in only))]
    found = list(unit_programs(suite, directory, env, patience, left_out))
    if suite == "chaos":
        found += [Program("chaos " + os.path.basename(path), [path], 1800, env) for path in scripts(suite)]
    return found


def children():
    """Processes below this one, whatever became of their parents: (pid, is a zombie, session) of each."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as f:
                    state, parent, _, session = f.read().rpartition(")")[2].split()[:4]
                parents[int(entry)] = (int(parent), state == "Z", int(session))
            except (FileNotFoundError, ProcessLookupError):
                pass
    found, new = set(), {os.getpid()}
    while new:
        new = {pid for pid, (parent, _, _) in parents.items() if parent in new and pid not in found}
        found |= new
    return [(pid, *parents[pid][1:]) for pid in found]


def reap_orphans():
    """Waits for what outlived the program that started it, each in a session of its own; the CPU seconds of these."""
    cpu = 0.0
    for pid, zombie, session in children():
        with STARTS:
            if zombie and pid not in RUNNING and session != os.getsid(0):
                try:
                    _, _, used = os.wait4(pid, os.WNOHANG)
                    cpu += used.ru_utime + used.ru_stime
                except ChildProcessError:
                    pass
    return cpu


def stop(number, _frame):
    """Ends what runs: for three seconds politely, so that tests clean up; then all that is below this process, for good."""
    STARTS.acquire()
    for pid in list(RUNNING):
        try:
            os.killpg(pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
    end = time.monotonic() + 3
    while time.monotonic() < end and any(not zombie for _, zombie, _ in children()):
        time.sleep(0.05)
    end = time.monotonic() + 1.5
    while time.monotonic() < end and (left := [pid for pid, zombie, _ in children() if not zombie]):
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)
    print(f"ended by signal {number}", flush=True)
    os._exit(128 + number)  # threads wait for nothing more


def alone_in_the_machine():
    """Orphans come to this process; mounts and named network namespaces are seen by it and what it starts, and go with them.

    Without the right to do the second, a stopped run may leave namespaces.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    new_namespace, recursive, private = 0x20000, 0x4000, 1 << 18  # CLONE_NEWNS, MS_REC, MS_PRIVATE
    if os.geteuid() == 0 and libc.unshare(new_namespace) == 0:
        libc.mount(b"none", b"/", None, recursive | private, None)
        os.makedirs("/run/netns", exist_ok=True)
        libc.mount(b"tmpfs", b"/run/netns", b"tmpfs", 0, b"mode=755")


def root_is_mounted():
    """A folder that was entered by chroot(1) alone is no mount point."""
    with open("/proc/self/mountinfo", encoding="ascii") as f:
        return any(line.split()[4] == "/" for line in f)


def main():
    p = argparse.ArgumentParser(
        prog="test/run", description="Install what is missing, build, run test suites.",
        epilog="changed: the tests that the change of this branch can affect, the nearest first. suites: " + "; ".join(f"{k} ({v})" for k, v in SUITES.items()))
    p.add_argument("suite", nargs="*", help="default: all but " + " ".join(NAMED))
    p.add_argument("--list", action="store_true", help="list the suites and stop")
    p.add_argument("--quick", action="store_true", help="only " + " ".join(QUICK))
    p.add_argument("--only", action="append", default=[],
                   help="func: only programs whose name contains this")
    p.add_argument("--first-time", action="store_true",
                   help="a program that fails beside others does not run again alone")
    p.add_argument("--write-durations", action="store_true",
                   help="write how long programs took into test/durations.json, by which later runs are planned; on a quiet machine")
    p.add_argument("-j", "--jobs", type=int, default=3 * len(os.sched_getaffinity(0)),
                   help="programs that compute side by side at most, beside those that only wait (default: %(default)s)")
    p.add_argument("--since", metavar="REVISION", help="changed: against this one (default: where this branch left main; on main the last commit)")
    p.add_argument("--within", type=float, default=240, metavar="SECONDS", help="changed: what fits into so many (default: %(default)s)")
    args = p.parse_args()
    if args.list:
        for k, v in SUITES.items():
            print(f"{k:9} {v}")
        return 0
    for s in args.suite:
        if s not in SUITES and args.suite != ["changed"]:
            p.error(f"no suite '{s}'; there are: {' '.join(SUITES)}, and 'changed' by itself")
    if args.jobs < 1:
        p.error(f"--jobs {args.jobs}: at least 1")
    for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(s, stop)
    suites = args.suite or (QUICK if args.quick else [s for s in SUITES if s not in NAMED])
    if {"func", "chaos", "science", "torch_ddp", "changed"} & set(suites) and not root_is_mounted():
        print("test/run: the root of this chroot is no mount point, so 'ip netns exec' does not work in it. Outside of it: "
              "mount --bind ROOT ROOT, mount proc, sys and dev below it, and then chroot ROOT", file=sys.stderr)
        return 2
    alone_in_the_machine()
    logs = os.path.join(TOP, "build", "test-logs")
    begin = time.monotonic()
    print("building", flush=True)
    result = Result()
    result.cpu += build("build")
    print(f"built in {time.monotonic() - begin:.0f} s", flush=True)
    os.makedirs(logs, exist_ok=True)
    chances = 0 if args.first_time else SECOND_CHANCES
    if suites == ["changed"]:
        run_changed(args, Pool(result, logs, args.jobs, chances), args.within - (time.monotonic() - begin))
    else:
        # QEMU wants the machine for itself
        for together in ([s for s in suites if s not in MACHINE], [s for s in suites if s in MACHINE]):
            pool = Pool(result, logs, 1 if together and together[0] in MACHINE else args.jobs, chances)
            for suite in together:
                print(f"{suite}: {SUITES[suite]}", flush=True)
                for program in programs(suite, args.only):
                    pool.add(program)
            pool.run()
    return tell(result, args, time.monotonic() - begin)


def run_changed(args, pool, seconds):
    """Those tests that a change can affect, as many as fit; what is left out is named. Of suites that need a build of their own, none."""
    files = changed.files_changed(args.since)
    every = [p for suite in SUITES if suite not in NAMED and suite not in ("fuzz", "sanitize") for p in programs(suite)]
    run, out = changed.choose(every, files, pool.durations, max(seconds, 60), pool.cpus)
    print(f"{len(files)} changed files, {len(run)} programs in about {seconds:.0f} s:", flush=True)
    for p in run:
        pool.add(p)
    pool.run()
    print(f"not run: fuzz, sanitize, {', '.join(NAMED)}; of what the change can affect, {len(out)} programs:")
    for suite in SUITES:
        if names := [p.name.partition(" ")[2] or p.name for p in out if p.name.split()[0] == suite]:
            print(f"  {suite}: {' '.join(names)}")


def tell(result, args, seconds):
    """The end of a run; its exit status."""
    print()
    for reason in result.reasons:
        print(f"skipped: {reason}")
    for name in result.broken:
        print(f"failed: {name}")
    durations = Durations()
    grown = ", ".join(f"{name} {by:+.0f}" for name, by in durations.grown(result.measured))
    if args.write_durations:
        # after a whole run, what is no more there goes
        whole = not args.suite and not args.quick and not args.only
        named = {name for name in durations.of if name.split()[0] in NAMED}
        durations.write(result.measured, named | {name for name, _, _ in result.measured} | set(result.broken) if whole else None)
        print(f"written: {os.path.relpath(DURATIONS, TOP)}")
    if result.unsteady:
        print(f"unsteady, passed alone after a failure beside others: {'; '.join(result.unsteady)}")
    print(f"{seconds:.0f} s, {result.cpu:.0f} CPU seconds" + (f", grown most: {grown}" if grown else "") + "; logs in build/test-logs")
    line = f"{result.passed} passed, {result.failed} failed"
    if result.skipped:
        line += f", {result.skipped} skipped"
    print(line)
    return 1 if result.failed or result.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
