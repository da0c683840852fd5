"""What a speculator is: the calls that the decoder makes, in which order, and what they promise.

Owns the protocol and the check of a verdict's numbers; leaves drafting to the files named after each method.
Values in, values out: a speculator of this layer sees token ids only, never a model or a context.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pyspec.errors import InvalidValueError, StateError
from pyspec.speculators.history import History, Tokens

__all__ = ["Law", "Speculator", "check_kind", "check_verdict"]

Law = tuple[NDArray[np.int32], NDArray[np.float32]]
"""Token ids [n] and their probabilities [n], above 0; ids that are missing have none."""


@runtime_checkable
class Speculator(Protocol):
    """Anything that proposes the next tokens of one sequence.

    Life of a generation: `begin` once, then per round `draft` and, when tokens of some speculator's draft
    were verified, `accept`. One instance serves one sequence at a time and is not shared by threads.

    More is optional. `match_length`, how many tokens of the history the last draft's source agreed with (0 or missing:
    unknown), and `decodes = True` for one that needs a model's decodes to draft, help the budget. So do, of the latter
    only, `n_draft_max` and `n_draft_min`, the most and fewest tokens of a draft, `token_s`, the seconds of each, and
    `read_s`, the seconds of each token of the history that is new to it (0 or missing: unknown). All but `match_length`
    are read once, before the first generation. How many tokens are new may be said by `n_unread(history)`; else they
    are those that came since the last draft of the generation.

    Where tokens are drawn: `draws = True`, `laws` with a `Law` for each token of the last draft, `reseed(seed)`, called
    before `begin`.
    """

    @property
    def name(self) -> str:
        """How errors, statistics and the command line call it."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it holds, an upper bound."""

    def begin(self, tokens: Tokens) -> None:
        """A generation starts; `tokens` [n_tokens] is the whole prompt, earlier turns included.

        Must not keep `tokens` without a copy. What was learned from earlier generations may stay.
        """

    def draft(self, history: History, n_max: int) -> Sequence[int] | Tokens:
        """Propose the tokens after `history`, best first in time: at most `n_max`, possibly none.

        `history` starts with the tokens given to `begin` and only grows until the next `begin`, unless its
        `epoch` changes: then it was cut, and whatever was read of it must be read again.
        """

    def accept(self, n_drafted: int, n_accepted: int, *, own: bool) -> None:
        """Hear the verdict: of the first `n_drafted` tokens of a draft, `n_accepted` were right.

        `n_drafted` may be less than was proposed (the decoder may cut a draft). `own=False`: the draft came
        from another speculator. A verdict without an open draft of one's own changes nothing.
        """

    def get_state(self) -> dict[str, Any]:
        """All that is needed to draft the same later: plain data and numpy arrays. Taken between rounds."""

    def set_state(self, state: dict[str, Any]) -> None:
        """Inverse of `get_state`, on a speculator with the same options.

        Raises:
            StateError: not a state of such a speculator; nothing was changed.
        """


def check_kind(state: Any, name: str) -> None:
    """Refuse the state of something else.

    Raises:
        StateError: no state, or one of another kind than `name`.
    """
    try:
        kind = state["kind"]
    except (KeyError, TypeError, IndexError) as error:
        raise StateError(reason=f"no {name} state: {error!r}") from error
    if kind != name:
        raise StateError(reason=f"of speculator {kind!r}, not {name!r}")


def check_verdict(n_drafted: int, n_accepted: int) -> None:
    """Refuse a verdict that cannot be.

    Raises:
        InvalidValueError: `n_accepted` is outside 0 to `n_drafted`.
    """
    if not 0 <= n_accepted <= n_drafted:
        allowed = f"from 0 to n_drafted={n_drafted}"
        raise InvalidValueError(name="n_accepted", value=n_accepted, allowed=allowed)
