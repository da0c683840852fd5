"""What reading a token of a prompt costs, measured on the live context at first use and kept in the user's cache.

Owns the measurement; `cost_cache` keeps it. Leaves what decodes in generation cost to `pyspec.width_costs`, and what
follows from it to `pyspec.budgeted`.
"""

from __future__ import annotations

import logging
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
_N_TOKENS = 64
_N_TURNS = 3
_LIMIT_S = 0.5

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
        0.0 where measuring would take long, or a decode failed.
    """
    if token_s > _LIMIT_S / _N_TURNS:
        return 0.0
    kept = CostCache(context, _FOLDER, version=_VERSION, settings=settings)
    found = kept.read(_parse)
    if found is None:
        try:
            found = measure_read_cost(context, seq_id=seq_id)
        except PyspecError as error:
            _log.warning("reading could not be timed: %s", error)
            return 0.0
        kept.write({"read_s": found})
    return found


def measure_read_cost(context: Context, *, seq_id: int = 0) -> float:
    """Seconds of each token of a short prompt of random tokens: the best of some turns, while they take little time.

    Args:
        context: nothing may be in its memory, and nothing is afterwards.
        seq_id: the sequence to use.

    Raises:
        PyspecError: a decode failed.
    """
    n_tokens = max(1, min(_N_TOKENS, context.n_batch, context.n_ctx_seq // 2))
    tokens = np.random.default_rng(1).integers(0, context.model.vocab.n_tokens, n_tokens).astype(np.int32)
    begin = perf_counter()
    taken: list[float] = []
    try:
        while len(taken) < _N_TURNS and perf_counter() - begin < _LIMIT_S:
            context.clear()
            start = perf_counter()
            context.decode(tokens, pos=0, seq_id=seq_id, n_outputs=1)
            context.argmax_rows()  # waits for the device
            taken.append(perf_counter() - start)
    finally:
        context.clear()
    return min(taken) / n_tokens


def _parse(data: Any) -> float:
    """The cost of a file.

    Raises:
        ValueError, TypeError, KeyError: something else.
    """
    seconds = float(data["read_s"])
    if not 0.0 < seconds < 1e6:
        raise ValueError(f"read_s {seconds}")
    return seconds
