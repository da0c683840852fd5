"""What one more token costs in company: each graph of a batch costs what the shared curve says of its tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pyspec.budget import BudgetOptions, CostModel
from pyspec.engine.batch_cost import BatchCost, graphs, observe_graphs

OPTIONS = BudgetOptions(slope=0.5, width_max=40)


def view(others: Sequence[int], *, splits: bool) -> tuple[BatchCost, np.ndarray]:
    """A sequence's view in company, and the shared curve, which is bent."""
    shared = CostModel(OPTIONS, {1: 1.0, 4: 1.5, 8: 4.0, 16: 5.0, 40: 12.0})
    own = BatchCost(OPTIONS, shared, splits=splits)
    own.accompany(others)
    return own, shared.curve()


@pytest.mark.parametrize("others", [(1,), (1, 1, 1), (3,), (1, 3, 3, 6), (8, 8)])
def test_a_token_more_costs_what_it_adds_to_the_graphs_of_all(others: tuple[int, ...]) -> None:
    own, shared = view(others, splits=True)
    totals = [sum(shared[n] for n in graphs([*others, width], splits=True)) for width in range(1, len(own.curve()))]
    assert np.diff(own.curve()[1:]) == pytest.approx(np.diff(totals))


@pytest.mark.parametrize(
    ("widths", "expected"),
    [
        pytest.param([1, 1, 1], [3], id="all alike"),
        pytest.param([5], [5], id="alone"),
        pytest.param([1, 4, 1], [3, 3], id="one is longer"),
        pytest.param([6, 1, 3, 3], [4, 6, 3], id="three lengths"),
    ],
)
def test_a_graph_has_as_many_tokens_of_every_sequence_left(widths: list[int], expected: list[int]) -> None:
    assert graphs(widths, splits=True) == expected
    assert graphs(widths, splits=False) == [sum(widths)]


def test_batches_of_several_graphs_tell_what_each_graph_takes() -> None:
    shared = CostModel(OPTIONS)

    def true(n: int) -> float:
        return 0.02 + 0.001 * n

    for _ in range(20):
        observe_graphs(shared, [8], true(8))
        observe_graphs(shared, [8, 5], true(8) + true(5))
    assert shared.curve()[8] == pytest.approx(true(8), rel=0.03)
    assert shared.curve()[5] == pytest.approx(true(5), rel=0.08)  # it began 25 % below


@pytest.mark.parametrize("others", [(1,), (1, 1, 1), (1, 3, 3, 6)])
def test_without_splits_all_tokens_share_one_graph(others: tuple[int, ...]) -> None:
    own, shared = view(others, splits=False)
    assert np.diff(own.curve()[1:]) == pytest.approx(np.diff(shared[1 + sum(others) :]))


@pytest.mark.parametrize("splits", [False, True])
def test_a_token_of_its_own_is_an_even_share_of_plain_decoding(splits: bool) -> None:
    own, shared = view((1, 1, 1, 5), splits=splits)
    assert own.plain == pytest.approx(shared[5] / 5)


@pytest.mark.parametrize("splits", [False, True])
def test_alone_the_curve_is_the_shared_one(splits: bool) -> None:
    own, shared = view((), splits=splits)
    assert own.curve().tolist() == shared.tolist()


@pytest.mark.parametrize("splits", [False, True])
def test_what_the_shared_model_learns_is_seen_at_once(splits: bool) -> None:
    shared = CostModel(OPTIONS)
    own = BatchCost(OPTIONS, shared, splits=splits)
    own.accompany((1, 1))
    before = own.plain
    shared.observe(3, 10 * shared.curve()[3])
    assert own.plain == pytest.approx(10 * before)


@pytest.mark.parametrize("splits", [False, True])
def test_a_company_beyond_the_curve_still_has_a_price_for_a_token_more(splits: bool) -> None:
    own, _ = view([1] * (OPTIONS.width_max + 1), splits=splits)
    assert own.least_slope(1) > 0
