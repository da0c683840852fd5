"""What happened in a generation, as text and as plain data.

Owns the choice and order of the numbers; leaves counting to `pyspec.stats`, the rows to `pyspec.summary` and
layout to `table`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pyspec.cli.table import table
from pyspec.completion import Completion
from pyspec.llm import Llama
from pyspec.logprobs import TokenLogprob
from pyspec.summary import rows

__all__ = [
    "COLUMNS",
    "as_dict",
    "first_difference",
    "interrupted",
    "logprobs_table",
    "run_cells",
    "stats_table",
    "usage",
]

COLUMNS = ("tokens/s", "ratio", "rounds", "drafted", "accepted", "share", "rollbacks", "replayed")
_N_CHARACTERS_SHOWN = 40


def as_dict(completion: Completion) -> dict[str, Any]:
    """Everything in `completion` as plain data."""
    found = completion.logprobs
    logprobs = {} if found is None else {"logprobs": [asdict(one) | {"bytes": list(one.bytes)} for one in found]}
    return {
        "text": completion.text,
        "tokens": completion.tokens,
        "finish_reason": completion.finish_reason,
        "stop": completion.stop,
        "prompt_tokens": completion.prompt_tokens,
        "seed": completion.seed,
        "stats": completion.stats.to_dict(),
        "timings": completion.timings.to_dict(),
    } | logprobs


def usage(llm: Llama) -> str:
    """One line: the model, its memory and how drafts are undone."""
    return (
        f"{llm.model.architecture} {llm.model.quantization}, {llm.capabilities.kind} memory, "
        f"rollback {llm.rollback} ({llm.rollback_reason})"
    )


def run_cells(completion: Completion, tokens_per_s: float, ratio: float | None) -> list[str]:
    """The cells under `COLUMNS` of one generation; `tokens_per_s` and `ratio` may be of several like it."""
    s = completion.stats
    return [
        f"{tokens_per_s:.1f}",
        "" if ratio is None else f"{ratio:.2f}",
        str(s.n_rounds),
        str(s.n_drafted),
        str(s.n_accepted),
        f"{s.acceptance_rate:.0%}" if s.n_drafted else "",
        str(s.n_rollbacks),
        str(s.n_replayed),
    ]


def stats_table(llm: Llama, completion: Completion) -> str:
    """Everything that was counted and timed, one item a line."""
    found = [("model", usage(llm)), ("finish", completion.finish_reason), *rows(completion.stats)]
    return table([list(row) for row in found])


def logprobs_table(llm: Llama, logprobs: Sequence[TokenLogprob]) -> str:
    """A line for each token: its text, its log-probability, and the likeliest ones there."""

    def told(token: int, logprob: float) -> str:
        return f"{llm.detokenize([token], special=True)!r} {logprob:.2f}"

    lines = [[repr(one.text), f"{one.logprob:.2f}", ", ".join(told(*top) for top in one.top)] for one in logprobs]
    return table(lines, header=("token", "logprob", "likeliest"), right=(1,))


def interrupted(llm: Llama, elapsed_s: float) -> str:
    """One line about a generation that Ctrl-C stopped."""
    s = llm.stats
    drafted = f", drafted {s.n_drafted}, accepted {s.n_accepted}" if s.n_drafted else ""
    return f"[interrupted after {elapsed_s:.1f} s: {s.n_generated} tokens in {s.n_rounds} rounds{drafted}]"


def first_difference(plain: Completion, other: Completion) -> str | None:
    """Where `other` leaves `plain`, in words; None when tokens and texts are equal."""
    if plain.tokens == other.tokens and plain.text == other.text:
        return None
    at = _n_same(plain.tokens, other.tokens)
    if not plain.text and not other.text:
        return f"at token {at}: {plain.tokens[at : at + 4]} and {other.tokens[at : at + 4]}"
    char = _n_same(plain.text, other.text)
    here, there = (text[char : char + _N_CHARACTERS_SHOWN] for text in (plain.text, other.text))
    return f"at token {at}, character {char}: {here!r} and {there!r}"


def _n_same(one: str | list[int], other: str | list[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
