"""Laws of the rolling hash and of the order of writes."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pyspec.speculators.rolling_hash import RollingHash, sort_by_slot


def slot_of_llama_cpp(window: list[int], n_slots: int) -> int:
    """The definition in 64 bits, as in common/ngram-mod.cpp."""
    value = 0
    for token in window:
        value = (value * 6364136223846793005 + token) % 2**64
    return value % n_slots


@pytest.mark.parametrize("n_slots", [2, 16, 262_144, 4_194_304, 2**32])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 12, 24, 31])
def test_one_window_all_windows_and_rolling_agree_with_the_definition(n: int, n_slots: int) -> None:
    rng = random.Random(n)
    tokens = [rng.randrange(200_000) for _ in range(n + 40)]
    rolling = RollingHash(n, n_slots)
    expected = [slot_of_llama_cpp(tokens[i : i + n], n_slots) for i in range(41)]
    assert rolling.slots(np.array(tokens, np.int32)).tolist() == expected
    slot = rolling.slot(tokens[:n])
    for i in range(40):
        assert slot == expected[i]
        slot = (slot * rolling.factor + tokens[i + n] - tokens[i] * rolling.leaving_factor) & rolling.mask
    assert slot == expected[40]


def test_as_many_tokens_as_the_window_make_one_slot() -> None:
    assert RollingHash(3, 16).slots(np.array([1, 2, 3], np.int32)).shape == (1,)


def test_sorting_keeps_positions_in_order_within_a_slot_and_marks_the_last() -> None:
    slots, positions, is_last = sort_by_slot(np.array([7, 2, 7, 2**32 - 1, 7], np.uint32))
    assert slots.tolist() == [2, 7, 7, 7, 2**32 - 1]
    assert positions.tolist() == [1, 0, 2, 4, 3]
    assert is_last.tolist() == [True, False, False, True, True]


def test_sorting_no_windows_gives_none() -> None:
    assert [len(part) for part in sort_by_slot(np.array([], np.uint32))] == [0, 0, 0]
