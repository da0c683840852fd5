"""Laws of what the sampler draws from: each step against a reference on literal logits, and greedy choices.

Owns the comparison of probabilities; leaves the draws themselves to test_sampler_draws.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sampler_reference import (
    LITERAL,
    N_VOCAB,
    OPEN,
    PROMPT,
    Law,
    law_of,
    literal,
    only,
    softmax,
)

from pyspec._core import Context, Model, Sampler
from pyspec.config import SamplingOptions


def _dynamic_temperature(low: float, high: float, exponent: float) -> float:
    entropy = -sum(p * math.log(p) for p in softmax(LITERAL).values())
    return low + (high - low) * (entropy / math.log(len(LITERAL))) ** exponent


def _typical(p: float) -> set[int]:
    law = softmax(LITERAL)
    entropy = -sum(q * math.log(q) for q in law.values())
    kept: set[int] = set()
    for token in sorted(law, key=lambda t: abs(-math.log(law[t]) - entropy)):
        kept.add(token)
        if sum(law[t] for t in kept) > p:
            break
    return kept


def _mirostat_1(mu: float) -> set[int]:
    ranked = sorted(LITERAL.items(), key=lambda item: -item[1])
    t = [math.log((i + 2) / (i + 1)) for i in range(len(ranked) - 1)]
    b = [ranked[i][1] - ranked[i + 1][1] for i in range(len(ranked) - 1)]
    slope = sum(x * y for x, y in zip(t, b, strict=True)) / sum(x * x for x in t)
    epsilon = slope - 1
    k = (epsilon * 2**mu / (1 - N_VOCAB**-epsilon)) ** (1 / slope)
    return {token for token, _ in ranked[: max(1, int(k))]}


def _mirostat_2(mu: float) -> set[int]:
    law = softmax(LITERAL)
    return {t for t, p in law.items() if -math.log2(p) <= mu or p == max(law.values())}


def _mixed(share: float, first: Law, second: Law) -> Law:
    return {t: (1 - share) * first.get(t, 0) + share * second.get(t, 0) for t in {*first, *second}}


REFERENCE: dict[str, tuple[dict[str, Any], Law]] = {
    "softmax": ({}, softmax(LITERAL)),
    "temperature=0.5": ({"temperature": 0.5}, softmax(LITERAL, 0.5)),
    "temperature=2": ({"temperature": 2.0}, softmax(LITERAL, 2.0)),
    "temperature=1e-6": ({"temperature": 1e-6}, {5: 1.0}),
    "dynatemp": (
        {"temperature": 1.0, "dynatemp_range": 0.5, "dynatemp_exponent": 2.0},
        softmax(LITERAL, _dynamic_temperature(0.5, 1.5, 2.0)),
    ),
    "top_k=3": ({"top_k": 3}, only(softmax(LITERAL), {5, 9, 11})),
    "top_k=larger-than-the-vocabulary": ({"top_k": 2**31 - 1}, softmax(LITERAL)),
    "top_p=0.7": ({"top_p": 0.7}, only(softmax(LITERAL), {5, 9})),
    "top_p=0": ({"top_p": 0.0}, {5: 1.0}),
    "top_p=0,min_keep=3": ({"top_p": 0.0, "min_keep": 3}, only(softmax(LITERAL), {5, 9, 11})),
    "min_p=0.3": ({"min_p": 0.3}, only(softmax(LITERAL), {5, 9, 11})),
    "min_p=1": ({"min_p": 1.0}, {5: 1.0}),
    "typical_p=0.5": ({"typical_p": 0.5}, only(softmax(LITERAL), _typical(0.5))),
    "typical_p=0.8": ({"typical_p": 0.8}, only(softmax(LITERAL), _typical(0.8))),
    "xtc": (
        {"xtc_probability": 0.25, "xtc_threshold": 0.2},
        _mixed(0.25, softmax(LITERAL), only(softmax(LITERAL), {9, 11, 40, 77, 100})),
    ),
    "xtc_threshold=0.6": ({"xtc_probability": 1.0, "xtc_threshold": 0.6}, softmax(LITERAL)),
    "mirostat=2": (
        {"mirostat": 2, "mirostat_tau": 1.0},
        only(softmax(LITERAL), _mirostat_2(2.0)),
    ),
    "mirostat=1": ({"mirostat": 1, "mirostat_tau": 1.5}, only(softmax(LITERAL), _mirostat_1(3.0))),
    "min_p-before-temperature": (
        {"min_p": 0.3, "temperature": 3.0},
        only(softmax(LITERAL, 3.0), {5, 9, 11}),
    ),
}


@pytest.mark.parametrize("name", REFERENCE)
def test_the_law_on_literal_logits_is_the_references(context: Context, model: Model, name: str) -> None:
    options, expected = REFERENCE[name]
    law = law_of(Sampler(model, literal(context, LITERAL, **options)), context)
    assert law == pytest.approx(expected, rel=1e-4, abs=1e-7)


PENALTIES: dict[str, tuple[dict[str, Any], list[int], dict[int, float]]] = {
    "repeat": ({"repeat_penalty": 1.5}, [5, 5, 100], {5: 2.0 / 1.5, 100: -3.0 * 1.5}),
    "frequency": ({"frequency_penalty": 0.5}, [5, 5, 9], {5: 1.0, 9: 1.0}),
    "presence": ({"presence_penalty": 0.5}, [5, 5, 9], {5: 1.5, 9: 1.0}),
    "negative": ({"frequency_penalty": -0.5}, [5, 5, 9], {5: 3.0, 9: 2.0}),
    "window=2": ({"presence_penalty": 0.5, "penalty_last_n": 2}, [5, 9, 9, 11], {9: 1.0, 11: 0.5}),
    "window=huge": ({"presence_penalty": 0.5, "penalty_last_n": 2**31 - 1}, [5], {5: 1.5}),
    "window=0": ({"presence_penalty": 0.5, "penalty_last_n": 0}, [5], {}),
    "dry": (
        {"dry_multiplier": 0.8, "dry_base": 1.75, "dry_allowed_length": 2, "dry_sequence_breakers": ()},
        [5, 9, 11, 40, 5, 9, 11],
        {40: 0.0 - 0.8 * 1.75},
    ),
    "dry,window=4": (
        {"dry_multiplier": 0.8, "dry_penalty_last_n": 4, "dry_sequence_breakers": ()},
        [5, 9, 11, 40, 5, 9, 11],
        {},
    ),
}


@pytest.mark.parametrize("prompt", [False, True], ids=["accepted", "prompt"])
@pytest.mark.parametrize("name", PENALTIES)
def test_penalties_change_the_logits_of_accepted_and_prompt_tokens(
    context: Context, model: Model, name: str, prompt: bool
) -> None:
    options, accepted, changed = PENALTIES[name]
    sampler = Sampler(model, literal(context, LITERAL, **options))
    assert law_of(sampler, context) == pytest.approx(softmax(LITERAL), rel=1e-4)
    for token in accepted:
        sampler.accept(token, prompt=prompt)
    assert law_of(sampler, context) == pytest.approx(softmax({**LITERAL, **changed}), rel=1e-4)
    sampler.reset()
    assert law_of(sampler, context) == pytest.approx(softmax(LITERAL), rel=1e-4)


def test_biases_of_one_token_add_up(context: Context, model: Model) -> None:
    own = context.logits(0, 1)[0]
    options = SamplingOptions(logit_bias=((3, 1.0), (3, 0.5)), **OPEN)
    logits = {token: float(own[token]) + (1.5 if token == 3 else 0.0) for token in range(N_VOCAB)}
    assert law_of(Sampler(model, options), context) == pytest.approx(softmax(logits), rel=1e-4)


def test_typical_copes_with_tokens_of_no_probability(context: Context, model: Model) -> None:
    logits = {5: 0.0, 9: -0.5, 11: -500.0, 40: -1000.0}
    options = literal(context, logits, typical_p=0.9999)
    assert law_of(Sampler(model, options), context) == pytest.approx(softmax({5: 0.0, 9: -0.5}), rel=1e-3)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("version", "tau", "kept"),
    [(1, 1.5, _mirostat_1), (2, 1.0, _mirostat_2)],
    ids=["mirostat=1", "mirostat=2"],
)
def test_mirostat_moves_its_bound_by_the_accepted_surprise(
    context: Context, model: Model, version: int, tau: float, kept: Callable[[float], set[int]], seed: int
) -> None:
    options = literal(context, LITERAL, mirostat=version, mirostat_tau=tau, mirostat_eta=1.0, seed=seed)
    sampler = Sampler(model, options)
    before = only(softmax(LITERAL), kept(2 * tau))
    assert law_of(sampler, context) == pytest.approx(before, rel=1e-4)
    token = sampler.sample(context, 0)
    assert law_of(sampler, context) == pytest.approx(before, rel=1e-4)
    sampler.accept(token)
    mu = 2 * tau - (-math.log2(before[token]) - tau)
    assert law_of(sampler, context) == pytest.approx(only(softmax(LITERAL), kept(mu)), rel=1e-4)


# ------------------------------------------------------------------ greedy


@pytest.mark.parametrize("row", range(len(PROMPT)))
def test_greedy_is_the_contexts_argmax(context: Context, model: Model, row: int) -> None:
    sampler = Sampler(model, SamplingOptions())
    assert sampler.is_greedy
    assert sampler.sample(context, row) == context.argmax(row) == int(np.argmax(context.logits(row, 1)))
    assert law_of(sampler, context, row) == {context.argmax(row): 1.0}


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.5},
        {"logit_bias": {3: 1.0}},
        {"repeat_penalty": 1.1},
        {"frequency_penalty": 0.1},
        {"presence_penalty": -0.1},
        {"dry_multiplier": 0.8, "dry_sequence_breakers": ()},
        {"grammar": "root ::= [0-9a-f]+"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_can_change_the_argmax_is_not_called_greedy(model: Model, options: dict[str, Any]) -> None:
    assert not Sampler(model, SamplingOptions(**options)).is_greedy


def test_greedy_applies_bias_and_penalties_and_ignores_the_rest(context: Context, model: Model) -> None:
    options = literal(
        context,
        LITERAL,
        temperature=0.0,
        presence_penalty=2.0,
        typical_p=0.1,
        xtc_probability=1.0,
        mirostat=2,
    )
    sampler = Sampler(model, options)
    chosen = []
    for _ in range(3):
        chosen.append(sampler.sample(context, 0))
        sampler.accept(chosen[-1])
    assert chosen == [5, 9, 11]


def test_greedy_takes_the_smallest_id_among_equals(context: Context, model: Model) -> None:
    options = literal(context, {100: 1.0, 40: 1.0, 9: 0.0}, temperature=0.0, row=3)
    own = context.logits(3, 1)[0]
    assert np.float32(own[40] + np.float32(1.0 - own[40])) == np.float32(own[100] + np.float32(1.0 - own[100]))
    assert Sampler(model, options).sample(context, 3) == 40
