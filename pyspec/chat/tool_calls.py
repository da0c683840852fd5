"""Calls of tools in what a model said.

Owns three forms that models write: Hermes `<tool_call>{...}</tool_call>`, Mistral `[TOOL_CALLS][...]`, and a text that
is nothing but JSON with a name and arguments. Leaves what is called to the user; other forms stay text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

__all__ = ["parse_tool_calls"]

_HERMES = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_MISTRAL = "[TOOL_CALLS]"


def parse_tool_calls(text: str, names: Sequence[str]) -> tuple[str, list[dict[str, Any]]]:
    """What stands in front of the calls, and the calls as OpenAI's API has them.

    A text without calls comes back whole, with no call; so does one whose calls cannot be read, all or none.

    Args:
        text: what the model said, special tokens included.
        names: the tools that there are; JSON alone is a call only of one of these.

    Returns:
        The text before, and `{"id", "type": "function", "function": {"name", "arguments": JSON text}}` for each call.
    """
    before, found = _hermes(text) or _mistral(text) or _bare(text, names) or (text, [])
    calls = [_call(one) for one in found]
    if not calls or None in calls:
        return text, []
    return before.strip(), [call for call in calls if call is not None]


def _hermes(text: str) -> tuple[str, list[Any]] | None:
    found = list(_HERMES.finditer(text))
    return (text[: found[0].start()], [_json(one.group(1)) for one in found]) if found else None


def _mistral(text: str) -> tuple[str, list[Any]] | None:
    before, mark, after = text.partition(_MISTRAL)
    if not mark:
        return None
    try:
        found, _ = json.JSONDecoder().raw_decode(after.lstrip())
    except (ValueError, RecursionError):
        return None
    return before, found if isinstance(found, list) else [found]


def _bare(text: str, names: Sequence[str]) -> tuple[str, list[Any]] | None:
    found = _json(text)
    found = found if isinstance(found, list) else [found]
    ours = all(isinstance(one, dict) and one.get("name") in names for one in found)
    return ("", found) if ours else None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _call(found: Any) -> dict[str, Any] | None:
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        return None
    arguments = found.get("arguments", found.get("parameters", {}))
    if isinstance(arguments, str):  # some models write JSON inside JSON
        arguments = _json(arguments)
    if not isinstance(arguments, dict):
        return None
    return {
        "id": uuid4().hex[:9],  # Mistral's templates ask for nine letters and digits
        "type": "function",
        "function": {"name": found["name"], "arguments": json.dumps(arguments, ensure_ascii=False)},
    }
