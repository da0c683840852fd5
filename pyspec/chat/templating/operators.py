"""Operators, conversions and comparisons of a template, each measured before it is done.

Owns `+ - * / // % **`, `~`, comparisons, slices, and values as text or JSON. Leaves filters and methods to their
modules.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

from jinja2 import Undefined

from pyspec.chat.templating.meter import STEP, Meter

__all__ = [
    "NUMBER_MAX",
    "WIDTH_MAX",
    "as_json",
    "as_text",
    "binary",
    "check_key",
    "check_number",
    "compare",
    "concat",
    "join",
    "percent_format",
    "search_cost",
    "slice_of",
]

_CONVERSION = re.compile(r"%(?:\([^()]*\))?[-+ #0]*(\*|\d*)(?:\.(\*|\d*))?")
WIDTH_MAX = 999
"""Widest field of a format."""
NUMBER_MAX = 330
"""Characters of the longest number: a float written out."""
_LISTS = (list, tuple)

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
    "in": lambda a, b: a in b,
    "notin": lambda a, b: a not in b,
}


def check_number(value: Any) -> Any:
    """`value`, when it is a number.

    Raises:
        TypeError: it is not.
    """
    if not isinstance(value, (int, float)):
        raise TypeError(f"a number is needed, got {type(value).__name__}")
    return value


def check_key(value: Any) -> Any:
    """`value`, when it may be a key of a dict: a text, a number, true, false or none.

    Raises:
        TypeError: it may not; hashing what is nested has no bound.
    """
    if isinstance(value, Undefined) or type(value) in (str, int, float, bool, type(None)):
        return value
    raise TypeError(f"a key of type {type(value).__name__}; keys are texts or numbers")


# ----------------------------------------------------------------- text
def as_text(meter: Meter, value: Any) -> str:
    """What `value` prints as."""
    if type(value) is str:
        return value
    if not isinstance(value, Undefined):
        meter.size(value, plain=True)
    text = str(value)
    meter.expect(len(text))
    return text


def as_json(
    meter: Meter,
    value: Any,
    *,
    indent: int | str | None = None,
    ensure_ascii: bool = False,
    separators: Sequence[str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as Hugging Face's templates expect it: nothing is escaped for HTML, characters stay what they are."""
    if isinstance(value, Undefined):
        raise TypeError("an undefined value has no JSON")
    width = len(indent) if isinstance(indent, str) else int(indent or 0)
    pair = tuple(as_text(meter, part) for part in separators) if separators is not None else None
    if pair is not None and len(pair) != 2:
        raise TypeError("separators are two texts")
    meter.size(value, plain=True, indent=max(width, 0) + sum(map(len, pair or ())))
    text = json.dumps(value, indent=indent, ensure_ascii=bool(ensure_ascii), separators=pair, sort_keys=bool(sort_keys))
    meter.expect(len(text))
    return text


def concat(meter: Meter, values: Sequence[Any]) -> str:
    """`a ~ b ~ ...`."""
    texts = [as_text(meter, value) for value in values]
    meter.expect(sum(map(len, texts)))
    return "".join(texts)


def join(meter: Meter, separator: str, values: Sequence[Any]) -> str:
    """The values as texts, with `separator` between them."""
    meter.charge(STEP * len(values))
    texts = [as_text(meter, value) for value in values]
    meter.expect(sum(map(len, texts)) + len(separator) * max(len(texts) - 1, 0))
    return separator.join(texts)


def search_cost(text: str, needle: str, *, reverse: bool = False) -> int:
    """Units that a search may take: CPython's is linear forward in long texts only, and never backward."""
    tried = len(needle) if reverse or len(text) < 30_000 else min(len(needle), 100)
    return len(text) * max(tried, 8) // 64


def percent_format(meter: Meter, text: str, values: Any) -> str:
    """`text % values`, where no width is above `WIDTH_MAX` and none comes from the values."""
    meter.expect(len(text) + NUMBER_MAX * text.count("%"))
    found = [numbers for pair in _CONVERSION.findall(text) for numbers in pair]
    if any(number == "*" or len(number) > 3 for number in found):
        raise TypeError(f"a width above {WIDTH_MAX}, or one taken from the values, in {text[:40]!r}")
    widest = max(NUMBER_MAX, *(meter.size(value, plain=True) for value in _each(values)))
    meter.expect(len(text) + sum(int(number or 0) for number in found) + len(found) * widest)
    result: str = text % values
    meter.expect(len(result))
    return result


def _each(values: Any) -> list[Any]:
    parts = list(values.values()) if type(values) is dict else list(values) if type(values) is tuple else []
    return [*parts, values]


# ----------------------------------------------------------------- operators
def binary(meter: Meter, op: str, left: Any, right: Any) -> Any:
    """`left op right`."""
    meter.charge(STEP)
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return _arithmetic(meter, op, left, right)
    if op == "+" and type(left) is type(right) and type(left) in (str, *_LISTS):
        each = 1 if type(left) is str else 8
        meter.expect(each * (len(left) + len(right)))
        return left + right
    if op == "*":
        many, times = (right, left) if isinstance(left, int) else (left, right)
        if type(many) in (str, *_LISTS) and isinstance(times, int):
            each = 1 if type(many) is str else 8
            meter.expect(each * len(many) * max(times, 0))
            return many * times
    if op == "%" and type(left) is str:
        return percent_format(meter, left, right)
    if isinstance(left, Undefined) or isinstance(right, Undefined):
        return _ARITHMETIC[op](left, right)  # raises, and names the variable
    raise TypeError(f"{type(left).__name__} {op} {type(right).__name__} means nothing")


def _arithmetic(meter: Meter, op: str, left: int | float, right: int | float) -> Any:
    if op == "**" and isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * abs(right)
        meter.number(1 << bits if bits < 10_000 else 1 << 10_000)
    return meter.number(_ARITHMETIC[op](left, right))


def compare(meter: Meter, values: Sequence[Any], ops: Sequence[str]) -> bool:
    """`a < b <= c ...`, one operator between each two values."""
    for op, left, right in zip(ops, values, values[1:], strict=False):
        meter.charge(STEP + _compare_cost(meter, op, left, right))
        if not _COMPARE[op](left, right):
            return False
    return True


def _compare_cost(meter: Meter, op: str, left: Any, right: Any) -> int:
    if op in ("in", "notin"):
        return _in_cost(meter, left, right)
    if type(left) is str and type(right) is str:
        return min(len(left), len(right)) // 8
    if type(left) in (*_LISTS, dict) and type(right) in (*_LISTS, dict):
        return meter.size(left) + meter.size(right)
    return 0


def _in_cost(meter: Meter, item: Any, many: Any) -> int:
    if type(many) is str:
        return search_cost(many, item) if type(item) is str else 0
    if type(many) is dict:
        check_key(item)
        return 0
    if type(many) in _LISTS:
        one = len(item) // 8 if type(item) is str else 0
        if type(item) in (*_LISTS, dict):
            return meter.size(many) + len(many) * meter.size(item)
        return len(many) * (1 + one)
    return len(many) if type(many) is range else 0


def slice_of(meter: Meter, value: Any, start: Any, stop: Any, step: Any) -> Any:
    """`value[start:stop:step]`."""
    if isinstance(value, Undefined):
        return value[0]  # raises, and names the variable
    if type(value) not in (str, *_LISTS, range):
        raise TypeError(f"{type(value).__name__} cannot be sliced")
    n = len(range(*slice(start, stop, step).indices(len(value))))
    meter.expect(n if type(value) is str else 8 * n)
    return value[start:stop:step]
