"""Laws of the random numbers and the memory of a sampler: one draw per choice, seeds, reset, clones.

Owns what makes speculation change nothing; leaves the law that is drawn from to test_sampler_law.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sampler_reference import (
    LITERAL,
    PROMPT,
    at,
    law_of,
    literal,
    softmax,
    uniforms,
)

from pyspec._core import Context, Model, Sampler
from pyspec.config import SamplingOptions


@pytest.mark.parametrize("seed", [0, 1, 7, 2**32 - 2])
def test_each_sample_takes_one_draw_of_the_seeds_stream(context: Context, model: Model, seed: int) -> None:
    sampler = Sampler(model, literal(context, LITERAL, top_k=40, seed=seed))
    law = softmax(LITERAL)
    expected = [at(law, u) for u in uniforms(seed, 50)]
    assert [sampler.sample(context, 0) for _ in range(50)] == expected
    assert len(set(expected)) > 1


def test_rows_of_one_decode_are_sampled_like_single_decodes(context: Context, model: Model) -> None:
    """Row i of a wide decode and the row of a decode of token i alone: same draws, so same tokens."""
    options = SamplingOptions(temperature=1.0, seed=5, repeat_penalty=1.2)
    wide = Sampler(model, options)
    wide_tokens = []
    for row in range(len(PROMPT)):
        wide_tokens.append(wide.sample(context, row))
        wide.accept(wide_tokens[-1])
    single = Sampler(model, options)
    alone = Context(model, n_ctx=64, n_threads=1)
    single_tokens = []
    for pos, token in enumerate(PROMPT):
        alone.decode([token], pos=pos)
        # Widths may differ in the last bits; the draws of these tokens are not that near to a boundary.
        np.testing.assert_allclose(alone.logits(), context.logits(pos, 1), rtol=1e-3, atol=1e-3)
        single_tokens.append(single.sample(alone, 0))
        single.accept(single_tokens[-1])
    assert single_tokens == wide_tokens


def test_reading_probabilities_draws_nothing(context: Context, model: Model) -> None:
    options = SamplingOptions(temperature=1.0, seed=3, xtc_probability=0.5)
    read, unread = Sampler(model, options), Sampler(model, options)
    tokens = []
    for row in range(len(PROMPT)):
        read.probabilities(context, row)
        tokens.append(read.sample(context, row))
    assert tokens == [unread.sample(context, row) for row in range(len(PROMPT))]


def test_a_grammars_refusal_costs_no_second_draw(text_context: Context, text_model: Model) -> None:
    """The forbidden choice's place in its interval chooses again, so the next sample takes the next draw."""
    a, b, c = (int(text_model.vocab.tokenize(text, add_special=False)[0]) for text in "abc")
    logits = {a: 1.0, b: 0.5, c: 0.0}
    options = literal(text_context, logits, top_k=40, seed=11, grammar="root ::= [bc]*")
    sampler = Sampler(text_model, options)
    free, constrained = softmax(logits), softmax({b: 0.5, c: 0.0})
    for u in uniforms(11, 60):
        first = at(free, u)
        expected = first if first != a else at(constrained, u / free[a])
        assert sampler.sample(text_context, 0) == expected


@pytest.mark.parametrize("grammar", [None, "root ::= [bc]*"], ids=["free", "grammar"])
def test_frequencies_are_the_probabilities(text_context: Context, text_model: Model, grammar: str | None) -> None:
    a, b, c = (int(text_model.vocab.tokenize(text, add_special=False)[0]) for text in "abc")
    options = literal(
        text_context,
        {a: 1.0, b: 0.5, c: 0.0},
        seed=2,
        grammar=grammar,
        xtc_probability=0.3,
        xtc_threshold=0.2,
    )
    sampler = Sampler(text_model, options)
    law = law_of(sampler, text_context)
    n = 4000
    counts = dict.fromkeys(law, 0)
    for _ in range(n):
        counts[sampler.sample(text_context, 0)] += 1
    for token, probability in law.items():
        spread = math.sqrt(n * probability * (1 - probability))
        assert abs(counts[token] - n * probability) < 4 * spread


# ------------------------------------------------------------------ state

