"""How much time may go into thinking about drafts, and into the calls of one speculator.

Owns two accounts. Of all: tokens earn a small share of their time, drafts what they saved, and thinking about drafts is
paid from it. Of one speculator: what its drafts saved against what its calls took. Values in, values out;
`pyspec.budgeted` knows what was saved and spent.
"""

from __future__ import annotations

import math
from collections import deque

__all__ = ["Allowance", "CallAccount"]

_AT_FIRST = 64
"""Tokens whose share may be spent in advance when a generation starts."""

_MOST = 24.0
"""What can be saved up, for the rounds without a draft between two that gain."""

_LONGEST_REST = 128
"""Tokens, for a thought of up to one decode, and so many times that for a longer one."""

_PATIENCE = 8.0
"""Decodes that the calls of a speculator may lose before it rests: what is learned in the meantime is worth some."""

_N_THOUGHTS = 32
_OUTLIER = 2.0
"""What took more than so many times the longest of the last thoughts met a busy machine, and was no longer thought."""


class Allowance:
    """An account in decodes of one token; below zero, there is a rest.

    Args:
        share: of the time of plain decoding that may be spent where drafts gain nothing.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._thoughts: deque[float] = deque(maxlen=_N_THOUGHTS)
        self.begin()

    def begin(self) -> None:
        """A generation starts. The first thought is free: it reads the prompt, which no rest would save."""
        self._balance = _AT_FIRST * self._share
        self._paid_at: int | None = None

    def gain(self, n_history: int, saved: float, thought: float) -> None:
        """A round with a draft saved so much against plain decoding, and thinking about it took `thought`.

        A loss takes what was saved up, but is no reason to rest, which would save no draft.

        Args:
            n_history: tokens before the round.
            saved: decodes, less than 0 where it was slower.
            thought: decodes.
        """
        net = saved - self._believed(n_history, thought)
        self._balance = min(max(self._balance + net, min(self._balance, 0.0)), _MOST)

    def spend(self, n_history: int, thought: float) -> int:
        """Thinking without a draft, at a history of `n_history` tokens, took so much; for how many tokens to rest."""
        believed = self._believed(n_history, thought)
        balance = self._balance - believed
        self._balance = max(balance, -_LONGEST_REST * self._share * max(1.0, believed))
        return math.ceil(-self._balance / self._share) if balance < 0.0 else 0

    def _believed(self, n_history: int, thought: float) -> float:
        """What of a thought is to be paid, after earning what the tokens before it bring."""
        paid_at, self._paid_at = self._paid_at, n_history
        if paid_at is None:
            return 0.0
        self._balance = min(self._balance + self._share * (n_history - paid_at), _MOST)
        longest = max(self._thoughts, default=0.0)
        believed = min(thought, _OUTLIER * longest if longest else max(self._balance, 0.0))
        self._thoughts.append(believed)
        return believed


class CallAccount:
    """What the drafts of one speculator saved against what its calls took, in decodes of one token.

    Args:
        share: of the time of plain decoding that its calls may take once they have lost more than they may.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._balance = _PATIENCE

    def settle(self, saved: float, call: float) -> int:
        """A call took so much and its draft saved so much; for how many tokens not to ask again."""
        balance = min(self._balance + saved - call, _MOST)
        self._balance = max(balance, 0.0)
        return math.ceil(min(-balance / self._share, _LONGEST_REST * max(1.0, call))) if balance < 0.0 else 0
