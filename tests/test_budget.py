"""What a decode costs, how often drafts are right, and the length that follows: values in, values out."""

from __future__ import annotations

import numpy as np
import pytest

from pyspec.acceptance import N_STREAK, AcceptanceRecord
from pyspec.budget import BudgetOptions, CostModel, RoundCosts, best_length
from pyspec.errors import InvalidValueError, StateError

OPTIONS = BudgetOptions()


def model_of(seconds: dict[int, float]) -> CostModel:
    cost = CostModel(OPTIONS)
    for width, s in seconds.items():
        cost.observe(width, s)
    return cost


# ------------------------------------------------------------------ costs


def test_before_anything_is_seen_costs_rise_by_the_assumed_slope():
    curve = CostModel(BudgetOptions(slope=0.25)).curve()
    assert curve[1:6].tolist() == [1.0, 1.25, 1.5, 1.75, 2.0]


def test_one_width_seen_gives_the_unit():
    curve = model_of({1: 0.02}).curve()
    assert curve[1] == pytest.approx(0.02)
    assert curve[11] == pytest.approx(0.02 * (1 + 10 * OPTIONS.slope))


def test_between_widths_costs_are_interpolated_and_beyond_they_rise_as_between():
    curve = model_of({1: 1.0, 5: 3.0, 9: 3.4}).curve()
    assert curve[3] == pytest.approx(2.0)
    assert curve[7] == pytest.approx(3.2)
    assert curve[17] == pytest.approx(3.4 + 8 * (2.4 / 8))


def test_a_wider_decode_never_costs_less():
    curve = model_of({1: 1.0, 4: 2.0, 8: 1.5, 12: 4.0}).curve()
    assert (np.diff(curve[1:]) >= 0).all()


def test_a_few_slow_decodes_change_nothing():
    cost = model_of({1: 1.0})
    for _ in range(4):
        cost.observe(1, 1.0)
    for _ in range(3):
        cost.observe(1, 50.0)
    assert cost.plain == pytest.approx(1.0)


def test_a_lasting_change_is_learned():
    cost = model_of({1: 1.0})
    for _ in range(CostModel.N_SAMPLES):
        cost.observe(1, 3.0)
    assert cost.plain == pytest.approx(3.0)


@pytest.mark.parametrize(("width", "seconds"), [(0, 1.0), (-1, 1.0), (OPTIONS.width_max + 1, 1.0), (3, 0.0), (3, -1.0)])
def test_what_cannot_be_is_not_learned(width: int, seconds: float):
    cost = model_of({1: 1.0})
    before = cost.curve().copy()
    cost.observe(width, seconds)
    assert np.array_equal(cost.curve(), before)


def test_without_measuring_nothing_is_learned():
    cost = CostModel(BudgetOptions(measured=False))
    cost.observe(4, 100.0)
    assert cost.curve()[4] == pytest.approx(1 + 3 * OPTIONS.slope)


# ------------------------------------------------------------------ costs measured before

RATIOS = {1: 1.0, 2: 1.4, 4: 2.3, 8: 4.3, 16: 8.1}


@pytest.mark.parametrize("unit", [1.0, 0.0133, 250.0])
def test_a_measured_curve_is_where_costs_start(unit: float):
    cost = CostModel(OPTIONS, {width: unit * ratio for width, ratio in RATIOS.items()})
    assert cost.is_known
    assert cost.plain == pytest.approx(unit), "in seconds, before anything was seen"
    curve = cost.curve() / unit
    assert curve[[1, 2, 4, 8, 16]].tolist() == pytest.approx(list(RATIOS.values()))
    assert curve[3] == pytest.approx((1.4 + 2.3) / 2)
    assert curve[32] == pytest.approx(8.1 + 16 * (7.1 / 15))


@pytest.mark.parametrize("slope", [0.02, 0.2, 0.45, 0.9])
@pytest.mark.parametrize("p", [0.5, 0.8, 0.95])
def test_a_curve_measured_before_decides_as_one_that_was_learned(slope: float, p: float):
    seconds = {width: 0.01 * (1 + slope * (width - 1)) for width in (1, 2, 4, 8, 16, 32)}
    learned = model_of(seconds)
    started = CostModel(OPTIONS, seconds)
    started.observe(1, 0.01)
    reached = np.cumprod([p] * 40)
    for n_pending in (1, 3):
        of_both = [
            best_length(reached, cost, RoundCosts(n_pending=n_pending), gain=0.03) for cost in (learned, started)
        ]
        assert of_both[0] == (of_both[1][0], pytest.approx(of_both[1][1]))


