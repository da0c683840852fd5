"""How much time may go into thinking about drafts that are not decoded after all.

Owns one account: plain tokens earn a small share of their time, drafts that paid a larger share of what they gained; a
round without a draft takes from it what it spent. Values in, values out; `pyspec.drafting` knows what was spent.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median

__all__ = ["Allowance"]

_AT_FIRST = 64
"""Tokens whose share may be spent in advance when a generation starts."""

_GAIN_SHARE = 0.25
_MOST = 1.0
"""What can be saved up: some tens of calls where a decode takes half a millisecond."""

_LONGEST_REST = 128

_N_SPENT = 8
_OUTLIER = 2.0
"""A round that took more than so many times the median of the last ones met a busy machine, not a longer thought."""


class Allowance:
    """An account in decodes of one token; below zero, there is a rest.

    Args:
        share: of the time of plain decoding that may be spent where drafts gain nothing.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._spent: deque[float] = deque(maxlen=_N_SPENT)
        self.begin()

    def begin(self) -> None:
        """A generation starts. Its first round is free: it reads the prompt, which no rest would save."""
        self._balance = _AT_FIRST * self._share
        self._paid_at: int | None = None

    def gain(self, decodes: float) -> None:
        """A draft saved so much against plain decoding."""
        if decodes > 0.0:
            self._balance = min(self._balance + _GAIN_SHARE * decodes, _MOST)

    def spend(self, n_history: int, decodes: float) -> int:
        """A round without a draft, at a history of `n_history` tokens, took so much; returns for how many to rest."""
        paid_at, self._paid_at = self._paid_at, n_history
        if paid_at is None:
            return 0
        self._spent.append(decodes)
        earned = self._share * (n_history - paid_at)
        spent = min(decodes, _OUTLIER * median(self._spent))
        balance = min(self._balance + earned, _MOST) - spent
        self._balance = max(balance, -_LONGEST_REST * self._share)
        return math.ceil(-self._balance / self._share) if balance < 0.0 else 0
