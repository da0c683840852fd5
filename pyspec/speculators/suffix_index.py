"""An index of one growing text: where did its last tokens, or those of another text, occur before?

Owns the tokens and the order of all their ends by what stands before each (a suffix array of the reversed text, kept in
order as it grows). Leaves to the speculator what to make of the occurrences.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pyspec.speculators.history import Tokens
from pyspec.speculators.suffix_sort import Ends, sorted_ends

__all__ = ["END", "SuffixIndex"]

END = -1
"""Closes a text inside an index of several: no match reaches over it."""

_CAPACITY_MIN = 1024
_NEAR = 8  # places to both sides that are tried before all
_SORT_RATIO = 16  # inserting one end costs as much as sorting so many,
_SORT_FIXED = 512  # and sorting at all as much as sorting so many more


class SuffixIndex:
    """Ends of a text, sorted by their contexts: the tokens before, last one first, at most `max_depth` of them.

    All occurrences of some tokens end side by side in this order, and the longest earlier occurrence of a context
    stands next to where the context belongs. Searching costs O(log n), reading a token the same and a shift of 4-byte
    integers; many tokens at once are sorted in bulk.

    An end that nothing follows is not in the order: the end of the text, and those before an `END`. Contexts are in
    order up to their first `END`; how they stand beyond it means nothing.
    """

    __slots__ = ("_buffer", "_cells", "_depth_bytes", "_order", "_place", "max_depth", "n_tokens")

    _buffer: bytearray
    _cells: NDArray[np.uint32]
    _place: int | None

    def __init__(self, max_depth: int) -> None:
        self.max_depth = max_depth
        self._depth_bytes = 4 * max_depth
        self.clear()

    def clear(self) -> None:
        """Forget the text."""
        self.n_tokens = 0
        self._place = None  # in the order, of the end of the text; None: to be searched
        self._order = array("i")
        self._allocate(_CAPACITY_MIN)

    def _allocate(self, capacity: int) -> None:
        # big-endian and last token first: comparing bytes compares contexts
        buffer = bytearray(4 * capacity)
        cells: NDArray[np.uint32] = np.frombuffer(buffer, ">u4")
        if self.n_tokens:
            cells[-self.n_tokens :] = self._cells[-self.n_tokens :]
        self._buffer, self._cells = buffer, cells

    @property
    def nbytes(self) -> int:
        """Bytes of tokens and order: at most 24 a token, and some KiB."""
        return sys.getsizeof(self._buffer) + sys.getsizeof(self._order)

    def tokens(self) -> Tokens:
        """A copy of the text. Shape [n_tokens]."""
        backwards = self._cells[len(self._cells) - self.n_tokens :]
        return (backwards[::-1].astype(np.int64) - 1).astype(np.int32)

    # ------------------------------------------------------------- changing

    def extend(self, tokens: Tokens) -> None:
        """Append `tokens` [n_new]."""
        n_old, n_new = self.n_tokens, len(tokens)
        if not n_new:
            return
        n = n_old + n_new
        if n > len(self._cells):
            self._allocate(2 * n)
        self.n_tokens = n
        if n_new * _SORT_RATIO > n + _SORT_FIXED:
            start = len(self._cells) - n
            self._cells[start : start + n_new] = tokens[::-1].view(np.uint32) + np.uint32(1)
            self._sort()
            return
        at = len(self._buffer) - 4 * n
        self._buffer[at : at + 4 * n_new] = b"".join([(t + 1).to_bytes(4, "big") for t in tokens.tolist()[::-1]])
        order, place, context = self._order, self._place, self._contexts(self._depth_bytes)
        for end, follower in enumerate(tokens.tolist(), n_old):
            if end and follower != END:
                order.insert(bisect_right(order, context(end), key=context) if place is None else place, end)
            place = None
        self._place = None

    def truncate(self, n_tokens: int) -> None:
        """Forget everything after the first `n_tokens`."""
        if n_tokens >= self.n_tokens:
            return
        self.n_tokens = n_tokens
        if len(self._cells) > max(_CAPACITY_MIN, 4 * n_tokens):
            self._allocate(max(_CAPACITY_MIN, 2 * n_tokens))
        ends = np.array(self._order, np.int32)
        self._set_order(ends[ends < n_tokens])

    def drop(self, n_first: int) -> None:
        """Forget the first `n_first` tokens; the first one left must be an `END`."""
        tokens, ends = self.tokens()[n_first:], np.array(self._order, np.int32)
        self.n_tokens = 0
        self._allocate(max(_CAPACITY_MIN, 2 * len(tokens)))
        self.n_tokens = len(tokens)
        self._cells[len(self._cells) - len(tokens) :] = tokens[::-1].view(np.uint32) + np.uint32(1)
        self._set_order(ends[ends > n_first] - np.int32(n_first))

    def _sort(self) -> None:
        tokens = self.tokens()
        ends = sorted_ends(tokens, self.max_depth)
        self._set_order(ends[tokens[ends] != END])

    def _set_order(self, ends: Ends) -> None:
        self._order = array("i", ends.tobytes())
        self._place = None

    # ------------------------------------------------------------- asking

    def _contexts(self, n_bytes: int) -> Callable[[int], bytearray]:
        """What gives the first `n_bytes` of an end's context, until the text changes."""
        buffer, size = self._buffer, len(self._buffer)
        return lambda end: buffer[size - 4 * end : size - 4 * end + n_bytes]

    def context(self, end: int) -> bytearray:
        """What stands before `end`, last token first: 4 bytes each of token + 1, big-endian; the key of a search."""
        return self._contexts(self._depth_bytes)(end)

    def _search(self, key: bytearray) -> int:
        """Where `key` belongs: after all contexts that are smaller or equal."""
        return bisect_right(self._order, key, key=self._contexts(self._depth_bytes))

    def match(self, key: bytearray | None = None) -> tuple[int, int]:
        """How many tokens of `key`, of the end of the text if None, occurred before; and where it belongs.

        The end of the text is no occurrence of itself.
        """
        if key is None:
            key = self.context(self.n_tokens)
            if self._place is None:
                self._place = self._search(key)
            place = self._place
        else:
            place = self._search(key)
        length = 0
        for end in self._order[max(0, place - 1) : place + 1]:
            length = max(length, _n_common(key, self.context(end)))
        return length, place

    def occurrences(self, key: bytearray, length: int, place: int, n_max: int) -> list[int]:
        """Ends of the latest occurrences, at most `n_max`, of the first `length` >= 1 tokens of `key`, latest first.

        `length` and `place` are those of `match`.
        """
        low, high = self._group(key[: 4 * length], place)
        if length == self.max_depth:  # equal contexts stand in the order of the text
            low = max(low, high - n_max)
        found = self._order[low:high]
        if len(found) > n_max:
            latest: list[int] = np.partition(np.array(found, np.int32), -n_max)[-n_max:].tolist()
            return sorted(latest, reverse=True)
        return sorted(found, reverse=True)

    def _group(self, prefix: bytearray, place: int) -> tuple[int, int]:
        """First and one past the last place of contexts that begin with `prefix`; `place` is one of these or next."""
        order, head = self._order, self._contexts(len(prefix))
        # most groups are small
        low, high = max(0, place - _NEAR), min(len(order), place + _NEAR)
        if low and head(order[low]) == prefix:
            low = 0
        if high < len(order) and head(order[high - 1]) == prefix:
            high = len(order)
        return bisect_left(order, prefix, low, place, key=head), bisect_right(order, prefix, place, high, key=head)

    def continuation(self, end: int, n: int) -> bytearray:
        """The `n` >= 1 tokens after `end`, as in a context but the last one first.

        Where the text ends before, they go on from `end` again: what a draft that repeats that period would be.
        """
        size, n_left = len(self._buffer), self.n_tokens - end
        if n <= n_left:
            return self._buffer[size - 4 * (end + n) : size - 4 * end]
        period = self._buffer[size - 4 * self.n_tokens : size - 4 * end]
        return (period * (n // n_left + 1))[-4 * n :]


def _n_common(key: bytearray, other: bytearray) -> int:
    """Tokens at the beginning that are the same in both."""
    n_bytes = min(len(key), len(other))
    differing = int.from_bytes(key[:n_bytes], "big") ^ int.from_bytes(other[:n_bytes], "big")
    return (8 * n_bytes - differing.bit_length()) // 32
