"""The report about rollback: what its rows hold.

Owns the names and units of the published data; leaves measuring to `rollback`, showing to tables and plot.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pyspec.bench.generations import Difference

__all__ = ["CostRow", "GenerationRow", "LeftOut", "PlainGeneration", "PlainRow", "RollbackReport"]

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class PlainRow:
    """A decode without any strategy, in a context without spare sequence or snapshots.

    Attributes:
        width: tokens in it.
        decode_s: its seconds, with a row of logits for each token.
        one_row_s: the same with logits for the last token alone, as pending and replayed tokens have none.
        share: `decode_s` over a plain decode of one token.
    """

    width: int
    decode_s: float
    one_row_s: float
    share: float


@dataclass(frozen=True, slots=True)
class CostRow:
    """A round with a rejected draft: seconds, and the same as shares of a plain decode of one token.

    Attributes:
        strategy: its name.
        width: tokens of the round's decode: a decided one and the draft.
        n_right: draft tokens before the first wrong one.
        n_replayed: decided tokens that the strategy loses and that are decoded again.
        extra_bytes: what the strategy holds beside plain decoding's memory.
        save_s, decode_s, undo_s: the parts of the round.
        replay_s: one more decode of the lost tokens alone, which fused replay saves; with one row of logits.
        decode_ratio: the round's decode over a plain one of the same width.
    """

    strategy: str
    width: int
    n_right: int
    n_replayed: int
    extra_bytes: int
    save_s: float
    decode_s: float
    undo_s: float
    replay_s: float
    save_share: float
    decode_share: float
    undo_share: float
    replay_share: float
    decode_ratio: float


@dataclass(frozen=True, slots=True)
class PlainGeneration:
    """The plain generations.

    Attributes:
        n_tokens: tokens emitted by one.
        s_per_token: seconds.
        decode_ratio: these over a single plain decode of one token; far from 1 means that the machine was not quiet.
    """

    n_tokens: int
    s_per_token: float
    decode_ratio: float


@dataclass(frozen=True, slots=True)
class GenerationRow:
    """A generation with drafts of one pattern. The prompt's decode does not count.

    Attributes:
        strategy: its name.
        replay: "fused", "immediate", or "none" where the strategy keeps accepted tokens.
        pattern: see `pyspec.bench.patterns`.
        n_tokens, n_decodes: tokens emitted, and the target's decodes for them.
        mean_width: tokens in a decode.
        n_drafts, n_drafted, n_accepted, n_rollbacks, n_replayed, n_forced_commits: as in `pyspec.Stats`.
        s_per_token: seconds.
        time_ratio: seconds a token over those of plain decoding.
        decode_ratio: seconds a decode, with everything around it, over those of plain decodes of the same widths and
            rows of logits (interpolated between the measured ones).
        difference: where the text left the plain one, after which nothing was drafted; None where it did not.
    """

    strategy: str
    replay: str
    pattern: str
    n_tokens: int
    n_decodes: int
    mean_width: float
    n_drafts: int
    n_drafted: int
    n_accepted: int
    n_rollbacks: int
    n_replayed: int
    n_forced_commits: int
    s_per_token: float
    time_ratio: float
    decode_ratio: float
    difference: Difference | None

    @property
    def decodes_per_token(self) -> float:
        """Target decodes for each emitted token; plain decoding has 1."""
        return self.n_decodes / self.n_tokens


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What was not measured: a strategy at one width, or (`width` None) a strategy that failed."""

    strategy: str
    width: int | None
    why: str


@dataclass(frozen=True, slots=True)
class RollbackReport:
    """Everything that `measure_rollback` found. Times are medians, ratios medians of ratios within one turn.

    Attributes:
        about: model, build and machine, see `pyspec.bench.machine`.
        settings: the options; `n_rs_seq` as read back.
        plain: plain decodes by width.
        costs: rounds with a rejected draft.
        plain_generation: the plain ones; None without generations.
        generations: generations with drafts.
        left_out: what was not measured.
    """

    about: dict[str, Any]
    settings: dict[str, Any]
    plain: list[PlainRow]
    costs: list[CostRow]
    plain_generation: PlainGeneration | None
    generations: list[GenerationRow]
    left_out: list[LeftOut]

    @property
    def same_text(self) -> bool:
        """Every generation said what plain decoding says, but for near-ties."""
        return all(row.difference is None or row.difference.near_tie for row in self.generations)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        data: dict[str, Any] = {"benchmark": "rollback", "format": _FORMAT} | asdict(self)
        for row, shown in zip(self.generations, data["generations"], strict=True):
            shown["decodes_per_token"] = row.decodes_per_token
        return data
