"""Earlier outputs, remembered within a budget of tokens, the oldest forgotten first.

Owns what is kept of them and their index; leaves to the speculator when an output is complete.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from pyspec.config import int_between
from pyspec.errors import InvalidValueError
from pyspec.speculators.history import Tokens
from pyspec.speculators.suffix_index import END, SuffixIndex

__all__ = ["SuffixCorpus"]

_END: Tokens = np.array([END], np.int32)

MAX_DEPTH = int_between(1, 1024)
CORPUS_TOKENS = int_between(0, 2**24)


class SuffixCorpus:
    """Outputs of one speculator, or of several that share it; not for several threads at once.

    Of an output longer than `n_tokens_max` its last tokens are kept. At most 24 bytes a token.

    Raises:
        InvalidValueError: `max_depth` is not within 1 to 1024, or `n_tokens_max` not within 0 to 2**24.
    """

    def __init__(self, max_depth: int = 64, *, n_tokens_max: int = 65_536) -> None:
        for name, value, (ok, allowed) in (
            ("max_depth", max_depth, MAX_DEPTH),
            ("n_tokens_max", n_tokens_max, CORPUS_TOKENS),
        ):
            if not ok(value):
                raise InvalidValueError(name=name, value=value, allowed=allowed)
        self.max_depth = max_depth
        self.n_tokens_max = n_tokens_max
        self.index = SuffixIndex(max_depth)  # END, output, END, output, ..., END
        self._lengths: deque[int] = deque()
        self.n_tokens = 0  # without the ENDs
        self.clear()

    @property
    def nbytes(self) -> int:
        """Bytes of the index and the lengths of the outputs."""
        return self.index.nbytes + 64 * len(self._lengths)

    @property
    def n_outputs(self) -> int:
        """Outputs that are remembered."""
        return len(self._lengths)

    def outputs(self) -> list[Tokens]:
        """Copies of the outputs, oldest first."""
        tokens, start, found = self.index.tokens(), 1, []
        for length in self._lengths:
            found.append(tokens[start : start + length])
            start += length + 1
        return found

    def clear(self) -> None:
        """Forget every output."""
        self.index.clear()
        self.index.extend(_END)
        self._lengths.clear()
        self.n_tokens = 0

    def add(self, *outputs: Tokens) -> None:
        """Remember `outputs` [n_tokens each], oldest first, in place of older ones where the budget is spent."""
        new = deque(output[max(0, len(output) - self.n_tokens_max) :] for output in outputs)
        n_new = sum(map(len, new))
        while n_new > self.n_tokens_max:
            n_new -= len(new.popleft())
        n_dropped = 0
        while self.n_tokens + n_new > self.n_tokens_max:
            self.n_tokens -= self._lengths[0]
            n_dropped += 1 + self._lengths.popleft()
        if n_dropped:
            self.index.drop(n_dropped)
        kept = [output for output in new if len(output)]
        if kept:
            self.index.extend(np.concatenate([part for output in kept for part in (output, _END)]))
        self._lengths.extend(map(len, kept))
        self.n_tokens += n_new
