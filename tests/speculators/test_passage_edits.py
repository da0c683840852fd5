"""Where a copied passage goes on behind an edit, and what was replaced by what: literal tokens in, literal ones out."""

from __future__ import annotations

from typing import Any

import pytest

from pyspec.speculators.passage_edits import PassageEdits, realign


@pytest.mark.parametrize(
    ("passage", "said", "expected"),
    [
        ([1, 2, 3, 4, 5], [9, 2, 3], (3, 2)),
        ([1, 2, 3, 4, 5], [9, 8, 2, 3], (3, 2)),
        ([1, 2, 3, 4, 5], [9, 3, 4], (4, 2)),
        ([1, 2, 3, 4, 5], [2, 3], (3, 2)),
        ([1, 2, 3, 4, 5], [9, 1, 2], (2, 2)),
        ([1, 2, 3, 4, 5], [9], (1, 0)),
        ([1, 2, 3, 4, 5], [9, 8, 7], (3, 0)),
        ([7, 1, 1, 7, 2, 7], [9, 8, 7], (4, 1)),
        ([], [9], (0, 0)),
    ],
    ids=["one-for-one", "two-for-one", "one-for-two", "left-out", "put-in", "new", "all-new", "nearest", "at-the-end"],
)
def test_a_passage_goes_on_where_it_ends_as_what_was_said(
    passage: list[int], said: list[int], expected: tuple[int, int]
):
    assert realign(passage, said) == expected


def taught(*edits: tuple[list[int], list[int], int | None]) -> PassageEdits:
    made = PassageEdits()
    for old, new, before in edits:
        made.learn(old, new, before)
    return made


def test_a_replacement_is_repeated_at_once():
    assert taught(([5], [6, 7], 1)).applied([1, 5, 2, 5], 9) == [1, 6, 7, 2, 6, 7]


def test_the_longest_replaced_tokens_count():
    assert taught(([5], [6], 1), ([5, 2], [8], 1)).applied([5, 2, 5, 3], 9) == [8, 6, 3]


@pytest.mark.parametrize(("old", "new", "expected"), [([], [7], [1, 7, 2]), ([2], [], [1])], ids=["put in", "left out"])
def test_what_has_no_counterpart_is_repeated_when_it_has_happened_twice(
    old: list[int], new: list[int], expected: list[int]
):
    edits = taught((old, new, 1))
    assert edits.applied([1, 2], 9) == [1, 2]
    edits.learn(old, new, 1)
    assert edits.applied([1, 2], 9) == expected


def test_an_edit_that_was_not_made_again_is_forgotten():
    edits = taught(([5], [6], 1))
    edits.forget((5,))
    assert edits.applied([5], 9) == [5]
    assert edits.longest == 0


def test_no_more_tokens_are_given_than_asked_for():
    assert taught(([5], [6, 7, 8], 1)).applied([5, 5], 4) == [6, 7, 8, 6]


def test_long_edits_are_not_remembered_and_memory_is_bounded():
    edits = taught(([1, 2, 3, 4, 5, 6, 7], [9], 0), ([], [9], None))
    assert edits.get_state() == []
    for i in range(1000):
        edits.learn([i], [i + 1], 0)
        edits.learn([], [i], i)
    assert len(edits.get_state()) <= 128
    assert edits.nbytes <= 128 * 1024


def test_a_state_gives_the_same_edits():
    edits = taught(([5], [6], 1), ([], [7], 2))
    again = PassageEdits(edits.get_state())
    for one in (edits, again):
        one.learn([], [7], 2)
    assert again.get_state() == edits.get_state()
    assert again.applied([5, 2], 9) == [6, 2, 7]


@pytest.mark.parametrize("state", [3, [3], [([1],)], [(["x"], [1], True)]], ids=repr)
def test_what_is_no_state_is_refused(state: Any):
    with pytest.raises((TypeError, ValueError)):
        PassageEdits(state)
