"""What callers hand to a generation, checked and brought to one form.

Owns prompts, token ids, stop strings, limits and unknown names; every refusal happens before anything is decoded.
Leaves sampling options to `pyspec.config`.
"""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from os import PathLike
from typing import Any

import numpy as np

from pyspec._core import Model, Vocab
from pyspec.budget import BudgetOptions
from pyspec.config import BOOL, CONTEXT_CHECKS, MODEL_CHECKS, Check, between, int_between, is_text, optional
from pyspec.errors import (
    InvalidValueError,
    TokenRangeError,
    UnknownOptionError,
    UnsupportedError,
    VocabularyMissingError,
)
from pyspec.memory import has_device
from pyspec.rollback import NAMES
from pyspec.speculators import Tokens, as_tokens
from pyspec.speculators.draft_model import DraftModelOptions

__all__ = [
    "BUDGETS",
    "as_budget",
    "as_max_tokens",
    "as_stops",
    "check_call",
    "check_object",
    "checked_path",
    "drafts",
    "prompt_text",
    "prompt_tokens",
    "refuse_fork",
    "refuse_object",
    "refuse_one",
    "refuse_own",
    "refuse_unknown",
    "text_tokens",
    "tokens_in_range",
]

SLOPE_CPU, SLOPE_DEVICE = 0.4, 0.05
"""What one more token in a decode is taken to cost until it was measured, as a share of a decode of one."""

BUDGETS = ("measured", "counts", "off")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


_FLAGS = (
    "share_prefix exact verbose ignore_eos reuse echo add_special parse_special special drain return_exceptions"
).split()

_CHECKS: dict[str, Check] = {
    "path": (
        lambda v: (isinstance(v, (str, PathLike)) and str(v) != "") or isinstance(v, Model),
        "a path, a name that `pyspec models` lists, or a loaded Model",
    ),
    "n_ctx": int_between(0, 2**31 - 1),
    "n_batch": int_between(1, 2**31 - 1),
    "n_ubatch": int_between(1, 2**31 - 1),
    "n_threads": int_between(0, 512),
    "n_gpu_layers": int_between(-(2**31), 2**31 - 1),
    "n_seq_max": int_between(1, 254),
    "n_rs_seq": int_between(0, 32),
    "n_parallel": int_between(1, 256),
    "n_cells": int_between(0, 2**31 - 1),
    "n_spare": optional(int_between(0, 256)),
    "max_queue": int_between(1, 2**31 - 1),
    "prefill_chunk": int_between(1, 2**31 - 1),
    "batch_width": int_between(1, 2**31 - 1),
    "checkpoint_budget_bytes": int_between(0, 2**63 - 1),
    **dict.fromkeys(_FLAGS, BOOL),
    "flash_attn": (lambda v: v is None or isinstance(v, bool), "True, False, or None for what is faster"),
    "ctx_checkpoints": int_between(0, 1_000_000),
    "ctx_checkpoint_bytes": int_between(0, 2**63 - 1),
    "ctx_checkpoint_spacing": int_between(1, 2**31 - 1),
    "n_keep": (lambda v: v is None or int_between(0, 2**31 - 1)[0](v), "a whole number from 0 to 2147483647, or None"),
    "progress": (lambda v: v is None or callable(v), "a function, or None"),
    "on_progress": (lambda v: v is None or callable(v), "a function, or None"),
    "timeout": optional(between(0, 1e9)),
    "function": (callable, "a function"),
    "logprobs": optional(int_between(0, 2**31 - 1)),
    "timeout_s": optional(between(0, 1e9)),
    "on_text": (lambda v: v is None or callable(v), "a function, or None"),
    "on_done": (lambda v: v is None or callable(v), "a function, or None"),
    "context": (lambda v: v is None or isinstance(v, dict), "a dict of options, or None"),
    "engine": (lambda v: v is None or (isinstance(v, dict) and all(map(_is_text, v))), "a dict of options, or None"),
    "model": (lambda v: v is None or isinstance(v, dict), "a dict of options, or None"),
    "draft_model": (
        lambda v: v is None or (isinstance(v, (str, PathLike)) and str(v) != "") or isinstance(v, Model),
        "a path, a name that `pyspec models` lists, a loaded Model, or None",
    ),
    "draft_options": (
        lambda v: v is None or isinstance(v, (dict, DraftModelOptions)),
        "DraftModelOptions, a dict of its fields, or None",
    ),
    "rollback": (lambda v: isinstance(v, str), f"one of {', '.join(NAMES)}"),
    "draft_rollback": (lambda v: isinstance(v, str), f"one of {', '.join(NAMES)}"),
    "replay": (lambda v: isinstance(v, str), "'fused' or 'immediate'"),
}


