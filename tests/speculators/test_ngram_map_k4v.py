"""Laws of ngram-map-k4v, against literal tokens and against a slow reference."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from ngram_texts import ends_of, followed, repetitive

from pyspec.errors import InvalidValueError, StateError
from pyspec.speculators import History, NgramMapK4v, NgramMapK4vOptions, as_tokens, make
from pyspec.speculators.ngram_map_k4v import N_LATEST, N_VALUES

SHORT = NgramMapK4vOptions(size_n=2, size_m=4)
KEY = [1, 2]
A, B, C = [10, 11, 12, 13], [10, 11, 22, 23], [30, 31, 32, 33]
D, E = [40, 41, 42, 43], [50, 51, 52, 53]


def begun(prompt: list[int], options: NgramMapK4vOptions = SHORT) -> tuple[NgramMapK4v, History]:
    speculator = NgramMapK4v(options)
    speculator.begin(as_tokens(prompt))
    return speculator, History(prompt)


def draft_after(values: list[list[int]], options: NgramMapK4vOptions = SHORT, n_max: int = 64) -> list[int]:
    """What is drafted behind the key after it stood before each of `values`, in this order."""
    speculator, history = begun([token for value in values for token in (*KEY, *value)] + KEY, options)
    return list(speculator.draft(history, n_max))


def reference_draft(tokens: list[int], options: NgramMapK4vOptions, n_max: int) -> list[int]:
    """Definition: count the values, take the most frequent, and cut it where no two thirds of them agree any more."""
    ends = ends_of(tokens, options.size_n)[::-1]
    if len(ends) < options.min_hits or not ends or n_max <= 0:
        return []
    values: list[tuple[int, ...]] = []
    for end in ends[:N_LATEST]:
        value = tuple(followed(tokens, end, options.size_m))
        if value in values or len(set(values)) < N_VALUES:
            values.append(value)
    best = max(dict.fromkeys(values), key=values.count)
    n = options.size_m
    while 3 * sum(value[:n] == best[:n] for value in values) < 2 * len(values):
        n -= 1
    return list(best[: min(n, n_max)])


def test_defaults_are_those_of_llama_cpp() -> None:
    assert NgramMapK4vOptions() == NgramMapK4vOptions(size_n=12, size_m=48, min_hits=1)


def test_a_single_value_is_drafted() -> None:
    assert draft_after([A]) == A


def test_a_value_twice_as_frequent_as_all_others_is_drafted_wherever_it_stands() -> None:
    for values in ([A, A, C], [A, C, A], [C, A, A], [A, A, A, A, C, D]):
        assert draft_after(values) == A


def test_values_that_differ_at_once_give_no_draft_unless_one_dominates() -> None:
    assert draft_after([A, C]) == []
    assert draft_after([A, A, C, D]) == []


def test_values_are_drafted_as_far_as_they_agree() -> None:
    assert draft_after([A, B]) == [10, 11]
    assert draft_after([A, A, B, C]) == [10, 11]


def test_the_later_of_two_equally_frequent_values_is_the_one_drafted() -> None:
    assert draft_after([A, A, B, B, C]) == [10, 11]
    # three thirds: only together do they dominate, and what they have in common is nothing
    assert draft_after([A, C, D]) == []
    one, two = [10, 7, 7, 7], [10, 8, 8, 8]
    assert draft_after([one, two]) == [10]


def test_the_four_values_met_latest_count() -> None:
    # A alone would need two thirds; met fifth from the end, it does not count at all
    assert draft_after([A, D, D, D, D, D, D, D, D, E, C, B]) == D
    assert draft_after([D, D, D, D, B, E, C, A]) == []


def test_the_latest_32_occurrences_count() -> None:
    assert draft_after([C] * 100 + [A] * 22 + [C] * 10) == A
    assert draft_after([C] * 100 + [A] * 21 + [C] * 11) == []


def test_an_occurrence_near_the_end_counts_as_a_period() -> None:
    speculator, history = begun([9, 1, 2, 3, 1, 2])
    assert speculator.draft(history, 64) == [3, 1, 2, 3]


@pytest.mark.parametrize(("n_before", "has_draft"), [(0, False), (2, False), (3, True), (4, True)])
def test_a_key_needs_min_hits_earlier_occurrences(n_before: int, has_draft: bool) -> None:
    options = NgramMapK4vOptions(size_n=2, size_m=4, min_hits=3)
    assert draft_after([A] * n_before, options) == (A if has_draft else [])


def test_more_hits_than_are_counted_may_be_asked_for() -> None:
    options = NgramMapK4vOptions(size_n=2, size_m=4, min_hits=N_LATEST + 8)
    assert draft_after([A] * (N_LATEST + 7), options) == []
    assert draft_after([A] * (N_LATEST + 8), options) == A


@pytest.mark.parametrize("min_hits", [1, 2])
@pytest.mark.parametrize("size_n", [1, 2, 4])
@pytest.mark.parametrize("n_alphabet", [2, 4])
def test_drafts_equal_the_reference_however_the_tokens_arrive(n_alphabet: int, size_n: int, min_hits: int) -> None:
    rng = random.Random(100 * n_alphabet + 10 * size_n + min_hits)
    n_whole, n_cut, n_none = 0, 0, 0
    for _ in range(60):
        options = NgramMapK4vOptions(size_n=size_n, size_m=rng.randrange(1, 12), min_hits=min_hits)
        tokens = repetitive(rng, n_alphabet)
        speculator, history = begun(tokens[: rng.randrange(len(tokens) + 1)], options)
        while True:
            n_max = rng.choice([0, 3, 64])
            draft = speculator.draft(history, n_max)
            assert draft == reference_draft(history.view().tolist(), options, n_max)
            n_whole += len(draft) == options.size_m
            n_cut += 0 < len(draft) < min(n_max, options.size_m)
            n_none += len(draft) == 0 < n_max
            if len(history) == len(tokens):
                break
            history.extend(tokens[len(history) : len(history) + rng.choice([1, 1, 2, 5, 63, 64, 65, 100])])
    assert min(n_whole, n_cut, n_none) > 3


# ------------------------------------------------------------------ learned lengths


def lengths_after(verdicts: list[tuple[int, int]], *, own: bool = True) -> list[int]:
    """Draft lengths of one key and value, before each verdict and after the last."""
    speculator, history = begun([1, 2, *range(10, 30), 1, 2], NgramMapK4vOptions(size_n=2, size_m=8))
    lengths = []
    for n_drafted, n_accepted in verdicts:
        lengths.append(len(speculator.draft(history, 64)))
        speculator.accept(n_drafted, n_accepted, own=own)
    return [*lengths, len(speculator.draft(history, 64))]


@pytest.mark.parametrize(
    ("verdicts", "lengths"),
    [
        ([(8, 5), (5, 3)], [8, 5, 3]),
        ([(8, 0), (1, 0)], [8, 1, 1]),
        ([(8, 1), (1, 1), (2, 2), (4, 4)], [8, 1, 2, 4, 8]),
        ([(8, 6), (2, 2)], [8, 6, 6]),
        ([(0, 0)], [8, 8]),
    ],
    ids=["partial", "none", "all", "cut", "not verified"],
)
def test_lengths_follow_the_verdicts(verdicts: list[tuple[int, int]], lengths: list[int]) -> None:
    assert lengths_after(verdicts) == lengths


def test_the_verdict_on_another_speculators_draft_changes_nothing() -> None:
    assert lengths_after([(8, 0), (8, 3)], own=False) == [8, 8, 8]


def test_lengths_belong_to_a_key_and_its_value() -> None:
    speculator, history = begun([*KEY, *A, *KEY])
    assert speculator.draft(history, 64) == A
    speculator.accept(4, 1, own=True)
    assert speculator.draft(history, 64) == A[:1]
    history.extend([*C, *KEY, *C, *KEY])
    assert speculator.draft(history, 64) == C
    history.extend([*A, *KEY] * 5)
    assert speculator.draft(history, 64) == A[:1]


def test_memory_is_a_fixed_part_a_part_a_token_and_the_shortened_keys() -> None:
    speculator, history = begun([1] * 50_000)
    before = speculator.nbytes
    assert 2**20 + 4 * 50_000 <= before <= 2**20 + 8 * 50_000
    speculator.draft(history, 4)
    speculator.accept(4, 2, own=True)
    assert 4 * 6 <= speculator.nbytes - before <= 300


# ------------------------------------------------------------------ options, state


@pytest.mark.parametrize(
    "options", [{"size_n": 0}, {"size_n": 1025}, {"size_m": 0}, {"min_hits": 0}, {"min_hits": 1.5}], ids=str
)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError):
        NgramMapK4vOptions(**options)


@pytest.mark.parametrize("spec", ["ngram-map-k4v:size_n=3,size_m=5", NgramMapK4vOptions(size_n=3, size_m=5)], ids=str)
def test_a_name_with_options_and_an_options_object_are_specs(spec: Any) -> None:
    speculator = make(spec, n_vocab=10)
    assert isinstance(speculator, NgramMapK4v)
    assert speculator.options == NgramMapK4vOptions(size_n=3, size_m=5, min_hits=1)


def test_a_restored_speculator_keeps_the_learned_lengths() -> None:
    saved, history = begun([*KEY, *A, *KEY])
    saved.draft(history, 64)
    saved.accept(4, 3, own=True)
    restored = NgramMapK4v(SHORT)
    restored.set_state(saved.get_state())
    assert restored.draft(history, 64) == A[:3]


GOOD: dict[str, Any] = {"kind": "ngram-map-k4v", "keys": np.array([KEY + A]), "limits": [3]}


@pytest.mark.parametrize(
    "change",
    [{"kind": "ngram-map-k"}, {"keys": [KEY]}, {"limits": [3, 4]}, {"limits": [0]}, {"limits": 7}, {"keys": "x"}],
    ids=str,
)
def test_a_damaged_state_is_refused_and_changes_nothing(change: dict[str, Any]) -> None:
    speculator, history = begun([*KEY, *A, *KEY])
    NgramMapK4v(SHORT).set_state(GOOD)
    with pytest.raises(StateError):
        speculator.set_state({**GOOD, **change})
    assert speculator.draft(history, 64) == A
