"""From many turns to the report: medians of times, and medians of ratios within one turn.

Owns this arithmetic alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, median
from typing import Any

import numpy as np

from pyspec.bench.generations import Run
from pyspec.bench.rollback_rows import CostRow, GenerationRow, LeftOut, PlainGeneration, PlainRow, RollbackReport
from pyspec.bench.rollback_turns import Turns

__all__ = ["report_of"]

_PARTS = ("save_s", "decode_s", "undo_s", "replay_s")


def report_of(turns: Turns, *, about: dict[str, Any], left_out: Sequence[LeftOut] = ()) -> RollbackReport:
    """The report about finished `turns`; `left_out` was not even tried."""
    options, found = turns.options, {one.name for one in turns.contestants}
    settings = {
        "n_context": options.n_context,
        "n_draft": options.n_draft,
        "n_tokens": options.n_tokens,
        "n_rounds": options.n_rounds,
        "n_rs_seq": max(one.rollback.context.n_rs_seq for one in turns.contestants),
        "n_gpu_layers": options.n_gpu_layers,
        "flash_attn": {True: "on", False: "off", None: "auto"}[options.flash_attn],
    }
    return RollbackReport(
        about=about,
        settings=settings,
        plain=[_plain_row(turns, width) for width in turns.grid],
        costs=[_cost_row(turns, *key) for key in turns.costs if key[0] in found],
        plain_generation=_plain_generation(turns) if turns.plain_runs else None,
        generations=[_generation_row(turns, *key) for key in turns.runs if key[0] in found],
        left_out=[*left_out, *turns.left_out],
    )


def _plain_row(turns: Turns, width: int) -> PlainRow:
    times = turns.plain_s[width]
    return PlainRow(width, median(times), median(turns.one_row_s[width]), _median_ratio(times, turns.plain_s[1]))


def _cost_row(turns: Turns, name: str, width: int) -> CostRow:
    costs, one_s = turns.costs[name, width], turns.plain_s[1]
    parts = {part: [getattr(cost, part) for cost in costs] for part in _PARTS}
    return CostRow(
        strategy=name,
        width=width,
        n_right=costs[0].n_accepted,
        n_replayed=costs[0].n_replayed,
        extra_bytes=next(one.extra_bytes for one in turns.contestants if one.name == name),
        **{part: median(times) for part, times in parts.items()},
        **{part.replace("_s", "_share"): _median_ratio(times, one_s) for part, times in parts.items()},
        decode_ratio=_median_ratio(parts["decode_s"], turns.plain_s[width]),
    )


def _plain_generation(turns: Turns) -> PlainGeneration:
    seconds = [run.s_per_token for run in turns.plain_runs]
    ratio = _median_ratio([run.s_per_decode for run in turns.plain_runs], turns.plain_s[1])
    return PlainGeneration(turns.plain_runs[0].n_tokens, median(seconds), ratio)


def _generation_row(turns: Turns, name: str, replay: str, pattern: str) -> GenerationRow:
    runs = turns.runs[name, replay, pattern]
    first, stats = runs[0], runs[0].stats
    return GenerationRow(
        strategy=name,
        replay=replay,
        pattern=pattern,
        n_tokens=first.n_tokens,
        n_decodes=len(first.decodes),
        mean_width=mean(width for width, _ in first.decodes),
        n_drafts=stats.n_drafts,
        n_drafted=stats.n_drafted,
        n_accepted=stats.n_accepted,
        n_rollbacks=stats.n_rollbacks,
        n_replayed=stats.n_replayed,
        n_forced_commits=stats.n_forced_commits,
        s_per_token=median(run.s_per_token for run in runs),
        time_ratio=_median_ratio([r.s_per_token for r in runs], [r.s_per_token for r in turns.plain_runs]),
        decode_ratio=median(run.seconds / _expected_s(turns, run, turn) for turn, run in enumerate(runs)),
        difference=turns.differences[name, replay, pattern],
    )


def _expected_s(turns: Turns, run: Run, turn: int) -> float:
    """Seconds that the run's decodes would take as single plain ones, by what this turn measured."""
    widths, n_rows = (np.array(column, float) for column in zip(*run.decodes, strict=True))
    one_row = np.array([turns.one_row_s[width][turn] for width in turns.grid])
    all_rows = np.array([turns.plain_s[width][turn] for width in turns.grid])
    grid = np.array(turns.grid, float)
    row_s = np.interp(widths, grid[1:], (all_rows - one_row)[1:] / (grid[1:] - 1))
    return float((np.interp(widths, grid, one_row) + (n_rows - 1) * row_s).sum())


def _median_ratio(times: Sequence[float], base: Sequence[float]) -> float:
    """Median over turns of one time over another of the same turn."""
    return median(a / b for a, b in zip(times, base, strict=True))