def test_one_decode_tells_what_a_measured_curve_is_worth_in_seconds():
    cost = CostModel(OPTIONS, RATIOS)
    cost.observe(1, 0.02)
    assert cost.curve()[[1, 4, 16]].tolist() == pytest.approx([0.02, 0.02 * 2.3, 0.02 * 8.1])


def test_a_curve_that_has_changed_is_learned_and_keeps_its_shape_where_nothing_was_seen():
    cost = CostModel(OPTIONS, RATIOS)
    for _ in range(20):
        cost.observe(1, 1.0)
        cost.observe(8, 8.6)
    curve = cost.curve()
    assert curve[8] == pytest.approx(8.6, rel=0.15)
    assert curve[16] / curve[8] == pytest.approx(8.1 / 4.3)
    assert curve[1] == pytest.approx(1.0)


def test_one_slow_decode_moves_a_measured_curve_little():
    cost = CostModel(OPTIONS, RATIOS)
    for _ in range(8):
        cost.observe(1, 1.0)
    cost.observe(8, 43.0)
    assert 4.3 < cost.curve()[8] < 0.42 * model_of({1: 1.0, 8: 43.0}).curve()[8]


def test_a_measured_curve_never_falls():
    cost = CostModel(OPTIONS, {1: 1.0, 2: 0.8, 4: 2.0, 8: 1.9})
    cost.observe(1, 1.0)
    cost.observe(8, 0.5)
    assert (np.diff(cost.curve()[1:]) >= 0).all()


