"""What one more token costs a sequence that is decoded together with others.

Owns the view of a shared cost model that one sequence's budget sees, and what a batch of several graphs tells that
model. Leaves learning to `pyspec.budget.CostModel`, which knows the cost of a graph by its tokens, and deciding to the
budget.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pyspec.budget import BudgetOptions, CostModel

__all__ = ["BatchCost", "graphs", "observe_graphs"]


class BatchCost(CostModel):
    """A sequence's part of a batch.

    That is its share of the batch in which every sequence has one token, and all that its further tokens add. So a
    draft is weighed against plain decoding in the same company.

    Args:
        options: of the budget.
        shared: of the whole batch, by its number of tokens.
        splits: sequences of different widths are decoded in several graphs, each with as many tokens of every sequence
            (llama.cpp's recurrent and hybrid memory, `split_equal` in src/llama-batch.cpp).
    """

    hears_decodes = False

    def __init__(self, options: BudgetOptions, shared: CostModel, *, splits: bool) -> None:
        super().__init__(options)
        self._shared = shared
        self._splits = splits
        self._others: tuple[int, ...] = ()
        self._seen: NDArray[np.float64] | None = None
        self._view: NDArray[np.float64] | None = None

    @property
    def others(self) -> tuple[int, ...]:
        """Widths of the other sequences in the next batch."""
        return self._others

    def accompany(self, widths: Sequence[int]) -> None:
        """Say what else the next batch decodes: the widths of the other sequences."""
        others = tuple(sorted(widths))
        if others != self._others:
            self._others, self._view = others, None

    @property
    def is_known(self) -> bool:
        """As the shared model's."""
        return self._shared.is_known

    def observe(self, width: int, seconds: float) -> None:
        """Nothing: a batch's time is no sequence's own; whoever decodes tells it to the shared model."""

    def curve(self) -> NDArray[np.float64]:
        """[n + 1] seconds by this sequence's width in this company; entry 0 has no meaning."""
        shared = self._shared.curve()
        if self._view is None or self._seen is not shared:
            self._seen, self._view = shared, self._weigh(shared)
        return self._view

    def _weigh(self, shared: NDArray[np.float64]) -> NDArray[np.float64]:
        others = self._others
        if not others:
            return shared
        n_all = len(others) + 1
        n_widths = max(2, len(shared) - 1 - sum(others))  # what one token more costs, at least
        widths = np.arange(1, n_widths + 1)
        totals = self._split(shared, widths) if self._splits else _at(shared, sum(others) + widths)
        plain = float(_at(shared, np.array([n_all]))[0])
        return np.concatenate(([0.0], totals - totals[0] + plain / n_all))

    def _split(self, shared: NDArray[np.float64], widths: NDArray[np.int64]) -> NDArray[np.float64]:
        """[n] seconds of the whole batch where each graph holds equally many tokens of every sequence still there."""
        totals = np.zeros(len(widths))
        low, n_others = 0, len(self._others)
        for high in sorted(set(self._others)):
            own = np.clip(widths, low, high)  # up to here this sequence is in the graph, too
            totals += _at(shared, (own - low) * (n_others + 1)) + _at(shared, (high - own) * n_others)
            n_others -= self._others.count(high)
            low = high
        return totals + _at(shared, np.maximum(0, widths - low))


def graphs(widths: Sequence[int], *, splits: bool) -> list[int]:
    """Tokens of each graph that a batch takes in which sequences have so many tokens; `splits` as of `BatchCost`."""
    if not splits:
        return [sum(widths)]
    low, found = 0, []
    for high in sorted(set(widths)):
        found.append((high - low) * sum(width > low for width in widths))
        low = high
    return found


def observe_graphs(shared: CostModel, n_tokens: Sequence[int], seconds: float) -> None:
    """Tell the shared model that graphs of so many tokens took `seconds` together: each its share by what is known."""
    expected = _at(shared.curve(), np.array(n_tokens))
    for n, share in zip(n_tokens, (expected / expected.sum()).tolist(), strict=True):
        shared.observe(n, share * seconds)


def _at(curve: NDArray[np.float64], widths: NDArray[np.int64]) -> NDArray[np.float64]:
    """Seconds of decodes of `widths` tokens, 0 for none; beyond the curve as it ends."""
    last = len(curve) - 1
    rise = float(curve[last] - curve[last - 1]) if last > 1 else 0.0
    seconds: NDArray[np.float64] = curve[np.minimum(widths, last)] + rise * np.maximum(0, widths - last)
    return np.where(widths == 0, 0.0, seconds)
