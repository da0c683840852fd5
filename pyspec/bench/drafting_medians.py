"""From many turns to the report about drafting: medians of ratios, and the run that stands in the middle.

Owns this arithmetic alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from pyspec.bench.drafting_rows import CurveRow, DraftingReport, DraftingRow, OracleRow, WorkloadRow
from pyspec.bench.drafting_runs import PARTS
from pyspec.bench.drafting_turns import ORACLE, Drafter, DraftingTurns, Paired
from pyspec.bench.workloads import Passage

__all__ = ["report_of"]


def report_of(turns: DraftingTurns, *, about: dict[str, Any], draft_model: str | None) -> DraftingReport:
    """The report about finished `turns`; `draft_model` is the name of a file."""
    options, rollback = turns.options, turns.target.assembly.memory.rollback
    settings = {
        "continuation": options.continuation,
        "n_tokens": options.n_tokens,
        "n_context": turns.n_context,
        "n_runs": options.n_runs,
        "warm": options.warm,
        "rollback": rollback.name,
        "draft_model": draft_model,
        "seed": options.seed,
        "n_gpu_layers": options.n_gpu_layers,
        "flash_attn": {True: "on", False: "off", None: "auto"}[options.flash_attn],
    }
    curve = [_curve_row(turns, width) for width in turns.curve_s]
    oracle = [
        _oracle_row(passage.name, drafter.width, turns.runs[passage.name, drafter])
        for passage in turns.passages
        for drafter in turns.drafters
        if drafter.spec == ORACLE
    ]
    workloads = [_workload_row(turns, passage, curve, oracle) for passage in turns.passages]
    rows = [
        _row(turns, workload, drafter) for workload in workloads for drafter in turns.drafters if drafter.spec != ORACLE
    ]
    return DraftingReport(about, settings, curve, workloads, oracle, rows)


def _curve_row(turns: DraftingTurns, width: int) -> CurveRow:
    times = turns.curve_s[width]
    speed = median(width * one / wide for one, wide in zip(turns.curve_s[1], times, strict=True))
    return CurveRow(width, median(times), speed)


def _oracle_row(workload: str, width: int, runs: Sequence[Paired]) -> OracleRow:
    run = _middle(runs).run
    stats = run.stats
    speed = median(paired.speed for paired in runs)
    return OracleRow(workload, width, speed, run.n_decodes, stats.n_drafted, stats.n_accepted)


def _workload_row(
    turns: DraftingTurns, passage: Passage, curve: Sequence[CurveRow], oracle: Sequence[OracleRow]
) -> WorkloadRow:
    seconds = [run.s_per_token for run in turns.plain_runs[passage.name]]
    by_curve = max(curve, key=lambda row: row.speed)
    reached = max((row for row in oracle if row.workload == passage.name), key=lambda row: row.speed)
    pays = reached.speed > 1.0
    return WorkloadRow(
        workload=passage.name,
        about=passage.about,
        n_prompt=len(passage.prompt),
        n_tokens=len(turns.truths[passage.name]),
        plain_tokens_per_s=1 / median(seconds),
        plain_spread=max(seconds) / min(seconds),
        curve_width=by_curve.width,
        curve_speed=by_curve.speed,
        oracle_width=reached.width if pays else 1,
        oracle_speed=reached.speed if pays else 1.0,
    )


def _row(turns: DraftingTurns, workload: WorkloadRow, drafter: Drafter) -> DraftingRow:
    key = (workload.workload, drafter)
    runs = turns.runs[key]
    speeds = [paired.speed for paired in runs]
    run = _middle(runs).run
    stats = run.stats
    shares = {part: run.part_s[part] / run.seconds for part in PARTS}
    return DraftingRow(
        workload=workload.workload,
        spec=drafter.spec,
        budget=drafter.budget,
        speed=median(speeds),
        speed_min=min(speeds),
        speed_max=max(speeds),
        oracle_share=median(speeds) / workload.oracle_speed,
        tokens_per_s=1 / run.s_per_token,
        n_tokens=run.n_tokens,
        n_decodes=run.n_decodes,
        n_drafts=stats.n_drafts,
        n_drafted=stats.n_drafted,
        n_accepted=stats.n_accepted,
        n_rollbacks=stats.n_rollbacks,
        n_replayed=stats.n_replayed,
        **{f"{part}_share": share for part, share in shares.items()},
        rest_share=1.0 - sum(shares.values()),
        difference=turns.differences[key],
    )


def _middle(runs: Sequence[Paired]) -> Paired:
    """The run of median speed, of two in the middle the slower one."""
    return sorted(runs, key=lambda paired: paired.speed)[(len(runs) - 1) // 2]
