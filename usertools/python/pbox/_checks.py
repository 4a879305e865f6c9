# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Arguments that go to C, checked by name before anything is sent.

ctypes refuses a value of another type when the call is made, and cuts a number that is too large, or a
text with a NUL, without a word.
"""

import operator
from typing import Any, Optional

from .errors import PBoxInvalid

U32 = (1 << 32) - 1
INT = (1 << 31) - 1


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        return f"a {type(value).__name__} of very many digits"
    return text if len(text) <= 80 else text[:80] + "..."


def whole(value: Any, what: str, high: int, low: int = 0) -> int:
    """An integer of any kind that is in the range, as Python's own."""
    try:
        n = operator.index(value)
    except TypeError:
        raise PBoxInvalid(f"{what} is {_shown(value)}: needed is a whole number, {low} to {high}") from None
    if not low <= n <= high:
        raise PBoxInvalid(f"{what} is {_shown(n)}: needed is {low} to {high}")
    return n


def real(value: Any, what: str, low: Optional[float] = None, high: Optional[float] = None) -> float:
    """A number of any kind."""
    try:
        x = float(value) if not isinstance(value, (str, bytes, bytearray)) else None
    except (TypeError, ValueError, OverflowError, RuntimeError):  # a tensor of several elements, one too large
        x = None
    if x is None:
        raise PBoxInvalid(f"{what} is {_shown(value)}: needed is a number")
    if low is not None and high is not None and not low <= x <= high:  # NaN is not
        raise PBoxInvalid(f"{what} is {x:g}: needed is {low:g} to {high:g}")
    return x


def text(value: Any, what: str) -> bytes:
    """As C sees it: up to its first NUL, so there must be none."""
    if not isinstance(value, str):
        raise PBoxInvalid(f"{what} is {_shown(value)}: needed is a string")
    if "\0" in value:
        raise PBoxInvalid(f"{what} has a NUL in it, after {len(value.split(chr(0))[0])} characters: leave it out")
    try:
        return value.encode()
    except UnicodeEncodeError as e:
        raise PBoxInvalid(f"{what} is not a text that UTF-8 has ({e})") from None
