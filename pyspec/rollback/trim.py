"""The `trim` strategy: remove the rejected positions.

Owns nothing but the call; works where memory can forget its last positions (attention, sliding window).
Sliding windows: cells are overwritten only when outside the window of the decode's first token.
"""

from __future__ import annotations

from pyspec.errors import MemoryRefusedError
from pyspec.rollback.protocol import Rollback

__all__ = ["Trim"]


class Trim(Rollback):
    """`seq_rm(seq, keep, -1)`: free, and keeps accepted tokens, so nothing is ever replayed."""

    name = "trim"
    keeps_accepted = True

    def can_roll_back(self, keep: int) -> bool:
        """Always, unless a sliding window has moved past what the token at `keep` must see."""
        n_swa = self.context.model.n_swa
        return n_swa == 0 or keep == 0 or self.context.seq_pos_min(self.seq_id) <= max(0, keep - n_swa)

    def roll_back(self, keep: int) -> int:
        """Remove positions from `keep` on; always reaches `keep`."""
        if not self.can_roll_back(keep):
            raise MemoryRefusedError(seq_id=self.seq_id, p0=keep, p1=-1)
        self.context.seq_rm(self.seq_id, keep, -1)
        return keep

    def _save(self, pos: int) -> None:
        self.n_saves -= 1  # nothing is copied: memory itself is the save
