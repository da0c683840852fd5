"""The `shadow` strategy: a spare sequence shares only the recurrent state.

Owns the spare sequence while a save is good. The state is copied on write inside the graph, on its device;
no attention cell is shared, so the cost does not grow with the context.
"""

from __future__ import annotations

from pyspec._core import Context
from pyspec.rollback.protocol import Rollback

__all__ = ["Shadow"]


class Shadow(Rollback):
    """`seq_cp(seq, spare, pos, -1)` with no attention cell at `pos`, and the same way back."""

    name = "shadow"

    def __init__(self, context: Context, seq_id: int, spare: int) -> None:
        super().__init__(context, seq_id)
        self.spare = spare

    def roll_back(self, keep: int) -> int:
        """Return to the saved position; the save stays good."""
        pos = self._require(keep)
        self.context.seq_cp(self.spare, self.seq_id, pos, -1)
        self.context.seq_rm(self.seq_id, pos, -1)
        return pos

    def _save(self, pos: int) -> None:
        self.context.seq_rm(self.spare)
        if pos > 0:
            self.context.seq_cp(self.seq_id, self.spare, pos, -1)

    def _drop(self) -> None:
        self.context.seq_rm(self.spare)
