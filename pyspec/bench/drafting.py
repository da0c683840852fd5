"""What drafting gains and costs: every speculator on workloads from all repeated to nothing, against an oracle.

Owns the whole of a measurement of one model, from options to report, and the size of its context; prints nothing.
Leaves measuring to `drafting_turns`, arithmetic to `drafting_medians`, and showing to `drafting_tables` and
`drafting_plot`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspec._core import Model
from pyspec.bench.drafting_medians import report_of
from pyspec.bench.drafting_options import SPECS, DraftingBenchOptions
from pyspec.bench.drafting_rows import DraftingReport
from pyspec.bench.drafting_runs import Target
from pyspec.bench.drafting_turns import DraftingTurns
from pyspec.bench.machine import describe
from pyspec.bench.rounds import cells_of_rounds
from pyspec.bench.workloads import passages

__all__ = ["DraftingBenchOptions", "DraftingReport", "measure_drafting"]

_DRAFT_MODEL = "draft-model"


def measure_drafting(
    model: Model,
    options: DraftingBenchOptions | None = None,
    *,
    draft_model: Model | None = None,
    progress: Callable[[float], object] = lambda fraction: None,
) -> DraftingReport:
    """Measure speculators on `model`, in a context of its own that is as long as the workloads need.

    Args:
        model: fully loaded.
        options: what is measured; None for the defaults.
        draft_model: what the speculator "draft-model" means; with it that one is measured, too.
        progress: called with 0.0 to 1.0.

    Raises:
        InvalidValueError, UnknownOptionError: an option, a workload, a speculator or a strategy.
        VocabularyMissingError: a workload of text for a vocabulary without text.
        VocabularyMismatchError: a draft model of another vocabulary.
        PyspecError: the context cannot be had, or a generation failed.
    """
    options = options or DraftingBenchOptions()
    specs = tuple(dict.fromkeys(options.specs or SPECS + (_DRAFT_MODEL,) * (draft_model is not None)))
    found = passages(options.workloads, model.vocab, n_tokens=options.n_tokens, seed=options.seed)
    longest = max(len(passage.prompt) for passage in found)
    n_ctx = longest + max(options.n_tokens, cells_of_rounds(max(options.widths)) + options.n_tokens // 2)
    target = Target(model, options, n_ctx=n_ctx, draft_model=draft_model)
    try:
        _check(target, specs, options)
        turns = DraftingTurns(options, target, found, specs)
        turns.run(progress)
        about = describe(target.context, state_bytes=target.state_bytes)
        return report_of(turns, about=about, draft_model=Path(draft_model.path).name if draft_model else None)
    finally:
        target.close()


def _check(target: Target, specs: tuple[str, ...], options: DraftingBenchOptions) -> None:
    """Build every speculator once: a name that is wrong shall not cost the minutes before it."""
    for spec in specs:
        with target.drafting(spec, options.budgets[0]):
            pass
