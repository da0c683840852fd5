"""What the budget decides as a picture: the cost of decodes by width, and every draft of a few generations.

Owns what the marks show; leaves drawing to `svg`. Works on plain data, so that a JSON file will do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspec.bench.svg import GAP, LEFT, RIGHT, ROW, Canvas, scale

__all__ = ["budget_svg"]

_COSTS = {"measured": "#0072b2", "learned": "#a6a6a6"}
_ACCEPTED, _REJECTED, _PLAIN = "#0072b2", "#d55e00", "#d9d9d9"
_HEIGHT, _TALLEST = 64, 48
_WIDTHS = (1, 2, 4, 8, 16, 32, 48)


def budget_svg(data: Mapping[str, Any]) -> str:
    """`measure_budget(...)` as the text of an SVG file.

    Above: what decodes cost, in those of one token, as measured before and as learned. Below: for each workload the
    drafts over the tokens said, right tokens upwards in blue and wrong ones on top of them; light where none was made.
    """
    about, settings = data["about"], data["settings"]
    canvas = Canvas()
    canvas.y = GAP
    canvas.text(GAP, f"The budget on {about['model']}: {about['cpu']}, {', '.join(about['backends'])}", bold=True)
    canvas.y += ROW
    canvas.text(
        GAP,
        f"{about['architecture']} {about['quantization']}, {about['n_threads']} threads, spec {settings['spec']}, "
        f"budget {settings['budget']}, rollback {settings['rollback']}, llama.cpp {about['llama_cpp']}, "
        f"pyspec {about['pyspec']}",
    )
    canvas.y += 2 * ROW
    _draw_costs(canvas, data["costs"])
    for workload in data["workloads"]:
        _draw_rounds(canvas, workload)
    return canvas.svg()


def _draw_costs(canvas: Canvas, costs: Mapping[str, Sequence[Sequence[float]]]) -> None:
    canvas.text(GAP, "A decode by its width, in decodes of one token (dashed: 1)", bold=True)
    canvas.y += ROW
    curves = {name: {int(width): s for width, s in points} for name, points in costs.items() if points}
    x: float = LEFT
    for name in curves:
        canvas.bar(x, ROW - 4, _COSTS[name], name)
        canvas.text(x + ROW, f"{name} in {'its own time' if name == 'measured' else 'the generations'}")
        x += 220
    canvas.y += ROW + GAP
    shares = {
        (name, width): curve[width] / curve[1] for name, curve in curves.items() for width in _WIDTHS if width in curve
    }
    pixels = scale([1.0, *shares.values()])
    top = canvas.y
    for width in _WIDTHS:
        for name in curves:
            if (name, width) in shares:
                canvas.row(f"width {width}", {name: shares[name, width]}, _COSTS, pixels)
    canvas.upright(LEFT + pixels, top, "one token")
    canvas.y += ROW


def _draw_rounds(canvas: Canvas, workload: Mapping[str, Any]) -> None:
    share = workload["oracle_share"]
    reached = "" if share is None else f", {share:.0%} of what its widths allow"
    canvas.text(
        GAP, f"{workload['workload']}: {workload['speed']:.2f} times plain{reached} ({workload['about']})", bold=True
    )
    canvas.y += ROW
    canvas.text(GAP, f"drafted at each of {workload['n_tokens']} tokens: right, wrong (to {_TALLEST})")
    canvas.y += ROW
    left = float(GAP)
    pixels = (RIGHT - left) / max(1, workload["n_tokens"] + 1)
    floor = canvas.y + _HEIGHT
    for said, _, n_drafted, n_accepted, why in workload["rounds"]:
        x, width = left + said * pixels, max(1.0, (n_accepted + 1) * pixels - 0.5)
        one = _HEIGHT / _TALLEST
        if not n_drafted:
            canvas.box(x, floor - 2, width, 2, _PLAIN, f"{said}: {why}")
            continue
        accepted, rejected = (one * min(n, _TALLEST) for n in (n_accepted, n_drafted - n_accepted))
        about = f"{said}: {why}, {n_accepted} right"
        canvas.box(x, floor - accepted, width, accepted, _ACCEPTED, about)
        if rejected:
            canvas.box(x, floor - accepted - rejected, width, rejected, _REJECTED, about)
    canvas.y = floor + ROW
