"""Speculative sampling: whatever the draft's law, what comes out has the target's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyspec import Llama
from pyspec._core import Model, Sampler
from pyspec.budget import BudgetOptions
from pyspec.config import SamplingOptions
from pyspec.drafting import Drafting
from pyspec.errors import AbortedError, UnsupportedError
from pyspec.residual import ResidualSampler, keep_or_correct, with_residual
from pyspec.speculators import Law, Scripted


def law(*chances: float) -> Law:
    """Ids 0, 1, ... with these chances, most likely first as a sampler gives them; those of 0 are left out."""
    ids = np.argsort(-np.array(chances), kind="stable")
    ids = ids[np.array(chances)[ids] > 0]
    return ids.astype(np.int32), np.array(chances, np.float32)[ids]


def chi_square(counts: np.ndarray, chances: np.ndarray) -> float:
    expected = counts.sum() * chances
    possible = expected > 0
    assert counts[~possible].sum() == 0, "a token without a chance was chosen"
    return float((((counts - expected) ** 2)[possible] / expected[possible]).sum())


#: 99.99 % quantiles of chi-square for 1 to 7 degrees of freedom.
LIMITS = {1: 15.2, 2: 18.5, 3: 21.2, 4: 23.6, 5: 25.8, 6: 27.9, 7: 29.9}

LAWS = [
    ((0.5, 0.3, 0.2), (0.2, 0.3, 0.5)),
    ((0.5, 0.3, 0.2), (0.5, 0.3, 0.2)),
    ((0.9, 0.1, 0.0), (0.0, 0.1, 0.9)),
    ((0.7, 0.0, 0.3), (0.0, 1.0, 0.0)),
    ((1.0, 0.0, 0.0), (0.4, 0.3, 0.3)),
    ((0.25, 0.25, 0.25, 0.25), (0.97, 0.01, 0.01, 0.01)),
    ((0.05, 0.15, 0.3, 0.2, 0.1, 0.2), (0.3, 0.1, 0.05, 0.05, 0.25, 0.25)),
]


@pytest.mark.parametrize(("p", "q"), LAWS)
def test_the_result_has_the_law_of_the_target(p: tuple[float, ...], q: tuple[float, ...]):
    rng = np.random.default_rng(1)
    n = 20_000
    drafted = rng.choice(len(q), n, p=q)
    counts = np.zeros(len(p))
    for token in drafted.tolist():
        counts[keep_or_correct(token, law(*p), law(*q), rng)] += 1
    degrees = max(1, np.count_nonzero(p) - 1)
    assert chi_square(counts, np.array(p)) < LIMITS[degrees]


@pytest.mark.parametrize(("p", "q"), LAWS)
def test_as_many_are_kept_as_the_laws_have_in_common(p: tuple[float, ...], q: tuple[float, ...]):
    rng = np.random.default_rng(2)
    drafted = rng.choice(len(q), 20_000, p=q).tolist()
    kept = np.mean([keep_or_correct(token, law(*p), law(*q), rng) == token for token in drafted])
    assert kept == pytest.approx(np.minimum(p, q).sum(), abs=0.015)


def test_the_draft_law_alone_would_fail():
    """The test can tell: keeping every draft has the wrong law."""
    rng = np.random.default_rng(1)
    p, q = LAWS[0]
    counts = np.bincount(rng.choice(3, 20_000, p=q), minlength=3)
    assert chi_square(counts, np.array(p)) > 100 * LIMITS[2]


# ------------------------------------------------------------------ whole generations


@pytest.fixture(scope="module")
def tiny(tiny_target_path: Path) -> Model:
    return Model(tiny_target_path)


N_RUNS = 3000
SAMPLING: dict[str, Any] = {"temperature": 1.0, "top_k": 4, "top_p": 1.0, "min_p": 0.0}


def second_tokens(llm: Llama, prompt: list[int], spec: Any) -> tuple[np.ndarray, int, int]:
    """The second generated token of many seeds, and how many drafts were decoded and rejected for it."""
    tokens, n_drafted, n_rejected = [], 0, 0
    for seed in range(N_RUNS):
        out = llm.generate(prompt, max_tokens=3, seed=seed, spec=spec, ignore_eos=True, **SAMPLING)
        tokens.append(out.tokens[1])
        n_drafted += out.stats.n_drafted
        n_rejected += out.stats.n_drafted - out.stats.n_accepted
    return np.array(tokens), n_drafted, n_rejected


class Drawn(Scripted):
    """Draws its one token evenly among eight tokens, of which the target likes some."""

    draws = True

    def __init__(self, ids: np.ndarray) -> None:
        super().__init__(lambda history, n_max: self._one())
        self.ids = ids.astype(np.int32)

    def reseed(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed + 77)

    def _one(self) -> list[int]:
        self.laws = [(self.ids, np.full(len(self.ids), 1 / len(self.ids), np.float32))]
        return [int(self.ids[self.rng.integers(len(self.ids))])]


def test_generated_tokens_have_the_law_of_the_target(tiny: Model):
    """The second token, over both first tokens: against its exact law, which a plain run's rows tell."""
    with Llama(tiny, n_ctx=256, n_threads=1, budget="off") as llm:
        prompt = llm.tokenize("def ")
        sampler = Sampler(llm.model, SamplingOptions(**SAMPLING))
        context = llm.context
        context.clear()
        context.decode(prompt, pos=0, n_outputs=1)
        first = sampler.probabilities(context, 0)
        expected = np.zeros(llm.n_vocab)
        for token, chance in zip(*first, strict=True):
            context.clear()
            context.decode([*prompt, int(token)], pos=0, n_outputs=1)
            ids, chances = sampler.probabilities(context, 0)
            expected[ids] += chance * chances
        context.clear()
        ids = np.argsort(-expected)[:8]
        tokens, n_drafted, n_rejected = second_tokens(llm, prompt, Drawn(ids))
    assert n_drafted == N_RUNS
    assert N_RUNS / 10 < n_rejected < N_RUNS * 9 / 10
    # Rare tokens are counted together, so that each class has a fair number.
    classes = [[int(i)] for i in ids[:5]]
    rest = [i for i in range(len(expected)) if i not in set(ids[:5].tolist())]
    counts = np.array([np.isin(tokens, c).sum() for c in [*classes, rest]])
    chances = np.array([expected[c].sum() for c in [*classes, rest]])
    assert chi_square(counts, chances / chances.sum()) < LIMITS[5]


