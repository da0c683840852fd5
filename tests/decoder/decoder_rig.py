"""A decoder on a model, with every decode that survived on record, and a replay of that record elsewhere.

Owns the recording memory, the runs and the comparison with plain decoding; leaves the laws to the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pyspec._core import STATE_PARTIAL_ONLY, Context, Model, Sampler, State
from pyspec.config import SamplingOptions
from pyspec.decoder import Decoder, DecoderOptions, Request
from pyspec.memory import probe
from pyspec.rollback import choose, needs_spare
from pyspec.sequence import SequenceMemory
from pyspec.speculators import Speculator, as_tokens
from pyspec.stats import Stats

STRATEGIES = ("trim", "shadow", "fork", "checkpoint-host", "checkpoint-device", "snapshot")
N_SNAPSHOTS = 8


@dataclass
class Decode:
    """One decode: `n_kept` of its tokens are still in memory."""

    tokens: list[int]
    pos: int
    n_kept: int
    n_outputs: int


class RecordingMemory(SequenceMemory):
    """A sequence memory that knows which decodes its content comes from."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.decodes: list[Decode] = []

    def clear(self) -> None:
        super().clear()
        self.decodes = []

    def decode(self, tokens: Any, n_outputs: int) -> None:
        pos = self.n_past
        super().decode(tokens, n_outputs)
        listed = [int(token) for token in tokens]
        self.decodes.append(Decode(listed, pos, len(listed), n_outputs))

    def roll_back(self, keep: int) -> int:
        reached = super().roll_back(keep)
        self.decodes = [d for d in self.decodes if d.pos < reached]
        if self.decodes:
            last = self.decodes[-1]
            last.n_kept = min(last.n_kept, reached - last.pos)
        return reached


@dataclass
class Run:
    """What one generation did."""

    tokens: list[int]
    finish: str
    stats: Stats
    n_round_tokens: list[int]
    held: list[int]
    """Tokens in memory at the end."""
    history: list[int]
    decodes: list[Decode] = field(repr=False)


class Rig:
    """One context of `model` with a decoder; `rollback` as in `pyspec.rollback.choose`."""

    def __init__(
        self,
        model: Model,
        rollback: str = "auto",
        *,
        replay: str = "fused",
        max_tries: int = 4,
        max_pending: int = 16,
        n_draft: int | None = None,
        budget_bytes: int = 0,
        wrap: Callable[[Context], Any] = lambda context: context,
        **settings: Any,
    ) -> None:
        self.model = model
        spare = needs_spare(rollback, model.memory_kind)
        self.settings = {
            "n_ctx": 512,
            "n_threads": 1,
            "n_threads_batch": 1,
            "n_seq_max": 2 if spare else 1,
            "kv_unified": True if spare else None,
            "n_rs_seq": N_SNAPSHOTS if rollback == "snapshot" else 0,
        } | settings
        self.context: Any = wrap(Context(model, **self.settings))
        self.can = probe(self.context)
        strategy, _ = choose(
            self.context, self.can, rollback, spare=1 if spare else None, checkpoint_budget_bytes=budget_bytes
        )
        self.memory = RecordingMemory(self.context, strategy)
        self.decoder = Decoder(
            self.memory,
            DecoderOptions(replay=replay, max_tries=max_tries, max_pending=max_pending, n_draft=n_draft),
            n_vocab=model.vocab.n_tokens,
        )

    def run(
        self,
        prompt: Sequence[int],
        speculator: Speculator | None = None,
        *,
        max_tokens: int | None = 24,
        end_tokens: frozenset[int] = frozenset(),
        emit: Callable[[int], str | None] = lambda token: None,
        after_round: Callable[[], object] = lambda: None,
        **sampling: Any,
    ) -> Run:
        """Generate to the end; `after_round` is called after each round."""
        decoder = self.decoder
        decoder.begin(
            Request(
                prompt=as_tokens(list(prompt)),
                sampler=Sampler(self.model, SamplingOptions(**sampling)),
                speculator=speculator,
                max_tokens=max_tokens,
                end_tokens=end_tokens,
                emit=emit,
            )
        )
        tokens: list[int] = []
        rounds: list[int] = []
        while decoder.finish is None:
            verdict = decoder.step()
            tokens += verdict.tokens
            rounds.append(len(verdict.tokens))
            after_round()
        n_past = self.memory.n_past
        history = decoder.history.view().tolist()
        return Run(tokens, decoder.finish, decoder.stats, rounds, history[:n_past], history, list(self.memory.decodes))

    def state_bytes(self) -> bytes:
        """The part of the sequence's state that cannot be cut back."""
        state = State()
        self.context.state_save(self.memory.rollback.seq_id, state, STATE_PARTIAL_ONLY)
        return state.view().tobytes()

    def next_logits(self, tokens: Sequence[int]) -> np.ndarray:
        """Logits [n_vocab] after `tokens` at the end of memory; changes the memory."""
        self.memory.decode(list(tokens), 1)
        logits: np.ndarray = self.context.logits(0, 1)[0]
        return logits

    def close(self) -> None:
        self.context.close()


def replay(rig: Rig, decodes: Sequence[Decode], *, filler: int) -> list[list[int]]:
    """Decode what survived, in the same widths, in order, on the empty memory of another rig.

    Where only the first tokens of a decode survived (`trim`, `snapshot`), `filler` stands in for the others, which
    are removed again. Returns the argmax of every output row of each decode that kept a token.
    """
    rig.memory.clear()
    chosen: list[list[int]] = []
    for decode in decodes:
        n_lost = len(decode.tokens) - decode.n_kept
        tokens = decode.tokens[: decode.n_kept] + [filler] * n_lost
        rig.memory.decode(tokens, decode.n_outputs)
        rows = rig.context.argmax_rows().tolist() if decode.n_outputs else []
        chosen.append(rows[: max(0, decode.n_outputs - n_lost)])
        if n_lost:
            rig.context.seq_rm(rig.memory.rollback.seq_id, rig.memory.n_past - n_lost, -1)
            rig.memory.n_past -= n_lost
    return chosen


def margin_at(rig: Rig, prompt: Sequence[int], tokens: Sequence[int], other: int, *, width: int) -> float:
    """How far the target prefers `tokens[-1]` to `other` after `prompt + tokens[:-1]`, decoded in steps of `width`.

    In units of the row's spread, so that models with small and with large logits share one bound.
    """
    rig.memory.clear()
    before = [*prompt, *tokens[:-1]]
    rig.memory.feed(as_tokens(list(prompt)), n_last=rig.context.n_batch)
    start = rig.memory.n_past
    while start < len(before):
        step = before[start : start + width]
        rig.memory.decode(step, 1)
        start += len(step)
    row = rig.context.logits(0, 1)[0]
    return float((row[tokens[-1]] - row[other]) / row.std())
