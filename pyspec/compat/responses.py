"""Results in the shape of OpenAI's API, as llama-cpp-python returns them.

Owns the dicts; leaves what is in them to the completions of pyspec. Times are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import time
from typing import Any
from uuid import uuid4

from pyspec.chat import ChatCompletion
from pyspec.completion import Completion
from pyspec.logprobs import TokenLogprob

__all__ = ["Chunks", "chat_completion", "completion", "finish_reason"]


def finish_reason(completion: Completion) -> str:
    """Stop or length: a context without room, a time that is over and a cancelled call are lengths."""
    return "stop" if completion.finish_reason == "stop" else "length"


def _head(prefix: str, kind: str, model: str) -> dict[str, Any]:
    return {"id": f"{prefix}-{uuid4()}", "object": kind, "created": int(time()), "model": model}


def _usage(completion: Completion) -> dict[str, int]:
    n_prompt, n_new = len(completion.prompt_tokens), len(completion.tokens)
    return {"prompt_tokens": n_prompt, "completion_tokens": n_new, "total_tokens": n_prompt + n_new}


def completion(result: Completion, *, model: str, prompt_chars: int, vocab_text: Any) -> dict[str, Any]:
    """A text completion.

    Args:
        result: of the generation.
        model: name to report.
        prompt_chars: characters of the prompt, where `text_offset` begins to count.
        vocab_text: text of a token id.
    """
    choice = {
        "text": result.text,
        "index": 0,
        "logprobs": completion_logprobs(result, prompt_chars, vocab_text),
        "finish_reason": finish_reason(result),
    }
    return _head("cmpl", "text_completion", model) | {"choices": [choice], "usage": _usage(result)}


def completion_logprobs(result: Completion, prompt_chars: int, vocab_text: Any) -> dict[str, Any] | None:
    """Log-probabilities of the generated tokens in the form of text completions, None unless asked for."""
    if result.logprobs is None:
        return None
    starts = [0, *(end - len(result.echo) for end in result.token_ends[:-1])][: len(result.logprobs)]
    return {
        "tokens": [one.text for one in result.logprobs],
        "text_offset": [prompt_chars + start for start in starts],
        "token_logprobs": [one.logprob for one in result.logprobs],
        "top_logprobs": [
            {vocab_text(token): logprob for token, logprob in one.top} | {one.text: one.logprob}
            for one in result.logprobs
        ],
    }


def _chat_logprobs(found: Sequence[TokenLogprob] | None, vocab_text: Any) -> dict[str, Any] | None:
    if found is None:
        return None
    content = [
        {
            "token": one.text,
            "logprob": one.logprob,
            "bytes": list(one.bytes),
            "top_logprobs": [
                {"token": vocab_text(t), "logprob": p, "bytes": list(vocab_text(t).encode())} for t, p in one.top
            ],
        }
        for one in found
    ]
    return {"content": content, "refusal": None}


def _message(answer: ChatCompletion, *, legacy: bool) -> dict[str, Any]:
    """The message, with "function_call" in the place of "tool_calls" for callers of `functions`."""
    message = dict(answer.message)
    if answer.tool_calls:
        message["content"] = message["content"] or None
        if legacy:
            message["function_call"] = message.pop("tool_calls")[0]["function"]
    return message


def _chat_finish(answer: ChatCompletion, *, legacy: bool) -> str:
    if answer.tool_calls:
        return "function_call" if legacy else "tool_calls"
    return finish_reason(answer.completion)


def chat_completion(answer: ChatCompletion, *, model: str, legacy: bool, vocab_text: Any) -> dict[str, Any]:
    """A chat completion; `legacy` for callers of `functions`."""
    choice = {
        "index": 0,
        "message": _message(answer, legacy=legacy),
        "logprobs": _chat_logprobs(answer.completion.logprobs, vocab_text),
        "finish_reason": _chat_finish(answer, legacy=legacy),
    }
    return _head("chatcmpl", "chat.completion", model) | {"choices": [choice], "usage": _usage(answer.completion)}


class Chunks:
    """The pieces of one streamed result, which share an id and a time.

    Args:
        model: name to report.
        chat: of a chat, in the place of a text completion.
    """

    def __init__(self, model: str, *, chat: bool) -> None:
        self._head = (
            _head("chatcmpl", "chat.completion.chunk", model) if chat else _head("cmpl", "text_completion", model)
        )

    def text(self, text: str, *, finish: str | None = None, logprobs: Any = None) -> dict[str, Any]:
        """A piece of a text completion."""
        choice = {"text": text, "index": 0, "logprobs": logprobs, "finish_reason": finish}
        return self._head | {"choices": [choice]}

    def delta(self, delta: dict[str, Any], *, finish: str | None = None, logprobs: Any = None) -> dict[str, Any]:
        """A piece of a chat."""
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return self._head | {"choices": [choice]}

    def last(self, answer: ChatCompletion, *, legacy: bool, vocab_text: Any) -> dict[str, Any]:
        """The end of a chat."""
        found = _chat_logprobs(answer.completion.logprobs, vocab_text)
        return self.delta({}, finish=_chat_finish(answer, legacy=legacy), logprobs=found)

    def whole(self, answer: ChatCompletion, *, legacy: bool) -> dict[str, Any]:
        """The content and the calls of an answer that could only be read when it was complete."""
        message = _message(answer, legacy=legacy)
        del message["role"]
        for at, call in enumerate(calls := [dict(call) for call in message.get("tool_calls", [])]):
            call["index"] = at
        return self.delta(message | ({"tool_calls": calls} if calls else {}))


def plain_messages(messages: Any) -> Any:
    """Messages whose old "function_call" is a call of a tool; an assistant without words said nothing."""
    if not isinstance(messages, (list, tuple)):
        return messages
    return [_modern(message) for message in messages]


def _modern(message: Any) -> Any:
    if isinstance(message, dict) and message.get("role") == "assistant" and message.get("content") is None:
        message = message | {"content": ""}  # it said nothing, or called a tool
    call = message.get("function_call") if isinstance(message, dict) else None
    if not isinstance(call, dict) or message.get("tool_calls"):
        return message
    rest = {name: value for name, value in message.items() if name != "function_call"}
    return rest | {"tool_calls": [{"id": "call_0", "type": "function", "function": dict(call)}]}
