"""The facade: a GGUF model that generates, speculation included.

Owns the assembly of model, context, rollback, speculator and decoder, their life, and the vocabulary's methods.
Leaves the methods that generate to `pyspec.generating`, and chatting to `pyspec.chat`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Sized
from os import PathLike
from typing import Any, Literal

from pyspec import models
from pyspec._core import Model, set_log_level
from pyspec.arguments import (
    as_budget,
    check_call,
    check_object,
    drafts,
    refuse_one,
    refuse_own,
    refuse_unknown,
    text_tokens,
)
from pyspec.assembly import assemble
from pyspec.budget import BudgetOptions, CostModel
from pyspec.chat import ChatCompletion, chat, chat_stream
from pyspec.chat.template import ChatTemplate
from pyspec.checkpoints import CheckpointOptions, Checkpoints
from pyspec.completion import Completion
from pyspec.config import SamplingOptions
from pyspec.decoder import Decoder, DecoderOptions
from pyspec.engine import Engine
from pyspec.errors import InvalidValueError
from pyspec.flash_attention import flash_attention_text
from pyspec.generating import DEFAULT, Generating
from pyspec.generation import Voice
from pyspec.halt import AtWork
from pyspec.progress import ProgressBar
from pyspec.rollback import check_name
from pyspec.speculator_pool import SpeculatorPool
from pyspec.speculators import Spec, as_tokens
from pyspec.speculators.draft_model import DraftModelOptions
from pyspec.stats import Stats

__all__ = ["Llama"]

_log = logging.getLogger("pyspec")


_SHARED = frozenset(
    "n_batch n_ubatch n_threads n_gpu_layers flash_attn seed spec draft_model draft_options rollback draft_rollback "
    "max_tries max_pending n_draft budget checkpoint_budget_bytes context".split()
)
"""Parameters that an `Engine` over the same model has, too."""
_OF_MAP = {"path": "the engine works with this object's model", "prompt": "the prompts are the first argument"}


class Llama(Generating):
    """A model with one context, ready to generate.

    Args:
        path: a GGUF file (the first of a split model), a name that `pyspec models` lists, or a loaded `Model`, which
            several objects may share and `close` leaves open.
        n_ctx: positions of the context, 0 for what the model was trained with; llama.cpp rounds up to multiples of 256.
        n_batch, n_ubatch: most tokens in one decode, and in one graph.
        n_threads: CPU threads, 0 for the physical cores.
        n_gpu_layers: layers on the GPU, negative for all.
        n_seq_max: sequences the user can use; a spare one for rollback comes on top.
        n_rs_seq: states kept for `rollback="snapshot"`, where the architecture has them: to 32, LFM2 to 12.
        flash_attn: on, off, or None: off on a CPU up to some product of `n_ctx`, `n_ubatch` and heads, otherwise as
            llama.cpp decides (docs/attention.md); the attribute `flash_attn` has what was chosen.
        seed: default seed of generations, None draws one each time.
        spec: default speculator: a name ("auto", "suffix", "ngram-mod", "ngram-map-k", "draft-model", "draft:PATH",
            "none" ..., most with options as in "ngram-mod:n_match=12"), a list of names, an object, a class or
            function that makes one, or None. Not given: "auto" (suffix and n-gram drafts, and the draft model where
            there is one).
        draft_model: path, name or loaded `Model` for the speculator "draft-model".
        draft_options: `DraftModelOptions`, or its fields as a dict.
        rollback: "auto", "trim", "snapshot", "shadow", "snapshot+shadow", "fork", "checkpoint-host" or
            "checkpoint-device". "auto" measures those that the memory can do, once for a model file and its settings.
        draft_rollback: the same for the draft model's own context.
        replay, max_tries, max_pending, n_draft: see `pyspec.decoder.DecoderOptions`.
        budget: how long drafts are: "measured" for the most tokens a second, "counts" for the same by assumed costs, so
            that a run can be repeated, "off" for what the speculators propose, or `pyspec.budget.BudgetOptions`. Not
            given: "measured", or "off" with an `n_draft`. "measured" times decodes of several widths, once for a model
            file and its settings, in under a second.
        checkpoint_budget_bytes: most bytes of one checkpoint, 0 for no limit.
        ctx_checkpoints: states kept for `reuse` on memory that cannot be cut back, of the draft model's as well.
        ctx_checkpoint_bytes: most bytes of all of them, of either memory, 0 for no limit.
        ctx_checkpoint_spacing: tokens of a text between two of them; more stand where turns begin and prompts end.
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
        spec: Spec | Sequence[Spec] = DEFAULT,
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
        ctx_checkpoint_bytes: int = 0,
        ctx_checkpoint_spacing: int = 1024,
        exact: bool = False,
        verbose: bool = False,
        progress: Callable[[float], bool | None] | None = None,
        context: dict[str, Any] | None = None,
        model: dict[str, Any] | None = None,
        **unknown: object,
    ) -> None:
        given = dict(locals())
        refuse_unknown(unknown, Llama.__init__)
        check_object(given)
        set_log_level(logging.INFO if verbose else logging.WARNING)
        rollback, draft_rollback = check_name(rollback), check_name(draft_rollback)
        SamplingOptions(seed=seed)
        options = DecoderOptions(replay=replay, max_tries=max_tries, max_pending=max_pending, n_draft=n_draft)
        self._settings = {name: given[name] for name in _SHARED if given[name] is not DEFAULT}
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
        allowance = as_budget(budget, n_draft)
        measures = allowance is not None and allowance.measured and drafts(spec)
        assembly = assemble(
            self.model,
            options=sizes | special | (context or {}),
            n_seq_max=n_seq_max,
            rollback=rollback,
            checkpoint_budget_bytes=checkpoint_budget_bytes,
            exact=exact,
            placement=(n_gpu_layers, model),
            width_max=allowance.width_max if allowance is not None and measures else 0,
        )
        self.context, self.capabilities = assembly.context, assembly.capabilities
        self.rollback_reason, self.rollback_costs = assembly.reason, assembly.costs
        self.width_costs, self.flash_attn = assembly.width_costs, assembly.flash_attn
        self._exact = exact
        kept = CheckpointOptions(n_max=ctx_checkpoints, max_bytes=ctx_checkpoint_bytes, spacing=ctx_checkpoint_spacing)
        checkpoints = Checkpoints(assembly.memory, assembly.capabilities, kept)
        self._at_work = AtWork(self.context)
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
            budget=allowance,
            keeps_accepted=assembly.memory.rollback.keeps_accepted,
            cost=CostModel(allowance, assembly.width_costs) if allowance is not None else None,
            checkpoints=kept,
        )
        if spec is DEFAULT:
            spec = "auto"
        self._spec = self._speculators.get(spec)
        if self._spec is not None and assembly.memory.width_max < 2:
            _log.warning("no drafts: n_batch=%d and n_ubatch=%d leave room for one token a decode", n_batch, n_ubatch)
        if draft_model is not None and not self._speculators.n_draft_models:
            _log.warning("draft_model was given but spec=%r does not use it", spec)
        _log.info(
            "%s: %s memory, flash attention %s, rollback %s (%s), speculator %s",
            self.model.description,
            self.capabilities.kind,
            flash_attention_text(self.flash_attn),
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
            InvalidValueError: no text, or a flag that is none.
        """
        self._check_open()
        vocab = self.model.vocab
        return text_tokens(vocab, text, add_special=add_special, parse_special=parse_special).tolist()  # type: ignore[no-any-return]

    def detokenize(self, tokens: Sequence[int], *, special: bool = False) -> str:
        """Text of token ids; malformed UTF-8 becomes U+FFFD.

        Raises:
            VocabularyMissingError: the model has no text vocabulary.
            TokenRangeError: an id outside the vocabulary.
            InvalidValueError: no token ids, or a flag that is none.
        """
        self._check_open()
        check_call(special=special)
        return self.model.vocab.detokenize(as_tokens(tokens), unparse_special=special).decode("utf-8", "replace")

    # ------------------------------------------------------------- chat
    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template: str | ChatTemplate | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
        on_text: Callable[[str], object] | None = None,
        **options: Any,
    ) -> ChatCompletion:
        """Answer a conversation, by the model's own chat template (`docs/chat.md`).

        What memory holds of earlier turns is reused, unless with `reuse=False`.

        Args:
            messages: dicts with "role" and "content" (a text, or a list of text parts), possibly "tool_calls".
            tools: definitions as OpenAI's API has them.
            template: Jinja text, a `pyspec.ChatTemplate`, or the name of one of the model's templates.
            add_generation_prompt: end the prompt where the assistant's answer begins.
            variables: further ones that the template reads, such as `{"enable_thinking": False}`.
            on_text: called with each new piece of text.
            options: as `generate`.

        Returns:
            The answer; its `message` can be appended to the messages.

        Raises:
            ChatTemplateError: no template, or one that refuses the messages, fails, or reaches a limit.
            InvalidValueError, UnsupportedError: a message that cannot be, or that has images.
            As `generate`.
        """
        return chat(
            self,
            messages,
            tools=tools,
            template=template,
            add_generation_prompt=add_generation_prompt,
            variables=variables,
            on_text=on_text,
            **options,
        )

    def chat_stream(
        self, messages: Sequence[Mapping[str, Any]], **options: Any
    ) -> Generator[str | ChatCompletion, None, ChatCompletion]:
        """As `chat`, piece by piece: texts as they come, and the `ChatCompletion` as the last item."""
        return chat_stream(self, messages, **options)

    # ------------------------------------------------------------- many
    def map(
        self,
        prompts: Iterable[str | Sequence[int]],
        *,
        n_parallel: int = 8,
        n_ctx: int | None = None,
        progress: bool = True,
        engine: dict[str, Any] | None = None,
        **options: Any,
    ) -> Iterator[Completion]:
        """Completions of many prompts, in their order, several at work at once (`pyspec.Engine`).

        The engine shares this object's model and settings, but has a context of its own, as long as the iterator lives.

        Args:
            prompts: texts or token ids, any number.
            n_parallel: at work at once.
            n_ctx: positions of each, prompt and generated tokens together; None for 4096, or what this object has.
            progress: show a bar on stderr, where that is a terminal or a notebook's.
            engine: further options of `Engine`.
            options: as `Engine.map`: those of `generate` but for `on_text` and `reuse`, and `return_exceptions`.

        Raises:
            As `Engine` and `Engine.map`, at the first `next`; an error of one prompt names it (`prompts[6]: ...`) and
            comes after the completions before it.
        """
        self._check_open()
        if not isinstance(progress, bool):
            raise InvalidValueError(name="progress", value=progress, allowed="True or False")
        check_call(engine=engine, on_done=options.get("on_done"))
        refuse_one(prompts)
        refuse_own(engine or {}, _OF_MAP | {"n_parallel": "it is a parameter of map"})
        refuse_own(options, _OF_MAP)
        settings = self._settings | {"n_ctx": n_ctx or min(self.n_ctx, 4096)} | (engine or {})
        if check_name(settings["rollback"]).startswith("snapshot"):
            settings["rollback"] = "auto"
        n_all = len(prompts) if progress and isinstance(prompts, Sized) else 0
        with Engine(self.model, n_parallel=n_parallel, **settings) as made, ProgressBar("generating") as bar:
            for n_done, completion in enumerate(made.map(prompts, **options), start=1):
                if n_all:
                    bar(n_done / n_all)
                yield completion

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
