"""Everything that is measured about rollback, in turn, again and again: a busy moment must not decide.

Owns the order, what was measured, and what becomes of a strategy that fails. Leaves single measurements to `rounds`
and `generations`, and what follows from many of them to `rollback_medians`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from pyspec._core import Context
from pyspec.bench.contexts import Contestant
from pyspec.bench.generations import Difference, Run, drafts_of, judge, play, play_plain
from pyspec.bench.patterns import Pattern
from pyspec.bench.rollback_options import RollbackBenchOptions
from pyspec.bench.rollback_rows import LeftOut
from pyspec.bench.rounds import measure_plain, measure_rejected
from pyspec.errors import PyspecError, UnsupportedError
from pyspec.rollback import StrategyCost
from pyspec.speculators import Tokens

__all__ = ["Turns"]

_log = logging.getLogger("pyspec")


class Turns:
    """In each turn everything is measured once, so that ratios are of neighbours in time.

    Attributes:
        contestants: the strategies; one that fails is removed.
        grid: widths of plain decodes.
        plain_s, one_row_s: by width, seconds of each turn: with all rows of logits, and with the last alone.
        costs: by (strategy, width), of each turn.
        plain_runs: of each turn; the first one's text is the truth for all drafts.
        runs, differences: by (strategy, replay, pattern): of each turn, and of the first one.
        left_out: what was not measured.
    """

    def __init__(
        self,
        options: RollbackBenchOptions,
        plain: Context,
        found: list[Contestant],
        patterns: list[Pattern],
        grid: list[int],
        prompt: Tokens,
    ) -> None:
        self.options, self.plain, self.contestants = options, plain, found
        self.patterns, self.grid, self.prompt = patterns, grid, prompt
        self.left_out: list[LeftOut] = []
        self.longest = max((pattern.longest for pattern in patterns), default=0)
        self.plain_s: dict[int, list[float]] = {width: [] for width in grid}
        self.one_row_s: dict[int, list[float]] = {width: [] for width in grid}
        self.costs: dict[tuple[str, int], list[StrategyCost]] = {}
        self.plain_runs: list[Run] = []
        self.runs: dict[tuple[str, str, str], list[Run]] = {}
        self.differences: dict[tuple[str, str, str], Difference | None] = {}

    def run(self, progress: Callable[[float], object]) -> None:
        """Measure."""
        n_turns = self.options.n_rounds
        # Made once: how much a strategy can undo may depend on what it did last.
        steps = [*self._single_steps(), *(self._generation_steps() if self.patterns else [])]
        for turn in range(n_turns):
            for i, step in enumerate(steps):
                progress((turn + i / len(steps)) / n_turns)
                step()
        progress(1.0)

    # ------------------------------------------------------------- one turn
    def _single_steps(self) -> list[Callable[[], None]]:
        steps: list[Callable[[], None]] = [partial(self._time_plain, width) for width in self.grid]
        for width in dict.fromkeys(self.options.widths):
            for one in self.contestants:
                if width - 1 <= one.rollback.max_draft:
                    steps.append(partial(self._time_round, one, width))
                else:
                    why = f"can undo drafts of at most {one.rollback.max_draft} tokens"
                    self.left_out.append(LeftOut(one.name, width, why))
        return steps

    def _generation_steps(self) -> list[Callable[[], None]]:
        steps: list[Callable[[], None]] = [self._generate_plain]
        for pattern in self.patterns:
            for one in self.contestants:
                for replay in ("fused", "immediate") if one.replays else ("none",):
                    steps.append(partial(self._generate, one, replay, pattern))
        return steps

    def _time_plain(self, width: int) -> None:
        context, n_context = self.plain, self.options.n_context
        self.plain_s[width].append(measure_plain(context, width, n_context, n_rows=width))
        one_row_s = measure_plain(context, width, n_context, n_rows=1) if width > 1 else self.plain_s[1][-1]
        self.one_row_s[width].append(one_row_s)

    def _time_round(self, one: Contestant, width: int) -> None:
        if one not in self.contestants:
            return
        try:
            cost = measure_rejected(one.rollback, width, self.options.n_context)
        except PyspecError as error:
            self._drop(one, error)
            return
        self.costs.setdefault((one.name, width), []).append(cost)

    def _generate_plain(self) -> None:
        self.plain_runs.append(play_plain(self.plain, self.prompt, self.options.n_tokens + self.longest))

    def _generate(self, one: Contestant, replay: str, pattern: Pattern) -> None:
        if one not in self.contestants:
            return
        key = (one.name, replay, pattern.name)
        truth, n_vocab = self.plain_runs[0].tokens, self.plain.model.vocab.n_tokens
        script = drafts_of(pattern, truth, len(self.prompt), n_vocab)
        try:
            run = play(
                one.rollback,
                self.prompt,
                self.options.n_tokens,
                speculator=script,
                replay="fused" if replay == "none" else replay,
            )
        except PyspecError as error:
            self._drop(one, error)
            return
        self.runs.setdefault(key, []).append(run)
        if key not in self.differences:
            self.differences[key] = judge(self.plain, self.prompt, truth, run)

    def _drop(self, one: Contestant, error: PyspecError) -> None:
        """Go on without a strategy that failed; what was measured of it does not count."""
        _log.warning("rollback %s failed and is left out: %s", one.name, error)
        self.left_out.append(LeftOut(one.name, None, str(error)))
        self.contestants.remove(one)
        if not self.contestants:
            raise UnsupportedError(what="measuring rollback", why=f"every strategy failed, {one.name} so: {error}")
