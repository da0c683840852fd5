"""The `fork` strategy: verify on a whole copy of the sequence, then keep the copy or drop it.

Owns the spare sequence; the two trade places when a draft is accepted whole, so `seq_id` changes.
Works on every architecture whose sequences can be shared; walks every attention cell.
"""

from __future__ import annotations

from pyspec._core import Context
from pyspec.rollback.protocol import Rollback

__all__ = ["Fork"]


class Fork(Rollback):
    """`seq_cp(seq, spare)` whole; the tokens are decoded on the copy, the original is never touched."""

    name = "fork"

    def __init__(self, context: Context, seq_id: int, spare: int) -> None:
        super().__init__(context, seq_id)
        self._original = spare

    def roll_back(self, keep: int) -> int:
        """Drop the copy and take a fresh one of the untouched original; the save stays good."""
        pos = self._require(keep)
        self.context.seq_rm(self.seq_id)
        if pos > 0:
            self.context.seq_cp(self._original, self.seq_id)
        return pos

    def _save(self, pos: int) -> None:
        self.context.seq_rm(self._original)
        if pos > 0:
            self.context.seq_cp(self.seq_id, self._original)
        self.seq_id, self._original = self._original, self.seq_id

    def _drop(self) -> None:
        self.context.seq_rm(self._original)
