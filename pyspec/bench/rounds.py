"""Single decodes: plain ones of a width, and rounds with a rejected draft of the same width.

Owns the plain measurement, which mirrors `pyspec.rollback.measure_cost` without a strategy, and how many tokens of a
measured draft are right. Leaves repeating and comparing to others.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter

import numpy as np

from pyspec._core import Context
from pyspec.rollback import Rollback, StrategyCost, cells_needed, measure_cost
from pyspec.rollback.mixed import SnapshotShadow

__all__ = ["cells_of_rounds", "measure_plain", "measure_rejected"]

_N_ROUNDS = 3
"""Rounds that count each time memory has been filled; one more comes first and builds the graph."""


def cells_of_rounds(width: int) -> int:
    """Positions behind the context that one measurement of `width` takes."""
    return cells_needed(width, _N_ROUNDS)


def measure_plain(context: Context, width: int, n_context: int, *, n_rows: int) -> float:
    """Seconds of a decode of `width` tokens, the last `n_rows` with logits, after `n_context`: the median of a few.

    Memory is cleared before and after. Tokens are random.
    """
    rng = np.random.default_rng(1)
    tokens = rng.integers(0, context.model.vocab.n_tokens, n_context + cells_of_rounds(width)).astype(np.int32)
    times = []
    context.clear()
    try:
        for start in range(0, n_context, context.n_batch):
            context.decode(tokens[start : min(n_context, start + context.n_batch)], pos=start, n_outputs=0)
        for i in range(_N_ROUNDS + 1):
            pos = n_context + i * width
            start_s = perf_counter()
            context.decode(tokens[pos : pos + width], pos=pos, n_outputs=n_rows)
            context.argmax(0)  # waits for the device
            times.append(perf_counter() - start_s)
    finally:
        context.clear()
    return median(times[1:])


def measure_rejected(rollback: Rollback, width: int, n_context: int) -> StrategyCost:
    """What a round of `width` costs whose draft is right in its first half and then rejected.

    Raises:
        PyspecError: as `measure_cost`.
    """
    return measure_cost(
        rollback,
        width=width,
        n_accepted=_n_right(rollback, width - 1),
        n_rounds=_N_ROUNDS,
        n_context=n_context,
        replay=True,
    )


def _n_right(rollback: Rollback, n_draft: int) -> int:
    """Half of the draft; less where snapshots would undo a draft that is longer than they are many.

    The next draft of that length could then not be undone (`SnapshotShadow`), which a generation avoids, too.
    """
    n_right = min(n_draft // 2, n_draft - 1)
    if isinstance(rollback, SnapshotShadow) and n_draft > rollback.n_snapshots:
        n_right = min(n_right, n_draft - rollback.n_snapshots - 1)
    return n_right
