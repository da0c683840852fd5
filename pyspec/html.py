"""Generated text and tables of numbers as HTML, for notebooks.

Owns the colours, the escaping and how much is shown; leaves the origins of tokens to `pyspec.rounds` and the numbers to
`pyspec.summary`. Styles are inline, nothing is loaded or run; colours are laid half transparent over the page's own
background, and text keeps the page's colour, so that light and dark themes both read well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from pyspec.rounds import Origin, RoundRecord, Span, spans

__all__ = ["N_TOKENS_SHOWN", "completion_html", "stats_html"]

N_TOKENS_SHOWN = 4000
"""Generated tokens that are shown, the first ones."""

_COLOURS: dict[Origin, str] = {
    "accepted": "rgba(0,114,178,0.35)",
    "bonus": "rgba(0,158,115,0.35)",
    "correction": "rgba(230,159,0,0.45)",
}
_LEGEND: dict[Origin, str] = {
    "accepted": "accepted from a draft",
    "bonus": "bonus: the model's own behind a whole draft",
    "correction": "correction: the model's own where a draft was wrong",
}
_BLOCK = "white-space:pre-wrap;overflow-wrap:anywhere;font-family:monospace;text-align:left"
_SMALL = "font-size:smaller;opacity:0.8;margin:0.5em 0"
_CELL = "text-align:left;vertical-align:top;white-space:pre-wrap;padding:0.1em 1em 0.1em 0"
# what may not stand in HTML at all is shown by its picture: U+2400 and the following
_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | {0x7F: 0x2421}


def stats_html(rows: Iterable[tuple[str, str]]) -> str:
    """A table of (what, its numbers)."""
    cells = "".join(
        f'<tr><td style="{_CELL}">{_safe(name)}</td><td style="{_CELL}">{_safe(numbers)}</td></tr>'
        for name, numbers in rows
    )
    return f'<table style="border-collapse:collapse"><tbody>{cells}</tbody></table>'


def completion_html(
    text: str,
    tokens: Sequence[int],
    ends: Sequence[int],
    rounds: Sequence[RoundRecord],
    *,
    summary: str,
    rows: Iterable[tuple[str, str]],
    echo: str = "",
) -> str:
    """Generated text with each token shaded by where it comes from, a legend, and the numbers to unfold.

    Args:
        text: the generated text; where it is empty the ids of the tokens are shown.
        tokens: [n_tokens] generated token ids.
        ends: [n_tokens] characters of `text` up to the end of each token; without them nothing is shaded.
        rounds: what each round did.
        summary: one line about the generation.
        rows: the table.
        echo: text that stands in front, unshaded.
    """
    found = spans(rounds, min(len(tokens), N_TOKENS_SHOWN))
    if not text:
        body = "".join(_shaded(_ids(tokens[s.start : s.end]), s, rounds) for s in found)
    elif len(ends) == len(tokens):
        body = "".join(_shaded(text[_end(ends, s.start) : _end(ends, s.end)], s, rounds) for s in found)
        if len(tokens) <= N_TOKENS_SHOWN:  # a stop string may have cut the last token in two
            body += _safe(text[_end(ends, len(tokens)) :])
    else:
        body = _safe(text)
    n_left = len(tokens) - N_TOKENS_SHOWN
    left = f'<div style="{_SMALL}">the first {N_TOKENS_SHOWN} tokens; {n_left} more are not shown</div>'
    body = _safe(echo) + body
    return (
        f'<div><div style="{_BLOCK}">{body}</div>{left if n_left > 0 else ""}{_legend({s.origin for s in found})}'
        f'<details><summary style="{_SMALL}">{_safe(summary)}</summary>{stats_html(rows)}</details></div>'
    )


def _end(ends: Sequence[int], n_tokens: int) -> int:
    """Characters of the first `n_tokens` tokens."""
    return ends[n_tokens - 1] if n_tokens else 0


def _ids(tokens: Sequence[int]) -> str:
    return "".join(f"{token} " for token in tokens)


def _shaded(part: str, span: Span, rounds: Sequence[RoundRecord]) -> str:
    colour = _COLOURS.get(span.origin)
    if colour is None or not part:
        return _safe(part)
    record = rounds[span.i_round]
    title = f"round {span.i_round}, {record.speculator}: accepted {record.n_accepted} of {record.n_drafted}"
    return f'<span style="background:{colour}" title="{_safe(title)}">{_safe(part)}</span>'


def _legend(shown: set[Origin]) -> str:
    marks = " ".join(
        f'<span style="background:{_COLOURS[origin]};padding:0 0.4em">{about}</span>'
        for origin, about in _LEGEND.items()
        if origin in shown
    )
    return f'<div style="{_SMALL}">{marks}</div>' if marks else ""


def _safe(part: str) -> str:
    return escape(part.translate(_PICTURES))
