"""What a generation asks of a decoder, and how rounds go: values that the round loop is given.

Owns the options, the request, the plan of one round, and what a chooser of tokens must offer. Leaves all doing to
`pyspec.decoder`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pyspec._core import Context
from pyspec.drafting import Drafting
from pyspec.errors import InvalidValueError
from pyspec.speculators import Tokens

__all__ = ["Chooser", "DecoderOptions", "Halted", "Plan", "Request"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderOptions:
    """How rounds treat tokens that must be decoded again after a rollback.

    Attributes:
        replay: "fused" lets decided tokens ride in front of the next draft; "immediate" spends a decode on them.
        max_tries: rollbacks to one saved position before a round without a draft commits (fused only).
        max_pending: the same by number of pending tokens.
        n_draft: most tokens in one draft, None leaves it to the speculator.
    """

    replay: str = "fused"
    max_tries: int = 2
    max_pending: int = 16
    n_draft: int | None = None

    def __post_init__(self) -> None:
        if self.replay not in ("fused", "immediate"):
            raise InvalidValueError(name="replay", value=self.replay, allowed="'fused' or 'immediate'")
        for name in ("max_tries", "max_pending", "n_draft"):
            value = getattr(self, name)
            if value is None and name == "n_draft":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InvalidValueError(name=name, value=value, allowed="a whole number >= 1")


class Chooser(Protocol):
    """What chooses the target's tokens: `pyspec._core.Sampler`, or a stand-in with these four."""

    @property
    def is_greedy(self) -> bool:
        """Every choice is the row's largest logit; the other methods but `reset` are then not called."""

    def reset(self) -> None:
        """A generation begins."""

    def sample(self, context: Context, row: int) -> int:
        """The token at an output row of the last decode; once per token, rows in order until a draft is refuted."""

    def accept(self, token: int, *, prompt: bool = False) -> None:
        """`token` stands in the prompt, or was chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One generation.

    Attributes:
        prompt: [n_prompt] token ids, at least one.
        sampler: chooses the target's tokens; the prompt is told to it.
        drafting: drafts, and how much; keeps what it learned from one generation to the next.
        max_tokens: most tokens to emit, None for as many as fit.
        end_tokens: end the generation and are not emitted.
        emit: called once per emitted token; returns a finish reason or None.
        reuse: go on from what memory holds of the prompt, instead of from nothing.
        takes_back: the last emitted tokens may turn out to be no part of the text (a stop string of several tokens).
        n_keep: where memory is full, tokens behind the first `n_keep` are dropped; None ends the generation there.
        halt: asked before each decode; a finish reason ends the generation there, with memory as it is.
        on_progress: called after each decode of the prompt with its tokens in memory and in all.
        observe_row: called with (context, output row, token) for each token that will be emitted, in order.
    """

    prompt: Tokens
    sampler: Chooser
    drafting: Drafting
    max_tokens: int | None
    end_tokens: frozenset[int]
    emit: Callable[[int], str | None]
    reuse: bool = False
    takes_back: bool = False
    n_keep: int | None = None
    halt: Callable[[], str | None] | None = None
    on_progress: Callable[[int, int], object] | None = None
    observe_row: Callable[[Context, int, int], object] | None = None


class Halted(Exception):
    """The request ended its generation while its prompt was decoded."""


class Plan:
    """What one round decodes.

    Attributes:
        pending: decided tokens that are not in memory, at least one.
        draft: what comes behind them.
        draft_s, save_s, feed_s: seconds of drafting, of saving, and of decoding the prompt before the first round.
    """

    __slots__ = ("draft", "draft_s", "feed_s", "pending", "save_s")

    def __init__(
        self, pending: list[int], draft: list[int], *, draft_s: float = 0.0, save_s: float = 0.0, feed_s: float = 0.0
    ) -> None:
        self.pending = pending
        self.draft = draft
        self.draft_s, self.save_s, self.feed_s = draft_s, save_s, feed_s

    @property
    def tokens(self) -> list[int]:
        """What is decoded, in order."""
        return self.pending + self.draft

    @property
    def n_outputs(self) -> int:
        """Rows wanted, of the last tokens."""
        return 1 + len(self.draft)
