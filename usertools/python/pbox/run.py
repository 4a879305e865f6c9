# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""torchrun, and PBox reduces the gradients of the script's DistributedDataParallel models. The script stays as it is.

usage: python3 -m pbox.run [options of torchrun] train.py [its arguments]

PBOX_BOX, PBOX_JOB and PBOX_SECRET of the environment name the box, the job and its secret. When the script ends rank 0 says what the box
has carried, and what it has not and why.
"""

import os
import sys
from typing import Any, List, Optional

from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing import Std
from torch.distributed.elastic.multiprocessing.errors import record

from . import _lib

CHILD = "pbox.torch.child"


def _say(text: str) -> None:
    print(f"pbox.run: {text}", file=sys.stderr)


def through_child(args: Any) -> bool:
    """Put the child before the script. False: it cannot be."""
    if args.no_python or getattr(args, "run_path", False):
        return False
    before = ["-m"] if args.module else []
    args.training_script_args = before + [args.training_script, *args.training_script_args]
    args.module, args.training_script = True, CHILD
    return True


def _mend_torch() -> None:
    """torch 1.13 with Python 3.11, as in Debian 12: torchrun finds no member of value 0, its own default, and does not start."""
    if Std.from_str("0") is None:
        found = Std.from_str
        setattr(Std, "from_str", lambda text: Std.NONE if text == "0" else found(text))


def main(argv: Optional[List[str]] = None) -> int:
    parser = torchrun.get_args_parser()
    parser.prog = "python3 -m pbox.run"
    parser.description = (__doc__ or "").split("\n\n", maxsplit=1)[0]
    args = parser.parse_args(argv)
    for name, what in ("PBOX_BOX", "the address of the box"), ("PBOX_JOB", "the name of the job"):
        if not os.environ.get(name):
            _say(f"{name} is not set: export it as {what}, and PBOX_SECRET as the job's secret; or take torchrun to train without a box")
            return 2
    try:
        _lib.get()
    except ImportError as e:
        _say(str(e))
        return 2
    if not through_child(args):
        _say("with --no_python or --run_path PBox carries nothing: it comes into the script through Python's -m. The script trains as with torchrun")
    _mend_torch()
    torchrun.run(args)
    return 0


if __name__ == "__main__":
    sys.exit(record(main)())
