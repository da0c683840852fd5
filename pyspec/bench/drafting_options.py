"""What the drafting benchmark measures: the options and their ranges.

Leaves the names of workloads, speculators and rollback strategies to those who know them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pyspec.arguments import BUDGETS
from pyspec.bench.workloads import Workload
from pyspec.config import Check, int_between, validate

__all__ = ["CONTINUATIONS", "NGRAM_MOD_SMALL", "QUICK", "SPECS", "DraftingBenchOptions"]

CONTINUATIONS = ("forced", "own")

NGRAM_MOD_SMALL = "ngram-mod:n_match=6,n_min=2,n_max=8"
"""For texts of a few hundred tokens, where the defaults seldom draft at all."""

SPECS = (
    "auto",
    "suffix",
    "ngram-mod",
    NGRAM_MOD_SMALL,
    "ngram-map-k",
    "ngram-map-k4v",
    "ngram-cache",
    "ngram-simple",
)

_WIDTH_MAX = 512


def _all(ok: Any, *, at_least: int) -> Any:
    return lambda value: isinstance(value, tuple) and len(value) >= at_least and all(map(ok, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftingBenchOptions:
    """What is measured.

    Attributes:
        workloads: names, or `pyspec.bench.Workload`; none means all that the vocabulary has.
        specs: speculators by name with options, as `pyspec generate --spec` takes them; "draft-model" is added to the
            default ones where there is a draft model.
        budgets: how long drafts are, each speculator with each: "measured", "counts", "off".
        widths: tokens of the oracle's decodes: one that is decided, the others drafted.
        continuation: "forced", the workload's own text is said whatever the model would say; or "own", the model
            says what it says (greedily, beyond its end tokens), which is the truth for the oracle, too.
        n_tokens: most tokens of a continuation; the random one has no more than 400.
        n_runs: how often everything is measured; medians are reported.
        warm: what decodes cost is remembered from run to run, as in a `Llama` that is not new. Speculators always
            start anew: they would remember the text.
        rollback: strategy, or "auto".
        seed: of the random workload.
        n_threads: CPU threads, 0 for the physical cores.
        n_gpu_layers: what the model was loaded with, for the record.
        flash_attn: on, off, or None as in `Llama`.
    """

    workloads: tuple[str | Workload, ...] = ()
    specs: tuple[str, ...] = ()
    budgets: tuple[str, ...] = ("measured", "off")
    widths: tuple[int, ...] = (2, 4, 8, 16, 32, 64)
    continuation: str = "forced"
    n_tokens: int = 1000
    n_runs: int = 3
    warm: bool = False
    rollback: str = "auto"
    seed: int = 1
    n_threads: int = 0
    n_gpu_layers: int = -1
    flash_attn: bool | None = None

    _CHECKS: ClassVar[dict[str, Check]] = {
        "workloads": (_all(lambda v: _is_text(v) or isinstance(v, Workload), at_least=0), "names of workloads"),
        "specs": (_all(_is_text, at_least=0), "names of speculators"),
        "budgets": (_all(lambda v: v in BUDGETS, at_least=1), f"some of {', '.join(BUDGETS)}"),
        "widths": (
            _all(int_between(2, _WIDTH_MAX)[0], at_least=1),
            f"whole numbers from 2 to {_WIDTH_MAX}: a decided token and a draft",
        ),
        "continuation": (lambda v: v in CONTINUATIONS, " or ".join(map(repr, CONTINUATIONS))),
        "n_tokens": int_between(2, 2**20),
        "n_runs": int_between(1, 1000),
        "warm": (lambda v: isinstance(v, bool), "True or False"),
        "rollback": (_is_text, "the name of a strategy"),
        "seed": int_between(0, 2**32 - 1),
        "n_threads": int_between(0, 512),
        "flash_attn": (lambda v: v is None or isinstance(v, bool), "True, False or None"),
    }

    def __post_init__(self) -> None:
        validate(self, self._CHECKS)


QUICK = DraftingBenchOptions(
    workloads=("code-rewrite", "agent", "prose"),
    specs=("auto", "suffix", "ngram-mod"),
    budgets=("measured",),
    widths=(4, 16),
    n_tokens=96,
    n_runs=1,
)
"""A first look."""
