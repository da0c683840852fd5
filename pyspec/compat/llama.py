"""`Llama` as llama-cpp-python's code uses it: completions and chats as OpenAI-shaped dicts, and the vocabulary.

Owns the methods and the order of their arguments. Leaves arguments to `pyspec.compat.options`, results to
`pyspec.compat.responses`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, NoReturn

from pyspec.chat import ChatCompletion, chat, chat_stream
from pyspec.chat.messages import checked_tools
from pyspec.chat.template import ChatTemplate
from pyspec.compat.grammar import LlamaGrammar, format_options, grammar_text, schema_options
from pyspec.compat.options import as_seed, constructor, sampling
from pyspec.compat.responses import (
    Chunks,
    chat_completion,
    completion,
    completion_logprobs,
    finish_reason,
    plain_messages,
)
from pyspec.completion import Completion
from pyspec.errors import InvalidValueError, UnsupportedError
from pyspec.llm import Llama as PyspecLlama

__all__ = ["CHATML", "Llama"]

_log = logging.getLogger("pyspec")

Messages = Sequence[Mapping[str, Any]]

CHATML = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""
"""The template of `chat_format="chatml"`."""


class Llama:
    """A model, with the arguments and results of llama-cpp-python.

    Args:
        model_path: a GGUF file, or a name that `pyspec models` lists.
        chat_format: None for the model's own template, or "chatml".
        chat_template: Jinja text in the place of the model's template.
        last_n_tokens_size: tokens that penalties look back on.
        options: further arguments of llama-cpp-python's `Llama`, or of `pyspec.Llama` (`spec`, `budget`, `exact` ...).

    Raises:
        UnknownOptionError: an argument that neither library has.
        UnsupportedError: an argument for something that pyspec has not.
        PyspecError: as `pyspec.Llama`.
    """

    def __init__(
        self,
        model_path: str | PathLike[str],
        *,
        chat_format: str | None = None,
        chat_template: str | ChatTemplate | None = None,
        last_n_tokens_size: int = 64,
        **options: Any,
    ) -> None:
        if chat_format not in (None, "chatml"):
            raise UnsupportedError(
                what=f"chat_format={chat_format!r}",
                why="pyspec renders Jinja templates: the model's own, or 'chatml'",
                way_out="leave it out, or give the template: chat_template=...",
            )
        self.model_path = fspath(model_path)
        self.chat_format = chat_format
        self._template = chat_template if chat_template is not None else CHATML if chat_format else None
        self.llm = PyspecLlama(model_path, **constructor(options))
        self._vocab = self.llm.model.vocab
        self._reuse = True
        self._always: dict[str, Any] = {"penalty_last_n": last_n_tokens_size}

    # ------------------------------------------------------------- completions
    def create_completion(
        self,
        prompt: str | Sequence[int],
        suffix: str | None = None,
        max_tokens: int | None = 16,
        temperature: float = 0.8,
        top_p: float = 0.95,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        logprobs: int | None = None,
        echo: bool = False,
        stop: str | Sequence[str] | None = None,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        top_k: int = 40,
        stream: bool = False,
        seed: int | None = None,
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        model: str | None = None,
        stopping_criteria: Any = None,
        logits_processor: Any = None,
        grammar: LlamaGrammar | str | None = None,
        logit_bias: Mapping[int, float] | None = None,
    ) -> Any:
        """Complete a text: a dict as of OpenAI's API, or an iterator of such dicts with `stream=True`.

        `suffix` is what stands behind the gap that is filled, by the model's own tokens for that.

        Raises:
            UnsupportedError: something that pyspec, or with `suffix` the model, has not.
            PyspecError: as `pyspec.Llama.generate`.
        """
        options = sampling(locals()) | {"logprobs": logprobs, "echo": echo, "grammar": grammar_text(grammar)}
        text = prompt if suffix is None else self._infill(prompt, suffix)
        if suffix is not None and echo:
            raise UnsupportedError(what="echo with suffix", why="the prompt is not in the order of the text")
        n_chars = len(prompt) if isinstance(prompt, str) else len(self.llm.detokenize(prompt))
        name = model or self.model_path
        if stream:
            return self._stream_completion(text, options, Chunks(name, chat=False), n_chars)
        result = self.llm.generate(text, **self._options(options))
        return completion(result, model=name, prompt_chars=n_chars, vocab_text=self._text)

    __call__ = create_completion

    def _stream_completion(
        self, prompt: str | Sequence[int], options: dict[str, Any], chunks: Chunks, n_chars: int
    ) -> Iterator[dict[str, Any]]:
        for piece in self.llm.stream(prompt, **self._options(options)):
            if isinstance(piece, Completion):
                found = completion_logprobs(piece, n_chars, self._text)
                yield chunks.text("", finish=finish_reason(piece), logprobs=found)
            else:
                yield chunks.text(piece)

    def _infill(self, prompt: str | Sequence[int], suffix: str) -> list[int]:
        marks = [self._vocab.fim_pre, self._vocab.fim_suf, self._vocab.fim_mid]
        if not isinstance(prompt, str):
            raise InvalidValueError(name="prompt", value=prompt, allowed="a text, with suffix=")
        if any(mark is None for mark in marks):
            raise UnsupportedError(what="suffix", why="the model has no tokens for filling a gap")
        before, after = (self.llm.tokenize(text, add_special=False, parse_special=False) for text in (prompt, suffix))
        bos = self._vocab.bos if self._vocab.add_bos else None
        tokens = [bos, marks[0], *before, marks[1], *after, marks[2]]
        return [token for token in tokens if token is not None]

    # ------------------------------------------------------------- chats
    def create_chat_completion(
        self,
        messages: Messages,
        functions: Sequence[Mapping[str, Any]] | None = None,
        function_call: str | Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        temperature: float = 0.2,
        top_p: float = 0.95,
        top_k: int = 40,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        stream: bool = False,
        stop: str | Sequence[str] | None = None,
        seed: int | None = None,
        response_format: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        model: str | None = None,
        logits_processor: Any = None,
        grammar: LlamaGrammar | str | None = None,
        logit_bias: Mapping[int, float] | None = None,
        logprobs: bool | None = None,
        top_logprobs: int | None = None,
    ) -> Any:
        """Answer a conversation: a dict as of OpenAI's API, or an iterator of chunks with `stream=True`.

        With tools a streamed answer comes in one piece: whether it is a call shows at its end.

        Raises:
            ChatTemplateError, InvalidValueError: as `pyspec.chat.chat_prompt`.
            UnsupportedError: something that pyspec has not.
            PyspecError: as `pyspec.Llama.generate`.
        """
        options = sampling(locals()) | {"grammar": grammar_text(grammar)}
        options |= format_options(response_format)
        if logprobs:
            options["logprobs"] = top_logprobs or 0
        legacy = functions is not None and tools is None
        if legacy:
            tools = [{"type": "function", "function": dict(function)} for function in functions or ()]
            tool_choice = function_call
        tools, forced = _chosen(tools, tool_choice)
        options |= forced
        call = {"tools": tools, "template": self._template, **self._options(options)}
        messages = plain_messages(messages)
        name = model or self.model_path
        if stream:
            return self._stream_chat(messages, call, Chunks(name, chat=True), legacy=legacy)
        answer = chat(self.llm, messages, **call)
        return chat_completion(answer, model=name, legacy=legacy, vocab_text=self._text)

    def _stream_chat(
        self, messages: Messages, call: dict[str, Any], chunks: Chunks, *, legacy: bool
    ) -> Iterator[dict[str, Any]]:
        yield chunks.delta({"role": "assistant"})
        for piece in chat_stream(self.llm, messages, **call):
            if isinstance(piece, ChatCompletion):
                if call["tools"]:
                    yield chunks.whole(piece, legacy=legacy)
                yield chunks.last(piece, legacy=legacy, vocab_text=self._text)
            elif not call["tools"]:
                yield chunks.delta({"content": piece})

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        """With what the object adds: memory's reuse, and the seed of `set_seed` where the call names none."""
        reuse, self._reuse = self._reuse, True
        return {"reuse": reuse} | self._always | options

    # ------------------------------------------------------------- vocabulary
    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        """Token ids of UTF-8 text."""
        if not isinstance(text, bytes):
            raise InvalidValueError(name="text", value=text, allowed="bytes, as in llama-cpp-python: text.encode()")
        return self.llm.tokenize(text, add_special=add_bos, parse_special=special)

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes:
        """Bytes of token ids; with `prev_tokens` what they add to the text of those."""
        before = list(prev_tokens or ())
        whole = self._vocab.detokenize([*before, *tokens], unparse_special=special)
        return whole[len(self._vocab.detokenize(before, unparse_special=special)) if before else 0 :]

    def _text(self, token: int) -> str:
        return self._vocab.token_to_piece(token, special=True).decode("utf-8", "replace")

    def n_ctx(self) -> int:
        """Positions of the context."""
        return self.llm.n_ctx

    def n_vocab(self) -> int:
        """Number of token ids."""
        return self.llm.n_vocab

    def n_embd(self) -> int:
        """Width of the model."""
        return self.llm.model.n_embd

    def token_eos(self) -> int:
        """The token that ends a text, -1 without one."""
        return -1 if self._vocab.eos is None else self._vocab.eos

    def token_bos(self) -> int:
        """The token that begins a text, -1 without one."""
        return -1 if self._vocab.bos is None else self._vocab.bos

    def token_nl(self) -> int:
        """The token of a line end, -1 without one."""
        return -1 if self._vocab.nl is None else self._vocab.nl

    @property
    def metadata(self) -> dict[str, str]:
        """The GGUF's metadata as texts."""
        return self.llm.model.metadata

    # ------------------------------------------------------------- life
    def set_seed(self, seed: int) -> None:
        """Seed of the calls that name none."""
        self._always["seed"] = as_seed(seed)

    def set_cache(self, cache: Any) -> None:
        """Nothing: memory keeps the last text, and the next call goes on from what is common."""
        _log.info("set_cache has no meaning in pyspec: the longest common beginning is reused always")

    def reset(self) -> None:
        """Let the next call decode its whole prompt."""
        self._reuse = False

    def close(self) -> None:
        """Free the model and its context."""
        self.llm.close()

    def __enter__(self) -> Llama:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create_embedding(self, *_: Any, **__: Any) -> NoReturn:
        """Not to be had.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(what="an embedding", why="pyspec generates text only")

    embed = create_embedding

    @classmethod
    def from_pretrained(cls, *_: Any, **__: Any) -> NoReturn:
        """Not to be had.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            what="from_pretrained", why="pyspec fetches the models of `pyspec models` only", way_out="give a path"
        )


def _chosen(
    tools: Sequence[Mapping[str, Any]] | None, choice: str | Mapping[str, Any] | None
) -> tuple[Sequence[Mapping[str, Any]] | None, dict[str, Any]]:
    """The tools that the template sees, and options that force a call of one of them."""
    if not tools or choice in (None, "auto"):
        return tools, {}
    if choice == "none":
        return None, {}
    tools = checked_tools(tools) or []
    one = choice.get("function", choice) if isinstance(choice, Mapping) else None
    name = one.get("name") if isinstance(one, Mapping) else None
    wanted = [tool for tool in tools if choice == "required" or tool["function"]["name"] == name]
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
