# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""PBox: gradients are summed, and optimisers run, on a parameter-server appliance.

:mod:`pbox.client` is the worker's session (numpy and torch are optional there);
:mod:`pbox.torch` connects it to PyTorch: a communication hook for DistributedDataParallel and
optimisers that run on the box.
"""

from .client import ANY_ROUND, Client, Operation, Stats, Table, Tensor, library_version
from .errors import (
    PBoxClosed, PBoxDeadline, PBoxError, PBoxInvalid, PBoxLost, PBoxMemoryError, PBoxMismatch,
    PBoxMtuError, PBoxNoJob, PBoxRefused, PBoxRunEnded, PBoxRunning, PBoxSecretError,
    PBoxSystemError, PBoxUnreachable, PBoxVersionError)

__version__ = "0.1.0"

__all__ = [
    "ANY_ROUND", "Client", "Operation", "Stats", "Table", "Tensor", "library_version",
    "PBoxClosed", "PBoxDeadline", "PBoxError", "PBoxInvalid", "PBoxLost", "PBoxMemoryError",
    "PBoxMismatch", "PBoxMtuError", "PBoxNoJob", "PBoxRefused", "PBoxRunEnded", "PBoxRunning",
    "PBoxSecretError", "PBoxSystemError", "PBoxUnreachable", "PBoxVersionError",
]
