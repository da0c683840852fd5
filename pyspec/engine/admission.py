"""Where a request may begin: at which place, with what of another's memory, and whether it has to wait.

Owns the weighing of beginnings that requests have in common, and which idle memories are forgotten. Leaves taking
requests from the queue to `scheduler`, and going back in a memory to `pyspec.checkpoints`.
"""

from __future__ import annotations

import logging

from pyspec.engine.sequences import Sequences
from pyspec.engine.slots import Slot
from pyspec.errors import PyspecError
from pyspec.speculators import History, Tokens
from pyspec.speculators.history import n_common

__all__ = ["MIN_PIECE", "MIN_SHARED", "Admission", "n_within_reach"]

_log = logging.getLogger("pyspec")

MIN_SHARED = 32
"""Tokens that a beginning must have for another sequence's memory to be shared, or waited for."""

MIN_PIECE = 64
"""Tokens that a piece of a prompt must have for the kernels of a whole one, where a CPU has flash attention."""


def n_within_reach(slot: Slot, prompt: Tokens) -> int:
    """Tokens of `prompt` that a copy of the slot's memory could begin with, one short of all of them at most.

    Args:
        slot: whose memory holds the beginning of its decoder's history.
        prompt: [n_prompt] token ids.
    """
    checkpoints = slot.decoder.checkpoints
    n = min(n_common(slot.decoder.history.view()[: slot.memory.n_intact], prompt), len(prompt) - 1)
    return n if checkpoints is None else checkpoints.reach(n)


class Admission:
    """Weighs where requests begin.

    Args:
        sequences: of the context.
        slots: one for each of its memories.
        share: whether requests may begin with what another's memory holds.
    """

    def __init__(self, sequences: Sequences, slots: list[Slot], *, share: bool) -> None:
        self.sequences = sequences
        self.slots = slots
        self.share = share

    def best_place(self, free: list[Slot], prompt: Tokens) -> tuple[Slot, Slot, int]:
        """The free slot to work at, the slot whose memory to begin with, and how much of the prompt that has."""
        reach = {id(s): n_within_reach(s, prompt) for s in self.slots} if self.share else {}
        own = max(free, key=lambda s: (reach.get(id(s), 0), s.has_spare, -s.used_at))
        n_own = reach.get(id(own), 0)
        best = max(self.slots, key=lambda s: reach.get(id(s), 0))
        n_best = reach.get(id(best), 0)
        if n_best - n_own >= MIN_SHARED and self.sequences.context.can_seq_cp(partial=False):
            oldest = max(free, key=lambda s: (s.has_spare, -s.used_at))
            return oldest, best, n_best
        if n_own < MIN_SHARED:
            own = max(free, key=lambda s: (s.has_spare, -s.used_at))
        return own, own, n_own

    def must_wait(self, prompt: Tokens, n_shared: int) -> bool:
        """Whether another request is about to decode more of this prompt than there is now; it stops there."""
        if not self.share or not self.sequences.context.can_seq_cp(partial=False):
            return False
        for slot in self.slots:
            if slot.is_feeding:
                history = slot.decoder.history.view()
                n = min(n_common(history, prompt), len(prompt) - 1, len(history) - 1)
                can_cut = self.sequences.capabilities.can_trim
                stop = n if can_cut else self._stop_at(slot, n)
                if stop is not None and stop - n_shared >= MIN_SHARED and slot.memory.n_past < stop:
                    if not can_cut:
                        slot.stops.setdefault(stop, False)
                    return True
        return False

    def make_room(self, n_cells: int, chosen: Slot) -> bool:
        """Forget memories that nobody works with, the oldest first, until `n_cells` are free for `chosen`.

        What that one holds itself is among them. A memory to begin with is another's only while that one works.
        """
        others = [s for s in self.slots if s is not chosen]
        taken = {id(s): s.job.n_cells if s.job is not None else s.memory.n_past for s in others}
        idle = sorted((s for s in others if s.job is None), key=lambda s: s.used_at)
        for slot in idle:
            if sum(taken.values()) + n_cells <= self.sequences.n_cells:
                return True
            taken[id(slot)] = 0
            slot.decoder.forget()
        return sum(taken.values()) + n_cells <= self.sequences.n_cells

    def copy(self, source: Slot, target: Slot) -> None:
        """Give the target what the source's memory holds; where that cannot be it begins with nothing."""
        target.decoder.forget()
        try:
            self.sequences.share(source.memory, target.memory)
        except PyspecError as error:
            _log.warning("a common beginning is decoded again: %s", error)
            target.decoder.forget()
            return
        target.decoder.history = History(source.decoder.history.view()[: target.memory.n_past])
        if source.decoder.checkpoints is not None and target.decoder.checkpoints is not None:
            target.decoder.checkpoints.take(source.decoder.checkpoints.states)

    def stops(self, slot: Slot) -> dict[int, bool]:
        """Where the prompt gets checkpoints: as alone, and where it leaves the texts of others."""
        decoder = slot.decoder
        if not self.share or decoder.checkpoints is None:
            return {}
        stops, history = decoder.checkpoints.stops(decoder.stats.n_prompt - 1), decoder.history.view()
        for other in self.slots:
            if other is not slot:
                stop = self._stop_at(slot, n_common(other.decoder.history.view(), history))
                if stop is not None:
                    stops.setdefault(stop, False)
        return stops

    def _stop_at(self, slot: Slot, n: int) -> int | None:
        """Where a checkpoint serves those who have the first `n` tokens of a slot's prompt in common; None for nowhere.

        It leaves no piece smaller than the prompt has alone. Memory that can be cut anywhere needs none.
        """
        decoder, n_past, end = slot.decoder, slot.memory.n_past, slot.decoder.stats.n_prompt - 1
        if decoder.checkpoints is None or decoder.checkpoints.n_max == 0:
            return None
        n = end if n >= end else min(n, end - MIN_PIECE)
        return n if n - n_past >= MIN_PIECE else None
