"""Several speculators as one: the first that has a draft gives it, everybody hears the verdict.

Owns the order and whose draft is open; leaves drafting and learning to the members.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspec.errors import InvalidValueError, StateError
from pyspec.speculators.adapted import is_whole
from pyspec.speculators.checked import checked_accept, checked_begin, checked_draft
from pyspec.speculators.history import History, Tokens
from pyspec.speculators.protocol import Speculator

__all__ = ["Chain"]


class Chain:
    """Speculators in order of preference, those of a chain in its place; an error of a member names the member.

    Raises:
        InvalidValueError: no members, or one that is not a speculator.
    """

    def __init__(self, members: Iterable[Speculator], *, n_vocab: int) -> None:
        self.members: tuple[Speculator, ...] = tuple(
            one for m in members for one in (m.members if isinstance(m, Chain) else (m,))
        )
        if not self.members or not all(is_whole(member) for member in self.members):
            raise InvalidValueError(name="members", value=self.members, allowed="one speculator or more")
        self._n_vocab = n_vocab
        self._author: Speculator | None = None

    @property
    def name(self) -> str:
        """The members' names joined by "+"."""
        return "+".join(member.name for member in self.members)

    @property
    def author(self) -> Speculator | None:
        """Whose draft is open: proposed and not yet judged."""
        return self._author

    @property
    def nbytes(self) -> int:
        """Bytes of all members."""
        return sum(member.nbytes for member in self.members)

    def begin(self, tokens: Tokens) -> None:
        """Tell every member."""
        self._author = None
        for member in self.members:
            checked_begin(member, tokens)

    def draft(self, history: History, n_max: int) -> list[int]:
        """The first member's draft that is not empty; members behind it are not asked."""
        self._author = None
        for member in self.members:
            draft = checked_draft(member, history, n_max, self._n_vocab)
            if draft:
                self._author = member
                return draft
        return []

    def accept(self, n_drafted: int, n_accepted: int, *, own: bool) -> None:
        """Tell every member; `own` is true for the author of the open draft alone."""
        author, self._author = self._author, None
        for member in self.members:
            checked_accept(member, n_drafted, n_accepted, own=own and member is author)

    def get_state(self) -> dict[str, Any]:
        """The members' names and states, in order."""
        return {
            "kind": "chain",
            "names": [member.name for member in self.members],
            "members": [member.get_state() for member in self.members],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Give every member its state.

        Raises:
            StateError: of another kind or other members; when a member refuses its own, all are as before.
        """
        names = [member.name for member in self.members]
        try:
            if state["kind"] != "chain" or state["names"] != names or len(state["members"]) != len(names):
                raise StateError(reason=f"of speculator {state.get('names', state['kind'])}, not of {names}")
            states = list(state["members"])
        except (AttributeError, KeyError, TypeError) as error:
            raise StateError(reason=f"no state of a chain: {error!r}") from error
        before = [member.get_state() for member in self.members]
        try:
            for member, of_member in zip(self.members, states, strict=True):
                member.set_state(of_member)
        except StateError:
            for member, of_member in zip(self.members, before, strict=True):
                member.set_state(of_member)
            raise
        self._author = None
