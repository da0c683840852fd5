"""Drafts for one place that part: chances in, chances out."""

from __future__ import annotations

import pytest

from pyspec.agreement import reconciled


def both(drafts: list[list[int]], *reached: list[float]) -> list[list[float]]:
    return [list(one) for one in reconciled(drafts, reached)]


def test_drafts_that_agree_keep_their_chances():
    assert both([[1, 2, 3], [1, 2]], [0.9, 0.8, 0.7], [0.5, 0.4]) == [[0.9, 0.8, 0.7], [0.5, 0.4]]


def test_a_single_draft_keeps_its_chances():
    assert both([[1, 2]], [0.9, 0.8]) == [[0.9, 0.8]]


def test_where_two_part_their_chances_do_not_add_up_to_more_than_one():
    one, other = both([[1, 2, 3], [1, 9, 3]], [1.0, 0.9, 0.8], [1.0, 0.6, 0.5])
    assert one == pytest.approx([1.0, 0.9 / 1.5, 0.8 / 1.5])
    assert other == pytest.approx([1.0, 0.6 / 1.5, 0.5 / 1.5])


def test_what_could_both_be_is_left_alone():
    assert both([[1], [2]], [0.3], [0.6]) == [[0.3], [0.6]]


def test_the_chance_at_the_parting_counts_and_not_that_of_getting_there():
    one, _ = both([[1, 2], [1, 3]], [0.5, 0.45], [0.5, 0.45])
    assert one == pytest.approx([0.5, 0.25])


def test_of_several_that_part_the_surest_counts_and_the_first_parting_only():
    one, *_ = both([[1, 2], [5, 2], [6, 2], [1, 7]], [0.8, 0.8], [0.4, 0.4], [0.9, 0.9], [1.0, 1.0])
    assert one == pytest.approx([0.8 / 1.7, 0.8 / 1.7])


def test_nothing_is_changed_in_place():
    reached = [[0.9], [0.9]]
    reconciled([[1], [2]], reached)
    assert reached == [[0.9], [0.9]]
