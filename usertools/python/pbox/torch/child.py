# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""What `python3 -m pbox.run` starts as each rank: `-m pbox.torch.child [-m] SCRIPT ARGUMENT...` runs the script as Python would, and PBox
reduces the gradients of its DistributedDataParallel models."""

import sys

from . import _carried, _script


def main() -> None:
    _carried.install()
    try:
        _script.run(sys.argv[1:])
    finally:
        _carried.report()


if __name__ == "__main__":
    main()
