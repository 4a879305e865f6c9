#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Seeds of the fuzz target: programs that go right, and one of each thing that may become of a frame."""

import os

HERE = os.path.dirname(os.path.abspath(__file__))
PUSHPULL, PUSH, PULL, INIT, WAIT, CANCEL, RESTART_BOX, DECLARE, SET, ASK, YIELD, QUESTION, SLOT, STOP = range(14)
ALL = 62 << 2  # tensors of table 0
ACTS = 23
TWO = 4
AUTH = 128
# flags of the job: by plan; and workers come later
PLAN, LATER = 96, 114
# of QUESTION: kinds, and a report
WORK, REPORT, TURN, LOOK, ENTER, STEAL = range(6)
SAYS = 8
# frames of the box before the first WELCOME, and before the first results, of two workers
JOIN, BEGUN = 2, 24


def program(flags, steps, box=b"", job=0):
    return bytes([flags, len(steps)]) + b"".join(bytes(s) for s in steps) + bytes([job]) + box


def main():
    folder = os.path.join(HERE, "corpus", "worker")
    os.makedirs(folder, exist_ok=True)
    rounds = [(PUSHPULL, ALL), (WAIT, 9)] * 3
    optimiser = [(INIT, ALL), (WAIT, 9), (SET, 4), (WAIT, 9)] + rounds
    restart = rounds + [(RESTART_BOX, 0)] + rounds
    seeds = {
        "push-pull": program(0x50, [(INIT, ALL), (SET, 0x4c), (WAIT, 9), (PUSH, ALL), (PULL, ALL), (WAIT, 9), (ASK, 60), (CANCEL, 0), (YIELD, 9)]),
        "tables": program(0x90, [(DECLARE, 0x2f), (DECLARE, 0x54), (PUSHPULL, ALL | 1), (PUSHPULL, ALL | 2), (WAIT, 9)]),
        "no-copies": program(0x82, restart), "refused": program(0x80, rounds, job=1),
        "insecure": program(0x80, rounds, job=2),
    }
    for who, flags, job in ("one", 1, 0), ("two", TWO | 1, 0), ("auth", 1, AUTH), ("two-auth", TWO | 1, AUTH):
        seeds.update({f"rounds-{who}": program(0x80 | flags, rounds, job=job),
                      f"optimiser-{who}": program(0x10 | flags, optimiser, job=job),
                      f"restart-{who}": program(0x80 | flags, restart, job=job),
                      f"restart-optimiser-{who}": program(0x10 | flags, optimiser + [(RESTART_BOX, 0)] + rounds, job=job)})
    for act in range(1, ACTS):
        for at in (0, 1, JOIN, BEGUN + 1, BEGUN + 4):
            for who in range(3) if at > BEGUN else (0,):
                seeds[f"act{act}-{at}-{who}"] = program(0x85, rounds, bytes(4 * at) + bytes([act + ACTS * who, 1, 9, 1]) * 2,
                                                        AUTH if who else 0)
    for who in 1, 2:  # with a wrong tag, and with none
        seeds[f"forged-{who}"] = program(0x85, rounds, bytes(4 * BEGUN) + bytes([3 + ACTS * who, 9, 1, 0]) * 40, AUTH)
    begun = [(INIT, ALL), (QUESTION, LOOK), (WAIT, 9), (QUESTION, WORK), (WAIT, 9)]
    turn = [(PUSHPULL, ALL), (WAIT, 9), (QUESTION, TURN | SAYS), (WAIT, 9), (YIELD, 60)]
    steal = [(SLOT, 0), (SLOT, 1), (QUESTION, STEAL), (WAIT, 9), *turn]
    for who, flags in ("one", 0x11), ("two", 0x11 | TWO):
        seeds.update({f"plan-{who}": program(flags, begun + 3 * turn, job=PLAN), f"steal-{who}": program(flags, begun + turn + 2 * steal, job=PLAN),
                      f"plan-restart-{who}": program(flags, begun + turn + [(RESTART_BOX, 0)] + 2 * turn, job=PLAN),
                      f"enter-{who}": program(flags, [(QUESTION, LOOK), (WAIT, 9), (QUESTION, ENTER), (WAIT, 20), *begun[3:], *turn], job=LATER),
                      f"report-{who}": program(flags, [*begun, (QUESTION, REPORT | SAYS), (WAIT, 9), *turn], job=PLAN)})
        for at in range(4, 12):
            for field in range(5):
                seeds[f"answer{at}-{field}-{who}"] = program(flags, begun + turn + steal, bytes(4 * at) + bytes([22, field, 6, 3]) * 6, PLAN)
    for stops in 40, 100:
        more = [(WAIT, 9), (QUESTION, WORK), (WAIT, 9), (PUSHPULL, ALL), (WAIT, 20)]
        seeds[f"gone{stops}"] = program(0x11 | TWO, [*begun, *turn, (STOP, stops), (PUSHPULL, ALL), *more, (YIELD, 200), *turn, *turn], job=PLAN)
        seeds[f"gone-steal{stops}"] = program(0x11 | TWO, [*begun, *turn, (SLOT, 0), (SLOT, 1), (STOP, stops), (QUESTION, STEAL), *more, *turn, *turn], job=PLAN)
        seeds[f"gone-restart{stops}"] = program(0x11 | TWO, [*begun, *turn, (PUSHPULL, ALL), (STOP, stops), (RESTART_BOX, 0), *more, *turn, *turn], job=PLAN)
        seeds[f"gone-later{stops}"] = program(0x11 | TWO, [*begun, *turn, (STOP, stops), *turn, (YIELD, 250), (QUESTION, LOOK), (WAIT, 9), (QUESTION, ENTER), (WAIT, 20), *turn], job=LATER)
    for how in range(5):
        seeds[f"restore{how}"] = program(0x80, restart, bytes(4 * (2 * BEGUN + 12)) + bytes([20, how, 1, 0]) * 8)
    for name, data in seeds.items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(data)


if __name__ == "__main__":
    main()
