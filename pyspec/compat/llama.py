"""`Llama` as llama-cpp-python's code uses it: completions and chats as OpenAI-shaped dicts, and the vocabulary.

Owns the methods and the order of their arguments. Leaves arguments to `pyspec.compat.options`, results to
`pyspec.compat.responses`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from os import PathLike, fspath
from types import NoneType
from typing import Any

from pyspec.arguments import checked_path, is_one_of, prompt_tokens, tokens_in_range
from pyspec.chat import ChatCompletion, chat, chat_stream
from pyspec.chat.template import ChatTemplate
from pyspec.compat.absent import Absent
from pyspec.compat.grammar import LlamaGrammar, format_options, grammar_options
from pyspec.compat.options import (
    as_answer,
    as_seed,
    call_options,
    chat_logprobs,
    completion_options,
    constructor,
    sampling,
)
from pyspec.compat.responses import (
    Chunks,
    chat_completion,
    completion,
    completion_logprobs,
    finish_reason,
    plain_messages,
)
from pyspec.compat.tools import chosen, tools_of
from pyspec.completion import Completion
from pyspec.config import SamplingOptions, int_between
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


class Llama(Absent):
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
        if not is_one_of(chat_format, (None, "chatml")):
            raise UnsupportedError(
                what=f"chat_format={chat_format!r}",
                why="pyspec renders Jinja templates: the model's own, or 'chatml'",
                way_out="leave it out, or give the template: chat_template=...",
            )
        if chat_template is not None and not isinstance(chat_template, (str, ChatTemplate)):
            raise InvalidValueError(name="chat_template", value=chat_template, allowed="Jinja text or a ChatTemplate")
        check = int_between(0, 2**31 - 1)
        if not check[0](last_n_tokens_size):
            raise InvalidValueError(name="last_n_tokens_size", value=last_n_tokens_size, allowed=check[1])
        self.model_path = fspath(checked_path(model_path, "model_path"))
        self.chat_format = chat_format
        self._template = chat_template if chat_template is not None else CHATML if chat_format else None
        self.llm = PyspecLlama(model_path, **constructor(options))
        self._vocab = self.llm.model.vocab
        self._reuse = True
        self.verbose = bool(options.get("verbose", False))
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
        **further: Any,
    ) -> Any:
        """Complete a text: a dict as of OpenAI's API, or an iterator of such dicts with `stream=True`.

        `suffix` is what stands behind the gap that is filled, by the model's own tokens for that. An empty prompt
        begins with the token that begins a text. `further` may be pyspec's `spec`, for this call, and of OpenAI's API
        `n=1` and `user`.

        Raises:
            UnsupportedError: something that pyspec, or with `suffix` the model, has not.
            PyspecError: as `pyspec.Llama.generate`.
        """
        options = call_options(further, Llama.create_completion)
        options |= sampling(locals(), Llama.create_completion) | completion_options(logprobs, echo)
        options |= grammar_options(grammar)
        text, n_chars = self._prompt(prompt) if suffix is None else (self._infill(prompt, suffix), len(prompt))
        if suffix is not None and echo:
            raise UnsupportedError(what="echo with suffix", why="the prompt is not in the order of the text")
        name, stream = as_answer(model, stream, self.model_path)
        if stream:
            return self._stream_completion(text, options, Chunks(name, chat=False), n_chars)
        result = self.llm.generate(text, **self._options(options))
        return completion(result, model=name, prompt_chars=n_chars, vocab_text=self._text)

    __call__ = create_completion

    def _stream_completion(
        self, prompt: str | Sequence[int], options: dict[str, Any], chunks: Chunks, n_chars: int
    ) -> Iterator[dict[str, Any]]:
        with closing(self.llm.stream(prompt, **self._options(options))) as pieces:
            for piece in pieces:
                if isinstance(piece, Completion):
                    found = completion_logprobs(piece, n_chars, self._text)
                    yield chunks.text("", finish=finish_reason(piece), logprobs=found)
                else:
                    yield chunks.text(piece)

    def _prompt(self, prompt: str | Sequence[int]) -> tuple[str | Sequence[int], int]:
        """The prompt and its characters; nothing at all means the token that begins a text.

        Raises:
            InvalidValueError: neither a text nor token ids, or nothing where no token begins a text.
        """
        if isinstance(prompt, str) and prompt:
            return prompt, len(prompt)
        if isinstance(prompt, bytes):
            raise InvalidValueError(name="prompt", value=prompt, allowed="a text or token ids: prompt.decode()")
        if not isinstance(prompt, str) and len(ids := prompt_tokens(self._vocab, prompt)):
            return prompt, len(self.llm.detokenize(ids.tolist()))
        if self._vocab.bos is None:
            allowed = "some text: this model has no token that begins one"
            raise InvalidValueError(name="prompt", value=prompt, allowed=allowed)
        return [self._vocab.bos], 0

    def _infill(self, prompt: str | Sequence[int], suffix: str) -> list[int]:
        marks = [self._vocab.fim_pre, self._vocab.fim_suf, self._vocab.fim_mid]
        for name, text in (("prompt", prompt), ("suffix", suffix)):
            if not isinstance(text, str):
                raise InvalidValueError(name=name, value=text, allowed="a text, where a gap is filled")
        if any(mark is None for mark in marks):
            raise UnsupportedError(what="suffix", why="the model has no tokens for filling a gap")
        before, after = (self.llm.tokenize(t, add_special=False, parse_special=False) for t in (str(prompt), suffix))
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
        **further: Any,
    ) -> Any:
        """Answer a conversation: a dict as of OpenAI's API, or an iterator of chunks with `stream=True`.

        With tools a streamed answer comes in one piece: whether it is a call shows at its end. Where several say what
        the text must look like, `tool_choice` counts before `response_format`, and that before `grammar`. `further` as
        of `create_completion`.

        Raises:
            ChatTemplateError, InvalidValueError: as `pyspec.chat.chat_prompt`.
            UnsupportedError: something that pyspec has not.
            PyspecError: as `pyspec.Llama.generate`.
        """
        options = call_options(further, Llama.create_chat_completion)
        options |= sampling(locals(), Llama.create_chat_completion) | chat_logprobs(logprobs, top_logprobs)
        if not isinstance(function_call, (str, Mapping, NoneType)):
            raise InvalidValueError(name="function_call", value=function_call, allowed="a text, a dict, or None")
        legacy = functions is not None and tools is None
        if legacy:
            tools, tool_choice = tools_of(functions), function_call
        tools, forced = chosen(tools, tool_choice)
        options |= forced or format_options(response_format) or grammar_options(grammar)
        call = {"tools": tools, "template": self._template, **self._options(options)}
        messages = plain_messages(messages)
        name, stream = as_answer(model, stream, self.model_path)
        if stream:
            return self._stream_chat(messages, call, Chunks(name, chat=True), legacy=legacy)
        answer = chat(self.llm, messages, **call)
        return chat_completion(answer, model=name, legacy=legacy, vocab_text=self._text)

    def _stream_chat(
        self, messages: Messages, call: dict[str, Any], chunks: Chunks, *, legacy: bool
    ) -> Iterator[dict[str, Any]]:
        yield chunks.delta({"role": "assistant"})
        with closing(chat_stream(self.llm, messages, **call)) as pieces:
            for piece in pieces:
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
        new = tokens_in_range(tokens, self.llm.n_vocab, name="tokens").tolist()
        before = tokens_in_range(prev_tokens or (), self.llm.n_vocab, name="prev_tokens").tolist()
        whole = self._vocab.detokenize([*before, *new], unparse_special=special)
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
        self._always["seed"] = SamplingOptions(seed=as_seed(seed)).seed

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
