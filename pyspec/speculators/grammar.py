"""Drafts of what a constraint leaves no choice about: the names, quotes and brackets of a JSON schema, for example.

Owns the speculator; leaves knowing which tokens are forced to the matcher of the generation, which it is lent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspec.speculators.history import History, Tokens
from pyspec.speculators.protocol import check_kind, check_verdict

__all__ = ["Grammar"]

ForcedTokens = Callable[[int], list[int]]
"""Called with the most tokens that are of use; returns those that must follow the tokens chosen so far."""


_CERTAIN = 127
"""The length of a match that the budget trusts most."""


class Grammar:
    """Drafts the forced tokens; drafts nothing in a generation without a constraint or grammar.

    It stands in front of the other speculators where a generation has a constraint, and knows no options.
    """

    name = "grammar"
    nbytes = 0

    def __init__(self) -> None:
        self.follow(None)

    def follow(self, forced: ForcedTokens | None, *, certain: bool = True) -> None:
        """The next generation's forced tokens, None where it has no constraint.

        `certain`: the target can choose no others, as it could where a text may be cut into tokens in several ways.
        """
        self._forced = forced
        self.match_length = _CERTAIN if certain else 0

    def begin(self, tokens: Tokens) -> None:
        """Nothing is learned from a text."""

    def draft(self, history: History, n_max: int) -> list[int]:
        """The forced tokens, at most `n_max`."""
        return self._forced(n_max) if self._forced is not None and n_max > 0 else []

    def accept(self, n_drafted: int, n_accepted: int, *, own: bool) -> None:
        """Nothing is learned from a verdict."""
        check_verdict(n_drafted, n_accepted)

    def get_state(self) -> dict[str, Any]:
        """Its kind; a constraint belongs to a generation."""
        return {"kind": self.name}

    def set_state(self, state: dict[str, Any]) -> None:
        """Nothing to restore.

        Raises:
            StateError: the state of something else.
        """
        check_kind(state, self.name)
