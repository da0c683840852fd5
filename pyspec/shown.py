"""Values of callers inside messages: short, whatever they are.

Owns how much of a value an error shows, and that showing it cannot fail. Leaves what is said about it to `errors`.
"""

from __future__ import annotations

import reprlib

__all__ = ["cut", "shown"]

_N_VALUE = 400
_N_MESSAGE = 2000


class _Short(reprlib.Repr):
    """As `repr`, of the first items of the first few levels."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 5
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxfrozenset = self.maxdeque = 12
        self.maxarray = 12
        self.maxstring = self.maxother = 200
        self.maxlong = 60

    def repr_dict(self, x: dict[object, object], level: int) -> str:
        """In the order of the dict, which reprlib sorts."""
        if level <= 0 and x:
            return "{...}"
        shown = [f"{self.repr1(key, level - 1)}: {self.repr1(x[key], level - 1)}" for key in list(x)[: self.maxdict]]
        return "{" + ", ".join(shown + ["..."] * (len(x) > self.maxdict)) + "}"

    def repr_int(self, x: int, level: int) -> str:
        """Python refuses to write very long numbers."""
        return repr(x) if abs(x) < 10**self.maxlong else f"<a number of {x.bit_length()} bits>"


_short = _Short()


def shown(value: object) -> str:
    """`value` as Python writes it, cut after some hundred characters; never an error, however deep or long it is."""
    try:
        text = _short.repr(value)
    except Exception:  # a caller's own __repr__ may do anything
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _N_VALUE else f"{text[:_N_VALUE]}..."


def cut(message: str) -> str:
    """`message`, its middle left out where it is far too long to be read."""
    if len(message) <= _N_MESSAGE:
        return message
    return f"{message[: _N_MESSAGE // 2]} ... ({len(message)} characters) ... {message[-_N_MESSAGE // 2 :]}"