def test_drafts_of_a_draft_model_that_draws_are_kept_by_their_chances(tiny: Model, tiny_draft_path: Path):
    def run(**options: Any) -> tuple[int, int, list[int]]:
        with Llama(
            tiny,
            n_ctx=512,
            n_threads=1,
            budget="off",
            draft_model=tiny_draft_path,
            draft_options={"n_max": 4} | options,
        ) as llm:
            how = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "max_tokens": 96, "ignore_eos": True}
            outs = [llm.generate("def area(", seed=seed, spec="draft-model", **how) for seed in range(8)]
            again = llm.generate("def area(", seed=0, spec="draft-model", **how)
        assert again.tokens == outs[0].tokens, "a seed gives one text"
        return sum(o.stats.n_accepted for o in outs), sum(o.stats.n_drafted for o in outs), outs[0].tokens

    drawn = run(temperature=1.0, top_k=0, top_p=1.0)
    chosen = run()
    assert drawn[0] > 0
    assert drawn[0] / drawn[1] > chosen[0] / chosen[1], "laws have more in common than a choice and a draw"


def test_a_greedy_generation_takes_drawn_drafts_as_any_others(tiny: Model, tiny_draft_path: Path):
    options = {"n_max": 4, "temperature": 1.0}
    with Llama(tiny, n_ctx=512, n_threads=1, budget="off", draft_model=tiny_draft_path, draft_options=options) as llm:
        plain = llm.generate("def area(", max_tokens=48, spec=None, ignore_eos=True)
        fast = llm.generate("def area(", max_tokens=48, spec="draft-model", ignore_eos=True)
    assert fast.tokens == plain.tokens
    assert fast.stats.n_drafted > 0


def test_only_what_draws_changes_the_sampler(tiny: Model):
    options = SamplingOptions(temperature=1.0, seed=1)
    sampler = Sampler(tiny, options)
    assert with_residual(sampler, Drafting(Scripted([])), options) is sampler
    drawing = Drafting(Drawn(np.arange(3)))
    assert isinstance(with_residual(sampler, drawing, options), ResidualSampler)
    greedy = SamplingOptions()
    assert not isinstance(with_residual(Sampler(tiny, greedy), drawing, greedy), ResidualSampler)


def test_mirostat_and_drawn_drafts_exclude_each_other(tiny: Model):
    options = SamplingOptions(temperature=1.0, mirostat=2, seed=1)
    with pytest.raises(UnsupportedError, match=r"mirostat=2.*temperature"):
        with_residual(Sampler(tiny, options), Drafting(Drawn(np.arange(3))), options)


def test_a_round_that_was_stopped_leaves_nothing_to_the_next_generation(tiny: Model, tiny_draft_path: Path):
    budget = BudgetOptions(measured=False, slope=0, draft_token=0)
    how: dict[str, Any] = {"temperature": 1.5, "ignore_eos": True}
    with Llama(
        tiny, n_ctx=512, n_threads=1, budget=budget, draft_model=tiny_draft_path, draft_options={"temperature": 1.5}
    ) as llm:
        speculator = llm._speculators.drafting("draft-model")

        def go(seed: int) -> list[int]:
            return llm.generate("The old man went", max_tokens=6, seed=seed, spec="draft-model", **how).tokens

        expected = [go(seed) for seed in range(6)]
        n_stopped = 0
        for seed in range(6):
            with pytest.raises(AbortedError):
                llm.generate(
                    "import random\n", max_tokens=90, seed=9, spec="draft-model", on_text=lambda _: llm.abort(), **how
                )
            n_stopped += bool(speculator.laws)
            assert go(seed) == expected[seed]
    assert n_stopped, "a draft was being verified when it was stopped"
