"""Verification compares in order, asks once per emitted token, and stops where the text does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pyspec.verify import Verdict, verify

NEVER = frozenset[int]()


class Target:
    """Says `tokens` whatever the draft, ends after the emitted token `last`, and records what it was asked."""

    def __init__(self, tokens: Sequence[int], last: int | None = None) -> None:
        self.tokens = tokens
        self.last = last
        self.rows: list[int] = []
        self.emitted: list[int] = []

    def choose(self, row: int) -> int:
        self.rows.append(row)
        return self.tokens[row]

    def emit(self, token: int) -> str | None:
        self.emitted.append(token)
        return "stop" if token == self.last else None


@pytest.mark.parametrize(
    ("draft", "target", "expected"),
    [
        pytest.param([], [7], Verdict([7], 0, 0, None), id="empty-draft"),
        pytest.param([7], [7, 8], Verdict([7, 8], 1, 0, None), id="all-of-one"),
        pytest.param([1, 2, 3], [1, 2, 3, 4], Verdict([1, 2, 3, 4], 3, 0, None), id="all-and-bonus"),
        pytest.param([9, 2, 3], [1, 2, 3, 4], Verdict([1], 0, 0, None), id="wrong-first"),
        pytest.param([1, 9, 3], [1, 2, 3, 4], Verdict([1, 2], 1, 0, None), id="wrong-second"),
        pytest.param([1, 2, 9], [1, 2, 3, 4], Verdict([1, 2, 3], 2, 0, None), id="wrong-last"),
        pytest.param([5, 5, 5], [5, 5, 5, 5], Verdict([5, 5, 5, 5], 3, 0, None), id="repeating"),
    ],
)
def test_tokens_are_the_targets_own_up_to_the_first_difference(draft: list[int], target: list[int], expected: Verdict):
    assert verify(draft, Target(target).choose, lambda _: None, NEVER) == expected


@pytest.mark.parametrize(
    ("draft", "target", "expected"),
    [
        pytest.param([], [0], Verdict([], 0, 0, "stop"), id="no-draft"),
        pytest.param([0, 2, 3], [0, 2, 3, 4], Verdict([], 0, 2, "stop"), id="drafted-first"),
        pytest.param([1, 0, 3], [1, 0, 3, 4], Verdict([1], 1, 1, "stop"), id="drafted-second"),
        pytest.param([1, 2, 0], [1, 2, 0, 4], Verdict([1, 2], 2, 0, "stop"), id="drafted-last"),
        pytest.param([1, 2, 3], [1, 2, 3, 0], Verdict([1, 2, 3], 3, 0, "stop"), id="as-bonus"),
        pytest.param([1, 9, 3], [1, 0, 3, 4], Verdict([1], 1, 1, "stop"), id="as-correction"),
    ],
)
def test_an_end_token_is_not_emitted_and_what_was_drafted_behind_it_is_cut(
    draft: list[int], target: list[int], expected: Verdict
):
    assert verify(draft, Target(target).choose, lambda _: None, frozenset({0})) == expected


@pytest.mark.parametrize(
    ("draft", "last", "expected"),
    [
        pytest.param([1, 2, 3], 1, Verdict([1], 1, 2, "stop"), id="first-drafted"),
        pytest.param([1, 2, 3], 3, Verdict([1, 2, 3], 3, 0, "stop"), id="last-drafted"),
        pytest.param([1, 2, 3], 4, Verdict([1, 2, 3, 4], 3, 0, "stop"), id="bonus"),
        pytest.param([1, 9, 3], 2, Verdict([1, 2], 1, 0, "stop"), id="correction"),
    ],
)
def test_a_stop_keeps_the_token_that_completed_it_and_cuts_the_rest(draft: list[int], last: int, expected: Verdict):
    target = Target([1, 2, 3, 4], last)
    assert verify(draft, target.choose, target.emit, NEVER) == expected


@pytest.mark.parametrize("draft", [[], [1], [9], [1, 2, 9, 9], [1, 2, 3, 4, 5], [1, 0, 3]])
def test_each_emitted_token_is_chosen_once_in_order(draft: list[int]):
    target = Target([1, 2, 3, 4, 5, 6])
    verdict = verify(draft, target.choose, target.emit, NEVER)
    assert target.rows == list(range(len(verdict.tokens)))
    assert target.emitted == verdict.tokens


def test_nothing_is_chosen_behind_the_end_of_the_text():
    target = Target([1, 0, 3, 4])
    verify([1, 0, 3], target.choose, target.emit, frozenset({0}))
    assert target.rows == [0, 1]
