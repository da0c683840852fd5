"""What drafts say about each other: where two part, one of them at most is right.

Owns this arithmetic alone: drafts and chances in, chances out.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["reconciled"]

Reached = Sequence[float]
"""[n] probability that each token of a draft is reached and right."""


def reconciled(drafts: Sequence[Sequence[int]], reached: Sequence[Reached]) -> list[Reached]:
    """What drafts for one place may expect, knowing of each other.

    Each speculator has counted how often it is right, in places where others agreed and where they did not. Where two
    drafts part after the same tokens, their chances of the next one cannot add up to more than 1; where they would,
    both are scaled to that. Of several that part from a draft at one token, the surest counts; what comes behind the
    first parting is not looked at.

    Args:
        drafts: tokens, of each at least one.
        reached: of each draft, its own record's.
    """
    if len(drafts) == 1:
        return list(reached)
    return [_beside(i, drafts, reached) for i in range(len(drafts))]


def _beside(i: int, drafts: Sequence[Sequence[int]], reached: Sequence[Reached]) -> Reached:
    parted: dict[int, float] = {}  # at which token, the surest of those that part there
    for j, other in enumerate(drafts):
        n = _n_common(drafts[i], other)
        if n < min(len(drafts[i]), len(other)):
            parted[n] = max(parted.get(n, 0.0), _chance(reached[j], n))
    if not parted:
        return reached[i]
    at = min(parted)
    claimed = _chance(reached[i], at) + parted[at]
    if claimed <= 1.0:
        return reached[i]
    own = reached[i]
    return [*own[:at], *(chance / claimed for chance in own[at:])]


def _n_common(one: Sequence[int], other: Sequence[int]) -> int:
    n_both = min(len(one), len(other))
    if one[:n_both] == other[:n_both]:  # mostly
        return n_both
    for n, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return n
    return n_both


def _chance(reached: Reached, i: int) -> float:
    """Of the token at `i`, once the ones before were right."""
    before = reached[i - 1] if i else 1.0
    return reached[i] / before if before > 0.0 else 0.0
