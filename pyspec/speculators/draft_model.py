"""The `draft-model` speculator: a smaller model of the same vocabulary writes the draft.

Owns the draft model's context and its rollback, since the draft model may itself be recurrent; its memory follows
the history by longest common prefix. Parameters and defaults are llama.cpp's (common/common.h).
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

from pyspec._core import Model, Sampler, Vocab
from pyspec.assembly import assemble
from pyspec.checkpoints import CheckpointOptions, Checkpoints
from pyspec.config import SamplingOptions, between, int_between, validate
from pyspec.errors import InvalidValueError, PyspecError, StateError, UnsupportedError, VocabularyMismatchError
from pyspec.held import HeldMemory, fingerprint, hold, take
from pyspec.read_costs import cached_read_cost
from pyspec.speculators.history import History, Tokens, n_common
from pyspec.speculators.protocol import Law, check_kind

__all__ = ["DraftModel", "DraftModelOptions"]

_log = logging.getLogger("pyspec")

_STREAM = 0x9E3779B9
"""Sets a draft model's random numbers apart from the target's, which have the same seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftModelOptions:
    """How a draft model drafts.

    Attributes:
        n_max: most tokens in one draft.
        n_min: drafts shorter than this are dropped.
        p_min: drafting stops where the most probable token is less probable than this.
        temperature: 0 drafts the most probable tokens; above, tokens are drawn, and a generation that draws, too, keeps
            them by their chances (`pyspec.residual`): more are kept, and the text has the same law.
        top_k, top_p: drawn tokens are among the most probable ones.
    """

    n_max: int = 3
    n_min: int = 0
    p_min: float = 0.0
    temperature: float = 0.0
    top_k: int = 40
    top_p: float = 0.95

    _CHECKS: ClassVar[dict[str, Any]] = {
        "n_max": int_between(1, 4096),
        "n_min": int_between(0, 4096),
        "p_min": between(0, 1),
        "temperature": between(0, 1000),
        "top_k": int_between(0, 2**31 - 1),
        "top_p": between(0, 1),
    }

    def __post_init__(self) -> None:
        validate(self, self._CHECKS)
        if self.n_min > self.n_max:
            raise InvalidValueError(name="n_min", value=self.n_min, allowed=f"at most n_max={self.n_max}")


