"""Honest counts and timings of one generation.

Owns the counters, the record of its rounds and the rates derived from both; leaves the counting to the decoder and the
words to `pyspec.summary`. Everything is counted once, at first verification: a replay never counts as acceptance.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from pyspec.html import stats_html
from pyspec.oracle import Oracle, oracle
from pyspec.rounds import N_ROUNDS_KEPT, Reason, RoundRecord, columns, per_position
from pyspec.summary import rows, text

__all__ = ["DraftingCounts", "SpeculatorStats", "Stats", "Timings"]


@dataclass(slots=True)
class SpeculatorStats:
    """What one speculator drafted and how much of it was accepted."""

    n_drafts: int = 0
    n_drafted: int = 0
    n_accepted: int = 0

    @property
    def acceptance_rate(self) -> float:
        """Accepted share of the drafted tokens, 0 when nothing was drafted."""
        return self.n_accepted / self.n_drafted if self.n_drafted else 0.0

    @property
    def mean_accepted_length(self) -> float:
        """Accepted tokens of a draft, the bonus or correction behind them not counted; 0 without a draft."""
        return self.n_accepted / self.n_drafts if self.n_drafts else 0.0


@dataclass(slots=True)
class DraftingCounts:
    """What was asked for and not decoded.

    Attributes:
        n_asked: calls of speculators.
        n_watched: drafts that were proposed and not decoded, only compared with what the target said.
        n_watched_right: their first tokens that were right.
        n_silent: rounds in which the budget let no draft be decoded though there was one, or asked nobody.
        n_probes: drafts of a costly speculator with a bad record, to see whether it has become better.
        asked_s: seconds spent in the calls, by speculator; a chain that no budget weighs counts as one.
    """

    n_asked: int = 0
    n_watched: int = 0
    n_watched_right: int = 0
    n_silent: int = 0
    n_probes: int = 0
    asked_s: dict[str, float] = field(default_factory=dict, compare=False)

    def count_call(self, speculator: str, seconds: float) -> None:
        """Count one call of a speculator's `draft`."""
        self.n_asked += 1
        self.asked_s[speculator] = self.asked_s.get(speculator, 0.0) + seconds


@dataclass(slots=True)
class Timings:
    """Seconds of each part of one generation.

    `prompt_s` runs from the call to the first token; `generate_s` from there to the end. The parts below split
    both together; what is left of `total_s` is Python's bookkeeping, text, and whoever took the text.

    Attributes:
        prompt_decode_s: the target reads the prompt and chooses the first token.
        draft_s: deciding on drafts and making them.
        decode_s: the target's other decodes.
        verify_s: the target's choices behind them; on a device also the wait for its decodes.
        rollback_s: saving before drafts, and committing or undoing them.
    """

    prompt_s: float = 0.0
    generate_s: float = 0.0
    prompt_decode_s: float = 0.0
    draft_s: float = 0.0
    decode_s: float = 0.0
    verify_s: float = 0.0
    rollback_s: float = 0.0
    n_prompt: int = 0
    n_generated: int = 0

    @property
    def total_s(self) -> float:
        """Seconds of the whole generation."""
        return self.prompt_s + self.generate_s

    @property
    def tokens_per_s(self) -> float:
        """Generated tokens a second, the first one (which belongs to the prompt) not counted."""
        n = self.n_generated - 1
        return n / self.generate_s if n > 0 and self.generate_s > 0 else 0.0

    @property
    def prompt_tokens_per_s(self) -> float:
        """Prompt tokens a second."""
        return self.n_prompt / self.prompt_s if self.prompt_s > 0 else 0.0

    @property
    def shares(self) -> dict[str, float]:
        """Share of each part and of the rest in the whole time; they sum to 1, or all are 0 where nothing was timed.

        While a generation is at work, and after one that was stopped, the whole is at least the parts so far.
        """
        parts = {
            "prompt": self.prompt_decode_s,
            "draft": self.draft_s,
            "decode": self.decode_s,
            "verify": self.verify_s,
            "rollback": self.rollback_s,
        }
        spent = sum(parts.values())
        whole = max(self.total_s, spent)
        parts["rest"] = whole - spent
        return {name: seconds / whole if whole else 0.0 for name, seconds in parts.items()}

    def to_dict(self) -> dict[str, Any]:
        """All timings, rates and shares as plain data."""
        return asdict(self) | {
            "total_s": self.total_s,
            "tokens_per_s": self.tokens_per_s,
            "prompt_tokens_per_s": self.prompt_tokens_per_s,
            "shares": self.shares,
        }


