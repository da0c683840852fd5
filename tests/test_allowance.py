"""The account of time for drafts that nobody decodes: what plain tokens earn, what drafts gain, and when to rest."""

from __future__ import annotations

import pytest

from pyspec.allowance import Allowance


def spend_through(account: Allowance, n_tokens: int, decodes: float, *, start: int = 0) -> list[int]:
    """Spend so much at every token where there is no rest; returns at which."""
    at, places = start, []
    while at < start + n_tokens:
        places.append(at)
        at += max(1, account.spend(at, decodes))
    return places


@pytest.mark.parametrize("decodes", [0.0001, 0.01, 0.03, 0.08, 0.5])
@pytest.mark.parametrize("share", [0.002, 0.01, 0.1])
def test_in_the_long_run_no_more_than_the_share_is_spent(share: float, decodes: float):
    n_tokens = 200_000
    spent = decodes * len(spend_through(Allowance(share), n_tokens, decodes))
    at_most = share if decodes <= 128 * share else decodes / 128  # no rest is longer
    assert spent <= 1.02 * at_most * n_tokens
    if share <= decodes <= 128 * share:
        assert spent >= 0.7 * at_most * n_tokens, "rests are whole tokens, but no longer than they must be"


def test_what_costs_less_than_the_share_is_done_at_every_token():
    assert spend_through(Allowance(0.01), 500, 0.009) == list(range(500))


def test_the_first_round_of_a_generation_is_free():
    account = Allowance(0.01)
    for _ in range(2):
        assert account.spend(100, 50.0) == 0, "it reads the prompt"
        assert account.spend(101, 0.03) == 0, "the first tokens' share is there in advance"
        account.begin()


def test_what_drafts_gained_pays_for_going_on():
    account = Allowance(0.01)
    spend_through(account, 1000, 0.05)
    account.gain(3.0)
    places = spend_through(account, 200, 0.05, start=1000)
    assert places[:70] == list(range(1000, 1070)), "three decodes"
    assert places[-1] - places[-2] == 5, "until that is spent"


def test_not_everything_is_saved_up():
    account = Allowance(0.01)
    for _ in range(50):
        account.gain(100.0)
    places = spend_through(account, 1000, 0.05)
    n_at_once = next(i for i, at in enumerate(places) if at > i)
    assert 160 <= n_at_once <= 220, "eight decodes are the most"


def test_a_loss_takes_what_was_saved_up_and_is_no_reason_to_rest():
    account = Allowance(0.01)
    account.gain(5.0)
    account.gain(-100.0)
    places = spend_through(account, 100, 0.05)
    assert places[2] - places[1] == 4, "0.05 spent, 0.01 earned, nothing left"
    assert places[-1] - places[-2] == 5

    in_debt = Allowance(0.01)
    in_debt.spend(0, 0.0)
    rest = in_debt.spend(1, 1.0)
    in_debt.gain(-100.0)
    assert in_debt.spend(2 + rest, 0.001) == 0, "the rest paid for what was spent, the loss came not on top"


def test_a_busy_moment_brings_no_long_silence():
    account = Allowance(0.01)
    places = spend_through(account, 1000, 0.02)
    at = places[-1] + 10
    assert account.spend(at, 100.0) <= 4, "no more than twice what is usual is believed"
    assert account.spend(at + 10, 0.02) <= 2


def test_no_rest_is_longer_than_128_tokens_and_none_is_owed_behind_it():
    account = Allowance(0.002)
    account.spend(0, 0.0)
    for _ in range(20):
        rest = account.spend(10, 10.0)
    assert rest == 128
    assert account.spend(10 + 128 + 5, 0.0001) == 0
