# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Runs a script as `python3 SCRIPT ARGUMENT...` or `python3 -m MODULE ARGUMENT...` would, in this process."""

import importlib.machinery
import io
import os
import runpy
import sys
import types
import zipfile
from typing import List


def run(argv: List[str]) -> None:
    """argv: [-m] SCRIPT ARGUMENT...; sys.path[0] is what `python3 -m` makes it, the working directory."""
    if argv[:1] == ["-m"]:
        sys.argv = argv[1:]
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        return
    sys.argv, script = argv, argv[0]
    first = not getattr(sys.flags, "safe_path", False)  # is there a folder of ours in sys.path?
    if os.path.isdir(script) or script.endswith(".pyc") or zipfile.is_zipfile(script):
        if first:
            del sys.path[0]
        runpy.run_path(script, run_name="__main__")
        return
    path = os.path.abspath(script)
    if first:
        sys.path[0] = os.path.dirname(os.path.realpath(script))
    try:
        with io.open_code(path) as f:
            code = compile(f.read(), path, "exec")
    except OSError as e:
        sys.exit(f"{sys.executable}: can't open file '{path}': {e}")
    # a module that stays: classes of the script are looked for in __main__ by pickle, also at exit; and without __spec__ processes that
    # multiprocessing spawns import it by its path
    module = types.ModuleType("__main__")
    vars(module).update(__file__=path, __builtins__=__builtins__, __cached__=None,
                        __loader__=importlib.machinery.SourceFileLoader("__main__", path))
    sys.modules["__main__"] = module
    exec(code, vars(module))  # pylint: disable=exec-used
