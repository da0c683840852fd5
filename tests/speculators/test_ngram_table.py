"""Laws of the frozen n-gram tables and their files."""

from __future__ import annotations

import os
import random
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ngram_texts import repetitive
from test_ngram_trie import counted

from pyspec.errors import InvalidValueError, StateError
from pyspec.speculators import NgramTable


def rows_of(table: NgramTable) -> dict[tuple[int, ...], Counter[int]]:
    counts: dict[tuple[int, ...], Counter[int]] = {}
    for ngram, token, count in zip(*(column.tolist() for column in table.rows), strict=True):
        counts.setdefault(tuple(t for t in ngram if t >= 0), Counter())[token] += count
    return counts


def record(ngram: list[int], followers: list[tuple[int, int]], *, n_followers: int | None = None) -> bytes:
    """A record of a file, as the format says."""
    padded = [*ngram, -1, -1, -1, -1][:4]
    numbers = [
        *padded,
        len(followers) if n_followers is None else n_followers,
        *(x for pair in followers for x in pair),
    ]
    return struct.pack(f"<{len(numbers)}i", *numbers)


# ------------------------------------------------------------------ counts


@pytest.mark.parametrize(("n_min", "n_max"), [(1, 4), (2, 2), (1, 1), (2, 3), (4, 4)])
def test_a_table_of_a_text_holds_its_ngrams(n_min: int, n_max: int) -> None:
    rng = random.Random(10 * n_min + n_max)
    for _ in range(20):
        tokens = repetitive(rng, 5)
        n_known = rng.choice([0, rng.randrange(len(tokens) + 1)])
        table = NgramTable.from_tokens(tokens, n_min=n_min, n_max=n_max, n_known=n_known)
        expected = {g: c for g, c in counted(tokens, n_max, n_known).items() if len(g) >= n_min}
        assert rows_of(table) == expected
        assert table.n_ngrams == len(expected)
        assert table.token_max == max((max(*g, *c) for g, c in expected.items()), default=-1)


def test_an_ngram_is_found_with_its_followers_the_most_frequent_and_lower_first() -> None:
    rng = random.Random(1)
    for _ in range(20):
        tokens = repetitive(rng, 6)
        table, expected = NgramTable.from_tokens(tokens), counted(tokens, 4)
        for ngram, counts in expected.items():
            best = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
            found, n = table.find(list(ngram)), rng.randrange(1, 5)
            expected_tokens, expected_counts = [t for t, _ in best[:n]], [c for _, c in best[:n]]
            assert table.followers(found, n) == (expected_tokens, expected_counts, sum(counts.values()))
        for _ in range(50):
            other = tuple(rng.randrange(7) for _ in range(rng.randrange(1, 5)))
            assert (table.find(list(other)) >= 0) == (other in expected)


def test_ngrams_that_share_a_slot_are_told_apart() -> None:
    rng = random.Random(2)
    ngrams = np.unique(np.array([[rng.randrange(2**31) for _ in range(4)] for _ in range(5000)], np.int32), axis=0)
    ngrams[::3, 2:] = -1
    table = NgramTable(ngrams, np.arange(len(ngrams)), np.ones(len(ngrams), np.int32))
    for i in range(len(ngrams)):
        found = table.find([token for token in ngrams[i].tolist() if token >= 0])
        assert table.followers(found, 9) == ([i], [1], 1)


def test_a_part_of_an_ngram_is_not_found() -> None:
    for token in range(40):
        table = NgramTable([[token, 7, 8, 9]], [1], [1])
        found = [table.find([token, 7, 8, 9][:n]) for n in (1, 2, 3, 4)]
        assert found == [-1, -1, -1, 0]


def test_two_tables_add_up() -> None:
    rng = random.Random(3)
    for _ in range(10):
        one, two = repetitive(rng, 4), repetitive(rng, 4)
        expected = dict(counted(one, 4))
        for ngram, counts in counted(two, 4).items():
            expected[ngram] = expected.get(ngram, Counter()) + counts
        both = NgramTable.from_tokens(one).merge(NgramTable.from_tokens(two))
        assert rows_of(both) == expected


def test_counts_stay_at_the_highest_that_fits() -> None:
    table = NgramTable([[1, -1, -1, -1]], [2], [2**31 - 2])
    assert table.merge(table).counts.tolist() == [2**31 - 1]


def test_a_table_cannot_be_changed() -> None:
    table = NgramTable.from_tokens([1, 2, 3])
    for column in table.rows:
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 7


def test_an_empty_table_finds_nothing() -> None:
    table = NgramTable()
    assert (table.n_ngrams, table.token_max, table.find([1]), table.find([1, 2, 3, 4])) == (0, -1, -1, -1)


def test_bytes_grow_with_the_ngrams() -> None:
    table = NgramTable.from_tokens(list(range(10_000)))
    n_rows = len(table.tokens)
    assert 24 * n_rows + 36 * table.n_ngrams <= table.nbytes <= 24 * n_rows + 44 * table.n_ngrams + 64


@pytest.mark.parametrize(
    "arguments", [{"n_min": 0}, {"n_max": 5}, {"n_min": 3, "n_max": 2}, {"tokens": [1, -2]}, {"tokens": ["a"]}], ids=str
)
def test_a_text_or_lengths_that_cannot_be_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError):
        NgramTable.from_tokens(**{"tokens": [1, 2, 3], **arguments})


