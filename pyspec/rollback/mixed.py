"""The `snapshot+shadow` strategy: snapshots where the rejected tokens are few, a shadow for the rest.

Owns the choice between the two, per draft and per rollback, and the guard between them: llama.cpp keeps a moved cursor
per sequence and not per state, so no state may be shared between a rollback by cursor and the next decode.
"""

from __future__ import annotations

from typing import ClassVar

from pyspec._core import Context
from pyspec.errors import MemoryRefusedError
from pyspec.rollback.protocol import Rollback
from pyspec.rollback.shadow import Shadow

__all__ = ["SnapshotShadow"]


class SnapshotShadow(Rollback):
    """Needs `n_rs_seq` above 0 and a spare sequence.

    A draft no longer than the snapshots kept is saved by them alone. A longer one is saved by the shadow, too, which
    is used when more tokens are rejected than there are snapshots. Snapshots keep accepted tokens, the shadow does not.
    """

    name: ClassVar[str] = "snapshot+shadow"
    keeps_accepted: ClassVar[bool] = True

    def __init__(self, context: Context, seq_id: int, spare: int) -> None:
        super().__init__(context, seq_id)
        self._shadow = Shadow(context, seq_id, spare)
        self._cursor: int | None = None

    @property
    def n_snapshots(self) -> int:
        """Tokens that the cursor can go back: as many as there are states, and all in one ubatch."""
        return min(self.context.n_rs_seq, self.context.n_ubatch - 1)

    @property
    def max_draft(self) -> int:
        """Any draft; right after a rollback by cursor only one that snapshots can undo."""
        return self.n_snapshots if self._end() == self._cursor else super().max_draft

    def save(self, pos: int, n_draft: int) -> None:
        """As `Rollback.save`; shares the state only for drafts longer than the snapshots kept."""
        if n_draft > self.n_snapshots:
            if self._cursor == pos and self._end() == pos:
                raise MemoryRefusedError(seq_id=self.seq_id, p0=pos, p1=-1)
            self._shadow.save(pos, n_draft)
            self.n_saves = self._shadow.n_saves
        self.saved_pos = pos

    def commit(self) -> None:
        """As `Rollback.commit`."""
        self._shadow.commit()
        self.saved_pos = None

    def can_roll_back(self, keep: int) -> bool:
        """Whether the cursor or the shadow reaches `keep`."""
        return self.saved_pos is not None and (self._by_cursor(keep) or self._shadow.can_roll_back(keep))

    def roll_back(self, keep: int) -> int:
        """Move the cursor to `keep` where it reaches that far, else return to the shadow's position."""
        if not self.can_roll_back(keep):
            raise MemoryRefusedError(seq_id=self.seq_id, p0=keep, p1=-1)
        if not self._by_cursor(keep):
            self.undone_by, self._cursor = self._shadow.name, None
            return self._shadow.roll_back(keep)
        self.undone_by = "snapshot"
        self.context.seq_rm(self.seq_id, keep, -1)
        self.commit()
        self._cursor = keep
        return keep

    def _by_cursor(self, keep: int) -> bool:
        """Inside the last decode and after its first token, which also means: never twice without a decode between."""
        end = self._end()
        return self.saved_pos is not None and self.saved_pos < keep < end and end - keep <= self.n_snapshots

    def _end(self) -> int:
        return self.context.seq_pos_max(self.seq_id) + 1

    def _save(self, pos: int) -> None:
        raise AssertionError("save is this strategy's own")

    def _drop(self) -> None:
        self._shadow.commit()
        self._cursor = None
