"""What a decode of each width costs, measured on the live context at first use and kept in the user's cache.

Owns the measurement, which widths it has time for, and when it is believed; `cost_cache` keeps it. Leaves to
`pyspec.budget` what follows from it, and whether widths give the same logits to `pyspec.widths`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from math import inf
from time import perf_counter
from typing import Any

import numpy as np

from pyspec._core import Context
from pyspec.cost_cache import CostCache
from pyspec.errors import PyspecError

__all__ = ["WIDTHS", "cached_width_costs", "measure_width_costs"]

WIDTHS = (1, 2, 4, 8, 16, 32)

_VERSION = 2
_FOLDER = "width-costs"
_ENOUGH_S, _LIMIT_S = 0.1, 0.75
"""Turns are repeated for the first; widths whose turns would take longer than the second are left out."""

_N_TURNS_MIN, _N_TURNS_MAX = 2, 8
_STEADY = 1.25

_FAST_S = 0.01
"""Where plain decodes take less, building a graph shows; a recurrent memory's is built for the first two of a text."""

_log = logging.getLogger("pyspec")


def cached_width_costs(
    context: Context, *, width_max: int, seq_id: int = 0, settings: Mapping[str, str] | None = None
) -> dict[int, float]:
    """Seconds of a decode by width, 1 first, from the cache or measured now; memory is empty afterwards.

    Measuring takes well under a second. Where there is no time or no room for more than width 1, and on a machine too
    busy to tell, nothing is found and nothing kept.

    Args:
        context: nothing may be in its memory.
        width_max: the widest decode of interest.
        seq_id: the sequence to use.
        settings: whatever else the costs depend on, beside the model file and the context's sizes.
    """
    limit = min(width_max, context.n_batch, context.n_ubatch, context.n_outputs_max)
    widths = [width for width in WIDTHS if width <= limit]
    while len(widths) > 1 and _cells(widths) > context.n_ctx_seq:
        widths.pop()
    if len(widths) < 2:
        return {}
    kept = CostCache(context, _FOLDER, version=_VERSION, settings={**(settings or {}), "widths": str(widths)})
    found = kept.read(_parse)
    if found is None:
        try:
            found = measure_width_costs(context, widths, seq_id=seq_id)
        except PyspecError as error:
            _log.warning("decodes could not be timed: %s", error)
            return {}
        if found:
            kept.write({str(width): seconds for width, seconds in found.items()})
    return found


def measure_width_costs(context: Context, widths: Sequence[int], *, seq_id: int = 0) -> dict[int, float]:
    """Seconds of a decode by width, the choice of its tokens included; of random tokens in a short context.

    All widths in turn, again and again: a busy moment must not decide. The best of the turns counts.

    Args:
        context: nothing may be in its memory, and nothing is afterwards.
        widths: rising, the first one is 1.
        seq_id: the sequence to use.

    Returns:
        Fewer widths where decodes take long; none where the two best turns of a width differ much, or where only width
        1 can be had in time.

    Raises:
        PyspecError: a decode failed.
    """
    start = perf_counter()
    turns: list[dict[int, float]] = []
    try:
        limit_s = _LIMIT_S / (1 + _N_TURNS_MIN)
        plain_s = _turn(context, widths[:1], seq_id)[1]  # the first decodes of a context are slower
        n_before = 2 if plain_s < _FAST_S else 1
        chosen = list(_turn(context, widths, seq_id, n_before, limit_s=limit_s)) if 3 * plain_s < limit_s else []
        while len(chosen) > 1 and (
            len(turns) < _N_TURNS_MIN or (len(turns) < _N_TURNS_MAX and perf_counter() - start < _ENOUGH_S)
        ):
            if perf_counter() - start > 2 * _LIMIT_S:
                break
            turns.append(_turn(context, chosen, seq_id, n_before))
    finally:
        context.clear()
    found = {}
    for width in chosen if turns else ():
        best, second = sorted([*(taken[width] for taken in turns), inf])[:2]
        if second > _STEADY * best:
            _log.info("decodes are not timed: the machine is busy")
            return {}
        found[width] = best
    return found


def _turn(
    context: Context, widths: Sequence[int], seq_id: int, n_before: int = 1, *, limit_s: float = inf
) -> dict[int, float]:
    """Seconds of a decode of each width, up to the one before that which would exceed the limit of all together.

    Plain decodes follow each other in a text: `n_before` of them come first.
    """
    rng = np.random.default_rng(1)
    tokens = rng.integers(0, context.model.vocab.n_tokens, _cells(widths)).astype(np.int32)
    begin = perf_counter()
    context.clear()
    taken: dict[int, float] = {}
    pos, before = 0, 1
    for width in (*[1] * n_before, *widths):
        if taken and perf_counter() - begin + taken[before] * width / before > limit_s:
            break
        start = perf_counter()
        context.decode(tokens[pos : pos + width], pos=pos, seq_id=seq_id, n_outputs=width)
        context.argmax_rows()  # waits for the device
        taken[width] = perf_counter() - start
        pos, before = pos + width, width
    return taken


def _cells(widths: Sequence[int]) -> int:
    """Positions of one turn."""
    return 2 + sum(widths)


def _parse(data: Any) -> dict[int, float]:
    """The costs of a file.

    Raises:
        ValueError, TypeError, AttributeError: something else.
    """
    found = {int(width): float(seconds) for width, seconds in data.items()}
    if list(found) != sorted(found) or len(found) < 2 or min(found) != 1:
        raise ValueError(f"widths {list(found)}")
    if not all(0.0 < seconds < 1e6 for seconds in found.values()):
        raise ValueError(f"seconds {list(found.values())}")
    return found
