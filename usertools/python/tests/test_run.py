# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Which run is this? What launchers set, and what workers agree on."""

import os
import threading
import unittest
from unittest import mock

import torch.distributed as dist

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
    def agree(self, store, n):
        return workers.run(n, lambda _: _run._from_store(store, "key", n))

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
        store, early = dist.HashStore(), []
        thread = threading.Thread(
            target=lambda: early.append(_run._from_store(store, "key", 2)))
        thread.start()
        thread.join(0.5)
        self.assertEqual(early, [])  # the other may be one of the run before, still
        late = _run._from_store(store, "key", 2)
        thread.join(60)
        self.assertEqual(early, [late])


if __name__ == "__main__":
    unittest.main()