@dataclass(slots=True)
class Stats:
    """Counters of one generation; prints as a short table, in a notebook as a coloured one.

    Attributes:
        n_prompt: tokens of the prompt.
        n_reused: those of them that memory held already.
        n_generated: tokens that were generated; the text may end before the last of them, where a stop text begins.
        n_dropped: tokens of the text that memory dropped because it was full.
        n_rounds: rounds, each one target decode that emitted at least one token (or ended the generation).
        n_decodes: target decodes, prompt and immediate replays included.
        n_prompt_decodes: those that only read the prompt: the last one, which gives the first token, is not counted.
        n_drafts: rounds that verified a draft.
        n_drafted: draft tokens handed to the target.
        n_accepted: draft tokens kept.
        n_cut: draft tokens left unverified because the generation ended before them.
        n_rollbacks: rounds after which memory was brought back.
        n_replayed: decided tokens decoded again after a rollback, only to rebuild state.
        n_forced_commits: rounds without a draft because too many tokens were pending.
        n_saves: states saved (or shared) before a draft.
        n_failed_saves: saves that failed; the generation went on without drafts.
        saved_bytes: bytes copied by saves.
        accepted_per_position: for draft position i, how often the token there was accepted.
        drafted_per_position: how often a token was drafted there.
        rollback: the strategy in use.
        rollback_reason: why it was chosen.
        rollbacks_by_strategy: `n_rollbacks` by the strategy that did them.
        drafting: drafts that were asked for and not decoded.
        decisions: rounds by the reason why they drafted or did not, see `pyspec.rounds.REASONS`.
        rounds: what each round did, of the first `pyspec.rounds.N_ROUNDS_KEPT` ones.
        timings: seconds of each part.
    """

    n_prompt: int = 0
    n_reused: int = 0
    n_generated: int = 0
    n_dropped: int = 0
    n_rounds: int = 0
    n_decodes: int = 0
    n_prompt_decodes: int = 0
    n_drafts: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    n_cut: int = 0
    n_rollbacks: int = 0
    n_replayed: int = 0
    n_forced_commits: int = 0
    n_saves: int = 0
    n_failed_saves: int = 0
    saved_bytes: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    drafted_per_position: list[int] = field(default_factory=list)
    by_speculator: dict[str, SpeculatorStats] = field(default_factory=dict)
    rollback: str = ""
    rollback_reason: str = ""
    rollbacks_by_strategy: dict[str, int] = field(default_factory=dict)
    drafting: DraftingCounts = field(default_factory=DraftingCounts)
    decisions: dict[Reason, int] = field(default_factory=dict)
    rounds: list[RoundRecord] = field(default_factory=list, repr=False, compare=False)
    timings: Timings = field(default_factory=Timings, repr=False, compare=False)

    # ------------------------------------------------------------- derived
    @property
    def acceptance_rate(self) -> float:
        """Accepted share of the drafted tokens, 0 when nothing was drafted."""
        return self.n_accepted / self.n_drafted if self.n_drafted else 0.0

    @property
    def tokens_per_round(self) -> float:
        """Emitted tokens per round; 1.0 is plain decoding."""
        return self.n_generated / self.n_rounds if self.n_rounds else 0.0

    @property
    def tokens_per_decode(self) -> float:
        """Emitted tokens per target decode, replays counted and those that only read the prompt not."""
        n_decodes = self.n_decodes - self.n_prompt_decodes
        return self.n_generated / n_decodes if n_decodes > 0 else 0.0

    @property
    def mean_accepted_length(self) -> float:
        """Accepted tokens of a draft, the bonus or correction behind them not counted; 0 without a draft."""
        return self.n_accepted / self.n_drafts if self.n_drafts else 0.0

    @property
    def oracle(self) -> Oracle | None:
        """What the best imaginable speculator would have reached; None where too few widths were decoded to tell."""
        return oracle(self.rounds, self.timings.tokens_per_s)

    # ------------------------------------------------------------- counting
    def count_rollback(self, strategy: str) -> None:
        """Count one rollback done by `strategy`."""
        self.n_rollbacks += 1
        self.rollbacks_by_strategy[strategy] = self.rollbacks_by_strategy.get(strategy, 0) + 1

    def count_draft(self, speculator: str, n_drafted: int, n_accepted: int) -> None:
        """Count one verified draft of `n_drafted` tokens, the first `n_accepted` of which were kept."""
        self.n_drafts += 1
        self.n_drafted += n_drafted
        self.n_accepted += n_accepted
        drafted, accepted = self.drafted_per_position, self.accepted_per_position
        if n_drafted > len(drafted):
            grow = n_drafted - len(drafted)
            drafted.extend([0] * grow)
            accepted.extend([0] * grow)
        for i in range(n_drafted):
            drafted[i] += 1
        for i in range(n_accepted):
            accepted[i] += 1
        mine = self.by_speculator.get(speculator)
        if mine is None:
            mine = self.by_speculator[speculator] = SpeculatorStats()
        mine.n_drafts += 1
        mine.n_drafted += n_drafted
        mine.n_accepted += n_accepted

    def record_round(self, record: RoundRecord) -> None:
        """Count the decision of one round, and keep what it did unless too many are kept already."""
        decisions, reason = self.decisions, record.reason
        decisions[reason] = decisions.get(reason, 0) + 1
        if len(self.rounds) < N_ROUNDS_KEPT:
            self.rounds.append(record)

    # ------------------------------------------------------------- telling
    def to_dict(self, *, rounds: bool = True) -> dict[str, Any]:
        """All counters, rates and timings as plain data.

        Args:
            rounds: with what each round did, one list for each field of `RoundRecord`.
        """
        data = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("rounds", "timings")}
        bound = self.oracle
        return (
            data
            | {
                "accepted_per_position": list(self.accepted_per_position),
                "drafted_per_position": list(self.drafted_per_position),
                "by_speculator": {name: self._speculator_dict(name) for name in self.by_speculator},
                "rollbacks_by_strategy": dict(self.rollbacks_by_strategy),
                "drafting": asdict(self.drafting),
                "decisions": dict(self.decisions),
                "acceptance_rate": self.acceptance_rate,
                "mean_accepted_length": self.mean_accepted_length,
                "tokens_per_round": self.tokens_per_round,
                "tokens_per_decode": self.tokens_per_decode,
                "timings": self.timings.to_dict(),
                "oracle": None if bound is None else bound.to_dict(),
            }
            | ({"rounds": columns(self.rounds)} if rounds else {})
        )

    def _speculator_dict(self, name: str) -> dict[str, Any]:
        one = self.by_speculator[name]
        positions = per_position(self.rounds, name)
        return asdict(one) | {
            "acceptance_rate": one.acceptance_rate,
            "mean_accepted_length": one.mean_accepted_length,
            "accepted_per_position": [accepted for accepted, _ in positions],
            "drafted_per_position": [drafted for _, drafted in positions],
            "asked_s": self.drafting.asked_s.get(name, 0.0),
        }

    def to_json(self, *, rounds: bool = True) -> str:
        """`to_dict` as JSON."""
        return json.dumps(self.to_dict(rounds=rounds))

    def __str__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        """The same table for notebooks."""
        return stats_html(rows(self))
