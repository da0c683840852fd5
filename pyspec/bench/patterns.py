"""Acceptance patterns: how many tokens each draft has and how many of them are right.

Owns the patterns' names; leaves trace files to `trace` and making drafts of a pattern to `generations`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pyspec.bench.trace import MAX_DRAFT, Trace, read_trace
from pyspec.errors import InvalidValueError, UnknownOptionError

__all__ = ["KNOWN", "Pattern", "parse_pattern"]

KNOWN = ("all", "none", "half", "3of8", "trace:FILE")
"""Patterns as a user names them; any other numbers may stand in "3of8"."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Rounds of (n_drafted, n_right), played from the start again when they are over.

    Attributes:
        name: "all", "none", "half", "3of8", or "trace:" and the file's name without its folder.
        rounds: at least one.
    """

    name: str
    rounds: Trace

    @property
    def longest(self) -> int:
        """Tokens of the longest draft."""
        return max(n_drafted for n_drafted, _ in self.rounds)


def parse_pattern(text: str, *, n_draft: int) -> Pattern:
    """The pattern that `text` names; `n_draft` is the length of drafts where the name has none.

    Raises:
        UnknownOptionError: no such pattern.
        InvalidValueError: more tokens right than drafted, a longer draft than `MAX_DRAFT`, or a malformed trace.
        OSError: the trace cannot be read.
    """
    plain = {"all": n_draft, "none": 0, "half": n_draft // 2}
    if text in plain:
        return Pattern(text, ((n_draft, plain[text]),))
    if text.startswith("trace:"):
        file = Path(text.removeprefix("trace:"))
        return Pattern(f"trace:{file.name}", read_trace(file))
    numbers = re.fullmatch(r"([0-9]{1,4})of([0-9]{1,4})", text)
    if numbers is None:
        raise UnknownOptionError(name=text, known=KNOWN, where="pattern")
    n_right, n_drafted = int(numbers[1]), int(numbers[2])
    if not (n_right <= n_drafted and 1 <= n_drafted <= MAX_DRAFT):
        raise InvalidValueError(
            name="pattern", value=text, allowed=f"at most as many right as drafted, and 1 to {MAX_DRAFT} drafted"
        )
    return Pattern(text, ((n_drafted, n_right),))
