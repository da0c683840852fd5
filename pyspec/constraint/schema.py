"""A JSON schema as a caller hands it in: whether it can be written, and how deep and large it is.

Owns the refusal of what JSON, UTF-8 or a grammar's reader cannot hold, with the place. Leaves what its keywords mean to
the library llguidance.
"""

from __future__ import annotations

import json
import re
from typing import Any

from pyspec.errors import InvalidValueError

__all__ = ["N_LINKS", "schema_text", "surrogate_at"]

N_LEVELS = 124
"""Most dicts and lists inside each other that llguidance reads."""
N_VALUES = 1_000_000
N_LINKS = 10_000
"""Most rules or references of a grammar: each may stand inside the one before, and llguidance descends them all."""

_ALLOWED = "a JSON schema: a dict, True for any JSON, or one of these as JSON text"
_MARKS = re.compile(r'\\.|["\[\]{}]', re.DOTALL)


def surrogate_at(text: str) -> int | None:
    """Index of the first lone surrogate, which UTF-8 cannot hold; None without one."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None


def schema_text(schema: Any) -> str:
    """The schema as JSON text.

    Raises:
        InvalidValueError: no JSON schema, one that is too deep or too large, or a lone surrogate in it; with the place.
    """
    value = _read(schema) if isinstance(schema, str) else schema
    if value is True:
        return "{}"
    if not isinstance(value, dict):
        raise _refusal(schema)
    _check(schema, value)
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _refusal(schema, str(error)) from None


def _refusal(schema: Any, why: str = "") -> InvalidValueError:
    return InvalidValueError(name="schema", value=schema, allowed=f"{_ALLOWED} ({why})" if why else _ALLOWED)


def _too_deep(schema: Any, n_levels: str) -> InvalidValueError:
    return _refusal(schema, f"with at most {N_LEVELS} dicts and lists inside each other, this has {n_levels}")


def _read(text: str) -> Any:
    n_levels = _depth(text)
    if n_levels > N_LEVELS:
        raise _too_deep(text, str(n_levels))
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _refusal(text, str(error)) from None


def _depth(text: str) -> int:
    """Brackets inside each other, outside of strings."""
    depth = deepest = 0
    inside = False
    for mark in _MARKS.findall(text):
        if mark == '"':
            inside = not inside
        elif not inside and mark in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif not inside and mark in "]}":
            depth -= 1
    return deepest


def _check(schema: Any, value: dict[Any, Any]) -> None:
    """Level by level, each object of a level once: cycles and objects that stand in many places end, too."""
    level: dict[int, tuple[Any, int, str]] = {id(value): (value, 1, "schema")}  # with its places, and one of them
    n_levels = n_values = n_references = 0
    while level:
        n_levels += 1
        if n_levels > N_LEVELS:
            raise _too_deep(schema, f"more than {N_LEVELS}, or holds itself")
        below: dict[int, tuple[Any, int, str]] = {}
        for inner, n_places, path in level.values():
            items = inner.items() if isinstance(inner, dict) else enumerate(inner)
            for key, item in items:
                where = f"{path}[{key!r}]"
                for text in (key, item):
                    if isinstance(text, str) and (at := surrogate_at(text)) is not None:
                        raise _refusal(schema, f"without lone surrogates, {where} has one at index {at}")
                n_values += n_places
                n_references += n_places * (key == "$ref")
                if isinstance(item, (dict, list, tuple)):
                    below[id(item)] = (item, n_places + below.get(id(item), (item, 0, ""))[1], where)
        if n_values > N_VALUES or n_references > N_LINKS:
            raise _refusal(schema, f"of at most {N_VALUES} values and {N_LINKS} references")
        level = below
