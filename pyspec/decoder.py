"""The round loop of one sequence: draft, target decode, verify, commit or roll back.

The only place that mutates a target's memory during a generation. Owns the history and the invariants;
leaves drafting, choosing, text and strategies to the objects it is given.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from functools import partial
from time import perf_counter

import numpy as np

from pyspec.checkpoints import Checkpoints
from pyspec.errors import ContextFullError, InvalidValueError, PyspecError, StateError
from pyspec.request import Chooser, DecoderOptions, Halted, Plan, Request
from pyspec.rounds import Decision, RoundRecord
from pyspec.sequence import SequenceMemory
from pyspec.speculators import History, Tokens
from pyspec.speculators.history import n_common
from pyspec.stats import Stats, Timings
from pyspec.verify import Verdict, verify

__all__ = ["Chooser", "Decoder", "DecoderOptions", "Plan", "Request"]

_log = logging.getLogger("pyspec")

_PROMPT = Decision("prompt")
_SAVE_FAILED = Decision("save failed")
_FORCED_COMMIT = Decision("forced commit")
_NO_ROOM = Decision("no room")


class Decoder:
    """Runs the rounds of one generation after another on one sequence.

    Invariants, after every round: memory holds exactly the first `memory.n_past` tokens of `history`; at least
    one decided token is pending (not in memory); no token of a rejected draft is in memory.
    """

    def __init__(
        self,
        memory: SequenceMemory,
        options: DecoderOptions,
        *,
        n_vocab: int,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self.memory = memory
        self.checkpoints = checkpoints
        self.options = options
        self.n_vocab = n_vocab
        self.history = History()
        self.stats = Stats()
        self.timings = Timings()
        self.finish: str | None = None
        self._request: Request | None = None
        self._speculating = False
        self._n_tries = 0
        self._decision = _PROMPT

    @property
    def n_pending(self) -> int:
        """Decided tokens that are not in memory."""
        return len(self.history) - self.memory.n_past

    # ------------------------------------------------------------- a generation
    def begin(self, request: Request) -> None:
        """Start a generation, on an empty memory or on what it holds of the prompt.

        Raises:
            InvalidValueError: an empty prompt.
            ContextFullError: the prompt alone is longer than the context.
            UnsupportedError: `n_keep` on memory that cannot drop tokens.
            SpeculatorError: the speculator's `begin` raised.
        """
        n_prompt = len(request.prompt)
        n_ctx = self.memory.n_ctx
        if n_prompt == 0:
            raise InvalidValueError(name="prompt", value=[], allowed="at least one token")
        if n_prompt > n_ctx:
            raise ContextFullError(n_past=0, n_new=n_prompt, n_ctx=n_ctx, way_out="shorten the prompt or raise n_ctx")
        if request.n_keep is not None:
            self.memory.require_shift(request.n_keep)
        n_reused = self._reuse(request)
        self.history = History(request.prompt)
        rollback = self.memory.rollback
        self._base = (self.memory.n_decodes, rollback.n_saves, rollback.saved_bytes)
        self.timings = Timings(n_prompt=n_prompt)
        self.stats = Stats(n_prompt=n_prompt, n_reused=n_reused, rollback=rollback.name, timings=self.timings)
        self.finish = None
        self._request = request
        self._n_tries = 0
        self._decision = _PROMPT
        self._n_left = request.max_tokens if request.max_tokens is not None else 2**62
        if self._n_left == 0:
            self.finish = "length"
        self._speculating = True
        sampler = request.sampler
        sampler.reset()
        if not sampler.is_greedy:
            for token in request.prompt.tolist():
                sampler.accept(token, prompt=True)
        request.drafting.begin(request.prompt)

    def step(self) -> Verdict:
        """One round; sets `finish` when it was the last.

        Raises:
            PyspecError, KeyboardInterrupt: the generation is over; the sequence's memory is empty, or as after the
                last round when the error is a `SpeculatorError`.
        """
        plan = self.plan()
        if plan is None:
            return Verdict([], 0, 0, self.finish)
        start = perf_counter()
        with self._nothing_half_done():
            self.memory.decode(plan.tokens, plan.n_outputs)
        return self.conclude(plan, perf_counter() - start)

    def plan(self) -> Plan | None:
        """The first half of a round: draft, save, and say what to decode; None when the generation ended here.

        It ends where the context is full, or where the request says so. Before the first round the prompt is decoded
        but for its last tokens, unless that was done already (`next_chunk`).

        Raises:
            As `step`.
        """
        request, memory, stats = self._request, self.memory, self.stats
        assert request is not None and self.finish is None, "a round without a running generation"
        first = stats.n_rounds == 0
        t0 = perf_counter()
        if self.halted():
            return None
        if memory.n_past + self.n_pending > memory.n_ctx and not self._make_room(request):
            self.finish = "context"
            return None
        draft = [] if first else self._draft(request)
        t1 = perf_counter()
        with self._nothing_half_done():
            if draft:
                draft = self._save(draft)
            t2 = perf_counter()
            if not draft:
                memory.commit()
            if first:
                is_over = not self._feed(request)
                stats.n_decodes = stats.n_prompt_decodes = memory.n_decodes - self._base[0]
                if is_over:
                    return None
        pending = self.history.view()[memory.n_past :].tolist()
        assert pending, "pending is never empty during a generation"
        feed_s = perf_counter() - t2
        return Plan(pending, draft, draft_s=t1 - t0, save_s=t2 - t1, feed_s=feed_s if first else 0.0)

    def halted(self) -> bool:
        """Whether the request ends here without another decode; memory stays as it is."""
        request = self._request
        if self.finish is None and request is not None and request.halt is not None:
            self.finish = request.halt()
        return self.finish is not None

    def conclude(self, plan: Plan, decode_s: float) -> Verdict:
        """The second half: verify what was decoded, commit or roll back, count, learn.

        Args:
            plan: of this round; memory has decoded it, and its rows begin at `memory.first_row`.
            decode_s: seconds that the decode took.

        Raises:
            As `step`.
        """
        request, history, stats, timings = self._request, self.history, self.stats, self.timings
        assert request is not None, "a round without a running generation"
        first = stats.n_rounds == 0
        draft = plan.draft
        t0 = perf_counter()
        with self._nothing_half_done():
            if first and request.on_progress is not None:
                request.on_progress(len(request.prompt), len(request.prompt))
            verdict = self._verify(request, draft)
            t1 = perf_counter()
            self._settle(draft, verdict)
            if request.reuse and self.checkpoints is not None:
                self.checkpoints.follow()
        drafting, rollback_s = request.drafting, plan.save_s + (perf_counter() - t1)
        round_s = plan.feed_s + decode_s + (t1 - t0)
        stats.drafting = drafting.counts
        self._record(drafting.author, len(plan.pending), len(draft), verdict, (plan.draft_s, round_s, rollback_s))
        timings.draft_s += plan.draft_s
        timings.rollback_s += rollback_s
        if first:
            timings.prompt_decode_s += round_s
            return verdict
        timings.decode_s += decode_s
        timings.verify_s += t1 - t0
        drafting.observe(len(plan.tokens), decode_s + (t1 - t0), rollback_s if draft else 0.0)
        drafting.settle(history, len(draft), verdict.n_accepted)
        return verdict

    @contextlib.contextmanager
    def _nothing_half_done(self) -> Iterator[None]:
        """Whatever stops a round inside leaves an empty memory."""
        try:
            yield
        except BaseException:
            with contextlib.suppress(PyspecError):
                self.memory.clear()
            raise

    # ------------------------------------------------------------- the prompt
    def forget(self) -> None:
        """Empty the memory, so that no later generation goes on from it."""
        self.memory.clear()
        if self.checkpoints is not None:
            self.checkpoints.clear()

    def _reuse(self, request: Request) -> int:
        """Leave in memory what it holds of the prompt, one token short of all; returns the number of tokens."""
        memory, checkpoints = self.memory, self.checkpoints
        if not request.reuse or checkpoints is None:
            self.forget()
            return 0
        held = self.history.view()[: memory.n_past]
        try:
            return checkpoints.go_back(min(n_common(held, request.prompt), len(request.prompt) - 1))
        except BaseException:
            with contextlib.suppress(PyspecError):
                self.forget()
            raise

    def _feed(self, request: Request) -> bool:
        """Decode the prompt but for its last tokens, with checkpoints on the way where they are of use later.

        False when the request ended the generation meanwhile.
        """
        memory, checkpoints, tokens = self.memory, self.checkpoints, self.history.view()
        memory.watch = partial(self._fed, request)
        try:
            if not request.reuse or checkpoints is None or checkpoints.n_max == 0:
                memory.feed(tokens[memory.n_past :], n_last=memory.context.n_batch)
            else:
                checkpoints.feed(tokens, len(tokens) - 1, takes_back=request.takes_back)
        except Halted:
            return False
        finally:
            memory.watch = None
        return True

    def next_chunk(self, n_max: int) -> Tokens:
        """The next prompt tokens, at most `n_max`, that whoever decodes for many sequences adds without outputs.

        None are left when the first round may be planned; it decodes what remains, at most `n_max` tokens.
        """
        n_past, n_prompt, kept = self.memory.n_past, self.stats.n_prompt, self.checkpoints
        stops_before_last = kept is not None and kept.n_max > 0
        end = n_prompt - 1 if stops_before_last else n_prompt if n_prompt - n_past > n_max else 0
        return self.history.view()[n_past : max(n_past, min(n_past + n_max, end))]

    def _fed(self, request: Request) -> None:
        if request.on_progress is not None:
            request.on_progress(self.memory.n_past, len(request.prompt))
        if self.halted():
            raise Halted

    # ------------------------------------------------------------- a full memory
    def shift(self, n_keep: int, n_drop: int) -> None:
        """Drop the `n_drop` tokens behind the first `n_keep` from memory and history; what follows moves up.

        Raises:
            PyspecError: memory cannot (`Context.can_shift`); it is empty afterwards.
        """
        with self._nothing_half_done():
            self.memory.shift(n_keep, n_drop)
        tokens = self.history.view()
        self.history = History(np.concatenate((tokens[:n_keep], tokens[n_keep + n_drop :])))
        if self.checkpoints is not None:
            self.checkpoints.clear()
        self._n_tries = 0

    def _make_room(self, request: Request) -> bool:
        """Drop the older half of what may be dropped, and tell the speculators; False where that is not asked for."""
        n_past, n_keep = self.memory.n_past, request.n_keep
        if n_keep is None or n_past < n_keep + 2:
            return False
        n_drop = (n_past - n_keep + 1) // 2
        self.shift(n_keep, n_drop)
        self.stats.n_dropped += n_drop
        drafting, counts = request.drafting, request.drafting.counts
        drafting.begin(self.history.view())
        drafting.counts = counts
        return self.memory.n_past + self.n_pending <= self.memory.n_ctx

    # ------------------------------------------------------------- parts of a round
    def _draft(self, request: Request) -> list[int]:
        """Ask the speculator, within everything that limits this round."""
        options, memory = self.options, self.memory
        if not self._speculating:
            self._decision = _SAVE_FAILED
            return []
        n_pending = self.n_pending
        if self._n_tries and (self._n_tries >= options.max_tries or n_pending > options.max_pending):
            self.stats.n_forced_commits += 1
            self._decision = _FORCED_COMMIT
            return []
        context = memory.context
        n_max = min(
            self._n_left - 1,
            memory.n_ctx - memory.n_past - n_pending,
            memory.width_max - n_pending,
            context.n_outputs_max - 1,
            memory.rollback.max_draft,
        )
        if options.n_draft is not None:
            n_max = min(n_max, options.n_draft)
        if n_max < 1:
            self._decision = _NO_ROOM
            return []
        draft = request.drafting.draft(self.history, n_max, n_pending=n_pending, n_vocab=self.n_vocab)
        self._decision = request.drafting.decision
        return draft

    def _save(self, draft: list[int]) -> list[int]:
        """Save before the draft; when that fails go on without drafts and say so."""
        try:
            self.memory.save(len(draft))
        except (StateError, MemoryError) as error:
            self._speculating, self._decision = False, _SAVE_FAILED
            self.stats.n_failed_saves += 1
            _log.warning("no more drafts in this generation: the state could not be saved (%s)", error)
            return []
        return draft

    def _verify(self, request: Request, draft: list[int]) -> Verdict:
        sampler, context, first_row = request.sampler, self.memory.context, self.memory.first_row
        observe, choices = request.observe_row, None
        if sampler.is_greedy:
            choices = context.argmax_rows(first_row, 1 + len(draft)).tolist()
            if observe is None:
                return verify(draft, choices.__getitem__, request.emit, request.end_tokens)

        def choose(row: int) -> int:
            if choices is not None:
                token: int = choices[row]
            else:
                token = sampler.sample(context, first_row + row)
                sampler.accept(token)
            if observe is not None and token not in request.end_tokens:
                observe(context, first_row + row, token)
            return token

        return verify(draft, choose, request.emit, request.end_tokens)

    def _settle(self, draft: list[int], verdict: Verdict) -> None:
        """Commit or roll back, and count."""
        memory, stats, n_draft = self.memory, self.stats, len(draft)
        keep = memory.n_past - n_draft + verdict.n_accepted
        self.history.extend(verdict.tokens)
        self._n_left -= len(verdict.tokens)
        stats.n_rounds += 1
        stats.n_generated = self.timings.n_generated = stats.n_generated + len(verdict.tokens)
        stats.n_cut += verdict.n_cut
        if verdict.n_accepted == n_draft:
            memory.commit()
            self._n_tries = 0
        else:
            reached = memory.roll_back(keep)
            stats.count_rollback(memory.rollback.undone_by)
            stats.n_replayed += keep - reached
            self._n_tries += reached < keep
            if reached < keep and self.options.replay == "immediate":
                memory.commit()
                memory.decode(self.history.view()[reached:keep], 0)
                self._n_tries = 0
        self.finish = verdict.finish
        if self.finish is None and self._n_left <= 0:
            self.finish = "length"
        n_decodes, n_saves, saved_bytes = self._base
        stats.n_decodes = memory.n_decodes - n_decodes
        stats.n_saves = memory.rollback.n_saves - n_saves
        stats.saved_bytes = memory.rollback.saved_bytes - saved_bytes
        assert memory.n_past < len(self.history) or self.finish, "a decided token is pending"

    def _record(
        self, author: str, n_pending: int, n_drafted: int, verdict: Verdict, seconds: tuple[float, float, float]
    ) -> None:
        """Count the draft, and keep what the round did; `seconds` are of drafting, decoding and rolling back."""
        n_accepted = verdict.n_accepted
        speculator = undone_by = ""
        if n_drafted:
            speculator = author
            self.stats.count_draft(author, n_drafted, n_accepted)
            if n_accepted < n_drafted:
                undone_by = self.memory.rollback.undone_by
        counts = (n_pending + n_drafted, n_pending, n_drafted, n_accepted, len(verdict.tokens))
        self.stats.record_round(RoundRecord(*counts, speculator, undone_by, *seconds, *self._decision))
