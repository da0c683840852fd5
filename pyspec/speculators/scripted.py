"""A speculator that drafts what it was told to: for tests, for trying ideas, for measuring rollback.

Owns the script and a record of what it was asked and told; knows nothing about tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pyspec.errors import StateError
from pyspec.speculators.history import History, Tokens
from pyspec.speculators.protocol import check_verdict

__all__ = ["Scripted"]

Script = Callable[[History, int], Sequence[int] | Tokens]


class Scripted:
    """Drafts given in advance, one a round and none afterwards, or made by a function of history and `n_max`.

    `begin` starts the script again. `cut=True` shortens drafts to the `n_max` of the call; with `cut=False`
    they are handed over as they are, mistakes included. `calls` records (n_history, n_max) of each draft,
    `verdicts` (n_drafted, n_accepted, own) of each accept, `prompts` the tokens of each begin.
    """

    def __init__(self, drafts: Iterable[Sequence[int]] | Script, *, cut: bool = True, name: str = "scripted") -> None:
        self.name = name
        self._script: Script | None = drafts if callable(drafts) else None
        self._drafts = () if callable(drafts) else tuple(drafts)
        self._cut = cut
        self.n_rounds = 0
        self.calls: list[tuple[int, int]] = []
        self.verdicts: list[tuple[int, int, bool]] = []
        self.prompts: list[list[int]] = []

    @property
    def nbytes(self) -> int:
        """Bytes of the drafts given in advance."""
        return 8 * sum(len(draft) for draft in self._drafts)

    def begin(self, tokens: Tokens) -> None:
        """Start the script again."""
        self.n_rounds = 0
        self.prompts.append([int(token) for token in tokens])

    def draft(self, history: History, n_max: int) -> Sequence[int] | Tokens:
        """The script's draft of this round."""
        self.calls.append((len(history), n_max))
        i, self.n_rounds = self.n_rounds, self.n_rounds + 1
        if self._script is not None:
            proposed = self._script(history, n_max)
        else:
            proposed = self._drafts[i] if i < len(self._drafts) else []
        return proposed[: max(0, n_max)] if self._cut else proposed

    def accept(self, n_drafted: int, n_accepted: int, *, own: bool) -> None:
        """Record the verdict."""
        check_verdict(n_drafted, n_accepted)
        self.verdicts.append((n_drafted, n_accepted, own))

    def get_state(self) -> dict[str, Any]:
        """The number of rounds played; the script itself belongs to the object."""
        return {"kind": self.name, "n_rounds": self.n_rounds}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on at the round of the state.

        Raises:
            StateError: of another kind, or without a number of rounds.
        """
        try:
            kind, n_rounds = state["kind"], int(state["n_rounds"])
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(reason=f"no state of a script: {error!r}") from error
        if kind != self.name or n_rounds < 0:
            raise StateError(reason=f"of speculator {kind!r} after {n_rounds} rounds, not {self.name!r}")
        self.n_rounds = n_rounds
