"""The growing token buffer of one sequence: every decided token, prompt first.

Owns amortised appending and read-only views of it; the decoder alone writes, speculators only read.
Leaves drafts out: a token enters when it has been emitted, so a speculator never sees its own guesses here.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyspec.errors import InvalidValueError

__all__ = ["History", "Tokens", "as_tokens", "n_common"]

Tokens = NDArray[np.int32]  # [n_tokens]

_CAPACITY_MIN = 1024


def as_tokens(values: ArrayLike) -> Tokens:
    """`values` as a contiguous int32 array [n_tokens], without a copy where it is one already.

    Raises:
        InvalidValueError: not one-dimensional, or not whole numbers that fit 32 bits.
    """
    array = np.asarray(values)
    if array.size == 0 and array.ndim == 1:
        return np.empty(0, np.int32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidValueError(name="tokens", value=values, allowed="a flat sequence of whole token ids")
    tokens = np.ascontiguousarray(array, np.int32)
    if array.dtype.itemsize >= 4 and array.dtype != np.int32 and not np.array_equal(tokens, array):
        raise InvalidValueError(name="tokens", value=values, allowed="token ids that fit 32 bits")
    return tokens


class History:
    """Decided tokens of one sequence in one growing int32 buffer.

    `epoch` counts the cuts: a reader that remembers it notices that what it had read may have changed.
    Views stay readable after growth, and then show the tokens of the moment they were taken.

    Raises:
        InvalidValueError: `tokens` are not token ids.
    """

    __slots__ = ("_buffer", "_cells", "_n", "_readable", "epoch")

    _buffer: Tokens
    _cells: memoryview[int]
    _readable: Tokens
    epoch: int

    def __init__(self, tokens: ArrayLike = ()) -> None:
        start = as_tokens(tokens)
        self._n = 0
        self.epoch = 0
        self._allocate(max(_CAPACITY_MIN, 2 * len(start)))
        self.extend(start)

    def _allocate(self, capacity: int) -> None:
        buffer = np.empty(capacity, np.int32)
        if self._n:
            buffer[: self._n] = self._buffer[: self._n]
        self._buffer = buffer
        self._cells = memoryview(buffer)  # type: ignore[arg-type]
        # over a read-only buffer, so that no reader can make it writable again
        self._readable = np.frombuffer(self._cells.toreadonly(), np.int32)

    def __len__(self) -> int:
        return self._n

    @property
    def nbytes(self) -> int:
        """Bytes held: at most twice what the tokens need, and at least 4 KiB."""
        return self._buffer.nbytes

    def append(self, token: int) -> None:
        """Add one decided token."""
        if self._n == len(self._cells):
            self._allocate(2 * self._n)
        self._cells[self._n] = token
        self._n += 1

    def extend(self, tokens: Iterable[int] | Tokens) -> None:
        """Add decided tokens in order.

        Raises:
            InvalidValueError: not token ids; nothing was added.
        """
        new = as_tokens(tokens if isinstance(tokens, np.ndarray) else list(tokens))
        end = self._n + len(new)
        if end > len(self._buffer):
            self._allocate(max(end, 2 * len(self._buffer)))
        self._buffer[self._n : end] = new
        self._n = end

    def truncate(self, n_tokens: int) -> None:
        """Forget everything after the first `n_tokens`; changes `epoch` when something goes.

        Raises:
            InvalidValueError: negative, or more than there are.
        """
        if not 0 <= n_tokens <= self._n:
            raise InvalidValueError(name="n_tokens", value=n_tokens, allowed=f"from 0 to {self._n}")
        if n_tokens < self._n:
            # a new buffer, so that views taken before keep showing what they showed
            self._n = n_tokens
            self._allocate(max(_CAPACITY_MIN, 2 * n_tokens))
            self.epoch += 1

    @property
    def read_only(self) -> History:
        """The same tokens, for those who may not change them."""
        return ReadOnlyHistory(self)  # kept nowhere: the two must not keep each other alive

    def view(self) -> Tokens:
        """All tokens, read only, without a copy. Shape [n_tokens]."""
        return self._readable[: self._n]

    def tail(self, n_tokens: int) -> Tokens:
        """The last `n_tokens` (fewer if there are fewer), read only, without a copy."""
        return self._readable[max(0, self._n - n_tokens) : self._n]


class ReadOnlyHistory(History):
    """What speculators see of a history: it grows with it, and refuses to be changed.

    Args:
        of: the decoder's.
    """

    __slots__ = ("_of",)

    def __init__(self, of: History) -> None:
        self._of = of

    def __len__(self) -> int:
        return self._of._n

    @property
    def epoch(self) -> int:  # type: ignore[override]
        """As of the decoder's."""
        return self._of.epoch

    @property
    def nbytes(self) -> int:
        """As of the decoder's."""
        return self._of.nbytes

    @property
    def read_only(self) -> History:
        """Itself."""
        return self

    def view(self) -> Tokens:
        """As `History.view`."""
        of = self._of
        return of._readable[: of._n]

    def tail(self, n_tokens: int) -> Tokens:
        """As `History.tail`."""
        return self._of.tail(n_tokens)

    def append(self, token: int) -> None:
        """Refused.

        Raises:
            TypeError: always.
        """
        raise TypeError("only the decoder changes the history")

    def extend(self, tokens: Iterable[int] | Tokens) -> None:
        """Refused, as `append`."""
        self.append(0)

    def truncate(self, n_tokens: int) -> None:
        """Refused, as `append`."""
        self.append(0)


def n_common(a: Tokens, b: Tokens) -> int:
    """Tokens at the beginning that `a` and `b` have in common."""
    n = min(len(a), len(b))
    differs = np.flatnonzero(a[:n] != b[:n])
    return int(differs[0]) if len(differs) else n
