"""ngram-simple: drafts what followed the last n tokens when they stood in this history before, and learns nothing.

Owns which occurrence is drafted from, through an exact index of the history. `ngram-map-k` drafts from the same place
and learns how long its drafts may be. Names and defaults as in llama.cpp (common/ngram-map.h, common/common.h).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pyspec.speculators.history import History
from pyspec.speculators.ngram_chains import continuation
from pyspec.speculators.ngram_lookup import NgramLookup, NgramLookupOptions

__all__ = ["NgramSimple", "NgramSimpleOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramSimpleOptions(NgramLookupOptions):
    """Length of what is looked up `size_n`, of a draft `size_m`, earlier occurrences needed `min_hits`.

    llama.cpp: --spec-ngram-simple-*.

    Raises:
        InvalidValueError: out of range.
    """


class NgramSimple(NgramLookup):
    """Speculator of one sequence: drafts from the latest earlier place where its last `size_n` tokens stood.

    Of the history alone, and of nothing else: verdicts change nothing. Where that place is so near that what followed
    it runs into the end of the history, the draft repeats that period. (llama.cpp searches the history anew each
    time, does not look at its first token, stops where the history ends, and then drafts nothing when fewer than
    `size_n` tokens are left or the history has fewer than `size_n + size_m + 3`; it reads `min_hits` and ignores it.)
    """

    name: ClassVar[str] = "ngram-simple"

    def __init__(self, options: NgramSimpleOptions | None = None) -> None:
        super().__init__(options or NgramSimpleOptions())

    def draft(self, history: History, n_max: int) -> Sequence[int]:
        """What followed the latest earlier occurrence; at most `n_max` tokens."""
        self._chains.follow(history)
        tokens = history.view()
        found = self._chains.find(tokens, self.options.min_hits) if n_max > 0 else None
        return [] if found is None else continuation(tokens, found[1], min(n_max, self.options.size_m))
