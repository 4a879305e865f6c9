# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Options that are passed on, and datasets, checked by name where they are given."""

import difflib
import inspect
from typing import Any, Callable, Dict

from torch.utils.data import DataLoader, IterableDataset

from ..errors import PBoxInvalid


def check(options: Dict[str, Any], takes: Callable[..., Any], what: str) -> None:
    """Raise for the first option that `takes` has no argument for."""
    known = [n for n in inspect.signature(takes).parameters if n != "self"]
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise PBoxInvalid(f"{what} has no option {name}=" + (f": is it {near[0]}=?" if near else f". There are {', '.join(known)}"))


def check_dataset(dataset: Any) -> None:
    """What is drawn by number has a length and an entry for each number."""
    if isinstance(dataset, IterableDataset) or not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise PBoxInvalid(f"the dataset is a {type(dataset).__name__}, which has no length or no entries by number: the batch of a slot is drawn by number, so that "
                          "any worker can compute it. Take a dataset with __len__ and __getitem__, or draw batches yourself by optimiser.slot")


def check_loader(dataset: Any, options: Dict[str, Any]) -> None:
    """Raise for what torch's DataLoader would not take; without processes it is not made, and would say nothing."""
    check(options, DataLoader.__init__, "loader()")
    try:
        DataLoader(dataset, batch_sampler=[[0]], **options)
    except (TypeError, ValueError) as e:
        raise PBoxInvalid(f"loader(): {e}") from e
