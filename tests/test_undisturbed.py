"""What plain decoding costs where nobody drafts, seen by a drafting that disturbs it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pyspec.budget import BudgetOptions, CostModel, RoundCosts, best_length
from pyspec.budgeted import BudgetedDrafting
from pyspec.speculators import History, Scripted, Speculator, as_tokens
from pyspec.undisturbed import N_CALM, Undisturbed

PLAIN = 0.001
KNOWN = {1: PLAIN, 2: 1.2 * PLAIN, 8: 2.4 * PLAIN, 48: 10.4 * PLAIN}
TEXT = np.random.default_rng(7).integers(1, 999, 1200).tolist()


def make(known: dict[int, float] | None = None) -> tuple[Undisturbed, CostModel]:
    cost = CostModel(BudgetOptions(), KNOWN if known is None else known)
    return Undisturbed(cost), cost


def rest(undisturbed: Undisturbed, n: int, seconds: float = PLAIN) -> None:
    for _ in range(n):
        undisturbed.rest(seconds)


def test_plain_decodes_behind_thinking_or_a_wide_one_do_not_tell_what_plain_decoding_costs():
    undisturbed, cost = make()
    rest(undisturbed, 20)
    for _ in range(15):
        undisturbed.observe(1, 1.4 * PLAIN, 0.2 * PLAIN)
        undisturbed.observe(4, 1.8 * PLAIN, 0.2 * PLAIN)
        undisturbed.observe(1, 1.7 * PLAIN, 0.0)
    assert cost.plain == pytest.approx(PLAIN, rel=0.05)


@pytest.mark.parametrize("how", ["rests", "light"])
def test_the_third_that_nothing_disturbs_tells_and_then_every_eighth(how: str):
    undisturbed, cost = make()
    told, ns = [], [0]
    cost.observe = lambda width, seconds: told.append(ns[-1])  # type: ignore[method-assign, assignment]
    undisturbed.observe(4, 1.8 * PLAIN, 0.0)
    told.clear()
    for n in range(1, 30):
        ns.append(n)
        if how == "rests":
            undisturbed.rest(PLAIN)
        else:
            undisturbed.observe(1, PLAIN, 0.01 * PLAIN)
    assert told == [3, 9, 17, 25]


def test_what_they_take_longer_is_known():
    undisturbed, cost = make()
    rest(undisturbed, 20)
    for _ in range(50):
        undisturbed.observe(1, 1.3 * cost.plain, 0.2 * PLAIN)
    assert undisturbed.disturbed == pytest.approx(0.3 * PLAIN, rel=0.05)
    assert undisturbed.after == 0.0
    for _ in range(50):
        undisturbed.observe(4, 1.8 * PLAIN, 0.2 * PLAIN)
        undisturbed.observe(1, 1.5 * PLAIN, 0.2 * PLAIN)
    assert undisturbed.after == pytest.approx(0.5 * PLAIN, rel=0.05)
    assert undisturbed.disturbed == pytest.approx(0.3 * PLAIN, rel=0.05)
    for _ in range(50):
        undisturbed.observe(4, 1.8 * PLAIN, 0.2 * PLAIN)
        undisturbed.observe(5, 1.8 * PLAIN, 0.2 * PLAIN)
        undisturbed.observe(6, 1.8 * PLAIN, 0.2 * PLAIN)
        undisturbed.observe(1, 1.5 * PLAIN, 0.2 * PLAIN)
    assert undisturbed.after < 0.3 * PLAIN, "it counts as often as a plain one comes behind a wide one"


def test_a_busy_moment_counts_for_one_decode_at_most():
    undisturbed, _ = make()
    rest(undisturbed, 20)
    undisturbed.observe(1, 100 * PLAIN, 0.2 * PLAIN)
    assert undisturbed.disturbed <= 0.2 * PLAIN


def test_it_is_wanted_at_first_and_when_none_was_seen_for_long():
    undisturbed, _ = make()
    assert undisturbed.is_wanted
    rest(undisturbed, N_CALM)
    assert not undisturbed.is_wanted
    undisturbed.begin()
    for _ in range(47):
        undisturbed.observe(4, 1.8 * PLAIN, 0.2 * PLAIN)
        assert not undisturbed.is_wanted
    undisturbed.observe(4, 1.8 * PLAIN, 0.2 * PLAIN)
    assert undisturbed.is_wanted


@pytest.mark.parametrize("known", [{}, {width: 50 * seconds for width, seconds in KNOWN.items()}], ids=["no", "slow"])
def test_where_it_does_not_show_all_decodes_tell(known: dict[int, float]):
    undisturbed, cost = make(known)
    assert not undisturbed.is_wanted
    told = []
    cost.observe = lambda width, seconds: told.append(width)  # type: ignore[method-assign, assignment]
    for width in (1, 4, 1, 1):
        undisturbed.observe(width, 0.05, 0.04)
    assert told == [1, 4, 1, 1]
    assert (undisturbed.after, undisturbed.disturbed) == (0.0, 0.0)


# ------------------------------------------------------------------ what the budget makes of it


def seconds(
    text: Sequence[int], speculator: Speculator, *, think_s: float, monkeypatch: pytest.MonkeyPatch
) -> tuple[float, BudgetedDrafting]:
    """Say `text` where each look at the clock takes `think_s`, and decodes behind it, or another width, take longer."""
    clock = [0.0]

    def look() -> float:
        clock[0] += think_s
        return clock[0]

    monkeypatch.setattr("pyspec.budgeted.perf_counter", look)
    options = BudgetOptions()
    drafting = BudgetedDrafting(speculator, options, cost=CostModel(options, KNOWN), keeps_accepted=True)
    history = History(as_tokens(text[:4]))
    drafting.begin(history.view())
    taken, before = 0.0, 1
    while len(history) < len(text):
        start, thought = len(history), clock[0]
        room = len(text) - start - 1
        draft = drafting.draft(history, min(16, room), n_pending=1, n_vocab=1000) if room else []
        thought = clock[0] - thought
        n_right = next((i for i, token in enumerate(draft) if token != text[start + i]), len(draft))
        history.extend(text[start : start + n_right + 1])
        width = 1 + len(draft)
        decode = PLAIN * (1.0 + 0.2 * (width - 1) + 0.4 * (width != before) + 0.4 * (thought > 0))
        drafting.observe(width, decode, 0.0)
        drafting.settle(history, len(draft), n_right)
        taken += decode + thought
        before = width
    return taken, drafting


@pytest.mark.parametrize("period", [1, 2, 3, 4, 6])
def test_drafts_that_gain_less_than_what_they_disturb_are_left_alone(monkeypatch: pytest.MonkeyPatch, period: int):
    """One of two right would pay at the costs of the decodes alone: 2 tokens for 1.4 and a rejection now and then."""

    def script(history: History, n_max: int) -> list[int]:
        at = len(history)
        return [t + (i % period == 0) for i, t in enumerate(TEXT[at : at + n_max], at)]

    taken, _ = seconds(TEXT, Scripted(script), think_s=0.05 * PLAIN, monkeypatch=monkeypatch)
    assert taken < 1.03 * PLAIN * (len(TEXT) - 4)


def test_drafts_that_gain_are_drafted_all_the_same(monkeypatch: pytest.MonkeyPatch):
    def script(history: History, n_max: int) -> list[int]:
        at = len(history)
        return [t + (i % 30 == 0) for i, t in enumerate(TEXT[at : at + n_max], at)]

    taken, drafting = seconds(TEXT, Scripted(script), think_s=0.05 * PLAIN, monkeypatch=monkeypatch)
    assert taken < 0.5 * PLAIN * (len(TEXT) - 4)
    assert drafting.cost.plain == pytest.approx(PLAIN, rel=0.1)


def test_what_comes_after_a_draft_is_weighed():
    cost = CostModel(BudgetOptions(), KNOWN)
    assert RoundCosts(after=0.5 * PLAIN).saved(cost, 4, 4) == pytest.approx(RoundCosts().saved(cost, 4, 4) - 0.5)
    n, ratio = best_length([0.9], cost, RoundCosts(keeps_accepted=True), gain=0.0)
    assert (n, ratio) == (1, pytest.approx(1.9 / 1.2, rel=0.01))
    n, ratio = best_length([0.9], cost, RoundCosts(keeps_accepted=True, after=0.5 * PLAIN), gain=0.0)
    assert (n, ratio) == (1, pytest.approx(1.9 / 1.7, rel=0.01))
