"""What plain decoding costs where nobody drafts, seen by a drafting that disturbs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

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
        if not undisturbed.skips():
            undisturbed.observe(1, seconds, 0.0)


def test_plain_decodes_behind_thinking_or_a_wide_one_do_not_tell_what_plain_decoding_costs():
    undisturbed, cost = make()
    rest(undisturbed, 20)
    for _ in range(15):
        undisturbed.observe(1, 1.4 * PLAIN, 0.2 * PLAIN)
        undisturbed.observe(4, 1.8 * PLAIN, 0.2 * PLAIN)
        undisturbed.observe(1, 1.7 * PLAIN, 0.0)
    assert cost.plain == pytest.approx(PLAIN, rel=0.05)


@pytest.mark.parametrize("how", ["rests", "light"])
def test_the_third_and_fourth_that_nothing_disturbs_tell_and_then_every_eighth(how: str):
    undisturbed, cost = make()
    told, ns = [], [0]
    cost.observe = lambda width, seconds: told.append(ns[-1])  # type: ignore[method-assign, assignment]
    undisturbed.observe(4, 1.8 * PLAIN, 0.0)
    told.clear()
    for n in range(1, 30):
        ns.append(n)
        if how == "rests":
            rest(undisturbed, 1)
        else:
            undisturbed.observe(1, PLAIN, 0.01 * PLAIN)
    assert told == [3, 4, 9, 17, 25]


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


def test_what_comes_after_a_draft_is_forgotten_where_nothing_is_drafted():
    undisturbed, _ = make()
    for _ in range(50):
        undisturbed.observe(4, 1.8 * PLAIN, 0.2 * PLAIN)
        undisturbed.observe(1, 2.0 * PLAIN, 0.2 * PLAIN)
    before = undisturbed.after
    rest(undisturbed, 200)
    assert 0.0 < undisturbed.after < 0.1 * before


def test_where_decodes_become_slow_nothing_is_added():
    undisturbed, cost = make()
    for _ in range(20):
        undisturbed.observe(4, 1.8 * PLAIN, 0.2 * PLAIN)
        undisturbed.observe(1, 2.0 * PLAIN, 0.2 * PLAIN)
    assert undisturbed.after > 0.0
    for _ in range(20):
        cost.observe(1, 0.02)
    assert undisturbed.after == 0.0


def test_it_is_wanted_at_first_and_when_none_was_seen_for_long():
    undisturbed, _ = make()
    assert undisturbed.is_wanted
    rest(undisturbed, N_CALM)
    assert not undisturbed.is_wanted
    undisturbed.begin()
    for _ in range(127):
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
    monkeypatch.setattr("pyspec.watched.perf_counter", lambda: clock[0])
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


def coin(share: float) -> Scripted:
    """Right at each place with this chance; it drafts two tokens at a time."""
    right = np.random.default_rng(3).random(len(TEXT)) < share

    def script(history: History, n_max: int) -> list[int]:
        at = len(history)
        return [t if right[i] else t + 1 for i, t in enumerate(TEXT[at : at + min(n_max, 2)], at)]

    return Scripted(script)


@pytest.mark.parametrize("share", [0.3, 0.4, 0.5])
def test_drafts_that_gain_less_than_what_they_disturb_are_left_alone(monkeypatch: pytest.MonkeyPatch, share: float):
    """At the costs of the decodes alone a right token pays from a chance of 0.2 on."""
    plain = PLAIN * (len(TEXT) - 4)
    taken, _ = seconds(TEXT, coin(share), think_s=0.05 * PLAIN, monkeypatch=monkeypatch)
    monkeypatch.setattr("pyspec.budgeted.Undisturbed", Everything)
    naive, _ = seconds(TEXT, coin(share), think_s=0.05 * PLAIN, monkeypatch=monkeypatch)
    assert taken < 1.04 * plain
    assert naive > 1.08 * plain, "otherwise nothing was there to be lost"


class Everything(Undisturbed):
    """Takes every plain decode for plain decoding."""

    def observe(self, width: int, seconds: float, thought_s: float) -> None:
        self._cost.observe(width, seconds)

    def skips(self) -> bool:
        return False

    is_wanted = False  # type: ignore[assignment]


def test_the_decode_behind_the_thought_that_begins_a_rest_is_disturbed(monkeypatch: pytest.MonkeyPatch):
    plain = PLAIN * (len(TEXT) - 4)
    silent = Scripted(lambda history, n_max: [999] * min(2, n_max))
    taken, drafting = seconds(TEXT, silent, think_s=0.05 * PLAIN, monkeypatch=monkeypatch)
    assert drafting._undisturbed is not None
    assert drafting._undisturbed.disturbed == pytest.approx(0.4 * PLAIN, rel=0.05)
    assert drafting.cost.plain == pytest.approx(PLAIN, rel=0.01)
    assert taken < 1.015 * plain


@pytest.mark.parametrize("n_pending", [1, 3])
def test_plain_decodes_are_asked_for_where_one_token_is_pending(n_pending: int):
    options = BudgetOptions()
    script = coin(1.0)
    drafting = BudgetedDrafting(script, options, cost=CostModel(options, KNOWN), keeps_accepted=False)
    history = History(as_tokens(TEXT[:20]))
    drafting.begin(history.view())
    drafting.draft(history, 16, n_pending=n_pending, n_vocab=1000)
    assert bool(script.calls) == (n_pending > 1)


def test_drafts_that_gain_are_drafted_all_the_same(monkeypatch: pytest.MonkeyPatch):
    def script(history: History, n_max: int) -> list[int]:
        at = len(history)
        return [t + (i % 30 == 0) for i, t in enumerate(TEXT[at : at + n_max], at)]

    taken, drafting = seconds(TEXT, Scripted(script), think_s=0.05 * PLAIN, monkeypatch=monkeypatch)
    assert taken < 0.5 * PLAIN * (len(TEXT) - 4)
    assert drafting.cost.plain == pytest.approx(PLAIN, rel=0.1)


def test_where_too_much_comes_after_drafts_none_are_decoded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Undisturbed, "after", 20 * PLAIN)
    taken, drafting = seconds(TEXT, coin(0.9), think_s=0.0, monkeypatch=monkeypatch)
    assert taken == pytest.approx(PLAIN * (len(TEXT) - 4), rel=0.01)
    assert drafting.counts.n_watched > 10


def test_what_comes_after_a_draft_is_weighed():
    cost = CostModel(BudgetOptions(), KNOWN)
    assert RoundCosts(after=0.5 * PLAIN).saved(cost, 4, 4) == pytest.approx(RoundCosts().saved(cost, 4, 4) - 0.5)
    n, ratio = best_length([0.9], cost, RoundCosts(keeps_accepted=True), gain=0.0)
    assert (n, ratio) == (1, pytest.approx(1.9 / 1.2, rel=0.01))
    n, ratio = best_length([0.9], cost, RoundCosts(keeps_accepted=True, after=0.5 * PLAIN), gain=0.0)
    assert (n, ratio) == (1, pytest.approx(1.9 / 1.7, rel=0.01))
    pending = RoundCosts(n_pending=3, keeps_accepted=True)
    wide = replace(pending, after=0.1 * PLAIN)
    assert wide.saved(cost, 4, 4) == pending.saved(cost, 4, 4), "the alternative is wide, too"
    assert best_length([0.9], cost, wide, gain=0.0)[0] == 1
