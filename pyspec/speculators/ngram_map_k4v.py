"""ngram-map-k4v: drafts what most often followed the last n tokens, as far as their earlier occurrences agree.

Owns the count of what followed and the choice among it, through an exact index of the history and learned draft
lengths. Names and defaults as in llama.cpp (common/ngram-map.h, with values); differences are told at the class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pyspec.speculators.history import History, Tokens
from pyspec.speculators.ngram_chains import continuation
from pyspec.speculators.ngram_lookup import LearnedLookup, NgramLookupOptions

__all__ = ["N_LATEST", "N_VALUES", "NgramMapK4v", "NgramMapK4vOptions"]

N_VALUES = 4  # different continuations that count, as in llama.cpp
N_LATEST = 32  # occurrences that count: bounds the time of a draft
_MAJORITY = 2  # so many times as often as all others together


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramMapK4vOptions(NgramLookupOptions):
    """Key length `size_n`, value (draft) length `size_m`, earlier occurrences needed `min_hits`.

    llama.cpp: --spec-ngram-map-k4v-*.

    Raises:
        InvalidValueError: out of range.
    """


class NgramMapK4v(LearnedLookup):
    """Speculator of one sequence: its last `size_n` tokens are the key, what followed it before are the values.

    A value is the `size_m` tokens after an occurrence of the key, continued as a period where the history ends before
    them. The latest 32 occurrences count, and of their values the four met first, latest first. The most frequent
    value is drafted (the later one of two), as far as values that begin like it are at least twice as frequent as all
    others: wholly where it dominates, up to where the values part otherwise, not at all where they differ at once.

    Of the history alone: a new `begin` starts from nothing but the learned lengths, of keys with a value each, which
    follow `draft_lengths`. (llama.cpp drafts a value wholly or not at all, and then takes the tokens from the
    occurrence that it found and not from the value that it chose; it wants `size_m` tokens after an occurrence,
    counts only occurrences up to the one it found, that one again each time, counts rounds as `min_hits`, and only
    shortens.)
    """

    name: ClassVar[str] = "ngram-map-k4v"

    def __init__(self, options: NgramMapK4vOptions | None = None) -> None:
        options = options or NgramMapK4vOptions()
        super().__init__(options, n_key=options.size_n + options.size_m)

    def draft(self, history: History, n_max: int) -> Sequence[int]:
        """The most frequent value of the key, as far as it dominates; at most `n_max` tokens."""
        self._open_key = None
        self._chains.follow(history)
        tokens, min_hits = history.view(), self.options.min_hits
        if n_max <= 0:
            return []
        key, ends = self._chains.find_all(tokens, max(N_LATEST, min_hits))
        if len(ends) < min_hits:
            return []
        value, n_agreed = _dominant(self._count(tokens, ends[:N_LATEST]))
        if n_agreed == 0:
            return []
        self._open_key = key + value
        n_draft = min(n_max, n_agreed, self._lengths.get(self._open_key))
        draft: list[int] = np.frombuffer(value, np.int32, n_draft).tolist()
        return draft

    def _count(self, tokens: Tokens, ends: list[int]) -> dict[bytes, int]:
        """How often each value followed, the latest first; a fifth one and those after it do not count."""
        size_m = self.options.size_m
        counts: dict[bytes, int] = {}
        for end in ends:
            if end + size_m <= len(tokens):
                value = tokens[end : end + size_m].tobytes()
            else:
                value = np.array(continuation(tokens, end, size_m), np.int32).tobytes()
            if value in counts:
                counts[value] += 1
            elif len(counts) < N_VALUES:
                counts[value] = 1
        return counts


def _dominant(counts: dict[bytes, int]) -> tuple[bytes, int]:
    """The most frequent value, the first of several, and how many of its tokens dominate."""
    best = max(counts, key=counts.__getitem__)
    n_alike, n_others = counts[best], sum(counts.values()) - counts[best]
    if n_alike >= _MAJORITY * n_others:
        return best, len(best) // 4
    others = ((_n_common(best, value), n) for value, n in counts.items() if value != best)
    for n_common, n in sorted(others, reverse=True):
        n_alike, n_others = n_alike + n, n_others - n
        if n_alike >= _MAJORITY * n_others:
            return best, n_common
    raise AssertionError("all values together dominate")


def _n_common(one: bytes, other: bytes) -> int:
    """Tokens that two different values have in common at their start."""
    return int((np.frombuffer(one, np.int32) != np.frombuffer(other, np.int32)).argmax())
