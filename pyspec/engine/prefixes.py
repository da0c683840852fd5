"""Beginnings that requests have in common.

Owns how much of a prompt a memory can serve with, and from where. Leaves giving it to `sequences`, and going
back to `pyspec.checkpoints`.
"""

from __future__ import annotations

import numpy as np

from pyspec.decoder import Decoder
from pyspec.speculators import Tokens

__all__ = ["n_common", "n_within_reach"]


def n_common(a: Tokens, b: Tokens) -> int:
    """Tokens at the beginning that `a` and `b` have in common."""
    n = min(len(a), len(b))
    differs = np.flatnonzero(a[:n] != b[:n])
    return int(differs[0]) if len(differs) else n


def n_within_reach(decoder: Decoder, prompt: Tokens, *, can_trim: bool) -> int:
    """Tokens of `prompt` that a copy of the decoder's memory could begin with, one short of all of them at most.

    Args:
        decoder: whose memory holds the beginning of its history.
        prompt: [n_prompt] token ids.
        can_trim: memory can be cut back anywhere; otherwise only to a checkpoint.
    """
    n_past = decoder.memory.n_past
    n = min(n_common(decoder.history.view()[:n_past], prompt), len(prompt) - 1)
    if can_trim or n == n_past:
        return n
    positions = decoder.checkpoints.positions if decoder.checkpoints is not None else []
    return max((pos for pos in positions if pos <= n), default=0)
