"""Plain against speculative decoding of the same prompts: do they say the same, and if not, how close was it.

Owns the comparison and the margin at the first difference; leaves generating to `pyspec.llm`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pyspec.arguments import as_max_tokens, refuse_one
from pyspec.errors import InvalidValueError
from pyspec.llm import Llama
from pyspec.speculators import Spec, as_tokens
from pyspec.stats import Stats

__all__ = ["Comparison", "check_lossless"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One prompt, generated plainly and with drafts.

    Attributes:
        index: which prompt.
        equal: the same tokens and finish reason.
        n_tokens: tokens that the plain run generated.
        first_difference: index of the first generated token that differs, None when equal or when one text only ends
            earlier.
        plain_token, speculative_token: the two tokens there, None where one text ended.
        margin: how much larger the plain choice's logit is than the other's, asked of the model once more after the
            common tokens; None without two tokens. Small means that the two runs decoded in other widths, and the
            model itself was undecided.
        stats: counts of the speculative run.
    """

    index: int
    equal: bool
    n_tokens: int
    first_difference: int | None
    plain_token: int | None
    speculative_token: int | None
    margin: float | None
    stats: Stats

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {"stats": self.stats.to_dict(rounds=False)}


def check_lossless(
    llm: Llama,
    prompts: Iterable[str | Sequence[int]],
    *,
    spec: Spec | Sequence[Spec] = "auto",
    **options: Any,
) -> list[Comparison]:
    """Generate every prompt plainly and with `spec`, and compare.

    Args:
        llm: the model; its memory is used.
        prompts: texts or token ids.
        spec: the speculator to compare plain decoding with.
        options: of `Llama.generate`, for both runs; with a temperature both use one seed.

    Raises:
        InvalidValueError: `prompts` is a single text; no tokens to compare.
        PyspecError: as `Llama.generate`.
    """
    refuse_one(prompts)
    if as_max_tokens(options.get("max_tokens")) == 0:
        raise InvalidValueError(name="max_tokens", value=0, allowed="at least 1: there would be nothing to compare")
    return [_compare(llm, index, prompt, spec, options) for index, prompt in enumerate(prompts)]


def _compare(
    llm: Llama, index: int, prompt: str | Sequence[int], spec: Spec | Sequence[Spec], options: dict[str, Any]
) -> Comparison:
    plain = llm.generate(prompt, **options | {"spec": None})
    fast = llm.generate(prompt, **options | {"spec": spec, "seed": plain.seed})
    a, b = plain.tokens, fast.tokens
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    end = min(len(a), len(b)) if at is None else at
    one = a[end] if end < len(a) else None
    other = b[end] if end < len(b) else None
    margin = None
    if at is not None and one is not None and other is not None:
        row = _row_after(llm, [*plain.prompt_tokens, *a[:at]])
        margin = float(row[one] - row[other])
    return Comparison(
        index=index,
        equal=a == b and plain.finish_reason == fast.finish_reason,
        n_tokens=len(a),
        first_difference=at,
        plain_token=one,
        speculative_token=other,
        margin=margin,
        stats=fast.stats,
    )


def _row_after(llm: Llama, tokens: list[int]) -> Any:
    """The target's logits [n_vocab] after `tokens`, the last of them decoded alone, as a plain run does."""
    with llm._exclusive():
        memory = llm._decoder.memory
        memory.clear()
        memory.feed(as_tokens(tokens), n_last=memory.context.n_batch)
        if memory.n_past < len(tokens) - 1:
            memory.decode(tokens[memory.n_past : -1], 0)
        memory.decode(tokens[-1:], 1)
        return memory.context.logits(memory.first_row, 1)[0]