@pytest.mark.parametrize("ratios", [None, RATIOS], ids=["assumed", "measured"])
def test_what_was_too_dear_long_ago_is_forgotten(ratios: dict[int, float] | None):
    """Or a busy moment would silence a speculator for good: what is not decoded is not measured again."""
    cost = CostModel(OPTIONS, ratios)
    for _ in range(8):
        cost.observe(1, 1.0)
        cost.observe(8, 60.0)
    assert cost.curve()[8] > 40
    for _ in range(cost.N_REMEMBERED):
        assert cost.curve()[8] > 40
        cost.observe(1, 1.0)
    for _ in range(cost.N_REMEMBERED // 4):
        cost.observe(1, 1.0)
    assert cost.curve()[8] < 5
    assert cost.plain == pytest.approx(1.0)


def test_a_width_in_use_is_not_forgotten():
    cost = CostModel(OPTIONS)
    for _ in range(4 * CostModel.N_REMEMBERED):
        cost.observe(8, 2.0)
    assert cost.curve()[8] == pytest.approx(2.0)


def test_counts_alone_decide_whatever_was_measured():
    options = BudgetOptions(measured=False)
    told, plain = CostModel(options, {1: 1.0, 48: 500.0}), CostModel(options)
    for cost in (told, plain):
        cost.observe(1, 0.3)
    assert np.array_equal(told.curve(), plain.curve())


# ------------------------------------------------------------------ the record


def taught(rights: list[bool], *, streak: int = 0, match_length: int = 12) -> AcceptanceRecord:
    record = AcceptanceRecord(OPTIONS)
    for right in rights:
        record.observe(streak, match_length, right)
    return record


def test_chances_fall_along_a_draft():
    reached = AcceptanceRecord(OPTIONS).expected(0, 12, 40)
    assert len(reached) == 40
    assert (np.diff(reached) < 0).all()
    assert 0 < reached[-1] < reached[0] < 1


def test_what_was_right_is_expected_again_and_what_was_wrong_is_not():
    assert taught([True] * 30).expected(0, 12, 1)[0] > 0.9
    assert taught([False] * 30).expected(0, 12, 1)[0] < 0.1


def test_old_observations_fade():
    record = taught([False] * 200)
    for _ in range(2 * OPTIONS.memory):
        record.observe(0, 12, True)
    assert record.expected(0, 12, 1)[0] > 0.8


def test_matches_of_other_lengths_are_judged_for_themselves():
    record = taught([False] * 50, match_length=3)
    fresh = AcceptanceRecord(OPTIONS)
    assert record.expected(0, 2, 1)[0] < 0.1, "of the same class"
    assert record.expected(0, 30, 1)[0] == fresh.expected(0, 30, 1)[0]


def test_a_token_after_right_ones_is_judged_by_their_number():
    record = AcceptanceRecord(OPTIONS)
    for _ in range(50):
        record.observe(0, 12, False)
        record.observe(1, 12, True)
        record.observe(2, 12, True)
    first, second, third = record.expected(0, 12, 3)
    assert first < 0.1
    assert second / first > 0.9
    assert third / second > 0.9
    assert record.expected(1, 12, 2)[1] > 0.8
    assert record.expected(1, 12, 3)[0] > 0.9


def test_long_rows_are_counted_together():
    record = AcceptanceRecord(OPTIONS)
    for _ in range(50):
        record.observe(500, 12, False)
    assert record.expected(N_STREAK, 12, 1)[0] < 0.3
    assert record.expected(400, 12, 5)[0] < 0.3


def test_a_single_long_row_does_not_promise_an_endless_one():
    """Forty right tokens in a row are one passage: the next one may end as soon."""
    record = AcceptanceRecord(OPTIONS)
    record.observe(0, 12, True)
    for streak in range(1, 41):
        record.observe(streak, 12, True)
    after_40 = record.expected(40, 12, 40)
    assert after_40[0] > 0.95
    assert after_40[-1] < 0.8


def test_many_long_rows_promise_the_next_one():
    record = AcceptanceRecord(OPTIONS)
    for _ in range(30):
        for streak in range(64):
            record.observe(streak, 12, True)
    assert record.expected(20, 12, 40)[-1] > 0.85


@pytest.mark.parametrize(("streak", "n"), [(0, 0), (0, 1), (0, 90), (1, 1), (7, 9), (60, 30), (200, 3)])
def test_a_row_is_observed_as_its_tokens_one_by_one(streak: int, n: int):
    at_once, one_by_one = taught([True, False] * 3), taught([True, False] * 3)
    at_once.expected(3, 12, 50)  # what was computed before must not stay
    at_once.observe_right(streak, 12, n)
    for i in range(streak, streak + n):
        one_by_one.observe(i, 12, True)
    assert all(
        np.array_equal(a, b) for a, b in zip(*(r.get_state().values() for r in (at_once, one_by_one)), strict=True)
    )
    assert np.array_equal(at_once.expected(0, 12, 50), one_by_one.expected(0, 12, 50))


def test_a_record_that_was_restored_expects_the_same_rows():
    record, other = AcceptanceRecord(OPTIONS), AcceptanceRecord(OPTIONS)
    for streak in range(60):
        record.observe(streak, 12, True)
    other.set_state(record.get_state())
    assert np.array_equal(record.expected(5, 12, 50), other.expected(5, 12, 50))


@pytest.mark.parametrize("rows", [[], [5.0] * 3, [0.5] * 7, [np.inf] * 7, None, "x"])
def test_a_record_with_damaged_rows_is_refused_and_changes_nothing(rows: object):
    record = AcceptanceRecord(OPTIONS)
    before = record.expected(1, 3, 9)
    with pytest.raises(StateError, match="record"):
        record.set_state(record.get_state() | {"rows": rows})
    assert np.array_equal(record.expected(1, 3, 9), before)


# ------------------------------------------------------------------ the length

FLAT = {1: 1.0, 48: 1.0}
STEEP = {1: 1.0, 2: 2.0, 48: 48.0}


def length(p: float, costs: dict[int, float], n: int = 40, **round_costs: float) -> int:
    return best_length(np.cumprod(np.full(n, p)), model_of(costs), RoundCosts(**round_costs), gain=0.03)[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("p", [0.0, 0.3, 0.9, 1.0])
def test_where_width_costs_in_full_only_sure_tokens_could_pay_and_they_gain_nothing(p: float):
    assert length(p, STEEP) == 0


def test_where_width_is_free_the_whole_draft_is_decoded():
    assert length(0.9, FLAT, n=40, keeps_accepted=True) == 40


def test_a_draft_that_is_never_right_is_not_decoded():
    assert length(0.0, {1: 1.0, 48: 1.5}) == 0


def test_lengths_grow_with_the_chances():
    costs = {1: 1.0, 9: 2.0, 48: 8.0}
    lengths = [length(p, costs) for p in (0.1, 0.5, 0.7, 0.9, 0.97)]
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1]


def test_the_length_is_the_best_of_all():
    """Against trying every length one by one, with the replay of what was accepted in vain."""
    rng = np.random.default_rng(1)
    for _ in range(100):
        p = rng.uniform(0.2, 0.99, 12)
        widths = np.cumsum(rng.uniform(0.05, 0.5, 20)) + 0.5
        cost = model_of({w + 1: float(s) for w, s in enumerate(widths)})
        n_pending, rollback = int(rng.integers(1, 5)), float(rng.uniform(0, 0.2))
        curve = cost.curve()
        found, ratio = best_length(np.cumprod(p), cost, RoundCosts(n_pending, rollback), gain=0.0)

        def round_of(n: int, n_pending: int, p=p, curve=curve, rollback=rollback) -> tuple[float, float]:
            reach = np.cumprod(p[:n])
            seconds = curve[n_pending + n]
            right = np.concatenate([[1.0], reach])
            for k in range(n):  # k tokens accepted, the next one wrong
                chance = right[k] - right[k + 1]
                slope = (curve[n_pending + n] - curve[n_pending]) / n
                seconds += chance * (rollback + slope * (n_pending + k))
            return float(reach.sum() + 1), float(seconds)

        alone = [(1.0, curve[1]), *(round_of(n, 1) for n in range(1, 13))]
        worth = max(tokens / seconds for tokens, seconds in alone)
        here = [(1.0, curve[n_pending]), *(round_of(n, n_pending) for n in range(1, 13))]
        gains = [tokens - worth * seconds for tokens, seconds in here]
        assert found == int(np.argmax(gains))
        assert ratio == pytest.approx(1 + max(gains) - gains[0])
        if n_pending == 1:
            assert ratio == pytest.approx(worth * curve[1])


def test_pending_tokens_shorten_what_is_worth_drafting():
    costs = {1: 1.0, 9: 1.2, 10: 4.0, 48: 40.0}
    assert length(0.8, costs, n_pending=1) > length(0.8, costs, n_pending=7) > 0


def test_a_dear_rollback_stops_uncertain_drafts():
    costs = {1: 1.0, 9: 1.8}
    assert length(0.6, costs) > 0
    assert length(0.6, costs, rollback=5.0) == 0


def test_a_speculator_that_costs_time_drafts_less():
    costs = {1: 1.0, 9: 1.2}
    assert length(0.8, costs) > length(0.8, costs, draft_token=0.3) > 0
    assert length(0.8, costs, draft_token=2.0) == 0


def test_a_draft_must_win_by_the_gain():
    cost, reached = model_of({1: 1.0, 2: 1.25, 48: 1000.0}), np.array([0.3])
    exact = best_length(reached, cost, RoundCosts(keeps_accepted=True), gain=0.0)
    assert exact == (1, pytest.approx(1.3 / 1.25))
    assert best_length(reached, cost, RoundCosts(keeps_accepted=True), gain=0.05) == (0, 1.0)


def test_no_length_is_wider_than_costs_are_known():
    n, _ = best_length(np.ones(500), model_of({1: 1.0, 2: 1.0}), RoundCosts(n_pending=3), gain=0.0)
    assert 0 < n <= OPTIONS.width_max - 3


@pytest.mark.parametrize(
    "options",
    [
        {"measured": 1},
        {"slope": -0.1},
        {"gain": float("nan")},
        {"memory": 1},
        {"width_max": 1},
        {"width_max": 129},
        {"overhead": 2},
        {"overhead": 0},
        {"probe_every": 0},
        {"draft_token": -1},
    ],
)
def test_options_out_of_range_are_refused_by_name(options: dict[str, object]):
    with pytest.raises(InvalidValueError, match=next(iter(options))):
        BudgetOptions(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("n_pending", [1, 2, 5])
@pytest.mark.parametrize(
    "seconds", [{1: 1.0, 2: 1.4, 8: 3.8, 16: 7.0}, {1: 1.0, 4: 3.0, 8: 3.2, 32: 12.0}, {1: 1.0, 8: 1.0}]
)
def test_a_first_chance_below_the_least_slope_never_pays(seconds: dict[int, float], n_pending: int):
    cost = model_of(seconds)
    least = cost.least_slope(n_pending)
    for p in np.linspace(0.01, 0.99, 40):
        reached = np.full(40, p)  # the best draft with such a first token
        n, _ = best_length(reached, cost, RoundCosts(n_pending=n_pending, keeps_accepted=True), gain=0.0)
        if p <= least:
            assert n == 0
    assert least < 1.0
