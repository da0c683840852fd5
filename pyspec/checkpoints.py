"""Context checkpoints: states of one sequence at earlier positions, so that a changed prompt is not decoded anew.

Owns which positions are kept, within a number and a number of bytes, and going back to the newest usable one. Memory
that can be cut back needs none of them. Leaves the tokens that the positions stand for to the decoder.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, ClassVar

from pyspec._core import STATE_PARTIAL_ONLY, State
from pyspec.config import int_between, validate
from pyspec.errors import PyspecError
from pyspec.memory import Capabilities
from pyspec.rollback.trim import Trim
from pyspec.sequence import SequenceMemory
from pyspec.speculators.history import Tokens

__all__ = ["NEAR", "CheckpointOptions", "Checkpoints"]

_log = logging.getLogger("pyspec")

NEAR = 64
"""How far back the checkpoint lies, at most, from which the last tokens of a prompt or of an answer are changed."""

_N_NEAR = 2
"""Checkpoints that follow the end of an answer: the newer one may stand inside what is taken back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointOptions:
    """How many context checkpoints are kept, and where.

    Attributes:
        n_max: most checkpoints, 0 for none.
        max_bytes: most bytes of all of them, 0 for no limit.
        spacing: tokens of a text between two of them.
    """

    n_max: int = 16
    max_bytes: int = 0
    spacing: int = 1024

    _CHECKS: ClassVar[dict[str, Any]] = {
        "n_max": int_between(0, 1_000_000),
        "max_bytes": int_between(0, 2**63 - 1),
        "spacing": int_between(1, 2**31 - 1),
    }

    def __post_init__(self) -> None:
        validate(self, self._CHECKS)


