"""Rounds without a model: what a drafting gains on a known text when decodes cost what a given curve says.

Owns the play of rounds and the oracle under the same curve: values in, values out, nothing is timed. What the budget
decides there is what it would decide on a machine with these costs; leaves real decodes to `drafting_runs`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pyspec.budget import BudgetOptions, CostModel
from pyspec.budgeted import BudgetedDrafting
from pyspec.decoder import DecoderOptions
from pyspec.drafting import Drafting
from pyspec.speculators import History, Speculator, Tokens

__all__ = ["CURVES", "Simulated", "drafting_of", "oracle_seconds", "seconds_by_width", "simulate"]

CURVES: dict[str, dict[int, float]] = {
    "cpu": {1: 1.0, 2: 1.43, 4: 2.33, 8: 4.29, 16: 8.12, 32: 16.0},
    "amx": {1: 1.0, 2: 1.8, 4: 2.3, 8: 3.3, 16: 4.7, 32: 8.7},
    "gpu": {1: 1.0, 2: 1.03, 4: 1.08, 8: 1.15, 16: 1.3, 32: 1.6},
}
"""Costs by width in decodes of one token: SmolLM2 on two CPU cores with flash attention, without it on a Xeon with AMX
(after 1,000 tokens), and a flatter one."""

_N_VOCAB = 2**31 - 1
_ORACLE_WIDTHS = (1, 2, 4, 8, 16, 32, 48)


@dataclass(slots=True)
class Simulated:
    """What came of one text; seconds are those of the curve.

    Attributes:
        n_tokens: tokens that the rounds gave.
        seconds: of all decodes.
        rounds: (pending, drafted, accepted) of each.
    """

    n_tokens: int = 0
    seconds: float = 0.0
    rounds: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def n_drafts(self) -> int:
        """Drafts that were decoded."""
        return sum(n_drafted > 0 for _, n_drafted, _ in self.rounds)

    @property
    def n_drafted(self) -> int:
        """Tokens of them."""
        return sum(n_drafted for _, n_drafted, _ in self.rounds)

    @property
    def n_accepted(self) -> int:
        """Tokens of them that were right."""
        return sum(n_accepted for _, _, n_accepted in self.rounds)


def seconds_by_width(ratios: Mapping[int, float], width_max: int) -> NDArray[np.float64]:
    """[width_max + 1] costs between and beyond those given, as the budget draws them; entry 0 has no meaning."""
    return CostModel(BudgetOptions(width_max=width_max), ratios).curve()


def drafting_of(
    speculator: Speculator,
    ratios: Mapping[int, float],
    *,
    options: BudgetOptions | None = None,
    known: bool = True,
    keeps_accepted: bool = True,
) -> BudgetedDrafting:
    """A new budget for `speculator` that has measured `ratios` before, or learns them if they are not `known`."""
    options = options or BudgetOptions(overhead=1.0)  # asking takes no time here
    cost = CostModel(options, ratios if known else None)
    return BudgetedDrafting(speculator, options, cost=cost, keeps_accepted=keeps_accepted)


def simulate(
    prompt: Tokens,
    continuation: Sequence[int],
    drafting: Drafting,
    ratios: Mapping[int, float],
    *,
    keeps_accepted: bool = True,
    width_max: int = 128,
) -> Simulated:
    """Say `continuation`, whose first token the prompt's decode gives, as the decoder would.

    Args:
        prompt: [n_prompt].
        continuation: two tokens or more.
        drafting: new, or with what it learned.
        ratios: cost of a decode by width.
        keeps_accepted: a rejected draft's accepted tokens stay in memory; otherwise they ride in front of the next one.
        width_max: most tokens in a decode.
    """
    curve, limits = seconds_by_width(ratios, width_max), DecoderOptions()
    text = [*prompt.tolist(), *continuation]
    history = History(text[: len(prompt)])
    drafting.begin(history.view())
    history.extend(text[len(prompt) : len(prompt) + 1])
    found = Simulated()
    n_pending, n_tries = 1, 0
    while len(history) < len(text):
        at = len(history)
        n_max = min(len(text) - at - 1, width_max - n_pending)
        forced = n_tries and (n_tries >= limits.max_tries or n_pending > limits.max_pending)
        draft: list[int] = []
        if n_max > 0 and not forced:
            draft = drafting.draft(history, n_max, n_pending=n_pending, n_vocab=_N_VOCAB)
        n_right = 0
        while n_right < len(draft) and draft[n_right] == text[at + n_right]:
            n_right += 1
        history.extend(text[at : at + n_right + 1])
        width = n_pending + len(draft)
        found.rounds.append((n_pending, len(draft), n_right))
        found.seconds += float(curve[width])
        found.n_tokens += n_right + 1
        rides = n_right < len(draft) and not keeps_accepted
        n_pending, n_tries = (n_pending + n_right + 1, n_tries + 1) if rides else (1, 0)
        drafting.observe(width, float(curve[width]), 0.0)
        drafting.settle(history, len(draft), n_right)
    return found


def oracle_seconds(n_tokens: int, ratios: Mapping[int, float], *, widths: Sequence[int] = _ORACLE_WIDTHS) -> float:
    """Seconds of `n_tokens` when every draft is right and all have one length, the best of `widths`."""
    curve = seconds_by_width(ratios, max(widths))

    def taken(width: int) -> float:
        n_whole, n_left = divmod(n_tokens, width)
        return n_whole * float(curve[width]) + (float(curve[n_left]) if n_left else 0.0)

    return min(map(taken, widths))
