# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""How a worker of pbox_session.py joins: what it asked, and who has refused it (R9.3); and what it raises."""

import random
import time

import pbox_proto as proto

FIRST_RTO = 0.05
REFUSED, REFUSED_AGAIN, REFUSALS = 0.25, 0.5, 3  # R9.3
COOKIES, SPREE, SPREE_TIME = 16, 4, 0.01  # R9.3


class Timeout(Exception):
    """The deadline passed; the text says what was waited for."""


class BoxError(Exception):
    """The box answered ERROR."""

    def __init__(self, code, text="", detail=0):
        super().__init__(f"{proto.ERRORS.get(code, code)}: {text or 'no text'}")
        self.code, self.detail = code, detail


class ShutDown(Exception):
    """The box said that it stops (R8.4)."""


class Joining:
    """What was asked, and who has refused it (R9.3)."""

    def __init__(self):
        self.ids = []  # of the last two requests, the last one first
        self.cookies, self.tried, self.heard = [], 0, 0  # those that were tried are the first
        self.next_spree = 0.0
        self.refusal, self.kind, self.refusals = None, None, 0
        self.refused = False  # the last request was
        self.due, self.rto = 0.0, FIRST_RTO

    def retry(self, cookie):
        """One of those who answer may be the box: all RETRYs have the same chance to be kept."""
        if cookie in self.cookies:
            return
        self.heard += 1
        at = len(self.cookies)
        if at < COOKIES:
            self.cookies.append(cookie)
        else:
            at = random.randrange(self.heard)
            if at >= COOKIES:
                return
            if at < self.tried:
                self.tried -= 1
                self.cookies[at] = self.cookies[self.tried]
                at = self.tried
            self.cookies[at] = cookie
        self.due = self.due if self.refused else self.next_spree

    def refuse(self, header, kind, error):
        """Somebody who cannot prove anything."""
        if header.chunk != self.ids[0]:
            return
        if self.refused:  # one of those who answer this request is not the box
            self.refusals *= kind == self.kind
            return
        self.refusals = self.refusals + 1 if kind == self.kind else 1
        self.refusal, self.kind, self.refused = error, kind, True
        self.due = time.monotonic() + (REFUSED if self.refusals == 1 else REFUSED_AGAIN)
