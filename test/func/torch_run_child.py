# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A rank as `python3 -m pbox.run` starts it, but that it may be a fork of a process that has imported torch."""

from pbox.torch import child

child.main()
