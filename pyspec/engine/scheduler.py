"""Continuous batching: which requests are at work, and what each decode holds of them.

Owns admission, the sharing of beginnings, the make-up of each batch, and that one request's failure is its own,
whatever its callbacks raise. Single threaded. Leaves each request's rounds to its `Decoder`, and threads to
`pyspec.engine`.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from time import perf_counter

from pyspec.budget import CostModel
from pyspec.decoder import Plan
from pyspec.drafting import Drafting
from pyspec.engine.admission import MIN_PIECE, Admission
from pyspec.engine.batch_cost import graphs, observe_graphs
from pyspec.engine.sequences import Part, Sequences
from pyspec.engine.slots import EngineStats, Job, Slot
from pyspec.errors import BusyError, ContextFullError, PyspecError
from pyspec.speculators import Tokens, identity

__all__ = ["Scheduler"]

_log = logging.getLogger("pyspec")


class Scheduler:
    """Works on requests, step by step.

    Args:
        sequences: of the context.
        slots: one for each of its memories.
        cost: of whole batches.
        prefill_chunk: most prompt tokens between two rounds of requests that generate.
        batch_width: most tokens of rounds in one decode.
        share: whether requests may begin with what another's memory holds.
    """

    def __init__(
        self,
        sequences: Sequences,
        slots: list[Slot],
        *,
        cost: CostModel,
        prefill_chunk: int = 256,
        batch_width: int = 48,
        share: bool = True,
    ) -> None:
        self.sequences = sequences
        self.slots = slots
        self.queue: deque[Job] = deque()
        self.stats = EngineStats()
        self._cost = cost
        self._prefill_chunk = prefill_chunk
        self._batch_width = batch_width
        self._share = share
        self._admission = Admission(sequences, slots, share=share)
        self._n_steps = 0

    @property
    def is_idle(self) -> bool:
        """Nothing is at work, nothing waits."""
        return not self.queue and all(slot.job is None for slot in self.slots)

    def add(self, job: Job) -> None:
        """Let a request wait for its turn."""
        self.queue.append(job)
        self.stats.n_submitted += 1

    def step(self) -> None:
        """Admit what can be, and decode once, or not at all where nothing is left to decode."""
        self._n_steps += 1
        self._drop_halted()
        while self._admit():
            pass
        rounds = self._plan_rounds(min(self._batch_width, self.sequences.n_tokens_max))
        if rounds:
            self._decode(rounds)
        self._feed(self._prefill_chunk if rounds else self.sequences.n_tokens_max)
        self.stats.n_queued = len(self.queue)
        self.stats.n_running = sum(slot.job is not None for slot in self.slots)

    def fail_all(self, error: BaseException) -> None:
        """Every request ends with `error`."""
        for slot in self.slots:
            if slot.job is not None:
                self._fail(slot, error)
        while self.queue:
            self.stats.n_failed += 1
            self.queue.popleft().ticket.fail(error)

    # ------------------------------------------------------------- admission
    def _drop_halted(self) -> None:
        for job in list(self.queue):
            reason = job.generation.halt()
            if reason is not None:
                self.queue.remove(job)
                self.stats.n_done += 1
                self.stats.n_cancelled += 1
                try:
                    completion = job.generation.never_began(reason)
                    job.ticket.push(job.generation.take())
                except BaseException as error:
                    job.ticket.fail(error)
                    raise
                job.ticket.finish(completion)

    def _admit(self) -> bool:
        """Begin the request that waits longest, if there is a slot and room for it, and nothing to wait for."""
        free = [slot for slot in self.slots if slot.job is None]
        if not self.queue or not free:
            return False
        job = self.queue[0]
        prompt = job.generation.request.prompt
        slot, source, n_shared = self._admission.best_place(free, prompt)
        if self._admission.must_wait(prompt, n_shared):
            return False
        if not self._admission.make_room(job.n_cells, slot):
            return False
        self.queue.popleft()
        slot.used_at = self._n_steps
        try:
            if source is not slot:
                self._admission.copy(source, slot)
            self._begin(slot, job)
        except BaseException as error:
            slot.job = job
            self._fail(slot, error)
        return True

    def _begin(self, slot: Slot, job: Job) -> None:
        drafting = slot.speculators.drafting(job.spec, grammar=job.generation.is_constrained)
        self._refuse_shared(drafting)
        job.generation.draft_with(drafting)
        slot.decoder.begin(job.generation.request)
        slot.job = job
        slot.stops = self._admission.stops(slot)
        self._keep_stop(slot)
        self.stats.n_prompt += slot.decoder.stats.n_prompt
        self.stats.n_reused += slot.decoder.stats.n_reused
        if slot.decoder.finish is not None:
            self._finish(slot)

    def _keep_stop(self, slot: Slot) -> None:
        """Keep a checkpoint where memory ends, if one is wanted there."""
        near = slot.stops.pop(slot.memory.n_past, None)
        if near is not None and slot.decoder.checkpoints is not None:
            slot.decoder.checkpoints.add(near=near)

    def _refuse_shared(self, drafting: Drafting) -> None:
        """A speculator follows one text: an object that drafts for another request now cannot draft for this one."""
        mine = {identity(member) for member in drafting.members}
        for slot in self.slots:
            if slot.job is not None:
                for member in slot.job.generation.request.drafting.members:
                    if identity(member) in mine:
                        raise BusyError(what=f"speculator {member.name!r}")

    # ------------------------------------------------------------- a batch
    def _plan_rounds(self, room: int) -> list[tuple[Slot, Plan]]:
        """A round of each request whose prompt is decoded, as far as one decode holds them; others come first next."""
        ready = [s for s in self.slots if s.has_begun]
        start = self._n_steps % len(self.slots)
        ready = ready[start % max(1, len(ready)) :] + ready[: start % max(1, len(ready))]
        widths = {id(s): s.decoder.n_pending for s in ready}
        rounds: list[tuple[Slot, Plan]] = []
        for i, slot in enumerate(ready):
            n_waiting = sum(widths[id(s)] for s in ready[i + 1 :])
            if slot.decoder.n_pending > room:
                break
            slot.memory.room = max(slot.decoder.n_pending, room - n_waiting)
            slot.cost.accompany([n for key, n in widths.items() if n and key != id(slot)])
            planned = self._planned(slot)
            widths[id(slot)] = sum(len(plan.tokens) for _, plan in planned)
            room -= widths[id(slot)]
            rounds += planned
        return rounds

    def _feed(self, n_max: int) -> None:
        """Decode up to `n_max` tokens of prompts, the request that waits longest first.

        Each prompt has decodes of its own: kernels differ for many tokens and few, and a prompt's are the same as when
        nobody else is there.
        """
        left = n_max
        for slot in sorted((s for s in self.slots if s.is_feeding), key=lambda s: s.used_at):
            while left > 0 and slot.is_feeding:
                if slot.decoder.halted():
                    self._finish(slot)
                    break
                n = self._piece(slot, left)
                if n is None:
                    break
                tokens = slot.decoder.next_chunk(n)
                left -= len(tokens) or slot.decoder.n_pending
                if len(tokens):
                    self._decode_chunk(slot, tokens)
                else:
                    slot.memory.room = self.sequences.n_tokens_max
                    self._decode(self._planned(slot))

    def _piece(self, slot: Slot, left: int) -> int | None:
        """How many tokens of a prompt to decode now, about `left` at most; None where it waits for the next step.

        A piece has fewer than `MIN_PIECE` only where the decode that holds it when nobody else is there has.
        """
        decoder, n_past, n_max = slot.decoder, slot.memory.n_past, self.sequences.n_tokens_max
        whole = len(decoder.next_chunk(decoder.n_pending)) or decoder.n_pending  # without the last token, or with it
        rest = min(whole, n_max - (n_past - decoder.stats.n_reused) % n_max)
        rest = min([rest, *(pos - n_past for pos in slot.stops if pos > n_past)])
        least = min(MIN_PIECE, self._prefill_chunk)
        if rest - left < least:
            return rest
        return left if left >= least else None

    def _planned(self, slot: Slot) -> list[tuple[Slot, Plan]]:
        """The slot with its next round; nothing when its request ended or failed."""
        try:
            plan = slot.decoder.plan()
        except BaseException as error:
            self._fail(slot, error)
            return []
        if plan is None:
            self._finish(slot)
            return []
        return [(slot, plan)]

    def _decode_chunk(self, slot: Slot, tokens: Tokens) -> None:
        """Decode a piece of a prompt."""
        assert slot.job is not None
        decoder, on_progress = slot.decoder, slot.job.generation.request.on_progress
        start = perf_counter()
        try:
            self.sequences.decode([Part(slot.memory, tokens, 0)])
            self._keep_stop(slot)
            if on_progress is not None:
                on_progress(slot.memory.n_past, decoder.stats.n_prompt)
        except BaseException as error:
            self._fail(slot, error)
            return
        self.stats.n_decodes += 1
        self.stats.n_decoded += len(tokens)
        decoder.timings.prompt_decode_s += perf_counter() - start

    def _decode(self, rounds: list[tuple[Slot, Plan]]) -> None:
        """Decode rounds in one batch where that can be; else one by one, since rows last until the next decode."""
        if len(rounds) > 1 and not self.sequences.can_batch:
            for one in rounds:
                self._decode([one])
            return
        if not rounds:
            return
        # llama.cpp takes sequences with buffers of their own into one graph only in the order of their ids
        rounds = sorted(rounds, key=lambda one: one[0].memory.rollback.seq_id)
        n_tokens = sum(len(plan.tokens) for _, plan in rounds)
        start = perf_counter()
        try:
            self.sequences.decode([Part(slot.memory, plan.tokens, plan.n_outputs) for slot, plan in rounds])
            self.sequences.context.argmax(0)  # waits for the device
        except ContextFullError as error:
            if len(rounds) == 1:
                self._fail(rounds[0][0], error)
            else:  # memory is as before: what is too much alone has failed then
                for one in rounds:
                    self._decode([one])
            return
        except BaseException as error:
            for slot, _ in rounds:
                with contextlib.suppress(PyspecError):
                    slot.decoder.forget()  # it may hold a draft that nobody verified
                self._fail(slot, error)
            return
        seconds = perf_counter() - start
        self.stats.n_decodes += 1
        self.stats.n_decoded += n_tokens
        if all(slot.has_begun for slot, _ in rounds):  # the last piece of a prompt has one row for many tokens
            widths = [len(plan.tokens) for _, plan in rounds]
            observe_graphs(self._cost, graphs(widths, splits=self.sequences.splits), seconds)
        for slot, plan in rounds:
            self._conclude(slot, plan, seconds * len(plan.tokens) / n_tokens)

    def _conclude(self, slot: Slot, plan: Plan, seconds: float) -> None:
        job = slot.job
        assert job is not None
        slot.used_at = self._n_steps
        try:
            job.generation.add(slot.decoder.conclude(plan, seconds).tokens, slot.decoder)
            job.ticket.push(job.generation.take())
        except BaseException as error:
            self._fail(slot, error)
            return
        if slot.decoder.finish is not None:
            self._finish(slot)

    # ------------------------------------------------------------- the end of a request
    def _finish(self, slot: Slot) -> None:
        job, stats = slot.job, self.stats
        assert job is not None
        try:
            completion = job.generation.complete(slot.decoder, rollback_reason=slot.reason)
            job.ticket.push(job.generation.take())
        except BaseException as error:
            self._fail(slot, error)
            return
        self._release(slot)
        stats.n_done += 1
        stats.n_cancelled += completion.finish_reason in ("cancelled", "timeout")
        stats.n_generated += len(completion.tokens)
        stats.n_drafted += completion.stats.n_drafted
        stats.n_accepted += completion.stats.n_accepted
        job.ticket.finish(completion)

    def _fail(self, slot: Slot, error: BaseException) -> None:
        job = slot.job
        assert job is not None
        self._release(slot)
        self.stats.n_failed += 1
        job.ticket.fail(error)

    def _release(self, slot: Slot) -> None:
        """The slot is free; its memory keeps what may serve other requests."""
        slot.job = None
        with contextlib.suppress(PyspecError):  # it is empty then
            if self._share:
                slot.memory.cut()
            else:
                slot.decoder.forget()
