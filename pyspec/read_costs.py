"""What reading a token of a prompt costs, measured on the live context at first use and kept in the user's cache.

Owns the measurement; `cost_cache` keeps it. Leaves what decodes in generation cost to `pyspec.width_costs`, and what
follows from it to `pyspec.budgeted`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from time import perf_counter
from typing import Any

import numpy as np

from pyspec._core import Context
from pyspec.cost_cache import CostCache
from pyspec.errors import PyspecError

__all__ = ["cached_read_cost", "measure_read_cost"]

_VERSION = 1
_FOLDER = "read-costs"
_N_TOKENS = (64, 512)  # of the first turn, and where that takes little
_N_TURNS = 3
_LIMIT_S = 0.5
_STEADY = 1.25
_GUESS = 0.1
"""Of a decode of one token, for each token that is read, where measuring would take long; CPUs take more, GPUs less."""

_log = logging.getLogger("pyspec")


def cached_read_cost(
    context: Context, *, token_s: float, seq_id: int = 0, settings: Mapping[str, str] | None = None
) -> float:
    """Seconds of each token of a prompt, from the cache or measured now; memory is empty afterwards.

    Args:
        context: nothing may be in its memory.
        token_s: seconds of a decode of one token.
        seq_id: the sequence to use.
        settings: whatever else it depends on, beside the model file and the context's sizes.

    Returns:
        A guess where measuring would take long, or a decode failed.
    """
    if token_s > _LIMIT_S / _N_TURNS:
        return _GUESS * token_s
    kept = CostCache(context, _FOLDER, version=_VERSION, settings=settings)
    found = kept.read(_parse)
    if found is None:
        try:
            found, is_steady = measure_read_cost(context, seq_id=seq_id)
        except PyspecError as error:
            _log.warning("reading could not be timed: %s", error)
            return _GUESS * token_s
        if is_steady:
            kept.write({"read_s": found})
    return found


def measure_read_cost(context: Context, *, seq_id: int = 0) -> tuple[float, bool]:
    """Seconds of each token of a prompt of random tokens: the best of some turns, while they take little time.

    Args:
        context: nothing may be in its memory, and nothing is afterwards.
        seq_id: the sequence to use.

    Returns:
        (seconds, whether the two best turns agree).

    Raises:
        PyspecError: a decode failed.
    """
    most = max(1, min(context.n_batch, context.n_ctx_seq // 2))
    few, many = (min(n, most) for n in _N_TOKENS)
    tokens = np.random.default_rng(1).integers(0, context.model.vocab.n_tokens, many).astype(np.int32)
    begin = perf_counter()

    def turn(n_tokens: int) -> float:
        context.clear()
        start = perf_counter()
        context.decode(tokens[:n_tokens], pos=0, seq_id=seq_id, n_outputs=1)
        context.argmax_rows()  # waits for the device
        return (perf_counter() - start) / n_tokens

    try:
        taken = [turn(few)]
        n_tokens = many if taken[0] * many * _N_TURNS < _LIMIT_S else few
        if n_tokens > few:
            taken.clear()
        while len(taken) < _N_TURNS and perf_counter() - begin < _LIMIT_S:
            taken.append(turn(n_tokens))
    finally:
        context.clear()
    best, second = sorted([*taken, math.inf])[:2]
    return best, second <= _STEADY * best


def _parse(data: Any) -> float:
    """The cost of a file.

    Raises:
        ValueError, TypeError, KeyError: something else.
    """
    seconds = float(data["read_s"])
    if not 0.0 < seconds < 1e6:
        raise ValueError(f"read_s {seconds}")
    return seconds
