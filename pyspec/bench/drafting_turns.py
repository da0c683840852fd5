"""Everything that is measured about drafting, in turn, again and again, with plain decoding between.

Owns the order and what was measured. Leaves single generations to `drafting_runs`, single decodes to `rounds`, and what
follows from many of them to `drafting_medians`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import mean

from pyspec.bench.drafting_options import DraftingBenchOptions
from pyspec.bench.drafting_runs import DraftingRun, Target
from pyspec.bench.generations import Difference, Run, drafts_of, judge
from pyspec.bench.patterns import Pattern
from pyspec.bench.rounds import measure_plain
from pyspec.bench.workloads import Passage
from pyspec.drafting import Drafting

__all__ = ["ORACLE", "Drafter", "DraftingTurns", "Paired"]

ORACLE = "oracle"

_N_BETWEEN = 2
"""Runs between two plain ones."""


@dataclass(frozen=True, slots=True)
class Drafter:
    """Who drafts: a speculator by name with a budget, or the oracle (`spec` is `ORACLE`) with decodes of `width`."""

    spec: str
    budget: str = "off"
    width: int = 0


@dataclass(frozen=True, slots=True)
class Paired:
    """A run, and seconds a token of plain decoding at its time, between the plain run before and the one after."""

    run: DraftingRun
    plain_s: float

    @property
    def speed(self) -> float:
        """Tokens a second over those of plain decoding."""
        return self.plain_s / self.run.s_per_token


class DraftingTurns:
    """In each turn every workload is played by everybody once, a plain run before every second one and at the end.

    Attributes:
        target: the model on its context.
        passages: the workloads.
        n_context: tokens in memory before the decodes of `curve_s`.
        curve_s: by width, seconds of a plain decode in each turn.
        truths: by workload, the tokens that plain decoding says.
        plain_runs: by workload, of all turns.
        runs: by workload and drafter, of each turn.
        differences: of the first turn.
    """

    def __init__(
        self, options: DraftingBenchOptions, target: Target, passages: Sequence[Passage], specs: Sequence[str]
    ) -> None:
        self.options, self.target, self.passages = options, target, list(passages)
        widths = sorted(set(options.widths))
        self.drafters = [Drafter(ORACLE, width=width) for width in widths]
        self.drafters += [Drafter(spec, budget) for spec in specs for budget in dict.fromkeys(options.budgets)]
        self.n_context = round(mean(len(p.prompt) + self.n_said(p) / 2 for p in self.passages))
        self.curve_s: dict[int, list[float]] = {width: [] for width in (1, *widths)}
        self.truths: dict[str, list[int]] = {}
        self.plain_runs: dict[str, list[DraftingRun]] = {passage.name: [] for passage in self.passages}
        self.runs: dict[tuple[str, Drafter], list[Paired]] = {}
        self.differences: dict[tuple[str, Drafter], Difference | None] = {}

    def n_said(self, passage: Passage) -> int:
        """Tokens that are said of a passage."""
        n_max = self.options.n_tokens
        return min(n_max, len(passage.continuation)) if self.options.continuation == "forced" else n_max

    def run(self, progress: Callable[[float], object]) -> None:
        """Measure."""
        played = self.passages * self.options.n_runs
        for done, passage in enumerate(played):
            if passage is self.passages[0]:
                progress(done / len(played))
                self._time_decodes()
            for share in self._play_all(passage):
                progress((done + share) / len(played))
        progress(1.0)

    # ------------------------------------------------------------- one turn
    def _time_decodes(self) -> None:
        for width, times in self.curve_s.items():
            times.append(measure_plain(self.target.context, width, self.n_context, n_rows=width))

    def _play_all(self, passage: Passage) -> Iterator[float]:
        """Plays, and yields the share that is done."""
        plain, n_drafters = self._plain(passage), len(self.drafters)
        for start in range(0, n_drafters, _N_BETWEEN):
            yield start / n_drafters
            drafters = self.drafters[start : start + _N_BETWEEN]
            runs = [self._play(passage, drafter) for drafter in drafters]
            after = self._plain(passage)
            rise = (after.s_per_token - plain.s_per_token) / (len(runs) + 1)
            for i, (drafter, run) in enumerate(zip(drafters, runs, strict=True), 1):
                paired = Paired(run, plain.s_per_token + i * rise)
                self.runs.setdefault((passage.name, drafter), []).append(paired)
            plain = after

    def _plain(self, passage: Passage) -> DraftingRun:
        run = self.target.play(passage)
        self.plain_runs[passage.name].append(run)
        self.truths.setdefault(passage.name, run.tokens)
        return run

    def _play(self, passage: Passage, drafter: Drafter) -> DraftingRun:
        with self._drafting(passage, drafter) as drafting:
            run = self.target.play(passage, drafting)
        key = (passage.name, drafter)
        if key not in self.differences:
            self.differences[key] = self._judge(passage, run)
        return run

    @contextmanager
    def _drafting(self, passage: Passage, drafter: Drafter) -> Iterator[Drafting]:
        if drafter.spec != ORACLE:
            with self.target.drafting(drafter.spec, drafter.budget) as drafting:
                yield drafting
            return
        n_draft = drafter.width - 1
        pattern = Pattern(ORACLE, ((n_draft, n_draft),))
        n_vocab = self.target.model.vocab.n_tokens
        yield Drafting(drafts_of(pattern, self.truths[passage.name], len(passage.prompt), n_vocab))

    def _judge(self, passage: Passage, run: DraftingRun) -> Difference | None:
        truth = self.truths[passage.name]
        if run.tokens == truth:
            return None
        assert self.options.continuation == "own", "a forced continuation is said as it was given"
        widest = 1 + max((n_drafted for _, n_drafted in run.drafts), default=1)
        said = Run(run.tokens, run.seconds, [(widest, widest)], run.stats)
        return judge(self.target.context, passage.prompt, truth, said)