class Checkpoints:
    """Checkpoints of one memory's sequence, oldest first.

    Some are kept as long as there is room: where a text was continued, before the last token of a prompt, and every
    `spacing` tokens. Two more follow the end of the text `NEAR` tokens apart, where tokens may be taken back again.

    Args:
        memory: whose sequence it is; where it was emptied by others, `go_back` forgets what no longer holds.
        can: what the memory can do; where it can be cut back anywhere, no checkpoints are kept.
        options: how many, and where.
    """

    def __init__(self, memory: SequenceMemory, can: Capabilities, options: CheckpointOptions | None = None) -> None:
        self.memory = memory
        self.options = options or CheckpointOptions()
        self.n_max = 0 if can.kind == "attention" and can.can_trim else self.options.n_max
        self._can_trim = can.can_trim
        self._kept: list[tuple[int, State]] = []
        self._near: list[int] = []  # positions among them that follow the end
        self._due = 0  # from this position on, `follow` has something to do
        self._takes_back = False

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
        self._near.clear()
        self._kept = sorted(states, key=lambda kept: kept[0]) if self.n_max else []
        self._make_room()

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()
        self._near.clear()

    def add(self, *, near: bool = False) -> None:
        """Keep the present end of memory; where there is no room the oldest ones go.

        A state that cannot be saved is not kept, and a log line says so.

        Args:
            near: only until the end of the text has moved on.
        """
        pos = self.memory.n_past
        if self.n_max == 0 or pos == 0:
            return
        if pos in self.positions:
            self._near = [p for p in self._near if near or p != pos]
            return
        state, max_bytes = State(), self.options.max_bytes
        try:
            self.memory.context.state_save(self.memory.rollback.seq_id, state, STATE_PARTIAL_ONLY)
        except (PyspecError, MemoryError) as error:
            _log.warning("no context checkpoint at position %d: %s", pos, error)
            return
        if max_bytes and state.n_bytes > max_bytes:
            _log.warning("no context checkpoint: %d bytes exceed ctx_checkpoint_bytes=%d", state.n_bytes, max_bytes)
            return
        self.forget_behind(pos - 1)
        self._kept.append((pos, state))
        if near:
            self._near.append(pos)
            gone, self._near = self._near[:-_N_NEAR], self._near[-_N_NEAR:]
            self._kept = [kept for kept in self._kept if kept[0] not in gone]
        self._make_room()

    # ------------------------------------------------------------- on the way
    def feed(self, tokens: Tokens, end: int, *, takes_back: bool = False) -> None:
        """Decode `tokens` from the end of memory up to `end`, without outputs and with checkpoints on the way.

        One stands where memory ended, one every `spacing` tokens, one `NEAR` tokens before `end`, one at `end`.

        Args:
            tokens: [n_tokens] the text that memory holds the beginning of.
            end: at least what memory holds.
            takes_back: the last tokens of what follows may be taken back: `follow` keeps states near.
        """
        memory, n_batch = self.memory, self.memory.context.n_batch
        self._takes_back = takes_back and self._can_be_near
        for stop, near in sorted(self.stops(end).items()):
            while memory.n_past < stop:
                memory.decode(tokens[memory.n_past : min(stop, memory.n_past + n_batch)], 0)
            self.add(near=near)
        self._due = 0

    def stops(self, end: int) -> dict[int, bool]:
        """Where `feed` up to `end` keeps states, and whether each only follows the end; none where none are kept."""
        if self.n_max == 0:
            return {}
        start, spacing = self.memory.n_past, self.options.spacing
        stops = dict.fromkeys((start, *range(start + spacing, end, spacing), end), False)
        if self._can_be_near and end - start > 2 * NEAR:
            stops.setdefault(end - NEAR, True)
        return stops

    def follow(self) -> None:
        """Tokens were decoded behind what `feed` decoded: keep a state where one is due. Cheap where none is."""
        pos = self.memory.n_past
        if pos < self._due or self.n_max == 0:
            return
        lasting = max((p for p in self.positions if p not in self._near), default=0)
        last = self._kept[-1][0] if self._kept else 0
        if pos - lasting >= self.options.spacing:
            self.add()
            lasting = last = pos
        elif self._takes_back and pos - last >= NEAR:
            self.add(near=True)
            last = pos
        self._due = min(lasting + self.options.spacing, last + NEAR if self._takes_back else 2**62)

    # ------------------------------------------------------------- going back
    def reach(self, keep: int) -> int:
        """Where `go_back(keep)` would come to, for a copy of this memory, too."""
        memory = self.memory
        if keep >= memory.n_past:
            return memory.n_past
        if self._can_cut(keep):
            return keep
        return max((pos for pos in self.positions if pos <= keep), default=0)

    def _can_cut(self, keep: int) -> bool:
        return self._can_trim and Trim(self.memory.context, self.memory.rollback.seq_id).can_roll_back(keep)

    def go_back(self, keep: int) -> int:
        """Bring memory to the largest position up to `keep` that can be reached; returns it, 0 where there is none.

        Checkpoints behind it are forgotten: their tokens are gone.
        """
        memory = self.memory
        memory.commit()
        self.forget_behind(min(keep, memory.n_past))  # a decode that failed has emptied memory
        if keep >= memory.n_past:
            return memory.n_past
        if self._can_cut(keep):
            memory.n_past = Trim(memory.context, memory.rollback.seq_id).roll_back(keep)
            return keep
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

    def forget_behind(self, pos: int) -> None:
        """Memory was brought back to `pos` by other means: forget what stands behind it."""
        self._kept = [kept for kept in self._kept if kept[0] <= pos]
        self._near = [p for p in self._near if p <= pos]
        self._due = 0

    # ------------------------------------------------------------- room
    @property
    def _can_be_near(self) -> bool:
        return self.n_max > 2 * _N_NEAR

    def _make_room(self) -> None:
        max_bytes = self.options.max_bytes
        while self._kept and (len(self._kept) > self.n_max or (max_bytes and self.nbytes > max_bytes)):
            self._kept.pop(0)
