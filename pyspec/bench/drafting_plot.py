"""The report about drafting as a picture.

Owns what the bars show; leaves drawing to `svg`. Works on plain data, so that a JSON file will do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspec.bench.svg import GAP, LEFT, ROW, Canvas, scale

__all__ = ["drafting_svg"]

_COLOURS = {"oracle": "#a6a6a6", "measured": "#0072b2", "counts": "#009e73", "off": "#f0c000"}


def drafting_svg(data: Mapping[str, Any]) -> str:
    """`drafting_data(...)` as the text of an SVG file: tokens a second by workload, in those of plain decoding."""
    canvas = Canvas()
    canvas.y = GAP
    for one in data["models"]:
        _draw_head(canvas, one)
        pixels = scale([1.0, *(row["speed"] for row in one["rows"]), *(w["oracle_speed"] for w in one["workloads"])])
        for workload in one["workloads"]:
            _draw_workload(canvas, one, workload, pixels)
        canvas.y += ROW
    return canvas.svg()


def _draw_head(canvas: Canvas, one: Mapping[str, Any]) -> None:
    about, settings = one["about"], one["settings"]
    canvas.text(GAP, f"Drafting on {about['model']}: {about['cpu']}, {', '.join(about['backends'])}", bold=True)
    canvas.y += ROW
    canvas.text(
        GAP,
        f"{about['architecture']} {about['quantization']}, {settings['continuation']} continuation, rollback "
        f"{settings['rollback']}, llama.cpp {about['llama_cpp']}, pyspec {about['pyspec']}, {about['os']}",
    )
    canvas.y += 2 * ROW
    canvas.text(GAP, "Tokens a second, in those of plain decoding (dashed: 1, as fast)", bold=True)
    canvas.y += ROW
    x: float = LEFT
    for name, colour in _COLOURS.items():
        if name == "oracle" or any(row["budget"] == name for row in one["rows"]):
            canvas.bar(x, ROW - 4, colour, name)
            canvas.text(x + ROW, "oracle: all right, best width" if name == "oracle" else f"budget {name}")
            x += 180
    canvas.y += ROW + GAP


def _draw_workload(canvas: Canvas, one: Mapping[str, Any], workload: Mapping[str, Any], pixels: float) -> None:
    name, top = workload["workload"], canvas.y
    canvas.text(GAP, f"{name}: {workload['about']}", bold=True)
    canvas.y += ROW
    oracle = {"oracle": workload["oracle_speed"]}
    canvas.row(f"oracle, width {workload['oracle_width']}", oracle, _COLOURS, pixels)
    for row in one["rows"]:
        if row["workload"] == name:
            canvas.row(row["spec"], {row["budget"]: row["speed"]}, _COLOURS, pixels)
    canvas.upright(LEFT + pixels, top + ROW, "plain decoding")
    canvas.y += GAP