KINDS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "greedy,penalties": {"repeat_penalty": 1.3},
    "temperature": {"temperature": 1.0},
    "dynatemp": {"temperature": 1.0, "dynatemp_range": 0.5},
    "truncated": {"temperature": 2.0, "top_k": 50, "top_p": 0.9, "min_p": 0.01, "typical_p": 0.9},
    "xtc": {"temperature": 1.0, "xtc_probability": 0.5, "xtc_threshold": 0.01},
    "mirostat=1": {"temperature": 1.0, "mirostat": 1},
    "mirostat=2": {"temperature": 1.0, "mirostat": 2},
    "penalties": {
        "temperature": 1.0,
        "repeat_penalty": 1.5,
        "frequency_penalty": 0.2,
        "presence_penalty": 0.2,
    },
    "dry": {"temperature": 1.0, "dry_multiplier": 2.0, "dry_sequence_breakers": ("\n",)},
    "bias": {"temperature": 1.0, "logit_bias": {3: 2.0, 4: -math.inf}},
    "grammar": {"temperature": 1.5, "grammar": "root ::= ([0-9a-f] [0-9a-f])*"},
}


def _run(sampler: Sampler, context: Context, n: int) -> list[int]:
    tokens = []
    for i in range(n):
        tokens.append(sampler.sample(context, i % len(PROMPT)))
        sampler.accept(tokens[-1])
    return tokens


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_tokens(context: Context, model: Model, kind: str) -> None:
    options = SamplingOptions(seed=42, **KINDS[kind])
    assert _run(Sampler(model, options), context, 40) == _run(Sampler(model, options), context, 40)


@pytest.mark.parametrize("kind", KINDS)
def test_a_reset_sampler_starts_over(context: Context, model: Model, kind: str) -> None:
    sampler = Sampler(model, SamplingOptions(seed=42, **KINDS[kind]))
    first = _run(sampler, context, 40)
    sampler.reset()
    assert _run(sampler, context, 40) == first


@pytest.mark.parametrize("kind", KINDS)
def test_a_clone_continues_as_the_original_would(context: Context, model: Model, kind: str) -> None:
    sampler = Sampler(model, SamplingOptions(seed=42, **KINDS[kind]))
    _run(sampler, context, 25)
    clone = sampler.clone()
    assert clone.seed == sampler.seed
    assert clone.names == sampler.names
    expected = _run(sampler, context, 40)
    assert _run(clone, context, 40) == expected


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "greedy" not in kind])
def test_other_seeds_give_other_tokens(context: Context, model: Model, kind: str) -> None:
    runs = {tuple(_run(Sampler(model, SamplingOptions(seed=s, **KINDS[kind])), context, 40)) for s in range(5)}
    assert len(runs) > 1


def test_a_missing_seed_is_drawn_and_told(context: Context, model: Model) -> None:
    sampler = Sampler(model, SamplingOptions(temperature=1.0))
    again = Sampler(model, SamplingOptions(temperature=1.0, seed=sampler.seed))
    assert _run(again, context, 40) == _run(sampler, context, 40)
    assert Sampler(model, SamplingOptions(temperature=1.0)).seed != sampler.seed


def test_names_list_the_active_samplers_in_order(model: Model) -> None:
    assert Sampler(model, SamplingOptions()).names == ["greedy"]
    everything = SamplingOptions(
        temperature=0.7,
        typical_p=0.9,
        xtc_probability=0.1,
        repeat_penalty=1.1,
        dry_multiplier=0.5,
        logit_bias={1: 1.0},
        grammar="root ::= [0-9]",
    )
    assert Sampler(model, everything).names == [
        "logit-bias", "penalties", "dry", "top-k", "typical", "top-p", "min-p", "xtc", "temp-ext", "dist",
        "grammar",
    ]  # fmt: skip
    mirostat = SamplingOptions(temperature=1.0, mirostat=2, repeat_penalty=1.1)
    assert Sampler(model, mirostat).names == ["penalties", "mirostat-v2"]


def test_a_sampler_outlives_the_closed_model(arch_model: Callable[[str], Path]) -> None:
    model = Model(arch_model("llama"))
    sampler = Sampler(model, SamplingOptions(temperature=1.0, seed=1, grammar="root ::= [0-9a-f]*"))
    model.close()
    del model
    sampler.accept(1, prompt=True)
    assert sampler.clone().names == sampler.names
