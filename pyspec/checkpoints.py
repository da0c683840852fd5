"""Context checkpoints: states of one sequence at earlier positions, so that a changed prompt is not decoded anew.

Owns which positions are kept, within a number and a number of bytes, and going back to the newest usable one. Memory
that can be cut back needs none of them. Leaves the tokens that the positions stand for to the decoder.
"""

from __future__ import annotations

import logging

from pyspec._core import STATE_PARTIAL_ONLY, State
from pyspec.errors import PyspecError
from pyspec.memory import Capabilities
from pyspec.rollback.trim import Trim
from pyspec.sequence import SequenceMemory

__all__ = ["Checkpoints"]

_log = logging.getLogger("pyspec")


class Checkpoints:
    """Checkpoints of one memory's sequence, oldest first.

    Args:
        memory: whose sequence it is; nobody else may clear it without telling `clear`.
        n_max: most checkpoints, 0 for none.
        max_bytes: most bytes of all, 0 for no limit.
        can: what the memory can do; where it can be cut back anywhere, no checkpoints are kept.
    """

    def __init__(self, memory: SequenceMemory, can: Capabilities, *, n_max: int = 16, max_bytes: int = 0) -> None:
        self.memory = memory
        self.n_max = 0 if can.kind == "attention" and can.can_trim else n_max
        self.max_bytes = max_bytes
        self._can_trim = can.can_trim
        self._kept: list[tuple[int, State]] = []

    @property
    def positions(self) -> list[int]:
        """Positions that can be gone back to, ascending."""
        return [pos for pos, _ in self._kept]

    @property
    def nbytes(self) -> int:
        """Bytes of all states."""
        return sum(state.n_bytes for _, state in self._kept)

    @property
    def states(self) -> list[tuple[int, State]]:
        """Positions and states, ascending."""
        return list(self._kept)

    def take(self, states: list[tuple[int, State]]) -> None:
        """Have these, of the same sequence, in place of all others; the newest ones where there are too many."""
        self._kept = sorted(states, key=lambda kept: kept[0])[-self.n_max :] if self.n_max else []

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()

    def add(self) -> None:
        """Keep the present end of memory; where there is no room the oldest ones go.

        A state that cannot be saved is not kept, and a log line says so.
        """
        pos = self.memory.n_past
        if self.n_max == 0 or pos == 0 or pos in self.positions:
            return
        state = State()
        try:
            self.memory.context.state_save(self.memory.rollback.seq_id, state, STATE_PARTIAL_ONLY)
        except (PyspecError, MemoryError) as error:
            _log.warning("no context checkpoint at position %d: %s", pos, error)
            return
        if self.max_bytes and state.n_bytes > self.max_bytes:
            _log.warning("no context checkpoint: %d bytes exceed max_bytes=%d", state.n_bytes, self.max_bytes)
            return
        self._kept = [kept for kept in self._kept if kept[0] < pos]
        self._kept.append((pos, state))
        while len(self._kept) > self.n_max or (self.max_bytes and self.nbytes > self.max_bytes):
            self._kept.pop(0)

    def go_back(self, keep: int) -> int:
        """Bring memory to the largest position up to `keep` that can be reached; returns it, 0 where there is none.

        Checkpoints behind it are forgotten: their tokens are gone.
        """
        memory = self.memory
        memory.commit()
        if keep >= memory.n_past:
            return memory.n_past
        trim = Trim(memory.context, memory.rollback.seq_id)
        if self._can_trim and trim.can_roll_back(keep):
            memory.n_past = trim.roll_back(keep)
            return keep
        self._kept = [kept for kept in self._kept if kept[0] <= keep]
        while self._kept:
            pos, state = self._kept[-1]
            try:
                memory.context.state_restore(memory.rollback.seq_id, state)
                memory.context.seq_rm(memory.rollback.seq_id, pos, -1)
            except PyspecError as error:
                _log.warning("a context checkpoint at position %d is of no use: %s", pos, error)
                self._kept.pop()
                continue
            memory.n_past = pos
            return pos
        memory.clear()
        return 0
