"""What every rollback strategy offers.

Owns the interface and what the strategies share: one sequence, one restorable position, counters.
Leaves to others when to save, commit and roll back (`pyspec.sequence`) and which strategy to use (`choose`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from pyspec._core import Context
from pyspec.errors import MemoryRefusedError

__all__ = ["Rollback"]


class Rollback(ABC):
    """Brings one sequence's memory back to a position it had before a rejected draft.

    Life of a round that verifies a draft: `save(pos, n_draft)`, decode, then `commit()` when all of it is kept or
    `roll_back(keep)` when not. A save stays good until `commit`, `reset` or a save at another position,
    so that several rounds may start from the same one (fused replay).

    Attributes:
        seq_id: the sequence that holds the tokens; a strategy may change it (`fork`).
        saved_pos: the position that `roll_back` can surely reach, None without a save.
        undone_by: the name of the strategy that did the last rollback; differs from `name` where two are mixed.
    """

    name: ClassVar[str]
    #: Whether a rollback reaches, as a rule, every `keep` in the last decode, so that little is replayed.
    keeps_accepted: ClassVar[bool] = False

    def __init__(self, context: Context, seq_id: int) -> None:
        self.context = context
        self.seq_id = seq_id
        self.saved_pos: int | None = None
        self.n_saves = 0
        self.saved_bytes = 0
        self.undone_by: str = self.name

    @property
    def max_draft(self) -> int:
        """Longest draft that can be rolled back."""
        return 2**31 - 1

    def save(self, pos: int, n_draft: int) -> None:
        """Make position `pos`, the end of the sequence's memory, restorable; no-op when it is already.

        `n_draft` is the length of the draft that may have to be undone.

        Raises:
            StateError, MemoryError: nothing was saved; memory is as it was.
        """
        if self.saved_pos == pos:
            return
        self.saved_pos = None
        self._save(pos)
        self.saved_pos = pos
        self.n_saves += 1

    def commit(self) -> None:
        """All decoded tokens are kept: the save, if any, is of no more use."""
        if self.saved_pos is not None:
            self.saved_pos = None
            self._drop()

    def can_roll_back(self, keep: int) -> bool:
        """Whether `roll_back(keep)` would reach a position now."""
        return self.saved_pos is not None and self.saved_pos <= keep

    @abstractmethod
    def roll_back(self, keep: int) -> int:
        """Forget every token at or after `keep`; returns the position reached, between `saved_pos` and `keep`.

        Raises:
            MemoryRefusedError: not `can_roll_back`; nothing was changed.
            StateError: the sequence's memory must be cleared.
        """

    def reset(self) -> None:
        """Forget the save, also one that failed half way, and everything the sequence holds."""
        self.saved_pos = None
        self._drop()
        self.context.seq_rm(self.seq_id)

    def _require(self, keep: int) -> int:
        """The saved position, or the refusal of `roll_back(keep)`."""
        pos = self.saved_pos
        if pos is None or pos > keep:
            raise MemoryRefusedError(seq_id=self.seq_id, p0=keep, p1=-1)
        return pos

    @abstractmethod
    def _save(self, pos: int) -> None: ...

    def _drop(self) -> None:  # noqa: B027 - most strategies hold nothing
        """Free what a save holds; memory of the sequence is untouched."""
