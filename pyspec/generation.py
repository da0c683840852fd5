"""One generation: what was asked for, the text that comes of it, and its result.

Owns the options of a call and everything that follows from them but for the tokens: sampler, ends, text, completion.
Leaves the rounds to `pyspec.decoder`; a `Llama` runs one generation at a time, an `Engine` many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from time import perf_counter
from typing import Any

from pyspec._core import Model, Sampler
from pyspec.arguments import as_max_tokens, as_stops, check_call, prompt_tokens, tokens_in_range
from pyspec.completion import Completion, completed
from pyspec.config import SamplingOptions
from pyspec.decoder import Decoder, Request
from pyspec.drafting import Drafting
from pyspec.errors import UnknownOptionError
from pyspec.residual import with_residual
from pyspec.speculator_pool import tell_silence
from pyspec.text import Pieces, TextStream

__all__ = ["CALL_OPTIONS", "CallOptions", "Generation", "Voice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """What a generation is asked for, beside its prompt, its speculator and its sampling.

    Attributes:
        max_tokens: most tokens to generate, None for as many as the context holds.
        stop: texts that end the generation and are not part of it.
        stop_tokens: token ids that end it, beside the model's own.
        ignore_eos: generate on after the model's own end tokens.
        reuse: go on from what memory holds of the prompt.

    Raises:
        InvalidValueError: a value that cannot be.
    """

    max_tokens: int | None = 256
    stop: str | Sequence[str] | None = None
    stop_tokens: Sequence[int] = ()
    ignore_eos: bool = False
    reuse: bool = False

    def __post_init__(self) -> None:
        check_call(ignore_eos=self.ignore_eos, reuse=self.reuse)
        object.__setattr__(self, "max_tokens", as_max_tokens(self.max_tokens))
        object.__setattr__(self, "stop", as_stops(self.stop))


CALL_OPTIONS = frozenset(f.name for f in fields(CallOptions))
"""Names of the options of a call."""

_SAMPLING = frozenset(f.name for f in fields(SamplingOptions))


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
        for name in given:
            if name not in CALL_OPTIONS and name not in _SAMPLING:
                raise UnknownOptionError(name=name, known=CALL_OPTIONS | _SAMPLING | {"spec"})
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
    ) -> None:
        self._start = perf_counter()
        self._sampler = Sampler(voice.model, sampling)
        self._drafting = drafting
        self.text = TextStream(voice.pieces, as_stops(call.stop))
        self.tokens: list[int] = []
        ends = frozenset(tokens_in_range(call.stop_tokens, voice.n_vocab, name="stop_tokens").tolist())
        self.request = Request(
            prompt=prompt_tokens(voice.model.vocab, prompt),
            sampler=with_residual(self._sampler, drafting, sampling),
            drafting=drafting,
            max_tokens=call.max_tokens,
            end_tokens=ends if call.ignore_eos else voice.eog | ends,
            emit=lambda token: "stop" if self.text.push(token) else None,
            reuse=reuse,
        )

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
        stats.rollback_reason = rollback_reason
        decoder.timings.generate_s = perf_counter() - self._start - decoder.timings.prompt_s
        tell_silence(self._drafting.speculator, stats)
        prompt = self.request.prompt.tolist()
        return completed(self.text, self.tokens, decoder.finish, prompt=prompt, seed=self._sampler.seed, stats=stats)
