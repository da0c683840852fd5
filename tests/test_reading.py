"""What a draft model must read before it can draft: when a draft or a probe is worth it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyspec.reading import Reading

LONG = Reading(decodes=40.0, of_token=0.02, n_said=0, n_since=0, n_judged=0)


def first(worth: list[bool]) -> int:
    return worth.index(True) if True in worth else -1


def waits(reading: Reading, most: float, n_tokens: int = 20_000) -> int:
    """Tokens until a probe, where each is asked for as soon as the wait before it is over."""
    at = 0
    while at < n_tokens:
        now = replace(
            reading,
            decodes=reading.decodes + at * reading.of_token,
            n_said=reading.n_said + at,
            n_since=reading.n_since + at,
        )
        if not (more := now.wait(most, 64)):
            return at
        at += more
    return -1


def test_where_nothing_is_to_be_read_everything_pays():
    reading = replace(LONG, decodes=0.0)
    assert reading.pays(1.0)
    assert reading.wait(1.0, 64) == 0


def test_a_small_share_of_the_time_may_go_there_whatever_is_promised():
    assert replace(LONG, n_since=2667).pays(1.0)
    assert not replace(LONG, n_since=2666).pays(1.0)
    assert replace(LONG, n_since=2667).wait(1.0, 64) == 0


@pytest.mark.parametrize(("n_judged", "ratio", "n_said"), [(0, 1.5, 96), (0, 2.25, 0), (16, 1.5, 16), (16, 1.1, 336)])
def test_more_is_read_where_as_many_tokens_as_were_said_and_64_bring_it_in(n_judged: int, ratio: float, n_said: int):
    reading = replace(LONG, n_judged=n_judged)
    pays = [replace(reading, n_said=n).pays(ratio) for n in range(1000)]
    assert first(pays) == pytest.approx(n_said, abs=1)
    assert all(pays[n_said + 1 :]), "and from then on"


@pytest.mark.parametrize("of_token", [0.0, 0.004, 0.0076, 0.02, 0.05])
@pytest.mark.parametrize("most", [1.1, 1.5, 3.0])
def test_neither_a_better_promise_nor_faster_reading_is_probed_later(of_token: float, most: float):
    reading = replace(LONG, of_token=of_token)
    at = waits(reading, most)
    assert waits(reading, most + 0.5) <= at or at < 0
    slower = waits(replace(reading, of_token=1.1 * of_token + 0.0005), most)
    assert at >= 0 or slower < 0
    assert at <= slower + 64 or slower < 0, "64 tokens are looked ahead"


def test_a_probe_waits_no_longer_than_it_must():
    reading = replace(LONG, decodes=3.0, of_token=0.001, n_judged=1000)
    at = waits(reading, most=1.5)
    assert (3.0 + at * 0.001) <= 0.015 * at
    assert (3.0 + (at - 2) * 0.001) > 0.015 * (at - 2)


def test_the_first_probe_may_hope_and_later_ones_less():
    at = [waits(replace(LONG, decodes=4.0, of_token=0.01, n_judged=n), most=3.0) for n in (0, 1, 3)]
    assert at[0] < at[1] < at[2] < 800, "there the share is reached"
    assert at[0] == 0


def test_what_is_read_as_slowly_as_it_could_be_of_use_is_never_probed():
    reading = replace(LONG, of_token=0.11)
    assert reading.wait(1.3, 77) == 77
    assert waits(reading, most=1.3) == -1
