# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Work by plan (policy "reassign"): the box says which slots a worker computes, by how fast it is.

After each round a worker says how long it took, and learns its slots where they may have changed (the dialogue is the client
library's). Where another worker dies in the middle of a round it gets some of that one's slots at once: its own are pushed
already, their sums are kept, and all nodes are pushed once more with the new ones.
"""

import logging
import time
from typing import Dict, List, Optional, Sequence, Tuple, Union

from .. import _checks, _lib
from ..client import Table
from ..errors import PBoxDeadline, PBoxMismatch
from ._memory import Memory
from ._slots import Slots
from ._stale import LooseTree, Stale
from ._tree import Sums, Tree

_log = logging.getLogger("pbox")
# how old what is known of the memory may be when a round ends, seconds: the kernel's files take a while to read
_WEIGHED = 0.05
_AGAIN = 0.06  # R15.4: 20 questions a second
Node = Tuple[int, int]


class Work:
    """Of one optimiser."""

    def __init__(self, table: Table, slots: Slots, stale: Optional[Stale] = None, steals: bool = False) -> None:
        self._table, self._slots, self._stale = table, slots, stale
        self.steals = steals
        self.stolen = self.lost = 0  # slots, in all rounds
        self._round = 0  # in which slots are begun
        self._stealing = 0.0  # seconds in this round
        self.report = _lib.Work()
        self.tree: Union[Tree, LooseTree] = Tree(())
        self._kept: Dict[Node, Tuple[Sums, int]] = {}  # nodes of this round that were pushed before
        self.again = False  # is the next push one of a round that was pushed before?
        self._done: List[int] = []  # slots of this round that were pushed
        self._begun = self._pushed = self._weighed = 0.0
        self._held = (0, 0)
        self._short = False  # of memory
        self.memory = Memory()
        self.newcomer = False  # the job had begun: it has no slots before enter()
        self.look()
        # the box may have given it the slots of workers that are dead already
        self.newcomer = self.report.nodes == 0 or self.report.now > 1
        if self.newcomer:
            slots.mine = ()
            slots.trained = self._trained()
        else:
            self._ask(table.next_round)
        self.round_begins()

    @property
    def leads(self) -> bool:
        """Is this the worker with the lowest number of those that are there?"""
        return int(self.report.leads) == self._table.client.worker

    @property
    def members(self) -> int:
        return int(self.report.members)

    # ---- asking

    def _fill(self, round: int, keep: int = _lib.OWN) -> None:
        s, r = self._slots, self.report
        now = time.monotonic()
        if keep == _lib.OWN or now - self._weighed >= _WEIGHED:
            self._weighed = now
            self._fill_memory()
        r.round = round
        r.slots, r.keep, r.newcomer = 0, keep, _lib.IN_JOB
        r.seed = 0 if s.seed is None else s.seed
        r.samples, r.batch, r.trained = (0, 0, 0) if s.seed is None else (s.samples, s.batch_size, s.trained)

    def _fill_memory(self) -> None:
        s, r = self._slots, self.report
        slot = 1 if s.seed is None else max(1, s.batch_size // s.total)
        fits = self.memory.samples(slot)
        r.memory_known, r.fits = int(fits is not None), fits or 0
        short = fits is not None and fits < slot
        if short and not self._short:
            _log.warning("this worker has memory for %d samples, and a slot has %d: it says so, and gets no slots from the third round on",
                         fits, slot)
        if short and not s.mine:
            self.memory.give_back()
        self._short = short

    def _ask(self, round: int) -> None:
        """Which slots are this worker's in that round?"""
        self._fill(round)
        self._table.work(self.report)
        self._take(self._table.client.nodes())

    def look(self, group: int = 0) -> None:
        """What is going on in the job (R15.7a): nobody waits for a newcomer yet. The report has the hyper-parameters of the group."""
        self._fill(self._table.next_round)
        self.report.newcomer, self.report.group = _lib.LOOK, group
        self._table.work(self.report)
        if self.newcomer:
            self._slots.trained = self._trained()

    def _trained(self) -> int:
        """Rounds of the training before the one in progress; where no worker has a sampler those of this run."""
        known = int(self.report.now_trained)
        return known if known != _checks.U32 else int(self.report.now) - 1

    def enter(self, timeout: Optional[float]) -> None:
        """Get slots: the others wait for this worker from the round on which is then the table's next one."""
        r = self.report
        known = int(r.now_trained) != _checks.U32
        self._fill(int(r.now))
        r.trained, r.newcomer = int(r.now_trained) if known else 0, _lib.BEGIN
        self._table.work(r, timeout)
        self._slots.trained = int(r.trained) if known else int(r.round) - 1
        self._take(self._table.client.nodes())

    def entered(self) -> None:
        """It has the model."""
        self.newcomer = False
        self._slots.count = 0
        self._slots.prepare()
        self.round_begins()

    def compare(self) -> None:
        """A sampler was made: does it give what those of the other workers do?"""
        if self.newcomer:
            self.look()
        else:
            self._ask(self._table.next_round)

    def _take(self, nodes: Sequence[Node]) -> None:
        """From the next round on these are this worker's."""
        if tuple(nodes) != self.tree.nodes:
            self.tree = self._new_tree(nodes)
        self._slots.mine = self._ordered([s for first, n in nodes for s in range(first, first + n)])

    def _new_tree(self, nodes: Sequence[Node]) -> Union[Tree, LooseTree]:
        return Tree(nodes) if self._stale is None else LooseTree(nodes, self._slots.total)

    def _ordered(self, slots: Sequence[int]) -> Tuple[int, ...]:
        """As they are computed."""
        return tuple(slots) if self._stale is None else self._stale.order(slots)

    def agree(self, value: float, round: int, timeout: float) -> float:
        """The leading worker's number, at all workers that ask before the round (R15.11). Who has it says it as well: so it survives a restart of
        the box, and two that differ are found."""
        began, r = time.monotonic(), self.report
        while True:
            self._fill(round, _lib.KEEP)
            self._table.work(r)
            if int(r.decided) == round:
                break
            if int(r.decided) > round:
                raise PBoxMismatch(f"this worker calls agree() before round {round}, and others have before round {int(r.decided)}: all workers call it after "
                                   "the same round")
            if self.leads:
                try:
                    self._table.decide(round, value)
                    continue
                except PBoxMismatch:  # another one that led before
                    pass
            elif time.monotonic() - began > timeout:
                raise PBoxDeadline(f"worker {int(r.leads)}, which leads, has not called agree() before round {round} for {timeout:g} s: all workers call it after "
                                   "the same round")
            time.sleep(_AGAIN)
        self._table.decide(round, float(r.decision))
        return float(r.decision)

    # ---- ahead=

    def goes_ahead(self) -> None:
        """The round is pushed, and early slots of the next one begin, as if it had the same owners."""
        assert self._stale is not None
        self._stale.waits = True
        self._stale.next = LooseTree(self.tree.nodes, self._slots.total)
        self._slots.mine = self._ordered(self._slots.mine)
        self._slots.trained += 1
        self._slots.count = 0

    def comes_back(self) -> None:
        """The result of the round that is pushed is here, or the round wants more of this worker."""
        assert self._stale is not None
        if self._stale.waits:
            self._stale.waits = False
            self._slots.trained -= 1
            self._slots.count = len(self._slots.mine)

    def takes_early(self) -> None:
        """The next round begins: of its slots those that are done, and are this worker's still, come first."""
        stale, slots = self._stale, self._slots
        assert stale is not None
        if stale.next is None:
            return
        assert isinstance(self.tree, LooseTree)
        done = self.tree.take_over(stale.next)
        stale.next = None
        if len(done) == len(slots.mine) and slots.ends_epoch(slots.trained):  # others have got the rest: step() is to end the epoch
            self.tree.clear()
            done = set()
        slots.mine = tuple(s for s in slots.mine if s in done) + tuple(s for s in slots.mine if s not in done)
        slots.count = len(done)
        slots.given = None  # step() has ended that slot; where a plan cut its sums it is the next one again

    # ---- a round

    def round_begins(self) -> None:
        self._begun = time.monotonic()
        self._stealing = 0.0
        if self.steals and not self.newcomer:
            self._round = self._table.next_round
            self._begin_next()
        self.memory.round_begins()
        stats = self._table.client.stats()
        self._held = (stats.held_ns_sum, stats.fragments_done)

    def pushes(self) -> None:
        """All slots of this worker are computed."""
        if not self.again:
            self._pushed = time.monotonic()
            if self.tree.nodes:
                self.memory.computed()

    def brought(self) -> List[Tuple[Sums, int]]:
        """The sums of all nodes, in the order of their slots, with their samples."""
        have = {**self._kept, **dict(zip(self.tree.nodes, zip(self.tree.done, self.tree.samples)))}
        return [have[node] for node in sorted(have)]

    def more(self, round: int) -> bool:
        """The round waits for slots that this worker has got. False: they are those that it had."""
        self._kept.update(zip(self.tree.nodes, zip(self.tree.done, self.tree.samples)))
        self._done = sorted(s for first, n in self._kept for s in range(first, first + n))
        self._fill(round)
        self._table.work(self.report)
        nodes = self._table.client.nodes()
        missing = set(self._kept) - set(nodes)
        if missing:
            raise PBoxMismatch(f"round {round}: the box gives this worker the nodes {nodes}, and it has pushed {sorted(self._kept)}: "
                               "they cannot both be right. Start this worker again")
        added = [node for node in nodes if node not in self._kept]
        self.tree = self._new_tree(added)
        self.again = True
        new = [s for first, n in added for s in range(first, first + n)]
        self._slots.mine = (*self._done, *self._ordered(new))
        self._slots.count = len(self._done)
        if self.steals:
            self._begin_next()
        return self._slots.count < len(self._slots.mine)

    # ---- stealing

    def _begin_next(self, less: int = 0) -> None:
        """The next slot is begun, or the one after `less` more; those that were given to others are not this worker's any more."""
        s = self._slots
        while s.count + less < len(s.mine) and not self._table.slot_begin(self._round, s.mine[s.count + less]):
            before = len(s.mine)
            self._changed()
            if len(s.mine) >= before:
                raise PBoxMismatch(f"round {self._round}: slot {s.mine[s.count + less]} is another worker's, and the nodes are as they were: start this "
                                   "worker again")
            self.lost += before - len(s.mine)

    def _changed(self) -> None:
        """Slots that were not begun have gone to others, or some of others' have come."""
        assert isinstance(self.tree, Tree)
        nodes = self._table.client.nodes()
        own = {s for first, n in nodes for s in range(first, first + n)}
        come = [node for node in nodes if node not in self._kept and not any(s in self._slots.mine for s in range(node[0], node[0] + node[1]))]
        left = [node for node in nodes if node not in self._kept and node not in come]
        # those that it had come in the order in which they are computed, then the new ones
        old = [first for first, _ in self.tree.nodes]
        left.sort(key=lambda node: max(i for i, first in enumerate(old) if first <= node[0] < first + self.tree.nodes[i][1]))
        self.tree.cut([*left, *come])
        self._slots.mine = tuple(s for s in self._slots.mine if s in own) + tuple(s for first, n in come for s in range(first, first + n))

    def slot_ends(self) -> None:
        """A slot is computed, and not counted yet: begin the next one, of another worker's if this one has none left."""
        began = time.monotonic()
        while True:
            self._begin_next(less=1)
            if not self._slots.last or not self._steal():
                break
        self._stealing += time.monotonic() - began

    def _steal(self) -> bool:
        """All slots are computed: get some of a worker that would end later."""
        if not self._table.task(self._round):
            return False
        before = len(self._slots.mine)
        self._changed()
        self.stolen += len(self._slots.mine) - before
        return len(self._slots.mine) > before

    def round_ends(self, round: int) -> None:
        """Its result is here: report, and learn which slots come next. Before Slots.end_round()."""
        now = time.monotonic()
        stats, r = self._table.client.stats(), self.report
        held, done = stats.held_ns_sum - self._held[0], stats.fragments_done - self._held[1]
        waited = held / done * 1e-9 if done else 0.0
        exchange = max(0.0, now - self._pushed - waited)
        self._slots.trained += 1  # as it will be in the round that is asked for
        self._fill(round + 1, _lib.TURN)
        self._slots.trained -= 1
        if not self.again and self.tree.nodes:
            r.slots = len(self._slots.mine)
        r.compute, r.fixed = max(1e-9, self._pushed - self._begun - self._stealing), 0.0
        if self._stale is not None:  # what slots hide costs nothing
            r.compute = max(1e-9, self._stale.busy)
            exchange = max(0.0, self._stale.stalled - waited)
        r.up = r.down = exchange / 2
        self._kept, self._done, self.again = {}, [], False
        self._slots.count = 0
        self._table.work(r)
        if r.changed:
            self._take(self._table.client.nodes())
        self.tree.clear()
        self.round_begins()
