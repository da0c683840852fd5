"""One generation: what was asked for, the text that comes of it, and its result.

Owns the options of a call and everything that follows from them but for the tokens: sampler, ends, text, completion.
Leaves the rounds to `pyspec.decoder`; a `Llama` runs one generation at a time, an `Engine` many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, fields, replace
from functools import partial
from time import perf_counter
from typing import Any

from pyspec._core import Model, Sampler
from pyspec.arguments import as_max_tokens, as_stops, check_call, prompt_text, prompt_tokens, tokens_in_range
from pyspec.completion import Completion, completed
from pyspec.config import SamplingOptions
from pyspec.constraint import Constraint, as_constraint
from pyspec.constraint.sampler import constrained, follower_of, matcher_of
from pyspec.decoder import Chooser, Decoder, Request
from pyspec.drafting import Drafting
from pyspec.errors import UnknownOptionError
from pyspec.halt import Halt
from pyspec.logprobs import LogprobRecorder
from pyspec.speculator_pool import tell_silence
from pyspec.speculators import Grammar
from pyspec.stats import Stats
from pyspec.text import Pieces, TextStream

__all__ = ["CALL_OPTIONS", "OPTIONS", "CallOptions", "Generation", "Voice", "refuse_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """What a generation is asked for, beside its prompt, its speculator and its sampling.

    Attributes:
        max_tokens: most tokens to generate, None for as many as the context holds.
        stop: texts that end the generation and are not part of it.
        stop_tokens: token ids that end it, beside the model's own.
        ignore_eos: generate on after the model's own end tokens.
        reuse: go on from what memory holds of the prompt.
        constraint: what the text must look like, one of `pyspec.constraint`; not beside a `grammar`.
        n_keep: where the context is full, the older half of the tokens behind the first `n_keep` is dropped, on memory
            that can move the others up; None ends the generation.
        logprobs: log-probabilities of the tokens, and of this many of the likeliest beside each; None for none.
        echo: begin the text with the prompt's.
        timeout_s: seconds from the call on, after which the generation ends with what it has; None for no limit.
        on_progress: called with the prompt's tokens in memory and in all, after each decode of them; returning False
            cancels the generation.

    Raises:
        InvalidValueError: a value that cannot be.
    """

    max_tokens: int | None = 256
    stop: str | Sequence[str] | None = None
    stop_tokens: Sequence[int] = ()
    ignore_eos: bool = False
    reuse: bool = False
    constraint: Constraint | None = None
    n_keep: int | None = None
    logprobs: int | None = None
    echo: bool = False
    timeout_s: float | None = None
    on_progress: Callable[[int, int], object] | None = None

    def __post_init__(self) -> None:
        check_call(**{field.name: getattr(self, field.name) for field in fields(self)})
        as_constraint(self.constraint)
        object.__setattr__(self, "max_tokens", as_max_tokens(self.max_tokens))
        object.__setattr__(self, "stop", as_stops(self.stop))


CALL_OPTIONS = frozenset(f.name for f in fields(CallOptions))
"""Names of the options of a call."""

_SAMPLING = frozenset(f.name for f in fields(SamplingOptions))
OPTIONS = CALL_OPTIONS | _SAMPLING | {"spec"}
"""Names of all options of a generation."""


def refuse_options(given: Iterable[str], known: Set[str] = OPTIONS) -> None:
    """Refuse names that are no option of a generation.

    Raises:
        UnknownOptionError: the first one that is not `known`, with the nearest name that is.
    """
    for name in given:
        if name not in known:
            raise UnknownOptionError(name=str(name), known=known)


class Voice:
    """What all generations of a model share: its vocabulary's texts and ends, and the default seed.

    Args:
        model: fully loaded.
        seed: of generations that name none, None to draw one each time.
    """

    def __init__(self, model: Model, seed: int | None = None) -> None:
        vocab = model.vocab
        self.model = model
        self.seed = seed
        self.n_vocab = vocab.n_tokens
        self.eog = frozenset(vocab.eog_tokens)
        self.pieces = Pieces(vocab.token_to_piece if vocab.has_text else None)

    def options(self, given: dict[str, Any]) -> tuple[CallOptions, SamplingOptions]:
        """Keywords sorted into options of the call and of sampling.

        Raises:
            UnknownOptionError: a name that neither knows, with the nearest one.
            InvalidValueError: a value that cannot be.
        """
        refuse_options(given)
        call = CallOptions(**{name: value for name, value in given.items() if name in CALL_OPTIONS})
        sampling = {name: value for name, value in given.items() if name in _SAMPLING}
        return call, SamplingOptions(**{"seed": self.seed} | sampling)


class Generation:
    """A generation over a decoder of its own choice.

    `request` is what the decoder begins with; after each of its rounds `add` takes the verdict's tokens, `take` gives
    the text that may be shown, and after the last one `complete` gives the result.

    Args:
        voice: of the model.
        prompt: text or token ids.
        call: what was asked for.
        sampling: how tokens are chosen.
        drafting: who drafts.
        reuse: go on from what memory holds.
        halt: ends it from outside; its own if not given.
        follows: others may draft later (`draft_with`) what a GBNF grammar forces.

    Raises:
        PyspecError: a prompt or an option that this model cannot take; nothing happened.
    """

    def __init__(
        self,
        voice: Voice,
        prompt: str | Sequence[int],
        call: CallOptions,
        sampling: SamplingOptions,
        drafting: Drafting,
        *,
        reuse: bool = False,
        halt: Halt | None = None,
        follows: bool = False,
    ) -> None:
        self._start = perf_counter()
        self.halt = Halt() if halt is None else halt
        self.halt.limit(call.timeout_s)
        self._sampler, self._sampling = Sampler(voice.model, sampling), sampling
        self._drafting = drafting
        tokens = prompt_tokens(voice.model.vocab, prompt)
        echo = prompt_text(voice.model.vocab, prompt) if call.echo else ""
        self.text = TextStream(voice.pieces, as_stops(call.stop), echo=echo)
        self._recorder = None if call.logprobs is None else LogprobRecorder(call.logprobs, voice.pieces)
        self.tokens: list[int] = []
        self._is_refused = False  # `on_progress` said that it is enough
        ends = frozenset(tokens_in_range(call.stop_tokens, voice.n_vocab, name="stop_tokens").tolist())
        ends |= frozenset() if call.ignore_eos else voice.eog
        self._matcher = matcher_of(call.constraint, sampling, voice.model, ends=ends)
        self._follower = None
        if follows or any(isinstance(member, Grammar) for member in drafting.members):
            self._follower = follower_of(self._sampler, voice.model, sampling)
        self.request = Request(
            prompt=tokens,
            sampler=self._chooser(drafting),
            drafting=drafting,
            max_tokens=call.max_tokens,
            end_tokens=ends,
            emit=self._emit,
            reuse=reuse,
            takes_back=bool(call.stop),
            n_keep=call.n_keep,
            halt=self.halt,
            on_progress=None if call.on_progress is None else partial(self._tell_progress, call.on_progress),
            observe_row=self._recorder,
        )

    @property
    def is_constrained(self) -> bool:
        """Whether a grammar or a constraint says what the text must look like."""
        return self._matcher is not None or self._sampling.grammar is not None

    def draft_with(self, drafting: Drafting) -> None:
        """Before the generation begins: let others draft than was said at construction.

        Raises:
            UnsupportedError: drafts that this sampling cannot verify.
        """
        self._drafting = drafting
        self.request = replace(self.request, drafting=drafting, sampler=self._chooser(drafting))

    def _chooser(self, drafting: Drafting) -> Chooser:
        return constrained(self._sampler, self._matcher, self._follower, drafting, self._sampling)

    def _emit(self, token: int) -> str | None:
        """`token` becomes part of the text, unless the prompt was cancelled at its last report; a finish reason."""
        if self._is_refused:
            return "cancelled"
        may_not_go_on = self.text.push(token) or (self._matcher is not None and self._matcher.is_finished)
        return "stop" if may_not_go_on else None

    def add(self, tokens: Sequence[int], decoder: Decoder) -> None:
        """A round of the decoder gave `tokens`."""
        self.tokens += tokens
        if decoder.timings.prompt_s == 0.0:
            decoder.timings.prompt_s = perf_counter() - self._start

    def take(self) -> str:
        """Text that became showable since the last call."""
        return self.text.take()

    def complete(self, decoder: Decoder, *, rollback_reason: str) -> Completion:
        """The result; the decoder has come to its end. What text was held back can be taken now."""
        self.text.finish()
        assert decoder.finish is not None, "a generation that is over has a reason"
        stats = decoder.stats
        if self._is_refused:  # what the last decode of the prompt gave is nobody's
            self.tokens, stats.n_generated, decoder.timings.n_generated = [], 0, 0
        stats.rollback_reason = rollback_reason
        decoder.timings.generate_s = perf_counter() - self._start - decoder.timings.prompt_s
        tell_silence(self._drafting.speculator, stats)
        prompt = self.request.prompt.tolist()
        return completed(
            self.text,
            self.tokens,
            "cancelled" if self._is_refused else decoder.finish,
            prompt=prompt,
            seed=self._sampler.seed,
            stats=stats,
            logprobs=None if self._recorder is None else self._recorder.found,
        )

    def never_began(self, finish: str) -> Completion:
        """The result of a generation that was ended before its first decode."""
        self.text.finish()
        prompt = self.request.prompt.tolist()
        return completed(
            self.text,
            [],
            finish,
            prompt=prompt,
            seed=self._sampler.seed,
            stats=Stats(n_prompt=len(prompt)),
            logprobs=None if self._recorder is None else self._recorder.found,
        )

    def _tell_progress(self, on_progress: Callable[[int, int], object], n_done: int, n_total: int) -> None:
        if on_progress(n_done, n_total) is False:
            self._is_refused = True
            self.halt.cancel()
