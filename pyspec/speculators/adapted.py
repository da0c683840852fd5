"""Anybody's object with `begin`, `draft` and `accept` as a whole speculator.

Owns the defaults of what such an object may leave out: a name, its size, and a state to save. Leaves drafting to it.
"""

from __future__ import annotations

from inspect import getattr_static
from typing import Any

from pyspec.errors import StateError
from pyspec.speculators.history import History, Tokens
from pyspec.speculators.protocol import check_kind

__all__ = ["Adapted", "identity", "is_drafter", "is_whole", "own_object"]

_WHOLE = ("name", "nbytes", "begin", "draft", "accept", "get_state", "set_state")

_OPTIONAL = frozenset("match_length decodes n_draft_max n_draft_min token_s read_s n_unread draws laws reseed".split())


def is_drafter(object_: object) -> bool:
    """Whether the three calls of a drafter are there."""
    return not isinstance(object_, type) and all(
        callable(getattr(object_, name, None)) for name in ("begin", "draft", "accept")
    )


def is_whole(object_: object) -> bool:
    """Whether all of a speculator is there; no property is asked."""
    nothing = object()
    return all(getattr_static(object_, name, nothing) is not nothing for name in _WHOLE)


def own_object(speculator: object) -> object:
    """What was given: the object that was completed, or else the speculator itself."""
    return speculator.drafter if isinstance(speculator, Adapted) else speculator


def identity(speculator: object) -> int:
    """The same for all that is made of one object."""
    return id(own_object(speculator))


class Adapted:
    """A speculator of three methods, completed.

    Its name stays what the object's was when it was taken; whatever else is optional is the object's,
    if it has it. Where the object has no `get_state` and `set_state`, a saved session starts it anew.
    """

    def __init__(self, drafter: Any, name: str) -> None:
        self.drafter = drafter
        self.name = name

    @property
    def nbytes(self) -> int:
        """What the object says of itself, else 0."""
        return int(getattr(self.drafter, "nbytes", 0))

    def __getattr__(self, name: str) -> Any:
        """What else is optional (`_OPTIONAL`) is the object's, if it has it."""
        if name in _OPTIONAL:
            return getattr(self.drafter, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

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
        check_kind(state, self.name)
        if "own" not in state:
            raise StateError(reason=f"no {self.name} state: it has no 'own'")
        if callable(getattr(self.drafter, "set_state", None)):
            self.drafter.set_state(state["own"])
