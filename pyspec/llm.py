"""The facade: a GGUF model that generates, speculation included.

Owns the assembly of model, context, rollback, speculator and decoder, and that one generation is at work at a time.
Leaves a generation's text to `pyspec.generation` and its rounds to `pyspec.decoder`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from os import PathLike
from typing import Any, Literal

from pyspec import models
from pyspec._core import Model, set_log_level
from pyspec.arguments import as_budget, check_call, check_object, refuse_fork, refuse_unknown, text_tokens
from pyspec.assembly import assemble
from pyspec.budget import BudgetOptions
from pyspec.checkpoints import Checkpoints
from pyspec.completion import Completion
from pyspec.config import SamplingOptions
from pyspec.decoder import Decoder, DecoderOptions
from pyspec.errors import BusyError, ClosedError, InvalidValueError
from pyspec.generation import Generation, Voice
from pyspec.rollback import check_name
from pyspec.speculator_pool import SpeculatorPool
from pyspec.speculators import Spec, as_tokens
from pyspec.speculators.draft_model import DraftModelOptions
from pyspec.stats import Stats

__all__ = ["Llama"]

_log = logging.getLogger("pyspec")
_DEFAULT: Any = "(the object's default)"


class Llama:
    """A model with one context, ready to generate.

    Args:
        path: a GGUF file (the first of a split model), a name that `pyspec models` lists, or a loaded `Model`, which
            several objects may share and `close` leaves open.
        n_ctx: positions of the context, 0 for what the model was trained with.
        n_batch, n_ubatch: most tokens in one decode, and in one graph.
        n_threads: CPU threads, 0 for the physical cores.
        n_gpu_layers: layers on the GPU, negative for all.
        n_seq_max: sequences the user can use; a spare one for rollback comes on top.
        n_rs_seq: states kept for `rollback="snapshot"`, where the architecture has them: to 32, LFM2 to 12.
        flash_attn: on, off, or None to let llama.cpp decide.
        seed: default seed of generations, None draws one each time.
        spec: default speculator: a name ("auto", "suffix", "ngram-mod", "ngram-map-k", "draft-model", "draft:PATH",
            "none" ..., most with options as in "ngram-mod:n_match=12"), a list of names, an object, or None. Not given:
            "auto" (suffix and n-gram drafts, and the draft model where there is one).
        draft_model: path, name or loaded `Model` for the speculator "draft-model".
        draft_options: `DraftModelOptions`, or its fields as a dict.
        rollback: "auto", "trim", "snapshot", "shadow", "snapshot+shadow", "fork", "checkpoint-host" or
            "checkpoint-device". "auto" measures those that the memory can do, once for a model file and its settings.
        draft_rollback: the same for the draft model's own context.
        replay, max_tries, max_pending, n_draft: see `pyspec.decoder.DecoderOptions`.
        budget: how long drafts are: "measured" for the most tokens a second, "counts" for the same by assumed costs, so
            that a run can be repeated, "off" for what the speculators propose, or `pyspec.budget.BudgetOptions`. Not
            given: "measured", or "off" with an `n_draft`.
        checkpoint_budget_bytes: most bytes of one checkpoint, 0 for no limit.
        ctx_checkpoints: states kept for `reuse` on memory that cannot be cut back.
        exact: keep plain and speculative logits equal to the bit (`pyspec.exact`); measures widths first (seconds).
        verbose: send llama.cpp's messages to the logger `pyspec.llama` from INFO on.
        progress: called with 0.0 to 1.0 while the model loads; returning False cancels.
        context: further options of `pyspec._core.Context` by name, e.g. `type_k="q8_0"`.
        model: further options of `pyspec._core.Model` by name, e.g. `use_mlock=True`.

    Raises:
        PyspecError: the model or context cannot be had as asked, see `pyspec.errors`.
    """

    def __init__(
        self,
        path: str | PathLike[str] | Model,
        *,
        n_ctx: int = 0,
        n_batch: int = 2048,
        n_ubatch: int = 512,
        n_threads: int = 0,
        n_gpu_layers: int = -1,
        n_seq_max: int = 1,
        n_rs_seq: int = 0,
        flash_attn: bool | None = None,
        seed: int | None = None,
        spec: Spec | Sequence[Spec] = _DEFAULT,
        draft_model: str | PathLike[str] | Model | None = None,
        draft_options: DraftModelOptions | dict[str, Any] | None = None,
        rollback: str = "auto",
        draft_rollback: str = "auto",
        replay: Literal["fused", "immediate"] = "fused",
        max_tries: int = 2,
        max_pending: int = 16,
        n_draft: int | None = None,
        budget: BudgetOptions | Literal["measured", "counts", "off"] | None = None,
        checkpoint_budget_bytes: int = 0,
        ctx_checkpoints: int = 16,
        exact: bool = False,
        verbose: bool = False,
        progress: Callable[[float], bool | None] | None = None,
        context: dict[str, Any] | None = None,
        model: dict[str, Any] | None = None,
        **unknown: object,
    ) -> None:
        refuse_unknown(unknown, Llama.__init__)
        check_object(locals())
        set_log_level(logging.INFO if verbose else logging.WARNING)
        rollback, draft_rollback = check_name(rollback), check_name(draft_rollback)
        SamplingOptions(seed=seed)
        options = DecoderOptions(replay=replay, max_tries=max_tries, max_pending=max_pending, n_draft=n_draft)
        self._lock = threading.Lock()
        self._closed, self._pid = False, os.getpid()
        self._owns_model = not isinstance(path, Model)
        if isinstance(path, Model):
            if model:
                raise InvalidValueError(name="model", value=model, allowed="left out with a loaded Model")
            self.model = path
        else:
            self.model = Model(models.resolve(path), n_gpu_layers=n_gpu_layers, progress=progress, **(model or {}))
        sizes: dict[str, Any] = {"n_batch": n_batch, "n_ubatch": n_ubatch, "flash_attn": flash_attn}
        sizes |= {"n_threads": n_threads, "n_threads_batch": n_threads}
        special = {"n_ctx": n_ctx, "n_rs_seq": n_rs_seq}
        if exact and flash_attn is None:
            special["flash_attn"] = True
        assembly = assemble(
            self.model,
            options=sizes | special | (context or {}),
            n_seq_max=n_seq_max,
            rollback=rollback,
            checkpoint_budget_bytes=checkpoint_budget_bytes,
            exact=exact,
            placement=(n_gpu_layers, model),
        )
        self.context, self.capabilities = assembly.context, assembly.capabilities
        self.rollback_reason, self.rollback_costs = assembly.reason, assembly.costs
        self._exact = exact
        checkpoints = Checkpoints(assembly.memory, assembly.capabilities, n_max=ctx_checkpoints)
        self._voice = Voice(self.model, seed)
        self._decoder = Decoder(assembly.memory, options, n_vocab=self._voice.n_vocab, checkpoints=checkpoints)
        self._speculators = SpeculatorPool(
            self.model,
            n_ctx=self.context.n_ctx_seq,
            draft_model=draft_model,
            draft_options=draft_options,
            rollback=draft_rollback,
            checkpoint_budget_bytes=checkpoint_budget_bytes,
            context=sizes,
            n_gpu_layers=n_gpu_layers,
            budget=as_budget(budget, n_draft),
            keeps_accepted=assembly.memory.rollback.keeps_accepted,
        )
        if spec is _DEFAULT:
            spec = "auto"
        self._spec = self._speculators.get(spec)
        if self._spec is not None and assembly.memory.width_max < 2:
            _log.warning("no drafts: n_batch=%d and n_ubatch=%d leave room for one token a decode", n_batch, n_ubatch)
        if draft_model is not None and not self._speculators.n_draft_models:
            _log.warning("draft_model was given but spec=%r does not use it", spec)
        _log.info(
            "%s: %s memory, rollback %s (%s), speculator %s",
            self.model.description,
            self.capabilities.kind,
            self.rollback,
            self.rollback_reason,
            self._spec.name if self._spec else "none",
        )

    # ------------------------------------------------------------- vocabulary
    @property
    def n_ctx(self) -> int:
        """Positions of one sequence."""
        return self.context.n_ctx_seq

    @property
    def n_vocab(self) -> int:
        """Number of token ids."""
        return self.model.vocab.n_tokens

    @property
    def rollback(self) -> str:
        """The rollback strategy in use."""
        return self._decoder.memory.rollback.name

    @property
    def stats(self) -> Stats:
        """Counts of the generation at work, or of the last one, also when it ended by an error or Ctrl-C."""
        return self._decoder.stats

    def tokenize(self, text: str | bytes, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Token ids of `text`.

        Raises:
            VocabularyMissingError: the model has no text vocabulary.
        """
        self._check_open()
        vocab = self.model.vocab
        return text_tokens(vocab, text, add_special=add_special, parse_special=parse_special).tolist()  # type: ignore[no-any-return]

    def detokenize(self, tokens: Sequence[int], *, special: bool = False) -> str:
        """Text of token ids; malformed UTF-8 becomes U+FFFD.

        Raises:
            VocabularyMissingError: the model has no text vocabulary.
            TokenRangeError: an id outside the vocabulary.
        """
        self._check_open()
        return self.model.vocab.detokenize(as_tokens(tokens), unparse_special=special).decode("utf-8", "replace")

    # ------------------------------------------------------------- generation
    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int | None = 256,
        stop: str | Sequence[str] | None = None,
        stop_tokens: Sequence[int] = (),
        ignore_eos: bool = False,
        spec: Spec | Sequence[Spec] = _DEFAULT,
        reuse: bool = False,
        on_text: Callable[[str], object] | None = None,
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
            on_text: called with each new piece of text.
            sampling: fields of `pyspec.config.SamplingOptions`, e.g. `temperature=0.8, top_p=0.9, seed=1`.

        Returns:
            The completion.

        Raises:
            InvalidValueError, UnknownOptionError, TokenRangeError: an argument; nothing happened.
            ContextFullError: the prompt is longer than the context.
            BusyError: another thread is generating with this object.
            KeyboardInterrupt: Ctrl-C; the object stays usable.
        """
        check_call(on_text=on_text)
        options = {"max_tokens": max_tokens, "stop": stop, "stop_tokens": stop_tokens, "ignore_eos": ignore_eos}
        # Closed at once when `on_text` raises: the traceback would keep a suspended generation, and its lock, alive.
        with closing(self._stream(prompt, spec, options | {"reuse": reuse} | sampling)) as call:
            while True:
                try:
                    piece = next(call)
                except StopIteration as end:
                    completion: Completion = end.value
                    return completion
                if on_text is not None:
                    on_text(piece)

    def stream(
        self, prompt: str | Sequence[int], *, spec: Spec | Sequence[Spec] = _DEFAULT, **options: Any
    ) -> Generator[str | Completion, None, Completion]:
        """As `generate`, piece by piece: texts as they come, and the `Completion` as the last item.

        The same completion is the generator's return value. Options are those of `generate`, but for `on_text`; they
        are checked at the first `next`. Closing the generator ends the generation.
        """
        completion = yield from self._stream(prompt, spec, options)
        yield completion
        return completion

    def abort(self) -> None:
        """Stop the generation at work, from any thread; it raises `AbortedError` there. Nothing without one."""
        if self._lock.locked():
            self.context.abort()

    # ------------------------------------------------------------- life
    def close(self) -> None:
        """Free the contexts and the model.

        Raises:
            BusyError: a generation is at work.
        """
        with self._exclusive(check=False):
            self._closed = True
            self._speculators.close()
            self.context.close()
            if self._owns_model:
                self.model.close()

    def __enter__(self) -> Llama:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a Llama cannot be copied or pickled; share its `model`: Llama(llm.model, ...)")

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.capabilities.kind}, rollback {self.rollback}"
        return f"<Llama {self.model.path!r} {state}>"

    # ------------------------------------------------------------- inside
    def _stream(
        self, prompt: str | Sequence[int], spec: Spec | Sequence[Spec], options: dict[str, Any]
    ) -> Generator[str, None, Completion]:
        with self._exclusive():
            call, sampling = self._voice.options(options)
            drafting = self._speculators.drafting(self._spec if spec is _DEFAULT else spec)
            reuse = call.reuse and not self._exact
            generation = Generation(self._voice, prompt, call, sampling, drafting, reuse=reuse)
            decoder = self._decoder
            decoder.begin(generation.request)
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
