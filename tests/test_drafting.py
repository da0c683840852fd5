"""Between decoder and speculators: who is asked, what is decoded, what is only watched, and who hears what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyspec._core import Model
from pyspec.budget import BudgetOptions, CostModel, RoundCosts
from pyspec.budgeted import BudgetedDrafting
from pyspec.drafting import Drafting
from pyspec.errors import SpeculatorError, UnknownOptionError
from pyspec.speculator_pool import SpeculatorPool
from pyspec.speculators import Chain, History, Scripted, Speculator, as_tokens
from pyspec.watched import Watched

N_VOCAB = 1000
CHEAP = 0.05
DEAR = 1.0


class World:
    """Generates a known text with a drafting, each decode of width w taking 1 + slope * (w - 1) units."""

    def __init__(
        self,
        text: Sequence[int],
        speculator: Speculator,
        *,
        slope: float = CHEAP,
        n_prompt: int = 4,
        unit: float = 1.0,
        known: bool = False,
        believed: float | None = None,
        **options: Any,
    ) -> None:
        self.text = list(text)
        self.slope = slope
        self.unit = unit
        self.n_prompt = n_prompt
        settings = BudgetOptions(**options, **({} if believed is None else {"slope": believed}))
        cost = CostModel(settings, {1: 1.0, 2: 1.0 + slope, 48: 1.0 + 47 * slope} if known else None)
        self.drafting = BudgetedDrafting(speculator, settings, cost=cost, keeps_accepted=True)
        self.widths: list[int] = []
        self.starts: list[int] = []
        self.at: list[int] = []
        self.seconds = 0.0
        self.n_accepted = 0

    def run(self, n_max: int = 64) -> World:
        history = History(as_tokens(self.text[: self.n_prompt]))
        self.drafting.begin(history.view())
        while len(history) < len(self.text):
            start = len(history)
            room = len(self.text) - start - 1
            draft = self.drafting.draft(history, min(n_max, room), n_pending=1, n_vocab=N_VOCAB) if room else []
            right = 0
            while right < len(draft) and draft[right] == self.text[start + right]:
                right += 1
            history.extend(self.text[start : start + right + 1])
            width = 1 + len(draft)
            seconds = 1 + self.slope * (width - 1)
            self.drafting.observe(width, seconds * self.unit, 0.0)
            self.drafting.settle(history, len(draft), right)
            self.widths.append(width)
            self.starts.append(start)
            self.at += [start] * bool(draft)
            self.seconds += seconds
            self.n_accepted += right
        return self

    @property
    def plain_seconds(self) -> float:
        return float(len(self.text) - self.n_prompt)


def truth(text: Sequence[int], wrong: Callable[[int], bool] = lambda i: False, n: int = 64) -> Scripted:
    """Drafts the text itself; tokens at the places that `wrong` names are not right."""

    def script(history: History, n_max: int) -> list[int]:
        at = len(history)
        return [t + wrong(i) for i, t in enumerate(text[at : at + min(n, n_max)], at)]

    return Scripted(script)


TEXT = np.random.default_rng(7).integers(1, N_VOCAB - 1, 600).tolist()


# ------------------------------------------------------------------ how much


def test_a_speculator_that_is_always_right_soon_drafts_long():
    world = World(TEXT, truth(TEXT)).run()
    assert max(world.widths) > 30
    assert world.seconds < 0.2 * world.plain_seconds


def test_one_that_is_never_right_is_soon_not_decoded():
    world = World(TEXT, truth(TEXT, lambda i: True)).run()
    assert len(world.at) < 12
    assert max(world.at) < 100
    assert world.seconds < 1.02 * world.plain_seconds


def test_where_width_costs_in_full_nothing_is_decoded_once_that_is_known():
    world = World(TEXT, truth(TEXT), slope=DEAR).run()
    assert world.seconds < 1.02 * world.plain_seconds


def test_a_text_that_starts_to_repeat_is_drafted_at_once():
    """Drafts that nobody decodes are judged all the same, by the target's own words."""
    world = World(TEXT, truth(TEXT, lambda i: i < 300)).run()
    bad = [at for at in world.at if 100 < at < 300]
    assert len(bad) <= 4
    first = next(at for at in world.at if at >= 300)
    assert first < 330
    assert world.seconds < 300 + 0.35 * 300


def test_a_text_that_stops_repeating_is_soon_left_alone():
    world = World(TEXT, truth(TEXT, lambda i: i >= 300)).run()
    late = [at for at in world.at if at > 400]
    assert len(late) <= 4


