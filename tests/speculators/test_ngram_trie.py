"""Laws of the tree of n-gram counts, against counting by definition."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import pytest
from ngram_texts import repetitive

from pyspec.speculators import as_tokens
from pyspec.speculators.ngram_trie import NgramTrie

Counts = dict[tuple[int, ...], Counter[int]]


def counted(tokens: list[int], n_max: int, n_known: int = 0) -> Counts:
    counts: Counts = defaultdict(Counter)
    for i in range(n_known, len(tokens)):
        for n in range(1, min(n_max, i) + 1):
            counts[tuple(tokens[i - n : i])][tokens[i]] += 1
    return counts


def rows_of(trie: NgramTrie, n_min: int = 1) -> Counts:
    counts: Counts = defaultdict(Counter)
    for ngram, token, count in zip(*(column.tolist() for column in trie.rows(n_min)), strict=True):
        key = tuple(t for t in ngram if t >= 0)
        assert token not in counts[key], "one row for an n-gram and a token"
        counts[key][token] = count
    return counts


def node_of(trie: NgramTrie, ngram: tuple[int, ...]) -> int:
    node = 0
    for token in ngram:
        node = trie.child(node, token)
        if not node:
            return 0
    return node


def grown(tokens: list[int], n_max: int, rng: random.Random) -> NgramTrie:
    """A tree that has read `tokens` in pieces, some one by one and some in bulk."""
    trie, start = NgramTrie(n_max), 0
    while start < len(tokens):
        piece = tokens[start : start + rng.choice([1, 2, 3, 7, 40])]
        start += len(piece)
        if rng.random() < 0.5:
            trie.read(piece)
        else:
            trie.read_all(as_tokens(piece))
    return trie


@pytest.mark.parametrize("n_max", [1, 2, 4])
@pytest.mark.parametrize("n_alphabet", [2, 5, 1000])
def test_counts_equal_the_definition_however_the_tokens_arrive(n_alphabet: int, n_max: int) -> None:
    rng = random.Random(10 * n_alphabet + n_max)
    for _ in range(20):
        tokens = repetitive(rng, n_alphabet)
        trie, expected = grown(tokens, n_max, rng), counted(tokens, n_max)
        assert rows_of(trie) == expected
        assert rows_of(trie, n_max) == {ngram: c for ngram, c in expected.items() if len(ngram) == n_max}
        ends = trie.ends()
        assert [node_of(trie, tuple(tokens[-n:])) for n in range(trie.depth, 0, -1)] == ends
        for ngram, followers in expected.items():
            node = node_of(trie, ngram)
            assert trie.counts[node] - (node in ends) == followers.total()


def test_the_best_follower_is_the_most_frequent_and_of_several_the_latest() -> None:
    rng = random.Random(3)
    n_ties = 0
    for _ in range(40):
        tokens = repetitive(rng, 4)
        trie = grown(tokens, 3, rng)
        last = {(tuple(tokens[i - n : i]), tokens[i]): i for i in range(len(tokens)) for n in range(1, min(3, i) + 1)}
        for ngram, counts in counted(tokens, 3).items():
            best = max(counts, key=lambda token, ngram=ngram, counts=counts: (counts[token], last[ngram, token]))
            n_ties += list(counts.values()).count(counts[best]) > 1
            child = trie.best[node_of(trie, ngram)]
            assert (trie.keys[child] & 0xFFFFFFFF, trie.counts[child]) == (best, counts[best])
            assert {t for t in range(5) if trie.child(node_of(trie, ngram), t)} == set(counts)
    assert n_ties > 50


def test_links_lead_to_the_run_without_its_first_token_and_last_is_the_end_of_the_text() -> None:
    rng = random.Random(4)
    for _ in range(40):
        tokens = [1, *repetitive(rng, 6)]
        trie = grown(tokens, 3, rng)
        for ngram in counted(tokens, 3):
            assert trie.suffixes[node_of(trie, ngram)] == (node_of(trie, ngram[1:]) if len(ngram) > 1 else 0)
        assert trie.depth == min(3, len(tokens))
        assert trie.last == node_of(trie, tuple(tokens[-trie.depth :]))
        assert trie.n_tokens == len(tokens)


def test_a_text_longer_than_a_chunk_is_counted_as_one() -> None:
    rng = random.Random(6)
    tokens = [rng.randrange(50) for _ in range(140_000)]
    whole, later = NgramTrie(2), NgramTrie(2)
    whole.read_all(as_tokens(tokens))
    later.read(tokens[:100])
    later.read_all(as_tokens(tokens[100:]))
    assert rows_of(whole) == rows_of(later) == counted(tokens, 2)


def test_large_token_ids_are_told_apart() -> None:
    tokens = [0, 2**31 - 1, 2**20, 2**31 - 1, 0, 2**31 - 1, 5]
    trie = grown(tokens, 4, random.Random(7))
    assert rows_of(trie) == counted(tokens, 4)


def test_a_cleared_tree_is_a_new_one() -> None:
    trie = grown([1, 2, 3] * 50, 4, random.Random(8))
    trie.clear()
    assert rows_of(trie) == {}
    trie.read([4, 5, 4])
    assert rows_of(trie) == counted([4, 5, 4], 4)


def test_memory_grows_with_different_runs_and_not_with_repeated_ones() -> None:
    repeated, different = NgramTrie(4), NgramTrie(4)
    for start in range(0, 20_000, 50):
        repeated.read([1, 2] * 25)
        different.read(list(range(start, start + 50)))
    assert repeated.nbytes < 50_000
    # five runs end at each token: 24 bytes each, at most twice as many as needed, and slots for few of them
    assert 5 * 20_000 * 24 < different.nbytes < 5 * 20_000 * 2 * 28
