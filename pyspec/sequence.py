"""The tokens that one sequence of a context holds.

Owns the count of positions in memory and what happens to it on failure: a sequence whose decode failed is empty.
Leaves to others which tokens to decode; a target and a draft model use it alike.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from pyspec._core import Context
from pyspec.errors import InvalidValueError, PyspecError, UnsupportedError
from pyspec.rollback.protocol import Rollback
from pyspec.speculators.history import Tokens

__all__ = ["SequenceMemory"]

MAX_WIDTH = 63
"""Flash attention on a CPU, where a context has it, has another kernel for one token more, and other last bits."""


class SequenceMemory:
    """Memory of one sequence, with its rollback strategy.

    Attributes:
        n_past: tokens in memory, which is also the next position.
        n_decodes: decodes since construction.
        first_row: the output row where those that the last `decode` was asked for begin.
        watch: called after each decode, when `n_past` holds its tokens; may raise to stop what decodes in steps.
    """

    def __init__(self, context: Context, rollback: Rollback) -> None:
        self.context = context
        self.rollback = rollback
        self.n_past = 0
        self.n_decodes = 0
        self.first_row = 0
        self.watch: Callable[[], object] | None = None

    @property
    def n_ctx(self) -> int:
        """Most tokens that memory can hold."""
        return self.context.n_ctx_seq

    @property
    def width_max(self) -> int:
        """Most tokens in a round's decode.

        One ubatch, so that no sliding window moves inside it, and fewer than kernels change at.
        """
        return min(self.context.n_batch, self.context.n_ubatch, MAX_WIDTH)

    def clear(self) -> None:
        """Forget everything."""
        self.n_past = 0
        self.rollback.reset()

    def decode(self, tokens: Tokens | Sequence[int], n_outputs: int) -> None:
        """Add `tokens` to memory; the last `n_outputs` give logits rows.

        Raises:
            PyspecError, KeyboardInterrupt: the sequence is empty afterwards.
        """
        try:
            self.context.decode(tokens, pos=self.n_past, seq_id=self.rollback.seq_id, n_outputs=n_outputs)
        except BaseException:
            with contextlib.suppress(PyspecError):
                self.clear()
            raise
        self.n_decodes += 1
        self.n_past += len(tokens)
        if self.watch is not None:
            self.watch()

    def feed(self, tokens: Tokens, *, n_last: int) -> None:
        """Decode all but the last 1 to `n_last` tokens in steps of `n_last`, without outputs.

        The steps depend on the number of tokens alone, so that plain and speculative runs split alike.
        """
        for start in range(0, len(tokens) - n_last, n_last):
            self.decode(tokens[start : start + n_last], 0)

    def shift(self, n_keep: int, n_drop: int) -> None:
        """Forget the `n_drop` tokens behind the first `n_keep`; those behind them move up.

        Their keys are turned to the new positions, and were made while the dropped tokens were still seen: no decode of
        the shorter text gives the same bits.

        Raises:
            UnsupportedError: as `require_shift`; nothing was changed.
        """
        self.require_shift(n_keep)
        context, seq_id = self.context, self.rollback.seq_id
        self.commit()
        context.seq_rm(seq_id, n_keep, n_keep + n_drop)
        context.seq_add(seq_id, n_keep + n_drop, -1, -n_drop)
        self.n_past -= n_drop

    def require_shift(self, n_keep: int = 0) -> None:
        """Refuse where `shift` cannot be, or cannot be of use when memory is full and `n_keep` tokens stay.

        Raises:
            UnsupportedError: with the reason.
            InvalidValueError: so many stay that there is nothing to drop.
        """
        kind = self.context.model.memory_kind.replace("_", " ")
        if kind in ("recurrent", "hybrid") or not self.context.can_shift:
            raise UnsupportedError(
                what="going on in a full context",
                why=f"tokens would have to go from the middle of its {kind} memory, which cannot move the others up",
                way_out="raise n_ctx; attention models can, with type_k 'f16' or 'f32' (sliding windows: and swa_full)",
            )
        if n_keep > self.n_ctx - 2:
            allowed = f"at most {self.n_ctx - 2}: of {self.n_ctx} positions two must be free to move"
            raise InvalidValueError(name="n_keep", value=n_keep, allowed=allowed)

    def save(self, n_draft: int) -> None:
        """Make the present end restorable before a draft of `n_draft` tokens."""
        self.rollback.save(self.n_past, n_draft)

    def commit(self) -> None:
        """Keep all that is in memory; the save is of no more use."""
        self.rollback.commit()

    def roll_back(self, keep: int) -> int:
        """Forget tokens at or after `keep`; returns the position reached, which may be smaller.

        Raises:
            PyspecError: refused; the sequence is empty afterwards.
        """
        try:
            self.n_past = self.rollback.roll_back(keep)
        except BaseException:
            with contextlib.suppress(PyspecError):
                self.clear()
            raise
        return self.n_past