def _check(given: Mapping[str, object]) -> None:
    for name, value in given.items():
        if name in _CHECKS and not _CHECKS[name][0](value):
            raise InvalidValueError(name=name, value=value, allowed=_CHECKS[name][1])


def check_object(given: Mapping[str, object]) -> None:
    """Check what the constructor of `Llama` or `Engine` was given, by name.

    Raises:
        InvalidValueError: the first value of a type or range that cannot be.
    """
    has_default = {"n_ctx"} if "n_parallel" in given and given["n_ctx"] is None else set()  # an engine has one
    _check({name: value for name, value in given.items() if name not in has_default})
    for name, known in (("model", MODEL_CHECKS), ("context", CONTEXT_CHECKS)):
        options: Any = given[name] or {}
        for option in options:
            if option in _CHECKS:
                raise InvalidValueError(name=name, value=options, allowed=f"without {option}, a parameter of its own")
            if option not in known:
                raise UnknownOptionError(name=str(option), known=known, where=f"{name} option")
            ok, allowed = known[option]
            if not ok(options[option]):
                raise InvalidValueError(name=f"{name}[{option!r}]", value=options[option], allowed=allowed)


def checked_path(path: object, name: str = "path") -> str | PathLike[str]:
    """The name of a file.

    Raises:
        InvalidValueError: something else, or an empty one.
    """
    if isinstance(path, (str, PathLike)) and str(path) and "\0" not in str(path):
        with contextlib.suppress(UnicodeEncodeError):
            os.fsencode(path)
            return path
    raise InvalidValueError(name=name, value=path, allowed="the path of a file")


def check_call(**given: object) -> None:
    """Check what a generation was given beside its prompt, limits and sampling options.

    Raises:
        InvalidValueError: a value of a type that cannot be.
    """
    _check(given)


def prompt_tokens(vocab: Vocab, prompt: str | bytes | Sequence[int]) -> Tokens:
    """A prompt's token ids [n_tokens], special tokens of texts included.

    Raises:
        VocabularyMissingError: a text for a model without a text vocabulary.
        InvalidValueError: neither a text nor token ids, or a text of no tokens.
        TokenRangeError: an id outside the vocabulary.
    """
    if not isinstance(prompt, (str, bytes)):
        if isinstance(prompt, (list, tuple)) and any(isinstance(part, (str, bytes)) for part in prompt):
            raise InvalidValueError(
                name="prompt",
                value=prompt,
                allowed="one text or its token ids; llm.map(prompts) takes several prompts, pyspec.Engine many at once",
            )
        return tokens_in_range(prompt, vocab.n_tokens, name="prompt")
    if not vocab.has_text:
        raise VocabularyMissingError(what="a prompt given as text")
    ids = text_tokens(vocab, prompt, name="prompt")
    if not len(ids):
        raise InvalidValueError(name="prompt", value=prompt, allowed="a text of at least one token")
    return ids


def prompt_text(vocab: Vocab, prompt: str | bytes | Sequence[int]) -> str:
    """A prompt as text: as it was given, or as its token ids read, special ones left out; "" without a vocabulary."""
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, bytes):
        return prompt.decode("utf-8", "replace")
    return vocab.detokenize(as_tokens(prompt)).decode("utf-8", "replace") if vocab.has_text else ""


def text_tokens(
    vocab: Vocab, text: str | bytes, *, name: str = "text", add_special: bool = True, parse_special: bool = True
) -> Tokens:
    """Token ids [n_tokens] of a text.

    Raises:
        VocabularyMissingError: the model has no text vocabulary.
        InvalidValueError: something else than text, or a lone surrogate in it; a flag that is none.
    """
    _check({"add_special": add_special, "parse_special": parse_special})
    if not isinstance(text, (str, bytes)):
        raise InvalidValueError(name=name, value=text, allowed="a text")
    try:
        return vocab.tokenize(text, add_special=add_special, parse_special=parse_special)
    except UnicodeEncodeError as error:
        raise InvalidValueError(
            name=name, value=text, allowed=f"text without lone surrogates (one at index {error.start})"
        ) from None


def tokens_in_range(values: Sequence[int], n_vocab: int, *, name: str) -> Tokens:
    """A copy of `values` as token ids [n_tokens], each in the vocabulary.

    Raises:
        InvalidValueError: not whole numbers in a row.
        TokenRangeError: the first id outside 0 to `n_vocab` - 1.
    """
    try:
        ids = as_tokens(np.asarray(values)).copy()
    except (InvalidValueError, ValueError, TypeError, OverflowError):
        raise InvalidValueError(name=name, value=values, allowed="whole token ids, or text") from None
    bad = np.flatnonzero((ids < 0) | (ids >= n_vocab))
    if len(bad):
        raise TokenRangeError(token=int(ids[bad[0]]), index=int(bad[0]), n_vocab=n_vocab)
    return ids


