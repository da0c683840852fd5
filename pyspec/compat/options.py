"""Arguments of llama-cpp-python in pyspec's words.

Owns which names there are, what each becomes, which have no meaning here and which cannot be had. Leaves checking
values to `pyspec.Llama` and `pyspec.config`.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from os import PathLike
from typing import Any

from pyspec._core import Model
from pyspec.arguments import as_max_tokens, is_one_of
from pyspec.config import Check, int_between, optional, validate
from pyspec.errors import InvalidValueError, UnknownOptionError, UnsupportedError
from pyspec.llm import Llama

__all__ = [
    "LlamaPromptLookupDecoding",
    "as_seed",
    "call_options",
    "chat_logprobs",
    "completion_options",
    "constructor",
    "sampling",
]

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
            if not is_one_of(value, (False, None)):
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
    own["n_threads"] = 0 if own.get("n_threads") is None else own["n_threads"]
    own["seed"] = as_seed(own.get("seed"))
    return own | {"model": model or None, "context": context or None}


_SPECIAL = frozenset(["model_path", "chat_format", "chat_template", "last_n_tokens_size"])


def _refuse(name: str, value: Any) -> None:
    defaults, way_out = _REFUSED[name]
    if not is_one_of(value, defaults):
        raise UnsupportedError(what=f"{name}={value!r}", why="pyspec has nothing of the kind", way_out=way_out)


def _named(name: str, value: Any, numbers: Mapping[int, str | None]) -> str | None:
    if isinstance(value, str):
        return value
    if not isinstance(value, int) or isinstance(value, bool) or value not in numbers:
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
    return None if is_one_of(seed, (-1, 2**32 - 1)) else seed


def _is_given(value: Any) -> bool:
    """Whether there is anything in a value of any kind."""
    return not is_one_of(value, (None, False, "")) and not (isinstance(value, (list, tuple)) and not value)


_SAMPLING = frozenset(
    (
        "temperature top_p min_p typical_p top_k frequency_penalty presence_penalty repeat_penalty mirostat_mode "
        "mirostat_tau mirostat_eta"
    ).split()
)
_OFF = (
    ("top_k", 0, math.inf),
    ("min_p", 0, math.inf),
    ("top_p", -math.inf, 1),
    ("typical_p", -math.inf, 1),
)
"""Where llama.cpp leaves a sampler out, and pyspec wants the number that says so."""
_WHOLE: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0, "mirostat": 0, "temperature": 1.0}
"""Draws from all tokens as likely as the model has them."""


def sampling(given: Mapping[str, Any], method: Callable[..., Any]) -> dict[str, Any]:
    """Options of a generation for those of `create_completion` and `create_chat_completion`.

    None stands for a default; `top_k` below 1, `top_p` above 1 and a negative `min_p` are off; a negative temperature
    draws from all tokens, whatever else is given.

    Args:
        given: the method's arguments by name.
        method: has the defaults.

    Raises:
        UnsupportedError: functions that look at logits, or tail-free sampling.
        InvalidValueError: a bias that is none, or no number of tokens.
    """
    for name in ("logits_processor", "stopping_criteria"):
        if _is_given(given.get(name)):
            raise UnsupportedError(
                what=name,
                why="tokens are chosen inside llama.cpp",
                way_out="use logit_bias, grammar or stop, or close the stream when it is enough",
            )
    if not is_one_of(given["tfs_z"], (None, 1.0)):
        raise UnsupportedError(what="tfs_z", why="llama.cpp has no tail-free sampling any more", way_out="use min_p")
    defaults = inspect.signature(method).parameters
    options = {name: defaults[name].default if given[name] is None else given[name] for name in _SAMPLING}
    options["mirostat"] = options.pop("mirostat_mode")
    for name, low, high in _OFF:
        options[name] = _clamped(options[name], low, high)
    if _is_number(options["temperature"]) and options["temperature"] < 0:
        options |= _WHOLE
    seed = as_seed(given["seed"])
    options |= {} if seed is None else {"seed": seed}
    limit = as_max_tokens(given["max_tokens"])
    bias = _bias(given["logit_bias"])
    return options | {
        "stop": given["stop"] if _is_given(given["stop"]) else None,
        "max_tokens": limit or None,
        "logit_bias": bias,
    }


def _clamped(value: Any, low: float, high: float) -> Any:
    return min(max(value, low), high) if _is_number(value) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _bias(bias: Any) -> Mapping[int, Any]:
    """The bias by token ids, which OpenAI's API writes as texts."""
    if bias is None:
        return {}
    try:
        return {int(token): value for token, value in bias.items()}
    except (AttributeError, TypeError, ValueError, OverflowError):
        allowed = "a dict of numbers by token id, or None"
        raise InvalidValueError(name="logit_bias", value=bias, allowed=allowed) from None


def completion_options(logprobs: Any, echo: Any) -> dict[str, Any]:
    """`logprobs` of a text completion is how many of the likeliest; True for one."""
    logprobs = (int(logprobs) or None) if isinstance(logprobs, bool) else logprobs
    if not is_one_of(echo, (None, False, True)):
        raise InvalidValueError(name="echo", value=echo, allowed="True or False")
    return {"logprobs": logprobs, "echo": bool(echo)}


def as_answer(model: Any, stream: Any, path: str) -> tuple[str, bool]:
    """How an answer names its model, and whether it comes piece by piece.

    Raises:
        InvalidValueError: no name, or neither yes nor no.
    """
    if model is not None and not isinstance(model, str):
        raise InvalidValueError(name="model", value=model, allowed="a name to answer with, or None")
    if not is_one_of(stream, (None, False, True)):
        raise InvalidValueError(name="stream", value=stream, allowed="True or False")
    return model or path, bool(stream)


def chat_logprobs(logprobs: Any, top_logprobs: Any) -> dict[str, Any]:
    """`logprobs` of a chat is yes or no, `top_logprobs` how many of the likeliest.

    Raises:
        InvalidValueError: others, and a number that nobody asked to see.
    """
    checks: dict[str, tuple[Any, Check]] = {
        "logprobs": (logprobs, (lambda v: v is None or isinstance(v, bool), "True, False or None")),
        "top_logprobs": (top_logprobs, optional(int_between(0, 2**31 - 1))),
    }
    for name, (value, (ok, allowed)) in checks.items():
        if not ok(value):
            raise InvalidValueError(name=name, value=value, allowed=allowed)
    if top_logprobs is not None and not logprobs:
        raise InvalidValueError(name="top_logprobs", value=top_logprobs, allowed="left out without logprobs=True")
    return {"logprobs": top_logprobs or 0} if logprobs else {}


def call_options(given: Mapping[str, Any], method: Callable[..., Any]) -> dict[str, Any]:
    """What `given` holds beside the method's own arguments: pyspec's `spec`, for this call.

    OpenAI's `n=1` and `user` mean nothing here.

    Raises:
        UnsupportedError: several answers.
        UnknownOptionError: another name.
    """
    known = set(inspect.signature(method).parameters) - {"self", "further"} | {"n", "user", "spec"}
    for name, value in given.items():
        if name not in known:
            raise UnknownOptionError(name=name, known=known)
        if name == "n" and not is_one_of(value, (None, 1)):
            raise UnsupportedError(
                what=f"n={value!r}",
                why="a call gives one answer",
                way_out="call it again with another seed, or use old.llm.generate_many",
            )
    return {"spec": given["spec"]} if "spec" in given else {}
