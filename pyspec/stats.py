"""Honest counts and timings of one generation.

Owns the counters, their derived rates and their printing; leaves the counting to the decoder.
Everything is counted once, at first verification: a replay never counts as acceptance.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

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


@dataclass(slots=True)
class DraftingCounts:
    """What was asked for and not decoded.

    Attributes:
        n_asked: calls of speculators.
        n_watched: drafts that were proposed and not decoded, only compared with what the target said.
        n_watched_right: their first tokens that were right.
        n_silent: rounds in which the budget let no draft be decoded though there was one, or asked nobody.
        n_probes: drafts of a costly speculator with a bad record, to see whether it has become better.
    """

    n_asked: int = 0
    n_watched: int = 0
    n_watched_right: int = 0
    n_silent: int = 0
    n_probes: int = 0


@dataclass(slots=True)
class Stats:
    """Counters of one generation.

    Attributes:
        n_prompt: tokens of the prompt.
        n_generated: tokens the user got.
        n_rounds: rounds, each one target decode that emitted at least one token (or ended the generation).
        n_decodes: target decodes, prompt and immediate replays included.
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
    """

    n_prompt: int = 0
    n_generated: int = 0
    n_rounds: int = 0
    n_decodes: int = 0
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

    @property
    def acceptance_rate(self) -> float:
        """Accepted share of the drafted tokens, 0 when nothing was drafted."""
        return self.n_accepted / self.n_drafted if self.n_drafted else 0.0

    @property
    def tokens_per_round(self) -> float:
        """Emitted tokens per round; 1.0 is plain decoding."""
        return self.n_generated / self.n_rounds if self.n_rounds else 0.0

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

    def to_dict(self) -> dict[str, Any]:
        """All counters and rates as plain data."""
        return asdict(self) | {
            "acceptance_rate": self.acceptance_rate,
            "tokens_per_round": self.tokens_per_round,
        }

    def to_json(self) -> str:
        """`to_dict` as JSON."""
        return json.dumps(self.to_dict())

    def __str__(self) -> str:
        lines = [
            f"prompt {self.n_prompt}, generated {self.n_generated} in {self.n_rounds} rounds "
            f"({self.tokens_per_round:.2f} a round), {self.n_decodes} decodes",
            f"drafted {self.n_drafted}, accepted {self.n_accepted} ({self.acceptance_rate:.0%}), cut {self.n_cut}",
            f"rollback {self.rollback or 'none'}: {self.n_rollbacks} rollbacks, {self.n_saves} saves, "
            f"{self.n_replayed} tokens replayed, {self.n_forced_commits} forced commits",
        ]
        for name, s in self.by_speculator.items():
            lines.append(f"{name}: {s.n_drafts} drafts, {s.n_drafted} drafted, {s.n_accepted} accepted")
        return "\n".join(lines)


@dataclass(slots=True)
class Timings:
    """Seconds of each part of one generation.

    `prompt_s` runs from the call to the first token; `generate_s` from there to the end. The parts below
    split `generate_s` and the prompt together; `total_s - draft_s - decode_s - verify_s - rollback_s` is
    Python's bookkeeping and text.
    """

    prompt_s: float = 0.0
    generate_s: float = 0.0
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

    def to_dict(self) -> dict[str, float]:
        """All timings and rates as plain data."""
        return asdict(self) | {
            "total_s": self.total_s,
            "tokens_per_s": self.tokens_per_s,
            "prompt_tokens_per_s": self.prompt_tokens_per_s,
        }
