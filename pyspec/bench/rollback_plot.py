"""The report about rollback as a picture: bars in an SVG file that needs nothing but a browser.

Owns the drawing. Works on the report's plain data, so that a JSON file will do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

__all__ = ["rollback_svg"]

_PARTS = {"save": "#0072b2", "decode": "#a6a6a6", "undo": "#d55e00", "replay": "#f0c000"}
_BAR = "#0072b2"
_WIDTH, _LEFT, _RIGHT = 900, 250, 70
_ROW, _GAP, _TEXT, _NUMBER = 16, 10, 11, 36


class _Canvas:
    """Elements of an SVG body, and how far down it is filled."""

    def __init__(self) -> None:
        self.elements: list[str] = []
        self.y = 0.0

    def text(self, x: float, text: str, *, anchor: str = "start", bold: bool = False) -> None:
        weight = ' font-weight="bold"' if bold else ""
        self.elements.append(
            f'<text x="{x:.1f}" y="{self.y + _TEXT:.1f}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'
        )

    def bar(self, x: float, width: float, colour: str, about: str) -> None:
        self.elements.append(
            f'<rect x="{x:.1f}" y="{self.y:.1f}" width="{max(width, 0):.2f}" height="{_ROW - 4}" fill="{colour}">'
            f"<title>{escape(about)}</title></rect>"
        )

    def upright(self, x: float, top: float, about: str) -> None:
        self.elements.append(
            f'<line x1="{x:.1f}" y1="{top:.1f}" x2="{x:.1f}" y2="{self.y:.1f}" stroke="#333" stroke-dasharray="4 3">'
            f"<title>{escape(about)}</title></line>"
        )


def rollback_svg(data: Mapping[str, Any]) -> str:
    """`RollbackReport.to_dict()` as the text of an SVG file.

    Above: rounds with a rejected draft by width, in plain decodes of one token, what they are made of in colours.
    Below: seconds a token of generations by pattern, as a share of plain decoding's.
    """
    about = data["about"]
    canvas = _Canvas()
    canvas.y = _GAP
    canvas.text(_GAP, f"Rollback of {about['model']}: {about['cpu']}, {', '.join(about['backends'])}", bold=True)
    canvas.y += _ROW
    canvas.text(
        _GAP,
        f"{about['architecture']} {about['quantization']}, {data['settings']['n_context']} tokens in memory, "
        f"llama.cpp {about['llama_cpp']}, pyspec {about['pyspec']}, {about['os']}",
    )
    canvas.y += 2 * _ROW
    _draw_costs(canvas, data)
    if data["generations"]:
        canvas.y += _ROW
        _draw_generations(canvas, data)
    height = canvas.y + _GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height:.0f}" '
        f'viewBox="0 0 {_WIDTH} {height:.0f}" font-family="sans-serif" font-size="{_TEXT}">'
    )
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *canvas.elements, "</svg>"]) + "\n"


def _draw_costs(canvas: _Canvas, data: Mapping[str, Any]) -> None:
    canvas.text(_GAP, "A round with a rejected draft, in plain decodes of one token", bold=True)
    canvas.y += _ROW
    x: float = _LEFT
    for part, colour in _PARTS.items():
        canvas.bar(x, _ROW - 4, colour, part)
        canvas.text(x + _ROW, "replay, which fused replay saves" if part == "replay" else part)
        x += 80
    canvas.y += _ROW + _GAP
    plain = [(f"plain, width {row['width']}", {"decode": row["share"]}) for row in data["plain"]]
    rows = [
        (f"{row['strategy']}, width {row['width']}", {part: row[f"{part}_share"] for part in _PARTS})
        for row in data["costs"]
    ]
    scale = _scale([1.0, *(sum(parts.values()) for _, parts in rows)])
    top = canvas.y
    for width in sorted({1} | {row["width"] for row in data["costs"]}):
        for label, parts in (*plain, *rows):
            if label.endswith(f", width {width}"):
                _draw_row(canvas, label, parts, scale)
        canvas.y += _GAP / 2
    canvas.upright(_LEFT + scale, top, "one plain decode")


def _draw_generations(canvas: _Canvas, data: Mapping[str, Any]) -> None:
    canvas.text(_GAP, "Generations: seconds a token, in those of plain decoding (dashed: 1, as fast)", bold=True)
    canvas.y += _ROW + _GAP
    rows = data["generations"]
    scale = _scale([row["time_ratio"] for row in rows] + [1.0])
    top = canvas.y
    for pattern in dict.fromkeys(row["pattern"] for row in rows):
        for row in rows:
            if row["pattern"] == pattern:
                replay = "" if row["replay"] == "none" else f", {row['replay']}"
                _draw_row(canvas, f"{pattern}: {row['strategy']}{replay}", {"": row["time_ratio"]}, scale)
        canvas.y += _GAP / 2
    canvas.upright(_LEFT + scale, top, "plain decoding")


def _draw_row(canvas: _Canvas, label: str, parts: Mapping[str, float], scale: float) -> None:
    canvas.text(_LEFT - _GAP, label, anchor="end")
    x: float = _LEFT
    for part, value in parts.items():
        canvas.bar(x, value * scale, _PARTS.get(part, _BAR), f"{label} {part} {value:.3f}")
        x += value * scale
    if x < _LEFT + scale < x + _NUMBER:  # the number stands behind the dashed line, not on it
        x = _LEFT + scale
    canvas.text(x + 4, f"{sum(parts.values()):.2f}")
    canvas.y += _ROW


def _scale(values: list[float]) -> float:
    """Pixels of 1, so that the largest value fits."""
    return (_WIDTH - _LEFT - _RIGHT) / max(values)
