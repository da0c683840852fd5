"""Whole generations with drafts of a given pattern, and what they are compared with: plain ones.

Owns the drafts, which are right or wrong relative to the text that plain decoding wrote; the time and the size of each
decode; and the judgement of a text that leaves the plain one. Leaves repeating and comparing to others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from time import perf_counter
from typing import Any

from pyspec._core import Context, Sampler
from pyspec.bench.patterns import Pattern
from pyspec.config import SamplingOptions
from pyspec.decoder import Decoder, DecoderOptions, Request
from pyspec.drafting import Drafting
from pyspec.rollback import Rollback, build
from pyspec.sequence import SequenceMemory
from pyspec.speculators import History, Speculator, Tokens
from pyspec.speculators.scripted import Scripted
from pyspec.stats import Stats

__all__ = ["MAX_PENDING", "Difference", "Run", "cells_of_generation", "drafts_of", "judge", "play", "play_plain"]

MAX_PENDING = DecoderOptions().max_pending
_NEAR_TIE = 1e-3


@dataclass(frozen=True, slots=True)
class Run:
    """One generation, greedy and without an end; the first round, which decodes the prompt, counts in `tokens` only.

    Attributes:
        tokens: all that was said, the first token included.
        seconds: of the rounds behind the first.
        decodes: (width, rows of logits) of each of their decodes, replays included.
        stats: the decoder's counts.
    """

    tokens: list[int]
    seconds: float
    decodes: list[tuple[int, int]]
    stats: Stats

    @property
    def n_tokens(self) -> int:
        """Tokens that the counted rounds gave."""
        return len(self.tokens) - 1

    @property
    def s_per_token(self) -> float:
        """Seconds a token."""
        return self.seconds / self.n_tokens

    @property
    def s_per_decode(self) -> float:
        """Seconds a decode, everything around it included."""
        return self.seconds / len(self.decodes)


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a text leaves the plain one.

    Attributes:
        index: of the first generated token that differs.
        plain_token, token: the two tokens there.
        margin: by how much the plain token's logit is the larger one after the common text, decoded plainly.
        rounding: largest change of a logit there when the common text is decoded in wider steps: what llama.cpp's
            kernels for other widths do, without any draft.
        near_tie: the margin is no larger than such changes explain.
    """

    index: int
    plain_token: int
    token: int
    margin: float
    rounding: float
    near_tie: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


class _Counted(SequenceMemory):
    """A sequence memory that remembers the size of each decode."""

    def __init__(self, context: Context, rollback: Rollback) -> None:
        super().__init__(context, rollback)
        self.decodes: list[tuple[int, int]] = []

    def decode(self, tokens: Tokens | Sequence[int], n_outputs: int) -> None:
        super().decode(tokens, n_outputs)
        self.decodes.append((len(tokens), n_outputs))


def cells_of_generation(n_tokens: int, longest: int) -> int:
    """Positions behind the prompt that let every draft of a generation have its full length."""
    return n_tokens + longest + 1


def play(
    rollback: Rollback,
    prompt: Tokens,
    n_tokens: int,
    *,
    speculator: Speculator | None = None,
    replay: str = "fused",
) -> Run:
    """Generate at least `n_tokens` tokens behind the first; memory of the strategy's context is cleared before.

    Raises:
        PyspecError: the strategy or a decode failed.
    """
    context = rollback.context
    context.clear()
    memory = _Counted(context, rollback)
    decoder = Decoder(memory, DecoderOptions(replay=replay), n_vocab=context.model.vocab.n_tokens)
    request = Request(
        prompt=prompt,
        sampler=Sampler(context.model, SamplingOptions()),
        drafting=Drafting(speculator),
        max_tokens=None,
        end_tokens=frozenset(),
        emit=lambda token: None,
    )
    decoder.begin(request)
    tokens = decoder.step().tokens
    memory.decodes.clear()
    start = perf_counter()
    while len(tokens) <= n_tokens:
        tokens += decoder.step().tokens
        assert decoder.finish is None, "the context has room for all tokens"
    context.synchronize()  # a replay at the end gave no rows to wait for
    return Run(tokens, perf_counter() - start, memory.decodes, decoder.stats)


def play_plain(context: Context, prompt: Tokens, n_tokens: int) -> Run:
    """Plain decoding, as `play`."""
    return play(_unused(context), prompt, n_tokens)


def drafts_of(pattern: Pattern, truth: Sequence[int], n_prompt: int, n_vocab: int) -> Scripted:
    """A speculator whose drafts are as long and as right as `pattern` says, while the text is `truth`.

    `truth` is what plain decoding said after the prompt. Where the text leaves it, nobody knows what would be right,
    and nothing is drafted from there on. A draft that the decoder has no room for is cut at its end.
    """
    rounds = cycle(pattern.rounds)
    n_checked, parted = 0, False

    def script(history: History, n_max: int) -> list[int]:
        nonlocal n_checked, parted
        n_said = len(history) - n_prompt
        parted = parted or history.tail(n_said - n_checked).tolist() != list(truth[n_checked:n_said])
        n_checked = n_said
        if parted:
            return []
        n_drafted, n_right = next(rounds)
        draft = list(truth[n_said : n_said + n_drafted])
        if n_right < len(draft):
            draft[n_right] = (draft[n_right] + 1) % n_vocab
        return draft

    return Scripted(script, name=pattern.name)


def judge(context: Context, prompt: Tokens, truth: Sequence[int], run: Run) -> Difference | None:
    """Where `run` leaves the plain text `truth`, and how close the two tokens were; None where it does not.

    `context` is the one that plain decoding used; its memory is cleared.
    """
    at = next((i for i, (a, b) in enumerate(zip(truth, run.tokens, strict=False)) if a != b), None)
    if at is None:
        return None
    plain, other = truth[at], run.tokens[at]
    row = _row_after(context, prompt, truth[:at], 1)
    wide = _row_after(context, prompt, truth[:at], max(2, *(width for width, _ in run.decodes)))
    margin = float(row[plain] - row[other])
    rounding = float(abs(row - wide).max())
    near_tie = abs(margin) <= 2 * rounding + _NEAR_TIE * float(row.std())
    return Difference(at, plain, other, margin, rounding, near_tie)


def _row_after(context: Context, prompt: Tokens, said: Sequence[int], width: int) -> Any:
    """Logits [n_vocab] after `prompt` and `said`, the latter decoded in steps of `width`."""
    context.clear()
    memory = SequenceMemory(context, _unused(context))
    memory.feed(prompt, n_last=context.n_batch)
    memory.decode(prompt[memory.n_past :], 1)
    for start in range(0, len(said), width):
        part = said[start : start + width]
        memory.decode(part, len(part))
    row = context.logits(context.n_outputs - 1, 1)[0]
    context.clear()
    return row


def _unused(context: Context) -> Rollback:
    """A strategy for a memory that is never rolled back."""
    return build("checkpoint-host", context, seq_id=0, spare=None)
