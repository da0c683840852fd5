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

_BELIEVED = 0.5
"""What of a promise is believed before the record is proven."""

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
        return self._is_won_back((ratio - 1.0) * (1.0 if self.n_judged >= _N_PROVEN else _BELIEVED))

    def wait(self, most: float, gap: int) -> int:
        """Tokens to wait with a probe, 0 for none.

        Args:
            most: times the tokens a second, if its drafts were always right.
            gap: tokens to wait where waiting makes it no less.
        """
        hope = _HOPE / (1 + self.n_judged) * (most - 1.0)
        if self._is_little or self._is_won_back(hope):
            return 0
        waits = [gap]
        for share, n in ((_SHARE, self.n_since), (hope, self.n_said + _N_LIKELY)):
            if share > self.of_token:  # else each more token adds more than it allows
                waits.append(math.ceil((self.decodes - share * n) / (share - self.of_token)))
        return max(1, min(waits))
