"""How much a template may do, and the count of what it did.

Owns the limits, the units of work and the sizes of values; leaves to the guards of this package when to count.
Every count is deterministic: no clock, no tracing, no signal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from pyspec.config import Check, int_between, validate

__all__ = ["STEP", "LimitReached", "Meter", "TemplateLimits"]

STEP = 8
"""Units of one operation that the template's text asks for: about 0.5 microseconds, or 60 bytes."""

_SCALARS = (int, float, bool, type(None))


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateLimits:
    """Bounds of one rendering.

    A unit of work is one character or 1/8 of a small object made, 8 characters read, or 1/8 of an operation; what was
    handed to the template (`n_input`, in characters) raises the bounds in proportion.

    Attributes:
        n_source: most characters of the template itself.
        n_work: units of work, plus `n_work_per_input` for each character of input, and `n_work_per_pair` for each two
            messages: some templates look through all of them for each one.
        n_chars: longest text, and output; longest list times 8; plus `n_chars_per_input` for each character of input.
        n_depth: macros and recursive loops inside each other.
        n_nested: lists and dicts inside each other.
        n_bits: longest whole number.

    Raises:
        InvalidValueError: a bound below 1.
    """

    n_source: int = 100_000
    n_work: int = 10_000_000
    n_work_per_input: int = 100
    n_work_per_pair: int = 200
    n_chars: int = 1_000_000
    n_chars_per_input: int = 4
    n_depth: int = 50
    n_nested: int = 100
    n_bits: int = 128

    _CHECK: ClassVar[Check] = int_between(1, 2**40)

    def __post_init__(self) -> None:
        validate(self, dict.fromkeys(self.__slots__, self._CHECK))


class LimitReached(Exception):
    """The template asked for more than a limit; never a ValueError, which Jinja's filters would swallow."""

    def __init__(self, limit: str, allowed: int, what: str) -> None:
        super().__init__(f"stopped at the limit {limit}={allowed}: {what}")
        self.limit = limit


class Meter:
    """Counts one rendering.

    Args:
        limits: the bounds.
        n_input: characters of what the template is given.
        n_messages: how many messages are among it.
    """

    __slots__ = ("_depth", "_limits", "_max_work", "_work", "max_chars")

    def __init__(self, limits: TemplateLimits, n_input: int = 0, n_messages: int = 0) -> None:
        self._limits = limits
        self._max_work = limits.n_work + limits.n_work_per_input * n_input + limits.n_work_per_pair * n_messages**2
        self.max_chars = limits.n_chars + limits.n_chars_per_input * n_input
        self._work = 0
        self._depth = 0

    @property
    def work(self) -> int:
        """Units so far."""
        return self._work

    def charge(self, n: int) -> None:
        """Count `n` units of work.

        Raises:
            LimitReached: they are more than there are.
        """
        self._work += n
        if self._work > self._max_work:
            raise LimitReached("n_work", self._max_work, "too many steps, or too much text made on the way")

    def expect(self, n_chars: int) -> None:
        """Refuse a value of `n_chars` characters before it is made; one that may be is charged.

        Raises:
            LimitReached: it is longer than a value may be, or too much work.
        """
        if n_chars > self.max_chars:
            raise LimitReached("n_chars", self.max_chars, f"a value of {n_chars} characters")
        self.charge(n_chars)

    def enter(self) -> None:
        """Begin a macro or a recursive loop."""
        self._depth += 1
        if self._depth > self._limits.n_depth:
            raise LimitReached("n_depth", self._limits.n_depth, "macros or loops that call themselves")

    def leave(self) -> None:
        """End what `enter` began."""
        self._depth -= 1

    def number(self, value: Any) -> Any:
        """`value`, unless it is too long a whole number."""
        if type(value) is int and value.bit_length() > self._limits.n_bits:
            raise LimitReached("n_bits", self._limits.n_bits, f"a number of {value.bit_length()} bits")
        return value

    def size(self, value: Any, *, plain: bool = False, indent: int = 0) -> int:
        """Characters that `value` takes when everything in it is written out, what stands twice counted twice.

        Args:
            value: a text, number, or lists and dicts of them.
            plain: refuse anything else in it, such as namespaces and macros, with a TypeError.
            indent: characters of one level of indentation.

        Raises:
            LimitReached: larger than a value may be, or nested too deep.
        """
        if type(value) is str:
            return len(value)
        total, stack = 0, [iter((value,))]
        while stack:
            for item in stack[-1]:
                total += 8 + indent * len(stack)
                kind = type(item)
                if kind is str:
                    total += len(item)
                elif kind in (list, tuple, dict):
                    stack.append(_parts(item))
                elif kind is range:
                    total += 8 * len(item)
                if plain and kind not in (str, list, tuple, dict, *_SCALARS):
                    raise TypeError(f"a value of type {kind.__name__} cannot be written as text")
                if total > self.max_chars:
                    raise LimitReached("n_chars", self.max_chars, "a value of lists or dicts that is too large")
                if len(stack) > self._limits.n_nested:
                    raise LimitReached("n_nested", self._limits.n_nested, "lists or dicts inside each other")
                if kind in (list, tuple, dict):
                    break
            else:
                stack.pop()
        self.charge(total // 8)
        return total


def _parts(value: Any) -> Iterator[Any]:
    if type(value) is dict:
        return (part for pair in value.items() for part in pair)
    return iter(value)
