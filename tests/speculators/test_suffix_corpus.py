"""Laws of what the suffix speculator remembers: earlier outputs, and everything in its state."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pyspec.errors import InvalidValueError, StateError
from pyspec.speculators import History, Suffix, SuffixCorpus, SuffixOptions, as_tokens

SHORT = SuffixOptions(n_match_min=1, n_max=8, factor=8, max_depth=8)


def begun(prompt: list[int]) -> tuple[Suffix, History]:
    speculator = Suffix(SHORT)
    speculator.begin(as_tokens(prompt))
    return speculator, History(prompt)


def generate(speculator: Suffix, prompt: list[int], output: list[int]) -> History:
    """A generation that says `output`, token by token."""
    history = History(prompt)
    speculator.begin(as_tokens(prompt))
    for token in output:
        speculator.draft(history, 4)
        history.append(token)
    speculator.draft(history, 4)
    return history


# ------------------------------------------------------------------ earlier outputs


def test_outputs_of_earlier_generations_are_drafted_from() -> None:
    speculator = Suffix(SHORT)
    generate(speculator, [1, 2, 3], [4, 5, 6, 7])
    generate(speculator, [8], [9])
    speculator.begin(as_tokens([30, 4, 5]))
    assert speculator.draft(History([30, 4, 5]), 2) == [6, 7]


def test_prompts_of_earlier_generations_are_forgotten() -> None:
    speculator = Suffix(SHORT)
    generate(speculator, [1, 2, 3], [4, 5])
    assert [output.tolist() for output in speculator.corpus.outputs()] == []
    speculator.begin(as_tokens([30, 1, 2]))
    assert [output.tolist() for output in speculator.corpus.outputs()] == [[4, 5]]
    assert speculator.draft(History([30, 1, 2]), 2) == []


def test_occurrences_in_text_and_corpus_are_counted_together_and_the_text_is_later() -> None:
    speculator = Suffix(SHORT)
    generate(speculator, [], [1, 2, 7, 1, 2, 7])
    for prompt, token in (([1, 2, 8, 1, 2], 7), ([1, 2, 8, 1, 2, 8, 1, 2], 8)):
        speculator.begin(as_tokens(prompt))
        assert speculator.draft(History(prompt), 1) == [token]


def test_a_longer_match_in_the_corpus_beats_the_text_and_the_other_way_round() -> None:
    speculator = Suffix(SHORT)
    generate(speculator, [], [1, 2, 3, 7])
    for prompt, token in (([3, 8, 1, 2, 3], 7), ([0, 1, 2, 3, 8, 0, 1, 2, 3], 8)):
        speculator.begin(as_tokens(prompt))
        assert speculator.draft(History(prompt), 1) == [token]


def test_a_draft_ends_with_the_output_that_it_follows() -> None:
    speculator = Suffix(SHORT)
    generate(speculator, [20], [1, 2, 3])
    generate(speculator, [21], [1, 9])
    speculator.begin(as_tokens([2]))
    assert speculator.draft(History([2]), 8) == [3]
    speculator.begin(as_tokens([3]))
    assert speculator.draft(History([3]), 8) == []


def test_no_match_reaches_from_one_output_into_the_next() -> None:
    speculator = Suffix(replace(SHORT, n_match_min=2))
    generate(speculator, [20], [1, 2])
    generate(speculator, [21], [3, 4])
    for prompt in ([2, 3], [1, 2]):
        speculator.begin(as_tokens(prompt))
        assert speculator.draft(History(prompt), 8) == []


def test_the_oldest_outputs_are_forgotten_so_that_the_corpus_keeps_its_budget() -> None:
    speculator = Suffix(replace(SHORT, corpus_tokens=10))
    for first in range(100, 160, 10):
        generate(speculator, [first], list(range(first + 1, first + 5)))
    speculator.begin(as_tokens([0]))
    assert [output.tolist() for output in speculator.corpus.outputs()] == [[141, 142, 143, 144], [151, 152, 153, 154]]
    assert (speculator.corpus.n_tokens, speculator.corpus.n_outputs) == (8, 2)
    for prompt, draft in (([131], []), ([141], [142, 143, 144]), ([151], [152, 153, 154])):
        speculator.begin(as_tokens(prompt))
        assert speculator.draft(History(prompt), 8) == draft


def test_of_an_output_longer_than_the_budget_its_end_is_kept() -> None:
    corpus = SuffixCorpus(n_tokens_max=3)
    corpus.add(as_tokens([1, 2]), as_tokens([3, 4, 5, 6]))
    assert [output.tolist() for output in corpus.outputs()] == [[4, 5, 6]]


def test_a_corpus_of_no_tokens_remembers_nothing() -> None:
    speculator = Suffix(replace(SHORT, corpus_tokens=0))
    generate(speculator, [1], [4, 5, 6])
    speculator.begin(as_tokens([4]))
    assert (speculator.draft(History([4]), 4), speculator.corpus.n_tokens) == ([], 0)


def test_a_corpus_forgets_on_demand() -> None:
    corpus = SuffixCorpus(8)
    corpus.add(as_tokens([1, 2, 3]))
    corpus.clear()
    speculator = Suffix(SHORT, corpus=corpus)
    speculator.begin(as_tokens([1]))
    assert speculator.draft(History([1]), 4) == []
    assert (corpus.n_outputs, corpus.n_tokens, corpus.outputs()) == (0, 0, [])


@pytest.mark.parametrize("options", [{"max_depth": 0}, {"n_tokens_max": -1}], ids=str)
def test_a_corpus_that_cannot_be_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError):
        SuffixCorpus(**options)


def test_speculators_that_share_a_corpus_learn_from_each_other() -> None:
    corpus = SuffixCorpus(8)
    first, second = Suffix(SHORT, corpus=corpus), Suffix(SHORT, corpus=corpus)
    second.begin(as_tokens([4]))
    assert second.draft(History([4]), 2) == []
    generate(first, [1], [4, 5, 6])
    first.begin(as_tokens([]))
    assert second.draft(History([4]), 2) == [5, 6]


def test_a_corpus_of_another_depth_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="max_depth"):
        Suffix(SHORT, corpus=SuffixCorpus(9))


# ------------------------------------------------------------------ memory, state


@pytest.mark.parametrize("n_tokens", [0, 5_000, 100_000])
def test_memory_is_at_most_24_bytes_a_token_whatever_was_held_before(n_tokens: int) -> None:
    rng = np.random.default_rng(1)
    speculator = Suffix()
    speculator.begin(rng.integers(0, 50, 20_000, np.int32))
    history = History(rng.integers(0, 50, n_tokens, np.int32))
    speculator.begin(history.view())
    history.extend(rng.integers(0, 50, 2_000, np.int32))
    for _ in range(40):
        history.append(1)
        speculator.draft(history, 8)
    speculator.begin(history.view())
    n_held = len(history) + speculator.corpus.n_tokens
    assert speculator.corpus.n_tokens == 2_040
    assert 8 * n_held <= speculator.nbytes <= 24 * n_held + 64 + 16_384


def test_a_shared_corpus_is_counted_beside_the_private_one_of_a_state() -> None:
    speculator = Suffix(corpus=SuffixCorpus())
    before = speculator.nbytes
    speculator.set_state(speculator.get_state())
    assert speculator.nbytes >= before + 4096
    speculator.begin(as_tokens([]))
    assert speculator.nbytes == before


def restored(saved: Suffix, options: SuffixOptions = SHORT) -> Suffix:
    speculator = Suffix(options)
    speculator.set_state(pickle.loads(pickle.dumps(saved.get_state())))
    return speculator


def test_a_restored_speculator_keeps_the_learned_lengths() -> None:
    saved, history = begun([1, 2, *range(10, 30), 1, 2])
    saved.draft(history, 64)
    saved.accept(8, 0, own=True)
    assert restored(saved).draft(history, 64) == [10, 11, 12, 13]


def test_a_restored_speculator_remembers_earlier_outputs_and_the_present_one() -> None:
    saved = Suffix(SHORT)
    generate(saved, [1], [4, 5, 6])
    generate(saved, [2], [7, 8, 9])
    speculator = restored(saved)
    for prompt, draft in (([4], [5, 6]), ([7], [8, 9]), ([2], [])):
        speculator.begin(as_tokens(prompt))
        assert speculator.draft(History(prompt), 4) == draft


def test_a_restored_speculator_takes_the_history_it_gets() -> None:
    saved, _ = begun([1, 2, 3, 4, 5])
    assert restored(saved).draft(History([1, 2, 9, 1, 2]), 2) == [9, 1]


def test_a_state_replaces_a_shared_corpus_until_the_next_generation() -> None:
    corpus = SuffixCorpus(8)
    corpus.add(as_tokens([1, 2, 3]))
    speculator = Suffix(SHORT, corpus=corpus)
    speculator.set_state(Suffix(SHORT).get_state())
    assert speculator.draft(History([1]), 2) == []
    speculator.begin(as_tokens([1]))
    assert speculator.draft(History([1]), 2) == [2, 3]


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "ngram-mod"},
        {"text": "x"},
        {"text": [[1, 2]]},
        {"text": [1, -1]},
        {"n_prompt": 99},
        {"n_prompt": -1},
        {"n_prompt": None},
        {"corpus": 7},
        {"corpus": [[1.5]]},
        {"corpus": [[1], [-2]]},
        {"limits": [8]},
        {"limits": []},
        {"limits": [0] * 5},
        {"limits": "x"},
        {"limits": [float("inf")] * 5},
    ],
    ids=str,
)
def test_a_damaged_state_is_refused_and_changes_nothing(change: dict[str, Any]) -> None:
    speculator, history = begun([1, 2, *range(10, 30), 1, 2])
    good = speculator.get_state()
    Suffix(SHORT).set_state(good)
    with pytest.raises(StateError):
        speculator.set_state({**good, **change})
    assert pickle.dumps(speculator.get_state()) == pickle.dumps(good)
    assert len(speculator.draft(history, 64)) == 8
