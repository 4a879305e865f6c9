# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""A worker of the run_identity test. RANK, WORLD_SIZE, PBOX_BOX and PBOX_SECRET say who and where.

It prints `joined`, `next N` (its first round), `round N VALUE` (of all elements of the result), and
at its end `done` with a digest of what it has, or `error CLASS TEXT` with status 3.

--rounds N    0: until the file --stop is there; rank 0 looks, and says it to the others in the results
--alone V     then rank 0 alone pushes V to one more round, and all say `alone` and wait to be killed
--momentum    an optimiser on the box, of which the digest is
"""

import argparse
import array
import hashlib
import os
import sys
import time

import pbox

RANK = int(os.environ["RANK"])
ELEMENTS = 3000


def say(*what):
    print(*what, flush=True)


def alone(table, value):
    if RANK == 0:
        operation = table.pushpull([array.array("f", [value] * ELEMENTS)])
        while "1 of" not in table.client.why():
            time.sleep(0.02)
        say("alone", operation.done)
    else:
        say("alone")
    time.sleep(3600)


def sums(args, client):
    table = client.declare([("w", ELEMENTS)], op="sum", first_round=args.first_round,
                           timeout=args.declare_timeout)
    say("next", table.next_round)
    done, stop = 0, 0.0
    while not stop and (args.rounds == 0 or done < args.rounds):
        x = array.array("f", [args.value] * ELEMENTS)
        x[0] = float(RANK == 0 and args.stop != "" and os.path.exists(args.stop))
        table.run([x])
        stop = x[0]
        values = set(x[1:])
        say("round", table.next_round - 1, *sorted(values))
        done += 1
        time.sleep(args.pause)
    if args.alone:
        alone(table, args.alone)
    return b""


def momentum(args, client):
    table = client.declare([("w", ELEMENTS)], mode="optimiser", optimiser="momentum", op="mean",
                           first_round=args.first_round, timeout=args.declare_timeout)
    say("next", table.next_round)
    table.set_hyper(lr=0.1, momentum=0.9)
    x = array.array("f", [0.001 * i for i in range(ELEMENTS)])
    if RANK == 0:
        table.init([x]).wait()
    table.pull([x]).wait()
    for step in range(args.rounds):
        # of the parameters, so that what is lost shows to the end
        g = array.array("f", [0.3 * v + 0.01 * ((step + RANK + i) % 7) for i, v in enumerate(x)])
        table.run([g], [x])
        say("round", table.next_round - 1)
        time.sleep(args.pause)
    return x.tobytes()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--job", default="test")
    p.add_argument("--run")
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--first-round", type=int, default=0)
    p.add_argument("--value", type=float, default=1.0)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--stop", default="")
    p.add_argument("--pause", type=float, default=0.0)
    p.add_argument("--alone", type=float, default=0.0)
    p.add_argument("--momentum", action="store_true")
    p.add_argument("--lease", type=float, default=30.0)
    p.add_argument("--timeout", type=float, default=120.0)
    p.add_argument("--declare-timeout", type=float, default=120.0)
    args = p.parse_args()
    try:
        with pbox.Client(os.environ["PBOX_BOX"], args.job, os.environ["PBOX_SECRET"], RANK,
                         args.workers, run=args.run, lease=args.lease, timeout=args.timeout,
                         join_timeout=args.timeout, left=args.timeout,
                         host=f"host{RANK}") as client:
            say("joined")
            got = (momentum if args.momentum else sums)(args, client)
            say("done", hashlib.sha256(got).hexdigest()[:32])
    except pbox.PBoxError as e:
        say("error", type(e).__name__, e)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
