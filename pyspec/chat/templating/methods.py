"""Methods that a template may call on texts, lists and dicts.

Owns the list of them and what each may cost; a template never holds a bound method of Python.
Leaves filters to `pyspec.chat.templating.filters`.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspec.chat.templating.meter import STEP, Meter
from pyspec.chat.templating.operators import NUMBER_MAX, WIDTH_MAX, check_key, compare, join, search_cost

__all__ = ["METHODS", "Method", "replace"]

Args = Sequence[Any]
Handler = Callable[[Meter, Any, Args, Mapping[str, Any]], Any]

_ELEMENT = 32
"""Units of one small text in a list."""


class Method:
    """A method of a value, to be called by the environment only."""

    __slots__ = ("handler", "value")

    def __init__(self, value: Any, handler: Handler) -> None:
        self.value, self.handler = value, handler

    def call(self, meter: Meter, args: Args, kwargs: Mapping[str, Any]) -> Any:
        """The method's result."""
        meter.charge(STEP)
        return self.handler(meter, self.value, args, kwargs)


def _checked(meter: Meter, args: Args, kwargs: Mapping[str, Any]) -> None:
    for arg in (*args, *kwargs.values()):
        parts = arg if type(arg) is tuple else (arg,)
        meter.charge(len(parts))
        if not all(type(part) in (str, int, bool, type(None)) for part in parts):
            raise TypeError("methods of a text take texts and numbers")


def _done(meter: Meter, result: Any) -> Any:
    if type(result) is str:
        meter.expect(len(result))
    elif type(result) in (list, tuple):
        meter.charge(sum(map(len, result)) + _ELEMENT * len(result))
    return result


def _reading(name: str) -> Handler:
    """A method that reads the text once for each character of its arguments, at worst."""

    def handler(meter: Meter, text: str, args: Args, kwargs: Mapping[str, Any]) -> Any:
        _checked(meter, args, kwargs)
        needle = max((len(a) for a in (*args, *kwargs.values()) if type(a) is str), default=0)
        meter.charge(len(text) * max(needle, 8) // 64)
        return _done(meter, getattr(text, name)(*args, **kwargs))

    return handler


def _searching(name: str, *, reverse: bool = False) -> Handler:
    def handler(meter: Meter, text: str, args: Args, kwargs: Mapping[str, Any]) -> Any:
        _checked(meter, args, kwargs)
        needle = args[0] if args and type(args[0]) is str else kwargs.get("sep") or ""
        meter.charge(search_cost(text, needle, reverse=reverse) + len(text) // 8)
        return _done(meter, getattr(text, name)(*args, **kwargs))

    return handler


def _padding(name: str) -> Handler:
    def handler(meter: Meter, text: str, args: Args, kwargs: Mapping[str, Any]) -> Any:
        _checked(meter, args, kwargs)
        meter.expect(max([len(text), *(a for a in args if isinstance(a, int))]))
        return getattr(text, name)(*args, **kwargs)

    return handler


def replace(meter: Meter, text: str, old: str, new: str, count: int | None = None) -> str:
    """`text` with `new` for `old`, the first `count` times or always."""
    meter.charge(search_cost(text, old))
    n = text.count(old) if count is None or count < 0 else min(text.count(old), count)
    meter.expect(len(text) + n * (len(new) - len(old)))
    return text.replace(old, new, n)


def _replace(meter: Meter, text: str, args: Args, kwargs: Mapping[str, Any]) -> str:
    _checked(meter, args, kwargs)
    return replace(meter, text, *args, **kwargs)


def _join(meter: Meter, text: str, args: Args, kwargs: Mapping[str, Any]) -> str:
    (values,) = args
    items = list(values)
    if kwargs or not all(type(item) is str for item in items):
        raise TypeError("join takes one list of texts")
    return join(meter, text, items)


def _format(meter: Meter, text: str, args: Args, kwargs: Mapping[str, Any]) -> str:
    widest = max([NUMBER_MAX, *(meter.size(value, plain=True) for value in (*args, *kwargs.values()))])
    n_chars = len(text)
    meter.expect(n_chars + NUMBER_MAX * text.count("{"))
    for _, field, spec, _ in string.Formatter().parse(text):
        if field is None:
            continue
        digits = "".join(c if c.isdigit() else " " for c in spec or "").split()
        if any(c in field for c in ".[") or "{" in (spec or "") or any(len(d) > 3 for d in digits):
            raise TypeError(f"format: a field of {text[:40]!r} names an attribute, or has a width above {WIDTH_MAX}")
        n_chars += widest + sum(map(int, digits))
    meter.expect(n_chars)
    result = text.format(*args, **kwargs)
    meter.expect(len(result))
    return result


def _get(meter: Meter, value: dict[str, Any], args: Args, kwargs: Mapping[str, Any]) -> Any:
    if args:
        check_key(args[0])
    return value.get(*args, **kwargs)


def _listed(name: str) -> Handler:
    def handler(meter: Meter, value: dict[str, Any], args: Args, kwargs: Mapping[str, Any]) -> Any:
        meter.charge(len(value) * (_ELEMENT if name == "items" else STEP))
        return list(getattr(value, name)(*args, **kwargs))

    return handler


def _copy(meter: Meter, value: Any, args: Args, kwargs: Mapping[str, Any]) -> Any:
    meter.charge(len(value) * _ELEMENT)
    return value.copy(*args, **kwargs)


def _count(meter: Meter, value: Any, args: Args, kwargs: Mapping[str, Any]) -> int:
    (item,) = args
    return sum(compare(meter, (item, other), ("eq",)) for other in value)


def _index(meter: Meter, value: Any, args: Args, kwargs: Mapping[str, Any]) -> int:
    (item,) = args
    for at, other in enumerate(value):
        if compare(meter, (item, other), ("eq",)):
            return at
    raise ValueError("index: the value is not in the list")


_READING = (
    "capitalize casefold endswith isalnum isalpha isascii isdecimal isdigit isidentifier islower isnumeric isprintable "
    "isspace istitle isupper lower lstrip removeprefix removesuffix rstrip splitlines startswith strip swapcase title "
    "upper"
)
_TEXT: dict[str, Handler] = {
    **{name: _reading(name) for name in _READING.split()},
    **{name: _searching(name) for name in "count find index partition split".split()},
    **{name: _searching(name, reverse=True) for name in "rfind rindex rpartition rsplit".split()},
    **{name: _padding(name) for name in "center ljust rjust zfill".split()},
    "replace": _replace,
    "join": _join,
    "format": _format,
}
_SEQUENCE: dict[str, Handler] = {"count": _count, "index": _index}

METHODS: dict[type, dict[str, Handler]] = {
    str: _TEXT,
    list: {**_SEQUENCE, "copy": _copy},
    tuple: _SEQUENCE,
    dict: {"get": _get, "copy": _copy, **{name: _listed(name) for name in ("items", "keys", "values")}},
}