def as_stops(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    """Stop strings as a tuple.

    Raises:
        InvalidValueError: something else than texts, or an empty one.
    """
    stops = () if stop is None else (stop,) if isinstance(stop, str) else stop
    if not isinstance(stops, (list, tuple)) or not all(map(is_text, stops)):
        allowed = "a text or several, none of them empty or with lone surrogates"
        raise InvalidValueError(name="stop", value=stop, allowed=allowed)
    return tuple(stops)


def as_budget(budget: object, n_draft: int | None) -> BudgetOptions | None:
    """The options that `budget` means, None for no budget.

    Raises:
        InvalidValueError: something else.
    """
    if isinstance(budget, BudgetOptions):
        return budget
    if budget is None:
        budget = "measured" if n_draft is None else "off"
    if not is_one_of(budget, BUDGETS):
        raise InvalidValueError(name="budget", value=budget, allowed=f"one of {', '.join(BUDGETS)}, or BudgetOptions")
    if budget == "measured":
        return BudgetOptions(slope=SLOPE_DEVICE if has_device() else SLOPE_CPU)
    return None if budget == "off" else BudgetOptions(measured=False)


def drafts(spec: object) -> bool:
    """Whether `spec` names anything that drafts."""
    if isinstance(spec, (list, tuple)):
        return any(map(drafts, spec))
    return spec is not None and not is_one_of(spec, ("none",))


def is_one_of(value: object, known: Iterable[object]) -> bool:
    """Whether a value of any kind, an array too, is one of the plain ones that are `known`."""
    return (value is None or isinstance(value, (Real, np.bool_, str))) and value in known


def as_max_tokens(max_tokens: int | None) -> int | None:
    """The limit; a negative one means none, as in llama.cpp.

    Raises:
        InvalidValueError: not a whole number.
    """
    if max_tokens is None:
        return None
    if isinstance(max_tokens, bool) or not isinstance(max_tokens, (int, np.integer)):
        raise InvalidValueError(name="max_tokens", value=max_tokens, allowed="a whole number, or None for no limit")
    return int(max_tokens) if max_tokens >= 0 else None


def refuse_own(given: Mapping[str, object], own: Mapping[str, str]) -> None:
    """Raise for a keyword that the call decides itself.

    Args:
        given: keywords.
        own: why some cannot be given, by name.

    Raises:
        InvalidValueError: the first of them, with the reason.
    """
    for name in own:
        if name in given:
            raise InvalidValueError(name=name, value=given[name], allowed=f"left out: {own[name]}")


def refuse_object(spec: object) -> None:
    """Raise for a speculator that is to be the default of several sequences, each of which needs its own.

    Raises:
        InvalidValueError: with the way out.
    """
    for one in spec if isinstance(spec, (list, tuple)) else [spec]:
        if hasattr(one, "draft") and not isinstance(one, type):
            raise InvalidValueError(
                name="spec",
                value=one,
                allowed="names, or a function that makes a speculator for each request; `Llama.map` takes it as "
                "engine={'spec': function}",
            )


def refuse_one(prompts: object) -> None:
    """Raise for one text where several prompts are wanted: its characters are none.

    Raises:
        InvalidValueError: a text, or nothing that can be gone through.
    """
    try:
        iter(prompts)  # type: ignore[call-overload]
        is_one = isinstance(prompts, (str, bytes))
    except TypeError:
        is_one = True
    if is_one:
        raise InvalidValueError(name="prompts", value=prompts, allowed="several prompts, e.g. a list of texts")


def refuse_fork(pid: int) -> None:
    """Raise in another process than `pid`.

    Raises:
        UnsupportedError: this process was forked from it.
    """
    if os.getpid() != pid:
        raise UnsupportedError(
            what="using a model in a forked process",
            why="the threads that compute did not follow",
            way_out="make a Llama in the child, or start it with multiprocessing's 'spawn'",
        )


def refuse_unknown(given: Mapping[str, object], function: Callable[..., object], known: Iterable[str] = ()) -> None:
    """Raise for a keyword that neither `known` has nor `function` names.

    Raises:
        UnknownOptionError: with the nearest name that exists.
    """
    known = set(known)
    for name in given:
        if name not in known:
            parameters = inspect.signature(function).parameters.values()
            named = {p.name for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD} - {"self"}
            raise UnknownOptionError(name=name, known=known | named)
