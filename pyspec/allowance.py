"""How much time may go into thinking about drafts that are not decoded after all.

Owns one account: plain tokens earn a small share of their time, drafts that paid what they gained; a round without a
draft takes from it what it spent. Values in, values out; `pyspec.budgeted` knows what was spent.
"""

from __future__ import annotations

import math

__all__ = ["Allowance"]

_AT_FIRST = 64
"""Tokens whose share may be spent in advance when a generation starts."""

_MOST = 8.0
"""What can be saved up, for the rounds without a draft between two that gain."""

_LONGEST_REST = 128
_FADE = 0.25
_OUTLIER = 2.0
"""A round that took more than so many times what they take met a busy machine, not a longer thought."""


class Allowance:
    """An account in decodes of one token; below zero, there is a rest.

    Args:
        share: of the time of plain decoding that may be spent where drafts gain nothing.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._usual = 0.0  # what a round spends
        self.begin()

    def begin(self) -> None:
        """A generation starts. Its first round is free: it reads the prompt, which no rest would save."""
        self._balance = _AT_FIRST * self._share
        self._paid_at: int | None = None

    def gain(self, decodes: float) -> None:
        """A draft, thinking about it included, saved so much against plain decoding.

        Less than nothing is a loss: it takes what was saved up, but is no reason to rest, which saves no drafts.
        """
        at_least = min(self._balance, 0.0)
        self._balance = min(max(self._balance + decodes, at_least), _MOST)

    def spend(self, n_history: int, decodes: float) -> int:
        """A round without a draft, at a history of `n_history` tokens, took so much; returns for how many to rest."""
        paid_at, self._paid_at = self._paid_at, n_history
        if paid_at is None:
            return 0
        spent = min(decodes, _OUTLIER * self._usual) if self._usual else decodes
        self._usual += _FADE * (spent - self._usual) if self._usual else spent
        balance = min(self._balance + self._share * (n_history - paid_at), _MOST) - spent
        self._balance = max(balance, -_LONGEST_REST * self._share)
        return math.ceil(-self._balance / self._share) if balance < 0.0 else 0
