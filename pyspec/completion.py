"""What a generation returns.

Owns the result's fields and how they print; leaves producing them to `pyspec.llm`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspec.stats import Stats, Timings

__all__ = ["Completion"]


@dataclass(frozen=True, slots=True)
class Completion:
    """One finished generation.

    Attributes:
        text: the generated text; empty for a model without a text vocabulary.
        tokens: the generated token ids, without the end token; only those that lie wholly inside `text`.
        finish_reason: "stop" (an end token or a stop string), "length" (`max_tokens`) or "context" (no room left).
        stop: the stop string that ended it, None otherwise.
        prompt_tokens: the prompt's token ids.
        seed: the seed in use; with it the same text comes again.
        stats: counts of drafting, verification and rollback.
        timings: seconds of each part.
    """

    text: str
    tokens: list[int]
    finish_reason: str
    stop: str | None
    prompt_tokens: list[int]
    seed: int
    stats: Stats
    timings: Timings

    def __str__(self) -> str:
        """One line about the generation; the text itself is `text`."""
        s = self.stats
        drafted = f", drafted {s.n_drafted}, accepted {s.n_accepted}" if s.n_drafted else ""
        return (
            f"[{len(self.tokens)} tokens, {self.timings.tokens_per_s:.1f} tokens/s{drafted}, "
            f"{s.n_rounds} rounds, finish: {self.finish_reason}]"
        )
