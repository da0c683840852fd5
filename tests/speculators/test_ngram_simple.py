"""Laws of ngram-simple, against literal tokens and against a slow reference."""

from __future__ import annotations

import pickle
import random
from typing import Any

import pytest
from ngram_texts import ends_of, followed, repetitive

from pyspec.errors import InvalidValueError, StateError
from pyspec.speculators import History, NgramSimple, NgramSimpleOptions, as_tokens, make

SHORT = NgramSimpleOptions(size_n=2, size_m=8)


def begun(prompt: list[int], options: NgramSimpleOptions = SHORT) -> tuple[NgramSimple, History]:
    speculator = NgramSimple(options)
    speculator.begin(as_tokens(prompt))
    return speculator, History(prompt)


def reference_draft(tokens: list[int], options: NgramSimpleOptions, n_max: int) -> list[int]:
    """Definition: look at every earlier position; copy from the last, reading on into the draft itself."""
    ends = ends_of(tokens, options.size_n)
    has_draft = n_max > 0 and len(ends) >= options.min_hits
    return followed(tokens, ends[-1], min(n_max, options.size_m)) if has_draft else []


def test_defaults_are_those_of_llama_cpp() -> None:
    assert NgramSimpleOptions() == NgramSimpleOptions(size_n=12, size_m=48, min_hits=1)


def test_the_draft_follows_the_latest_earlier_occurrence() -> None:
    speculator, history = begun([1, 2, 3, 9, 1, 2, 4, 5, 6, 1, 2])
    assert speculator.draft(history, 3) == [4, 5, 6]


def test_the_first_tokens_count_as_an_occurrence() -> None:
    speculator, history = begun([1, 2, 3, 4, 1, 2])
    assert speculator.draft(history, 2) == [3, 4]


def test_an_occurrence_near_the_end_is_drafted_as_a_period() -> None:
    speculator, history = begun([9, 1, 2, 3, 1, 2])
    assert speculator.draft(history, 7) == [3, 1, 2, 3, 1, 2, 3]


@pytest.mark.parametrize(("n_before", "has_draft"), [(0, False), (1, False), (2, True), (3, True)])
def test_the_last_tokens_need_min_hits_earlier_occurrences(n_before: int, has_draft: bool) -> None:
    prompt = [token for i in range(n_before) for token in (1, 2, 50 + i)]
    speculator, history = begun([*prompt, 1, 2], NgramSimpleOptions(size_n=2, min_hits=2))
    assert speculator.draft(history, 1) == ([49 + n_before] if has_draft else [])


@pytest.mark.parametrize("min_hits", [1, 3])
@pytest.mark.parametrize("size_n", [1, 2, 5])
@pytest.mark.parametrize("n_alphabet", [2, 5])
def test_drafts_equal_the_reference_however_the_tokens_arrive(n_alphabet: int, size_n: int, min_hits: int) -> None:
    rng = random.Random(100 * n_alphabet + 10 * size_n + min_hits)
    n_long = 0
    for _ in range(30):
        options = NgramSimpleOptions(size_n=size_n, size_m=rng.randrange(1, 20), min_hits=min_hits)
        tokens = repetitive(rng, n_alphabet)
        speculator, history = begun(tokens[: rng.randrange(len(tokens) + 1)], options)
        while True:
            n_max = rng.randrange(20)
            draft = speculator.draft(history, n_max)
            assert draft == reference_draft(history.view().tolist(), options, n_max)
            n_long += len(draft) > 2
            if len(history) == len(tokens):
                break
            history.extend(tokens[len(history) : len(history) + rng.choice([1, 1, 2, 5, 63, 64, 65, 100])])
    assert n_long > 10


def test_verdicts_change_nothing() -> None:
    speculator, history = begun([1, 2, *range(10, 30), 1, 2])
    before = pickle.dumps(speculator.get_state())
    for n_accepted in (0, 3, 8, 0):
        assert len(speculator.draft(history, 64)) == 8
        speculator.accept(8, n_accepted, own=True)
    assert pickle.dumps(speculator.get_state()) == before


def test_one_sequences_failures_never_cost_another_its_drafts() -> None:
    bad, history = begun([1, 2, 3, 4, 5, 6, 1, 2])
    good, _ = begun([1, 2, 3, 4, 5, 6, 1, 2])
    for _ in range(20):
        assert bad.draft(history, 2) == [3, 4]
        bad.accept(2, 0, own=True)
    assert good.draft(history, 2) == [3, 4]


def test_memory_is_a_fixed_part_and_at_most_8_bytes_a_token() -> None:
    speculator, _ = begun([1] * 50_000)
    assert 2**20 + 4 * 50_000 <= speculator.nbytes <= 2**20 + 8 * 50_000


@pytest.mark.parametrize(
    "options", [{"size_n": 0}, {"size_n": 1025}, {"size_m": 0}, {"min_hits": 0}, {"min_hits": 1.5}], ids=str
)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError):
        NgramSimpleOptions(**options)


@pytest.mark.parametrize("spec", ["ngram-simple:size_n=3,size_m=5", NgramSimpleOptions(size_n=3, size_m=5)], ids=str)
def test_a_name_with_options_and_an_options_object_are_specs(spec: Any) -> None:
    speculator = make(spec, n_vocab=10)
    assert isinstance(speculator, NgramSimple)
    assert speculator.options == NgramSimpleOptions(size_n=3, size_m=5, min_hits=1)


@pytest.mark.parametrize("state", [{}, {"kind": "ngram-map-k"}, None], ids=str)
def test_a_foreign_state_is_refused_and_changes_nothing(state: Any) -> None:
    speculator, history = begun([1, 2, 3, 4, 5, 6, 1, 2])
    with pytest.raises(StateError):
        speculator.set_state(state)
    assert speculator.draft(history, 2) == [3, 4]
