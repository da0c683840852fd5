"""Messages of a conversation, checked and in the form that chat templates expect.

Owns what a message must have, texts given in parts, and the two forms of a tool call's arguments. Leaves rendering to
`pyspec.chat.template`; nothing that was given is changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspec.errors import InvalidValueError, UnsupportedError

__all__ = ["arguments_as_text", "checked_messages", "checked_tools", "printed_arguments"]

_ROLES = "a role, such as 'system', 'user', 'assistant' or 'tool'"


def checked_messages(messages: object) -> list[dict[str, Any]]:
    """A copy of the messages: contents as texts, arguments of tool calls as dicts where they are JSON objects.

    Parts of a content are joined by line ends. Fields that are not known here are kept: templates may read them.

    Raises:
        InvalidValueError: a message without a role or content, or a field of a type that cannot be.
        UnsupportedError: a part that is no text, such as an image.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence) or not messages:
        raise InvalidValueError(name="messages", value=messages, allowed="a list of at least one message")
    return [_message(message, f"messages[{at}]") for at, message in enumerate(messages)]


def _message(message: Any, name: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise InvalidValueError(name=name, value=message, allowed="a dict with 'role' and 'content'")
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise InvalidValueError(name=f"{name}['role']", value=role, allowed=_ROLES)
    for field in ("name", "tool_call_id"):
        value = message.get(field)
        if value is not None and not isinstance(value, str):
            raise InvalidValueError(name=f"{name}[{field!r}]", value=value, allowed="a text, or None")
    calls = message.get("tool_calls")
    copied = dict(message)
    if calls is not None and (isinstance(calls, (str, bytes, bytearray)) or not isinstance(calls, Sequence)):
        raise InvalidValueError(name=f"{name}['tool_calls']", value=calls, allowed="a list of calls, or None")
    if calls:
        copied["tool_calls"] = [_tool_call(call, f"{name}['tool_calls'][{at}]") for at, call in enumerate(calls)]
    copied["content"] = _content(message.get("content"), f"{name}['content']", needed=not calls)
    return copied


def _content(content: Any, name: str, *, needed: bool) -> str:
    if content is None and not needed:
        return ""  # a call of a tool needs no words
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence) and not isinstance(content, (bytes, bytearray)):
        return "\n".join(_part(part, f"{name}[{at}]") for at, part in enumerate(content))
    raise InvalidValueError(name=name, value=content, allowed="a text, or a list of {'type': 'text', 'text': ...}")


def _part(part: Any, name: str) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    if isinstance(kind, str) and kind != "text":
        raise UnsupportedError(
            what=f"{name} of type {kind!r}", why="pyspec generates from text alone", way_out="send text parts only"
        )
    raise InvalidValueError(name=name, value=part, allowed="{'type': 'text', 'text': ...}")


def _tool_call(call: Any, name: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise InvalidValueError(
            name=name, value=call, allowed="{'type': 'function', 'function': {'name': ..., 'arguments': ...}}"
        )
    arguments = function.get("arguments", {})
    if arguments is not None and not isinstance(arguments, (str, Mapping)):
        place = f"{name}['function']['arguments']"
        raise InvalidValueError(name=place, value=arguments, allowed="JSON text of an object, or a dict")
    return {**call, "function": {**function, "arguments": _as_object(arguments)}}


def _as_object(arguments: Any) -> Any:
    """JSON text of an object as a dict, which most templates expect; anything else as it is."""
    if isinstance(arguments, str):
        try:
            value = json.loads(arguments)
        except (ValueError, RecursionError):
            return arguments
        return value if isinstance(value, dict) else arguments
    return arguments


def _arguments(messages: Sequence[Mapping[str, Any]]) -> list[Any]:
    return [call["function"]["arguments"] for message in messages for call in message.get("tool_calls") or ()]


def printed_arguments(messages: Sequence[Mapping[str, Any]], text: str) -> bool:
    """Whether a template printed a dict of arguments as Python does, because it expects them to be JSON text."""
    return any(isinstance(one, dict) and one and repr(one) in text for one in _arguments(messages))


def arguments_as_text(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages with each tool call's arguments as JSON text."""
    return [
        {**message, "tool_calls": [_with_text(call) for call in message["tool_calls"]]}
        if message.get("tool_calls")
        else dict(message)
        for message in messages
    ]


def _with_text(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = function["arguments"]
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {**call, "function": {**function, "arguments": text}}


def checked_tools(tools: object) -> list[dict[str, Any]] | None:
    """A copy of the definitions of tools, None for none.

    Raises:
        InvalidValueError: one that is not as OpenAI's API has them.
    """
    if tools is None or (isinstance(tools, Sequence) and not len(tools)):
        return None
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Sequence):
        raise InvalidValueError(name="tools", value=tools, allowed="a list of tools, or None")
    for at, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or not _is_definition(function):
            allowed = "{'type': 'function', 'function': {'name': ..., 'description': ..., 'parameters': JSON schema}}"
            raise InvalidValueError(name=f"tools[{at}]", value=tool, allowed=allowed)
    return [dict(tool) for tool in tools]


def _is_definition(function: Mapping[str, Any]) -> bool:
    name, description, parameters = (function.get(field) for field in ("name", "description", "parameters"))
    return (
        isinstance(name, str)
        and name != ""
        and (description is None or isinstance(description, str))
        and (parameters is None or isinstance(parameters, Mapping))
    )
