"""Anybody's object with `begin`, `draft` and `accept` as a whole speculator.

Owns the defaults of what such an object may leave out: a name, its size, and a state to save. Leaves drafting to it.
"""

from __future__ import annotations

from typing import Any

from pyspec.errors import StateError
from pyspec.speculators.history import History, Tokens

__all__ = ["Adapted", "is_drafter"]


def is_drafter(object_: object) -> bool:
    """Whether the three calls of a drafter are there."""
    return not isinstance(object_, type) and all(
        callable(getattr(object_, name, None)) for name in ("begin", "draft", "accept")
    )


class Adapted:
    """A speculator of three methods, completed.

    `name` is the object's, or its class's name; `nbytes`, `match_length` and `decodes` are the object's, if any. Where
    the object has no `get_state` and `set_state`, a saved session starts it anew.
    """

    def __init__(self, drafter: Any) -> None:
        self.drafter = drafter

    @property
    def name(self) -> str:
        """How errors and statistics call it."""
        return str(getattr(self.drafter, "name", None) or type(self.drafter).__name__)

    @property
    def nbytes(self) -> int:
        """What the object says of itself, else 0."""
        return int(getattr(self.drafter, "nbytes", 0))

    @property
    def match_length(self) -> int:
        """What the object says of its last draft, else 0."""
        return int(getattr(self.drafter, "match_length", 0))

    @property
    def decodes(self) -> bool:
        """Whether the object says that it needs decodes to draft."""
        return bool(getattr(self.drafter, "decodes", False))

    def begin(self, tokens: Tokens) -> None:
        """The object's own."""
        self.drafter.begin(tokens)

    def draft(self, history: History, n_max: int) -> Any:
        """The object's own."""
        return self.drafter.draft(history, n_max)

    def accept(self, n_drafted: int, n_accepted: int, *, own: bool) -> None:
        """The object's own."""
        self.drafter.accept(n_drafted, n_accepted, own=own)

    def get_state(self) -> dict[str, Any]:
        """The object's own state, if it has one, under the name."""
        own = self.drafter.get_state() if callable(getattr(self.drafter, "get_state", None)) else None
        return {"kind": self.name, "own": own}

    def set_state(self, state: dict[str, Any]) -> None:
        """Hand the object its own state, if it can take one.

        Raises:
            StateError: the state of something else.
        """
        if state.get("kind") != self.name or "own" not in state:
            raise StateError(reason=f"of speculator {state.get('kind')!r}, not {self.name!r}")
        if callable(getattr(self.drafter, "set_state", None)):
            self.drafter.set_state(state["own"])
