"""The reference that the sampler's law is compared with, in plain Python on literal logits.

Owns softmax, the stream of random numbers, and the bias that puts literal logits in place of a model's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from pyspec._core import Context, Sampler
from pyspec.config import SamplingOptions

N_VOCAB = 128
PROMPT = [3, 10, 17, 24, 31, 38, 45, 52]
# Every truncation off: the law is the softmax alone.
OPEN: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
LITERAL = {5: 2.0, 9: 1.5, 11: 1.0, 40: 0.0, 77: -1.0, 100: -3.0}

Law = dict[int, float]


def literal(context: Context, logits: Mapping[int, float], row: int = 0, **options: Any) -> SamplingOptions:
    """Options whose bias makes these the logits of `row` and forbids every other token."""
    own = context.logits(row, 1)[0].astype(np.float64)
    bias = {token: logits[token] - own[token] if token in logits else -math.inf for token in range(len(own))}
    return SamplingOptions(logit_bias=bias, **{**OPEN, **options})


def law_of(sampler: Sampler, context: Context, row: int = 0) -> Law:
    tokens, probabilities = sampler.probabilities(context, row)
    assert tokens.dtype == np.int32
    assert probabilities.dtype == np.float32
    assert list(probabilities) == sorted(probabilities, reverse=True)
    return dict(zip(tokens.tolist(), probabilities.tolist(), strict=True))


def softmax(logits: Mapping[int, float], temperature: float = 1.0) -> Law:
    largest = max(logits.values())
    weights = {token: math.exp((logit - largest) / temperature) for token, logit in logits.items()}
    total = sum(weights.values())
    return {token: weight / total for token, weight in weights.items()}


def only(law: Law, tokens: set[int]) -> Law:
    total = sum(law[token] for token in tokens)
    return {token: law[token] / total for token in tokens}


def uniforms(seed: int, n: int) -> list[float]:
    """The draws of std::mt19937 as 53-bit numbers in [0, 1)."""
    words = np.frombuffer(np.random.RandomState(seed).bytes(8 * n), dtype="<u4").astype(np.float64)
    return [(low + high * 2.0**32) / 2.0**64 for low, high in words.reshape(n, 2)]


def at(law: Law, u: float) -> int:
    """The token at `u` of a law sorted by probability."""
    run = 0.0
    for token, probability in sorted(law.items(), key=lambda item: -item[1]):
        run += probability
        if run >= u:
            return token
    raise AssertionError("the probabilities add up to less than u")
