# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""What people mistype: options of a session, of loader(), datasets that cannot be drawn from by number."""

import unittest

from pbox.client import Client
from pbox.errors import PBoxInvalid

try:
    import torch
    from torch.utils.data import IterableDataset, TensorDataset

    from pbox.torch import _options, _stale
except ImportError:
    torch = None


@unittest.skipIf(torch is None, "no torch")
class Options(unittest.TestCase):
    def refuses(self, text, call, *arguments):
        with self.assertRaisesRegex(PBoxInvalid, text):
            call(*arguments)

    def test_option_of_a_session(self):
        _options.check({"timeout": 5, "slots": 4}, Client.__init__, "it")
        self.refuses("no option time_out=: is it timeout=", _options.check, {"time_out": 5}, Client.__init__, "it")
        self.refuses("no option qqqq=. There are box, job, ", _options.check, {"qqqq": 5}, Client.__init__, "it")

    def test_option_of_a_loader(self):
        data = TensorDataset(torch.zeros(4))
        _options.check_loader(data, {"num_workers": 0, "pin_memory": False})
        self.refuses("is it num_workers=", _options.check_loader, data, {"num_worker": 2})
        self.refuses("num_workers", _options.check_loader, data, {"num_workers": -1})
        self.refuses("persistent_workers", _options.check_loader, data, {"persistent_workers": True})

    def test_dataset(self):
        class Stream(IterableDataset):
            def __iter__(self):
                return iter(range(3))

        _options.check_dataset([1, 2])
        self.refuses("Stream, which has no length", _options.check_dataset, Stream())
        self.refuses("generator", _options.check_dataset, (x for x in ()))

    def test_ahead(self):
        self.assertEqual(_stale.quarters_of(0.5), 2)
        self.refuses("ahead is True", _stale.quarters_of, True)
        self.refuses("ahead is 'half': needed is a number", _stale.quarters_of, "half")


if __name__ == "__main__":
    unittest.main()
