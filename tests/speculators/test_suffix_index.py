"""Laws of the index of suffixes: lengths, counts and places equal those of a search without an index."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pyspec.speculators import as_tokens
from pyspec.speculators.suffix_index import END, SuffixIndex
from pyspec.speculators.suffix_sort import sorted_ends


def ends_of(key: list[int], tokens: list[int]) -> list[int]:
    """Definition: every earlier place where `key`, that something other than an `END` follows, ends; latest first."""
    n = len(key)
    return [e for e in range(len(tokens) - 1, n - 1, -1) if tokens[e - n : e] == key and tokens[e] != END]


def longest(key: list[int], tokens: list[int], max_depth: int) -> int:
    lengths = range(min(max_depth, len(key)), 0, -1)
    return next((n for n in lengths if ends_of(key[len(key) - n :], tokens)), 0)


def check(index: SuffixIndex, tokens: list[int], key: list[int], *, own: bool) -> int:
    """Compare everything that is asked after `key` with its definition; returns the number of occurrences."""
    other = SuffixIndex(index.max_depth)
    other.extend(as_tokens(key))
    context = other.context(len(key))
    length, place = index.match(None if own else context)
    assert length == longest(key, tokens, index.max_depth)
    if not length:
        return 0
    expected = ends_of(key[len(key) - length :], tokens)
    for n_max in (1, 3, len(tokens)):
        assert index.occurrences(context, length, place, n_max) == expected[:n_max]
    return len(expected)


@pytest.mark.parametrize("highest", [3, 2**31 - 1], ids=["small ids", "ids too large to be packed"])
def test_ends_are_sorted_by_what_stands_before_them(highest: int) -> None:
    rng = random.Random(highest)
    for _ in range(300):
        max_depth = rng.randrange(1, 10)
        tokens = [rng.choice([END, highest - 1, highest]) for _ in range(rng.randrange(50))]
        ends = sorted_ends(as_tokens(tokens), max_depth)
        assert ends.dtype == np.int32
        assert ends.tolist() == sorted(
            range(1, len(tokens)), key=lambda e: (tokens[max(0, e - max_depth) : e][::-1], e)
        )


@pytest.mark.parametrize("n_alphabet", [1, 2, 4])
@pytest.mark.parametrize("n_new", [1, 2, 100])
def test_matches_and_counts_equal_a_search_without_index(n_alphabet: int, n_new: int) -> None:
    rng = random.Random(10 * n_alphabet + n_new)
    n_counted = 0
    for _ in range(20):
        index, tokens = SuffixIndex(rng.choice([1, 3, 7])), list[int]()
        for _ in range(60 if n_new < 100 else 4):
            new = [rng.randrange(n_alphabet) for _ in range(n_new)]
            tokens += new
            index.extend(as_tokens(new))
            n_counted += check(index, tokens, tokens, own=True)
            check(index, tokens, [rng.randrange(n_alphabet) for _ in range(9)], own=False)
            if rng.random() < 0.1:
                del tokens[rng.randrange(len(tokens)) :]
                index.truncate(len(tokens))
            assert index.tokens().tolist() == tokens
    assert n_counted > 20


def test_more_occurrences_than_are_near_are_all_found() -> None:
    tokens = [token for i in range(2_000) for token in (7, 100 + i)]
    index = SuffixIndex(4)
    index.extend(as_tokens([*tokens, 7]))
    assert check(index, [*tokens, 7], [7], own=False) == 2_000


@pytest.mark.parametrize("n_each", [3, 60], ids=["inserted", "sorted"])
def test_texts_behind_ends_are_searched_apart_also_after_the_first_were_dropped(n_each: int) -> None:
    rng = random.Random(n_each)
    for _ in range(30):
        index, tokens = SuffixIndex(6), [END]
        index.extend(as_tokens(tokens))
        for _ in range(12):
            new = [*(rng.randrange(2) for _ in range(rng.randrange(1, n_each))), END]
            tokens += new
            index.extend(as_tokens(new))
            if rng.random() < 0.3:
                n_first = tokens.index(END, 1)
                del tokens[:n_first]
                index.drop(n_first)
            assert index.tokens().tolist() == tokens
            for n in (1, 3, 8):
                check(index, tokens, [rng.randrange(2) for _ in range(n)], own=False)
