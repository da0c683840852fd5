"""The argument parser that all subcommands share.

Owns how a misuse is told: one line, the nearest known option, exit code 2.
Leaves every option to its subcommand.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from typing import Any, NoReturn

__all__ = ["Parser"]


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` without abbreviations, whose errors are short."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Print one line about the misuse and exit with 2."""
        sys.stderr.write(f"pyspec: error: {message}\nSee `{self.prog} --help`.\n")
        sys.exit(2)

    def refuse(self, unknown: str) -> NoReturn:
        """The error for an argument that this subcommand does not know."""
        name = unknown.partition("=")[0]
        if not name.startswith("-"):
            self.error(f"unexpected argument {unknown!r}")
        near = difflib.get_close_matches(name, self._option_string_actions, n=1, cutoff=0.5)
        self.error(f"unknown option {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
