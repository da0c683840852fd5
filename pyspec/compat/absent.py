"""Methods of llama-cpp-python's `Llama` that pyspec has not, each with the way out.

Owns their names and the words of the refusal. What reaches into llama.cpp's own objects (`ctx`, `model`, `scores`,
`eval_logits`) is not there at all.
"""

from __future__ import annotations

from typing import Any, NoReturn

from pyspec.errors import UnsupportedError

__all__ = ["Absent"]

_TEXT_ONLY = "pyspec generates text only"
_INSIDE = "rounds of drafting and verifying are one call"
_STATE = ("memory is not a copy that can be taken out", "pyspec.Session(old.llm) keeps, saves and loads a text")


def _refuse(what: str, why: str, way_out: str = "") -> NoReturn:
    raise UnsupportedError(what=what, why=why, way_out=way_out)


class Absent:
    """What cannot be had: every method raises `UnsupportedError`."""

    def create_embedding(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: no embeddings."""
        _refuse("an embedding", _TEXT_ONLY, "use a library for embeddings")

    embed = create_embedding

    def eval(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: no step of a generation alone."""
        _refuse("eval", _INSIDE, "use create_completion, or old.llm.stream for one piece at a time")

    def sample(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: no step of a generation alone."""
        _refuse("sample", _INSIDE, "use create_completion with sampling options, or logprobs= to see the choices")

    def generate(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: no endless iterator over tokens."""
        _refuse(
            "generate", _INSIDE, "use create_completion, also with token ids as prompt; old.llm.generate gives tokens"
        )

    def save_state(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: see `pyspec.Session`."""
        _refuse("save_state", *_STATE)

    def load_state(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: see `pyspec.Session`."""
        _refuse("load_state", *_STATE)

    def tokenizer(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: no object beside `tokenize` and `detokenize`."""
        _refuse("tokenizer", "the vocabulary has no object of its own", "use tokenize and detokenize")

    def pooling_type(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: no embeddings."""
        _refuse("pooling_type", _TEXT_ONLY)

    def create_chat_completion_openai_v1(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: results are dicts."""
        _refuse(
            "create_chat_completion_openai_v1",
            "results are dicts",
            "use create_chat_completion and read its keys",
        )

    @staticmethod
    def logits_to_logprobs(*_: Any, **__: Any) -> NoReturn:
        """Refused: no logits to turn."""
        _refuse("logits_to_logprobs", "logits are not handed out", "use logprobs=")

    @staticmethod
    def longest_token_prefix(*_: Any, **__: Any) -> NoReturn:
        """Refused: what is common is found inside."""
        _refuse("longest_token_prefix", "the longest common beginning is reused by itself")

    @classmethod
    def from_pretrained(cls, *_: Any, **__: Any) -> NoReturn:
        """Refused: no downloads."""
        _refuse("from_pretrained", "pyspec fetches the models of `pyspec models` only", "give a path")

    def __getstate__(self) -> NoReturn:
        """Refused: a model in memory is no value."""
        _refuse("copying or pickling a Llama", "it holds a model in memory", "make another, or share its llm.model")
