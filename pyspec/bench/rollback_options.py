"""What the rollback benchmark measures: the options and their ranges.

Leaves the names of strategies and patterns to those who know them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pyspec.bench.trace import MAX_DRAFT
from pyspec.config import Check, int_between, validate

__all__ = ["RollbackBenchOptions"]

_WIDTH_MAX = 512


def _texts(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(text, str) and text for text in value)


def _widths(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) > 0 and all(int_between(2, _WIDTH_MAX)[0](w) for w in value)


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackBenchOptions:
    """What is measured.

    Attributes:
        n_context: tokens in memory before a round, and of a generation's prompt.
        widths: tokens of single rounds' decodes: one that is decided, the others drafted.
        strategies: by name; none means all that the memory can do.
        patterns: of drafts in generations: "all", "none", "half" right, "3of8" and the like, "trace:FILE".
        n_draft: tokens of a draft, where the pattern does not tell.
        n_tokens: tokens of a generation; 0 leaves generations out.
        n_rounds: how often everything is measured; medians are reported.
        n_rs_seq: states kept for snapshots; 0 leaves them out.
        n_threads: CPU threads, 0 for the physical cores.
        n_gpu_layers: what the model was loaded with, for the record.
        flash_attn: on, off, or None as in `Llama`.
    """

    n_context: int = 256
    widths: tuple[int, ...] = (2, 4, 9, 17)
    strategies: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ("all", "none", "half", "3of8")
    n_draft: int = 8
    n_tokens: int = 64
    n_rounds: int = 5
    n_rs_seq: int = 0
    n_threads: int = 0
    n_gpu_layers: int = -1
    flash_attn: bool | None = None

    _CHECKS: ClassVar[dict[str, Check]] = {
        "n_context": int_between(1, 2**24),
        "widths": (_widths, f"whole numbers from 2 to {_WIDTH_MAX}: a decided token and a draft"),
        "strategies": (_texts, "names of strategies"),
        "patterns": (_texts, "names of patterns"),
        "n_draft": int_between(1, MAX_DRAFT),
        "n_tokens": int_between(0, 2**20),
        "n_rounds": int_between(1, 1000),
        "n_rs_seq": int_between(0, _WIDTH_MAX - 2),
        "n_threads": int_between(0, 512),
        "flash_attn": (lambda v: v is None or isinstance(v, bool), "True, False or None"),
    }

    def __post_init__(self) -> None:
        validate(self, self._CHECKS)
