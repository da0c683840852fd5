"""Rounds without a model: what they cost, what a budget makes of a curve that it knows, and how near the oracle is."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from pyspec._core import Model
from pyspec.bench.simulate import CURVES, Simulated, drafting_of, oracle_seconds, seconds_by_width, simulate
from pyspec.bench.workloads import Passage, passages
from pyspec.drafting import Drafting
from pyspec.models import tiny_target
from pyspec.speculators import History, Scripted, as_tokens, make

PROMPT = as_tokens([1, 2, 3])
TEXT = list(range(10, 60))
SLOPED = {1: 1.0, 2: 1.5, 3: 2.0}


@cache
def passage_of(name: str) -> Passage:
    return passages((name,), Model(tiny_target(), vocab_only=True).vocab, n_tokens=400, seed=1)[0]


def knowing(n: int, n_right: int | None = None) -> Scripted:
    """Drafts `n` tokens of the text, of which the first `n_right` are right."""

    def script(history: History, n_max: int) -> list[int]:
        at = len(history) - len(PROMPT)
        draft = TEXT[at : at + min(n, n_max)]
        return [t if n_right is None or i < n_right else 0 for i, t in enumerate(draft)]

    return Scripted(script)


def played(name: str, curve: str, spec: str = "auto", *, known: bool = True, keeps: bool = True) -> Simulated:
    passage = passage_of(name)
    speculator = make(spec, n_vocab=2**31 - 1)
    assert speculator is not None
    drafting = drafting_of(speculator, CURVES[curve], known=known, keeps_accepted=keeps)
    return simulate(passage.prompt, passage.continuation, drafting, CURVES[curve], keeps_accepted=keeps)


# ------------------------------------------------------------------ rounds


def test_without_drafts_every_token_is_a_plain_decode():
    found = simulate(PROMPT, TEXT, Drafting(None), SLOPED)
    assert found.n_tokens == len(TEXT) - 1
    assert found.seconds == len(TEXT) - 1
    assert set(found.rounds) == {(1, 0, 0)}


@pytest.mark.parametrize("n", [1, 4, 6])
def test_right_drafts_give_a_token_more_than_they_have(n: int):
    found = simulate(PROMPT, TEXT, Drafting(knowing(n)), SLOPED)
    n_whole, n_left = divmod(len(TEXT) - 1, n + 1)
    assert len(found.rounds) == n_whole + (n_left > 0)
    assert found.n_accepted == found.n_drafted == len(TEXT) - 1 - len(found.rounds)
    left = seconds_by_width(SLOPED, 8)[n_left] if n_left else 0.0
    assert found.seconds == pytest.approx(n_whole * (1 + 0.5 * n) + left)


def test_where_accepted_tokens_are_kept_nothing_rides_along():
    found = simulate(PROMPT, TEXT, Drafting(knowing(4, 2)), SLOPED)
    assert set(found.rounds[:-2]) == {(1, 4, 2)}


def test_where_they_are_lost_they_ride_until_a_round_commits_them():
    found = simulate(PROMPT, TEXT, Drafting(knowing(4, 2)), SLOPED, keeps_accepted=False)
    assert found.rounds[:4] == [(1, 4, 2), (4, 4, 2), (7, 0, 0), (1, 4, 2)]


def test_the_oracle_is_the_best_of_its_widths():
    curve = {1: 1.0, 4: 2.0, 8: 8.0}
    assert oracle_seconds(40, curve, widths=(1, 4, 8)) == 20.0
    assert oracle_seconds(41, curve, widths=(1, 4, 8)) == 21.0


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("name", ["code-rewrite", "agent", "prose"])
def test_no_speculator_beats_the_oracle(name: str, curve: str):
    found = played(name, curve)
    assert oracle_seconds(found.n_tokens, CURVES[curve], widths=range(1, 128)) <= found.seconds


def test_the_same_text_gives_the_same_rounds():
    assert played("agent", "cpu").rounds == played("agent", "cpu").rounds


# ------------------------------------------------------------------ how much is reached


def share(found: Simulated, curve: str) -> float:
    return oracle_seconds(found.n_tokens, CURVES[curve]) / found.seconds


@pytest.mark.parametrize(
    ("name", "keeps", "at_least"),
    [("code-rewrite", True, 0.85), ("code-rewrite", False, 0.8), ("agent", True, 0.68), ("agent", False, 0.65)],
)
def test_most_of_what_repeats_is_won_where_costs_are_known(name: str, keeps: bool, at_least: float):
    assert share(played(name, "cpu", keeps=keeps), "cpu") > at_least


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("name", ["prose", "random"])
def test_where_nothing_repeats_nothing_is_lost(name: str, curve: str):
    found = played(name, curve)
    assert found.seconds < found.n_tokens / 0.98
    early, late = found.rounds[:100], found.rounds[100:]
    assert sum(n_drafted > 0 for _, n_drafted, _ in early) <= 10
    if curve != "gpu":
        assert sum(n_drafted > 0 for _, n_drafted, _ in late) <= len(late) / 50


def test_to_know_the_costs_is_worth_more_than_to_learn_them():
    known, learned = (played("code-rewrite", "gpu", known=known).seconds for known in (True, False))
    assert known < learned


@pytest.mark.parametrize("curve", CURVES)
def test_a_rewritten_file_is_followed_through_its_edits(curve: str):
    """What `copy` adds to `suffix` where names change in a copied text."""
    assert played("code-rewrite", curve).seconds < 0.9 * played("code-rewrite", curve, "suffix").seconds


def test_seconds_by_width_never_fall():
    assert (np.diff(seconds_by_width(CURVES["cpu"], 64)[1:]) >= 0).all()
