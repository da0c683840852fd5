"""Turns of a session: the record of one that is over, and what one is about while it is open.

Owns their fields. Leaves the session's text, to which turns belong, to `pyspec.session.session`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["OpenTurn", "Turn", "as_turn"]


@dataclass(frozen=True, slots=True)
class Turn:
    """What one generation of a session did.

    Attributes:
        start: tokens of the session before what this turn appended.
        n_prompt: tokens before the first generated one, earlier turns included.
        n_decoded: tokens of the prompt that were decoded; the others were in memory.
        n_generated: tokens generated.
        finish_reason: as of the completion.
        n_dropped: tokens that the model does not see any more since this turn (`overflow="shift"`).
    """

    start: int
    n_prompt: int
    n_decoded: int
    n_generated: int
    finish_reason: str
    n_dropped: int = 0

    @property
    def end(self) -> int:
        """Tokens of the session after it."""
        return self.n_prompt + self.n_generated


@dataclass(slots=True, eq=False)
class OpenTurn:
    """A turn at work, until its completion has reached the reader.

    Attributes:
        start: tokens of the session before it.
        prompt: all tokens before the first generated one.
        n_dropped: of those that the model sees no more, for this turn to have room.
    """

    start: int
    prompt: list[int]
    n_dropped: int = 0


def as_turn(data: dict[str, Any]) -> Turn:
    """A turn from the plain data of a file."""
    plain: dict[str, Any] = {n: str(value) if n == "finish_reason" else int(value) for n, value in data.items()}
    return Turn(**plain)
