"""Which tools a chat shows, and which one must be called.

Owns OpenAI's `tools`, `tool_choice` and the older `functions`. Leaves reading calls to `pyspec.chat.tool_calls`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspec.arguments import is_one_of
from pyspec.chat.messages import checked_tools
from pyspec.compat.grammar import schema_options
from pyspec.errors import InvalidValueError

__all__ = ["chosen", "tools_of"]

Tools = Sequence[Mapping[str, Any]]


def tools_of(functions: Any) -> list[dict[str, Any]]:
    """Tools for functions of the old kind.

    Raises:
        InvalidValueError: no list of dicts.
    """
    if isinstance(functions, (list, tuple)) and all(isinstance(function, Mapping) for function in functions):
        return [{"type": "function", "function": dict(function)} for function in functions]
    allowed = "a list of {'name': ..., 'description': ..., 'parameters': JSON schema}, or None"
    raise InvalidValueError(name="functions", value=functions, allowed=allowed)


def chosen(tools: Tools | None, choice: str | Mapping[str, Any] | None) -> tuple[Tools | None, dict[str, Any]]:
    """The tools that the template sees, and options that force a call of one of them.

    Raises:
        InvalidValueError: no tools as OpenAI's API has them, or a choice that is none.
    """
    tools = checked_tools(tools)
    if is_one_of(choice, (None, "auto")):
        return tools, {}
    if is_one_of(choice, ("none",)):
        return None, {}
    if not tools:
        raise InvalidValueError(name="tool_choice", value=choice, allowed="'none' or 'auto' without tools")
    one = choice.get("function", choice) if isinstance(choice, Mapping) else None
    name = one.get("name") if isinstance(one, Mapping) else None
    wanted = [tool for tool in tools if is_one_of(choice, ("required",)) or tool["function"]["name"] == name]
    if not wanted:
        allowed = "'none', 'auto', 'required', or one of the tools by name"
        raise InvalidValueError(name="tool_choice", value=choice, allowed=allowed)
    return tools, schema_options({"anyOf": [_call_schema(tool["function"]) for tool in wanted]})


def _call_schema(function: Mapping[str, Any]) -> dict[str, Any]:
    properties = {"name": {"const": function["name"]}, "arguments": function.get("parameters") or {"type": "object"}}
    return {
        "type": "object",
        "properties": properties,
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
