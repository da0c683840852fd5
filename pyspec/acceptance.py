"""How often the tokens of a speculator are right: what was observed, and what that promises.

Owns one record for each speculator, its priors and its saved form. Values in, values out: what is proposed and judged
is `pyspec.watched`'s work, how long a draft pays `pyspec.budget`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from operator import index, mul
from typing import Any

import numpy as np

from pyspec.budget import BudgetOptions
from pyspec.errors import StateError

__all__ = ["N_STREAK", "AcceptanceRecord"]

N_STREAK = 64
"""From so many right tokens in a row on, all are counted together."""

_PRIOR_BY_MATCH = (0.4, 0.15, 0.3, 0.6, 0.7, 0.8, 0.85, 0.9)
"""Chance of a first token from a match of unknown length, of 1, 2 to 3, 4 to 7 ... tokens, before any was seen."""

_PRIOR_ROW_ENDS = (0.2, 0.08, 0.05, 0.03, 0.025, 0.012, 0.005)
"""Chance that a row of right tokens ends after 1, 2 to 3, 4 to 7 ... of them, before any was seen."""

_PRIOR_WEIGHT = 2.0
_LATER_WEIGHT = 8.0
"""Observations that a prior counts for: that of a first token; and of a later one, the chance of the one before it."""


class AcceptanceRecord:
    """How often a speculator's tokens were right, old observations fading.

    A token is judged by how many tokens its speculator has been right in a row before it: the first ones of a match
    are often wrong, later ones seldom. The first of a row is judged by the length of the match that it comes from, too.

    A row that goes on for forty tokens is one observation more than forty: after 1, 2 to 3, 4 to 7, 8 to 15 ... right
    tokens the chance that it ends is never taken for less than if it were to end at the very next token, of all that
    were seen after about so many.
    """

    def __init__(self, options: BudgetOptions) -> None:
        self._keep = 1.0 - 1.0 / options.memory
        self._first = [_Share(_PRIOR_WEIGHT, _PRIOR_WEIGHT * prior) for prior in _PRIOR_BY_MATCH]
        self._later = [_Share() for _ in range(N_STREAK)]
        # tokens seen by bit length of the streak; where a row has more of them, a memory of rows is one of more tokens
        self._rows = [1.0 / ends for ends in _PRIOR_ROW_ENDS]
        self._keep_rows = [1.0 - 1.0 / (options.memory << i) for i in range(len(self._rows))]
        self._chances = [0.0] * N_STREAK
        self._n_current = 0  # of the chances, the first ones are up to date
        self.n_verdicts = 0  # on proposals, counted by whoever judges them

    def observe(self, streak: int, match_length: int, right: bool) -> None:
        """A token after `streak` right ones in a row, from a match of `match_length`, was `right` or not."""
        if streak:
            streak = min(streak, N_STREAK)
            i = streak.bit_length() - 1
            self._rows[i] = self._rows[i] * self._keep_rows[i] + 1.0
            self._later[streak - 1].count(right, self._keep)
            self._n_current = min(self._n_current, (1 << i) - 1)
        else:
            self._first[_match_class(match_length)].count(right, self._keep)

    def observe_right(self, streak: int, match_length: int, n: int) -> None:
        """The same for `n` tokens behind each other that all were right."""
        if n and not streak:
            self.observe(0, match_length, True)
            streak, n = 1, n - 1
        if not n:
            return
        rows, keep_rows, later, keep = self._rows, self._keep_rows, self._later, self._keep
        self._n_current = min(self._n_current, (1 << (min(streak, N_STREAK).bit_length() - 1)) - 1)
        for after in range(streak, streak + n):
            after = min(after, N_STREAK)
            i = after.bit_length() - 1
            rows[i] = rows[i] * keep_rows[i] + 1.0
            share = later[after - 1]
            share.n = share.n * keep + 1.0
            share.right = share.right * keep + 1.0

    def chance(self, streak: int, match_length: int) -> float:
        """Probability that the next token is right."""
        if streak == 0:
            first = self._first[_match_class(match_length)]
            return first.right / first.n
        i = min(streak, N_STREAK)
        self._bring_up_to_date(i)
        return self._chances[i - 1]

    def expected(self, streak: int, match_length: int, n: int) -> list[float]:
        """[n] probability that each token of a draft is reached and right."""
        start = max(0, streak - 1)
        self._bring_up_to_date(min(start + n, N_STREAK))
        chances = self._chances[start : start + n]
        chances += self._chances[-1:] * (n - len(chances))
        if streak == 0:
            first = self._first[_match_class(match_length)]
            chances = [first.right / first.n, *chances[: n - 1]]
        return list(accumulate(chances, mul))

    def get_state(self) -> dict[str, Any]:
        """What was observed: `first` [n_classes, 2], `later` [N_STREAK, 2] (all tokens, right ones), `rows` [n].

        And how many `n_verdicts` there were.
        """
        shares = {"first": self._first, "later": self._later}
        state = {name: np.array([(one.n, one.right) for one in row], np.float64) for name, row in shares.items()}
        return state | {"rows": np.array(self._rows, np.float64), "n_verdicts": self.n_verdicts}

    def set_state(self, state: dict[str, Any]) -> None:
        """Expect what the saved record did.

        Raises:
            StateError: not a state of a record; nothing was changed.
        """
        try:
            first, later, rows = (np.asarray(state[name], np.float64) for name in ("first", "later", "rows"))
            n_verdicts = index(state.get("n_verdicts", 0))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StateError(reason=f"no record of acceptance: {error!r}") from error
        if (first.shape, later.shape, rows.shape) != ((len(self._first), 2), (N_STREAK, 2), (len(self._rows),)):
            raise StateError(reason=f"a record of acceptance with {first.shape}, {later.shape}, {rows.shape} numbers")
        pairs = np.concatenate((first, later))
        n, right = pairs.T
        if not (np.isfinite(pairs).all() and ((right >= 0) & (right <= n)).all()):
            raise StateError(reason="a record of acceptance with more right tokens than tokens, or fewer than none")
        if n_verdicts < 0 or not ((first[:, 0] > 0).all() and np.isfinite(rows).all() and (rows >= 1).all()):
            raise StateError(reason="a record of acceptance without observations")
        self._first, self._later = ([_Share(n, right) for n, right in part.tolist()] for part in (first, later))
        self._rows, self._n_current, self.n_verdicts = rows.tolist(), 0, n_verdicts

    def _bring_up_to_date(self, n: int) -> None:
        """Chances after 1, 2, ... right tokens: each leans on the one before as far as it was not seen itself."""
        chances, current = self._chances, self._n_current
        chance = chances[current - 1] if current else 1.0
        for i in range(current, n):
            share = self._later[i]
            at_most = 1.0 - 1.0 / self._rows[(i + 1).bit_length() - 1]
            chance = (share.right + _LATER_WEIGHT * min(chance, at_most)) / (share.n + _LATER_WEIGHT)
            chances[i] = chance
        self._n_current = max(current, n)


@dataclass(slots=True)
class _Share:
    n: float = 0.0
    right: float = 0.0

    def count(self, right: bool, keep: float) -> None:
        """One observation more; the ones before fade to the share `keep`."""
        self.n = self.n * keep + 1.0
        self.right = self.right * keep + right


def _match_class(match_length: int) -> int:
    return min(match_length.bit_length(), len(_PRIOR_BY_MATCH) - 1)
