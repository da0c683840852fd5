"""The accounts of time for drafts: what tokens earn, what drafts gain, what calls take, and when to rest."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, cycle, repeat

import pytest

from pyspec.allowance import Allowance, CallAccount


def spend_through(account: Allowance, n_tokens: int, thoughts: float | Iterable[float], *, start: int = 0) -> list[int]:
    """Think at every token where there is no rest; returns at which."""
    at, places = start, []
    each = iter(repeat(thoughts) if isinstance(thoughts, float) else thoughts)
    while at < start + n_tokens:
        places.append(at)
        at += max(1, account.spend(at, next(each)))
    return places


@pytest.mark.parametrize("decodes", [0.0001, 0.01, 0.03, 0.08, 0.5, 4.0])
@pytest.mark.parametrize("share", [0.002, 0.01, 0.1])
def test_in_the_long_run_no_more_than_the_share_is_spent(share: float, decodes: float):
    n_tokens = 200_000
    spent = decodes * len(spend_through(Allowance(share), n_tokens, decodes))
    at_most = max(share, min(decodes, 1.0) / 128)  # no rest is longer
    assert spent <= 1.02 * at_most * n_tokens
    if decodes >= share:
        assert spent >= 0.7 * at_most * n_tokens, "rests are whole tokens, but no longer than they must be"


@pytest.mark.parametrize(
    "pattern", [[0.001] * 9 + [0.1], [0.004] * 15 + [0.12], [0.01] * 19 + [0.3], [0.3, 0.01]], ids=str
)
def test_so_it_is_where_light_and_heavy_thoughts_take_turns(pattern: list[float]):
    n_tokens, share = 200_000, 0.005
    n_thoughts = len(spend_through(Allowance(share), n_tokens, cycle(pattern)))
    assert sum(pattern) / len(pattern) * n_thoughts <= 1.1 * share * n_tokens


def test_what_costs_less_than_the_share_is_done_at_every_token():
    assert spend_through(Allowance(0.01), 500, 0.009) == list(range(500))


def test_the_first_thought_of_a_generation_is_free():
    account = Allowance(0.01)
    for _ in range(2):
        assert account.spend(100, 50.0) == 0, "it reads the prompt"
        assert account.spend(101, 0.03) == 0, "the first tokens' share is there in advance"
        account.begin()


def test_it_is_so_where_it_drafts():
    account = Allowance(0.01)
    account.gain(100, 0.5, 50.0)
    assert spend_through(account, 10, 0.05, start=101) == list(range(101, 111))


def test_what_drafts_gained_pays_for_going_on():
    account = Allowance(0.01)
    spend_through(account, 1000, 0.05)
    account.gain(1000, 3.0, 0.0)
    places = spend_through(account, 200, 0.05, start=1000)
    assert places[:70] == list(range(1000, 1070)), "three decodes"
    assert places[-1] - places[-2] == 5, "until that is spent"


def test_thinking_about_a_draft_is_paid_from_what_it_gained():
    account = Allowance(0.01)
    spend_through(account, 1000, 0.2)
    account.gain(1010, 0.2, 0.2)
    assert account.spend(1011, 0.2) > 10, "nothing was left of it"


def test_not_everything_is_saved_up():
    account = Allowance(0.01)
    for at in range(50):
        account.gain(at, 100.0, 0.0)
    places = spend_through(account, 2000, 0.05, start=50)
    n_at_once = next(i for i, at in enumerate(places) if at > 50 + i)
    assert 480 <= n_at_once <= 640, "24 decodes are the most"


def test_a_loss_takes_what_was_saved_up():
    account = Allowance(0.01)
    account.gain(0, 5.0, 0.0)
    account.gain(1, -100.0, 0.0)
    places = spend_through(account, 100, 0.05, start=2)
    assert places[3] - places[2] >= 4, "0.05 spent, 0.01 earned, nothing left"


def test_a_loss_is_no_reason_to_rest():
    account = Allowance(0.01)
    spend_through(account, 1000, 0.05)
    account.gain(1010, -100.0, 0.0)
    assert account.spend(1011, 0.001) == 0


@pytest.mark.parametrize("n_before", [1, 2, 1000])
def test_a_busy_moment_brings_no_long_silence(n_before: int):
    account = Allowance(0.01)
    at = spend_through(account, n_before, 0.02)[-1] + 10
    assert account.spend(at, 100.0) <= 4, "no more than twice what is usual is believed"
    assert account.spend(at + 10, 0.02) <= 4


@pytest.mark.parametrize(("decodes", "at_most"), [(0.5, 128), (1.0, 128), (10.0, 1280)])
def test_no_rest_is_longer_than_the_thought_deserves_and_none_is_owed_behind_it(decodes: float, at_most: int):
    account = Allowance(0.002)
    rests = [account.spend(at, thought) for at, thought in enumerate(chain([0.0, 0.1], repeat(decodes, 20)))]
    assert max(rests) == rests[-1] == at_most
    assert account.spend(22 + at_most + 5, 0.0001) == 0


# ------------------------------------------------------------------ the calls of one speculator


def test_calls_that_save_what_they_take_are_never_put_off():
    account = CallAccount(0.01)
    assert {account.settle(2.5, 2.5) for _ in range(1000)} == {0}


@pytest.mark.parametrize(("saved", "call"), [(0.0, 0.5), (3.0, 4.0), (0.0, 30.0), (-2.0, 0.5)])
def test_in_the_long_run_calls_lose_no_more_than_the_share(saved: float, call: float):
    account, n_tokens, lost = CallAccount(0.01), 0, 0.0
    while n_tokens < 100_000:
        n_tokens += 1 + account.settle(saved, call)
        lost += call - saved
    at_most = max(0.01, (call - saved) / max(1.0, call) / 128)  # no rest is longer
    assert lost <= 1.02 * at_most * n_tokens + 10


@pytest.mark.parametrize("lead", [0, 3, 1000])
def test_what_was_saved_is_credit_but_not_all_of_it(lead: int):
    account = CallAccount(0.01)
    for _ in range(lead):
        account.settle(2.0, 0.5)
    n_more = next(n for n in range(1000) if account.settle(0.0, 1.0))
    assert n_more == int(min(8 + 1.5 * lead, 24))


def test_a_rest_pays_for_what_was_lost():
    account = CallAccount(0.01)
    assert account.settle(0.0, 8.5) == 50
    assert account.settle(1.0, 0.5) == 0
    assert account.settle(0.0, 1.0) == 50
