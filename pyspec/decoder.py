"""The round loop of one sequence: draft, target decode, verify, commit or roll back.

The only place that mutates a target's memory during a generation. Owns the history and the invariants;
leaves drafting, choosing, text and strategies to the objects it is given.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

import numpy as np

from pyspec._core import Context
from pyspec.checkpoints import Checkpoints
from pyspec.drafting import Drafting
from pyspec.errors import ContextFullError, InvalidValueError, PyspecError, StateError
from pyspec.rounds import Decision, RoundRecord
from pyspec.sequence import SequenceMemory
from pyspec.speculators import History, Tokens
from pyspec.stats import Stats, Timings
from pyspec.verify import Verdict, verify

__all__ = ["Chooser", "Decoder", "DecoderOptions", "Request"]

_log = logging.getLogger("pyspec")

CHECKPOINT_SPACING = 1024
"""Tokens of a prompt between two context checkpoints; one more stands before its last token."""

_PROMPT = Decision("prompt")
_SAVE_FAILED = Decision("save failed")
_FORCED_COMMIT = Decision("forced commit")
_NO_ROOM = Decision("no room")


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
    """

    prompt: Tokens
    sampler: Chooser
    drafting: Drafting
    max_tokens: int | None
    end_tokens: frozenset[int]
    emit: Callable[[int], str | None]
    reuse: bool = False


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
            SpeculatorError: the speculator's `begin` raised.
        """
        n_prompt = len(request.prompt)
        n_ctx = self.memory.n_ctx
        if n_prompt == 0:
            raise InvalidValueError(name="prompt", value=[], allowed="at least one token")
        if n_prompt > n_ctx:
            raise ContextFullError(n_past=0, n_new=n_prompt, n_ctx=n_ctx)
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
        request = self._request
        assert request is not None and self.finish is None, "step without a running generation"
        memory, history, stats, timings = self.memory, self.history, self.stats, self.timings
        first = stats.n_rounds == 0
        t0 = perf_counter()
        if memory.n_past + self.n_pending > memory.n_ctx:
            self.finish = "context"
            return Verdict([], 0, 0, "context")
        draft = [] if first else self._draft(request)
        t1 = perf_counter()
        try:
            if draft:
                draft = self._save(draft)
            t2 = perf_counter()
            if not draft:
                memory.commit()
            if first:
                self._feed(request)
                stats.n_prompt_decodes = memory.n_decodes - self._base[0]
            pending = history.view()[memory.n_past :].tolist()
            assert pending, "pending is never empty during a generation"
            memory.decode(pending + draft, 1 + len(draft))
            t3 = perf_counter()
            verdict = self._verify(request, draft)
            t4 = perf_counter()
            self._settle(draft, verdict)
        except BaseException:
            # whatever stopped this round, nothing half done may stay behind
            with contextlib.suppress(PyspecError):
                memory.clear()
            raise
        t5 = perf_counter()
        drafting, rollback_s = request.drafting, (t2 - t1) + (t5 - t4)
        stats.drafting = drafting.counts
        self._record(drafting.author, len(pending), len(draft), verdict, (t1 - t0, t4 - t2, rollback_s))
        timings.draft_s += t1 - t0
        timings.rollback_s += rollback_s
        if first:
            timings.prompt_decode_s = t4 - t2
            return verdict
        timings.decode_s += t3 - t2
        timings.verify_s += t4 - t3
        drafting.observe(len(pending) + len(draft), t4 - t2, rollback_s if draft else 0.0)
        drafting.settle(history, len(draft), verdict.n_accepted)
        return verdict

    # ------------------------------------------------------------- the prompt
    def _reuse(self, request: Request) -> int:
        """Leave in memory what it holds of the prompt, one token short of all; returns the number of tokens."""
        memory, checkpoints = self.memory, self.checkpoints
        if not request.reuse or checkpoints is None:
            memory.clear()
            if checkpoints is not None:
                checkpoints.clear()
            return 0
        n = min(memory.n_past, len(request.prompt) - 1)
        differs = np.flatnonzero(self.history.view()[:n] != request.prompt[:n])
        try:
            return checkpoints.go_back(int(differs[0]) if len(differs) else n)
        except BaseException:
            with contextlib.suppress(PyspecError):
                memory.clear()
            checkpoints.clear()
            raise

    def _feed(self, request: Request) -> None:
        """Decode the prompt but for its last tokens, with checkpoints on the way where they are of use later."""
        memory, checkpoints, tokens = self.memory, self.checkpoints, self.history.view()
        n_batch = memory.context.n_batch
        if not request.reuse or checkpoints is None or checkpoints.n_max == 0:
            memory.feed(tokens[memory.n_past :], n_last=n_batch)
            return
        last = len(tokens) - 1
        for stop in (memory.n_past, *range(memory.n_past + CHECKPOINT_SPACING, last, CHECKPOINT_SPACING), last):
            while memory.n_past < stop:
                memory.decode(tokens[memory.n_past : min(stop, memory.n_past + n_batch)], 0)
            checkpoints.add()

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
        if sampler.is_greedy:
            choices = context.argmax_rows().tolist()[first_row:]
            return verify(draft, choices.__getitem__, request.emit, request.end_tokens)

        def choose(row: int) -> int:
            token = sampler.sample(context, first_row + row)
            sampler.accept(token)
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
        self.stats.record_round(
            RoundRecord(
                n_pending + n_drafted,
                n_pending,
                n_drafted,
                n_accepted,
                len(verdict.tokens),
                speculator,
                undone_by,
                *seconds,
                *self._decision,
            )
        )
