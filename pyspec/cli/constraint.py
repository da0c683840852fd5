"""What a generated text must look like, as arguments: a JSON schema, a regular expression, several texts.

Owns their reading, from the command line or a file; leaves their meaning to `pyspec.constraint`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspec.cli.parser import Parser
from pyspec.constraint import Choice, Constraint, JsonSchema, Regex
from pyspec.constraint.kinds import llguidance
from pyspec.errors import InvalidValueError

__all__ = ["add_arguments", "read"]

_NAMES = ("json_schema", "regex", "choice")


def add_arguments(parser: Parser) -> None:
    """Add `--json-schema`, `--regex` and `--choice`."""
    group = parser.add_argument_group("constraint", 'one of these; needs the package "pyspec-llama[constraints]"')
    group.add_argument(
        "--json-schema", metavar="FILE|TEXT", help="the text is JSON of this schema, from a file or written here"
    )
    group.add_argument("--regex", metavar="PATTERN", help="the pattern matches the whole text")
    group.add_argument("--choice", action="append", metavar="TEXT", help="the text is this one; given again: or that")


def read(args: argparse.Namespace) -> Constraint | None:
    """The constraint that the arguments name, None for none.

    Raises:
        SystemExit: several were given.
        InvalidValueError: one that cannot be.
        UnsupportedError: the package that follows them is not installed.
        OSError: the schema's file cannot be read.
    """
    given = [name for name in _NAMES if getattr(args, name) is not None]
    if not given:
        return None
    if len(given) > 1:
        args.parser.error("give one constraint: --json-schema, --regex or --choice")
    llguidance()
    if args.regex is not None:
        return Regex(args.regex)
    return Choice(args.choice) if args.choice is not None else JsonSchema(_schema(args.json_schema))


def _schema(given: str) -> str:
    """Text that begins like JSON is a schema, everything else the name of a file."""
    if given.lstrip()[:1] == "{" or given.strip() == "true":
        return given
    data = Path(given).read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        value, allowed = data[error.start : error.start + 4], f"UTF-8, byte {error.start} is not"
        raise InvalidValueError(name=given, value=value, allowed=allowed) from None
