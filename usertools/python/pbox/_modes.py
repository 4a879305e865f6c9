# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""What goes together, as lib/wire/pbox_pairs.h has it for the box and the library: doc/modes.md is the page."""

from typing import Dict, Iterable, Optional, Tuple

from .errors import PBoxInvalid

# made by .ci/modes.py --write
NAMES = {
    'rounds': 'rounds',
    'slots': 'slots',
    'plan': 'policy reassign',
    'steal': 'steal',
    'ahead': 'ahead',
    'clocks': 'clocks',
    'boxes': 'several boxes',
    'gpu': 'a GPU',
    'threads': 'several threads',
    'snapshots': 'snapshots',
    'shrink': 'policy shrink',
    'optimiser': 'an optimiser on the box',
    'push': 'pushes in blocks',
    'pull': 'results in blocks',
    'racks': 'racks',
    'hold': 'two phases a round',
}
NEEDS: Dict[str, Tuple[str, ...]] = {
    'rounds': (),
    'slots': ('rounds',),
    'plan': ('rounds', 'slots', 'optimiser'),
    'steal': ('rounds', 'slots', 'plan', 'optimiser'),
    'ahead': ('rounds', 'slots', 'plan', 'optimiser'),
    'clocks': ('optimiser',),
    'boxes': (),
    'gpu': (),
    'threads': (),
    'snapshots': (),
    'shrink': (),
    'optimiser': (),
    'push': (),
    'pull': ('optimiser',),
    'racks': (),
    'hold': ('rounds', 'optimiser'),
}
PAIRS = (
    ('plan', 'boxes', 'UNSUPPORTED',
     'each box would share out slots by itself, as boxes do not talk to each other: take policy wait, or one box'),
    ('plan', 'gpu', 'PYTHON',
     'slots that others take over are summed in host memory: move the model to the CPU (model.cpu()), or take policy wait with slots'),
    ('plan', 'shrink', 'BAD_REQUEST',
     "a job has one policy: give all workers the same, or set policy in the job's section"),
    ('steal', 'ahead', 'PYTHON',
     'who steals a slot would need the parameters of a round before: leave one of the two out'),
    ('boxes', 'shrink', 'UNSUPPORTED',
     'each box would go on without a worker by itself, as boxes do not talk to each other: take policy wait, or one box'),
    ('plan', 'racks', 'UNSUPPORTED',
     'the slots of a rack are fixed, and its box gives their sum to the upper one: take policy wait'),
    ('shrink', 'racks', 'UNSUPPORTED',
     'the sum of a rack is of all its workers: take policy wait'),
    ('clocks', 'racks', 'UNSUPPORTED',
     "a rack's box sums rounds, and tables in clocks have none: declare the table in rounds, or let all workers join one box"),
    ('optimiser', 'racks', 'UNSUPPORTED',
     "a rack's box has sums, and no parameters: let the workers run the optimiser (all-reduce)"),
    ('push', 'racks', 'UNSUPPORTED',
     'racks sum in fp32, bf16 or fp16: take one of these'),
    ('boxes', 'racks', 'CONF',
     "a rack's box is no part of several boxes: remove boxes or upstream"),
    ('snapshots', 'racks', 'CONF',
     "a rack's box has nothing of its own to keep: remove snapshot-dir or upstream"),
    ('clocks', 'hold', 'UNSUPPORTED',
     'tables in clocks have no rounds that could have phases: declare the table in rounds, or let the workers clip'),
    ('plan', 'hold', 'UNSUPPORTED',
     'the norm would have to be asked again where slots change hands between the phases: take policy wait'),
    ('shrink', 'hold', 'UNSUPPORTED',
     'the norm would have to be asked again where a worker goes between the phases: take policy wait'),
    ('gpu', 'hold', 'PYTHON',
     'two phases are for parameters on the CPU so far: take an optimiser of torch.optim with the hook (pbox.torch.register), where clip_grad_norm_ sees the mean'),
    ('push', 'hold', 'UNSUPPORTED',
     'two phases are for plain formats so far: push fp32, bf16 or fp16'),
    ('pull', 'hold', 'UNSUPPORTED',
     'two phases are for plain formats so far: pull fp32, bf16 or fp16'),
    ('clocks', 'pull', 'UNSUPPORTED',
     'workers are at different versions, so results cannot be differences: pull fp32, bf16 or fp16; pushes alone take a format of blocks'),
    ('plan', 'clocks', 'BAD_REQUEST',
     'a plan shares out the slots of a round, and tables in clocks have no rounds: take policy wait or shrink, without slots'),
    ('slots', 'clocks', 'BAD_REQUEST',
     'slots are shares of a round, and tables in clocks have no rounds: start the job without slots, or declare the table in rounds'),
    ('slots', 'pull', 'UNSUPPORTED',
     'results as differences are for jobs without slots so far: start the job without slots, or pull fp32, bf16 or fp16'),
    ('boxes', 'push', 'UNSUPPORTED',
     'what is kept beside such sums does not move with a chunk: use fp32, bf16 or fp16, or one box'),
    ('boxes', 'pull', 'UNSUPPORTED',
     'what is kept beside such results does not move with a chunk: use fp32, bf16 or fp16, or one box'),
)
# end


def refused(uses: Iterable[str]) -> Optional[str]:
    """The first two that do not go together, and why."""
    used = set(uses)
    for one, other, _, text in PAIRS:
        if one in used and other in used:
            return f"{NAMES[one]} with {NAMES[other]}: {text}"
    return None


def check(what: str, **uses: object) -> None:
    """What uses each mode of this name whose value is true."""
    text = refused(name for name, used in uses.items() if used)
    if text is not None:
        raise PBoxInvalid(f"{what}: {text}")
