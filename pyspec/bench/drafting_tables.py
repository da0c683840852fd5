"""The report about drafting as tables, and as Markdown to be posted.

Owns what stands in which column, the means over workloads, and how numbers are written. Works on plain data, so that a
JSON file will do; leaves plain text layout to the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import geometric_mean
from typing import Any

from pyspec.bench.tables import Table, facts, markdown, milliseconds, percent

__all__ = ["about_rows", "drafting_markdown", "drafting_tables", "notes"]

_PARTS = ("draft", "decode", "rollback", "rest")
_TEXTS = {
    "forced": "forced continuation: each workload's own text is said, whatever the model would say; decodes cost what "
    "they cost, and drafts are as right as they are for that text",
    "own": "the model's own continuation: greedy, beyond its end tokens",
}


def drafting_markdown(data: Mapping[str, Any]) -> str:
    """`drafting_data(...)` as Markdown, a heading for each model."""
    return "\n".join(
        markdown(f"pyspec bench drafting: {one['about']['model']}", about_rows(one), drafting_tables(one), notes(one))
        for one in data["models"]
    )


def about_rows(one: Mapping[str, Any]) -> list[list[str]]:
    """Name and value of each fact that the numbers of one model belong to."""
    settings = one["settings"]
    costs = "learned anew in each run" if not settings["warm"] else "remembered from run to run"
    return [
        *facts(one["about"]),
        ["text", _TEXTS[settings["continuation"]]],
        *([["draft model", settings["draft_model"]]] if settings["draft_model"] else []),
        [
            "settings",
            f"at most {settings['n_tokens']} tokens, rollback {settings['rollback']}, "
            f"n_gpu_layers {settings['n_gpu_layers']}, flash attention {settings['flash_attn']}, "
            f"medians of {settings['n_runs']} runs, costs of decodes {costs}",
        ],
    ]


def drafting_tables(one: Mapping[str, Any]) -> list[Table]:
    """Means over workloads, all runs, workloads with the oracle, and the cost curve, of one model."""
    return [_means(one), _runs(one), _workloads(one), _curve(one)]


def notes(one: Mapping[str, Any]) -> list[str]:
    """Sentences about texts that left the plain one."""
    return [_parted(row) for row in one["rows"] if row["difference"] is not None]


def _ratio(value: float) -> str:
    return f"{value:.2f}"


def _means(one: Mapping[str, Any]) -> Table:
    keys = dict.fromkeys((row["spec"], row["budget"]) for row in one["rows"])
    rows = []
    for spec, budget in keys:
        mine = [row for row in one["rows"] if (row["spec"], row["budget"]) == (spec, budget)]
        worst, best = (choose(mine, key=lambda row: row["speed"]) for choose in (min, max))
        rows.append(
            [
                spec,
                budget,
                _ratio(geometric_mean(row["speed"] for row in mine)),
                percent(geometric_mean(row["oracle_share"] for row in mine)),
                *(f"{_ratio(row['speed'])} {row['workload']}" for row in (worst, best)),
            ]
        )
    title = (
        "Over all workloads: geometric means of tokens a second in those of plain decoding, and of the share of the "
        "oracle's tokens a second; the slowest and the fastest workload."
    )
    return Table(title, ["speculator", "budget", "speed", "of oracle", "slowest", "fastest"], rows, 2)


def _runs(one: Mapping[str, Any]) -> Table:
    rows = [
        [
            row["workload"],
            row["spec"],
            row["budget"],
            _ratio(row["speed"]),
            f"{_ratio(row['speed_min'])} to {_ratio(row['speed_max'])}",
            percent(row["oracle_share"]),
            _ratio(row["tokens_per_decode"]),
            *(str(row[name]) for name in ("n_tokens", "n_decodes", "n_drafts", "n_drafted", "n_accepted")),
            *(percent(row[f"{part}_share"]) for part in _PARTS),
        ]
        for row in one["rows"]
    ]
    title = (
        "Speed: tokens a second in those of plain decoding beside it; the median, and all runs. From the run of median "
        "speed: tokens for each decode, counts, and where its time went (decode: choosing tokens included)."
    )
    header = ["workload", "speculator", "budget", "speed", "runs", "of oracle", "a decode"]
    header += ["tokens", "decodes", "drafts", "drafted", "accepted", *_PARTS]
    return Table(title, header, rows, 3)


def _workloads(one: Mapping[str, Any]) -> Table:
    widths = sorted({row["width"] for row in one["oracle"]})
    speeds = {(row["workload"], row["width"]): row["speed"] for row in one["oracle"]}
    rows = [
        [
            row["workload"],
            row["about"],
            *(str(row[name]) for name in ("n_prompt", "n_tokens")),
            f"{row['plain_tokens_per_s']:.1f}",
            _ratio(row["plain_spread"]),
            *(_ratio(speeds[row["workload"], width]) for width in widths),
            f"{_ratio(row['oracle_speed'])} at {row['oracle_width']}",
            f"{_ratio(row['curve_speed'])} at {row['curve_width']}",
        ]
        for row in one["workloads"]
    ]
    title = (
        "Workloads, plain decoding of each (spread: the slowest run's time over the fastest one's), and the oracle, "
        "which knows the text and drafts as much in every round: its speed by the width of its decodes, the best of "
        "them (1 at 1 where no draft pays), and what the costs of single decodes promise."
    )
    header = ["workload", "what repeats", "prompt", "tokens", "plain tokens/s", "spread"]
    return Table(title, [*header, *(f"oracle {width}" for width in widths), "oracle", "by costs"], rows, 2)


def _curve(one: Mapping[str, Any]) -> Table:
    rows = [[str(row["width"]), milliseconds(row["decode_s"]), _ratio(row["speed"])] for row in one["curve"]]
    title = (
        f"A plain decode after {one['settings']['n_context']} tokens by its width, in ms, and the tokens a second that "
        "it would give if all were right, in those of width 1."
    )
    return Table(title, ["width", "decode", "speed"], rows, 0)


def _parted(row: Mapping[str, Any]) -> str:
    d = row["difference"]
    near = "a near-tie" if d["near_tie"] else "MORE THAN ROUNDING EXPLAINS"
    return (
        f"{row['workload']}, {row['spec']}, {row['budget']}: the text left the plain one at token {d['index']} "
        f"({d['plain_token']} became {d['token']}); their logits differ by {d['margin']:.2g}, decodes of other widths "
        f"by up to {d['rounding']:.2g}: {near}"
    )
