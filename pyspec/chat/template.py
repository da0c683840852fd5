"""A chat template: from messages to the text of a prompt.

Owns the variables that templates expect (Hugging Face's names) and how values get in: as plain copies.
Leaves the guarded rendering to `pyspec.chat.templating`, and checking messages to `pyspec.chat`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyspec.chat.templating.meter import TemplateLimits
from pyspec.errors import ChatTemplateError, InvalidValueError

if TYPE_CHECKING:
    from pyspec.chat.templating.environment import Compiled

__all__ = ["ChatTemplate", "TemplateLimits", "plain"]

_N_NESTED = 60


class ChatTemplate:
    """A Jinja chat template, compiled once and rendered in a sandbox.

    The template comes with a model that strangers made: it sees plain values only, reads no file and no attribute of
    Python, changes nothing that it was given, and is stopped at `TemplateLimits`.

    Args:
        source: the template's text.
        limits: how much work and text a rendering may take.

    Raises:
        ChatTemplateError: the text is no template, too long, or uses what a chat template may not.
    """

    def __init__(self, source: str, *, limits: TemplateLimits | None = None) -> None:
        if not isinstance(source, str):
            raise InvalidValueError(name="source", value=source, allowed="a template's text")
        if limits is not None and not isinstance(limits, TemplateLimits):
            raise InvalidValueError(name="limits", value=limits, allowed="TemplateLimits, or None")
        self.source = source
        self.limits = limits or TemplateLimits()
        self._compiled = _compiled(source, self.limits)

    def render(
        self,
        /,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        bos_token: str = "",
        eos_token: str = "",
        now: datetime | None = None,
        **variables: Any,
    ) -> str:
        """The text of the prompt; nothing is checked but that the values are plain.

        Args:
            messages: as the template expects them.
            tools: definitions of tools, None for none.
            documents: texts to answer from, None for none.
            add_generation_prompt: end where the assistant's answer begins.
            bos_token: text of the token that begins a text.
            eos_token: text of the token that ends one.
            now: the time that `strftime_now` tells, None for the clock.
            variables: further ones that the template knows, such as `enable_thinking`.

        Raises:
            ChatTemplateError: the template refuses the messages, fails, or reaches a limit.
            InvalidValueError: a value that is not made of texts, numbers, booleans, None, lists and dicts.
        """
        if isinstance(messages, (str, bytes)) or not isinstance(messages, Sequence):
            raise InvalidValueError(name="messages", value=messages, allowed="a list of messages")
        given = {
            "messages": list(messages),
            "tools": tools,
            "documents": documents,
            "add_generation_prompt": bool(add_generation_prompt),
            "bos_token": bos_token,
            "eos_token": eos_token,
            **variables,
        }
        n_input, values = plain(given)
        try:
            return self._compiled.render(values, n_input, now)
        except ChatTemplateError as error:
            if tools is not None or error.kind != "failed":
                raise
            # Some templates for tools go through them without asking whether there are any.
            try:
                return self._compiled.render(values | {"tools": []}, n_input, now)
            except ChatTemplateError:
                raise error from None

    def __repr__(self) -> str:
        return f"<ChatTemplate of {len(self.source)} characters>"


@lru_cache(maxsize=16)
def _compiled(source: str, limits: TemplateLimits) -> Compiled:
    from pyspec.chat.templating.environment import Compiled  # Jinja is imported when a template is first used

    return Compiled(source, limits)


def plain(values: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """A deep copy made of plain types only, and its size in characters.

    Raises:
        InvalidValueError: a value of another type, or one that is nested too deep.
    """
    n_chars = 0

    def copy(value: Any, name: str, depth: int) -> Any:
        nonlocal n_chars
        n_chars += 8
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            n_chars += len(value)
            return str(value)
        if isinstance(value, (int, float)):
            return float(value) if isinstance(value, float) else int(value)
        if depth < _N_NESTED and isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            return {copy(key, name, depth): copy(item, f"{name}.{key}", depth + 1) for key, item in value.items()}
        if depth < _N_NESTED and isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
            return [copy(item, f"{name}[{at}]", depth + 1) for at, item in enumerate(value)]
        allowed = f"texts, numbers, True, False, None, lists and dicts of texts, at most {_N_NESTED} inside each other"
        raise InvalidValueError(name=name, value=value, allowed=allowed)

    copied = {str(name): copy(value, str(name), 0) for name, value in values.items()}
    return n_chars, copied
