"""Bars in an SVG file that needs nothing but a browser.

Owns the drawing of labelled rows; leaves what they show to each benchmark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

__all__ = ["GAP", "LEFT", "RIGHT", "ROW", "Canvas", "scale"]

GAP, ROW, LEFT = 10, 16, 250
"""Pixels between things, of a row's height, and to the left of the bars."""

RIGHT = 830
"""Where bars end at most."""

_WIDTH, _TEXT, _NUMBER = 900, 11, 36


class Canvas:
    """Elements of an SVG body, and how far down it is filled."""

    def __init__(self) -> None:
        self.elements: list[str] = []
        self.y = 0.0

    def text(self, x: float, text: str, *, anchor: str = "start", bold: bool = False) -> None:
        """Words at `x` in the present row."""
        weight = ' font-weight="bold"' if bold else ""
        self.elements.append(
            f'<text x="{x:.1f}" y="{self.y + _TEXT:.1f}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'
        )

    def bar(self, x: float, width: float, colour: str, about: str) -> None:
        """A bar in the present row; `about` is shown under the pointer."""
        self.elements.append(
            f'<rect x="{x:.1f}" y="{self.y:.1f}" width="{max(width, 0):.2f}" height="{ROW - 4}" fill="{colour}">'
            f"<title>{escape(about)}</title></rect>"
        )

    def box(self, x: float, y: float, width: float, height: float, colour: str, about: str) -> None:
        """A rectangle anywhere; `about` is shown under the pointer."""
        self.elements.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" fill="{colour}">'
            f"<title>{escape(about)}</title></rect>"
        )

    def upright(self, x: float, top: float, about: str) -> None:
        """A dashed line from `top` down to the present row."""
        self.elements.append(
            f'<line x1="{x:.1f}" y1="{top:.1f}" x2="{x:.1f}" y2="{self.y:.1f}" stroke="#333" stroke-dasharray="4 3">'
            f"<title>{escape(about)}</title></line>"
        )

    def row(self, label: str, parts: Mapping[str, float], colours: Mapping[str, str], scale: float) -> None:
        """A labelled bar of parts, `scale` pixels to 1, with their sum behind it."""
        self.text(LEFT - GAP, label, anchor="end")
        x: float = LEFT
        for part, value in parts.items():
            self.bar(x, value * scale, colours[part], f"{label} {part} {value:.3f}")
            x += value * scale
        if x < LEFT + scale < x + _NUMBER:  # the number stands behind the dashed line, not on it
            x = LEFT + scale
        self.text(x + 4, f"{sum(parts.values()):.2f}")
        self.y += ROW

    def svg(self) -> str:
        """The text of the file."""
        height = self.y + GAP
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height:.0f}" '
            f'viewBox="0 0 {_WIDTH} {height:.0f}" font-family="sans-serif" font-size="{_TEXT}">'
        )
        white = '<rect width="100%" height="100%" fill="white"/>'
        return "\n".join([head, white, *self.elements, "</svg>"]) + "\n"


def scale(values: Sequence[float]) -> float:
    """Pixels of 1, so that the largest value fits."""
    return (RIGHT - LEFT) / max(values)
