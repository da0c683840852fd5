"""Laws of ngram-cache, against literal tokens and against a slow reference."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ngram_texts import repetitive
from test_ngram_trie import Counts, counted

from pyspec.errors import InvalidValueError, StateError
from pyspec.speculators import History, NgramCache, NgramCacheOptions, NgramTable, as_tokens, make
from pyspec.speculators.ngram_cache import N_WEIGHED


def begun(prompt: Sequence[int], **arguments: Any) -> tuple[NgramCache, History]:
    speculator = NgramCache(**arguments)
    speculator.begin(as_tokens(prompt))
    return speculator, History(prompt)


def draft_after(prompt: Sequence[int], n_max: int = 64, **arguments: Any) -> list[int]:
    speculator, history = begun(prompt, **arguments)
    return list(speculator.draft(history, n_max))


def counts_of(table: NgramTable) -> Counts:
    counts: Counts = {}
    for ngram, token, count in zip(*(column.tolist() for column in table.rows), strict=True):
        counts.setdefault(tuple(t for t in ngram if t >= 0), Counter())[token] = count
    return counts


# ------------------------------------------------------------------ definition

LAX = {1: (2, 66), 2: (2, 50), 3: (1, 50), 4: (1, 50)}
STRICT = {1: (4, 75), 2: (3, 66), 3: (2, 66), 4: (2, 66)}


def chosen(counts: dict[int, int], order: list[int], limits: tuple[int, int], static: dict[int, int]) -> int | None:
    """The heaviest of the followers, the first in `order` of several, if it is frequent enough."""
    best = max(order, key=lambda token: counts[token] * (100 * static[token] if token in static else 1))
    total = sum(counts.values())
    return best if total >= limits[0] and 100 * counts[best] >= limits[1] * total else None


def reference_draft(tokens: list[int], n_draft: int, dynamic: Counts, static: Counts) -> list[int]:
    """Definition: for each token count the whole text again, then look in the sources one after the other."""
    text = counted(tokens, 4)
    last = {(tuple(tokens[i - n : i]), tokens[i]): i for i in range(len(tokens)) for n in range(1, min(4, i) + 1)}
    grown = list(tokens)
    while len(tokens) >= 2 and len(grown) < len(tokens) + n_draft:
        ends = [tuple(grown[-n:]) for n in range(min(4, len(grown)), 0, -1)]
        known = static.get(tuple(grown[-2:]), {})
        token = None
        for source, limits in ((text, LAX), (dynamic, STRICT)):
            for ngram in ends:
                if token is None and ngram in source:
                    counts, is_text = source[ngram], limits is LAX
                    # the more frequent one first, and of several the text's latest, a table's lowest
                    order = sorted(counts, key=lambda t: (-counts[t], -last[ngram, t] if is_text else t))
                    token = chosen(counts, order, limits[len(ngram)], known)
        if token is None and known:
            token = chosen(known, sorted(known), LAX[2], {})
        if token is None:
            break
        grown.append(token)
    return grown[len(tokens) :]


@pytest.mark.parametrize("tables", ["none", "static", "dynamic", "both"])
@pytest.mark.parametrize("n_alphabet", [3, 6, 20])
def test_drafts_equal_the_reference_however_the_tokens_arrive(n_alphabet: int, tables: str) -> None:
    rng = random.Random(n_alphabet)
    n_drafted = 0
    for _ in range(10):
        static = dynamic = NgramTable()
        if tables in ("static", "both"):
            static = NgramTable.from_tokens(repetitive(rng, n_alphabet), n_min=2, n_max=2)
        if tables in ("dynamic", "both"):
            dynamic = NgramTable.from_tokens(repetitive(rng, n_alphabet))
        tokens = repetitive(rng, n_alphabet)
        speculator, history = begun(tokens[: rng.randrange(len(tokens) + 1)], static=static, dynamic=dynamic)
        while True:
            n_max = rng.choice([0, 1, 3, 64])
            draft = speculator.draft(history, n_max)
            sources = counts_of(dynamic), counts_of(static)
            assert draft == reference_draft(history.view().tolist(), min(n_max, 8), *sources)
            n_drafted += len(draft)
            if len(history) == len(tokens):
                break
            history.extend(tokens[len(history) : len(history) + rng.choice([1, 1, 2, 5, 63, 250])])
    assert n_drafted > 40


# ------------------------------------------------------------------ the text


def test_defaults_are_those_of_llama_cpp() -> None:
    assert NgramCacheOptions() == NgramCacheOptions(n_draft=8, static=None, dynamic=None)


def test_a_draft_has_at_most_n_draft_tokens() -> None:
    text = [1, 2, 3, 4] * 10
    assert draft_after(text) == [1, 2, 3, 4] * 2
    assert draft_after(text, options=NgramCacheOptions(n_draft=3)) == [1, 2, 3]
    assert draft_after(text, n_max=2) == [1, 2]


def test_the_longest_ngram_decides() -> None:
    # after 7 comes 9 more often, but not after 5 7
    assert draft_after([5, 7, 8, 5, 7, 8, *[7, 9] * 4, 6, 5, 7], n_max=1) == [8]


@pytest.mark.parametrize(
    ("n_right", "n_wrong", "has_draft"), [(1, 0, False), (2, 0, True), (2, 1, True), (3, 2, False), (4, 2, True)]
)
def test_a_single_token_needs_two_sights_and_two_thirds(n_right: int, n_wrong: int, has_draft: bool) -> None:
    # each 7 stands behind another token, so that longer n-grams know nothing
    followers = [8] * n_right + [60 + i for i in range(n_wrong)]
    text = [token for i, follower in enumerate(followers) for token in (20 + i, 7, follower)]
    assert draft_after([*text, 50, 7], n_max=1) == ([8] if has_draft else [])


def test_of_equally_frequent_tokens_the_later_one_is_drafted() -> None:
    assert draft_after([1, 2, 3, 4, 5, 1, 2, 3, 4, 6, 1, 2, 3, 4], n_max=1) == [6]
    assert draft_after([1, 2, 3, 4, 6, 1, 2, 3, 4, 5, 1, 2, 3, 4], n_max=1) == [5]


@pytest.mark.parametrize(
    ("text", "n"),
    [
        pytest.param([1, 2, 3, 4] * 5, 4, id="four"),
        pytest.param([1, 2, 3, 1, 2, 3], 3, id="three"),
        pytest.param([7, 8, 1, 7, 8, 2, 7], 1, id="one"),
        pytest.param([1, 2, 3], 0, id="no draft"),
        pytest.param([4, 9, 1, 2], 0, id="a table"),
    ],
)
def test_match_length_is_that_of_the_ngram_that_gave_the_first_token(text: list[int], n: int) -> None:
    speculator, history = begun(text, dynamic=table(([9, 1, 2], 5, 9)))
    assert bool(speculator.draft(history, 8)) is (n > 0 or text[0] == 4)
    assert speculator.match_length == n


def test_what_reaches_across_rounds_is_counted() -> None:
    speculator, history = begun([1])
    for token in [2, 3, 4, 5] * 3:
        speculator.draft(history, 8)
        history.append(token)
    assert speculator.draft(history, 4) == [2, 3, 4, 5]


def test_a_new_generation_knows_nothing_of_the_history_before() -> None:
    speculator, _ = begun([1, 2, 3, 4] * 10)
    speculator.begin(as_tokens([1, 2, 3]))
    assert speculator.draft(History([1, 2, 3]), 8) == []


@pytest.mark.parametrize("n_again", [0, 4, 400])
def test_a_truncated_history_is_read_again(n_again: int) -> None:
    speculator, history = begun([1, 2, 3, 4] * 10)
    assert speculator.draft(history, 2) == [1, 2]
    history.truncate(1)
    history.extend([5, 6, 7, 1][:n_again] * (n_again // 4) or [1])
    assert speculator.draft(history, 3) == ([] if n_again < 5 else [5, 6, 7])


def test_verdicts_change_nothing() -> None:
    speculator, history = begun([1, 2, 3, 4] * 10)
    before = pickle.dumps(speculator.get_state())
    for n_accepted in (0, 3, 8, 0, 0, 0, 0, 0):
        assert len(speculator.draft(history, 64)) == 8
        speculator.accept(8, n_accepted, own=True)
    assert pickle.dumps(speculator.get_state()) == before


# ------------------------------------------------------------------ tables


def table(*rows: tuple[list[int], int, int]) -> NgramTable:
    ngrams = [[*ngram, -1, -1, -1][:4] for ngram, _, _ in rows]
    return NgramTable(ngrams, [token for _, token, _ in rows], [count for _, _, count in rows])


@pytest.mark.parametrize(
    ("counts", "has_draft"),
    [({3: 1}, False), ({3: 2}, True), ({3: 1, 4: 1}, True), ({3: 1, 4: 1, 5: 1}, False)],
    ids=str,
)
def test_the_static_table_drafts_where_nothing_else_does(counts: dict[int, int], has_draft: bool) -> None:
    static = table(*(([1, 2], token, count) for token, count in counts.items()))
    assert draft_after([9, 1, 2], static=static) == ([3] if has_draft else [])


@pytest.mark.parametrize(
    ("n", "count", "n_other", "has_draft"),
    [
        (1, 3, 1, True),
        (1, 2, 1, False),
        (2, 3, 1, True),
        (2, 2, 0, False),
        (3, 2, 0, True),
        (4, 2, 1, True),
        (4, 1, 0, False),
    ],
)
def test_the_dynamic_table_is_asked_with_strict_limits(n: int, count: int, n_other: int, has_draft: bool) -> None:
    ngram = [1, 2, 3, 4][4 - n :]
    rows = [(ngram, 7, count), (ngram, 8, n_other)] if n_other else [(ngram, 7, count)]
    assert draft_after([1, 2, 3, 4], n_max=1, dynamic=table(*rows)) == ([7] if has_draft else [])


def test_the_text_comes_before_the_dynamic_and_that_before_the_static_table() -> None:
    static = table(([3, 4], 50, 9), ([4, 5], 51, 9), ([5, 60], 52, 9))
    dynamic = table(([4, 5], 60, 9), ([3, 4], 61, 9))
    text = [1, 2, 3, 4, 5, 1, 2, 3, 4]
    arguments = {"static": static, "dynamic": dynamic}
    assert draft_after(text, n_max=1, **arguments) == [5]
    assert draft_after([3, 4], n_max=1, **arguments) == [61]
    assert draft_after([3, 4, 5], n_max=2, **arguments) == [60, 52]


def test_what_the_static_table_knows_weighs_more() -> None:
    text = [1, 2, 3, 7, 1, 2, 3, 8, 1, 2, 3]
    assert draft_after(text, n_max=1) == [8]
    assert draft_after(text, n_max=1, static=table(([2, 3], 7, 1))) == [7]
    assert draft_after(text, n_max=1, static=table(([2, 3], 7, 1), ([2, 3], 8, 2))) == [8]
    # 6 weighs most, but stood here once of four times, and the static table alone is not sure either
    often = [9, 2, 3, 7, 8, 2, 3, 7, 5, 2, 3, 6, 4, 2, 3, 7, 1, 2, 3]
    assert draft_after(often, n_max=1) == [7]
    assert draft_after(often, n_max=1, static=table(([2, 3], 6, 1), ([2, 3], 50, 1), ([2, 3], 51, 1))) == []


def test_only_the_most_frequent_followers_of_a_table_are_weighed() -> None:
    text = [1, 2, 3, 7, 1, 2, 3, 8, 1, 2, 3]
    others = [([2, 3], 100 + i, 5) for i in range(N_WEIGHED - 1)]
    assert draft_after(text, n_max=1, static=table(*others, ([2, 3], 7, 1))) == [7]
    assert draft_after(text, n_max=1, static=table(*others, ([2, 3], 99, 5), ([2, 3], 7, 1))) == [8]


def test_tables_may_be_files(tmp_path: Path) -> None:
    static, dynamic = tmp_path / "static", tmp_path / "dynamic"
    table(([1, 2], 3, 9)).save(static)
    table(([2, 3], 4, 9)).save(dynamic)
    for spec in (
        f"ngram-cache:static={static},dynamic={dynamic}",
        NgramCacheOptions(static=static, dynamic=str(dynamic)),
    ):
        speculator = make(spec, n_vocab=10)
        assert isinstance(speculator, NgramCache)
        assert speculator.draft(History([1, 2]), 2) == [3, 4]


# ------------------------------------------------------------------ remembering


def test_remembering_adds_the_whole_text_once() -> None:
    speculator, history = begun([1, 2, 3, 4] * 10)
    for tokens in ([], [5, 6], [], [1, 2, 3] * 30):
        speculator.draft(history, 8)
        history.extend(tokens)
        speculator.remember()
        assert counts_of(speculator.dynamic) == counted(history.view().tolist(), 4)


def test_a_prompt_can_be_remembered_before_anything_is_drafted() -> None:
    speculator, _ = begun([1, 2, 3, 4] * 10)
    speculator.remember()
    assert counts_of(speculator.dynamic) == counted([1, 2, 3, 4] * 10, 4)


def test_the_prompt_that_is_remembered_is_the_one_given() -> None:
    prompt = as_tokens([1, 2, 3, 4] * 10)
    speculator = NgramCache()
    speculator.begin(prompt)
    prompt[:] = 9
    speculator.remember()
    assert counts_of(speculator.dynamic) == counted([1, 2, 3, 4] * 10, 4)


def test_the_next_turn_of_a_text_counts_only_what_is_new() -> None:
    first, second = [1, 2, 3, 4] * 10, [5, 6] * 10
    speculator, _ = begun(first)
    speculator.remember()
    speculator.begin(as_tokens([*first, *second]))
    speculator.remember()
    assert counts_of(speculator.dynamic) == counted([*first, *second], 4)


def test_another_text_adds_up() -> None:
    one, two = [1, 2, 3, 4] * 10, [1, 2, 5, 6] * 10
    speculator, _ = begun(one)
    speculator.remember()
    speculator.begin(as_tokens(two))
    speculator.remember()
    expected = counted(one, 4)
    for ngram, counts in counted(two, 4, n_known=2).items():
        expected[ngram] = expected[ngram] + counts
    assert counts_of(speculator.dynamic) == expected


def test_a_shorter_text_forgets_nothing() -> None:
    speculator, history = begun([1, 2, 3, 4] * 10)
    speculator.draft(history, 8)
    speculator.remember()
    history.truncate(12)
    speculator.draft(history, 8)
    speculator.remember()
    history.extend([1, 2, 3, 4] * 7)
    speculator.draft(history, 8)
    speculator.remember()
    assert counts_of(speculator.dynamic) == counted([1, 2, 3, 4] * 10, 4)


def test_nothing_is_remembered_unasked() -> None:
    speculator, history = begun([1, 2, 3, 4] * 10)
    speculator.draft(history, 8)
    speculator.begin(as_tokens([5, 6]))
    assert speculator.dynamic.n_ngrams == 0


def test_a_remembered_text_helps_the_next_one() -> None:
    speculator, _ = begun([1, 2, 3, 4, 9] * 3)
    speculator.remember()
    speculator.begin(as_tokens([7, 2, 3]))
    assert speculator.draft(History([7, 2, 3]), 2) == [4, 9]


def test_a_saved_dynamic_table_is_a_file_that_can_be_loaded_and_saved_again(tmp_path: Path) -> None:
    path = tmp_path / "dynamic"
    one, two = [1, 2, 3, 4] * 10, [5, 6, 7] * 10
    begun(one)[0].save(path)
    speculator, _ = begun(two, options=NgramCacheOptions(dynamic=path))
    speculator.save(path)
    speculator.save(path)
    assert counts_of(NgramTable.load(path)) == {**counted(one, 4), **counted(two, 4)}


def test_one_sequences_failures_never_cost_another_its_drafts() -> None:
    shared = table(([1, 2], 3, 9))
    bad, good = NgramCache(static=shared), NgramCache(static=shared)
    for _ in range(20):
        assert bad.draft(History([1, 2]), 8) == [3]
        bad.accept(1, 0, own=True)
    bad.begin(as_tokens([9] * 100))
    bad.remember()
    assert good.draft(History([1, 2]), 8) == [3]


# ------------------------------------------------------------------ options, state, memory


@pytest.mark.parametrize(
    "options",
    [{"n_draft": 0}, {"n_draft": 1025}, {"n_draft": 2.5}, {"static": 5}, {"dynamic": ""}, {"dynamic": True}],
    ids=str,
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError):
        NgramCacheOptions(**options)


@pytest.mark.parametrize("name", ["static", "dynamic"])
def test_a_table_and_a_file_of_the_same_kind_are_refused(name: str) -> None:
    with pytest.raises(InvalidValueError, match=f"{name}='x'.*not both"):
        NgramCache(NgramCacheOptions(**{name: "x"}), **{name: NgramTable()})


@pytest.mark.parametrize("name", ["static", "dynamic"])
def test_a_file_that_cannot_be_used_is_refused_by_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / "table"
    with pytest.raises(StateError, match=r"cannot read .*table"):
        make(f"ngram-cache:{name}={path}", n_vocab=10)
    path.write_bytes(b"no table")
    with pytest.raises(StateError, match="table' is damaged or no lookup cache"):
        make(f"ngram-cache:{name}={path}", n_vocab=10)
    table(([1, 2], 10, 1)).save(path)
    with pytest.raises(StateError, match=f"{name} .*table' has token 10, the vocabulary ends at 9"):
        make(f"ngram-cache:{name}={path}", n_vocab=10)
    make(f"ngram-cache:{name}={path}", n_vocab=11)


def test_a_restored_speculator_remembers_what_the_saved_one_did() -> None:
    text = [1, 2, 3, 4] * 10
    saved, history = begun(text)
    saved.remember()
    restored = NgramCache()
    restored.set_state(pickle.loads(pickle.dumps(saved.get_state())))
    restored.remember()
    assert counts_of(restored.dynamic) == counted(text, 4)
    history.extend([5, 6])
    restored.draft(history, 8)
    restored.remember()
    assert counts_of(restored.dynamic) == counted([*text, 5, 6], 4)


GOOD: dict[str, Any] = {
    "kind": "ngram-cache",
    "dynamic": {"ngrams": np.array([[1, 2, -1, -1]]), "tokens": [3], "counts": [9]},
    "remembered": [1, 2],
}


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "ngram-mod"},
        {"dynamic": None},
        {"dynamic": {}} | {"remembered": None},
        {"dynamic": {"rows": 3}},
        {"dynamic": {**GOOD["dynamic"], "counts": [0]}},
        {"dynamic": {**GOOD["dynamic"], "tokens": [3, 4]}},
        {"remembered": [[1]]},
        {"remembered": "text"},
    ],
    ids=str,
)
def test_a_damaged_state_is_refused_and_changes_nothing(change: dict[str, Any]) -> None:
    speculator, history = begun([1, 2, 3, 4] * 10, dynamic=table(([4, 4], 5, 9)))
    before = pickle.dumps(speculator.get_state())
    NgramCache().set_state(GOOD)
    with pytest.raises(StateError):
        speculator.set_state({**GOOD, **change})
    assert pickle.dumps(speculator.get_state()) == before
    assert speculator.draft(history, 2) == [1, 2]


def test_bytes_are_those_of_the_text_and_of_both_tables() -> None:
    static, dynamic = NgramTable.from_tokens(range(1000), n_min=2, n_max=2), NgramTable.from_tokens(range(1000))
    empty, tables = NgramCache(), NgramCache(static=static, dynamic=dynamic)
    nothing = NgramTable().nbytes
    assert tables.nbytes - empty.nbytes == static.nbytes + dynamic.nbytes - 2 * nothing
    tables.begin(as_tokens(range(10_000)))
    assert 5 * 28 * 10_000 < tables.nbytes < 500 * 10_000
