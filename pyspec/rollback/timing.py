"""The measured costs that `rollback="auto"` weighs: taken at first use, and kept in the user's cache.

Owns when a context is measured and for how long; leaves the measurement itself to `costs`, the decision to `choose` and
the files to `pyspec.cost_cache`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

from pyspec._core import Context
from pyspec.cost_cache import CostCache
from pyspec.errors import PyspecError
from pyspec.rollback.choose import build
from pyspec.rollback.costs import StrategyCost, cells_needed, measure_cost

__all__ = ["WIDTH", "cached_costs"]

WIDTH = 3
"""One pending token and a draft of two: the state's copies cost the same at every width, the decode does not."""

_N_CONTEXT = 2
_N_ROUNDS = 1
_N_TURNS = 8
_LIMIT_S = 0.5
_STEADY = 1.25
_FORMAT = 3
_log = logging.getLogger("pyspec")


def cached_costs(
    context: Context,
    names: Sequence[str],
    *,
    seq_id: int = 0,
    spare: int | None = None,
    settings: Mapping[str, str] | None = None,
) -> dict[str, StrategyCost]:
    """Costs of the strategies `names` on `context`, from the cache or measured now; its memory is cleared.

    Nothing is measured where there is nothing to choose, or no room for it. Measuring stops after half a second, but
    each strategy is measured twice. On a machine too busy to tell, nothing is found and nothing kept. `settings` are
    whatever else the costs depend on.
    """
    if len(names) < 2 or context.n_ctx_seq < _N_CONTEXT + cells_needed(WIDTH, _N_ROUNDS):
        return {}
    if min(context.n_batch, context.n_ubatch, context.n_outputs_max) < WIDTH:
        return {}
    kept = CostCache(context, "rollback-costs", version=_FORMAT, settings=settings)
    found = kept.read(_parse)
    if found is None or set(found) != set(names):
        found = _measure(context, names, seq_id, spare)
        if found:
            kept.write({name: cost.to_dict() for name, cost in found.items()})
    return found


def _measure(context: Context, names: Sequence[str], seq_id: int, spare: int | None) -> dict[str, StrategyCost]:
    """The strategies in turn, a few rounds each, again and again: a busy moment must not decide.

    Nothing is found where the two best turns of a strategy differ much: then the machine is too busy to tell.
    """
    turns: dict[str, list[StrategyCost]] = {name: [] for name in names}
    start = perf_counter()
    for turn in range(_N_TURNS):
        if turn >= 2 and perf_counter() - start > _LIMIT_S:
            break
        for name in names:
            strategy = build(name, context, seq_id=seq_id, spare=spare)
            try:
                cost = measure_cost(strategy, width=WIDTH, n_rounds=_N_ROUNDS, n_context=_N_CONTEXT, reduce=min)
            except PyspecError as error:
                _log.warning("rollback %s could not be measured and is not considered: %s", name, error)
                return {}
            turns[name].append(cost)
    found = {}
    for name, costs in turns.items():
        best, second = sorted(costs, key=lambda cost: cost.round_s)[:2]
        if second.round_s > _STEADY * best.round_s:
            _log.info("rollback strategies are not compared: the machine is busy")
            return {}
        found[name] = best
    return found


def _parse(data: Any) -> dict[str, StrategyCost]:
    return {name: StrategyCost(**cost) for name, cost in data.items()}
