"""Filters and tests of a template: those of Jinja that chat templates use, each measured.

Owns the list of them and what each may cost. Leaves operators and conversions to `pyspec.chat.templating.operators`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jinja2 import Undefined
from jinja2.filters import FILTERS
from jinja2.runtime import Context
from jinja2.tests import TESTS
from markupsafe import escape

from pyspec.chat.templating.meter import STEP, Meter
from pyspec.chat.templating.methods import METHODS, Method, replace
from pyspec.chat.templating.operators import (
    as_json,
    as_text,
    check_key,
    check_number,
    compare,
    concat,
    join,
    slice_of,
)

__all__ = ["GUARDS", "filters", "tests"]

Filter = Callable[..., Any]

_SHALLOW = "abs count default d first items last length map reject rejectattr select selectattr".split()
"""Filters of Jinja whose work is a step for each item, at most."""
_DEEP = "dictsort max min sort unique".split()
"""Filters of Jinja that compare what is in the items."""
_TEXT = "capitalize lower title upper".split()
_N_DIGITS = 400
_INDENT_MAX = 100


def _realised(meter: Meter, value: Any) -> Any:
    """A list in the place of an iterator, each item counted."""
    if not isinstance(value, Iterator):
        return value
    items = []
    for item in value:
        meter.charge(STEP)
        items.append(item)
    return items


def _call(original: Filter, context: Context, *args: Any, **kwargs: Any) -> Any:
    kind = getattr(getattr(original, "jinja_pass_arg", None), "name", "")
    first = {"context": context, "eval_context": context.eval_ctx, "environment": context.environment}
    return original(*([first[kind]] if kind else []), *args, **kwargs)


def _deepness(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, deep: bool) -> None:
    for arg in (*args, *kwargs.values()):
        meter.size(arg)
    if deep:
        meter.charge(4 * meter.size(value))
    elif not isinstance(value, Undefined) and hasattr(value, "__len__"):
        meter.charge(len(value) // 8 if type(value) is str else len(value))


def _of_jinja(name: str, *, deep: bool) -> Filter:
    def guarded(meter: Meter, context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        if name == "abs":
            check_number(value)
        _deepness(meter, value, args, kwargs, deep=deep)
        return _realised(meter, _call(FILTERS[name], context, value, *args, **kwargs))

    return guarded


def _of_text(name: str) -> Filter:
    def guarded(meter: Meter, context: Context, value: Any) -> str:
        text = as_text(meter, value)
        meter.charge(len(text))
        result = str(FILTERS[name](text))
        meter.expect(len(result))
        return result

    return guarded


# ----------------------------------------------------------------- filters of our own making
def _string(meter: Meter, context: Context, value: Any) -> str:
    return as_text(meter, value)


def _tojson(meter: Meter, context: Context, value: Any, *args: Any, **kwargs: Any) -> str:
    if args:
        kwargs["indent"] = args[0] if len(args) == 1 else None
        if len(args) > 1:
            raise TypeError("tojson takes one positional argument, indent")
    return as_json(meter, value, **kwargs)


def _from_json(meter: Meter, context: Context, value: Any) -> Any:
    text = as_text(meter, value)
    meter.charge(8 * len(text))
    return json.loads(text, parse_int=lambda digits: _as_int(digits, 10))


def _join(meter: Meter, context: Context, value: Any, d: Any = "", attribute: Any = None) -> str:
    if attribute is not None:
        value = _realised(meter, FILTERS["map"](context, value, attribute=attribute))
    return join(meter, as_text(meter, d), list(value))


def _replace(meter: Meter, context: Context, value: Any, old: Any, new: Any, count: int | None = None) -> str:
    text, before, after = (as_text(meter, part) for part in (value, old, new))
    return replace(meter, text, before, after, count)


def _trim(meter: Meter, context: Context, value: Any, chars: str | None = None) -> Any:
    return Method(as_text(meter, value), METHODS[str]["strip"]).call(meter, (chars,), {})


def _indent(
    meter: Meter, context: Context, value: Any, width: int | str = 4, first: bool = False, blank: bool = False
) -> str:
    text = as_text(meter, value)
    n = len(width) if isinstance(width, str) else width
    if n > _INDENT_MAX:
        raise TypeError(f"indent: a width of {n}, above {_INDENT_MAX}")
    meter.expect(len(text) + n * (len(text.splitlines()) + 1))
    return str(FILTERS["indent"](text, width, first, blank))


def _center(meter: Meter, context: Context, value: Any, width: int = 80) -> str:
    return str(Method(as_text(meter, value), METHODS[str]["center"]).call(meter, (width,), {}))


def _as_int(value: Any, base: int) -> int:
    text = str(value)
    if len(text) > _N_DIGITS:
        raise TypeError(f"a number of {len(text)} digits")
    try:
        return int(text, base)
    except ValueError:
        return int(float(text))


def _int(meter: Meter, context: Context, value: Any, default: Any = 0, base: int = 10) -> Any:
    try:
        return meter.number(_as_int(value, base) if type(value) is str else int(check_number(value)))
    except (TypeError, ValueError, OverflowError):
        return default


def _float(meter: Meter, context: Context, value: Any, default: Any = 0.0) -> Any:
    try:
        if type(value) is str and len(value) > _N_DIGITS:
            raise TypeError("too many digits")
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return default


def _round(meter: Meter, context: Context, value: Any, precision: int = 0, method: str = "common") -> Any:
    if abs(precision) > 20:
        raise TypeError(f"round: a precision of {precision}, above 20")
    return _call(FILTERS["round"], context, check_number(value), precision, method)


def _sum(meter: Meter, context: Context, value: Any, attribute: Any = None, start: Any = 0) -> Any:
    if attribute is not None:
        value = _realised(meter, FILTERS["map"](context, value, attribute=attribute))
    meter.charge(STEP * len(value))
    return meter.number(sum(map(check_number, value), check_number(start)))


def _list(meter: Meter, context: Context, value: Any) -> list[Any]:
    meter.charge(32 * len(value))
    return list(value)


def _reverse(meter: Meter, context: Context, value: Any) -> Any:
    return slice_of(meter, value if type(value) in (str, range) else _list(meter, context, value), None, None, -1)


def _escape(meter: Meter, context: Context, value: Any) -> str:
    text = as_text(meter, value)
    meter.expect(len(text) + 5 * sum(text.count(c) for c in "<>&\"'"))
    return str(escape(text))


FILTER_TABLE: dict[str, Filter] = {
    **{name: _of_jinja(name, deep=False) for name in _SHALLOW},
    **{name: _of_jinja(name, deep=True) for name in _DEEP},
    **{name: _of_text(name) for name in _TEXT},
    "string": _string,
    "safe": _string,
    "escape": _escape,
    "e": _escape,
    "tojson": _tojson,
    "from_json": _from_json,
    "join": _join,
    "replace": _replace,
    "trim": _trim,
    "indent": _indent,
    "center": _center,
    "int": _int,
    "float": _float,
    "round": _round,
    "sum": _sum,
    "list": _list,
    "reverse": _reverse,
}

GUARDS: dict[str, Filter] = {
    "guard step": lambda meter, context, cost: meter.charge(max(cost, STEP)) or True,
    "guard concat": lambda meter, context, values: concat(meter, values),
    "guard compare": lambda meter, context, values, *ops: compare(meter, values, ops),
    "guard slice": lambda meter, context, value, *bounds: slice_of(meter, value, *bounds),
    "guard key": lambda meter, context, value: check_key(value),
}
"""What `rewrite` puts in the place of syntax; not spelled by accident, and harmless if called."""


# ----------------------------------------------------------------- tests
def _whole(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError(f"a whole number is needed, got {type(value).__name__}")
    return value


def _of_jinjas_tests(name: str) -> Filter:
    test: Filter = TESTS[name]  # type: ignore[assignment]
    return lambda meter, *args: test(*args)


def _comparing(op: str) -> Filter:
    return lambda meter, value, other: compare(meter, (value, other), (op,))


_SIMPLE = (
    "boolean defined undefined false true none float integer number string mapping sequence iterable sameas"
).split()
_OPERATORS = {
    "eq": "eq == equalto",
    "ne": "ne !=",
    "lt": "lt < lessthan",
    "lteq": "le <=",
    "gt": "gt > greaterthan",
    "gteq": "ge >=",
    "in": "in",
}

TEST_TABLE: dict[str, Filter] = {
    **{name: _of_jinjas_tests(name) for name in _SIMPLE},
    **{name: _comparing(op) for op, names in _OPERATORS.items() for name in names.split()},
    "divisibleby": lambda meter, value, n: _whole(value) % _whole(n) == 0,
    "even": lambda meter, value: _whole(value) % 2 == 0,
    "odd": lambda meter, value: _whole(value) % 2 == 1,
    "lower": lambda meter, value: as_text(meter, value).islower(),
    "upper": lambda meter, value: as_text(meter, value).isupper(),
    "callable": lambda meter, value: isinstance(value, Method),
}


def filters() -> dict[str, Filter]:
    """Every filter: `f(meter, context, value, ...)`."""
    return FILTER_TABLE | GUARDS


def tests() -> dict[str, Filter]:
    """Every test: `f(meter, value, ...)`."""
    return dict(TEST_TABLE)
