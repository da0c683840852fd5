"""How fast the best imaginable speculator would have been: an upper bound for one generation.

Owns the bound and the cost of each width that it rests on; leaves the records of rounds to `pyspec.rounds`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from pyspec.rounds import RoundRecord

__all__ = ["Oracle", "oracle"]


@dataclass(frozen=True, slots=True)
class Oracle:
    """What a speculator would have reached that drafts the true continuation, always of the best length.

    It drafts in no time and nothing is ever undone, so that each round emits as many tokens as it decodes.

    Attributes:
        width: tokens of each of its decodes: one that is decided, and a draft as long as one of the generation's.
        tokens_per_s: its tokens a second.
        share: what the generation reached of that, from 0 to 1; the rest is lost to wrong drafts, to drafts that were
            not made, to drafting, rolling back, Python, and whoever takes the text.
        seconds_by_width: what a decode of each width costs.
    """

    width: int
    tokens_per_s: float
    share: float
    seconds_by_width: dict[int, float]

    def to_dict(self) -> dict[str, Any]:
        """Plain data; widths become text, as JSON wants the names of an object."""
        named = {str(width): seconds for width, seconds in self.seconds_by_width.items()}
        return asdict(self) | {"seconds_by_width": named}


def oracle(rounds: Iterable[RoundRecord], tokens_per_s: float) -> Oracle | None:
    """The upper bound for a generation with these rounds that made `tokens_per_s` after its first token.

    A width stands for a draft of one token less behind one pending token, since nothing rides along where nothing is
    undone. It costs what the faster half of such decodes took, and no less than a narrower one: where a wider one was
    faster, both cost their common mean. So no generation that had time for all its rounds can exceed the bound: a
    round emits at most one token more than its draft has, and its decode cannot have cost less, in sum over all rounds.
    A constant width is as good as any mixture, and between two widths the best is one of them where cost grows
    evenly. Widths that were never decoded are not guessed at, and that a longer text makes every width dearer is not
    told apart.

    Returns:
        None where fewer than two widths were decoded behind the prompt, or nothing was timed.
    """
    taken: dict[int, list[float]] = {}
    alone: dict[int, list[float]] = {}  # of these, the decodes in which no further pending token rode along
    for record in rounds:
        if record.reason != "prompt" and record.decode_s > 0:
            width = record.n_drafted + 1
            taken.setdefault(width, []).append(record.decode_s)
            if record.n_pending == 1:
                alone.setdefault(width, []).append(record.decode_s)
    if len(taken) < 2 or tokens_per_s <= 0:
        return None
    costs = {width: min(_low_mean(seconds), _low_mean(alone.get(width, seconds))) for width, seconds in taken.items()}
    seconds = _never_falling([(width, len(taken[width]), costs[width]) for width in sorted(costs)])
    width = max(seconds, key=lambda w: w / seconds[w])
    best = width / seconds[width]
    return Oracle(width, best, tokens_per_s / best, seconds)


def _low_mean(taken: list[float]) -> float:
    """Mean of the faster half: a machine may be busy but is never too fast."""
    low = sorted(taken)[: (len(taken) + 1) // 2]
    return sum(low) / len(low)


def _never_falling(costs: list[tuple[int, int, float]]) -> dict[int, float]:
    """Seconds by width from (width, decodes, seconds) in order of width.

    Least squares among all curves that never fall: neighbours in the wrong order are pooled, weighed by their decodes.
    """
    pools: list[tuple[list[int], int, float]] = []  # widths, decodes, seconds of one
    for width, n, seconds in costs:
        widths = [width]
        while pools and pools[-1][2] >= seconds:
            before, n_before, seconds_before = pools.pop()
            seconds = (seconds * n + seconds_before * n_before) / (n + n_before)
            widths, n = before + widths, n + n_before
        pools.append((widths, n, seconds))
    return {width: seconds for widths, _, seconds in pools for width in widths}