@pytest.mark.parametrize(
    "rows",
    [
        ([[1, 2, 3]], [4], [1]),
        ([[1, -1, -1, -1]], [4, 5], [1, 1]),
        ([[1, -1, -1, -1]], [4], [[1]]),
        ([[1, -1, -1, -1]], [4], [0]),
        ([[1, -1, -1, -1]], [-4], [1]),
        ([[-1, -1, -1, -1]], [4], [1]),
        ([[1, -1, 2, -1]], [4], [1]),
        ([[1, -2, -1, -1]], [4], [1]),
        ("x", [4], [1]),
    ],
    ids=str,
)
def test_rows_that_no_text_can_give_are_refused(rows: Any) -> None:
    with pytest.raises(StateError):
        NgramTable(*rows)


# ------------------------------------------------------------------ files


@pytest.mark.parametrize("tokens", [[], [1], [1, 2], [1, 2, 1, 2, 1, 3] * 20], ids=len)
def test_a_saved_table_is_loaded_as_it_was(tmp_path: Path, tokens: list[int]) -> None:
    table, path = NgramTable.from_tokens(tokens), tmp_path / "table"
    table.save(path)
    assert all(np.array_equal(*pair) for pair in zip(NgramTable.load(path).rows, table.rows, strict=True))


def test_a_file_is_the_list_of_records_that_the_format_says(tmp_path: Path) -> None:
    path = tmp_path / "table"
    NgramTable.from_tokens([5, 6, 5, 7, 5, 6], n_max=2).save(str(path))
    assert path.read_bytes() == (
        record([5], [(6, 2), (7, 1)])
        + record([5, 6], [(5, 1)])
        + record([5, 7], [(5, 1)])
        + record([6], [(5, 1)])
        + record([6, 5], [(7, 1)])
        + record([7], [(5, 1)])
        + record([7, 5], [(6, 1)])
    )


def test_records_and_followers_may_stand_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "table"
    path.write_bytes(record([6], [(5, 1)]) + record([5, 6], [(9, 1), (2, 7), (3, 7)]))
    table = NgramTable.load(path)
    assert table.followers(table.find([5, 6]), 9) == ([2, 3, 9], [7, 7, 1], 15)


GOOD = record([5, 6], [(7, 2), (8, 1)])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(GOOD + b"\0", "at byte 37: the file ends inside a number", id="odd length"),
        pytest.param(
            GOOD[:-4], "at byte 0: an n-gram with 2 followers, and there are 1 more pairs", id="cut in a pair"
        ),
        pytest.param(GOOD + GOOD[:12], "at byte 36: the file ends inside a record", id="cut in an n-gram"),
        pytest.param(GOOD + record([5], []), "at byte 36: an n-gram with 0 followers", id="no followers"),
        pytest.param(record([5], [(6, 1)], n_followers=-3), "an n-gram with -3 followers", id="negative followers"),
        pytest.param(record([5], [(6, 1)], n_followers=2**31 - 1), "with 2147483647 followers", id="huge followers"),
        pytest.param(record([5], [(6, 0)]), "at byte 20: token 6, seen 0 times", id="count of 0"),
        pytest.param(GOOD + record([5], [(6, 1), (-6, 1)]), "at byte 64: token -6, seen 1 times", id="negative token"),
        pytest.param(record([-1], [(6, 1)]), r"at byte 20: the n-gram \[-1, -1, -1, -1\]", id="empty n-gram"),
        pytest.param(record([5, -1, 6], [(6, 1)]), r"the n-gram \[5, -1, 6, -1\]", id="n-gram with a hole"),
        pytest.param(record([5, -7], [(6, 1)]), r"the n-gram \[5, -7, -1, -1\]", id="negative in an n-gram"),
        pytest.param(record([5], [(6, 1), (6, 2)]), "counts the same token of an n-gram twice", id="a token twice"),
        pytest.param(GOOD + GOOD, "counts the same token of an n-gram twice", id="a record twice"),
        pytest.param(b"GGUF" + bytes(range(60)), "is damaged or no lookup cache", id="a model"),
        pytest.param(
            b"# a text that is no table, and long enough\n" * 12, "is damaged or no lookup cache", id="a text"
        ),
    ],
)
def test_a_damaged_or_foreign_file_is_refused_by_name(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "the-table"
    path.write_bytes(data)
    with pytest.raises(StateError, match=reason) as refused:
        NgramTable.load(path)
    assert str(path) in str(refused.value)


def test_every_cut_of_a_file_is_refused_or_ends_a_record(tmp_path: Path) -> None:
    path = tmp_path / "table"
    NgramTable.from_tokens([5, 6, 5, 7, 5, 6], n_max=1).save(path)
    data, n_whole = path.read_bytes(), 0
    for n_bytes in range(len(data)):
        path.write_bytes(data[:n_bytes])
        try:
            assert NgramTable.load(path).n_ngrams < 3
            n_whole += 1
        except StateError:
            pass
    assert n_whole == 3


@pytest.mark.parametrize("what", ["missing", "folder"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, what: str) -> None:
    path = tmp_path / what
    if what == "folder":
        path.mkdir()
    with pytest.raises(StateError, match=rf"cannot read lookup cache .*{what}"):
        NgramTable.load(path)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"cannot write lookup cache .*nowhere"):
        NgramTable().save(tmp_path / "nowhere" / "table")


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "table"
    NgramTable.from_tokens([1, 2, 3]).save(path)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StateError, match="No space left on device"):
        NgramTable.from_tokens([4, 5, 6]).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
