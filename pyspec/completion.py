"""What a generation returns.

Owns the result's fields, how they print and where they come from; leaves generating to `pyspec.llm`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspec.html import completion_html
from pyspec.rounds import Origin, origins
from pyspec.stats import Stats, Timings
from pyspec.summary import rows, tell
from pyspec.text import TextStream

__all__ = ["Completion", "completed"]


@dataclass(frozen=True, slots=True)
class Completion:
    """One finished generation. In a notebook its text is shown with each token shaded by where it comes from.

    Attributes:
        text: the generated text; empty for a model without a text vocabulary.
        tokens: the generated token ids, without the end token; only those that lie wholly inside `text`.
        finish_reason: "stop" (an end token or a stop string), "length" (`max_tokens`) or "context" (no room left).
        stop: the stop string that ended it, None otherwise.
        prompt_tokens: the prompt's token ids.
        seed: the seed in use; with it the same text comes again.
        stats: counts of drafting, verification and rollback.
        timings: seconds of each part.
        token_ends: [n_tokens] characters of `text` up to the end of each token. A character of several tokens belongs
            to the first of them.
    """

    text: str
    tokens: list[int]
    finish_reason: str
    stop: str | None
    prompt_tokens: list[int]
    seed: int
    stats: Stats
    timings: Timings
    token_ends: list[int] = field(default_factory=list, repr=False)

    @property
    def origins(self) -> list[Origin]:
        """[n_tokens] where each token comes from: "accepted", "bonus", "correction" or "plain" (`pyspec.rounds`)."""
        return origins(self.stats.rounds, len(self.tokens))

    def __str__(self) -> str:
        """One line about the generation; the text itself is `text`."""
        s = self.stats
        drafted = f", drafted {s.n_drafted}, accepted {s.n_accepted}" if s.n_drafted else ""
        return (
            f"[{len(self.tokens)} tokens, {self.timings.tokens_per_s:.1f} tokens/s{drafted}, "
            f"{s.n_rounds} rounds, finish: {self.finish_reason}]"
        )

    def _repr_html_(self) -> str:
        """The text with shaded tokens, and the table of `stats`."""
        return completion_html(
            self.text, self.tokens, self.token_ends, self.stats.rounds, summary=str(self), rows=rows(self.stats)
        )


def completed(
    stream: TextStream, tokens: Sequence[int], finish: str, *, prompt: Sequence[int], seed: int, stats: Stats
) -> Completion:
    """The result of a generation that is over, told to the log.

    Args:
        stream: the finished text.
        tokens: all tokens that were pushed to it.
        finish: the reason.
        prompt: the prompt's token ids.
        seed: of its random draws.
        stats: with its timings.
    """
    tell(stats, finish)
    n_tokens = stream.n_tokens
    return Completion(
        text=stream.text,
        tokens=list(tokens[:n_tokens]),
        finish_reason=finish,
        stop=stream.stopped_by,
        prompt_tokens=list(prompt),
        seed=seed,
        stats=stats,
        timings=stats.timings,
        token_ends=stream.ends,
    )