def test_the_length_follows_how_long_a_speculator_is_right():
    short = World(TEXT, truth(TEXT, lambda i: i % 4 == 3)).run()
    late = short.widths[len(short.widths) // 2 :]
    assert 2 <= np.median(late) <= 6
    assert short.seconds < 0.5 * short.plain_seconds


@pytest.mark.parametrize("period", [1, 2, 3, 5, 9, 30])
def test_whatever_a_speculator_does_little_is_lost_and_most_is_won(period: int):
    """Against the best fixed length for a speculator that is wrong at every `period`-th token."""

    def fixed(n: int) -> float:
        at, seconds = 4, 0.0
        while at < len(TEXT):
            right = 0
            while right < n and (at + right) % period != period - 1:
                right += 1
            at += right + 1
            seconds += 1 + CHEAP * n
        return seconds

    best = min(fixed(n) for n in range(41))
    world = World(TEXT, truth(TEXT, lambda i: i % period == period - 1)).run()
    assert world.seconds < 1.15 * best


def test_a_draft_is_never_longer_than_asked_for():
    world = World(TEXT, truth(TEXT)).run(n_max=7)
    assert max(world.widths) == 8


def test_the_same_counts_give_the_same_rounds():
    worlds = [World(TEXT, truth(TEXT, lambda i: i % 5 == 0), measured=False).run() for _ in range(2)]
    assert worlds[0].widths == worlds[1].widths
    assert worlds[0].drafting.counts == worlds[1].drafting.counts


def test_what_was_learned_serves_the_next_generation():
    world = World(TEXT, truth(TEXT, lambda i: True)).run()
    world.at, world.widths = [], []
    world.run()
    assert len(world.at) <= 2


# ------------------------------------------------------------------ several


def test_the_one_with_the_better_record_is_decoded():
    good, bad = truth(TEXT, n=8), truth(TEXT, lambda i: True)
    good.name, bad.name = "good", "bad"
    world = World(TEXT, Chain([bad, good], n_vocab=N_VOCAB)).run()
    assert world.drafting.author == "good"
    assert world.n_accepted > 400


@pytest.mark.parametrize(("n_second", "author"), [(9, "first"), (40, "second")], ids=["hardly more", "much more"])
def test_a_later_one_must_promise_clearly_more(n_second: int, author: str):
    """Of two estimates the higher one mostly errs upwards."""
    first, second = truth(TEXT, n=8), truth(TEXT, n=n_second)
    first.name, second.name = "first", "second"
    world = World(TEXT, Chain([first, second], n_vocab=N_VOCAB))
    authors = Counter[str]()
    draft = world.drafting.draft

    def told(*args: Any, **options: Any) -> list[int]:
        found = draft(*args, **options)
        authors[world.drafting.author] += bool(found)
        return found

    world.drafting.draft = told  # type: ignore[method-assign]
    world.run()
    assert authors.most_common(1)[0][0] == author


def test_where_two_part_less_is_drafted_than_where_one_is_alone():
    """Both were right so far but for every 20th token; where they say different things, one of them is not."""
    lengths = []
    for parts_at in (3, 64):
        one = truth(TEXT, lambda i: i < 416 and i % 20 == 15, n=16)
        other = Scripted(
            lambda history, n_max, parts_at=parts_at: [
                t + (i < 416 and i % 20 == 15) if len(history) < 400 or i - len(history) < parts_at else N_VOCAB - 1
                for i, t in enumerate(TEXT[len(history) : len(history) + min(16, n_max)], len(history))
            ]
        )
        world = World(TEXT[:450], Chain([one, other], n_vocab=N_VOCAB), slope=0.4).run()
        lengths.append(next(width for at, width in zip(world.starts, world.widths, strict=True) if at >= 416))
    assert lengths[0] < lengths[1]


def test_one_that_is_right_again_and_again_is_asked_alone_until_it_errs():
    calls: list[int] = []

    def listen(history: History, n_max: int) -> list[int]:
        calls.append(len(history))
        return TEXT[len(history) : len(history) + 1]

    World(TEXT, Chain([truth(TEXT, lambda i: i == 400, n=16), Scripted(listen)], n_vocab=N_VOCAB)).run()
    assert not [at for at in calls if 150 < at <= 400]
    assert [at for at in calls if 400 < at < 420]


def test_where_nothing_is_open_nobody_is_thought_of_before_the_next_call(monkeypatch: pytest.MonkeyPatch):
    ticks = iter(np.arange(0, 10_000, 0.7))
    monkeypatch.setattr("pyspec.watched.perf_counter", lambda: float(next(ticks)))
    calls: list[int] = []

    def listen(history: History, n_max: int) -> list[int]:
        calls.append(len(history))
        return []

    world = World(TEXT, Scripted(listen)).run()
    assert world.drafting.counts.n_silent == len(world.widths) - 1, "there is no room in the last round"
    late = [after - at for at, after in pairwise(calls) if at > 100]
    assert late, "it is heard again now and then"
    assert min(late) > 4, "and seldom"


def test_all_hear_about_a_draft_that_was_decoded():
    good, bad = truth(TEXT, n=8), truth(TEXT, lambda i: True)
    world = World(TEXT, Chain([good, bad], n_vocab=N_VOCAB)).run()
    others = [v for v in bad.verdicts if not v[2]]
    assert len(others) >= len(world.at) - 12
    assert all(n_accepted == n_drafted or n_accepted < n_drafted for n_drafted, n_accepted, _ in others)


def test_verdicts_cover_the_tokens_that_were_judged_and_no_others():
    script = truth(TEXT, lambda i: i % 7 == 6)
    World(TEXT, script).run()
    own = [(n, k) for n, k, mine in script.verdicts if mine]
    assert own
    assert all(n - k in (0, 1) for n, k in own)
    assert sum(n - k for n, k in own) <= len(TEXT) // 7 + 1


def test_what_was_only_watched_is_not_told():
    script = truth(TEXT, lambda i: True)
    world = World(TEXT, script).run()
    assert world.drafting.counts.n_watched > 300
    assert len(script.verdicts) == len(world.at)


def test_the_length_of_a_match_is_heard():
    """A speculator that is right after long matches only is decoded after long matches only."""

    class Matching(Scripted):
        match_length = 0

    def script(history: History, n_max: int) -> list[int]:
        long = (len(history) // 10) % 2 == 0
        speculator.match_length = 20 if long else 2
        at = len(history)
        return TEXT[at : at + 4] if long else [N_VOCAB - 1] * 4

    speculator = Matching(script)
    world = World(TEXT, speculator).run()
    late = [at for at in world.at if at > 150]
    assert len(late) > 30
    assert all((at // 10) % 2 == 0 or at % 10 == 0 for at in late), "a row that goes on is judged by its length"


def test_a_member_of_a_chain_that_fails_is_named():
    def fail(history: History, n_max: int) -> list[int]:
        raise ValueError("broken")

    world = World(TEXT, Chain([Scripted(lambda h, n: []), Scripted(fail, name="culprit")], n_vocab=N_VOCAB))
    with pytest.raises(SpeculatorError, match="culprit"):
        world.run()


@pytest.mark.parametrize("wrong", [[-1], [N_VOCAB], ["x"], None, [1] * 65])
def test_a_draft_that_cannot_be_is_an_error(wrong: Any):
    world = World(TEXT, Scripted(lambda history, n_max: wrong, cut=False, name="wrong"))
    with pytest.raises(SpeculatorError, match="wrong"):
        world.run()


# ------------------------------------------------------------------ speculators that decode themselves


class Slow(Scripted):
    """As a draft model: its own time counts, so it is not asked in vain."""

    decodes = True
    token_s: Any = 0.0
    read_s: Any = 0.0
    n_draft_max: Any = 0
    n_draft_min: Any = 0


def slow(wrong: Callable[[int], bool]) -> Slow:
    return Slow(lambda history, n_max: truth(TEXT, wrong).draft(history, n_max), name="slow")


def test_a_costly_speculator_that_is_right_is_used():
    world = World(TEXT, slow(lambda i: False), measured=False, draft_token=0.05).run()
    assert world.n_accepted > 400


def test_a_costly_speculator_with_a_bad_record_is_asked_ever_more_rarely():
    text = TEXT * 4
    script = Slow(lambda history, n_max: [N_VOCAB - 1] * n_max, name="slow")
    world = World(text, script, measured=False, probe_every=50).run()
    asked = [n for n, _ in script.calls]
    late = [n for n in asked if n > 200]
    gaps = np.diff(late)
    assert len(late) <= 6
    assert (gaps >= 50).all()
    assert (np.diff(gaps) >= 0).all()
    assert gaps[-1] > gaps[0]
    assert world.drafting.counts.n_probes >= 2
    assert all(n_max <= 2 for n, n_max in script.calls if n > 200)


def test_a_costly_speculator_that_becomes_better_is_found_by_a_probe():
    world = World(TEXT, slow(lambda i: i < 250), measured=False, draft_token=0.05, probe_every=20).run()
    assert any(at > 250 for at in world.at)
    assert world.n_accepted > 150


@pytest.mark.parametrize("known", [True, False], ids=["costs known", "costs unknown"])
@pytest.mark.parametrize("unit", [1.0, 0.001])
@pytest.mark.parametrize(("token_s", "n_draft_max"), [(0.9, 3), (0.6, 1), (0.2, 0), (0.0, 0)])
def test_a_costly_speculator_that_cannot_pay_even_if_always_right_is_never_asked(
    token_s: float, n_draft_max: int, unit: float, known: bool
):
    """With one more token at 0.5 decodes, a draft of one pays if it takes less than half a decode."""
    script = slow(lambda i: False)
    script.token_s, script.n_draft_max = token_s * unit, n_draft_max
    World(TEXT, script, slope=0.5, unit=unit, known=known, believed=0.5).run()
    assert bool(script.calls) == (token_s < 0.5)


class Reading(Slow):
    """A draft model whose call takes what its tokens and all that is new to it take, on a clock of its own."""

    def __init__(self, clock: list[float], script: Callable[[History, int], Sequence[int]]) -> None:
        super().__init__(script, name="reading")
        self.clock = clock
        self.n_read = 0
        self.token_s, self.n_draft_max = 0.1, 3

    def draft(self, history: History, n_max: int) -> Sequence[int]:
        draft = super().draft(history, n_max)
        self.clock[0] += 0.05 * (len(history) - self.n_read) + self.token_s * len(draft)
        self.n_read = len(history)
        return draft


@pytest.mark.parametrize("wrong_until", [250, 700])
def test_what_a_draft_model_had_to_read_is_not_taken_for_the_cost_of_its_tokens(
    monkeypatch: pytest.MonkeyPatch, wrong_until: int
):
    """A probe reads much and drafts two tokens."""
    clock, text = [0.0], TEXT * 5
    monkeypatch.setattr("pyspec.watched.perf_counter", lambda: clock[0])
    script = Reading(clock, truth(text, lambda i: i < wrong_until).draft)
    world = World(text, script, slope=0.15, known=True).run()
    assert world.n_accepted > 0.5 * (len(text) - 2 * wrong_until)


@pytest.mark.parametrize(
    ("read_s", "n_prompt", "earliest"),
    [(0.0, 300, 0), (0.003, 300, 60), (0.003, 2000, 80), (0.012, 2000, 400), (0.02, 4, 60)],
)
def test_a_draft_model_with_a_bad_record_reads_no_more_than_a_small_share_of_the_time_allows(
    read_s: float, n_prompt: int, earliest: int
):
    """Its tokens cost so much that only a probe can show that it pays."""
    text = TEXT * 8
    script = slow(lambda i: True)
    script.token_s, script.read_s = 0.4, read_s
    World(text, script, slope=0.15, known=True, n_prompt=n_prompt).run()
    asked = [n for n, _ in script.calls]
    assert asked[0] >= n_prompt + earliest
    assert 1 <= len(asked) < 20
    assert asked[0] * read_s <= 0.05 * 0.8 * (asked[0] - n_prompt + 64), "in hope of 1.8 times the tokens a second"
    assert asked[-1] * read_s + 0.8 * len(asked) < 0.02 * (len(text) - n_prompt) + asked[0] * read_s


def test_one_that_reads_as_slowly_as_it_could_be_of_use_is_not_probed():
    script = slow(lambda i: True)
    script.token_s, script.read_s = 0.4, 0.11
    World(TEXT * 8, script, slope=0.15, known=True, n_prompt=400).run()
    assert not script.calls


def test_a_draft_model_that_promises_much_reads_a_long_prompt_at_once():
    """An eightieth of a decode for each token, as a small model on the CPU of a large one."""
    text = TEXT * 3
    script = Slow(lambda history, n_max: text[len(history) :][:n_max], name="slow")
    script.token_s, script.read_s, script.n_draft_max = 0.1, 1 / 80, 8
    world = World(text, script, slope=0.05, known=True, n_prompt=1000).run()
    assert script.calls[0][0] <= 1032
    assert world.n_accepted > 0.7 * 800


@pytest.mark.parametrize("n_before", [4, 550])
def test_what_a_draft_model_promises_is_believed_where_its_record_proves_it(n_before: int):
    """Little is promised, but it was kept in the generation before."""
    text = TEXT * 3
    script = Slow(lambda history, n_max: text[len(history) :][:n_max], name="slow")
    script.token_s, script.read_s, script.n_draft_max = 0.4, 0.02, 3
    world = World(text[:600], script, slope=0.1, known=True, n_prompt=n_before).run()
    assert (len(script.calls) > 16) == (n_before == 4)
    world.text, world.n_prompt = text, 1000
    script.calls.clear()
    world.run()
    assert bool([n for n, _ in script.calls if n < 1000 + 400]) == (n_before == 4)


@pytest.mark.parametrize("read_s", [0.0, 0.01, 0.02])
@pytest.mark.parametrize("token_s", [0.05, 0.15, 0.2, 0.3])
def test_a_draft_model_that_is_right_is_found_whatever_it_promised_at_first(token_s: float, read_s: float):
    text = TEXT * 5
    script = Slow(lambda history, n_max: text[len(history) :][:n_max], name="slow")
    script.token_s, script.read_s = token_s, read_s
    world = World(text, script, slope=0.15, known=True, n_prompt=500).run()
    assert script.calls[0][0] < 500 + 400
    assert world.seconds < 0.75 * world.plain_seconds


def test_what_a_draft_model_says_is_new_to_it_need_not_be_read_again():
    text = TEXT * 3
    script = Slow(lambda history, n_max: text[len(history) :][:n_max], name="slow")
    script.token_s, script.read_s, script.n_draft_max = 0.4, 0.05, 3
    held = 0
    script.n_unread = lambda history: len(history) - held  # type: ignore[attr-defined]
    world = World(text, script, slope=0.1, known=True, n_prompt=1500).run()
    assert not script.calls
    held = 1490
    world.run()
    assert script.calls


@pytest.mark.parametrize("said", [-1, 10**9, 10**5000, "5", 1.5, None], ids=lambda said: str(type(said)))
def test_a_number_of_new_tokens_that_cannot_be_is_an_error_that_names_it(said: Any):
    script = slow(lambda i: True)
    script.read_s = 0.01
    script.n_unread = lambda history: said  # type: ignore[attr-defined]
    with pytest.raises(SpeculatorError, match="n_unread") as error:
        World(TEXT, script, known=True).run()
    assert error.value.speculator == "slow"


def test_what_reading_takes_is_learned_where_it_reads_much(monkeypatch: pytest.MonkeyPatch):
    clock, text = [0.0], TEXT * 5
    monkeypatch.setattr("pyspec.watched.perf_counter", lambda: clock[0])
    script = Reading(clock, lambda history, n_max: text[len(history) :][:n_max])
    script.read_s = 0.001
    drafting = World(text, script, slope=0.15, known=True, n_prompt=600)
    for _ in range(20):
        script.n_read = 0
        drafting.run()
    assert drafting.drafting._members[0].read_s == pytest.approx(0.05, rel=0.2)


def test_verdicts_are_saved_with_the_record():
    world = World(TEXT, truth(TEXT)).run()
    again = World(TEXT, truth(TEXT))
    again.drafting.set_state(world.drafting.get_state())
    verdicts = [member.record.n_verdicts for member in again.drafting._members]
    assert verdicts == [member.record.n_verdicts for member in world.drafting._members]
    assert verdicts[0] > 10


def test_by_counts_alone_what_must_be_read_is_not_weighed():
    script = slow(lambda i: True)
    script.read_s = 0.11
    World(TEXT * 8, script, measured=False, draft_token=0.4, n_prompt=400).run()
    assert script.calls


def test_a_draft_model_that_has_nothing_to_say_is_asked_ever_more_rarely(monkeypatch: pytest.MonkeyPatch):
    clock = [0.0]
    monkeypatch.setattr("pyspec.watched.perf_counter", lambda: clock[0])
    monkeypatch.setattr("pyspec.budgeted.perf_counter", lambda: clock[0])
    script = Reading(clock, lambda history, n_max: [])
    World(TEXT * 4, script, slope=0.15, known=True).run()
    late = [n for n, _ in script.calls if n > 400]
    assert 5 < len(late) < 40
    assert len(script.calls) < 60


def test_a_probe_is_as_long_as_the_shortest_draft():
    script = slow(lambda i: True)
    script.n_draft_min = 5
    World(TEXT, script, slope=CHEAP, known=True).run()
    assert {n_max for n, n_max in script.calls if n > 150} == {5}


def test_where_a_probe_could_not_pay_the_next_one_is_not_put_off():
    script = slow(lambda i: True)
    script.token_s = 10.0
    world = World(TEXT * 3, script, slope=CHEAP, known=True)
    script.token_s = 0.01  # it was read before
    world.run()
    assert not script.calls
    (member,) = world.drafting._members
    assert member.probe_gap == BudgetOptions().probe_every


def test_a_draft_that_could_not_be_saved_for_was_not_decoded():
    script = truth(TEXT, n=8)
    settings = BudgetOptions()
    drafting = BudgetedDrafting(script, settings, cost=CostModel(settings, {1: 1.0, 48: 2.0}), keeps_accepted=True)
    history = History(as_tokens(TEXT[:20]))
    drafting.begin(history.view())
    assert drafting.draft(history, 8, n_pending=1, n_vocab=N_VOCAB)
    for token in TEXT[20:40]:  # the decoder goes on without drafts
        history.extend([token])
        drafting.observe(1, 1.0, 0.0)
        drafting.settle(history, 0, 0)
    assert drafting.counts.n_watched == 1
    assert not script.verdicts


@pytest.mark.parametrize(
    ("n_pending", "n_drafted", "n_accepted", "saved"),
    [
        (1, 4, 4, 4 - 0.4),
        (1, 4, 1, 1 - 0.4 - 0.25),
        (3, 4, 4, 4 - 0.4),
        (3, 4, 0, 0 - 0.4 - 0.25),
        (1, 60, 60, 60 - 0.1 * 47),
    ],
)
def test_what_a_draft_saved_counts_its_width_and_going_back(
    n_pending: int, n_drafted: int, n_accepted: int, saved: float
):
    cost = CostModel(BudgetOptions(), {1: 2.0, 48: 2.0 * 5.7})
    costs = RoundCosts(n_pending=n_pending, rollback=0.5)
    assert costs.saved(cost, n_drafted, n_accepted) == pytest.approx(saved)


def test_no_more_is_promised_of_a_costly_speculator_than_its_longest_draft():
    script = slow(lambda i: False)
    script.token_s, script.n_draft_max = 0.01, 2
    World(TEXT, script, slope=CHEAP, known=True).run()
    assert len(script.calls) > 100
    assert {n_max for _, n_max in script.calls} <= {1, 2}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("token_s", -1.0, "token_s is -1.0"),
        ("token_s", float("nan"), "token_s is nan"),
        ("token_s", "0.5", "token_s is '0.5'"),
        ("token_s", True, "token_s is True"),
        ("read_s", -1, "read_s is -1"),
        ("read_s", "0.5", "read_s is '0.5'"),
        ("n_draft_max", 2.5, "n_draft_max is 2.5"),
        ("n_draft_max", -1, "n_draft_max is -1"),
    ],
)
def test_what_a_costly_speculator_says_of_itself_wrongly_is_an_error_that_names_it(name: str, value: Any, said: str):
    script = slow(lambda i: False)
    setattr(script, name, value)
    with pytest.raises(SpeculatorError, match=said) as error:
        World(TEXT, script)
    assert error.value.speculator == "slow"


def test_a_costly_speculator_is_not_asked_beside_a_cheap_one_that_does_better():
    costly = slow(lambda i: False)
    World(TEXT, Chain([costly, truth(TEXT)], n_vocab=N_VOCAB), measured=False, draft_token=0.5).run()
    assert len(costly.calls) < 12


# ------------------------------------------------------------------ the overhead of asking


def test_a_speculator_with_nothing_to_say_is_asked_as_often_as_its_time_allows(monkeypatch: pytest.MonkeyPatch):
    ticks = iter(np.arange(0, 10_000, 0.02))
    monkeypatch.setattr("pyspec.watched.perf_counter", lambda: float(next(ticks)))
    silent = Scripted(lambda history, n_max: [])
    World(TEXT, silent, overhead=0.005).run()
    assert len(TEXT) / 6 < len(silent.calls) < len(TEXT) / 3, "0.02 s of 1 s a decode, 0.005 allowed: every fourth"


def test_one_that_has_something_to_say_is_asked_every_time(monkeypatch: pytest.MonkeyPatch):
    ticks = iter(np.arange(0, 10_000, 0.02))
    monkeypatch.setattr("pyspec.watched.perf_counter", lambda: float(next(ticks)))
    script = truth(TEXT, lambda i: i % 3 == 2, n=2)
    world = World(TEXT, script, overhead=0.005).run()
    assert world.n_accepted > len(TEXT) / 2


@pytest.fixture
def dear_thoughts(monkeypatch: pytest.MonkeyPatch):
    """Every look at the clock takes the drafting 0.02 s, where a plain decode of `World` takes 1 s."""
    ticks = iter(np.arange(0, 10_000, 0.02))
    monkeypatch.setattr("pyspec.budgeted.perf_counter", lambda: float(next(ticks)))


@pytest.mark.usefixtures("dear_thoughts")
def test_what_is_thought_about_and_not_decoded_takes_its_share_of_the_time():
    script = truth(TEXT, lambda i: i % 2 == 0, n=2)
    world = World(TEXT, script, slope=DEAR, known=True, overhead=0.01).run()
    assert not world.at
    late = [n for n, _ in script.calls if n > 200]
    assert 400 / 12 < len(late) < 400 / 3, "0.04 s of 1 s a decode, 0.01 allowed"


@pytest.mark.usefixtures("dear_thoughts")
def test_a_text_that_starts_to_repeat_is_soon_drafted_also_where_thoughts_are_dear():
    world = World(TEXT, truth(TEXT, lambda i: i < 300), overhead=0.01).run()
    assert next(at for at in world.at if at >= 300) < 340
    assert world.n_accepted > 200


@pytest.mark.usefixtures("dear_thoughts")
def test_while_drafts_gain_nobody_rests():
    def script_of_16_in_20(history: History, n_max: int) -> list[int]:
        n = len(history) % 20
        return TEXT[len(history) :][: min(20 - n, n_max)] if n >= 4 else []

    script = Scripted(script_of_16_in_20)
    world = World(TEXT, script, overhead=0.002).run()
    asked = {n for n, _ in script.calls}
    silent = [start for start, width in zip(world.starts, world.widths, strict=True) if start > 100 and width == 1]
    assert len(silent) > 40, "some rounds have no draft"
    assert asked.issuperset(silent[:-1])


@pytest.mark.usefixtures("dear_thoughts")
def test_what_was_proposed_before_a_rest_is_judged_behind_it_by_all_that_was_said():
    script = truth(TEXT, lambda i: i % 10 == 0)
    world = World(TEXT, script, slope=DEAR, known=True, overhead=0.01).run()
    counts = world.drafting.counts
    assert not world.at
    assert counts.n_silent > 5 * len(script.calls), "there were rests"
    asked = [n for n, _ in script.calls]
    assert counts.n_watched == len(asked) - 1, "each but the last proposal was judged"
    assert counts.n_watched_right == sum(-n % 10 for n in asked[:-1]), "up to the wrong token, wherever that was"


@pytest.mark.usefixtures("dear_thoughts")
def test_each_generation_begins_with_an_advance():
    script = truth(TEXT, lambda i: True)
    world = World(TEXT, script, slope=DEAR, known=True, overhead=0.01).run()
    n_before = len(script.calls)
    world.run()
    assert [n for n, _ in script.calls[n_before : n_before + 4]] == [4, 5, 6, 7]


@pytest.mark.usefixtures("dear_thoughts")
def test_a_rest_ends_where_it_is_time_for_a_probe():
    costly = slow(lambda i: True)
    members = [truth(TEXT, lambda i: True), costly]
    world = World(TEXT, Chain(members, n_vocab=N_VOCAB), slope=CHEAP, known=True, overhead=0.001, probe_every=20).run()
    assert world.drafting.counts.n_probes >= 3
    probes = [n for n, n_max in costly.calls if n_max == 2]
    assert np.diff(probes[-3:]).tolist() in ([40, 80], [80, 160], [160, 320]), "twice as long each time, to the token"


class Timed(Scripted):
    """A speculator of which each call takes so many seconds, on a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, script: Callable[[History, int], Sequence[int]], s: float):
        super().__init__(script, name="timed")
        self.seconds = s
        monkeypatch.setattr("pyspec.watched.perf_counter", lambda: self.seconds * len(self.calls))
        monkeypatch.setattr("pyspec.budgeted.perf_counter", lambda: self.seconds * len(self.calls))

    @property
    def spent(self) -> float:
        return self.seconds * len(self.calls)


@pytest.mark.parametrize("n_right", [0, 1, 4])
@pytest.mark.parametrize("call", [0.6, 2.5, 10.0, 40.0])
def test_one_whose_calls_take_longer_than_its_right_drafts_save_is_soon_left_alone(
    monkeypatch: pytest.MonkeyPatch, call: float, n_right: int
):
    script = Timed(monkeypatch, truth(TEXT * 6, n=n_right).draft, call)
    world = World(TEXT * 6, script, slope=0.5, known=True).run()
    lost = world.seconds + script.spent - world.plain_seconds
    saved_by_a_call = 0.5 * n_right
    if call > saved_by_a_call:
        assert 0 < lost < 0.01 * world.plain_seconds + 12 + 2 * call, "two calls tell what the next will take"
    else:
        assert lost < -0.3 * (saved_by_a_call - call) / (1 + n_right) * world.plain_seconds


@pytest.mark.parametrize("starts", [20, 40, 300])
@pytest.mark.parametrize("call", [1.5, 12.0])
def test_the_calls_of_one_silence_no_other(monkeypatch: pytest.MonkeyPatch, call: float, starts: int):
    useless = Timed(monkeypatch, lambda history, n_max: [], call)
    useful = Scripted(lambda history, n_max: TEXT[len(history) :][: min(8, n_max)] if len(history) > starts else [])
    alone = World(TEXT, useful, known=True).run()
    world = World(TEXT, Chain([useless, useful], n_vocab=N_VOCAB), known=True).run()
    assert world.n_accepted > 0.97 * alone.n_accepted > 0
    assert useless.spent < 12 + 2 * call


@pytest.mark.parametrize("call", [2.5, 40.0])
def test_a_rest_goes_on_in_the_next_generation(monkeypatch: pytest.MonkeyPatch, call: float):
    script = Timed(monkeypatch, lambda history, n_max: [], call)
    world = World(TEXT[:100], script, known=True)
    for _ in range(60):
        world.run()
    assert 0 < script.spent < 0.01 * 60 * 96 + 12 + 2 * call, "the first call of each is not a new beginning"


def test_a_shorter_rest_ends_no_longer_one():
    """A proposal may be paid for twice: when more of it is wanted, and when it is closed."""
    member = Watched(truth(TEXT), BudgetOptions())
    member.rest(500)
    member.rest(100)
    assert member.ask_at == 500
    member.begin(50, 120)
    assert member.ask_at == 50 + 380


@pytest.mark.parametrize(("n_tokens", "n_draft"), [(20, 16), (20, 32), (60, 32), (500, 32)])
def test_so_it_does_where_each_generation_has_one_call(monkeypatch: pytest.MonkeyPatch, n_tokens: int, n_draft: int):
    """Of right drafts that save less than the call takes."""
    script = Timed(monkeypatch, truth(TEXT, n=n_draft).draft, 50.0)
    world = World(TEXT[: 4 + n_tokens], script, slope=0.3, known=True)
    world.seconds, n_calls = 0.0, []
    for _ in range(12):
        world.run()
        n_calls.append(len(script.calls) - sum(n_calls))
    assert sum(n_calls[3:]) <= 1, "two calls tell what the next will take"


def test_one_that_gets_faster_is_drafted_from_again(monkeypatch: pytest.MonkeyPatch):
    clock, text = [0.0], TEXT * 10

    def draft(history: History, n_max: int) -> Sequence[int]:
        clock[0] += 0.1 if len(history) > 1000 else 4.0
        return text[len(history) : len(history) + min(4, n_max)]

    for module in ("watched", "budgeted"):
        monkeypatch.setattr(f"pyspec.{module}.perf_counter", lambda: clock[0])
    world = World(text, Scripted(draft), slope=0.5, known=True).run()
    assert len([at for at in world.at if 100 < at < 900]) < 8
    assert world.n_accepted > 0.6 * (len(text) - 1000)


def test_who_rests_is_not_asked(monkeypatch: pytest.MonkeyPatch):
    n_rests = 0

    def asked(drafting: BudgetedDrafting, member: Watched, history: History, n_max: int, n_vocab: int) -> None:
        nonlocal n_rests
        assert member.ask_at <= len(history)
        n_rests += member.ask_at > member.asked_at + 10
        ask(drafting, member, history, n_max, n_vocab)

    ask = BudgetedDrafting._ask
    monkeypatch.setattr(BudgetedDrafting, "_ask", asked)
    random = np.random.default_rng(3)
    for _ in range(100):
        wrong = set(np.flatnonzero(random.random(len(TEXT)) < random.choice([0.02, 0.1, 0.3])).tolist())
        n, call = int(random.integers(1, 30)), float(random.choice([0.3, 1.0, 4.0]))
        timed = Timed(monkeypatch, truth(TEXT, lambda i, wrong=wrong: i in wrong, n=n).draft, call)
        World(TEXT, timed, slope=float(random.choice([0.05, 0.3, 0.6])), known=True).run()
    assert n_rests > 20


@pytest.mark.usefixtures("dear_thoughts")
def test_by_counts_alone_nobody_rests():
    script = truth(TEXT, lambda i: True)
    World(TEXT, script, slope=DEAR, measured=False).run()
    assert len(script.calls) > len(TEXT) - 10


# ------------------------------------------------------------------ without a budget


def test_without_a_budget_every_draft_is_decoded_and_judged():
    script = truth(TEXT, n=3)
    drafting = Drafting(script)
    history = History(as_tokens(TEXT[:4]))
    drafting.begin(history.view())
    assert drafting.draft(history, 8, n_pending=1, n_vocab=N_VOCAB) == TEXT[4:7]
    drafting.settle(history, 3, 2)
    drafting.settle(history, 0, 0)
    assert script.verdicts == [(3, 2, True)]
    assert drafting.author == "scripted"


def test_without_a_speculator_nothing_is_drafted():
    drafting = Drafting(None)
    drafting.begin(as_tokens([1]))
    assert drafting.draft(History(as_tokens([1])), 8, n_pending=1, n_vocab=N_VOCAB) == []
    assert drafting.name == "none"


# ------------------------------------------------------------------ what is kept of a speculator


def test_records_are_kept_of_objects_given_again(tiny_target_path: Path):
    """Of one alone, of one of three methods (which gets a new wrapper each time), and of a list."""

    class Three:
        def begin(self, tokens: Any) -> None: ...

        def draft(self, history: History, n_max: int) -> list[int]:
            return []

        def accept(self, n_drafted: int, n_accepted: int, *, own: bool) -> None: ...

    whole, three = Scripted([]), Three()
    pool = SpeculatorPool(Model(tiny_target_path), n_ctx=256, budget=BudgetOptions())
    for spec in (whole, three, [three, whole], "suffix", ["suffix", three]):
        assert pool.drafting(spec) is pool.drafting(spec)  # type: ignore[arg-type]
    assert pool.drafting(whole) is not pool.drafting([three, whole])  # type: ignore[list-item]
    assert pool.drafting(whole) is not pool.drafting(Scripted([]))
    pool.close()


def test_a_name_that_is_refused_stays_refused_once_a_list_was_asked_for(tiny_target_path: Path):
    pool = SpeculatorPool(Model(tiny_target_path), n_ctx=256)
    pool.drafting(["suffix", "copy"])
    pool.drafting([])
    for spec in ("suffix+copy", ["suffix+copy"], [""], ""):
        with pytest.raises(UnknownOptionError, match="unknown speculator"):
            pool.drafting(spec)
    pool.close()
