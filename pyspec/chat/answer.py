"""Chatting: messages become the prompt of a model's own template, and what it says becomes a message.

Owns which template is used, that a text begins once, and the result. Leaves rendering to `pyspec.chat.template`,
messages to `pyspec.chat.messages`, calls of tools to `pyspec.chat.tool_calls`, and generating to the `Llama`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspec._core import Model, Vocab
from pyspec.arguments import check_call, refuse_own, text_tokens
from pyspec.chat.messages import arguments_as_text, checked_messages, checked_tools, printed_arguments
from pyspec.chat.template import ChatTemplate
from pyspec.chat.tool_calls import parse_tool_calls
from pyspec.completion import Completion
from pyspec.errors import ChatTemplateError, InvalidValueError, VocabularyMissingError
from pyspec.generation import refuse_options
from pyspec.streams import drained

if TYPE_CHECKING:
    from pyspec.llm import Llama

__all__ = ["ChatCompletion", "ChatPrompt", "chat", "chat_prompt", "chat_stream"]

Message = Mapping[str, Any]

_OWN = frozenset(["model", "messages", "tools", "template", "add_generation_prompt"])


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A conversation as the model reads it.

    Attributes:
        text: what the template gives.
        tokens: its token ids, the beginning of the text once.
    """

    text: str
    tokens: list[int]


@dataclass(frozen=True, slots=True)
class ChatCompletion:
    """What the model answered.

    Attributes:
        message: {"role": "assistant", "content": ...}, with "tool_calls" where there are any, ready to be appended to
            the messages.
        prompt: the conversation before.
        completion: the generation: text, tokens, finish reason, statistics.
    """

    message: dict[str, Any]
    prompt: ChatPrompt
    completion: Completion

    def __str__(self) -> str:
        """One line about the generation, as of the completion."""
        return str(self.completion)

    @property
    def text(self) -> str:
        """All that was said, calls of tools included."""
        return self.completion.text

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        """Calls of tools as OpenAI's API has them, arguments as JSON text; see `pyspec.chat.tool_calls`."""
        calls: list[dict[str, Any]] = self.message.get("tool_calls", [])
        return calls

    @property
    def finish_reason(self) -> str:
        """Why it ended, as of the completion."""
        return self.completion.finish_reason


def chat_prompt(
    model: Model,
    messages: Sequence[Message],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    template: str | ChatTemplate | None = None,
    add_generation_prompt: bool = True,
    **variables: Any,
) -> ChatPrompt:
    """The prompt of a conversation.

    Args:
        model: has the vocabulary, and the template if none is given.
        messages: dicts with "role" and "content" (a text, or a list of text parts), possibly "tool_calls", "name" and
            what else the template reads.
        tools: definitions as OpenAI's API has them.
        template: Jinja text, a `ChatTemplate`, or the name of one of the model's templates. Not given: the model's
            "tool_use" if there are tools and it has one, else its own.
        add_generation_prompt: end where the assistant's answer begins.
        variables: further ones that the template reads, such as `enable_thinking=False`; `documents`, and `now` for the
            time that it writes.

    Raises:
        ChatTemplateError: the model has no template, or the template does not parse, refuses the messages (with its
            own words), fails or reaches a limit.
        InvalidValueError: a message or tool that cannot be.
        UnsupportedError: a content with images or sounds.
        VocabularyMissingError: the model has no text vocabulary.
    """
    vocab = model.vocab
    if not vocab.has_text:
        raise VocabularyMissingError(what="a chat")
    if not isinstance(add_generation_prompt, bool):
        raise InvalidValueError(name="add_generation_prompt", value=add_generation_prompt, allowed="True or False")
    checked, definitions = checked_messages(messages), checked_tools(tools)
    compiled = _template(model, template, with_tools=definitions is not None)
    options = {
        "tools": definitions,
        "add_generation_prompt": add_generation_prompt,
        "bos_token": _token_text(vocab, vocab.bos),
        "eos_token": _token_text(vocab, vocab.eos),
        **variables,
    }
    text = _rendered(compiled, checked, options)
    return ChatPrompt(text, _tokens(vocab, text))


def _template(model: Model, template: str | ChatTemplate | None, *, with_tools: bool) -> ChatTemplate:
    if isinstance(template, ChatTemplate):
        return template
    if template is None:
        source = (model.chat_template("tool_use") if with_tools else None) or model.chat_template()
        if source is None:
            reason = "the model brings none; give one, template=..., as Jinja text or a ChatTemplate"
            raise ChatTemplateError(kind="missing", reason=reason)
        return ChatTemplate(source)
    if not isinstance(template, str) or not template:
        allowed = "Jinja text, a ChatTemplate, the name of one of the model's templates, or None"
        raise InvalidValueError(name="template", value=template, allowed=allowed)
    if "{" in template or "\n" in template:
        return ChatTemplate(template)
    source = model.chat_template(template) if template.isprintable() else None
    if source is None:
        known = sorted(
            key.removeprefix("tokenizer.chat_template.").removeprefix("tokenizer.chat_template") or "(its own)"
            for key in model.metadata
            if key.startswith("tokenizer.chat_template")
        )
        reason = f"the model has none of the name {template!r}; it has: {', '.join(known) or 'none at all'}"
        raise ChatTemplateError(kind="missing", reason=reason)
    return ChatTemplate(source)


