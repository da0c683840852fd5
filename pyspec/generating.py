"""Generating with one context, a call at a time: whole, piece by piece, several of one prompt, for asyncio.

Owns the calls' options as users read them, and that one generation is at work at a time. Leaves how model and context
are had to `pyspec.llm`, a generation's text to `pyspec.generation` and its rounds to `pyspec.decoder`.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspec.arguments import check_call, refuse_fork
from pyspec.completion import Completion
from pyspec.config import SamplingOptions
from pyspec.constraint import Constraint
from pyspec.decoder import Decoder
from pyspec.errors import BusyError, ClosedError
from pyspec.generation import CallOptions, Generation, Voice
from pyspec.halt import AtWork, Halt
from pyspec.many import generate_many
from pyspec.speculator_pool import SpeculatorPool
from pyspec.speculators import Spec, Speculator
from pyspec.streams import drained

__all__ = ["DEFAULT", "Generating"]

DEFAULT: Any = "(the object's default)"


class Generating:
    """What `Llama` generates with; it makes the attributes, and owns their life."""

    rollback_reason: str
    _exact: bool
    _closed: bool
    _pid: int
    _lock: threading.Lock
    _at_work: AtWork
    _voice: Voice
    _decoder: Decoder
    _speculators: SpeculatorPool
    _spec: Speculator | None

    # ------------------------------------------------------------- generation
    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int | None = 256,
        stop: str | Sequence[str] | None = None,
        stop_tokens: Sequence[int] = (),
        ignore_eos: bool = False,
        spec: Spec | Sequence[Spec] = DEFAULT,
        reuse: bool = False,
        n_keep: int | None = None,
        constraint: Constraint | None = None,
        logprobs: int | None = None,
        echo: bool = False,
        timeout_s: float | None = None,
        on_text: Callable[[str], object] | None = None,
        on_progress: Callable[[int, int], object] | None = None,
        **sampling: Any,
    ) -> Completion:
        """Generate after `prompt`.

        Args:
            prompt: text, or token ids (the only way for a model without a text vocabulary).
            max_tokens: most tokens to generate, None for as many as the context holds.
            stop: texts that end the generation and are not part of it.
            stop_tokens: token ids that end it, beside the model's own.
            ignore_eos: generate on after the model's own end tokens.
            spec: a speculator for this call, as in the constructor.
            reuse: go on from what memory holds of the prompt (`pyspec.Session`); not with `exact=True`.
            n_keep: in a full context drop the older half of the tokens behind the first `n_keep`, and go on; only
                memory that can move the others up (attention). None ends the generation there.
            constraint: what the text must look like: `JsonSchema(...)`, `Regex(...)` and others of `pyspec.constraint`;
                a GBNF grammar goes into `grammar=`.
            logprobs: keep log-probabilities of the tokens, and of this many of the likeliest beside each (0 for none):
                the target's, before any sampling option; `Completion.logprobs`.
            echo: begin the text with the prompt's.
            timeout_s: seconds from the call on, after which it returns what it has, with the finish reason "timeout".
            on_text: called with each new piece of text.
            on_progress: called with the prompt's tokens in memory and in all, after each decode of them; returning
                False cancels.
            sampling: fields of `pyspec.config.SamplingOptions`, e.g. `temperature=0.8, top_p=0.9, seed=1`.

        Returns:
            The completion.

        Raises:
            InvalidValueError, UnknownOptionError, TokenRangeError: an argument; nothing happened.
            ContextFullError: the prompt is longer than the context.
            UnsupportedError: `n_keep` on memory that cannot.
            BusyError: another thread is generating with this object.
            KeyboardInterrupt: Ctrl-C; the object stays usable.
        """
        check_call(on_text=on_text)
        options = sampling | {
            "max_tokens": max_tokens,
            "stop": stop,
            "stop_tokens": stop_tokens,
            "ignore_eos": ignore_eos,
            "reuse": reuse,
            "n_keep": n_keep,
            "constraint": constraint,
            "logprobs": logprobs,
            "echo": echo,
            "timeout_s": timeout_s,
            "on_progress": on_progress,
        }
        return drained(self._stream(prompt, spec, options), on_text)

    def stream(
        self, prompt: str | Sequence[int], *, spec: Spec | Sequence[Spec] = DEFAULT, **options: Any
    ) -> Generator[str | Completion, None, Completion]:
        """As `generate`, piece by piece: texts as they come, and the `Completion` as the last item.

        The same completion is the generator's return value. Options are those of `generate`, but for `on_text`; they
        are checked at the first `next`. Closing the generator ends the generation.
        """
        return (yield from self._stream_to_completion(prompt, {"spec": spec} | options, Halt()))

    def generate_many(
        self,
        prompt: str | Sequence[int],
        n: int,
        *,
        best_of: int | None = None,
        spec: Spec | Sequence[Spec] = DEFAULT,
        **options: Any,
    ) -> list[Completion]:
        """`n` completions of one prompt, which is decoded once (unless with `exact=True`).

        Each is what `generate` gives with its seed: the given one (or a drawn one), that plus 1, plus 2 and so on. The
        prompt's last token is decoded again for each, alone, so logits may differ from those of the single call in the
        last bits, as between widths of two classes (`pyspec.widths`).

        With `best_of` so many are made, and those with the largest mean log-probability are returned, the best first.
        `options` are those of `generate`, but for `on_text`; `timeout_s` is for all together.

        Raises:
            As `generate`; then there is no completion.
        """
        return generate_many(self, prompt, spec, n=n, best_of=best_of, options=options)

    def astream(self, prompt: str | Sequence[int], **options: Any) -> AsyncGenerator[str | Completion, None]:
        """As `stream`, for `async for`; `on_progress` is called in the thread that generates.

        Cancelling the task or closing the generator breaks the generation off, and the object can be used again. A
        second one meanwhile raises `BusyError`: `pyspec.Engine` is for many at once.
        """
        from pyspec.asynchronous import astream  # imports asyncio, a tenth of the package's import

        return astream(self, lambda halt: self._stream_to_completion(prompt, options, halt))

    async def agenerate(
        self, prompt: str | Sequence[int], *, on_text: Callable[[str], object] | None = None, **options: Any
    ) -> Completion:
        """As `generate`, without blocking the event loop; see `astream`. `on_text` is called in the loop's thread."""
        from pyspec.asynchronous import adrained

        return await adrained(self.astream(prompt, **options), on_text)

    def cancel(self) -> None:
        """End the generation at work, from any thread: it returns what it has, with the finish reason "cancelled".

        It ends before its next decode. Nothing happens without a generation.
        """
        self._at_work.cancel()

    def abort(self) -> None:
        """Break off the generation at work, from any thread and inside a decode; it raises `AbortedError` there.

        Nothing happens without a generation, or to one whose last decode is over.
        """
        self._at_work.abort()

    # ------------------------------------------------------------- inside
    def _stream_to_completion(
        self, prompt: str | Sequence[int], options: dict[str, Any], halt: Halt
    ) -> Generator[str | Completion, None, Completion]:
        spec = options.pop("spec", DEFAULT)
        completion = yield from self._stream(prompt, spec, options, halt)
        yield completion
        return completion

    def _stream(
        self,
        prompt: str | Sequence[int],
        spec: Spec | Sequence[Spec],
        options: dict[str, Any],
        halt: Halt | None = None,
    ) -> Generator[str, None, Completion]:
        halt = Halt() if halt is None else halt
        with self._exclusive(), self._at_work.on(halt):
            call, sampling = self._voice.options(options)
            return (yield from self._run(prompt, spec, call, sampling, halt))

    def _run(
        self,
        prompt: str | Sequence[int],
        spec: Spec | Sequence[Spec],
        call: CallOptions,
        sampling: SamplingOptions,
        halt: Halt,
    ) -> Generator[str, None, Completion]:
        grammar = call.constraint is not None or sampling.grammar is not None
        drafting = self._speculators.drafting(self._spec if spec is DEFAULT else spec, grammar=grammar)
        reuse = call.reuse and not self._exact
        generation = Generation(self._voice, prompt, call, sampling, drafting, reuse=reuse, halt=halt)
        decoder = self._decoder
        decoder.begin(generation.request)
        if piece := generation.take():
            yield piece
        while decoder.finish is None:
            generation.add(decoder.step().tokens, decoder)
            if piece := generation.take():
                yield piece
        completion = generation.complete(decoder, rollback_reason=self.rollback_reason)
        if piece := generation.take():
            yield piece
        return completion

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(what="Llama")
        refuse_fork(self._pid)

    @contextmanager
    def _exclusive(self, *, check: bool = True) -> Iterator[None]:
        if check:
            self._check_open()
        if not self._lock.acquire(blocking=False):
            raise BusyError(what="Llama")
        try:
            yield
        finally:
            self._lock.release()
