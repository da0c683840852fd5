"""What a rejected draft costs: every strategy that a model's memory can do, single rounds and whole generations.

Owns the whole of a measurement, from options to report, and the size of its contexts; prints nothing. Leaves measuring
to `rollback_turns`, arithmetic to `rollback_medians`, and showing to `rollback_tables` and `rollback_plot`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspec._core import Model
from pyspec.bench.contexts import Contexts, contestants
from pyspec.bench.generations import MAX_PENDING, cells_of_generation
from pyspec.bench.machine import describe
from pyspec.bench.patterns import Pattern, parse_pattern
from pyspec.bench.prompts import prompt_of
from pyspec.bench.rollback_medians import report_of
from pyspec.bench.rollback_options import RollbackBenchOptions
from pyspec.bench.rollback_rows import LeftOut, RollbackReport
from pyspec.bench.rollback_turns import Turns
from pyspec.bench.rounds import cells_of_rounds
from pyspec.errors import InvalidValueError

__all__ = ["RollbackBenchOptions", "RollbackReport", "measure_rollback"]


def measure_rollback(
    model: Model,
    options: RollbackBenchOptions | None = None,
    *,
    prompt: str | Sequence[int] | None = None,
    progress: Callable[[float], object] = lambda fraction: None,
) -> RollbackReport:
    """Measure the rollback strategies on `model`, in contexts of its own (up to four, of `n_context` tokens and more).

    A strategy that fails is left out, and the report says so.

    Args:
        model: fully loaded.
        options: what is measured; None for the defaults.
        prompt: a text or token ids for the generations, brought to `n_context` tokens; None for random ids.
        progress: called with 0.0 to 1.0.

    Raises:
        InvalidValueError, UnknownOptionError, OSError: an option or a trace file; nothing was measured.
        UnsupportedError: the memory cannot do a strategy that was asked for, or all failed.
        PyspecError: the contexts cannot be had, or plain decoding failed.
    """
    options = options or RollbackBenchOptions()
    patterns = _patterns(options)
    longest = max((pattern.longest for pattern in patterns), default=0)
    grid = sorted({1, *options.widths} | ({1 + longest, MAX_PENDING + longest} if patterns else set()))
    room = max(cells_of_rounds(grid[-1]), cells_of_generation(options.n_tokens, longest))
    contexts = Contexts(
        model,
        n_rs_seq=options.n_rs_seq,
        n_ctx=options.n_context + room,
        n_threads=options.n_threads,
        n_threads_batch=options.n_threads,
        flash_attn=options.flash_attn,
    )
    try:
        ids = prompt_of(model.vocab, prompt, options.n_context)
        found, missing = contestants(contexts, options.strategies)
        turns = Turns(options, contexts.plain, found, patterns, grid, ids)
        turns.run(progress)
        about = describe(contexts.plain, state_bytes=contexts.state_bytes)
        left_out = [LeftOut(name, None, contexts.why_not(name)) for name in missing]
        return report_of(turns, about=about, left_out=left_out)
    finally:
        contexts.close()


def _patterns(options: RollbackBenchOptions) -> list[Pattern]:
    if not options.n_tokens:
        return []
    found = [parse_pattern(text, n_draft=options.n_draft) for text in dict.fromkeys(options.patterns)]
    if len({pattern.name for pattern in found}) < len(found):
        raise InvalidValueError(name="patterns", value=options.patterns, allowed="traces in files of different names")
    return found
