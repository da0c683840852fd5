"""What a rejected draft costs under a strategy, measured on the live context.

Owns the measurement of one strategy and the numbers it gives; leaves to `pyspec.rollback.timing` which strategies
are measured when, and to `choose` what follows from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from pyspec.errors import ContextFullError, InvalidValueError
from pyspec.rollback.protocol import Rollback
from pyspec.speculators.history import Tokens

__all__ = ["StrategyCost", "cells_needed", "measure_cost"]

_N_PENDING = 1
"""Tokens of a decode that were decided before it."""


@dataclass(frozen=True, slots=True)
class StrategyCost:
    """Seconds of one round whose draft is rejected after `n_accepted` tokens; medians, or minima where asked for.

    Attributes:
        name: the strategy.
        width: tokens in the round's decode, the pending one included.
        n_context: tokens in memory before.
        n_accepted: draft tokens that were right.
        save_s: making the present position restorable.
        decode_s: the decode; a strategy that copies the state inside the graph pays for it here.
        undo_s: bringing memory back.
        n_replayed: decided tokens that must be decoded again.
        replay_s: one decode of these alone, as immediate replay does; 0 where nothing is replayed.
        n_rounds: rounds measured.
    """

    name: str
    width: int
    n_context: int
    n_accepted: int
    save_s: float
    decode_s: float
    undo_s: float
    n_replayed: int
    replay_s: float
    n_rounds: int

    @property
    def round_s(self) -> float:
        """Save, decode and undo."""
        return self.save_s + self.decode_s + self.undo_s

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def cells_needed(width: int, n_rounds: int) -> int:
    """Positions that `measure_cost` needs behind the tokens already in memory."""
    return width * (n_rounds + 2)


def measure_cost(
    rollback: Rollback,
    *,
    width: int,
    n_accepted: int = 0,
    n_rounds: int = 5,
    n_context: int = 0,
    replay: bool = False,
    reduce: Callable[[list[float]], float] = median,
) -> StrategyCost:
    """Play rounds with rejected drafts of random tokens on the strategy's context; memory is cleared before and after.

    One more round comes first and is not counted: it builds the graph.

    Args:
        rollback: the strategy; nothing else may use its sequences.
        width: tokens of a round's decode, at least 2: one that is decided and the draft.
        n_accepted: draft tokens kept, at most `width - 2`.
        n_rounds: most rounds to count.
        n_context: tokens decoded first.
        replay: time also a decode of the tokens that must be replayed.
        reduce: what to make of the rounds' times, e.g. `min` on a busy machine.

    Raises:
        InvalidValueError: a width without a draft, or one without a rejected token.
        ContextFullError: the context has no room for this many rounds.
        PyspecError: the strategy failed.
    """
    if width < 2:
        raise InvalidValueError(name="width", value=width, allowed="at least 2: a decided token and a draft")
    if not 0 <= n_accepted <= width - 2:
        raise InvalidValueError(
            name="n_accepted", value=n_accepted, allowed=f"from 0 to {width - 2}: some are rejected"
        )
    context = rollback.context
    need = n_context + cells_needed(width, n_rounds)
    if need > context.n_ctx_seq:
        raise ContextFullError(n_past=0, n_new=need, n_ctx=context.n_ctx_seq)
    rng = np.random.default_rng(1)
    tokens = rng.integers(0, context.model.vocab.n_tokens, need).astype(np.int32)
    pos = 0

    def decode(part: Tokens, n_outputs: int) -> None:
        nonlocal pos
        context.decode(part, pos=pos, seq_id=rollback.seq_id, n_outputs=n_outputs)
        if n_outputs:
            context.argmax(0)  # waits for the device
        pos += len(part)

    times: list[tuple[float, float, float, float]] = []
    n_replayed = 0
    context.clear()
    rollback.reset()
    try:
        while pos < n_context:
            decode(tokens[pos : min(n_context, pos + context.n_batch)], 0)
        for _ in range(n_rounds + 1):
            start = pos
            t0 = perf_counter()
            rollback.save(start, width - 1)
            t1 = perf_counter()
            decode(tokens[start : start + width], width)
            t2 = perf_counter()
            keep = start + _N_PENDING + n_accepted
            pos = rollback.roll_back(keep)
            t3 = perf_counter()
            rollback.commit()
            n_replayed, replay_s = keep - pos, 0.0
            if replay and n_replayed:
                t4 = perf_counter()
                decode(tokens[pos:keep], 1)
                replay_s = perf_counter() - t4
            times.append((t1 - t0, t2 - t1, t3 - t2, replay_s))
            if width - 1 > rollback.max_draft:
                decode(tokens[pos : pos + 1], 0)  # only a decode makes such a draft possible again
    finally:
        rollback.reset()
        context.clear()
    save_s, decode_s, undo_s, replay_s = (reduce(list(column)) for column in zip(*times[1:], strict=True))
    return StrategyCost(
        name=rollback.name,
        width=width,
        n_context=n_context,
        n_accepted=n_accepted,
        save_s=save_s,
        decode_s=decode_s,
        undo_s=undo_s,
        n_replayed=n_replayed,
        replay_s=replay_s,
        n_rounds=len(times) - 1,
    )
