"""Frozen counts of what followed n-grams of up to four tokens: what outlives a text and is looked up in while drafting.

Owns the rows in order, their look-up, the sum of two tables and making one of a text; `ngram_table_file` owns the file.
Leaves counting the present text to `ngram_trie` and what to draft to `ngram_cache`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyspec.errors import InvalidValueError, StateError
from pyspec.speculators.history import as_tokens
from pyspec.speculators.ngram_table_file import N_MAX, Rows, find_wrong_row, read_rows, write_rows
from pyspec.speculators.ngram_trie import NgramTrie

__all__ = ["N_MAX", "NgramTable"]

_MULTIPLIER = 6364136223846793005  # Knuth's for MMIX
_POWERS = tuple(pow(_MULTIPLIER, i, 2**64) for i in range(N_MAX + 1))
_LOW_64_BITS = 0xFFFFFFFFFFFFFFFF
_COUNT_MAX = 2**31 - 1


class NgramTable:
    """For each n-gram, the tokens that followed it and how often. Never changes, so that many sequences may use one.

    Args:
        ngrams: [n_rows, 4], -1 behind the tokens of shorter ones.
        tokens: [n_rows], what followed.
        counts: [n_rows], how often; rows of the same n-gram and token are added up.

    The attributes of these names hold the rows, in order of the n-grams, the most frequent token first, and the lower
    one of two.

    Raises:
        StateError: shapes that do not fit, or a row that no text can give.
    """

    # fmt: off
    __slots__ = ("_cells", "_counts", "_heads", "_links", "_n_bits", "_starts", "_tokens", "_totals", "counts",
                 "ngrams", "tokens")
    # fmt: on

    def __init__(self, ngrams: ArrayLike = (), tokens: ArrayLike = (), counts: ArrayLike = ()) -> None:
        self.ngrams, self.tokens, self.counts = _in_order(_as_rows(ngrams, tokens, counts))
        for array in (self.ngrams, self.tokens, self.counts):
            array.setflags(write=False)
        starts = _changes(self.ngrams)
        sums = np.concatenate(([0], np.cumsum(self.counts, dtype=np.int64)))
        bounds = np.append(starts, len(self.tokens))
        self._starts: memoryview[int] = _view(bounds)
        self._totals: memoryview[int] = _view(np.diff(sums[bounds]))
        self._tokens: memoryview[int] = _view(self.tokens)
        self._counts: memoryview[int] = _view(self.counts)
        self._index(self.ngrams[starts])

    def _index(self, ngrams: NDArray[np.int32]) -> None:
        self._n_bits = max(1, len(ngrams).bit_length())
        value = np.zeros(len(ngrams), np.uint64)
        for column in ngrams.T:
            value = value * np.uint64(_MULTIPLIER) + (column.astype(np.int64) + 1).view(np.uint64)
        slots = (value >> np.uint64(64 - self._n_bits)).astype(np.int64)
        heads, links = np.full(1 << self._n_bits, -1, np.int32), np.full(len(ngrams), -1, np.int32)
        rest = np.arange(len(ngrams), dtype=np.int32)
        while len(rest):
            # of n-grams that share a slot one is written; the others come before it in the next round
            links[rest] = heads[slots]
            heads[slots] = rest
            is_lost = heads[slots] != rest
            rest, slots = rest[is_lost], slots[is_lost]
        self._heads: memoryview[int] = _view(heads)
        self._links: memoryview[int] = _view(links)
        self._cells: memoryview[int] = _view(ngrams.reshape(-1))

    @classmethod
    def from_tokens(cls, tokens: ArrayLike, *, n_min: int = 1, n_max: int = N_MAX, n_known: int = 0) -> NgramTable:
        """Count what followed the n-grams of `n_min` to `n_max` tokens in a text [n_tokens].

        A static table needs those of two tokens alone, as llama.cpp's lookup-create writes them. The first `n_known`
        tokens are not counted, only what stands behind them.

        Raises:
            InvalidValueError: not token ids, or not 1 <= `n_min` <= `n_max` <= 4.
        """
        text = as_tokens(tokens)
        if not 1 <= n_min <= n_max <= N_MAX:
            allowed = f"from 1 to {N_MAX}, the larger one last"
            raise InvalidValueError(name="n_min, n_max", value=(n_min, n_max), allowed=allowed)
        if len(text) and text.min() < 0:
            raise InvalidValueError(name="tokens", value=int(text.min()), allowed="token ids from 0 on")
        start = max(0, n_known - n_max)
        trie = NgramTrie(n_max)
        trie.read_all(text[start:])
        ngrams, followers, counts = trie.rows(n_min)
        for row, follower in _ngrams_of(text[start:n_known].tolist(), n_min, n_max):
            counts[(ngrams == row).all(1) & (followers == follower)] -= 1
        is_new = counts > 0
        wide = np.pad(ngrams, ((0, 0), (0, N_MAX - n_max)), constant_values=-1)
        return cls(wide[is_new], followers[is_new], counts[is_new])

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> NgramTable:
        """Read a file that `save`, llama.cpp's lookup-create or lookup-merge wrote.

        Raises:
            StateError: no such file, or it is damaged or something else; names the file and the place.
        """
        rows = read_rows(path)
        table = cls(*rows)
        if len(table.tokens) < len(rows[1]):
            raise StateError(reason=f"{os.fspath(path)!r} is damaged: it counts the same token of an n-gram twice")
        return table

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file that `load` and llama.cpp read; an older file at `path` is replaced in one step.

        Raises:
            StateError: it cannot be written; names the file. An older file is as it was.
        """
        write_rows(path, np.array(self._starts[:-1], np.int64), self.rows)

    def merge(self, other: NgramTable) -> NgramTable:
        """A table with the counts of both."""
        return NgramTable(*(np.concatenate(pair) for pair in zip(self.rows, other.rows, strict=True)))

    @property
    def rows(self) -> Rows:
        """N-grams [n_rows, 4], tokens [n_rows], counts [n_rows]; what the constructor takes."""
        return self.ngrams, self.tokens, self.counts

    @property
    def n_ngrams(self) -> int:
        """Number of different n-grams."""
        return len(self._totals)

    @property
    def token_max(self) -> int:
        """The highest token id, -1 where there are none."""
        return int(max(self.ngrams.max(initial=-1), self.tokens.max(initial=-1)))

    @property
    def nbytes(self) -> int:
        """Bytes held: 24 a row, 36 to 44 an n-gram."""
        return sum(array.nbytes for array in self.rows) + sum(
            view.nbytes for view in (self._starts, self._totals, self._cells, self._heads, self._links)
        )

    def find(self, ngram: Sequence[int]) -> int:
        """Which n-gram `ngram` (a list of 1 to 4 Python ints) is here, -1 if it is none."""
        n, value = len(ngram), 0
        for token in ngram:
            value = value * _MULTIPLIER + token + 1
        value = value * _POWERS[N_MAX - n] & _LOW_64_BITS
        found, cells = self._heads[value >> (64 - self._n_bits)], self._cells
        while found >= 0:
            cell = N_MAX * found
            if cells[cell : cell + n].tolist() == ngram and (n == N_MAX or cells[cell + n] < 0):
                return found
            found = self._links[found]
        return -1

    def followers(self, i: int, n_max: int) -> tuple[list[int], list[int], int]:
        """The `n_max` most frequent tokens behind n-gram `i`, their counts, and the sum of all counts behind it."""
        start, stop = self._starts[i], self._starts[i + 1]
        stop = min(stop, start + n_max)
        return self._tokens[start:stop].tolist(), self._counts[start:stop].tolist(), self._totals[i]


