"""ngram-map-k: drafts what followed the last n tokens when they stood in this history before.

Owns which occurrence is drafted from, through an exact index of the history and learned draft lengths.
Names and defaults as in llama.cpp (common/ngram-map.h, key-only mode); differences are told at the class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pyspec.speculators.history import History
from pyspec.speculators.ngram_chains import continuation
from pyspec.speculators.ngram_lookup import LearnedLookup, NgramLookupOptions

__all__ = ["NgramMapK", "NgramMapKOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramMapKOptions(NgramLookupOptions):
    """Key length `size_n`, draft length `size_m`, earlier occurrences needed `min_hits`.

    Raises:
        InvalidValueError: out of range.
    """


class NgramMapK(LearnedLookup):
    """Speculator of one sequence: its last `size_n` tokens are the key, the draft is what followed it.

    Of the history alone: a new `begin` starts from nothing but the learned lengths. Where the latest
    occurrence is so near that its continuation runs into the end of the history, the draft repeats that
    period.

    A key whose draft was accepted in part drafts that many tokens next time, at least one; full acceptance
    doubles the length again, up to `size_m`. (llama.cpp only shortens, wants `size_m` tokens after an
    occurrence, may take an older one, and ignores `min_hits` in this mode.) The 1,024 latest shortened keys
    are remembered.
    """

    name: ClassVar[str] = "ngram-map-k"

    def __init__(self, options: NgramMapKOptions | None = None) -> None:
        options = options or NgramMapKOptions()
        super().__init__(options, n_key=options.size_n)

    def draft(self, history: History, n_max: int) -> Sequence[int]:
        """What followed the latest earlier occurrence of the key; at most `n_max` tokens."""
        self._open_key = None
        self._chains.follow(history)
        tokens = history.view()
        if n_max <= 0:
            return []
        found = self._chains.find(tokens, self.options.min_hits)
        if found is None:
            return []
        self._open_key, end = found
        return continuation(tokens, end, min(n_max, self._lengths.get(self._open_key)))
