# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Check training on the GPUs of this machine with a box: bits against CPU tensors, and the time of a step.

    python3 -m pbox.gpucheck --box 10.0.0.1 --job test --ranks 4

Starts the ranks itself, on the GPUs of this machine in turn; under torchrun each process is one of torchrun's ranks. The job must be
one of so many workers.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any, List, Optional

_GRACE = 30.0  # seconds for the other ranks after one has failed


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="gpucheck", description="Check training on GPUs with a box: hook, optimisers and all_reduce must give the bits that they give "
        "with CPU tensors; then measure steps of ResNet-50 and GPT-2 small beside DistributedDataParallel over Gloo.",
        epilog="Exit status: 0 all is as it should be, 1 a check has failed, 2 wrong usage, no CUDA, or no box.")
    p.add_argument("--box", default=os.environ.get("PBOX_BOX"), help="address of the box (default: $PBOX_BOX)")
    p.add_argument("--job", default=os.environ.get("PBOX_JOB", "gpucheck"), help="job of so many workers (default: $PBOX_JOB, or gpucheck)")
    p.add_argument("--secret", default=os.environ.get("PBOX_SECRET", ""), help="the job's (default: $PBOX_SECRET)")
    p.add_argument("--ranks", type=int, help="workers (default: one for each GPU, but two at least)")
    p.add_argument("--stand-in", action="store_true", help="no GPU: check the same with a device that is made of threads")
    p.add_argument("--no-measure", action="store_true", help="check bits only")
    p.add_argument("--steps", type=int, default=10, help="steps that are measured (default: 10)")
    p.add_argument("--timeout", type=float, default=120.0, help="seconds after which a wait for the others is an error (default: 120)")
    p.add_argument("--forgets", default="", help=argparse.SUPPRESS)  # of the stand-in device, to see that checks can fail
    p.add_argument("--small", action="store_true", help="measure small models: to try the measurement itself")
    return p


def _say(text: str) -> None:
    print(text, flush=True)


def _needs(args: argparse.Namespace) -> Optional[str]:
    """What is missing, in a sentence."""
    try:
        import torch
    except ImportError:
        return "there is no torch for this Python: install it (apt install python3-torch, or pip install torch)"
    if not args.box:
        return "no box: name it by --box ADDRESS, or set PBOX_BOX"
    if not args.stand_in and not torch.cuda.is_available():
        return (f"there is no CUDA device for torch {torch.__version__} here. --stand-in makes the same checks with a device that is made of "
                "threads; it measures nothing")
    return None


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _start_ranks(ranks: int) -> int:
    """Start this program as each rank, and wait. Its exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the ranks end with it
    top = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    env = dict(os.environ, WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(_free_port()),
               PYTHONPATH=os.pathsep.join([top] + os.environ.get("PYTHONPATH", "").split(os.pathsep)).rstrip(os.pathsep))
    env.setdefault("GLOO_SOCKET_IFNAME", "lo")
    env.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // ranks)))
    children = [subprocess.Popen([sys.executable, "-m", "pbox.gpucheck", *sys.argv[1:]], env=dict(env, RANK=str(r))) for r in range(ranks)]
    end = None
    try:
        while any(c.poll() is None for c in children):
            if end is None and any(c.poll() for c in children):
                end = time.monotonic() + _GRACE
            if end is not None and time.monotonic() > end:
                break
            time.sleep(0.1)
    finally:
        for c in children:
            if c.poll() is None:
                c.kill()
                c.wait()
    return max(c.returncode if c.returncode >= 0 else 1 for c in children)


def _verify(place: Any, client: Any) -> int:
    """All checks; how many have failed."""
    import torch.distributed as dist
    from .torch import _gpu_checks
    failed = 0
    for name in _gpu_checks.CHECKS:
        said: List[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(said, _gpu_checks.verify(name, place, client))
        wrong = [s for s in said if s]
        failed += bool(wrong)
        if dist.get_rank() == 0:
            _say(f"{'not ok' if wrong else 'ok'} - {name}" + "".join(f"\n    {w}" for w in wrong))
    return failed


def _rank(args: argparse.Namespace) -> int:
    import warnings

    import torch
    import torch.distributed as dist

    from . import Client, library_version
    from .torch import _gpu_checks, _gpu_measure
    warnings.simplefilter("ignore")
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if args.stand_in:
        torch.set_num_threads(1)
        place, what = _gpu_checks.StandIn(seconds=0.001, forgets=args.forgets), "the stand-in device"
    else:
        index = int(os.environ.get("LOCAL_RANK", rank)) % torch.cuda.device_count()
        torch.cuda.set_device(index)
        place, what = _gpu_checks.Cuda(index), torch.cuda.get_device_name(index)
    dist.init_process_group("gloo")
    client = Client(args.box, args.job, args.secret, rank, ranks, timeout=args.timeout, join_timeout=args.timeout)
    if rank == 0:
        _say(f"# {ranks} ranks, {what}, torch {torch.__version__}, PBox {library_version()}")
    failed = _verify(place, client)
    if not args.no_measure and (args.small or not args.stand_in) and not failed:
        for model in _gpu_measure.MODELS:
            lines = _gpu_measure.measure(model, place, client, not args.small, args.steps)
            if rank == 0:
                _say("\n".join(lines))
    elif rank == 0 and not args.no_measure:
        _say("# not measured: " + ("a check has failed" if failed else "the stand-in device has no speed of its own"))
    dist.barrier()
    client.close()
    return int(failed > 0)


def main() -> int:
    args = _parser().parse_args()
    missing = _needs(args)
    if missing:
        print(f"gpucheck: {missing}", file=sys.stderr)
        return 2
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        import torch
        return _start_ranks(args.ranks or max(2, torch.cuda.device_count()))
    try:
        status = _rank(args)
    except Exception as e:
        print(f"gpucheck: rank {os.environ['RANK']}: {type(e).__name__}: {e}", file=sys.stderr, flush=True)
        status = 1
    sys.stdout.flush()
    os._exit(status)  # Gloo's threads may outlive everything else


if __name__ == "__main__":
    sys.exit(main())
