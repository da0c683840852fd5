"""Verification: which tokens of a draft the target would have said itself.

Owns the comparison and its order: one choice per emitted token, stop at the first difference or at the end.
Values in, values out; leaves choosing (a sampler) and what ends a generation to the callers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Verdict", "verify"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one round decided.

    Attributes:
        tokens: emitted tokens, the accepted ones first, then the bonus or the correction (if any).
        n_accepted: how many tokens of the draft were kept.
        n_cut: tokens of the draft behind the end of the generation, never compared.
        finish: why the generation ends here, None when it goes on.
    """

    tokens: list[int]
    n_accepted: int
    n_cut: int
    finish: str | None


def verify(
    draft: Sequence[int],
    choose: Callable[[int], int],
    emit: Callable[[int], str | None],
    end_tokens: frozenset[int],
) -> Verdict:
    """Compare `draft` with the target's own choices.

    Args:
        draft: [n_draft] token ids, may be empty.
        choose: the target's choice at output row i, asked in order and never again; row i follows draft[:i].
        emit: called once per emitted token, in order; returns a finish reason or None.
        end_tokens: tokens that end the generation and are not emitted.

    Returns:
        The verdict. At least one token, unless the target's first choice is an end token.
    """
    tokens: list[int] = []
    n_draft = len(draft)
    for row in range(n_draft + 1):
        token = choose(row)
        if token in end_tokens:
            return Verdict(tokens, row, max(0, n_draft - row - 1), "stop")
        tokens.append(token)
        finish = emit(token)
        if row == n_draft or token != draft[row]:
            return Verdict(tokens, row, 0, finish)
        if finish is not None:
            return Verdict(tokens, row + 1, n_draft - row - 1, finish)
    raise AssertionError("the last row always returns")