def _ngrams_of(tokens: list[int], n_min: int, n_max: int) -> Iterator[tuple[list[int], int]]:
    """The n-grams of few tokens, -1 behind shorter ones, and what follows each."""
    for i in range(len(tokens)):
        for n in range(n_min, min(n_max, i) + 1):
            yield tokens[i - n : i] + [-1] * (n_max - n), tokens[i]


def _view(array: NDArray[Any]) -> memoryview[int]:
    """For reading single elements, much cheaper than of an array."""
    return memoryview(array)  # type: ignore[arg-type]


def _as_rows(ngrams: ArrayLike, tokens: ArrayLike, counts: ArrayLike) -> Rows:
    try:
        rows = tuple(np.asarray(values, np.int32) for values in (ngrams, tokens, counts))
    except (TypeError, ValueError, OverflowError) as error:
        raise StateError(reason=f"no n-gram table: {error!r}") from error
    first, n_rows = rows[0] if rows[0].size else rows[0].reshape(0, N_MAX), len(rows[1]) if rows[1].ndim == 1 else -1
    if first.shape != (n_rows, N_MAX) or rows[2].shape != (n_rows,):
        shapes = ", ".join(str(array.shape) for array in rows)
        raise StateError(reason=f"no n-gram table: n-grams, tokens and counts of shapes {shapes}")
    checked = first, rows[1], rows[2]
    if (wrong := find_wrong_row(checked)) is not None:
        raise StateError(reason=f"no n-gram table: row {wrong[0]} has {wrong[1]}")
    return checked


def _changes(ngrams: NDArray[np.int32]) -> NDArray[np.int64]:
    """Where another n-gram than in the row before begins."""
    is_first = np.ones(len(ngrams), np.bool_)
    is_first[1:] = (ngrams[1:] != ngrams[:-1]).any(1)
    return np.flatnonzero(is_first)


def _in_order(rows: Rows) -> Rows:
    """Rows by n-gram, count and token, equal ones added up."""
    ngrams, tokens, counts = rows
    # two tokens in one number: fewer keys to sort by
    front, back = (_packed(ngrams[:, i], ngrams[:, i + 1]) for i in (0, 2))
    order = np.lexsort((tokens, back, front))
    ngrams, tokens, counts = ngrams[order], tokens[order], counts[order]
    firsts = _changes(np.column_stack((ngrams, tokens)))
    sums = np.add.reduceat(counts, firsts, dtype=np.int64) if len(firsts) else counts[:0]
    ngrams, tokens, counts = ngrams[firsts], tokens[firsts], np.minimum(sums, _COUNT_MAX).astype(np.int32)
    which = np.zeros(len(tokens), np.int64)
    which[_changes(ngrams)] = 1
    order = np.lexsort((_packed(-counts, tokens), np.cumsum(which)))
    return ngrams[order], tokens[order], counts[order]


def _packed(high: NDArray[np.int32], low: NDArray[np.int32]) -> NDArray[np.int64]:
    """Numbers in the order of the pairs."""
    return (high.astype(np.int64) << 32) + low
