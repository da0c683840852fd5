"""A polynomial hash of n consecutive tokens, for one window or for every window of an array.

Owns the arithmetic and the order of writes that share a slot; leaves the tables to their speculators.
The multiplier is Knuth's for MMIX, the one of llama.cpp (common/ngram-mod.cpp), so that slots agree with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pyspec.speculators.history import Tokens

__all__ = ["RollingHash", "sort_by_slot"]

Slots = NDArray[np.uint32]  # [n_windows]

_MULTIPLIER = 6364136223846793005
_LOW_32_BITS = np.uint64(0xFFFFFFFF)


class RollingHash:
    """Hash of `n` tokens t: sum of t[i] * multiplier**(n-1-i), modulo `n_slots` (a power of two up to 2**32).

    One step to the right, for callers whose loops are too hot for a call:
    `slot = (slot * factor + entering - leaving * leaving_factor) & mask`.
    """

    __slots__ = ("factor", "leaving_factor", "mask", "n")

    def __init__(self, n: int, n_slots: int) -> None:
        assert n >= 1, "a window holds at least one token"
        assert 2 <= n_slots <= 2**32, "slots fit 32 bits"
        assert n_slots & (n_slots - 1) == 0, "n_slots is a power of two"
        self.n = n
        self.mask = n_slots - 1
        self.factor = _MULTIPLIER % n_slots
        self.leaving_factor = pow(self.factor, n, n_slots)

    def slot(self, window: Sequence[int]) -> int:
        """Slot of one window of exactly `n` Python ints."""
        value = 0
        for token in window:
            value = (value * self.factor + token) & self.mask
        return value

    def slots(self, tokens: Tokens) -> Slots:
        """Slots of all windows of `tokens`, left to right. Shape [n_tokens - n + 1]; at least `n` tokens."""
        single = tokens.view(np.uint32)
        wide, width = single, 1
        # from a width to its double, and on by one where n has a bit: log2(n) passes instead of n
        for bit in bin(self.n)[3:]:
            wide = wide[:-width] * np.uint32(pow(self.factor, width, 2**32)) + wide[width:]
            width *= 2
            if bit == "1":
                wide = wide[:-1] * np.uint32(self.factor) + single[width:]
                width += 1
        return wide & np.uint32(self.mask)


def sort_by_slot(slots: Slots) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Order windows by slot, and by position within a slot.

    numpy promises no order among writes of one assignment to one element, so bulk writes pick theirs from
    this.

    Returns:
        Slots in order, positions in order, and which of them is the last of its slot; each [n_windows].
    """
    keyed = slots.astype(np.uint64) << np.uint64(32)
    keyed |= np.arange(len(slots), dtype=np.uint64)
    keyed.sort()
    ordered = (keyed >> np.uint64(32)).astype(np.int64)
    positions = (keyed & _LOW_32_BITS).astype(np.int64)
    is_last = np.empty(len(slots), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_last[:-1])
    is_last[-1:] = True
    return ordered, positions, is_last
