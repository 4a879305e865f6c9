# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Where a worker is in the slots of a job: which slot of which round comes next, which samples it
consists of, and from what its random numbers begin.

All of it is a function of (seed, round, slot), and never of the worker, so that the same slots give
the same bits on any number of workers.
"""

import collections
import copy
import hashlib
import logging
import random
import sys
import threading
import weakref
from typing import Any, Deque, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch.utils.data import BatchSampler, DataLoader, Sampler
from torch.utils.data._utils.collate import default_collate
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from .. import _checks
from ..errors import PBoxInvalid, PBoxMismatch
from . import _alike, _options
from ._stale import Stale

_log = logging.getLogger("pbox")


def derive(seed: int, *numbers: Any) -> int:
    """A seed of 32 bits: generators take no more of it."""
    text = repr((seed, *numbers)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), "little")


def seed_generators(value: int) -> None:
    """torch's, Python's and (where it is used) numpy's own generator, in this process."""
    torch.manual_seed(value)
    random.seed(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(value)


class Given(NamedTuple):
    """A batch that a loader has given out: of which slot, and who has fetched it."""

    round: int
    slot: int
    thread: str
    ident: int

    @classmethod
    def here(cls, round: int, slot: int) -> "Given":
        t = threading.current_thread()
        return cls(round, slot, t.name, threading.get_ident())


class Asks(NamedTuple):
    """A DataLoader with processes, which fetch before batches are wanted: what it has returned is known when that matters."""

    loader: Any  # weak
    sent: Dict[int, Tuple[int, int]]  # round and slot of its batches, by number
    who: Given

    def given(self) -> Optional[Given]:
        it = self.loader()
        number = max(self.sent, default=-1) if it is None else it._rcvd_idx - 1
        for old in [k for k in self.sent if k < number]:
            del self.sent[old]
        return self.who._replace(round=self.sent[number][0], slot=self.sent[number][1]) if number in self.sent else None


class Slots:
    """The slots `mine` of a job that has `total`, in each round. `trained` counts the rounds of the training,
    those before a checkpoint too; `count` the slots of the round in progress that are done."""

    def __init__(self, total: int, mine: Sequence[int]) -> None:
        self.total, self.mine = total, tuple(mine)
        self.trained = self.count = 0
        self.seed: Optional[int] = None
        self.batch_size = self.samples = 0  # those of the sampler
        self._loaded: Dict[str, Any] = {}  # a state whose sampler has not been made yet
        self.compares = False  # will workers compare their samples?
        self.order = ""  # digest of the first round's
        self.given: Optional[Given] = None  # the batch that the program has got last, if that is known
        self.asks: Optional[Asks] = None  # who has fetched it, if that is a DataLoader with processes
        self.horizon_of_given: Optional[Tuple[int, int]] = None  # the last round and slot of the epoch that a sampler is in
        self.early = 0  # so many batches more are taken before the first of them is trained
        self.horizon: Optional[int] = None  # rounds of the training at the end of the epoch that a loader is in
        self.asked = False  # has the program a sampler, or read which slot comes next?

    @property
    def next(self) -> int:
        """The slot whose micro-batch comes next."""
        return self.mine[self.count % len(self.mine)]

    @property
    def last(self) -> bool:
        """Is that the last one of the round?"""
        return self.count == len(self.mine) - 1

    def ends_epoch(self, rounds: int) -> bool:
        """Does the epoch that a loader is in end with the round after so many of the training?"""
        return self.horizon is not None and rounds + 1 >= self.horizon

    def _after(self, n: int) -> Optional[Tuple[int, int]]:
        """Round and slot n slots after the next one."""
        if not self.mine:
            return None
        rounds, at = divmod(self.count + n, len(self.mine))
        return self.trained + rounds, self.mine[at]

    def check_given(self) -> None:
        """A slot ends: raise if the program has another one's batch."""
        given = self.given if self.asks is None else self.asks.given()
        if given is None:
            return
        if given.ident != threading.get_ident():
            raise PBoxInvalid(
                f"thread '{given.thread}' fetches the batches, and '{threading.current_thread().name}' trains: both draw from the generators of this process, which each "
                "batch seeds, so a forward pass would have random numbers of another slot. Fetch in the thread that trains, and beside it in processes: "
                "num_workers=1 or more")
        want = self._after(self.early)
        if want == (given.round, given.slot):
            return
        last = self.horizon_of_given
        if self.early and last == (given.round, given.slot) and want is not None and want > last:
            return  # the epoch has no more to take
        ahead = f", and {self.early} ahead (early=)" if self.early else ""
        raise PBoxMismatch(
            f"step() ends slot {self.next} of round {self.trained}{ahead}, and the last batch that was taken is that of slot {given.slot} of round {given.round}: the "
            "model would be trained on some samples twice, and never on others. Each batch that is taken is stepped, in this order: a training that goes on skips nothing (the "
            "loader begins where the training is), nothing shards the loader again (accelerate's prepare(), DistributedSampler), and nothing repeats what it gave (itertools.cycle). "
            "A program that takes n batches ahead says sampler(..., early=n)")

    def prepare(self) -> None:
        """Random numbers of the next slot begin now."""
        if self.seed is not None and self.mine:  # by plan it may have none
            seed_generators(derive(self.seed, "compute", self.trained, self.next))

    def end_round(self) -> None:
        self.count = 0
        self.trained += 1
        self.prepare()

    def between_rounds(self, what: str, step: str = "") -> None:
        """Raise if a round is in progress; `step` says what to do then."""
        if self.count:
            raise PBoxInvalid(f"{what} in the middle of a round: step() has been called for {self.count} of its "
                              f"{len(self.mine)} slots here{step}")

    def state_dict(self) -> Dict[str, Any]:
        sampled = self._loaded if self.seed is None else {"seed": self.seed, "batch_size": self.batch_size}
        state = {"slots": self.total, "round": self.trained}
        return {**state, **{k: sampled[k] for k in ("seed", "batch_size") if k in sampled}}

    def _compare_sampled(self, state: Dict[str, Any], seed: int, batch_size: int) -> None:
        """Does the sampler go on with what the state's has begun? The batch may grow on the way."""
        if state.get("seed", seed) != seed:
            raise PBoxInvalid(
                f"the state is of a training with seed {state['seed']}, and this sampler has {seed}: it would draw other "
                f"epochs, and samples would come twice or never. Pass seed={state['seed']} to sampler(); where another one "
                "is meant, delete state_dict['pbox']['seed'] first")
        if state.get("batch_size", batch_size) != batch_size:
            _log.warning("the state is of a training with batch_size %d, and this sampler has %d: rounds and epochs are counted "
                         "in the new size, so samples of this epoch may come twice or never. Unless that is meant, pass "
                         "batch_size=%d to sampler(); else call its set_epoch()", state["batch_size"], batch_size,
                         state["batch_size"])

    def sampled(self, seed: int, batch_size: int, samples: int) -> None:
        """A sampler was made: random numbers begin now."""
        self._compare_sampled(self._loaded, seed, batch_size)
        self._loaded = {}
        self.seed, self.batch_size, self.samples, self.asked = seed, batch_size, samples, True
        self.prepare()

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        self.between_rounds("load_state_dict()")
        if state["slots"] != self.total:
            raise PBoxInvalid(
                f"the state is of a training with {state['slots']} slots, this one has {self.total}: "
                f"pass slots={state['slots']}; only the number of workers may be another one")
        if self.seed is None:
            self._loaded = dict(state)
        else:
            self._compare_sampled(state, self.seed, self.batch_size)
        self.trained = int(state["round"])
        self.prepare()


class Batch(List[int]):
    """The samples of one slot. Who fetches them, here or in a process of the DataLoader, begins with the
    slot's random numbers."""

    def __init__(self, indices: Sequence[int], seed: int, slots: Optional[Slots] = None, tag: Tuple[int, int] = (0, 0)) -> None:
        super().__init__(indices)
        self.seed = seed
        self._slots = slots
        self.tag = tag  # round of the training, and slot

    def __iter__(self) -> Iterator[int]:
        seed_generators(self.seed)
        yield from list.__iter__(self)
        if self._slots is not None:
            self._slots.given, self._slots.asks = Given.here(*self.tag), None
            # in the process that trains: dropout must not depend on what the fetching has drawn
            self._slots.prepare()

    def __reduce__(self) -> Any:  # to the DataLoader's processes; list's own would iterate
        return Batch, (list.__getitem__(self, slice(None)), self.seed)


class SlotSampler(Sampler):
    """The micro-batches of this worker's slots, round after round: a batch_sampler for DataLoader, made by
    the sampler() of an optimiser with slots.

    Each iteration is an epoch, or what is left of it: it begins where the training is. The order of
    the samples is drawn for each epoch. set_epoch(n) begins epoch n, unless the training is in it.
    """

    def __init__(self, slots: Slots, dataset: Any, batch_size: int, seed: int = 0, drop_last: bool = True) -> None:
        n, total = len(dataset), slots.total
        # 1.0, or numpy's 1, is the same number, and would be another seed
        seed = _checks.whole(seed, "seed", 1 << 64, -1 << 64)
        batch_size = _checks.whole(batch_size, "batch_size", 1 << 64, -1 << 64)
        if batch_size < 1 or batch_size % total != 0:
            near = max(1, round(batch_size / total)) * total
            raise PBoxInvalid(
                f"batch_size is {batch_size}: it is that of a whole round, which {total} slots share "
                f"equally; take a multiple of {total}, such as {near}")
        rest = n % batch_size
        if n < batch_size and (drop_last or rest == 0):
            raise PBoxInvalid(f"the dataset has {n} samples, less than one round of {batch_size}")
        if not drop_last and rest % total != 0:
            raise PBoxInvalid(
                f"the last round of an epoch would have {rest} samples, which {total} slots cannot share "
                f"equally: drop_last=True, or leave {rest % total} samples out of the dataset")
        self.samples, self.batch_size, self.seed = n, batch_size, seed
        self.rounds = n // batch_size + (not drop_last and rest > 0)
        self._slots = slots
        self._begin = 0  # round of the training in which epoch 0 began, or would have
        if slots.compares and not slots.order:
            slots.order = self._digest(dataset)
        slots.sampled(seed, batch_size, n)

    def _digest(self, dataset: Any) -> str:
        seed_generators(derive(self.seed, "compare"))  # samples may be changed at random
        try:
            return _alike.digest_of_samples(dataset, self.order(0)[:self.batch_size].tolist())
        except Exception as e:  # of the dataset: its own batches will say it
            return type(e).__name__

    def __len__(self) -> int:
        """Of an epoch."""
        return self.rounds * len(self._slots.mine)

    @property
    def epoch(self) -> int:
        """The epoch in which the training is."""
        return (self._slots.trained - self._begin) // self.rounds

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self._slots.between_rounds(f"set_epoch({epoch})")
            self._begin = self._slots.trained - epoch * self.rounds

    def state_dict(self) -> Dict[str, int]:
        """Needed where set_epoch() leaves out a part of an epoch, or batch_size changes; else the
        optimiser's state says it all."""
        return {"begin": self._begin, "samples": self.samples, "batch_size": self.batch_size,
                "seed": self.seed, "rounds": self.rounds}

    def load_state_dict(self, state: Dict[str, int]) -> None:
        mine = self.state_dict()
        for name in ("samples", "batch_size", "seed", "rounds"):
            if state[name] != mine[name]:
                raise PBoxInvalid(f"the state is of a sampler with {name} {state[name]}, this one has {mine[name]}")
        self._begin = state["begin"]

    def order(self, epoch: int) -> torch.Tensor:
        """All samples, in the order of an epoch."""
        g = torch.Generator().manual_seed(derive(self.seed, "order", epoch))
        return torch.randperm(self.samples, generator=g)

    def batch(self, order: torch.Tensor, first: int, round: int, slot: int, slots: Optional[Slots] = None) -> Batch:
        """Of a slot in a round of the epoch that began with round `first` of the training."""
        begin = round * self.batch_size
        per_slot = min(self.batch_size, self.samples - begin) // self._slots.total
        at = begin + slot * per_slot
        return Batch(order[at:at + per_slot].tolist(), derive(self.seed, "fetch", first + round, slot), slots, (first + round, slot))

    def __iter__(self) -> "_Iterator":
        if not self._slots.mine:
            raise PBoxInvalid("this worker has no slots of its own yet: take optimiser.loader() in place of the sampler")
        # DataLoader(sampler=) puts a BatchSampler around it, and batches of batches come out, without an error
        if type(sys._getframe(1).f_locals.get("self")) is BatchSampler:
            raise PBoxInvalid("this sampler gives whole micro-batches: DataLoader(data, batch_sampler=optimiser.sampler(...)), "
                              "and not sampler=")
        return _Iterator(self, self._slots)


class _Iterator:
    """From where the training is to the end of the epoch."""

    def __init__(self, sampler: SlotSampler, slots: Slots) -> None:
        self._sampler, self._slots = sampler, slots
        at = slots.trained - sampler._begin
        self._order = sampler.order(at // sampler.rounds)
        self._round, self._at = at % sampler.rounds, slots.count
        self._first = slots.trained - self._round  # round of the training in which the epoch began
        self._sent: Dict[int, Tuple[int, int]] = {}  # what a DataLoader's processes fetch
        slots.horizon_of_given = (self._first + sampler.rounds - 1, slots.mine[-1])

    def __iter__(self) -> "_Iterator":
        return self

    def __next__(self) -> Batch:
        # A DataLoader asks for one more batch each time that it returns one, be it at the end or not: that one
        # is trained next, whichever is asked for.
        asks = self._who_asks()
        self._slots.prepare()
        s = self._sampler
        if self._round == s.rounds:
            raise StopIteration
        mine = self._slots.mine
        batch = s.batch(self._order, self._first, self._round, mine[self._at], self._slots)
        if asks is not None:
            self._sent[asks._send_idx] = batch.tag
        self._at += 1
        if self._at == len(mine):
            self._round, self._at = self._round + 1, 0
        return batch

    def _who_asks(self) -> Any:
        """The iterator of a DataLoader with processes, if that is who calls, be it through samplers of others that take from this one."""
        frame: Any = sys._getframe(2)
        for _ in range(12):
            if frame is None:
                break
            it = frame.f_locals.get("self")
            if isinstance(it, _MultiProcessingDataLoaderIter) and hasattr(it, "_send_idx") and hasattr(it, "_rcvd_idx"):
                self._slots.asks = Asks(weakref.ref(it), self._sent, Given.here(0, 0))
                return it
            frame = frame.f_back
        return None


class _Ahead:
    """What processes of a DataLoader fetch before it is wanted: this worker's slots as they are now. `tags` has
    (round, slot) of each batch that was asked for."""

    def __init__(self, sampler: SlotSampler, slots: Slots, order: torch.Tensor, first: int) -> None:
        self.tags: Deque[Tuple[int, int]] = collections.deque()
        self._sampler, self._slots, self._order, self._first = sampler, slots, order, first

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Batch]:
        s, begin = self._sampler, self._slots.count
        for round in range(self._slots.trained - self._first, s.rounds):
            for slot in self._slots.mine[begin:]:
                self.tags.append((self._first + round, slot))
                yield s.batch(self._order, self._first, round, slot)
            begin = 0


class SlotLoader:
    """Batches of this worker's slots, an epoch an iteration, as they are when each is wanted: made by the loader() of
    an optimiser with slots. Slots that others do now are dropped, and those that come in the middle of a round are fetched
    at once."""

    def __init__(self, training: "SlotTraining", sampler: SlotSampler, dataset: Any, options: Dict[str, Any]) -> None:
        self.sampler, self.dataset = sampler, dataset
        self._training, self._options = training, options

    def __len__(self) -> int:
        return len(self.sampler)

    @property
    def rounds(self) -> int:
        """Of an epoch."""
        return self.sampler.rounds

    @property
    def epoch(self) -> int:
        """The epoch in which the training is."""
        return self.sampler.epoch

    def __iter__(self) -> Iterator[Any]:
        t, s = self._training, self.sampler
        slots = t._with_slots("loader()")
        epoch = s.epoch
        t._begins()
        if s.epoch != epoch:  # the training went on meanwhile: has it come to its end?
            return
        first, order = s._begin + epoch * s.rounds, s.order(epoch)
        slots.horizon = first + s.rounds
        ahead, fetched = _Ahead(s, slots, order, first), None
        before: Optional[Tuple[int, int]] = None
        if self._options.get("num_workers", 0) > 0:
            fetched = iter(DataLoader(self.dataset, batch_sampler=ahead, **self._options))
        while s.epoch == epoch:
            if not slots.mine:
                t._idle()
                continue
            t._goes_on()
            want = (slots.trained, slots.next)
            if want == before and slots.given is not None:
                raise PBoxMismatch(
                    f"the batch of slot {want[1]} of round {want[0]} was taken from loader(), no step() has ended that slot, and the next one is taken: the model would be trained on "
                    "its samples twice, and never on others. Each batch is stepped before the next one is taken: leave none out (the loader begins where the "
                    "training is), and take none ahead; what fetches beside the training are processes (num_workers=)")
            before = want
            batch, found = None, False
            while fetched is not None and want in ahead.tags and not found:
                found = ahead.tags.popleft() == want
                batch = next(fetched)
            if not found:
                batch = self._fetch(s.batch(order, first, want[0] - first, want[1]))
            slots.prepare()
            slots.given, slots.asks = Given.here(*want), None
            yield batch

    def _fetch(self, indices: Batch) -> Any:
        collate = self._options.get("collate_fn") or default_collate
        batch = collate([self.dataset[i] for i in indices])
        if self._options.get("pin_memory"):
            batch = pin_memory(batch)
        return batch


def check_schedule(schedule: Any) -> None:
    """Raise for what follow() cannot step by itself."""
    if isinstance(schedule, torch.optim.lr_scheduler._LRScheduler) and not hasattr(schedule, "last_epoch"):
        raise PBoxInvalid(f"follow() takes a scheduler that counts its steps, and a {type(schedule).__name__} has no last_epoch: give follow() each of those in it")
    if not isinstance(schedule, torch.optim.lr_scheduler._LRScheduler) or isinstance(
            schedule, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise PBoxInvalid(f"follow() takes a scheduler whose step() has no arguments, and this is a {type(schedule).__name__}")


class SlotTraining:
    """What optimisers with slots have in common, that of one process too."""

    _slots: Optional[Slots] = None
    _stale: Optional[Stale] = None  # ahead=
    _of_round: List[Dict[str, Any]] = []  # values of param_groups, as the round in progress began with them
    _followers: Sequence[Any] = ()
    _steals = False
    defaults: Dict[str, Any]
    param_groups: List[Dict[str, Any]]

    def _with_slots(self, what: str) -> Slots:
        if self._slots is None:
            raise PBoxInvalid(f"{what} belongs to an optimiser with slots: pass slots=V when you make it")
        return self._slots

    def _begin_slot(self) -> None:
        """A step() ends a slot: raise if its batch is another's, or if it is of a round that began with other hyper-parameters."""
        assert self._slots is not None
        self._slots.check_given()
        self._check_hypers()

    def _check_hypers(self) -> None:
        assert self._slots is not None
        now = [{k: g[k] for k in self.defaults if k in g} for g in self.param_groups]
        if self._slots.count == 0 or not self._of_round:
            self._of_round = copy.deepcopy(now)
            return
        for i, (old, new) in enumerate(zip(self._of_round, now)):
            for name, value in new.items():
                if name in old and old[name] != value:
                    raise PBoxInvalid(
                        f"{name} of group {i} was {old[name]} in the first slot of this round, and is {value} now: a round "
                        f"has one value, and ends with slot {self._slots.mine[-1]} here. Call scheduler.step() once a "
                        "round: `if optimiser.round_ended: scheduler.step()`")

    def sampler(self, dataset: Any, batch_size: int, seed: int = 0, drop_last: bool = True, early: int = 0) -> SlotSampler:
        """A batch_sampler for torch's DataLoader: the micro-batches of the slots that this worker
        computes. From now on random numbers are a function of (seed, round, slot) as well.

        batch_size   samples of a whole round; each slot gets an equal part
        drop_last    False: the last round of an epoch is what is left, if it can be shared equally
        early        the program takes so many batches more before it trains the first of them (to copy them to a GPU, say); step() compares what was
                     taken last with the slot that it ends
        """
        if self._stale is not None:
            raise PBoxInvalid("sampler() does not see which parameters a slot is computed on, as ahead= needs it: take optimiser.loader()")
        if self._steals:
            raise PBoxInvalid("sampler() gives batches before it is known whose slots they are, as steal=True needs it: take optimiser.loader()")
        self._with_slots("sampler()").early = _checks.whole(early, "early", 1 << 20)
        return self._sampler(dataset, batch_size, seed, drop_last)

    def _sampler(self, dataset: Any, batch_size: int, seed: int, drop_last: bool) -> SlotSampler:
        _options.check_dataset(dataset)
        sampler = SlotSampler(self._with_slots("sampler()"), dataset, batch_size, seed, drop_last)
        self._sampler_made()
        return sampler

    def _sampler_made(self) -> None:
        """The slots have a sampler now."""

    def loader(self, dataset: Any, batch_size: int, seed: int = 0, drop_last: bool = True, **options: Any) -> SlotLoader:
        """Batches of the slots that this worker computes, as the plan says it when each is wanted (policy "reassign"; right for
        fixed shares, too). Each iteration is an epoch, or what is left of it. Arguments as of sampler(); options are
        torch's DataLoader's, such as num_workers, collate_fn and pin_memory."""
        for name in ("batch_sampler", "sampler", "shuffle"):
            if name in options:
                raise PBoxInvalid(f"loader() draws its batches by the slot: leave {name}= out")
        _options.check_loader(dataset, options)
        return SlotLoader(self, self._sampler(dataset, batch_size, seed, drop_last), dataset, options)

    @property
    def _is_newcomer(self) -> bool:
        """Has this worker come to a running job, and no slots yet?"""
        return False

    def follow(self, schedule: Any) -> Any:
        """A torch scheduler of this optimiser steps by itself from now on, once a round: also in rounds in which this worker has no slots,
        and up to where the training is, when this worker has come to a running job. Do not call its step(). Returns it."""
        check_schedule(schedule)
        self._check_follow()
        self._followers = [*self._followers, schedule]
        self._catch_up(1 if self._is_newcomer else 0)
        return schedule

    def _check_follow(self) -> None:
        self._with_slots("follow()")

    def _catch_up(self, less: int) -> None:
        """Schedulers that follow step to where the training is, less so many rounds."""
        for s in self._followers:
            while self._slots is not None and s.last_epoch < self._slots.trained - less:
                setattr(self, "_opt_called", True)  # by the other workers, and torch warns of a scheduler that steps first
                s.step()

    def _begins(self) -> None:
        """This worker is to compute: where it has come to a running job, it gets the model and its slots now."""

    def _goes_on(self) -> None:
        """The next slot begins: the model shows the parameters that it is computed on."""
        if self._stale is not None:
            self._push_waiting()
            if self._stale.show(self._stale.version_for(self._with_slots("ahead=").next)):
                self._shows()
            self._stale.slot_begins()

    def _push_waiting(self) -> None:
        """A round whose slots were all computed ahead goes, after what the program does between rounds."""

    def _shows(self) -> None:
        """The model has other parameters."""

    def _idle(self) -> None:
        raise AssertionError("fixed shares have a slot at least")

    @property
    def slot(self) -> int:
        """The slot of this worker whose micro-batch comes next."""
        self._with_slots("slot").asked = True
        self._begins()
        self._goes_on()
        return self._with_slots("slot").next

    @property
    def trained_rounds(self) -> int:
        """Rounds that the training has made, those before a checkpoint too."""
        self._with_slots("trained_rounds").asked = True
        return self._with_slots("trained_rounds").trained - (self._stale is not None and self._stale.waits)

    @property
    def round_ended(self) -> bool:
        """Has the last step() ended a round? Without slots each one does."""
        if self._stale is not None:
            return self._stale.ended
        return self._slots is None or self._slots.count == 0
