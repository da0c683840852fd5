"""Log-probabilities of emitted tokens, by the target's own distribution.

Owns how they follow from a row of logits: its log-softmax before any sampling option (bias, penalties, grammar,
temperature), as OpenAI and llama.cpp's server give them. Leaves which rows are read to the decoder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyspec._core import Context

__all__ = ["LogprobRecorder", "TokenLogprob", "mean_logprob", "row_logprobs"]

LogitRow = npt.NDArray[np.float32]  # [n_vocab]
_BLOCK = 256


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """How likely the target found one emitted token.

    Attributes:
        token: its id.
        logprob: natural logarithm of its probability, among all tokens and at temperature 1.
        bytes: what it adds to the text; may begin or end inside a character.
        top: (token, logprob) of the likeliest tokens there, the likeliest first, equal ones by id.
    """

    token: int
    logprob: float
    bytes: bytes
    top: list[tuple[int, float]]

    @property
    def text(self) -> str:
        """`bytes` as text; malformed UTF-8 becomes U+FFFD."""
        return self.bytes.decode("utf-8", "replace")


def row_logprobs(row: LogitRow, token: int, n_top: int) -> tuple[float, list[tuple[int, float]]]:
    """Log-probability of `token` in a row of logits [n_vocab], and the `n_top` likeliest (token, logprob).

    The same row gives the same bits, whatever stands beside it in a decode.
    """
    peak = row.max()
    # one pass of float32 exponentials, summed in float64: 1e-7 off at most
    log_total = float(peak) + math.log(float(np.exp(row - peak).sum(dtype=np.float64)))
    top = [(int(i), float(row[i]) - log_total) for i in _likeliest(row, min(n_top, len(row)))]
    return float(row[token]) - log_total, top


def _likeliest(row: LogitRow, n: int) -> npt.NDArray[np.intp]:
    """[n] ids of the largest logits, the largest first, equal ones by id."""
    if n == 0:
        return np.zeros(0, np.intp)
    # n blocks with a maximum of at least `least` hold n values of at least that: few others are left to sort
    n_blocks = len(row) // _BLOCK
    peaks = row[: n_blocks * _BLOCK].reshape(n_blocks, _BLOCK).max(axis=1) if n <= n_blocks else row
    least = np.partition(peaks, len(peaks) - n)[len(peaks) - n]
    ids = np.flatnonzero(row >= least)
    return ids[np.argsort(-row[ids], kind="stable")][:n]


class LogprobRecorder:
    """Keeps what the target thought of each emitted token of a generation; the decoder calls it.

    Args:
        n_top: likeliest tokens to keep beside each.
        piece: the bytes of a token.
    """

    def __init__(self, n_top: int, piece: Callable[[int], bytes]) -> None:
        self._n_top = n_top
        self._piece = piece
        self.found: list[TokenLogprob] = []

    def __call__(self, context: Context, row: int, token: int) -> None:
        """`token` was chosen at an output row of the last decode."""
        logprob, top = row_logprobs(context.logits(row, 1)[0], token, self._n_top)
        self.found.append(TokenLogprob(token, logprob, self._piece(token), top))


def mean_logprob(found: Sequence[TokenLogprob]) -> float:
    """Mean log-probability of the tokens, -inf without any."""
    return sum(one.logprob for one in found) / len(found) if found else -math.inf
