"""ngram-map-k4v: drafts what most often followed the last n tokens, as far as their earlier occurrences agree.

Owns the count of what followed and the choice among it, through an exact index of the history and learned draft
lengths. Names and defaults as in llama.cpp (common/ngram-map.h, with values); differences are told at the class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pyspec.config import int_between, validate
from pyspec.errors import StateError
from pyspec.speculators.draft_lengths import DraftLengths
from pyspec.speculators.history import History, Tokens, as_tokens
from pyspec.speculators.ngram_chains import NgramChains, continuation
from pyspec.speculators.protocol import check_verdict

__all__ = ["N_LATEST", "N_VALUES", "NgramMapK4v", "NgramMapK4vOptions"]

N_VALUES = 4  # different continuations that count, as in llama.cpp
N_LATEST = 32  # occurrences that count: bounds the time of a draft
_MAJORITY = 2  # so many times as often as all others together


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramMapK4vOptions:
    """Key length `size_n`, value (draft) length `size_m`, earlier occurrences needed `min_hits`.

    llama.cpp: --spec-ngram-map-k4v-*.

    Raises:
        InvalidValueError: out of range.
    """

    size_n: int = 12
    size_m: int = 48
    min_hits: int = 1

    _CHECKS: ClassVar[dict[str, Any]] = {
        "size_n": int_between(1, 1024),
        "size_m": int_between(1, 1024),
        "min_hits": int_between(1, 1024),
    }

    def __post_init__(self) -> None:
        validate(self, self._CHECKS)


class NgramMapK4v:
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

    name = "ngram-map-k4v"

    def __init__(self, options: NgramMapK4vOptions | None = None) -> None:
        self.options = options or NgramMapK4vOptions()
        self._chains = NgramChains(self.options.size_n)
        self._lengths = DraftLengths(self.options.size_n + self.options.size_m, self.options.size_m)
        self._open_key: bytes | None = None

    @property
    def match_length(self) -> int:
        """Tokens that a draft's source agrees with."""
        return self.options.size_n

    @property
    def nbytes(self) -> int:
        """Bytes held: 1 MiB, 4 to 8 a token of history, and the shortened keys (at most 1,024)."""
        return self._chains.nbytes + self._lengths.nbytes

    def begin(self, tokens: Tokens) -> None:
        """Index the prompt, forgetting the history before it."""
        self._open_key = None
        self._chains.begin(as_tokens(tokens))

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

    def accept(self, n_drafted: int, n_accepted: int, *, own: bool) -> None:
        """Learn from the verdict on one's own draft how long the next one of the same key and value may be."""
        check_verdict(n_drafted, n_accepted)
        key, self._open_key = self._open_key, None
        if own and key is not None and n_drafted > 0:
            self._lengths.judge(key, n_drafted, n_accepted)

    def get_state(self) -> dict[str, Any]:
        """The shortened keys with their values [n_keys, size_n + size_m], and their lengths [n_keys]."""
        return {"kind": self.name, **self._lengths.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Draft as the saved speculator did, from the history given to the next `draft`.

        Raises:
            StateError: of another kind, `size_n` or `size_m`, or damaged; nothing was changed.
        """
        try:
            if state["kind"] != self.name:
                raise StateError(reason=f"of speculator {state['kind']!r}, not {self.name!r}")
        except (KeyError, TypeError) as error:
            raise StateError(reason=f"no {self.name} state: {error!r}") from error
        self._lengths.set_state(state)
        self._open_key = None
        self._chains.clear()


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
