"""The report about rollback as tables, and as Markdown to be posted.

Owns what stands in which column and how numbers are written. Works on the report's plain data, so that a JSON file
will do; leaves plain text layout to the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspec.bench.tables import Table, facts, markdown, milliseconds, percent

__all__ = ["about_rows", "notes", "rollback_markdown", "rollback_tables"]

_PARTS = ("save", "decode", "undo", "replay")


def rollback_markdown(data: Mapping[str, Any]) -> str:
    """`RollbackReport.to_dict()` as Markdown."""
    title = f"pyspec bench rollback: {data['about']['model']}"
    return markdown(title, about_rows(data), rollback_tables(data), notes(data))


def about_rows(data: Mapping[str, Any]) -> list[list[str]]:
    """Name and value of each fact that the numbers belong to."""
    settings = data["settings"]
    return [
        *facts(data["about"]),
        [
            "settings",
            f"{settings['n_context']} tokens in memory, n_gpu_layers {settings['n_gpu_layers']}, "
            f"flash attention {settings['flash_attn']}, n_rs_seq {settings['n_rs_seq']}, "
            f"medians of {settings['n_rounds']} turns",
        ],
    ]


def rollback_tables(data: Mapping[str, Any]) -> list[Table]:
    """Milliseconds, shares, and generations (where there are any)."""
    tables = [_milliseconds(data), _shares(data)]
    return [*tables, _generations(data)] if data["generations"] else tables


def notes(data: Mapping[str, Any]) -> list[str]:
    """Sentences about texts that left the plain one, and about what was not measured."""
    found = [_parted(row) for row in data["generations"] if row["difference"] is not None]
    for row in data["left_out"]:
        where = f", width {row['width']}" if row["width"] is not None else ""
        found.append(f"not measured: {row['strategy']}{where}: {row['why']}")
    return found


def _milliseconds(data: Mapping[str, Any]) -> Table:
    rows = [["plain", str(r["width"]), "", "", "", milliseconds(r["decode_s"]), "", ""] for r in data["plain"]]
    rows += [
        [
            r["strategy"],
            str(r["width"]),
            f"{r['n_right']} of {r['width'] - 1}",
            f"{r['extra_bytes']:,}",
            *(milliseconds(r[f"{part}_s"]) for part in _PARTS),
        ]
        for r in data["costs"]
    ]
    title = (
        "A round with a rejected draft, in ms. Width: tokens of its decode, one of them decided before. Held: bytes "
        "beside plain decoding's memory. Replay: one more decode of the lost tokens alone, which fused replay saves."
    )
    return Table(title, ["strategy", "width", "right", "held", *_PARTS], rows, 1)


def _shares(data: Mapping[str, Any]) -> Table:
    rows = [["plain", str(r["width"]), "", percent(r["share"]), "", "", ""] for r in data["plain"]]
    rows += [
        [
            r["strategy"],
            str(r["width"]),
            *(percent(r[f"{part}_share"]) for part in _PARTS),
            f"{100 * (r['decode_ratio'] - 1):+.1f}%",
        ]
        for r in data["costs"]
    ]
    title = (
        "The same as shares of one plain decode (width 1). Last: the decode against a plain one of the same width, "
        "in a context without spare sequence or snapshots."
    )
    return Table(title, ["strategy", "width", *_PARTS, "decode over plain"], rows, 1)


def _generations(data: Mapping[str, Any]) -> Table:
    plain = data["plain_generation"]
    n_plain = str(plain["n_tokens"])
    rows = [["plain", "", "", n_plain, "", "1.0", "1.000", "0", "0", "1.00", f"{plain['decode_ratio']:.2f}"]]
    rows += [
        [
            r["strategy"],
            r["replay"],
            r["pattern"],
            str(r["n_tokens"]),
            f"{_mean(r['n_accepted'], r['n_drafts'])} of {_mean(r['n_drafted'], r['n_drafts'])}",
            f"{r['mean_width']:.1f}",
            f"{r['decodes_per_token']:.3f}",
            str(r["n_replayed"]),
            str(r["n_forced_commits"]),
            f"{r['time_ratio']:.2f}",
            f"{r['decode_ratio']:.2f}",
        ]
        for r in data["generations"]
    ]
    plain_ms = milliseconds(plain["s_per_token"])
    title = (
        f"Generations whose drafts are right as the pattern says; plain decoding takes {plain_ms} ms a token. Right: "
        "tokens of a mean draft; a strategy that can undo fewer gets the first ones of each. Time a token: of plain "
        "decoding's. Time a decode: with all around it, of single plain decodes of the same widths and rows of logits."
    )
    header = ["strategy", "replay", "pattern", "tokens", "right", "mean width", "decodes a token", "replayed"]
    return Table(title, [*header, "forced commits", "time a token", "time a decode"], rows, 3)


def _mean(total: int, n: int) -> str:
    return f"{total / n:.1f}" if n else "0"


def _parted(row: Mapping[str, Any]) -> str:
    d = row["difference"]
    near = "a near-tie" if d["near_tie"] else "MORE THAN ROUNDING EXPLAINS"
    return (
        f"{row['strategy']}, {row['replay']}, {row['pattern']}: the text left the plain one at token {d['index']} "
        f"({d['plain_token']} became {d['token']}), nothing was drafted after it; their logits differ by "
        f"{d['margin']:.2g}, decodes of other widths by up to {d['rounding']:.2g}: {near}"
    )
