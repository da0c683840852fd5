"""What the budget decides in real generations, round by round, and the costs that it decides by.

Owns the runs and their data; leaves single generations to `drafting_runs`, the picture to `budget_plot`.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

from pyspec._core import Model
from pyspec.bench.drafting_options import DraftingBenchOptions
from pyspec.bench.drafting_runs import DraftingRun, Target
from pyspec.bench.machine import describe
from pyspec.bench.workloads import Passage, passages
from pyspec.budgeted import BudgetedDrafting
from pyspec.oracle import oracle
from pyspec.width_costs import WIDTHS, measure_width_costs

__all__ = ["measure_budget"]

_FORMAT = 1


def measure_budget(
    model: Model,
    options: DraftingBenchOptions | None = None,
    *,
    progress: Callable[[float], object] = lambda fraction: None,
) -> dict[str, Any]:
    """Play workloads with the first speculator and budget of `options` on `model`, and keep every round.

    Args:
        model: fully loaded.
        options: `n_runs` runs of each workload, of which the one of median speed counts; every one starts anew.
        progress: called with 0.0 to 1.0.

    Returns:
        Plain data: "about" and "settings"; "costs", seconds of a decode by width, as measured when the context was made
        (empty on a busy machine) and as known after the workload of the most widths; "workloads", each with its rounds
        as lists [tokens said before, pending, drafted, accepted, why].

    Raises:
        PyspecError: as `pyspec.bench.measure_drafting`.
    """
    options = options or DraftingBenchOptions(workloads=("code-rewrite", "agent", "prose"), budgets=("measured",))
    spec, budget = (options.specs or ("auto",))[0], options.budgets[0]
    found = passages(options.workloads, model.vocab, n_tokens=options.n_tokens, seed=options.seed)
    n_ctx = max(len(passage.prompt) for passage in found) + options.n_tokens
    target = Target(model, options, n_ctx=n_ctx)
    try:
        measured = target.assembly.width_costs or measure_width_costs(target.context, WIDTHS)
        rows, learned, n_widths = [], [], 0
        for done, passage in enumerate(found):
            progress(done / len(found))
            row, curve = _played(target, passage, spec, budget, options.n_runs)
            rows.append(row)
            if len(seen := {pending + drafted for _, pending, drafted, *_ in row["rounds"]}) > n_widths:
                learned, n_widths = curve, len(seen)
        progress(1.0)
        return {
            "format": _FORMAT,
            "about": describe(target.context, state_bytes=target.state_bytes),
            "settings": {
                "spec": spec,
                "budget": budget,
                "continuation": options.continuation,
                "n_tokens": options.n_tokens,
                "rollback": target.assembly.memory.rollback.name,
            },
            "costs": {"measured": [[width, seconds] for width, seconds in measured.items()], "learned": learned},
            "workloads": rows,
        }
    finally:
        target.close()


def _played(
    target: Target, passage: Passage, spec: str, budget: str, n_runs: int
) -> tuple[dict[str, Any], list[list[float]]]:
    plain, runs = [], []
    learned: list[list[float]] = []
    for _ in range(n_runs):
        plain.append(target.play(passage).s_per_token)
        with target.drafting(spec, budget) as drafting:
            runs.append(target.play(passage, drafting))
            if isinstance(drafting, BudgetedDrafting):
                learned = [[width, float(s)] for width, s in enumerate(drafting.cost.curve()[1:], 1)]
    run = sorted(runs, key=lambda one: one.s_per_token)[(n_runs - 1) // 2]
    bound = oracle(run.stats.rounds, 1 / run.s_per_token)
    row = {
        "workload": passage.name,
        "about": passage.about,
        "n_tokens": run.n_tokens,
        "speed": median(plain) / run.s_per_token,
        "oracle_share": None if bound is None else bound.share,
        "rounds": _rounds(run),
    }
    return row, learned


def _rounds(run: DraftingRun) -> list[list[Any]]:
    rounds, said = [], 0
    for record in run.stats.rounds:
        if record.reason != "prompt":
            rounds.append([said, record.n_pending, record.n_drafted, record.n_accepted, record.why])
        said += record.n_emitted
    return rounds
