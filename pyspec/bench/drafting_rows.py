"""The report about drafting: what its rows hold.

Owns the names and units of the published data; leaves measuring to `drafting`, showing to tables and plot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pyspec.bench.generations import Difference

__all__ = ["CurveRow", "DraftingReport", "DraftingRow", "OracleRow", "WorkloadRow", "drafting_data"]

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class CurveRow:
    """A single plain decode after as many tokens as the workloads have on average.

    Attributes:
        width: tokens in it, with a row of logits for each.
        decode_s: its seconds.
        speed: tokens a second that decodes of this width give when every draft is right, over those of width 1.
    """

    width: int
    decode_s: float
    speed: float


@dataclass(frozen=True, slots=True)
class WorkloadRow:
    """A workload, plain decoding of it, and what drafting could reach.

    Attributes:
        workload, about: its name, and what repeats in it.
        n_prompt, n_tokens: tokens of the prompt, and tokens said (the first, which belongs to the prompt, included).
        plain_tokens_per_s: of plain decoding.
        plain_spread: the slowest plain run's seconds over the fastest one's; far from 1: the machine was not quiet.
        curve_width, curve_speed: the best width of decodes, and how many times plain it gives, by `CurveRow`.
        oracle_width, oracle_speed: the best of the oracle's runs; 1 and 1.0 where no draft pays.
    """

    workload: str
    about: str
    n_prompt: int
    n_tokens: int
    plain_tokens_per_s: float
    plain_spread: float
    curve_width: int
    curve_speed: float
    oracle_width: int
    oracle_speed: float


@dataclass(frozen=True, slots=True)
class OracleRow:
    """Generations of a speculator that knows the text and always drafts as much.

    Attributes:
        workload: its name.
        width: tokens of a decode.
        speed: tokens a second over those of plain decoding.
        n_decodes, n_drafted, n_accepted: as in `DraftingRow`.
    """

    workload: str
    width: int
    speed: float
    n_decodes: int
    n_drafted: int
    n_accepted: int


@dataclass(frozen=True, slots=True)
class DraftingRow:
    """Generations with one speculator and budget. The prompt's decode does not count.

    Attributes:
        workload, spec, budget: by name.
        speed: tokens a second over those of plain decoding beside it, the median of all runs.
        speed_min, speed_max: the lowest and the highest.
        oracle_share: `speed` over that of the oracle.
        tokens_per_s: of the run of median speed, as all that follows.
        n_tokens, n_decodes: tokens emitted, and the target's decodes for them.
        n_drafts, n_drafted, n_accepted, n_rollbacks, n_replayed: as in `pyspec.Stats`.
        draft_share, decode_share, rollback_share, rest_share: of the run's time.
        difference: where the text left that of plain decoding; None where it did not.
    """

    workload: str
    spec: str
    budget: str
    speed: float
    speed_min: float
    speed_max: float
    oracle_share: float
    tokens_per_s: float
    n_tokens: int
    n_decodes: int
    n_drafts: int
    n_drafted: int
    n_accepted: int
    n_rollbacks: int
    n_replayed: int
    draft_share: float
    decode_share: float
    rollback_share: float
    rest_share: float
    difference: Difference | None

    @property
    def tokens_per_decode(self) -> float:
        """Tokens for each of the target's decodes; plain decoding has 1."""
        return self.n_tokens / self.n_decodes


@dataclass(frozen=True, slots=True)
class DraftingReport:
    """Everything that `measure_drafting` found about one model. Ratios are medians of ratios to neighbours in time.

    Attributes:
        about: model, build and machine, see `pyspec.bench.machine`.
        settings: the options, the draft model's file and the rollback strategy in use.
        curve: plain decodes by width.
        workloads: each with plain decoding and the bounds.
        oracle: the oracle's runs by width.
        rows: the speculators'.
    """

    about: dict[str, Any]
    settings: dict[str, Any]
    curve: list[CurveRow]
    workloads: list[WorkloadRow]
    oracle: list[OracleRow]
    rows: list[DraftingRow]

    @property
    def same_text(self) -> bool:
        """Every generation said what plain decoding says, but for near-ties."""
        return all(row.difference is None or row.difference.near_tie for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        data = asdict(self)
        for row, shown in zip(self.rows, data["rows"], strict=True):
            shown["tokens_per_decode"] = row.tokens_per_decode
        return data


def drafting_data(reports: Sequence[DraftingReport]) -> dict[str, Any]:
    """Reports about one model or several as plain data, ready for JSON, tables and plot."""
    return {"benchmark": "drafting", "format": _FORMAT, "models": [report.to_dict() for report in reports]}
