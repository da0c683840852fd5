"""What plain decoding costs where nobody drafts, seen by a drafting that disturbs it.

Owns which decodes tell that, and what thinking and wide decodes add to a plain decode behind them. Leaves the costs by
width to `pyspec.budget`, and when nobody thinks to `pyspec.budgeted`.
"""

from __future__ import annotations

from pyspec.budget import CostModel

__all__ = ["N_CALM", "Undisturbed"]

N_CALM = 4
"""Plain decodes on end of which the last two are as fast as in plain decoding: each of the first may build a graph."""

_FAST_S = 0.01
"""Where a plain decode takes longer, what disturbs it does not show."""

_LOOK_EVERY = 128
"""Decodes without an undisturbed one."""

_SEEN_EVERY = 8
_LIGHT = 0.02  # decodes of thinking that disturb nothing
_FADE, _FORGET = 0.2, 0.9
_TELLING = (N_CALM - 1, N_CALM)


class Undisturbed:
    """Tells a cost model about decodes: about plain ones only where they are what they would be without drafts.

    Thinking about drafts slows the decode behind it down, and so does a decode of another width, whose graph is not the
    next one's. Were such plain decodes taken for plain decoding, drafts would seem to gain more than they do.
    """

    def __init__(self, cost: CostModel) -> None:
        self._cost = cost
        self._before = 1  # width of the last decode
        self._n_calm = 0  # undisturbed plain decodes up to now
        self._n_since = _LOOK_EVERY  # decodes since one was seen that tells
        self._after = self._disturbed = 0.0

    def begin(self) -> None:
        """A generation starts, after a prompt."""
        self._before, self._n_calm = 1, 0

    @property
    def after(self) -> float:
        """Seconds that a plain decode behind a wide one takes longer, times how often one comes there."""
        return max(0.0, self._after) if self._shows else 0.0

    @property
    def disturbed(self) -> float:
        """Seconds that a plain decode behind thinking takes longer."""
        return max(0.0, self._disturbed) if self._shows else 0.0

    @property
    def is_wanted(self) -> bool:
        """Whether it is time for `N_CALM` plain decodes that nothing disturbs."""
        return self._n_since >= _LOOK_EVERY and self._shows

    @property
    def _shows(self) -> bool:
        return self._cost.is_known and self._cost.plain < _FAST_S

    def skips(self) -> bool:
        """Count a plain decode where nobody thought about drafts; False where it is to be observed instead."""
        skips = self._n_calm % _SEEN_EVERY != 0 and self._n_calm + 1 not in _TELLING
        self._n_calm += skips
        return skips

    def observe(self, width: int, seconds: float, thought_s: float) -> None:
        """A decode of `width` tokens took so many `seconds`, after thinking about drafts for `thought_s`."""
        before, self._before = self._before, width
        if not self._shows:
            self._cost.observe(width, seconds)
            return
        plain = self._cost.plain
        calm = width == 1 and thought_s <= _LIGHT * plain
        self._n_calm = self._n_calm + 1 if calm else 0
        self._n_since += 1
        more = min(max(seconds - plain, -plain), plain) if width == 1 else 0.0
        if before > 1:
            self._after += _FADE * (more - self._after)
        elif width == 1 and not calm:
            self._disturbed += _FADE * (more - self._disturbed)
        if self._n_calm in _TELLING or (self._n_calm > N_CALM and self._n_calm % _SEEN_EVERY == 1):
            self._n_since = 0
            self._after *= _FORGET  # no wide decode tells about it
        elif width == 1:
            return
        self._cost.observe(width, seconds)
