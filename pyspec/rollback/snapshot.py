"""The `snapshot` strategy: llama.cpp keeps the last `n_rs_seq` recurrent states, `seq_rm` moves a cursor.

Owns the guards around the cursor: never the whole last decode, never twice without a decode between.
Works only where `Context.n_rs_seq` reads back above 0; every decode writes that many extra states.
"""

from __future__ import annotations

from pyspec.errors import MemoryRefusedError
from pyspec.rollback.protocol import Rollback

__all__ = ["Snapshot"]


class Snapshot(Rollback):
    """`seq_rm(seq, keep, -1)` within the last `n_rs_seq` tokens; keeps accepted tokens."""

    name = "snapshot"
    keeps_accepted = True

    @property
    def max_draft(self) -> int:
        """The number of states kept, and never more than one ubatch holds beside one decided token."""
        return min(self.context.n_rs_seq, self.context.n_ubatch - 1)

    def can_roll_back(self, keep: int) -> bool:
        """Never without a decode since the last rollback, and never the whole last decode."""
        return self.saved_pos is not None and keep > self.saved_pos

    def roll_back(self, keep: int) -> int:
        """Move the cursor back to `keep`, which must lie inside the last decode and after its first token."""
        if not self.can_roll_back(keep):
            raise MemoryRefusedError(seq_id=self.seq_id, p0=keep, p1=-1)
        self.context.seq_rm(self.seq_id, keep, -1)
        self.saved_pos = None  # single use: llama.cpp refuses a second one before the next decode
        return keep

    def _save(self, pos: int) -> None:
        self.n_saves -= 1  # llama.cpp keeps the states while it decodes
