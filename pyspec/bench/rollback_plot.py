"""The report about rollback as a picture: bars in an SVG file that needs nothing but a browser.

Owns the drawing. Works on the report's plain data, so that a JSON file will do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspec.bench.svg import GAP, LEFT, ROW, Canvas, scale

__all__ = ["rollback_svg"]

_COLOURS = {"save": "#0072b2", "decode": "#a6a6a6", "undo": "#d55e00", "replay": "#f0c000"}
_BAR = {"": "#0072b2"}


def rollback_svg(data: Mapping[str, Any]) -> str:
    """`RollbackReport.to_dict()` as the text of an SVG file.

    Above: rounds with a rejected draft by width, in plain decodes of one token, what they are made of in colours.
    Below: seconds a token of generations by pattern, as a share of plain decoding's.
    """
    about = data["about"]
    canvas = Canvas()
    canvas.y = GAP
    canvas.text(GAP, f"Rollback of {about['model']}: {about['cpu']}, {', '.join(about['backends'])}", bold=True)
    canvas.y += ROW
    canvas.text(
        GAP,
        f"{about['architecture']} {about['quantization']}, {data['settings']['n_context']} tokens in memory, "
        f"llama.cpp {about['llama_cpp']}, pyspec {about['pyspec']}, {about['os']}",
    )
    canvas.y += 2 * ROW
    _draw_costs(canvas, data)
    if data["generations"]:
        canvas.y += ROW
        _draw_generations(canvas, data)
    return canvas.svg()


def _draw_costs(canvas: Canvas, data: Mapping[str, Any]) -> None:
    canvas.text(GAP, "A round with a rejected draft, in plain decodes of one token", bold=True)
    canvas.y += ROW
    x: float = LEFT
    for part, colour in _COLOURS.items():
        canvas.bar(x, ROW - 4, colour, part)
        canvas.text(x + ROW, "replay, which fused replay saves" if part == "replay" else part)
        x += 80
    canvas.y += ROW + GAP
    plain = [(f"plain, width {row['width']}", {"decode": row["share"]}) for row in data["plain"]]
    rows = [
        (f"{row['strategy']}, width {row['width']}", {part: row[f"{part}_share"] for part in _COLOURS})
        for row in data["costs"]
    ]
    pixels = scale([1.0, *(sum(parts.values()) for _, parts in rows)])
    top = canvas.y
    for width in sorted({1} | {row["width"] for row in data["costs"]}):
        for label, parts in (*plain, *rows):
            if label.endswith(f", width {width}"):
                canvas.row(label, parts, _COLOURS, pixels)
        canvas.y += GAP / 2
    canvas.upright(LEFT + pixels, top, "one plain decode")


def _draw_generations(canvas: Canvas, data: Mapping[str, Any]) -> None:
    canvas.text(GAP, "Generations: seconds a token, in those of plain decoding (dashed: 1, as fast)", bold=True)
    canvas.y += ROW + GAP
    rows = data["generations"]
    pixels = scale([row["time_ratio"] for row in rows] + [1.0])
    top = canvas.y
    for pattern in dict.fromkeys(row["pattern"] for row in rows):
        for row in rows:
            if row["pattern"] == pattern:
                replay = "" if row["replay"] == "none" else f", {row['replay']}"
                canvas.row(f"{pattern}: {row['strategy']}{replay}", {"": row["time_ratio"]}, _BAR, pixels)
        canvas.y += GAP / 2
    canvas.upright(LEFT + pixels, top, "plain decoding")
