"""Arguments of llama-cpp-python in pyspec's words.

Owns which names there are, what each becomes, which have no meaning here and which cannot be had. Leaves checking
values to `pyspec.Llama` and `pyspec.config`.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

from pyspec._core import Model
from pyspec.config import Check, int_between, validate
from pyspec.errors import InvalidValueError, UnknownOptionError, UnsupportedError
from pyspec.llm import Llama

__all__ = ["LlamaPromptLookupDecoding", "constructor", "sampling"]

_log = logging.getLogger("pyspec")

_DEFAULTS = {"n_ctx": 512, "n_batch": 512, "n_gpu_layers": 0}
"""Where llama-cpp-python's differ from pyspec's."""
_MODEL = frozenset("main_gpu tensor_split use_mmap use_mlock".split())
_CONTEXT = frozenset(
    (
        "n_threads_batch rope_freq_base rope_freq_scale yarn_ext_factor yarn_attn_factor yarn_beta_fast yarn_beta_slow "
        "yarn_orig_ctx offload_kqv op_offload swa_full"
    ).split()
)
_MEANINGLESS = frozenset("logits_all no_perf numa lora_scale".split())
_REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "vocab_only": ((False, None), "load a pyspec._core.Model(path, vocab_only=True)"),
    "embedding": ((False, None), "pyspec generates text only"),
    "kv_overrides": ((None,), "change the GGUF file"),
    "lora_base": ((None,), "merge the adapter into the model"),
    "lora_path": ((None,), "merge the adapter into the model"),
    "chat_handler": ((None,), "give a Jinja template: chat_template=..."),
    "tokenizer": ((None,), "the model's own tokenizer is used"),
    "pooling_type": ((-1, None), "pyspec generates text only"),
    "attention_type": ((-1, None), "pyspec generates text only"),
    "spm_infill": ((False, None), "prompts with suffix= are prefix, suffix, middle"),
}
_SPLIT_MODES = {0: "none", 1: "layer", 2: "row"}
_ROPE_SCALINGS = {-1: None, 0: "none", 1: "linear", 2: "yarn", 3: "longrope"}
_TYPES = {0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 20: "iq4_nl", 30: "bf16"}
_NUMBERED: dict[str, tuple[str, Mapping[int, str | None]]] = {
    "split_mode": ("split_mode", _SPLIT_MODES),
    "rope_scaling_type": ("rope_scaling", _ROPE_SCALINGS),
    "type_k": ("type_k", _TYPES),
    "type_v": ("type_v", _TYPES),
}
_OWN = frozenset(inspect.signature(Llama.__init__).parameters) - {"self", "path", "unknown", "model", "context"}


@dataclass(frozen=True, slots=True)
class LlamaPromptLookupDecoding:
    """Drafts what followed the last tokens where they stood before: pyspec's speculator "ngram-simple".

    Raises:
        InvalidValueError: a number outside its range.
    """

    num_pred_tokens: int = 10
    max_ngram_size: int = 2

    def __post_init__(self) -> None:
        checks: dict[str, Check] = {"num_pred_tokens": int_between(1, 1024), "max_ngram_size": int_between(1, 1024)}
        validate(self, checks)

    @property
    def spec(self) -> str:
        """The speculator."""
        return f"ngram-simple:size_n={self.max_ngram_size},size_m={self.num_pred_tokens}"


def constructor(given: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of `pyspec.Llama` for those of llama-cpp-python's, beside which pyspec's own may stand.

    Raises:
        UnknownOptionError: a name that neither library has, with the nearest one.
        UnsupportedError: something that pyspec has not.
        InvalidValueError: a number of a mode or type that is not known.
    """
    own: dict[str, Any] = dict(_DEFAULTS)
    model: dict[str, Any] = {}
    context: dict[str, Any] = {}
    for name, value in given.items():
        if name in _MEANINGLESS:
            if value not in (False, None):
                _log.info("%s=%r has no meaning in pyspec and is ignored", name, value)
        elif name in _REFUSED:
            _refuse(name, value)
        elif name in _NUMBERED:
            if value is not None:
                their, numbers = _NUMBERED[name]
                (model if name == "split_mode" else context)[their] = _named(name, value, numbers)
        elif name in _MODEL or name in _CONTEXT:
            if value is not None:
                (model if name in _MODEL else context)[name] = value
        elif name == "draft_model":
            own |= _drafts(value)
        elif name in _OWN:
            own[name] = value
        else:
            known = _OWN | _MEANINGLESS | _MODEL | _CONTEXT | set(_REFUSED) | set(_NUMBERED) | _SPECIAL
            raise UnknownOptionError(name=name, known=known)
    own["n_threads"] = own.get("n_threads") or 0
    own["seed"] = as_seed(own.get("seed"))
    return own | {"model": model or None, "context": context or None}


_SPECIAL = frozenset(["model_path", "chat_format", "chat_template", "last_n_tokens_size"])


def _refuse(name: str, value: Any) -> None:
    defaults, way_out = _REFUSED[name]
    if value not in defaults:
        raise UnsupportedError(what=f"{name}={value!r}", why="pyspec has nothing of the kind", way_out=way_out)


def _named(name: str, value: Any, numbers: Mapping[int, str | None]) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value not in numbers:
        allowed = ", ".join(f"{number} ({text})" for number, text in numbers.items())
        raise InvalidValueError(name=name, value=value, allowed=f"one of {allowed}")
    return numbers[value]


def _drafts(value: Any) -> dict[str, Any]:
    if isinstance(value, LlamaPromptLookupDecoding):
        return {"spec": value.spec}
    if value is None or isinstance(value, (str, PathLike, Model)):
        return {"draft_model": value}
    allowed = "a model's path, name or Model, a pyspec.compat.LlamaPromptLookupDecoding, or None; spec= takes others"
    raise InvalidValueError(name="draft_model", value=value, allowed=allowed)


def as_seed(seed: int | None) -> int | None:
    """None for llama.cpp's numbers that mean a random seed."""
    return None if seed in (-1, 2**32 - 1) else seed


_SAMPLING = frozenset(
    (
        "temperature top_p min_p typical_p top_k frequency_penalty presence_penalty repeat_penalty mirostat_tau "
        "mirostat_eta"
    ).split()
)


def sampling(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a generation for those of `create_completion` and `create_chat_completion`.

    Raises:
        UnsupportedError: functions that look at logits, or tail-free sampling.
    """
    for name in ("logits_processor", "stopping_criteria"):
        if given.get(name):
            raise UnsupportedError(
                what=name,
                why="tokens are chosen inside llama.cpp",
                way_out="use logit_bias, grammar or stop, or close the stream when it is enough",
            )
    if given.get("tfs_z", 1.0) != 1.0:
        raise UnsupportedError(what="tfs_z", why="llama.cpp has no tail-free sampling any more", way_out="use min_p")
    options = {name: given[name] for name in _SAMPLING}
    options["mirostat"] = given["mirostat_mode"]
    options["seed"] = as_seed(given["seed"])
    options["stop"] = given["stop"] or None
    limit = given["max_tokens"]
    options["max_tokens"] = None if limit is None or limit <= 0 else limit
    bias = given["logit_bias"]
    if bias:
        options["logit_bias"] = {int(token): value for token, value in bias.items()}  # OpenAI's keys are texts
    return {name: value for name, value in options.items() if not (name == "seed" and value is None)}
