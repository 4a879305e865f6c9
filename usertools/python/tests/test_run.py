# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Which run is this? What launchers set, and what workers agree on."""

import os
import threading
import time
import unittest
from unittest import mock

import torch.distributed as dist

import pbox
from pbox.torch import _run
from tests import workers

TORCHRUN = {"TORCHELASTIC_RUN_ID": "7", "TORCHELASTIC_RESTART_COUNT": "2", "RANK": "1",
            "WORLD_SIZE": "4", "MASTER_ADDR": "gpu0", "MASTER_PORT": "4711"}
SLURM = {"SLURM_JOB_ID": "99", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_NTASKS": "4"}


def ask(env, job="j", rank=1, world=4):
    """As a process that has just begun."""
    with mock.patch.dict(os.environ, env, clear=True), mock.patch.object(_run, "_counts", {}):
        return _run.identity(job, rank, world)


class Launchers(unittest.TestCase):
    def test_none(self):
        self.assertIsNone(ask({}))
        self.assertIsNone(ask({"RANK": "1", "WORLD_SIZE": "4"}))
        self.assertIsNone(ask({"PBOX_RUN": "mine"}))  # the client's
        self.assertIsNone(ask(dict(TORCHRUN, PBOX_RUN="")))

    def test_said(self):
        """It stays as it is when the launcher starts all again: both count."""
        said = [ask(dict(TORCHRUN, PBOX_RUN=run, TORCHELASTIC_RESTART_COUNT=count))
                for run in "ab" for count in "01"]
        self.assertEqual(len(set(said)), 4)

    def test_several_hosts(self):
        """The count of restarts is each agent's own; the port is the rendezvous's."""
        hosts = dict(TORCHRUN, GROUP_WORLD_SIZE="2")
        self.assertEqual(ask(hosts), ask(dict(hosts, TORCHELASTIC_RESTART_COUNT="3")))
        self.assertNotEqual(ask(hosts), ask(dict(hosts, MASTER_PORT="4712")))

    def test_each_start_another(self):
        starts = [TORCHRUN, dict(TORCHRUN, TORCHELASTIC_RESTART_COUNT="3"),
                  dict(TORCHRUN, MASTER_PORT="4712"), dict(TORCHRUN, TORCHELASTIC_RUN_ID="8"),
                  SLURM, dict(SLURM, SLURM_STEP_ID="1"), dict(SLURM, SLURM_RESTART_COUNT="1")]
        said = [ask(s) for s in starts]
        self.assertEqual(len(set(said)), len(starts))
        self.assertEqual(said, [ask(s) for s in starts])
        others = [dict(s, RANK="2", SLURM_PROCID="2") for s in starts]
        self.assertEqual(said, [ask(s, rank=2) for s in others])
        self.assertEqual(len({ask(s, job=j) for s in starts for j in "jk"}), 2 * len(starts))

    def test_no_port(self):
        """Not that of a store: a word of the identity as any other."""
        for port in "\N{SUPERSCRIPT TWO}", "65536", "-1", "":
            said = ask(dict(TORCHRUN, TORCHELASTIC_USE_AGENT_STORE="True", MASTER_PORT=port))
            self.assertIn("torchrun 7 2", said)

    def test_not_of_this_process(self):
        """Inside of another launcher's: who says another rank was not started by it."""
        self.assertIsNone(ask(TORCHRUN, rank=0))
        self.assertIsNone(ask(SLURM, world=8))

    def test_sessions_of_a_process(self):
        with mock.patch.dict(os.environ, TORCHRUN, clear=True), \
                mock.patch.object(_run, "_counts", {}):
            self.assertNotEqual(_run.identity("j", 1, 4), _run.identity("j", 1, 4))


class Stores(unittest.TestCase):
    def meet(self, store, rank, world):
        return _run._from_store(store, "key", rank, world, "the store")

    def agree(self, store, n):
        return workers.run(n, lambda rank: self.meet(store, rank, n))

    def early(self, store, *ranks, n):
        """Processes that wait; what they get comes to the list."""
        got = []
        threads = [threading.Thread(target=lambda r=r: got.append(self.meet(store, r, n)), daemon=True) for r in ranks]
        for t in threads:
            t.start()
            t.join(0.05)
        return threads, got

    def test_all_the_same(self):
        store = dist.HashStore()
        first = self.agree(store, 3)
        self.assertEqual(len(set(first)), 1)
        again = self.agree(store, 3)  # a store that was there before
        self.assertEqual(len(set(again)), 1)
        fewer = self.agree(store, 2)
        self.assertEqual(len(set(fewer)), 1)
        self.assertEqual(len({first[0], again[0], fewer[0]}), 3)

    def test_when_all_are_there(self):
        for first in (0, 1):
            store = dist.HashStore()
            (thread,), early = self.early(store, first, n=2)
            thread.join(0.3)
            self.assertEqual(early, [])  # the other may be one of the run before, still
            late = self.meet(store, 1 - first, 2)
            thread.join(60)
            self.assertEqual(early, [late])

    def test_starts_that_were_cut_off(self):
        """However far an earlier start has come, the next one agrees on an identity of its own."""
        for ranks in ((0,), (1,), (2,), (0, 1), (1, 2), (2, 0), (0, 1, 2)):
            store, seen = dist.HashStore(), set()
            for _ in range(3):
                for r in ranks:  # came, has maybe offered or taken, and is ended
                    m = _run._Meeting(store, "key", r, 3)
                    m._follow() if r else m._offer()
                began = time.monotonic()
                ids = set(self.agree(store, 3))
                self.assertLess(time.monotonic() - began, 10)
                self.assertEqual(len(ids), 1)
                seen |= ids
            self.assertEqual(len(seen), 3)

    def test_one_that_comes_again(self):
        """While the others wait: they go on with the process that came last."""
        for again in (0, 1):
            store = dist.HashStore()
            lost = _run._Meeting(store, "key", again, 3)
            threads, early = self.early(store, 1 - again, n=3)
            lost._follow() if again else lost._offer()
            more, late = self.early(store, 2, again, n=3)
            for t in threads + more:
                t.join(60)
            self.assertEqual(len({*early, *late}), 1)
            self.assertEqual(len(early + late), 3)

    def test_agents_count_on_their_own(self):
        store = dist.HashStore()
        env = dict(TORCHRUN, TORCHELASTIC_USE_AGENT_STORE="True", WORLD_SIZE="2", GROUP_WORLD_SIZE="2")
        with mock.patch.object(_run.dist, "TCPStore", lambda *_: store), mock.patch.object(_run, "_next", lambda _: 0):
            both = []
            for restarts in ("0", "3"):
                with mock.patch.dict(os.environ, dict(env, TORCHELASTIC_RESTART_COUNT=restarts, RANK=str(len(both))), clear=True):
                    rank = len(both)
                    both.append(threading.Thread(target=lambda r=rank: got.append(_run.identity("j", r, 2))))
                    got = [] if rank == 0 else got
                    both[-1].start()
                    both[-1].join(0.2)  # it reads the environment
            for t in both:
                t.join(60)
        self.assertEqual((len(got), len(set(got))), (2, 1))

    def test_sentences(self):
        with mock.patch.object(_run, "_STORE_SECONDS", 0.2), mock.patch.object(_run, "_TELL_SECONDS", 0.05):
            for rank, came, said in ((0, (), "worker 0 of 3 has asked the store .* missing is workers 1, 2: start"),
                                     (1, (2,), "missing is worker 0: start"),
                                     (1, (0, 2), "missing is worker 0, or it has begun without this process: .*alone"),
                                     (0, (1, 2), "missing is one of those that came last")):
                store = dist.HashStore()
                for r in came:
                    _run._Meeting(store, "key", r, 3)
                with self.assertLogs("pbox") as log, self.assertRaisesRegex(pbox.PBoxDeadline, said):
                    self.meet(store, rank, 3)
                self.assertRegex(log.output[0], said)

    def test_store_that_is_gone(self):
        with self.assertRaisesRegex(pbox.PBoxUnreachable, "the store does not answer"):
            class Gone:
                def add(self, *_):
                    raise RuntimeError("Connection reset by peer")
            self.meet(Gone(), 0, 2)


if __name__ == "__main__":
    unittest.main()
