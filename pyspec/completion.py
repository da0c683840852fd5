"""What a generation returns.

Owns the result's fields, how they print and where they come from; leaves generating to `pyspec.generating`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspec.errors import InvalidValueError
from pyspec.html import completion_html
from pyspec.logprobs import TokenLogprob, mean_logprob
from pyspec.rounds import Origin, origins
from pyspec.stats import Stats, Timings
from pyspec.summary import rows, tell
from pyspec.text import TextStream

__all__ = ["Completion", "completed"]


@dataclass(frozen=True, slots=True)
class Completion:
    """One finished generation. In a notebook its text is shown with each token shaded by where it comes from.

    Attributes:
        text: the generated text, behind `echo`; empty for a model without a text vocabulary.
        tokens: the generated token ids, without the end token; only those that lie wholly inside `text`.
        finish_reason: "stop" (an end token or a stop string), "length" (`max_tokens`), "context" (no room left),
            "timeout" (`timeout_s`) or "cancelled".
        stop: the stop string that ended it, None otherwise.
        prompt_tokens: the prompt's token ids.
        seed: the seed in use; with it the same text comes again.
        stats: counts of drafting, verification and rollback.
        timings: seconds of each part.
        token_ends: [n_tokens] characters of `text` up to the end of each token. A character of several tokens belongs
            to the first of them.
        logprobs: [n_tokens] what the target thought of each token; None unless asked for.
        echo: what `text` has of the prompt, in front of what was generated; "" unless asked for. `tokens`, `origins`
            and `logprobs` are of the generated text alone.
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
    logprobs: list[TokenLogprob] | None = field(default=None, repr=False)
    echo: str = field(default="", repr=False)

    @property
    def origins(self) -> list[Origin]:
        """[n_tokens] where each token comes from: "accepted", "bonus", "correction" or "plain" (`pyspec.rounds`)."""
        return origins(self.stats.rounds, len(self.tokens))

    @property
    def mean_logprob(self) -> float:
        """Mean log-probability of the tokens, -inf without any.

        Raises:
            InvalidValueError: they were not asked for.
        """
        if self.logprobs is None:
            raise InvalidValueError(name="logprobs", value=None, allowed="0 or more in the call, to be kept")
        return mean_logprob(self.logprobs)

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
            self.text[len(self.echo) :],
            self.tokens,
            [end - len(self.echo) for end in self.token_ends],
            self.stats.rounds,
            echo=self.echo,
            summary=str(self),
            rows=rows(self.stats),
        )


def completed(
    stream: TextStream,
    tokens: Sequence[int],
    finish: str,
    *,
    prompt: Sequence[int],
    seed: int,
    stats: Stats,
    logprobs: Sequence[TokenLogprob] | None = None,
) -> Completion:
    """The result of a generation that is over, told to the log.

    Args:
        stream: the finished text.
        tokens: all tokens that were pushed to it.
        finish: the reason.
        prompt: the prompt's token ids.
        seed: of its random draws.
        stats: with its timings.
        logprobs: of all `tokens`, if they are wanted.
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
        logprobs=None if logprobs is None else list(logprobs[:n_tokens]),
        echo=stream.echo,
    )
