"""Where a benchmark's results go: `--json`, `--markdown` and `--plot`, for every benchmark.

Owns these options, that a file is known to be writable before minutes are spent, what stdout gets, and its layout.
Leaves the words to each benchmark.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from pyspec.bench.tables import Table
from pyspec.cli.parser import Parser
from pyspec.cli.table import table

__all__ = ["add_outputs", "check_outputs", "comma_list", "report_text", "write_outputs"]

_LINE = 100
_STDOUT = "-"
_OPTIONS = ("json", "markdown", "plot")


def add_outputs(parser: Parser) -> None:
    """Add the three options."""
    parser.add_argument("--json", metavar="FILE", help="write JSON; - prints it instead of the table")
    parser.add_argument("--markdown", metavar="FILE", help="write Markdown; - prints it instead of the table")
    parser.add_argument("--plot", metavar="FILE", help="write a picture (SVG)")


def check_outputs(args: argparse.Namespace) -> None:
    """Refuse what cannot be written, before anything is measured.

    Raises:
        SystemExit: two texts for stdout, one file for two of them, or a file that cannot be written.
    """
    given = {f"--{name}": getattr(args, name) for name in _OPTIONS if getattr(args, name) is not None}
    if args.plot == _STDOUT:
        args.parser.error("--plot -: a picture needs a file")
    if len(set(given.values())) < len(given):
        args.parser.error(f"{' and '.join(given)} need different places")
    for option, name in given.items():
        if name == _STDOUT:
            continue
        path = Path(name)
        if not name or path.is_dir() or not path.parent.is_dir():
            args.parser.error(f"{option} {name!r}: not a file in a folder that exists")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            args.parser.error(f"{option} {name!r}: must not be written")


def write_outputs(
    args: argparse.Namespace, data: Mapping[str, Any], texts: Mapping[str, Callable[[Mapping[str, Any]], str]]
) -> None:
    """Write `data` to the files that were asked for, and one text to stdout.

    `texts` makes "text" (for stdout, unless another goes there), "markdown" and "plot" of the data.
    """
    makers = {"json": lambda found: json.dumps(found, indent=2) + "\n", **texts}
    shown = next((name for name in _OPTIONS if getattr(args, name) == _STDOUT), "text")
    for name in _OPTIONS:
        place = getattr(args, name)
        if place not in (None, _STDOUT):
            Path(place).write_text(makers[name](data), encoding="utf-8")
    print(makers[shown](data), end="")


def report_text(about: Sequence[Sequence[str]], tables: Sequence[Table], notes: Sequence[str]) -> str:
    """Facts by name, tables under their titles, and notes, as plain text."""
    parts = [table(about)]
    for one in tables:
        numbers = range(one.n_left, len(one.header))
        parts.append(f"{fill(one.title, _LINE)}\n{table(one.rows, header=one.header, right=numbers)}")
    parts.append("\n".join(notes))
    return "\n\n".join(filter(None, parts)) + "\n"


def comma_list(args: argparse.Namespace, name: str) -> tuple[str, ...] | None:
    """The option `--name` as the parts between its commas, None where it was not given.

    Raises:
        SystemExit: an empty part.
    """
    text = getattr(args, name)
    if text is None:
        return None
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts):
        args.parser.error(f"--{name} {text!r}: must be a list like a,b,c")
    return parts
