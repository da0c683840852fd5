"""The table of ngram-mod: for the hash of n tokens, the token that last followed them.

Owns its memory, bulk learning and ageing; may be shared by speculators of several sequences.
Leaves to the speculator what to look up, when to learn, and when to stop trusting what others wrote.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyspec.config import int_between, validate
from pyspec.errors import InvalidValueError, StateError
from pyspec.speculators.history import Tokens
from pyspec.speculators.rolling_hash import RollingHash, sort_by_slot

__all__ = ["N_ENTRIES", "NgramModTable"]

N_ENTRIES = 4_194_304
_CHUNK = 65_536  # windows learned at a time: temporaries stay in the cache
_CROWDED = 4  # one in so many entries used: llama.cpp's occupancy limit of 0.25


class NgramModTable:
    """`n_entries` cells of 4 bytes without keys: two n-grams may share a cell, and the later one wins.

    `cells[slot]` is 0 when empty, else the following token plus one: fresh memory is zero and costs nothing
    until used. `generation` changes when everything is forgotten.

    Raises:
        InvalidValueError: `n_match` outside 1 to 1024, or `n_entries` no power of two from 2 to 2**32.
    """

    __slots__ = ("_array", "cells", "generation", "hash", "n_match", "n_written")

    _array: NDArray[np.int32]
    cells: memoryview[int]

    def __init__(self, n_match: int = 24, *, n_entries: int = N_ENTRIES) -> None:
        self.n_match = n_match
        validate(self, {"n_match": int_between(1, 1024)})
        if not 2 <= n_entries <= 2**32 or n_entries & (n_entries - 1):
            raise InvalidValueError(name="n_entries", value=n_entries, allowed="a power of two up to 2**32")
        self.hash = RollingHash(n_match, n_entries)
        self.generation = 0
        self._replace(np.zeros(n_entries, np.int32))

    def _replace(self, array: NDArray[np.int32]) -> None:
        self._array = array
        self.cells = memoryview(array)  # type: ignore[arg-type]
        self.n_written = 0  # upper bound of n_used

    @property
    def n_entries(self) -> int:
        """Number of cells."""
        return len(self._array)

    @property
    def n_used(self) -> int:
        """Number of cells that hold a token; counts them all (milliseconds)."""
        return int(np.count_nonzero(self._array))

    @property
    def nbytes(self) -> int:
        """Bytes of the cells: 16 MiB for the standard size."""
        return self._array.nbytes

    def learn(self, tokens: Tokens) -> None:
        """Remember what followed each n-gram of `tokens` [n_tokens], the later of two winning."""
        n = self.n_match
        for start in range(0, len(tokens) - n, _CHUNK):
            stop = min(start + _CHUNK, len(tokens) - n)
            slots, positions, is_last = sort_by_slot(self.hash.slots(tokens[start : stop + n - 1]))
            self._array[slots[is_last]] = tokens[start + n :][positions[is_last]] + 1
            self.n_written += stop - start

    def clear(self) -> None:
        """Forget everything; the change of `generation` makes speculators teach their context again."""
        self._replace(np.zeros(self.n_entries, np.int32))
        self.generation += 1

    def clear_if_crowded(self) -> bool:
        """Forget everything when more than a quarter of the cells is in use; says whether it did."""
        if self.n_written * _CROWDED <= self.n_entries:
            return False
        self.n_written = self.n_used
        if self.n_written * _CROWDED <= self.n_entries:
            return False
        self.clear()
        return True

    def get_state(self) -> dict[str, Any]:
        """The used cells: `slots` [n_used] and `tokens` [n_used], with the sizes they belong to."""
        slots = np.flatnonzero(self._array != 0)  # of bools, which is five times faster
        return {
            "n_match": self.n_match,
            "n_entries": self.n_entries,
            "slots": slots.astype(np.uint32),
            "tokens": self._array[slots] - 1,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> NgramModTable:
        """A new table with what `get_state` returned.

        Raises:
            StateError: sizes that cannot be, slots outside the table, arrays of different lengths.
        """
        try:
            table = cls(state["n_match"], n_entries=state["n_entries"])
            slots = np.asarray(state["slots"], np.int64)
            tokens = np.asarray(state["tokens"], np.int32)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise StateError(reason=f"no ngram-mod table: {error!r}") from error
        if slots.ndim != 1 or slots.shape != tokens.shape:
            raise StateError(reason=f"ngram-mod table of {slots.shape} slots and {tokens.shape} tokens")
        if len(slots) and not (slots.min() >= 0 and slots.max() < table.n_entries and tokens.min() >= 0):
            raise StateError(reason="ngram-mod table with slots or tokens out of range")
        table._array[slots] = tokens + 1
        table.n_written = len(slots)
        return table
