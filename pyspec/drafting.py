"""Who drafts, and what became of it: between the decoder and the speculators of one sequence, where no cost is weighed.

Owns the asking, what was drafted, and the verdict. Leaves a budget to `pyspec.budgeted`, decoding to the decoder.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

from pyspec.errors import StateError
from pyspec.rounds import Decision
from pyspec.speculators import (
    History,
    Law,
    Speculator,
    Tokens,
    checked_accept,
    checked_begin,
    checked_draft,
    checked_get_state,
    checked_laws,
    checked_reseed,
    checked_set_state,
    optional,
)
from pyspec.speculators.chain import Chain
from pyspec.stats import DraftingCounts

__all__ = ["Drafting"]

_NO_SPECULATOR = Decision("no speculator")
_NO_PROPOSAL = Decision("no proposal")


class Drafting:
    """Every draft that the speculator has is decoded, as long as it comes.

    The decoder calls `begin`, then per round `draft`, `observe` and `settle`.
    """

    def __init__(self, speculator: Speculator | None) -> None:
        self.speculator = speculator
        self.counts = DraftingCounts()
        self.author = ""
        self.decision = _NO_SPECULATOR  # why the last call of `draft` gave what it gave
        self.n_rounds = 0
        self.drafted: list[int] = []
        self.laws: list[Law] = []

    @property
    def members(self) -> tuple[Speculator, ...]:
        """The speculators that may be asked."""
        one = self.speculator
        return () if one is None else one.members if isinstance(one, Chain) else (one,)

    @property
    def draws(self) -> bool:
        """Whether a draft may be drawn from a law instead of chosen."""
        return any(optional(member, "draws") for member in self.members)

    def reseed(self, seed: int) -> None:
        """Before `begin`: the seed of a generation, for members that draw."""
        for member in self.members:
            if optional(member, "draws"):
                checked_reseed(member, seed)

    @property
    def name(self) -> str:
        """The speculator's name."""
        return self.speculator.name if self.speculator else "none"

    def begin(self, prompt: Tokens) -> None:
        """A generation starts.

        Raises:
            SpeculatorError: the speculator's `begin` raised.
        """
        self.counts = DraftingCounts()
        self.drafted, self.laws = [], []  # a round that was stopped left its own
        if self.speculator is not None:
            checked_begin(self.speculator, prompt)

    def draft(self, history: History, n_max: int, *, n_pending: int, n_vocab: int) -> list[int]:
        """At most `n_max` tokens to decode behind the history, whose last `n_pending` are not in memory.

        Raises:
            SpeculatorError: a speculator raised, or its draft cannot be used.
        """
        if self.speculator is None:
            return []
        start = perf_counter()
        draft = checked_draft(self.speculator, history, n_max, n_vocab)
        self.counts.count_call(self.speculator.name, perf_counter() - start)
        self.decision = Decision("drafted", len(draft)) if draft else _NO_PROPOSAL
        author = getattr(self.speculator, "author", None) or self.speculator
        self.author = author.name
        self._note(author, draft, 0)
        return draft

    def observe(self, width: int, decode_s: float, rollback_s: float) -> None:
        """A round decoded `width` tokens in `decode_s` seconds; saving and undoing a draft took `rollback_s`."""

    def settle(self, history: History, n_drafted: int, n_accepted: int) -> None:
        """The round is over and the history has its tokens; `n_drafted` is 0 where no draft was decoded.

        Raises:
            SpeculatorError: a speculator's `accept` raised.
        """
        self.drafted, self.laws = [], []
        self.n_rounds += 1
        if n_drafted and self.speculator is not None:
            checked_accept(self.speculator, n_drafted, n_accepted, own=True)

    # ------------------------------------------------------------- state
    def get_state(self) -> dict[str, Any]:
        """What the speculator learned, by names: nested plain data and arrays. Taken between rounds.

        Raises:
            SpeculatorError: the speculator's `get_state` raised.
        """
        return {"speculators": [checked_get_state(member) for member in self.members]}

    def set_state(self, state: dict[str, Any]) -> None:
        """Draft as the saved one would, where nothing is None.

        Raises:
            StateError: of other speculators; those that took theirs are as saved.
            SpeculatorError: a speculator's `set_state` raised something else.
        """
        states = state.get("speculators")
        if not isinstance(states, list) or len(states) != len(self.members):
            raise StateError(reason=f"not of the speculators {self.name}")
        for member, of_member in zip(self.members, states, strict=True):
            if of_member is not None:  # it had none that could be saved
                checked_set_state(member, of_member)

    def _note(self, author: Speculator, draft: list[int], start: int) -> None:
        """Remember the draft that is being verified, and what its tokens (its author's from `start` on) came from."""
        self.drafted = draft
        self.laws = checked_laws(author, draft, start) if draft and optional(author, "draws") else []
