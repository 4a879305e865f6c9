#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Seeds of the fuzz target: programs that go right, and one of each thing that the box may do."""

import os

HERE = os.path.dirname(os.path.abspath(__file__))
PUSHPULL, PUSH, PULL, INIT, WAIT, TEST, NOTIFY, DECLARE, SET, ASK, YIELD = range(11)
ALL = 62 << 2  # tensors of table 0
ACTS = 22
RESTART = 11
# frames of a join: HELLO, JOIN, PINGs to 1 endpoint, small and full; then DECLARE, MAP
JOIN, BEGUN = 4, 6


def program(flags, steps, box=b""):
    return bytes([flags, len(steps)]) + b"".join(bytes(s) for s in steps) + b"\0" + box


def main():
    folder = os.path.join(HERE, "corpus", "client")
    os.makedirs(folder, exist_ok=True)
    rounds = [(PUSHPULL, ALL), (WAIT, 9)] * 3
    seeds = {
        "rounds": program(0x80, rounds), "optimiser": program(0x10, [(INIT, ALL), (WAIT, 9), (SET, 0)] + rounds),
        "push-pull": program(0x50, [(PUSH, ALL), (PULL, ALL), (TEST, 0), (WAIT, 9), (NOTIFY, 0), (ASK, 60), (YIELD, 9)]),
        "tables": program(0x90, [(DECLARE, 0x2f), (DECLARE, 0x54), (PUSHPULL, ALL | 1), (PUSHPULL, ALL | 2), (WAIT, 9)]),
        "no-copies": program(0x82, rounds, bytes(4 * 30) + bytes([RESTART, 0, 0, 0])),
    }
    for act in range(1, ACTS):
        for at in (0, 1, JOIN, BEGUN + 1):
            seeds[f"act{act}-{at}"] = program(0x80, rounds, bytes(4 * at) + bytes([act, 1, 9, 1]) * 2)
    for how in range(5):
        seeds[f"restore{how}"] = program(0x80, rounds, bytes(4 * 12) + bytes([RESTART, 0, 0, 0]) + bytes(4 * 6) +
                                         bytes([20, how, 1, 0]) * 8)
    for name, data in seeds.items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(data)


if __name__ == "__main__":
    main()
