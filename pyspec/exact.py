"""Exactness: keep plain and speculative decoding in one width class, so that their logits agree to the bit.

Owns the choice of the class for a live context and its refusal, and the memory that decodes within it.
Leaves the measuring to `pyspec.widths` and the rounds to `pyspec.decoder`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from pyspec._core import Context
from pyspec.errors import PyspecError, UnsupportedError
from pyspec.rollback.protocol import Rollback
from pyspec.sequence import SequenceMemory
from pyspec.speculators.history import Tokens
from pyspec.widths import PADDED, measure_widths, widths_of_one_class

__all__ = ["ExactMemory", "WidthClass", "width_class"]

_WIDTHS = (1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 32)
_N_TOKENS = 32
_N_CONTEXT = (0, 256)


@dataclass(frozen=True, slots=True)
class WidthClass:
    """The widths that may be decoded.

    Attributes:
        pad: a decode of one token needs a dummy token beside it.
        width_max: the widest decode of a round.
    """

    pad: bool
    width_max: int


def width_class(context: Context, *, scratch: int, seq_id: int = 0) -> WidthClass:
    """Measure which widths of `context` agree to the bit with width 2; its memory is cleared.

    Compared are random tokens, from the start and after 256 tokens where the context has room for them.

    Raises:
        UnsupportedError: a decode of one token agrees with no wider one, with or without a dummy beside it, or the
            context allows no decode of two tokens; with the largest difference seen.
    """
    room = context.n_ctx_seq - _N_TOKENS
    if min(context.n_batch, context.n_ubatch, context.n_outputs_max, context.n_ctx_seq // 4) < 2:
        raise UnsupportedError(
            what="exact=True",
            why=f"n_ctx={context.n_ctx_seq}, n_batch={context.n_batch}, n_ubatch={context.n_ubatch} and "
            f"n_outputs_max={context.n_outputs_max} leave no room for decodes of two tokens",
            way_out="raise them",
        )
    n_tokens = min(_N_TOKENS, context.n_ctx_seq)
    lengths = [n for n in _N_CONTEXT if n <= max(0, room)]
    reports = [
        report
        for n_context in lengths
        for report in measure_widths(
            context, n_context=n_context, widths=_WIDTHS, n_tokens=n_tokens, seq_id=seq_id, scratch=scratch
        )
    ]
    same = widths_of_one_class(reports)
    width_max = 2
    for width in _WIDTHS[2:]:
        if width not in same:
            break
        width_max = width
    if 1 in same:
        return WidthClass(pad=False, width_max=width_max)
    if PADDED in same:
        return WidthClass(pad=True, width_max=width_max)
    worst = max((r for r in reports if r.width in (PADDED, 1)), key=lambda r: r.max_difference)
    raise UnsupportedError(
        what="exact=True",
        why="on this model and backend a decode of one token gives other logits than wider ones, also with a dummy "
        f"token beside it (largest difference {worst.max_difference:.1e})",
        way_out="use exact=False; `pyspec doctor` shows all widths",
    )


class ExactMemory(SequenceMemory):
    """A sequence whose decodes all belong to one width class.

    One token is decoded beside a dummy of another sequence where the class asks for it, and no decode has a single
    output row beside several tokens, since the output head is a matrix product like the others.

    Raises:
        UnsupportedError: there is no such class, see `width_class`.
    """

    def __init__(self, context: Context, rollback: Rollback, *, scratch: int) -> None:
        super().__init__(context, rollback)
        self.widths = width_class(context, scratch=scratch)
        self._scratch = scratch

    @property
    def n_ctx(self) -> int:
        """Most tokens that memory can hold; the dummy token needs a cell, too."""
        return super().n_ctx - self.widths.pad

    @property
    def width_max(self) -> int:
        """Most tokens in a round's decode that stays in the class."""
        return min(super().width_max, self.widths.width_max)

    def decode(self, tokens: Tokens | Sequence[int], n_outputs: int) -> None:
        """As `SequenceMemory.decode`; the rows asked for begin at `first_row`."""
        n_tokens = len(tokens)
        if n_tokens == 1 and self.widths.pad:
            self._decode_padded(int(tokens[0]))
            self.first_row = 0
            return
        n_rows = max(n_outputs, min(2, n_tokens)) if n_outputs else 0
        super().decode(tokens, n_rows)
        self.first_row = n_rows - n_outputs

    def require_shift(self, n_keep: int = 0) -> None:
        """Always refused.

        Raises:
            UnsupportedError: keys that were moved are not those of a decode.
        """
        raise UnsupportedError(
            what="going on in a full context with exact=True",
            why="keys that move up are not, to the bit, those of a decode at the new positions",
            way_out="raise n_ctx, or use exact=False",
        )

    def _decode_padded(self, token: int) -> None:
        sequences = [self.rollback.seq_id, self._scratch]
        try:
            self.context.decode_batch([token, token], [self.n_past, 0], sequences, [True, True])
            self.context.seq_rm(self._scratch)
        except BaseException:
            with contextlib.suppress(PyspecError):
                self.context.seq_rm(self._scratch)
                self.clear()
            raise
        self.n_decodes += 1
        self.n_past += 1
