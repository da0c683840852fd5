"""Counts add up, rates never divide by zero, and both can be written down."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from pyspec.completion import Completion
from pyspec.rounds import RoundRecord, columns
from pyspec.stats import DraftingCounts, SpeculatorStats, Stats, Timings


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


@pytest.mark.parametrize(("stats", "length"), [(counted(), 0.0), (counted(("a", 4, 1), ("a", 2, 2), ("b", 1, 0)), 1.0)])
def test_the_mean_accepted_length_is_accepted_tokens_a_draft(stats: Stats, length: float):
    assert stats.mean_accepted_length == length


def test_each_speculator_has_its_own_mean_accepted_length():
    stats = counted(("a", 4, 1), ("a", 2, 2), ("b", 1, 0))
    assert {name: one.mean_accepted_length for name, one in stats.by_speculator.items()} == {"a": 1.5, "b": 0.0}
    assert SpeculatorStats().mean_accepted_length == 0.0


@pytest.mark.parametrize(
    ("n_decodes", "n_prompt_decodes", "rate"),
    [
        pytest.param(0, 0, 0.0, id="nothing"),
        pytest.param(12, 0, 1.0, id="plain"),
        pytest.param(17, 5, 1.0, id="plain-after-a-long-prompt"),
        pytest.param(4, 0, 3.0, id="drafted"),
    ],
)
def test_tokens_a_decode_leave_out_what_only_read_the_prompt(n_decodes: int, n_prompt_decodes: int, rate: float):
    stats = Stats(n_generated=12, n_decodes=n_decodes, n_prompt_decodes=n_prompt_decodes)
    assert stats.tokens_per_decode == rate


ROUNDS = [
    RoundRecord(5, 1, 4, 1, 2, "a", "trim", 0.1, 0.2, 0.3, "drafted", 6, 1.5),
    RoundRecord(2, 2, 0, 0, 1, "", "", 0.1, 0.1, 0.0, "no proposal"),
]


@pytest.mark.parametrize("rounds", [True, False])
def test_the_json_holds_every_count_and_rate(rounds: bool):
    stats = counted(("a", 4, 1))
    stats.rollback = "trim"
    stats.timings = Timings(prompt_s=1.0, generate_s=2.0, decode_s=0.5, n_generated=3)
    for made in ROUNDS:
        stats.record_round(made)
    data = json.loads(stats.to_json(rounds=rounds))
    assert data == stats.to_dict(rounds=rounds)
    assert (data["n_drafted"], data["acceptance_rate"], data["by_speculator"]["a"]["n_accepted"]) == (4, 0.25, 1)
    assert data["by_speculator"]["a"]["accepted_per_position"] == [1, 0, 0, 0]
    assert data["timings"]["shares"]["decode"] == 0.5 / 3
    assert data["oracle"]["width"] == 5
    assert data["decisions"] == {"drafted": 1, "no proposal": 1}
    assert data.get("rounds") == ({name: list(c) for name, c in columns(ROUNDS).items()} if rounds else None)


def test_the_dict_holds_every_field_and_shares_none():
    stats = counted(("a", 4, 1))
    data = stats.to_dict()
    assert {f.name for f in fields(Stats)} <= set(data)
    data["accepted_per_position"].append(9)
    data["by_speculator"]["a"]["n_drafts"] = 9
    data["decisions"]["probe"] = 9
    assert stats == counted(("a", 4, 1))


def test_seconds_of_calls_are_counted_by_speculator():
    counts = DraftingCounts()
    for name, seconds in (("a", 0.5), ("b", 1.0), ("a", 0.25)):
        counts.count_call(name, seconds)
    assert (counts.n_asked, counts.asked_s) == (3, {"a": 0.75, "b": 1.0})


@pytest.mark.parametrize(
    "timings",
    [
        pytest.param(Timings(1.0, 3.0, 0.5, 0.25, 1.0, 0.5, 0.25), id="with-a-rest"),
        pytest.param(Timings(1.0, 3.0, 0.5, 0.25, 2.0, 1.0, 0.25), id="without-a-rest"),
        pytest.param(Timings(prompt_s=1.0, prompt_decode_s=0.5, decode_s=3.0), id="stopped"),
        pytest.param(Timings(prompt_decode_s=0.5), id="just-begun"),
    ],
)
def test_shares_of_time_sum_to_one_and_none_is_negative(timings: Timings):
    assert sum(timings.shares.values()) == pytest.approx(1.0)
    assert min(timings.shares.values()) >= 0
    whole = max(timings.total_s, timings.prompt_decode_s + timings.decode_s)
    assert timings.shares["decode"] == pytest.approx(timings.decode_s / whole)


def test_without_time_all_shares_are_zero():
    assert Timings().shares == dict.fromkeys(("prompt", "draft", "decode", "verify", "rollback", "rest"), 0.0)


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
