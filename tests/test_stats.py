"""Counts add up, rates never divide by zero, and both can be written down."""

from __future__ import annotations

import json

import pytest

from pyspec.completion import Completion
from pyspec.stats import SpeculatorStats, Stats, Timings


def counted(*drafts: tuple[str, int, int]) -> Stats:
    stats = Stats()
    for draft in drafts:
        stats.count_draft(*draft)
    return stats


def test_each_draft_is_counted_in_the_sum_and_at_its_positions():
    stats = counted(("a", 3, 3), ("a", 2, 0), ("b", 4, 1))
    assert (stats.n_drafts, stats.n_drafted, stats.n_accepted) == (3, 9, 4)
    assert stats.drafted_per_position == [3, 3, 2, 1]
    assert stats.accepted_per_position == [2, 1, 1, 0]


def test_each_speculator_has_its_own_count():
    stats = counted(("a", 3, 3), ("b", 4, 1), ("a", 2, 0))
    assert stats.by_speculator == {"a": SpeculatorStats(2, 5, 3), "b": SpeculatorStats(1, 4, 1)}


@pytest.mark.parametrize(
    ("stats", "rate"), [(counted(), 0.0), (counted(("a", 4, 1)), 0.25), (counted(("a", 4, 4)), 1.0)]
)
def test_the_rate_is_the_accepted_share(stats: Stats, rate: float):
    assert stats.acceptance_rate == rate


@pytest.mark.parametrize(("n_generated", "n_rounds", "rate"), [(0, 0, 0.0), (12, 4, 3.0), (4, 4, 1.0)])
def test_tokens_a_round_are_one_without_drafts(n_generated: int, n_rounds: int, rate: float):
    assert Stats(n_generated=n_generated, n_rounds=n_rounds).tokens_per_round == rate


def test_the_json_holds_every_count_and_rate():
    stats = counted(("a", 4, 1))
    stats.rollback = "trim"
    data = json.loads(stats.to_json())
    assert data == stats.to_dict()
    assert (data["n_drafted"], data["acceptance_rate"], data["by_speculator"]["a"]["n_accepted"]) == (4, 0.25, 1)


def test_the_text_names_drafted_accepted_and_the_strategy():
    stats = counted(("ngram-mod", 4, 1))
    stats.rollback = "shadow"
    text = str(stats)
    for part in ("drafted 4, accepted 1 (25%)", "rollback shadow", "ngram-mod: 1 drafts, 4 drafted, 1 accepted"):
        assert part in text


@pytest.mark.parametrize(
    ("timings", "rate"),
    [
        pytest.param(Timings(), 0.0, id="nothing"),
        pytest.param(Timings(generate_s=2.0, n_generated=1), 0.0, id="first-token-belongs-to-the-prompt"),
        pytest.param(Timings(generate_s=2.0, n_generated=11), 5.0, id="eleven"),
        pytest.param(Timings(generate_s=0.0, n_generated=11), 0.0, id="no-time"),
    ],
)
def test_tokens_a_second_leave_the_first_one_out(timings: Timings, rate: float):
    assert timings.tokens_per_s == rate


@pytest.mark.parametrize(("prompt_s", "rate"), [(0.0, 0.0), (2.0, 50.0)])
def test_prompt_tokens_a_second(prompt_s: float, rate: float):
    assert Timings(prompt_s=prompt_s, n_prompt=100).prompt_tokens_per_s == rate


def test_the_total_is_prompt_and_generation():
    timings = Timings(prompt_s=1.5, generate_s=2.0)
    assert timings.total_s == timings.to_dict()["total_s"] == 3.5


@pytest.mark.parametrize(
    ("stats", "line"),
    [
        (Stats(n_rounds=2), "[2 tokens, 0.0 tokens/s, 2 rounds, finish: length]"),
        (counted(("a", 4, 1)), "[2 tokens, 0.0 tokens/s, drafted 4, accepted 1, 0 rounds, finish: length]"),
    ],
    ids=["plain", "drafted"],
)
def test_a_completion_is_told_in_one_line(stats: Stats, line: str):
    completion = Completion("ab", [1, 2], "length", None, [3], 5, stats, Timings())
    assert str(completion) == line
