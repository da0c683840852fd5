"""Whether attention is computed with llama.cpp's flash attention, where the caller does not say.

Owns that choice for a context that is about to be made. Leaves GPUs to llama.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspec._core import Model
from pyspec.memory import has_device

__all__ = ["SCORES_MAX", "flash_attention", "flash_attention_text"]

SCORES_MAX = 2**31
"""Most bytes of attention scores in one graph for which a CPU goes without flash attention."""

_SCORE_BYTES = 6
"""Of a score: one float, and once more in the half precision of the values that it is multiplied by."""

_FLOATS = ("f32", "f16", "bf16")


def flash_attention(model: Model, options: Mapping[str, Any]) -> bool | None:
    """On, off, or None to let llama.cpp decide.

    On a CPU it is off: llama.cpp's kernel there takes one token at a time below 64, and its sums depend on how many are
    decoded together, while products of matrices are faster, and give a token the same logits at each of these widths
    (docs/attention.md has the numbers). It is llama.cpp's choice where a cache of values is quantised, which needs it;
    where the scores of a whole graph may take more than `SCORES_MAX` bytes, or the model does not say how many heads
    have them; and where layers may lie on a GPU.

    Args:
        model: fully loaded.
        options: parameters of `pyspec._core.Context`; without `n_ctx` what the model was trained with.
    """
    wanted: bool | None = options.get("flash_attn")
    on_gpu = has_device() and model.n_gpu_layers != 0
    n_head = int(model.metadata.get(f"{model.architecture}.attention.head_count", 0))
    if wanted is not None or on_gpu or n_head == 0 or options.get("type_v", "f16") not in _FLOATS:
        return wanted
    n_cells = int(options.get("n_ctx") or model.n_ctx_train)
    n_tokens = min(int(options.get("n_batch", 2048)), int(options.get("n_ubatch", 512)), n_cells)
    return False if _SCORE_BYTES * n_head * n_tokens * n_cells <= SCORES_MAX else None


def flash_attention_text(chosen: bool | None) -> str:
    """What was chosen, in words."""
    return {True: "on", False: "off", None: "as llama.cpp decides"}[chosen]
