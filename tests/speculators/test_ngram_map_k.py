"""Laws of ngram-map-k, against literal tokens and against a slow reference."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from pyspec.errors import InvalidValueError, StateError
from pyspec.speculators import History, NgramMapK, NgramMapKOptions, as_tokens
from pyspec.speculators.ngram_chains import N_STRANGERS_MAX, NgramChains

SHORT = NgramMapKOptions(size_n=2, size_m=8)


def begun(prompt: list[int], options: NgramMapKOptions = SHORT) -> tuple[NgramMapK, History]:
    speculator = NgramMapK(options)
    speculator.begin(as_tokens(prompt))
    return speculator, History(prompt)


def text(rng: random.Random, n_alphabet: int) -> list[int]:
    """Up to 300 tokens, half of them copied from before."""
    tokens: list[int] = []
    for _ in range(rng.randrange(40)):
        start = rng.randrange(len(tokens) + 1)
        is_copy = rng.random() < 0.5
        tokens += tokens[start : start + 12] if is_copy else [rng.randrange(n_alphabet) for _ in range(3)]
    return tokens


def reference_draft(tokens: list[int], n: int, n_draft: int, min_hits: int) -> list[int]:
    """Definition: look at every earlier position; copy from the last, reading on into the draft itself."""
    if n_draft <= 0:
        return []
    ends = [end for end in range(n, len(tokens)) if tokens[end - n : end] == tokens[len(tokens) - n :]]
    if len(ends) < min_hits:
        return []
    grown = list(tokens)
    for i in range(n_draft):
        grown.append(grown[ends[-1] + i])
    return grown[len(tokens) :]


def test_defaults_are_those_of_llama_cpp() -> None:
    assert NgramMapKOptions() == NgramMapKOptions(size_n=12, size_m=48, min_hits=1)


def test_the_draft_follows_the_latest_earlier_occurrence() -> None:
    speculator, history = begun([1, 2, 3, 9, 1, 2, 4, 5, 6, 1, 2])
    assert speculator.draft(history, 3) == [4, 5, 6]


def test_the_draft_has_at_most_size_m_tokens() -> None:
    speculator, history = begun([1, 2, *range(10, 30), 1, 2])
    assert speculator.draft(history, 64) == list(range(10, 18))


def test_an_occurrence_near_the_end_is_drafted_as_a_period() -> None:
    speculator, history = begun([9, 1, 2, 3, 1, 2])
    assert speculator.draft(history, 7) == [3, 1, 2, 3, 1, 2, 3]


@pytest.mark.parametrize(("n_before", "has_draft"), [(0, False), (1, False), (2, False), (3, True), (4, True)])
def test_a_key_needs_min_hits_earlier_occurrences(n_before: int, has_draft: bool) -> None:
    prompt = [token for i in range(n_before) for token in (1, 2, 50 + i)]
    speculator, history = begun([*prompt, 1, 2], NgramMapKOptions(size_n=2, size_m=8, min_hits=3))
    assert speculator.draft(history, 1) == ([49 + n_before] if has_draft else [])


@pytest.mark.parametrize("min_hits", [1, 2, 3])
@pytest.mark.parametrize("size_n", [1, 2, 3, 5])
@pytest.mark.parametrize("n_alphabet", [2, 5])
def test_drafts_equal_the_reference_however_the_tokens_arrive(n_alphabet: int, size_n: int, min_hits: int) -> None:
    rng = random.Random(100 * n_alphabet + 10 * size_n + min_hits)
    n_long = 0
    for _ in range(20):
        size_m = rng.randrange(1, 20)
        tokens = text(rng, n_alphabet)
        n_prompt = rng.randrange(len(tokens) + 1)
        options = NgramMapKOptions(size_n=size_n, size_m=size_m, min_hits=min_hits)
        speculator, history = begun(tokens[:n_prompt], options)
        while True:
            n_max = rng.randrange(20)
            draft = speculator.draft(history, n_max)
            assert draft == reference_draft(history.view().tolist(), size_n, min(n_max, size_m), min_hits)
            n_long += len(draft) > 2
            if len(history) == len(tokens):
                break
            history.extend(tokens[len(history) : len(history) + rng.choice([1, 1, 2, 5, 63, 64, 65, 100])])
    assert n_long > 10


def test_keys_that_share_a_slot_are_told_apart() -> None:
    rng = random.Random(5)
    tokens: list[int] = []
    chains = NgramChains(2, n_slots=4)
    for _ in range(80):
        tokens += [rng.randrange(6) for _ in range(rng.choice([1, 3]))]
        chains.read_all(as_tokens(tokens))
        found = chains.find(as_tokens(tokens), 1)
        expected = reference_draft(tokens, 2, 1, 1)
        assert ([] if found is None else [tokens[found[1]]]) == expected


def test_a_search_gives_up_after_a_bounded_number_of_strangers() -> None:
    for n_strangers, is_found in ((N_STRANGERS_MAX - 8, True), (N_STRANGERS_MAX + 8, False)):
        # with two slots and keys of one token, all even tokens share a slot
        tokens = [2, 77, *[token for i in range(n_strangers) for token in (1000 + 4 * i, 5)], 2]
        chains = NgramChains(1, n_slots=2)
        chains.read_all(as_tokens(tokens))
        assert (chains.find(as_tokens(tokens), 1) is not None) is is_found


def test_a_prompt_longer_than_a_chunk_is_indexed_as_one() -> None:
    rng = random.Random(11)
    tokens = [rng.randrange(500) for _ in range(140_000)]
    for start in (10, 65_530, 65_536, 131_071, 139_000):
        key = tokens[start : start + 3]
        options = NgramMapKOptions(size_n=3, size_m=5)
        speculator, history = begun([*tokens, *key], options)
        assert speculator.draft(history, 5) == reference_draft([*tokens, *key], 3, 5, 1)


# ------------------------------------------------------------------ learned lengths


def lengths_after(verdicts: list[tuple[int, int]], *, own: bool = True) -> list[int]:
    """Draft lengths of one key, before each verdict and after the last."""
    speculator, history = begun([1, 2, *range(10, 30), 1, 2])
    lengths = []
    for n_drafted, n_accepted in verdicts:
        lengths.append(len(speculator.draft(history, 64)))
        speculator.accept(n_drafted, n_accepted, own=own)
    return [*lengths, len(speculator.draft(history, 64))]


def test_a_partly_accepted_draft_shortens_the_next_one_of_its_key() -> None:
    assert lengths_after([(8, 5), (5, 3)]) == [8, 5, 3]


def test_a_wholly_rejected_draft_leaves_one_token_so_that_the_key_can_recover() -> None:
    assert lengths_after([(8, 0), (1, 0), (1, 0)]) == [8, 1, 1, 1]


def test_full_acceptance_doubles_the_length_up_to_size_m() -> None:
    assert lengths_after([(8, 1), (1, 1), (2, 2), (4, 4), (8, 8)]) == [8, 1, 2, 4, 8, 8]


def test_full_acceptance_of_a_draft_that_was_cut_never_shortens() -> None:
    assert lengths_after([(8, 6), (2, 2)]) == [8, 6, 6]
    assert lengths_after([(2, 2)]) == [8, 8]


def test_the_verdict_on_another_speculators_draft_changes_nothing() -> None:
    assert lengths_after([(8, 0), (8, 3)], own=False) == [8, 8, 8]


def test_a_draft_that_was_not_verified_changes_nothing() -> None:
    assert lengths_after([(0, 0)]) == [8, 8]


def test_one_draft_is_judged_once() -> None:
    speculator, history = begun([1, 2, *range(10, 30), 1, 2])
    assert len(speculator.draft(history, 64)) == 8
    speculator.accept(8, 6, own=True)
    speculator.accept(8, 1, own=True)
    assert len(speculator.draft(history, 64)) == 6


def test_lengths_belong_to_their_keys() -> None:
    speculator, history = begun([1, 2, *range(10, 30), 3, 4, *range(30, 50), 1, 2])
    assert len(speculator.draft(history, 64)) == 8
    speculator.accept(8, 2, own=True)
    history.extend([3, 4])
    assert speculator.draft(history, 64) == list(range(30, 38))
    history.extend([1, 2])
    assert speculator.draft(history, 64) == [3, 4]


def test_only_the_latest_1024_shortened_keys_are_remembered() -> None:
    options = NgramMapKOptions(size_n=1, size_m=8)
    speculator, history = begun([*range(1100), *range(1100)], options)
    before = speculator.nbytes
    for token in range(1100):
        history.append(token)
        assert len(speculator.draft(history, 8)) == 8
        speculator.accept(8, 1, own=True)
    assert len(speculator.get_state()["limits"]) == 1024
    assert speculator.nbytes - before <= 1024 * 300 + 4 * 8192
    for token, length in ((0, 8), (75, 8), (76, 1), (1099, 1)):
        history.append(token)
        assert len(speculator.draft(history, 8)) == length


def test_memory_is_a_fixed_part_and_at_most_8_bytes_a_token() -> None:
    speculator, _ = begun([1] * 50_000)
    assert 2**20 <= speculator.nbytes <= 2**20 + 8 * 50_000


# ------------------------------------------------------------------ options, state


@pytest.mark.parametrize(
    "options", [{"size_n": 0}, {"size_n": 1025}, {"size_m": 0}, {"min_hits": 0}, {"min_hits": 1.5}], ids=str
)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError):
        NgramMapKOptions(**options)


def test_a_restored_speculator_keeps_the_learned_lengths() -> None:
    saved, history = begun([1, 2, *range(10, 30), 1, 2])
    saved.draft(history, 64)
    saved.accept(8, 3, own=True)
    restored = NgramMapK(SHORT)
    restored.set_state(saved.get_state())
    assert restored.draft(history, 64) == [10, 11, 12]


GOOD: dict[str, Any] = {"kind": "ngram-map-k", "keys": np.array([[1, 2]]), "limits": [3]}


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "ngram-mod"},
        {"keys": [[1, 2, 3]]},
        {"limits": [3, 4]},
        {"limits": [0]},
        {"limits": 7},
        {"keys": "x"},
    ],
    ids=str,
)
def test_a_damaged_state_is_refused_and_changes_nothing(change: dict[str, Any]) -> None:
    speculator, history = begun([1, 2, *range(10, 30), 1, 2])
    NgramMapK(SHORT).set_state(GOOD)
    with pytest.raises(StateError):
        speculator.set_state({**GOOD, **change})
    assert len(speculator.draft(history, 64)) == 8


def test_a_state_without_shortened_keys_may_hold_an_empty_list() -> None:
    speculator = NgramMapK(SHORT)
    speculator.set_state({"kind": "ngram-map-k", "keys": [], "limits": []})
    assert speculator.draft(History([1, 2, 3, 1, 2]), 1) == [3]
