"""An index of one history: for each key of n tokens, where it occurred, latest first.

Owns the hash chains (a head per slot, a link per position) and how far the history was read; the tokens stay with
the history and are passed in. Leaves to the speculator what to draft from an occurrence.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyspec.speculators.history import History, Tokens
from pyspec.speculators.rolling_hash import RollingHash, sort_by_slot

__all__ = ["N_SLOTS", "N_STRANGERS_MAX", "NgramChains", "continuation"]

N_SLOTS = 262_144  # as llama.cpp's key map (common/ngram-map.h)
_CHUNK = 65_536
_BULK = 64  # from so many new tokens on, numpy is faster than the loop
_CAPACITY_MIN = 1024
N_STRANGERS_MAX = 256  # strangers in a chain before a search gives up: bounds the worst case


class NgramChains:
    """Occurrences by their end: the position of the token that followed the key. 0 ends a chain.

    `n_seen` tokens have been read; `slot` is that of the last n of them, None while there are fewer. That
    last key is not in its chain yet: nothing has followed it.
    """

    __slots__ = ("_epoch", "_head_array", "_heads", "_link_array", "_links", "hash", "n_seen", "slot")

    _link_array: NDArray[np.int32]
    _links: memoryview[int]
    slot: int | None

    def __init__(self, n: int, *, n_slots: int = N_SLOTS) -> None:
        self.hash = RollingHash(n, n_slots)
        self._head_array: NDArray[np.int32] = np.zeros(n_slots, np.int32)
        self._heads: memoryview[int] = memoryview(self._head_array)  # type: ignore[arg-type]
        self.n_seen = 0
        self._allocate(_CAPACITY_MIN)
        self.slot = None
        self._epoch: int | None = None

    def _allocate(self, capacity: int) -> None:
        links = np.zeros(capacity, np.int32)
        links[: self.n_seen] = self._link_array[: self.n_seen] if self.n_seen else 0
        self._link_array = links
        self._links = memoryview(links)  # type: ignore[arg-type]

    @property
    def nbytes(self) -> int:
        """Bytes of heads and links."""
        return self._head_array.nbytes + self._link_array.nbytes

    def clear(self) -> None:
        """Forget every occurrence."""
        self._head_array.fill(0)
        self.n_seen = 0
        self.slot = None
        self._epoch = None
        self._allocate(_CAPACITY_MIN)

    def begin(self, tokens: Tokens) -> None:
        """Index `tokens` [n_tokens] alone, forgetting the history before them."""
        self.clear()
        self.read_all(tokens)

    def follow(self, history: History) -> None:
        """Index what `history` has more than was seen, or all of it when it was cut in between."""
        epoch, n_new = history.epoch, len(history) - self.n_seen
        if n_new < 0 or self._epoch not in (None, epoch):
            self.clear()
        self._epoch = epoch
        if self.slot is None or n_new >= _BULK:
            self.read_all(history.view())
        elif n_new:
            self.read(history.tail(self.hash.n + n_new).tolist())

    def read_all(self, tokens: Tokens) -> None:
        """Index what `tokens`, the whole history [n_tokens], has more than was seen; in bulk."""
        n, length = self.hash.n, len(tokens)
        if length > len(self._links):
            self._allocate(2 * length)
        # keys that end at n, n + 1, ...: the first ones not yet linked begin n tokens before
        for start in range(max(0, self.n_seen - n), length - n, _CHUNK):
            stop = min(start + _CHUNK, length - n)
            slots, positions, is_last = sort_by_slot(self.hash.slots(tokens[start : stop + n - 1]))
            ends = (positions + (start + n)).astype(np.int32)
            is_first = np.empty(len(slots), np.bool_)
            is_first[:1] = True
            is_first[1:] = is_last[:-1]
            links = np.empty(len(slots), np.int32)
            links[1:] = ends[:-1]
            links[is_first] = self._head_array[slots[is_first]]
            self._link_array[ends] = links
            self._head_array[slots[is_last]] = ends[is_last]
        self.n_seen = length
        self.slot = self.hash.slot(tokens[length - n :].tolist()) if length >= n else None

    def read(self, recent: list[int]) -> None:
        """The same for few tokens: `recent` are the last n already seen and the new ones."""
        assert self.slot is not None, "a key precedes the new tokens"
        rolling, slot, end = self.hash, self.slot, self.n_seen
        factor, leaving_factor, mask, n = (rolling.factor, rolling.leaving_factor, rolling.mask, rolling.n)
        if end + len(recent) - n > len(self._links):
            self._allocate(2 * (end + len(recent) - n))
        heads, links = self._heads, self._links
        for entering, leaving in zip(recent[n:], recent, strict=False):
            links[end] = heads[slot]
            heads[slot] = end
            end += 1
            slot = (slot * factor + entering - leaving * leaving_factor) & mask
        self.slot, self.n_seen = slot, end

    def find(self, tokens: Tokens, min_hits: int) -> tuple[bytes, int] | None:
        """The last key of `tokens` (all of them seen) and the end of its latest earlier occurrence.

        None when it occurred fewer than `min_hits` times before. Cost grows with `min_hits`.
        """
        key, ends = self.find_all(tokens, min_hits)
        return (key, ends[0]) if len(ends) == min_hits else None

    def find_all(self, tokens: Tokens, n_max: int) -> tuple[bytes, list[int]]:
        """The last key of `tokens` (all of them seen) and the ends of its latest `n_max` earlier occurrences.

        Latest first; fewer where there are fewer, or where too many other keys share the slot.
        """
        ends: list[int] = []
        end = self._heads[self.slot] if self.slot is not None else 0
        if not end:
            return b"", ends
        n, links, n_strangers = self.hash.n, self._links, 0
        key = tokens[len(tokens) - n :].tobytes()
        while end:
            if tokens[end - n : end].tobytes() == key:
                ends.append(end)
                if len(ends) == n_max:
                    break
            elif n_strangers == N_STRANGERS_MAX:
                break
            else:
                n_strangers += 1
            end = links[end]
        return key, ends


def continuation(tokens: Tokens, end: int, n_tokens: int) -> list[int]:
    """The `n_tokens` that followed position `end` of `tokens`, the rest from `end` on repeated where it is shorter."""
    followed: list[int] = tokens[end : end + n_tokens].tolist()
    if len(followed) < n_tokens:
        followed = (followed * (n_tokens // len(followed) + 1))[:n_tokens]
    return followed
