"""What one more token costs in company: each graph of a batch costs what the shared curve says of its tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pyspec.batch_cost import BatchCost
from pyspec.budget import BudgetOptions, CostModel

OPTIONS = BudgetOptions(slope=0.5, width_max=40)


def view(others: Sequence[int], *, splits: bool) -> tuple[BatchCost, np.ndarray]:
    """A sequence's view in company, and the shared curve: a graph costs 0.5, each of its tokens 0.5 more."""
    shared = CostModel(OPTIONS)
    own = BatchCost(OPTIONS, shared, splits=splits)
    own.accompany(others)
    return own, shared.curve()


def graphs(widths: Sequence[int]) -> list[int]:
    """Tokens of each graph: as many of every sequence as the shortest one left has."""
    left, found = [width for width in widths if width], []
    while left:
        n = min(left)
        found.append(n * len(left))
        left = [width - n for width in left if width > n]
    return found


@pytest.mark.parametrize("others", [(1,), (1, 1, 1), (3,), (1, 3, 3, 6), (8, 8)])
def test_a_token_more_costs_what_it_adds_to_the_graphs_of_all(others: tuple[int, ...]) -> None:
    own, shared = view(others, splits=True)
    totals = [sum(shared[n] for n in graphs([*others, width])) for width in range(1, len(own.curve()))]
    assert np.diff(own.curve()[1:]) == pytest.approx(np.diff(totals))


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
