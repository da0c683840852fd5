"""Where a prompt comes from: an argument, a file, stdin, or token ids.

Owns its reading, to the last byte (the final line end of a file is part of it); leaves tokenizing to others.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pyspec.cli.parser import Parser
from pyspec.errors import InvalidValueError

__all__ = ["add_arguments", "read"]


def add_arguments(parser: Parser) -> None:
    """Add PROMPT, `--file` and `--tokens`."""
    parser.add_argument("prompt", nargs="?", metavar="PROMPT", help="the prompt; - reads it from stdin")
    parser.add_argument("-f", "--file", type=Path, metavar="FILE", help="read the prompt from a file, as it is")
    parser.add_argument("--tokens", metavar="IDS", help='the prompt as token ids, e.g. "1,2,3"; ids are printed too')


def read(args: argparse.Namespace) -> str | list[int]:
    """The prompt that the arguments name: text, or token ids.

    Raises:
        SystemExit: none or several were given.
        InvalidValueError: it is not UTF-8, or a token id is no number.
        OSError: the file cannot be read.
    """
    given = [name for name in ("prompt", "file", "tokens") if getattr(args, name) is not None]
    if len(given) > 1:
        args.parser.error("give one prompt: PROMPT, --file or --tokens")
    if args.tokens is not None:
        return _ids(args.tokens)
    if args.file is not None:
        return _text(args.file.read_bytes(), str(args.file))
    if args.prompt not in (None, "-"):
        return _text(args.prompt.encode("utf-8", "surrogateescape"), "PROMPT")
    if args.prompt is None and sys.stdin.isatty():
        args.parser.error("no prompt: give PROMPT or --file, or pipe it in")
    return _text(sys.stdin.buffer.read(), "stdin")


def _text(data: bytes, source: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidValueError(
            name=source, value=data[error.start : error.start + 4], allowed=f"UTF-8, byte {error.start} is not"
        ) from None


def _ids(text: str) -> list[int]:
    try:
        return [int(piece) for piece in text.replace(",", " ").split()]
    except ValueError:
        raise InvalidValueError(name="tokens", value=text, allowed='token ids like "1,2,3"') from None