def _token_text(vocab: Vocab, token: int | None) -> str:
    return "" if token is None else vocab.text(token)


def _rendered(template: ChatTemplate, messages: list[dict[str, Any]], options: dict[str, Any]) -> str:
    """The text; arguments of tool calls as dicts, or as JSON text where the template wants that."""
    has_calls = any(message.get("tool_calls") for message in messages)
    try:
        text = template.render(messages, **options)
        if not has_calls or not printed_arguments(messages, text):
            return text
    except ChatTemplateError as error:
        if not has_calls or error.kind == "limit":
            raise
        try:
            return template.render(arguments_as_text(messages), **options)
        except ChatTemplateError:
            raise error from None
    return template.render(arguments_as_text(messages), **options)


def _tokens(vocab: Vocab, text: str) -> list[int]:
    """Many templates write the beginning-of-text token themselves; it stands there once."""
    begins = vocab.bos is not None and text.startswith(vocab.text(vocab.bos))
    tokens: list[int] = text_tokens(vocab, text, name="messages", add_special=not begins).tolist()
    if not tokens:
        raise ChatTemplateError(kind="failed", reason="it gives no text for these messages")
    return tokens


def chat(
    llm: Llama,
    messages: Sequence[Message],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    template: str | ChatTemplate | None = None,
    add_generation_prompt: bool = True,
    variables: Mapping[str, Any] | None = None,
    on_text: Callable[[str], object] | None = None,
    **options: Any,
) -> ChatCompletion:
    """Answer a conversation; see `Llama.chat`."""
    check_call(on_text=on_text)
    stream = chat_stream(
        llm,
        messages,
        tools=tools,
        template=template,
        add_generation_prompt=add_generation_prompt,
        variables=variables,
        **options,
    )
    return drained(stream, on_text)


def chat_stream(
    llm: Llama,
    messages: Sequence[Message],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    template: str | ChatTemplate | None = None,
    add_generation_prompt: bool = True,
    variables: Mapping[str, Any] | None = None,
    **options: Any,
) -> Generator[str | ChatCompletion, None, ChatCompletion]:
    """Answer a conversation piece by piece; see `Llama.chat_stream`."""
    refuse_own(options, {"prompt": "the messages are the prompt"})
    refuse_options(options)
    given = _as_variables(variables)
    prompt = chat_prompt(
        llm.model, messages, tools=tools, template=template, add_generation_prompt=add_generation_prompt, **given
    )
    names = [tool["function"]["name"] for tool in tools or ()]
    with closing(llm.stream(prompt.tokens, **{"reuse": True} | options)) as pieces:
        for piece in pieces:
            if isinstance(piece, Completion):
                answer = _answered(llm, prompt, piece, names)
                yield answer
                return answer
            yield piece
    raise AssertionError("a stream ends with its completion")


def _as_variables(variables: Mapping[str, Any] | None) -> dict[str, Any]:
    """A copy; no name is that of a parameter.

    Raises:
        InvalidValueError: with the first name that cannot be, or no dict.
    """
    if variables is None:
        return {}
    if not isinstance(variables, Mapping):
        allowed = "a dict of what the template reads, or None"
        raise InvalidValueError(name="variables", value=variables, allowed=allowed)
    for name in variables:
        if not isinstance(name, str):
            raise InvalidValueError(name="variables", value=variables, allowed=f"a dict of names, {name!r} is none")
        if name in _OWN or name == "self":
            why = "which Jinja keeps for itself" if name == "self" else "a parameter of its own"
            allowed = f"without {name!r}, {why}"
            raise InvalidValueError(name="variables", value=variables, allowed=allowed)
    return dict(variables)


def _answered(llm: Llama, prompt: ChatPrompt, completion: Completion, names: Sequence[str]) -> ChatCompletion:
    message: dict[str, Any] = {"role": "assistant", "content": completion.text.removeprefix(completion.echo)}
    if names:
        # Mistral's mark of a call is a special token, which the text does not show.
        spoken = llm.detokenize(completion.tokens, special=True)
        before, calls = parse_tool_calls(spoken, names)
        if calls:
            message |= {"content": before, "tool_calls": calls}
    return ChatCompletion(message, prompt, completion)
