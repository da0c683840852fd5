"""Laws of masks: what is forbidden by bits is forbidden as by a grammar, and each token costs one random number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from sampler_reference import LITERAL, N_VOCAB, OPEN, at, law_of, literal, only, softmax, uniforms

from pyspec import errors
from pyspec._core import Context, Model, Sampler
from pyspec.config import SamplingOptions


def mask_of(*allowed: int, n_vocab: int = N_VOCAB) -> np.ndarray:
    mask = np.zeros((n_vocab + 31) // 32, np.uint32)
    for token in allowed:
        mask[token // 32] |= np.uint32(1 << token % 32)
    return mask


def masked_law(sampler: Sampler, context: Context, mask: np.ndarray) -> dict[int, float]:
    tokens, chances = sampler.probabilities(context, 0, mask)
    return dict(zip(tokens.tolist(), chances.tolist(), strict=True))


@pytest.mark.parametrize("allowed", [{5, 100}, {40}, {9, 77, 100}, {0, 31, 32, 127, 11}], ids=str)
def test_the_law_is_the_free_choice_where_allowed_and_the_allowed_ones_otherwise(
    model: Model, context: Context, allowed: set[int]
):
    sampler = Sampler(model, literal(context, LITERAL))
    free, held = softmax(LITERAL), only(softmax(LITERAL), allowed & set(LITERAL))
    forbidden = sum(p for token, p in free.items() if token not in allowed)
    expected = {token: free[token] + forbidden * p for token, p in held.items()}
    assert masked_law(sampler, context, mask_of(*allowed)) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("xtc", [0.0, 0.5])
def test_tokens_are_drawn_by_that_law(model: Model, context: Context, xtc: float):
    options: dict[str, Any] = {"xtc_probability": xtc, "xtc_threshold": 0.1}
    mask, n = mask_of(5, 11, 40, 77), 4000
    law = masked_law(Sampler(model, literal(context, LITERAL, **options)), context, mask)
    sampler = Sampler(model, literal(context, LITERAL, seed=3, **options))
    counts = np.bincount([sampler.sample(context, 0, mask) for _ in range(n)], minlength=N_VOCAB)
    assert set(np.flatnonzero(counts)) <= set(law)
    for token, chance in law.items():
        assert counts[token] / n == pytest.approx(chance, abs=5 * math.sqrt(chance * (1 - chance) / n))


def test_one_number_is_drawn_whether_the_first_choice_is_allowed_or_not(model: Model, context: Context):
    sampler, law = Sampler(model, literal(context, LITERAL, seed=7)), softmax(LITERAL)
    for i, u in enumerate(uniforms(7, 60)):
        free = at(law, u)
        if i % 2:
            assert sampler.sample(context, 0, mask_of(100)) == 100
        else:
            assert sampler.sample(context, 0, mask_of(*LITERAL)) == free


@pytest.mark.parametrize("options", [{}, {"xtc_probability": 0.5, "xtc_threshold": 0.1}], ids=["dist", "xtc"])
def test_choosing_again_with_a_mask_is_choosing_with_it_at_once(
    model: Model, context: Context, options: dict[str, Any]
):
    at_once, twice = (Sampler(model, literal(context, LITERAL, seed=11, **options)) for _ in range(2))
    mask = mask_of(9, 40, 100)
    for _ in range(50):
        free = twice.sample(context, 0)
        assert free == twice.sample(context, 0, again=True)
        assert twice.sample(context, 0, mask, again=True) == at_once.sample(context, 0, mask)


def test_a_choice_that_was_accepted_cannot_be_made_again(model: Model, context: Context):
    sampler = Sampler(model, literal(context, LITERAL, seed=1))
    with pytest.raises(errors.SamplerError, match="no choice to make again"):
        sampler.sample(context, 0, again=True)
    sampler.accept(sampler.sample(context, 0))
    with pytest.raises(errors.SamplerError, match="no choice to make again"):
        sampler.sample(context, 0, again=True)


@pytest.mark.parametrize("options", [{}, {"repeat_penalty": 1.3}], ids=["argmax", "penalties"])
def test_greedy_takes_the_best_allowed_token(model: Model, context: Context, options: dict[str, Any]):
    sampler = Sampler(model, SamplingOptions(**options))
    best = np.argsort(-context.logits(0, 1)[0], kind="stable").tolist()
    for n_forbidden in (0, 1, 5, 127):
        allowed = best[n_forbidden:]
        assert sampler.sample(context, 0, mask_of(*allowed)) == allowed[0]
        assert masked_law(sampler, context, mask_of(*allowed)) == {allowed[0]: 1.0}


@pytest.mark.parametrize("mirostat", [1, 2])
def test_mirostat_cuts_among_the_allowed(model: Model, context: Context, mirostat: int):
    sampler = Sampler(model, literal(context, LITERAL, mirostat=mirostat, seed=2))
    for _ in range(30):
        token = sampler.sample(context, 0, mask_of(40, 77))
        assert token in (40, 77)
        sampler.accept(token)


def test_a_mask_and_a_grammar_both_hold(text_context: Context, text_model: Model):
    sampler = Sampler(text_model, SamplingOptions(grammar="root ::= [a-c]+", **OPEN))
    by_grammar = set(law_of(sampler, text_context))
    some = sorted(by_grammar)[::2]
    mask = mask_of(*some, 300, n_vocab=text_model.vocab.n_tokens)
    assert set(masked_law(sampler, text_context, mask)) == set(some)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_forbidding_everything_is_an_error(model: Model, context: Context, temperature: float):
    sampler = Sampler(model, literal(context, LITERAL, temperature=temperature))
    for mask in (mask_of(), mask_of(6)):
        with pytest.raises(errors.SamplerError, match="no candidate is left"):
            sampler.sample(context, 0, mask)
    with pytest.raises(errors.SamplerError, match="no candidate is left"):
        Sampler(model, SamplingOptions()).sample(context, 0, mask_of())


@pytest.mark.parametrize(
    "mask",
    [
        np.zeros(3, np.uint32),
        np.zeros((2, 4), np.uint32),
        np.zeros(4, np.int32),
        np.zeros(8, np.uint32)[::2],
        [1, 2, 3, 4],
        "mask",
    ],
    ids=["short", "two dimensions", "signed", "strided", "list", "text"],
)
def test_what_is_no_mask_is_refused(model: Model, context: Context, mask: Any):
    sampler = Sampler(model, SamplingOptions())
    for call in (sampler.sample, sampler.probabilities):
        with pytest.raises(errors.InvalidValueError, match="contiguous uint32 array of 4 words"):
            call(context, 0, mask)
