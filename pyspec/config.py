"""Frozen options for sampling, generation and contexts.

Owns their names, defaults, ranges and the refusal of unknown ones; leaves their use to the layers below.
Defaults follow llama.cpp (common/common.h) where it has the option.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, ClassVar, TypeVar

from pyspec.errors import InvalidValueError, UnknownOptionError

__all__ = [
    "BOOL",
    "CONTEXT_CHECKS",
    "CONTEXT_OPTIONS",
    "MODEL_CHECKS",
    "MODEL_OPTIONS",
    "SamplingOptions",
    "between",
    "from_keywords",
    "int_between",
    "is_text",
    "optional",
    "validate",
]

_T = TypeVar("_T")
Check = tuple[Callable[[Any], bool], str]


def _finite(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _is_int(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def between(low: float, high: float) -> Check:
    """A finite number in [`low`, `high`]."""
    return (lambda v: _finite(v) and low <= v <= high), f"a number from {low:g} to {high:g}"


def int_between(low: int, high: int) -> Check:
    """A whole number in [`low`, `high`]."""
    return (lambda v: _is_int(v) and low <= v <= high), f"a whole number from {low} to {high}"


def optional(check: Check) -> Check:
    """None, or what `check` allows."""
    return (lambda v: v is None or check[0](v)), f"None or {check[1]}"


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_real(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _row_of(kind: Callable[[Any], bool], what: str) -> Check:
    return (
        lambda v: v is None or (isinstance(v, (list, tuple)) and all(map(kind, v))),
        f"None or a list of {what}",
    )


BOOL: Check = (_is_bool, "True or False")
_NUMBER: Check = (_is_real, "a number")
_NAME: Check = (lambda v: isinstance(v, str) and v.isprintable(), "a name")
_WHOLE = int_between(-(2**63), 2**63 - 1)

MODEL_CHECKS: Mapping[str, Check] = {
    "devices": _row_of(lambda v: isinstance(v, str), "names of devices"),
    "main_gpu": _WHOLE,
    "split_mode": _NAME,
    "tensor_split": _row_of(_is_real, "numbers"),
    "use_mmap": BOOL,
    "use_mlock": BOOL,
    "use_extra_bufts": BOOL,
    "check_tensors": BOOL,
}
"""What `Llama(model={...})` may hold: parameters of `pyspec._core.Model` that `Llama` has no parameter for, by type."""
MODEL_OPTIONS = frozenset(MODEL_CHECKS)

CONTEXT_CHECKS: Mapping[str, Check] = {
    "n_outputs_max": _WHOLE,
    "n_threads_batch": _WHOLE,
    "type_k": _NAME,
    "type_v": _NAME,
    "offload_kqv": BOOL,
    "op_offload": BOOL,
    "swa_full": BOOL,
    "kv_unified": optional(BOOL),
    "rope_scaling": optional(_NAME),
    "rope_freq_base": _NUMBER,
    "rope_freq_scale": _NUMBER,
    "yarn_ext_factor": _NUMBER,
    "yarn_attn_factor": _NUMBER,
    "yarn_beta_fast": _NUMBER,
    "yarn_beta_slow": _NUMBER,
    "yarn_orig_ctx": _WHOLE,
}
"""What `Llama(context={...})` may hold: parameters of `pyspec._core.Context` that `Llama` has no parameter for."""
CONTEXT_OPTIONS = frozenset(CONTEXT_CHECKS)


def validate(options: object, checks: Mapping[str, Check]) -> None:
    """Raise `InvalidValueError` for the first field of `options` that fails its check."""
    for name, (ok, allowed) in checks.items():
        value = getattr(options, name)
        if not ok(value):
            raise InvalidValueError(name=name, value=value, allowed=allowed)


def from_keywords(kind: type[_T], keywords: Mapping[str, object]) -> _T:
    """Build the options dataclass `kind`, refusing names that it does not have."""
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    for name in keywords:
        if name not in known:
            raise UnknownOptionError(name=name, known=known)
    return kind(**keywords)


def is_text(value: object) -> bool:
    """A text of one character at least that UTF-8 can hold: without lone surrogates."""
    return isinstance(value, str) and value != "" and not any("\ud800" <= c <= "\udfff" for c in value)


def _text(value: Any) -> bool:
    return is_text(value) and "\0" not in value


def _bias_pairs(bias: Any) -> tuple[tuple[int, float], ...] | None:
    """The pairs of a mapping or of a sequence of pairs, None when it is something else."""
    pairs = bias.items() if isinstance(bias, Mapping) else bias
    try:
        found = tuple((token, value) for token, value in pairs)
    except (TypeError, ValueError):
        return None
    if all(_is_int(t) and isinstance(b, Real) and not isinstance(b, bool) for t, b in found):
        return tuple((int(t), float(b)) for t, b in found)
    return None


def _bias_in_range(bias: Any) -> bool:
    pairs = _bias_pairs(bias)
    return pairs is not None and all(t >= 0 and (b == -math.inf or abs(b) <= 1e6) for t, b in pairs)


def _breakers(value: Any) -> bool:
    return (
        isinstance(value, (tuple, list))
        and len(value) <= 256
        and all(_text(b) and len(b.encode()) <= 40 for b in value)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """How the target's next token is chosen.

    The steps and their order are llama.cpp's (common/sampling.cpp): logit bias, penalties, DRY, top-k, typical, top-p,
    min-p, XTC, temperature, one random draw, grammar.

    `temperature` 0 is greedy, the default: speculation is judged against one text. Bias, penalties, DRY and grammar
    still apply then, the rest does not. `mirostat` 1 or 2 takes the place of top-k to XTC. `seed=None` draws one.
    `penalty_last_n` and `dry_penalty_last_n` count tokens, 0 disables; so do `top_k` 0, `top_p` 1, `min_p` 0,
    `typical_p` 1, `xtc_probability` 0, `dry_multiplier` 0 and `repeat_penalty` 1.
    `logit_bias` maps token ids to what is added to their logits (-inf forbids); it is stored as a tuple of pairs.
    `grammar` is GBNF (llama.cpp grammars/README.md), `grammar_root` the rule to start from.

    Raises:
        InvalidValueError: an option outside its range, with the range.
    """

    seed: int | None = None
    temperature: float = 0.0
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    penalty_last_n: int = 64
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 4096
    dry_sequence_breakers: Sequence[str] = ("\n", ":", '"', "*")
    logit_bias: Mapping[int, float] | Sequence[tuple[int, float]] = ()
    grammar: str | None = None
    grammar_root: str = "root"
    min_keep: int = 1

    # csrc/sampler_options.cpp holds the same ranges: they keep llama.cpp's arithmetic defined.
    _CHECKS: ClassVar[dict[str, Check]] = {
        "seed": optional(int_between(0, 2**32 - 2)),
        "temperature": between(0, 1000),
        "dynatemp_range": between(0, 1000),
        "dynatemp_exponent": between(0, 1000),
        "top_k": int_between(0, 2**31 - 1),
        "top_p": between(0, 1),
        "min_p": between(0, 1),
        "typical_p": between(0, 1),
        "xtc_probability": between(0, 1),
        "xtc_threshold": between(0, 1),
        "mirostat": int_between(0, 2),
        "mirostat_tau": between(0, 1000),
        "mirostat_eta": between(0, 1),
        "penalty_last_n": int_between(0, 2**31 - 1),
        "repeat_penalty": between(0.01, 100),
        "frequency_penalty": between(-1000, 1000),
        "presence_penalty": between(-1000, 1000),
        "dry_multiplier": between(0, 1000),
        "dry_base": (
            lambda v: _finite(v) and (v == 0 or 1 <= v <= 1000),
            "0 or a number from 1 to 1000",
        ),
        "dry_allowed_length": int_between(0, 2**31 - 1),
        "dry_penalty_last_n": int_between(0, 2**20),
        "dry_sequence_breakers": (
            _breakers,
            "at most 256 texts of 1 to 40 bytes without NUL or lone surrogates",
        ),
        "logit_bias": (
            _bias_in_range,
            "token ids with numbers from -1e6 to 1e6, or -inf to forbid a token",
        ),
        "grammar": optional((_text, "a GBNF text without NUL or lone surrogates")),
        "grammar_root": (_text, "the name of a rule"),
        "min_keep": int_between(1, 2**31 - 1),
    }

    def __post_init__(self) -> None:
        validate(self, self._CHECKS)
        plain: dict[str, Any] = {
            "logit_bias": _bias_pairs(self.logit_bias),
            "dry_sequence_breakers": tuple(self.dry_sequence_breakers),
        }
        for field in fields(self):
            value = plain.get(field.name, getattr(self, field.name))
            if _is_int(value) and field.type != "float":
                value = int(value)
            elif isinstance(value, Real) and not isinstance(value, bool):
                value = float(value)
            object.__setattr__(self, field.name, value)
