"""Which widths of a decode give the same logits to the bit.

Owns the measurement on a live context: the same tokens are decoded in steps of each width, from the same memory, and
compared with steps of two. Leaves to others what to do about classes that differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyspec._core import Context, State
from pyspec.speculators.history import Tokens

__all__ = ["PADDED", "WIDTHS", "WidthReport", "measure_widths", "widths_of_one_class"]

WIDTHS: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 32, 33, 64)

Rows = NDArray[np.float32]  # [n_tokens, n_vocab]

PADDED = 0
"""Stands for width 1 beside a dummy token of another sequence, with two output rows."""

_REFERENCE = 2


@dataclass(frozen=True, slots=True)
class WidthReport:
    """How one width compares with width 2, at one length of context.

    Attributes:
        width: tokens in one decode; `PADDED` (0) is one token and a dummy.
        n_context: tokens in memory before.
        n_tokens: tokens compared.
        equal: all logits are bit-identical.
        max_difference: largest absolute difference of a logit.
        n_flips: tokens after which the largest logit belongs to another token.
        smallest_margin: the smallest gap between the two largest logits among flipped tokens, 0 without flips.
    """

    width: int
    n_context: int
    n_tokens: int
    equal: bool
    max_difference: float
    n_flips: int
    smallest_margin: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def measure_widths(
    context: Context,
    *,
    n_context: int,
    widths: Sequence[int] = WIDTHS,
    n_tokens: int = 64,
    seq_id: int = 0,
    scratch: int | None = None,
    seed: int = 1,
) -> list[WidthReport]:
    """Compare `widths` after `n_context` tokens; memory is cleared before and after.

    Args:
        context: of a model that generates; needs `n_context + n_tokens` positions.
        n_context: tokens decoded first, in one way for all widths.
        widths: those to compare; wider than the context allows are left out.
        n_tokens: tokens to compare, random ones.
        seq_id: the sequence to use.
        scratch: another sequence, for `PADDED`; without one it is left out.
        seed: of the random tokens.

    Raises:
        ContextFullError: the context is too short.
    """
    rng = np.random.default_rng(seed)
    tokens: Tokens = rng.integers(0, context.model.vocab.n_tokens, n_context + n_tokens).astype(np.int32)
    width_max = min(context.n_batch, context.n_ubatch, context.n_outputs_max)
    wanted = [w for w in widths if w <= width_max]
    if scratch is not None:
        wanted = [PADDED, *wanted]
    context.clear()
    try:
        for start in range(0, n_context, width_max):
            part = tokens[start : min(n_context, start + width_max)]
            context.decode(part, pos=start, seq_id=seq_id, n_outputs=0)
        state = State()
        if n_context:
            context.state_save(seq_id, state)

        def rows(width: int) -> Rows:
            context.clear()
            if n_context:
                context.state_restore(seq_id, state)
            return np.concatenate(list(_steps(context, tokens, n_context, width, seq_id, scratch)))

        reference = rows(_REFERENCE)
        return [_compare(width, n_context, reference, rows(width)) for width in wanted]
    finally:
        context.clear()


def _steps(
    context: Context, tokens: Tokens, start: int, width: int, seq_id: int, scratch: int | None
) -> Iterator[Rows]:
    """Decode tokens[start:] in steps of `width`; yields the rows of each step."""
    step = max(1, width)
    for pos in range(start, len(tokens), step):
        part = tokens[pos : pos + step]
        if width == PADDED and scratch is not None:
            context.decode_batch([part[0], part[0]], [pos, 0], [seq_id, scratch], [True, True])
            yield context.logits(0, 1)
            context.seq_rm(scratch)
        else:
            context.decode(part, pos=pos, seq_id=seq_id, n_outputs=len(part))
            yield context.logits()


def _compare(width: int, n_context: int, reference: Rows, rows: Rows) -> WidthReport:
    # a last step narrower than the width belongs to another width
    n = len(rows) // max(1, width) * max(1, width)
    a, b = reference[:n], rows[:n]
    flips = np.flatnonzero(a.argmax(1) != b.argmax(1))
    margins = [float(np.diff(np.partition(a[i], -2)[-2:])[0]) for i in flips]
    return WidthReport(
        width=width,
        n_context=n_context,
        n_tokens=n,
        equal=bool(np.array_equal(a, b)),
        max_difference=float(np.abs(a - b).max()) if n else 0.0,
        n_flips=len(flips),
        smallest_margin=min(margins, default=0.0),
    )


def widths_of_one_class(reports: Sequence[WidthReport]) -> set[int]:
    """The widths whose logits equal those of width 2 in every report about them."""
    different = {r.width for r in reports if not r.equal}
    return {r.width for r in reports} - different
