"""Tables of cells for any layout, and reports as Markdown to be posted.

Owns the type, the Markdown, and the facts about model, build and machine that every report begins with. Leaves what
stands in which table to each benchmark, and plain text to the command line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Table", "facts", "markdown", "milliseconds", "percent"]


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts.

    Attributes:
        title: what it shows, in a sentence or two.
        header: titles of the columns.
        rows: cells; the first `n_left` columns are words, the others numbers.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    n_left: int


def markdown(title: str, about: Sequence[Sequence[str]], tables: Sequence[Table], notes: Sequence[str]) -> str:
    """A report under a heading: facts by name, tables, notes."""
    lines = [f"## {title}", "", *(f"- {name}: {value}" for name, value in about)]
    for table in tables:
        marks = ["---"] * table.n_left + ["---:"] * (len(table.header) - table.n_left)
        lines += ["", table.title, "", _line(table.header), _line(marks), *map(_line, table.rows)]
    return "\n".join([*lines, *([""] if notes else []), *(f"- {note}" for note in notes)]) + "\n"


def facts(about: Mapping[str, Any]) -> list[list[str]]:
    """Name and value of each fact that `pyspec.bench.machine.describe` found."""
    memory = about["memory"].replace("_", " ")
    if about["state_bytes"]:
        memory += f", recurrent state of {about['state_bytes']:,} bytes a sequence"
    devices = (f"{d['name']} ({d['about']})" for d in about["devices"])
    return [
        ["model", f"{about['model']}: {about['architecture']}, {about['quantization']}, {about['n_bytes']:,} bytes"],
        ["memory", memory],
        ["build", f"pyspec {about['pyspec']}, llama.cpp {about['llama_cpp']}, backends {', '.join(about['backends'])}"],
        ["devices", ", ".join(devices)],
        ["CPU", f"{about['cpu']}, n_threads {about['n_threads']}"],
        ["system", f"{about['os']}, Python {about['python']}"],
    ]


def milliseconds(seconds: float) -> str:
    """Three decimals, without the unit."""
    return f"{1e3 * seconds:.3f}"


def percent(share: float) -> str:
    """A share with one decimal and the sign."""
    return f"{100 * share:.1f}%"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
