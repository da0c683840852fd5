"""Edits of a passage that is copied: where it goes on behind one, and what was replaced by what.

Owns the alignment of the last tokens said with the passage, and the replacements that were seen. Leaves following a
passage to `edited_copy`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["PassageEdits", "realign"]

_N_KEPT = 64
_LONGEST = 6
"""Tokens of an edit, on either side, that is worth remembering."""

_BYTES_EACH = 512


def realign(passage: Sequence[int], said: Sequence[int]) -> tuple[int, int]:
    """Where in `passage` the end of `said` stands.

    Args:
        passage: tokens from where an edit began.
        said: what was said since then.

    Returns:
        How many tokens of the passage are behind, and how many tokens before that place both end with: as many as
        possible; the place next to as many tokens as were said, the earlier one of equals. Where nothing is the same,
        as many tokens as were said.
    """
    n_said = len(said)
    best, best_key = (min(n_said, len(passage)), 0), (0, 0, 0)
    for end in range(1, len(passage) + 1):
        n = 0
        while n < end and n < n_said and passage[end - 1 - n] == said[n_said - 1 - n]:
            n += 1
        key = (n, -abs(end - n_said), -end)
        if n and key > best_key:
            best, best_key = (end, n), key
    return best


class PassageEdits:
    """What was replaced by what, the latest ones; found by the tokens that a passage has next.

    What was put in or left out is known again by the token before. That is a weak sign: it is repeated only once it has
    happened twice.

    Raises:
        TypeError, ValueError: `state` is none of `get_state`.
    """

    def __init__(self, state: Sequence[Any] = ()) -> None:
        self._edits: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._once: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._firsts: set[int] = set()
        self.longest = 0
        for old, new, certain in state:
            kept = self._edits if certain else self._once
            _keep(kept, tuple(int(token) for token in old), tuple(int(token) for token in new))
        self._measure()

    @property
    def nbytes(self) -> int:
        """Bytes held, an upper bound."""
        return _BYTES_EACH * (len(self._edits) + len(self._once))

    def clear(self) -> None:
        """Forget all."""
        self._edits.clear()
        self._once.clear()
        self._measure()

    def find(self, coming: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The longest replaced tokens that `coming` begins with, and what took their place; two () without any."""
        for n in range(min(self.longest, len(coming)), 0, -1):
            old = tuple(coming[:n])
            if (new := self._edits.get(old)) is not None:
                return old, new
        return (), ()

    def leaves(self, passage: Sequence[int]) -> bool:
        """Whether no edit begins in `passage`."""
        return self._firsts.isdisjoint(passage)

    def applied(self, passage: Sequence[int], n_max: int) -> list[int]:
        """The first `n_max` tokens of `passage` as they are after the edits; fewer where it is shorter."""
        if self.leaves(passage[:n_max]):  # mostly
            return list(passage[:n_max])
        firsts = self._firsts
        result: list[int] = []
        at = 0
        while len(result) < n_max and at < len(passage):
            old: tuple[int, ...] = ()
            if passage[at] in firsts:
                old, new = self.find(passage[at : at + self.longest])
                if old:
                    result += new
            if not old:
                result.append(passage[at])
            at += max(1, len(old))
        return result[:n_max]

    def learn(self, old: Sequence[int], new: Sequence[int], before: int | None) -> None:
        """`old` became `new` behind the token `before`."""
        certain = bool(old and new)
        if not certain:
            if before is None:
                return
            old, new = (before, *old), (before, *new)
        replaced, by = tuple(old), tuple(new)
        if max(len(replaced), len(by)) > _LONGEST or replaced == by:
            return
        if certain or self._once.get(replaced) == by:
            _keep(self._edits, replaced, by)
            self._measure()
        else:
            _keep(self._once, replaced, by)

    def forget(self, old: tuple[int, ...]) -> None:
        """The edit of `old` was not made again."""
        self._edits.pop(old, None)
        self._once.pop(old, None)
        self._measure()

    def get_state(self) -> list[tuple[list[int], list[int], bool]]:
        """What was replaced, by what, and whether that is repeated; the latest one last."""
        return [
            (list(old), list(new), kept is self._edits)
            for kept in (self._edits, self._once)
            for old, new in kept.items()
        ]

    def _measure(self) -> None:
        self.longest = max(map(len, self._edits), default=0)
        self._firsts = {old[0] for old in self._edits}


def _keep(kept: dict[tuple[int, ...], tuple[int, ...]], old: tuple[int, ...], new: tuple[int, ...]) -> None:
    kept.pop(old, None)
    kept[old] = new
    if len(kept) > _N_KEPT:
        del kept[next(iter(kept))]
