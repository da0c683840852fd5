"""Texts for the tests of the n-gram speculators: made by chance, and recorded from a model.

`token_histories.json` holds prompts and what pyspec's tiny target said after them: "rewrite" the demo's task, greedy;
"prose" and "code" a page of documentation and of Python, at a temperature of 0.7 to 0.8.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path


def repetitive(rng: random.Random, n_alphabet: int, n_passages: int = 40) -> list[int]:
    """Passages of 3 new tokens, or of up to 12 copied from before, half of each: 300 tokens at most."""
    tokens: list[int] = []
    for _ in range(rng.randrange(n_passages)):
        start = rng.randrange(len(tokens) + 1)
        is_copy = rng.random() < 0.5
        tokens += tokens[start : start + 12] if is_copy else [rng.randrange(n_alphabet) for _ in range(3)]
    return tokens


def ends_of(tokens: list[int], n: int) -> list[int]:
    """Where the last `n` tokens stood before, by the position after them; the earliest first."""
    return [end for end in range(n, len(tokens)) if tokens[end - n : end] == tokens[len(tokens) - n :]]


def followed(tokens: list[int], end: int, n_tokens: int) -> list[int]:
    """What followed position `end`, one by one: past the end of `tokens` what has been read already."""
    grown = list(tokens)
    for i in range(n_tokens):
        grown.append(grown[end + i])
    return grown[len(tokens) :]


@dataclass(frozen=True)
class Recorded:
    """A prompt of `n_prompt` tokens and what followed it."""

    n_prompt: int
    tokens: list[int]


def recorded() -> dict[str, Recorded]:
    """The recorded texts by name."""
    texts = json.loads(Path(__file__).with_name("token_histories.json").read_text())
    return {name: Recorded(**text) for name, text in texts.items()}
