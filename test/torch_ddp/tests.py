# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""torch's own tests of DistributedDataParallel (torch.testing, as installed), with PBox's hook in place of its
all-reduce, or over the process group "pbox"; for ddp and group. One that fails runs again with torch's allreduce_hook, or over Gloo: where that
fails as well, it is no matter of ours. Prints a line for each test, with the reason where it fails.

    tests.py [NAME...]     those whose name has the text in it; default: all
"""

import argparse
import inspect
import logging
import os
import re
import signal
import sys
import tempfile
import time
import unittest

RANKS = 3  # of which the uneven inputs make their 252 cases
os.environ.update(BACKEND="gloo", WORLD_SIZE=str(RANKS), TEMP_DIR="/tmp")

import torch  # noqa: E402
import torch.multiprocessing  # noqa: E402

import on_cpus  # noqa: E402

on_cpus.prepare()

from torch.testing._internal.distributed import distributed_test as theirs  # noqa: E402

on_cpus.install(RANKS)
torch.set_num_threads(1)

import hooks  # noqa: E402

# why a test may fail with PBox's hook that passes with torch's
EVENTS = "it counts the all-reduces of Gloo, and the box makes them"
EXPECTED = {name: ("Scalars are not equal", EVENTS) for name in (
    "test_ddp_profiling_autograd_profiler", "test_ddp_profiling_torch_profiler")}
OTHER = {"pbox": "allreduce_hook", "group": "gloo"}  # what shows whether a failure is a matter of ours
UNEVEN = "test_ddp_uneven_inputs", 252  # its cases: 21 models and settings, each with 12 numbers of steps of the ranks
LOGS = os.environ.get("TORCH_DDP_LOGS") or tempfile.mkdtemp()  # what the processes of a test print
SECONDS = {"test_ddp_uneven_inputs": 1500}
USES_DDP = re.compile(r"DistributedDataParallel\(|\bDDP\(")
logging.disable(logging.CRITICAL)
theirs.HAS_TORCHVISION = False  # its models on images of 1000 x 1000 take hours on CPUs
theirs.get_timeout = lambda test_id: SECONDS.get(test_id.split(".")[-1], 90)
theirs.CUSTOM_PG_TIMEOUT["test_ddp_uneven_inputs"] = 600


def note(name, what):
    """A line of a process of a test, for this one."""
    with open(f"{LOGS}/{name}", "a") as log:
        log.write(f"{what}\n")


def noted(name):
    try:
        with open(f"{LOGS}/{name}") as log:
            return log.read().splitlines()
    except FileNotFoundError:
        return []


class Tests(theirs.TestDistBackend, theirs.DistributedTest._DistTestBase):
    kind = "pbox"

    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)

    @classmethod
    def _run(cls, rank, test_name, file_name, pipe):
        with open(f"{LOGS}/{test_name}.{cls.kind}", "a") as log:
            for fd in (1, 2):
                os.dup2(log.fileno(), fd)
        logging.disable(logging.NOTSET)  # some look for records
        hooks.install(cls.kind, timeout=60)
        try:
            super()._run(rank, test_name, file_name, pipe)
        finally:
            hooks.close()
            note("reduced", hooks.count())

    def _run_uneven_inputs_test(self, test_case, iteration_mapping, find_unused_params):
        if test_case.name == "large_conv_model":
            test_case = test_case._replace(inp=test_case.inp[:, :, :16, :16])
        super()._run_uneven_inputs_test(test_case, iteration_mapping, find_unused_params)
        note(f"cases.{self.kind}", f"{self.rank} {test_case.name} {iteration_mapping}")


def uses_ddp(name, seen=()):
    """Does the test, or what it calls of its class, make such a model?"""
    fn = inspect.unwrap(getattr(theirs.DistributedTest._DistTestBase, name))
    try:
        source = inspect.getsource(fn)
    except (OSError, TypeError):
        return False
    if USES_DDP.search(source):
        return True
    called = set(re.findall(r"self\.(\w+)\(", source)) - set(seen)
    return any(uses_ddp(c, (*seen, name, *called)) for c in called if inspect.isfunction(getattr(theirs.DistributedTest._DistTestBase, c, None)))


def reason(text):
    """The line of the error that says most."""
    lines = [x.strip() for x in text.splitlines() if re.match(r"\s*[\w.]*(Error|Exception|PBox\w+|Skip\w*)\b.*:", x)]
    lines = [x for x in lines if not x.startswith("RuntimeError: Process ")] or [x for x in text.splitlines() if x.strip()][-1:]
    return lines[0][:200] if lines else "no reason"


def run(name, kind):
    """("ok" | "skip" | "fail", why)"""
    Tests.kind = kind
    result = unittest.TestResult()
    Tests(name).run(result)
    for test, text in result.errors + result.failures:
        return "fail", reason(text)
    if result.skipped:
        return "skip", result.skipped[0][1]
    return "ok", ""


def main():
    p = argparse.ArgumentParser()
    p.add_argument("names", nargs="*")
    p.add_argument("--list", action="store_true")
    p.add_argument("--hook", choices=(*OTHER, *OTHER.values()), default="pbox")
    args = p.parse_args()
    names = [n for n in sorted(dir(theirs.DistributedTest._DistTestBase)) if n.startswith("test_") and uses_ddp(n)
             and (not args.names or any(x in n for x in args.names))]
    if args.list:
        print("\n".join(names))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for name in names:
        began = time.monotonic()
        verdict, why = run(name, args.hook)
        if verdict == "fail" and args.hook in OTHER:
            other, other_why = run(name, OTHER[args.hook])
            if other != "ok":
                verdict, why = "skip", f"torch's own {OTHER[args.hook]} does not pass either: {other_why}"
            elif name in EXPECTED and re.search(EXPECTED[name][0], why):
                verdict, why = "skip", f"{EXPECTED[name][1]}: {why}"
        if name == UNEVEN[0] and verdict == "ok" and len(noted(f"cases.{args.hook}")) != RANKS * UNEVEN[1]:
            verdict, why = "fail", f"{len(noted(f'cases.{args.hook}'))} cases in {RANKS} ranks, and not {UNEVEN[1]} in each"
        word, count = {"ok": ("ok", "passed"), "skip": ("skip", "skipped"), "fail": ("not ok", "failed")}[verdict]
        counts[count] += 1
        print(f"{word} - {name}" + (f": {why}" if why else "") + f"  ({time.monotonic() - began:.1f} s)", flush=True)
    reduced = list(map(int, noted("reduced")))
    print(f"the box has reduced {sum(reduced)} buckets, for {sum(map(bool, reduced))} processes")
    print(", ".join(f"{n} {what}" for what, n in counts.items()))
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
