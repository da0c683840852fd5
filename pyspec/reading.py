"""Whether what a draft model must read before it can draft is worth the time.

Owns that weighing: of a draft that promises to pay, and of a probe that may find out. Values in, values out;
`pyspec.budgeted` knows what is promised and what was said.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Reading"]

_N_PROVEN = 16
"""Verdicts that prove a record."""

_SHARE = 0.015
"""Of the time of plain decoding that reading may take in any case."""

_N_LIKELY = 64
"""Tokens that are likely to come, beside as many as came so far."""

_BELIEVED, _RATIO = 0.5, 1.25
"""What of a promise is believed before the record is proven, and the least that must be promised then."""

_HOPE = 0.05
"""The chance of the first probe to find that drafts are as good as they can be; of later ones, the less."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a draft model must read, in decodes of one token of the target.

    Attributes:
        decodes: what that takes.
        of_token: of it, what each more token will add.
        n_said: tokens of the generation so far.
        n_since: tokens since the last probe, or of the generation.
        n_judged: verdicts on its drafts so far.
    """

    decodes: float
    of_token: float
    n_said: int
    n_since: int
    n_judged: int

    @property
    def _is_little(self) -> bool:
        return self.decodes <= _SHARE * self.n_since

    def _is_won_back(self, gain: float) -> bool:
        return self.decodes <= gain * (self.n_said + _N_LIKELY)

    def pays(self, ratio: float) -> bool:
        """For a draft that promises so many times the tokens a second."""
        if self._is_little:
            return True
        if self.n_judged >= _N_PROVEN:
            return self._is_won_back(ratio - 1.0)
        return ratio >= _RATIO and self._is_won_back(_BELIEVED * (ratio - 1.0))

    def wait(self, most: float, gap: int) -> int:
        """Tokens to wait with a probe, 0 for none.

        Args:
            most: times the tokens a second, if its drafts were always right.
            gap: tokens to wait where waiting makes it no less.
        """
        if self._is_little or self._is_won_back(_HOPE / (1 + self.n_judged) * (most - 1.0)):
            return 0
        if self.of_token >= 0.5 * _SHARE:
            return gap
        return math.ceil((self.decodes - _SHARE * self.n_since) / (_SHARE - self.of_token))