class DraftModel:
    """Drafts with a model of its own.

    Args:
        model: the draft model, fully loaded.
        target: the target's vocabulary, which the draft model's must equal.
        options: lengths and the probability limit.
        n_ctx: positions of the draft context; longer histories are not drafted for.
        rollback: strategy of the draft model's memory, chosen by itself and not by the target's.
        context: options of the draft context (threads, batch sizes, offload), as `pyspec._core.Context` has them.
        checkpoints: how many context checkpoints are kept where the draft model's memory cannot be cut back.
        is_timed: measure what a drafted token takes, and one that is read, at first use of the model file; for the
            budget.

    Attributes:
        token_s: seconds of a drafted token, 0.0 where that was not measured.
        read_s: seconds of a token of the history that memory lacks, 0.0 where that was not measured.
        n_ingested: tokens of histories decoded so far, those of drafts not counted.

    Raises:
        VocabularyMismatchError: the vocabularies differ, with the first differences.
        UnknownOptionError, UnsupportedError: no such strategy, or one that this model's memory cannot do.
    """

    name: ClassVar[str] = "draft-model"
    decodes: ClassVar[bool] = True

    def __init__(
        self,
        model: Model,
        *,
        target: Vocab,
        options: DraftModelOptions | None = None,
        n_ctx: int,
        rollback: str = "auto",
        checkpoint_budget_bytes: int = 0,
        context: dict[str, Any] | None = None,
        checkpoints: CheckpointOptions | None = None,
        is_timed: bool = False,
    ) -> None:
        differences = target.differences(model.vocab)
        if differences:
            raise VocabularyMismatchError(differences=differences)
        if rollback in ("snapshot", "snapshot+shadow"):
            raise UnsupportedError(
                what=f"rollback={rollback!r} for a draft model",
                why="snapshots undo tokens of one decode, and a draft model decodes its draft token by token",
                way_out="use 'auto', 'shadow' or 'checkpoint-host'",
            )
        self.options = options or DraftModelOptions()
        assembly = assemble(
            model,
            options=dict(context or {}) | {"n_ctx": n_ctx},
            rollback=rollback,
            checkpoint_budget_bytes=checkpoint_budget_bytes,
            placement=("draft", model.n_gpu_layers),
            width_max=2 if is_timed else 0,
        )
        self.context, self.capabilities, self.memory = assembly.context, assembly.capabilities, assembly.memory
        self.token_s = assembly.width_costs.get(1, 0.0)
        if is_timed and not self.token_s:
            self.token_s = self._time_token()
        self.read_s = 0.0
        if is_timed:
            settings = {name: str(value) for name, value in (context or {}).items()}
            settings["layers"] = str(model.n_gpu_layers)
            self.read_s = cached_read_cost(self.context, token_s=self.token_s, settings=settings)
        self.rollback_reason = assembly.reason
        self.checkpoints = Checkpoints(self.memory, self.capabilities, checkpoints)
        self.n_ingested = 0
        self.n_vocab = min(target.n_tokens, model.vocab.n_tokens)
        self.laws: list[Law] = []
        self._model = model
        self._sampler: Sampler | None = None
        self.reseed(0)
        self._held = History()  # the tokens in memory
        self._n_same = 0  # how many of them are known to equal the history's
        self._epoch = -1
        self._n_prompt: int | None = None  # of the generation whose prompt is to be read yet

    @property
    def nbytes(self) -> int:
        """Bytes of the record of tokens and of all saved states; the model's and context's own are llama.cpp's."""
        return self._held.nbytes + self.capabilities.state_bytes + self.checkpoints.nbytes

    @property
    def n_draft_max(self) -> int:
        """The most tokens of a draft."""
        return self.options.n_max

    @property
    def n_draft_min(self) -> int:
        """The fewest."""
        return self.options.n_min

    @property
    def draws(self) -> bool:
        """Whether tokens are drawn; then `laws` has what each was drawn from."""
        return self.options.temperature > 0

    def reseed(self, seed: int) -> None:
        """Start the random numbers of drawn tokens anew."""
        if self.draws:
            o = self.options
            law = SamplingOptions(
                seed=(seed + _STREAM) % 2**32 % (2**32 - 1),
                temperature=o.temperature,
                top_k=o.top_k,
                top_p=o.top_p,
                min_p=0.0,
            )
            self._sampler = Sampler(self._model, law)

    def begin(self, tokens: Tokens) -> None:
        """A new generation: what memory holds of its prompt is kept."""
        self._n_same = 0
        self._n_prompt = len(tokens)

    def n_unread(self, history: History) -> int:
        """Tokens of the history that memory lacks, if it can go back to where they part."""
        same = self._n_same if history.epoch == self._epoch else 0
        held, tokens = self._held.view(), history.view()
        return len(tokens) - min(same, len(held)) - n_common(held[same:], tokens[same:])

    def draft(self, history: History, n_max: int) -> list[int]:
        """Decode what is new in `history`, then up to `n_max` tokens one by one."""
        n_max = min(n_max, self.options.n_max, self.context.n_ctx_seq - len(history))
        if n_max < max(1, self.options.n_min) or not len(history):
            return []
        tokens = history.view()
        if len(tokens) and int(tokens.max()) >= self.n_vocab:
            return []
        try:
            draft = self._draft(history, n_max)
        except BaseException:
            with contextlib.suppress(PyspecError):
                self._forget()
            raise
        return draft if len(draft) >= self.options.n_min else []

    def accept(self, n_drafted: int, n_accepted: int, *, own: bool) -> None:
        """Nothing to learn; memory follows the history at the next draft."""

    def get_state(self) -> dict[str, Any]:
        """All that memory holds, but for tokens of a draft that it could not forget later."""
        memory = self.memory
        saved = memory.rollback.saved_pos
        if saved is not None and saved < memory.n_past and not self.capabilities.can_trim:
            memory.roll_back(saved)
            self._held.truncate(memory.n_past)
            self._n_same = min(self._n_same, memory.n_past)
        state: dict[str, Any] = {"kind": self.name, "model": fingerprint(self._model), "memory": None}
        if memory.n_past:
            state["memory"] = hold(memory, self.checkpoints, self._held.view()).to_plain()
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Take the memory of the saved one; where this context cannot, the history is read again.

        Raises:
            StateError: not a state of a draft model, or of another one; nothing was changed.
        """
        check_kind(state, self.name)
        if state.get("model") != fingerprint(self._model):
            raise StateError(reason=f"of another draft model than {self._model.description!r}")
        if "memory" not in state:
            raise StateError(reason="no state of a draft model: it has no memory")
        held = HeldMemory.from_plain(state["memory"]) if state["memory"] is not None else None
        self._forget()
        if held is not None:
            try:
                take(self.memory, self.checkpoints, held)
            except (PyspecError, MemoryError) as error:
                _log.warning(
                    "the saved memory of the draft model is of no use here, it reads the text again: %s", error
                )
                self._forget()
            else:
                self._held = History(held.tokens)

    def close(self) -> None:
        """Free the draft context."""
        self.context.close()

    # ------------------------------------------------------------- memory
    def _time_token(self) -> float:
        """Seconds of the faster of two decodes, where there is no time for more or the machine is busy."""
        taken = []
        for _ in range(2):
            start = perf_counter()
            self.memory.decode([0], 1)
            self.context.argmax(0)
            taken.append(perf_counter() - start)
            self.memory.clear()
        return min(taken)

    def _forget(self) -> None:
        self._held = History()
        self._n_same = 0
        self.memory.clear()
        self.checkpoints.clear()

    def _draft(self, history: History, n_max: int) -> list[int]:
        self._align(history)
        self._ingest(history.view())
        self.laws = []
        draft: list[int] = []
        while len(draft) < n_max and (token := self._choose()) is not None:
            draft.append(token)
            if len(draft) < n_max:
                if len(draft) == 1:
                    self.memory.save(n_max - 1)
                self.memory.decode(draft[-1:], 1)
                self._held.append(token)
        return draft

    def _choose(self) -> int | None:
        """The next token of the draft, None where it ends."""
        p_min = self.options.p_min
        if self._sampler is None:
            token = self.context.argmax(0)
            if token >= self.n_vocab or (p_min > 0 and self._probability(token) < p_min):
                return None
            return token
        ids, chances = self._sampler.probabilities(self.context, 0)
        known = ids < self.n_vocab
        # Whether a token is drafted must not depend on which one is drawn: its law would not be the one noted.
        if not known.any() or chances.max() < p_min:
            return None
        self.laws.append((ids[known], chances[known] / chances[known].sum()))
        while (token := self._sampler.sample(self.context, 0)) >= self.n_vocab:
            pass
        return token

    def _align(self, history: History) -> None:
        """Bring memory back to its longest common prefix with `history`, short of the last token."""
        memory = self.memory
        if history.epoch != self._epoch:
            self._epoch, self._n_same = history.epoch, 0
        held, tokens = self._held.view(), history.view()
        same = min(self._n_same, len(held))
        keep = min(same + n_common(held[same:], tokens[same:]), len(tokens) - 1)
        if keep < memory.n_past:
            if memory.rollback.can_roll_back(keep):
                self.checkpoints.forget_behind(memory.roll_back(keep))
            else:
                self.checkpoints.go_back(keep)
            self._held.truncate(memory.n_past)
        else:
            memory.commit()
        self._n_same = memory.n_past

    def _ingest(self, tokens: Tokens) -> None:
        """Decode what memory lacks of `tokens`, the whole history; the last one gives a row."""
        memory, checkpoints = self.memory, self.checkpoints
        before, n_prompt, self._n_prompt = memory.n_past, self._n_prompt, None
        if n_prompt is not None and n_prompt < len(tokens) and checkpoints.n_max:
            checkpoints.feed(tokens, max(before, n_prompt), takes_back=True)
        memory.feed(tokens[memory.n_past :], n_last=self.context.n_batch)
        memory.decode(tokens[memory.n_past :], 1)
        checkpoints.follow()
        self._held.extend(tokens[before:])
        self.n_ingested += memory.n_past - before
        self._n_same = memory.n_past

    def _probability(self, token: int) -> float:
        """Softmax of the one row at `token`, its largest."""
        row = self.context.logits(0, 1)[0]
        return float(1.0 / np.exp(row - row[token]).sum())
