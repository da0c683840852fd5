"""Many requests at once over one model: continuous batching with speculation.

Owns the assembly of sequences, decoders and speculators, the worker thread, and the ways to hand in a request. Leaves
what is decoded when to `pyspec.engine.scheduler`.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from os import PathLike
from typing import Any, Literal, overload

from pyspec import models
from pyspec._core import Model, set_log_level
from pyspec.arguments import (
    as_budget,
    check_call,
    check_object,
    drafts,
    refuse_fork,
    refuse_object,
    refuse_one,
    refuse_own,
    refuse_unknown,
)
from pyspec.budget import BudgetOptions, CostModel
from pyspec.checkpoints import CheckpointOptions, Checkpoints
from pyspec.completion import Completion
from pyspec.config import SamplingOptions
from pyspec.decoder import Decoder, DecoderOptions
from pyspec.drafting import Drafting
from pyspec.engine.batch_cost import BatchCost
from pyspec.engine.in_order import in_order
from pyspec.engine.scheduler import Scheduler
from pyspec.engine.sequences import Sequences
from pyspec.engine.slots import EngineStats, Job, Slot
from pyspec.engine.ticket import Ticket, refuse_own_thread
from pyspec.engine.worker import Worker
from pyspec.errors import ContextFullError, InvalidValueError
from pyspec.generation import CallOptions, Generation, Voice
from pyspec.speculator_pool import SpeculatorPool
from pyspec.speculators import Spec
from pyspec.speculators.draft_model import DraftModelOptions
from pyspec.speculators.registry import called

__all__ = ["Engine"]

_log = logging.getLogger("pyspec")
_DEFAULT: Any = "(the engine's default)"
_N_CTX = 4096
_OF_SUBMIT = {
    "reuse": "requests go on from any beginning that they share, unless with Engine(share_prefix=False)",
    "on_text": "iterate over the Ticket for pieces of text",
}


class Engine:
    """A model that works on many requests at once.

    `submit` hands one in, from any thread, and gives a `Ticket`: to wait for, to iterate over, to await, to cancel.
    `generate` and `agenerate` wait for one, `map` for many. Requests wait their turn in order; each has its own
    speculators, budget, sampler and random numbers. A request whose prompt begins like what some sequence holds begins
    there. Within the model's width classes (`pyspec doctor`) a request's text is the same alone and in company.

    Args:
        path: as of `Llama`; a `Model` may be shared with others and stays open.
        n_parallel: requests at work at once.
        n_ctx: positions of each request, prompt and generated tokens together; 0 for what the model was trained with.
            Not given: 4096, or less if the model was trained with less.
        n_cells: positions of all requests together, in one unified buffer; 0 for `n_parallel * n_ctx`. A request begins
            once there are as many as it may need.
        n_spare: requests that may have a spare sequence for rollback; None for all, where memory cannot be cut back.
            Each costs a recurrent state. The others save states in host memory.
        max_queue: most requests that wait.
        prefill_chunk: most prompt tokens decoded between two rounds of requests that generate.
        batch_width: most tokens in a decode, but for prompts. Kernels change at larger widths, and with them the last
            bits of logits (llama.cpp's flash attention on a CPU at 64).
        share_prefix: begin with what another request's memory holds of the prompt; otherwise with nothing.
        n_batch, n_ubatch, n_threads, n_gpu_layers, flash_attn, seed, draft_model, draft_options, draft_rollback,
            max_tries, max_pending, n_draft, budget, checkpoint_budget_bytes, ctx_checkpoints, verbose, progress,
            context, model: as of `Llama`, for each sequence. Replay is fused.
        spec: default speculator by name, list of names, or a function or class that makes one for each request.
        rollback: as of `Llama`, but for snapshots.

    Raises:
        PyspecError: the model or context cannot be had as asked, see `pyspec.errors`.
    """

    def __init__(
        self,
        path: str | PathLike[str] | Model,
        *,
        n_parallel: int = 8,
        n_ctx: int | None = None,
        n_cells: int = 0,
        n_spare: int | None = None,
        max_queue: int = 1024,
        prefill_chunk: int = 256,
        batch_width: int = 48,
        share_prefix: bool = True,
        n_batch: int = 2048,
        n_ubatch: int = 512,
        n_threads: int = 0,
        n_gpu_layers: int = -1,
        flash_attn: bool | None = None,
        seed: int | None = None,
        spec: Spec | Sequence[Spec] | Callable[[], Spec] = "auto",
        draft_model: str | PathLike[str] | Model | None = None,
        draft_options: DraftModelOptions | dict[str, Any] | None = None,
        rollback: str = "auto",
        draft_rollback: str = "auto",
        max_tries: int = 2,
        max_pending: int = 16,
        n_draft: int | None = None,
        budget: BudgetOptions | str | None = None,
        checkpoint_budget_bytes: int = 0,
        ctx_checkpoints: int = 4,
        verbose: bool = False,
        progress: Callable[[float], bool | None] | None = None,
        context: dict[str, Any] | None = None,
        model: dict[str, Any] | None = None,
        **unknown: object,
    ) -> None:
        refuse_unknown(unknown, Engine.__init__)
        check_object(locals())
        set_log_level(logging.INFO if verbose else logging.WARNING)
        SamplingOptions(seed=seed)
        options = DecoderOptions(max_tries=max_tries, max_pending=max_pending, n_draft=n_draft)
        allowance = as_budget(budget, n_draft)
        if allowance is not None:
            allowance = dataclasses.replace(allowance, width_max=max(2, min(128, batch_width)))
        if n_parallel > 1:
            refuse_object(spec)
        self._spec = spec
        self._pid, self._owns_model = os.getpid(), not isinstance(path, Model)
        if isinstance(path, Model):
            if model:
                raise InvalidValueError(name="model", value=model, allowed="left out with a loaded Model")
            self.model = path
        else:
            self.model = Model(models.resolve(path), n_gpu_layers=n_gpu_layers, progress=progress, **(model or {}))
        self.n_ctx = n_ctx or (self.model.n_ctx_train if n_ctx == 0 else min(_N_CTX, self.model.n_ctx_train or _N_CTX))
        sizes: dict[str, Any] = {"n_batch": n_batch, "n_ubatch": n_ubatch, "flash_attn": flash_attn}
        sizes |= {"n_threads": n_threads, "n_threads_batch": n_threads}
        self._sequences = Sequences(
            self.model,
            n_sequences=n_parallel,
            n_ctx=self.n_ctx,
            n_cells=n_cells,
            n_spare=n_spare,
            options=sizes | (context or {}),
            rollback=rollback,
            checkpoint_budget_bytes=checkpoint_budget_bytes,
            placement=(n_gpu_layers, model),
            width_max=allowance.width_max if allowance is not None and allowance.measured and drafts(spec) else 0,
        )
        self._draft_model: Model | None = None
        if draft_model is not None and not isinstance(draft_model, Model):
            self._draft_model = draft_model = Model(models.resolve(draft_model), n_gpu_layers=n_gpu_layers)
        self.max_queue, self._share = max_queue, share_prefix
        self._voice = Voice(self.model, seed)
        cost = CostModel(allowance or BudgetOptions(), self._sequences.width_costs)
        kept = CheckpointOptions(n_max=ctx_checkpoints)
        draft: dict[str, Any] = {
            "n_ctx": self.n_ctx,
            "draft_model": draft_model,
            "draft_options": draft_options,
            "rollback": draft_rollback,
            "checkpoint_budget_bytes": checkpoint_budget_bytes,
            "context": sizes,
            "n_gpu_layers": n_gpu_layers,
            "budget": allowance,
            "checkpoints": kept,
        }
        slots = [self._slot(i, options, kept, cost, draft) for i in range(n_parallel)]
        how: dict[str, Any] = {"prefill_chunk": prefill_chunk, "batch_width": batch_width, "share": share_prefix}
        self._worker = Worker(Scheduler(self._sequences, slots, cost=cost, **how))
        self._freeing = threading.Lock()
        self._thread = threading.Thread(target=self._worker.run, name="pyspec-engine", daemon=True)
        self._thread.start()
        weakref.finalize(self, self._worker.stop, drain=False)
        _log.info(
            "%s: %d requests at once, %s memory, rollback %s (%s)",
            self.model.description,
            n_parallel,
            self._sequences.capabilities.kind,
            slots[0].memory.rollback.name,
            slots[0].reason,
        )

    def _slot(self, i: int, options: DecoderOptions, kept: CheckpointOptions, cost: CostModel, draft: Any) -> Slot:
        sequences = self._sequences
        memory = sequences.memories[i]
        checkpoints = Checkpoints(memory, sequences.capabilities, kept)
        own = BatchCost(draft["budget"] or BudgetOptions(), cost, splits=sequences.splits)
        pool = SpeculatorPool(self.model, cost=own, keeps_accepted=memory.rollback.keeps_accepted, **draft)
        return Slot(
            decoder=Decoder(memory, options, n_vocab=self._voice.n_vocab, checkpoints=checkpoints),
            memory=memory,
            cost=own,
            speculators=pool,
            reason=sequences.reasons[i],
            has_spare=i < sequences.n_spare,
        )

    # ------------------------------------------------------------- requests
    @property
    def n_parallel(self) -> int:
        """Requests at work at once."""
        return len(self._sequences.memories)

    @property
    def rollback(self) -> str:
        """The rollback strategy of requests that have all they want."""
        return self._sequences.memories[0].rollback.name

    @property
    def flash_attn(self) -> bool | None:
        """As of `Llama`; in a unified buffer the positions of all requests count."""
        return self._sequences.flash_attn

    @property
    def stats(self) -> EngineStats:
        """Counts since the beginning; a copy."""
        return self._worker.stats()

    def submit(
        self,
        prompt: str | Sequence[int],
        *,
        spec: Spec | Sequence[Spec] | Callable[[], Spec] = _DEFAULT,
        **options: Any,
    ) -> Ticket:
        """Hand in a request.

        Args:
            prompt: text or token ids.
            spec: a speculator for this request, as in the constructor.
            options: those of `Llama.generate`, but for `on_text` and `reuse`.

        Raises:
            InvalidValueError, UnknownOptionError, TokenRangeError: an argument; nothing happened.
            ContextFullError: the prompt is longer than `n_ctx`, or than `n_cells`.
            QueueFullError: too many wait.
            ClosedError: the engine was closed.
        """
        return self._hand_in({"spec": spec} | options, prompt)

    def _hand_in(self, options: dict[str, Any], prompt: Any, *, wait: bool = False) -> Ticket:
        refuse_fork(self._pid)
        self._worker.refuse_closed()
        call, sampling = self._options(options)
        spec = options.get("spec", _DEFAULT)
        spec = called(self._spec if spec is _DEFAULT else spec)
        how: dict[str, Any] = {"reuse": self._share, "follows": drafts(spec)}
        generation = Generation(self._voice, prompt, call, sampling, Drafting(None), **how)
        n_prompt = len(generation.request.prompt)
        n_ctx = self._sequences.memories[0].n_ctx
        if n_prompt == 0:
            raise InvalidValueError(name="prompt", value=[], allowed="at least one token")
        if n_prompt > n_ctx:
            way_out = f"shorten the prompt or raise {'n_ctx' if n_ctx == self.n_ctx else 'n_cells'}"
            raise ContextFullError(n_past=0, n_new=n_prompt, n_ctx=n_ctx, way_out=way_out)
        n_new = n_ctx if call.max_tokens is None else call.max_tokens
        ticket = Ticket(generation, self, worker=self._thread)
        self._worker.add(Job(ticket=ticket, spec=spec, n_cells=min(n_ctx, n_prompt + n_new)), self.max_queue, wait=wait)
        return ticket

    def _options(self, options: dict[str, Any]) -> tuple[CallOptions, SamplingOptions]:
        refuse_own(options, _OF_SUBMIT)
        return self._voice.options({name: value for name, value in options.items() if name != "spec"})

    def generate(self, prompt: str | Sequence[int], **options: Any) -> Completion:
        """Hand in a request and wait for its completion; Ctrl-C cancels it.

        Raises: as `submit` and `Ticket.result`.
        """
        refuse_own_thread(self._thread, "generate")
        ticket = self.submit(prompt, **options)
        try:
            return ticket.result()
        except BaseException:
            ticket.cancel()
            raise

    async def agenerate(self, prompt: str | Sequence[int], **options: Any) -> Completion:
        """The same in asyncio; a task that is cancelled cancels its request."""
        ticket = self.submit(prompt, **options)
        try:
            return await ticket
        except BaseException:
            ticket.cancel()
            raise

    async def astream(self, prompt: str | Sequence[int], **options: Any) -> AsyncIterator[str]:
        """Pieces of text in asyncio; leaving the loop early cancels the request."""
        ticket = self.submit(prompt, **options)
        try:
            async for piece in ticket:
                yield piece
        finally:
            ticket.cancel()

    @overload
    def map(
        self,
        prompts: Iterable[Any],
        *,
        on_done: Callable[[int, Completion], object] | None = None,
        return_exceptions: Literal[False] = False,
        **options: Any,
    ) -> Iterator[Completion]: ...
    @overload
    def map(
        self,
        prompts: Iterable[Any],
        *,
        on_done: Callable[[int, Any], object] | None = None,
        return_exceptions: bool,
        **options: Any,
    ) -> Iterator[Completion | Exception]: ...
    def map(
        self,
        prompts: Iterable[Any],
        *,
        on_done: Callable[[int, Any], object] | None = None,
        return_exceptions: bool = False,
        **options: Any,
    ) -> Iterator[Any]:
        """Completions of `prompts`, in their order, as they become ready; any number of prompts.

        At most four for each place, and no more than the queue holds, are handed in ahead of the caller, so that
        `prompts` may be endless; where others fill the queue, it waits for room. Leaving early cancels what is at work.

        Args:
            prompts: texts or token ids, several.
            on_done: called with the number of results handed out so far and the newest one.
            return_exceptions: give the error of a request in its place, and go on.
            options: as of `submit`.

        Raises:
            As `submit`, but for `QueueFullError`, and what went wrong with a request, after all completions before it;
            the message begins with which prompt it is: "prompts[6]: ...".
        """
        refuse_one(prompts)
        check_call(on_done=on_done, return_exceptions=return_exceptions)
        refuse_fork(self._pid)
        refuse_own_thread(self._thread, "map")
        self._options(options)
        how: dict[str, Any] = {"ahead": min(self.max_queue, 4 * self.n_parallel), "goes_on": return_exceptions}
        with closing(in_order(prompts, partial(self._hand_in, options), **how)) as results:
            for n, result in enumerate(results, start=1):
                if on_done is not None:
                    on_done(n, result)
                yield result

    # ------------------------------------------------------------- life
    def close(self, *, drain: bool = False) -> None:
        """Stop the worker and free the contexts; idempotent.

        Args:
            drain: finish what was handed in first; otherwise it is cancelled: every request that is not done has what
                was generated so far, and finish reason "cancelled". In a callback of a request this returns at once,
                and the rest follows.
        """
        check_call(drain=drain)
        if threading.current_thread() is self._thread:
            self._worker.stop(drain=drain, at_end=self._free)
            return
        self._worker.stop(drain=drain)
        self._thread.join()
        self._free()

    def _free(self) -> None:
        with self._freeing:  # others may close, too
            self._sequences.context.close()
            if self._owns_model:
                self.model.close()
            if self._draft_model is not None:
                self._draft_model.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(drain=kind is None)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("an Engine cannot be copied or pickled; share its `model`: Engine(engine.model, ...)")

    def __repr__(self) -> str:
        stats = self.stats
        return f"<Engine {self.model.path!r}: {stats.n_running} of {self.n_parallel} at work, {stats.n_queued} waiting>"
