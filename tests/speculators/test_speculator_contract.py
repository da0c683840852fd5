"""Laws that every speculator of this package keeps, whatever its method."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable

import numpy as np
import pytest

from pyspec.errors import InvalidValueError, SpeculatorError, StateError
from pyspec.speculators import (
    Chain,
    EditedCopy,
    EditedCopyOptions,
    Grammar,
    History,
    NgramCache,
    NgramMapK,
    NgramMapK4v,
    NgramMapK4vOptions,
    NgramMapKOptions,
    NgramMod,
    NgramModOptions,
    NgramModTable,
    NgramSimple,
    NgramSimpleOptions,
    NgramTable,
    Scripted,
    Speculator,
    Suffix,
    SuffixCorpus,
    SuffixOptions,
    as_tokens,
    checked_draft,
)

N_VOCAB = 50
MOD = NgramModOptions(n_match=3, n_min=1, n_max=16)
MAP_K = NgramMapKOptions(size_n=3, size_m=16)
TABLES = {
    "static": NgramTable.from_tokens([1, 2, 3, 4, 1, 2, 9, 4] * 5, n_min=2, n_max=2),
    "dynamic": NgramTable.from_tokens([4, 3, 2, 1] * 5),
}


def following(forced: list[int]) -> Grammar:
    grammar = Grammar()
    grammar.follow(lambda n_max: forced[:n_max])
    return grammar


NGRAM: dict[str, Callable[[], Speculator]] = {
    "ngram-mod": lambda: NgramMod(MOD),
    "ngram-mod-defaults": NgramMod,
    "ngram-mod-shared": lambda: NgramMod(MOD, table=NgramModTable(3)),
    "ngram-map-k": lambda: NgramMapK(MAP_K),
    "ngram-map-k-hits": lambda: NgramMapK(NgramMapKOptions(size_n=2, size_m=4, min_hits=3)),
    "ngram-map-k-defaults": NgramMapK,
    "ngram-map-k4v": lambda: NgramMapK4v(NgramMapK4vOptions(size_n=2, size_m=16)),
    "ngram-map-k4v-hits": lambda: NgramMapK4v(NgramMapK4vOptions(size_n=2, size_m=4, min_hits=3)),
    "ngram-map-k4v-defaults": NgramMapK4v,
    "ngram-simple": lambda: NgramSimple(NgramSimpleOptions(size_n=3, size_m=16)),
    "ngram-simple-defaults": NgramSimple,
    "ngram-cache": NgramCache,
    "suffix": lambda: Suffix(SuffixOptions(n_max=16, max_depth=8)),
    "suffix-defaults": Suffix,
    "suffix-shared": lambda: Suffix(corpus=SuffixCorpus()),
    "copy": lambda: EditedCopy(EditedCopyOptions(size_n=3, n_max=16)),
    "copy-defaults": EditedCopy,
    "chain": lambda: Chain([NgramMapK(NgramMapKOptions(size_n=6)), NgramMod(MOD)], n_vocab=N_VOCAB),
}
ALL: dict[str, Callable[[], Speculator]] = {
    **NGRAM,
    "ngram-cache-tables": lambda: NgramCache(**TABLES),
    "scripted": lambda: Scripted([[1, 2, 3], [], [4], [5] * 40]),
    "scripted-function": lambda: Scripted(lambda history, n_max: history.tail(5)),
    "grammar": lambda: following([1, 2, 3, 4]),
}

each_ngram = pytest.mark.parametrize("make", NGRAM.values(), ids=NGRAM)
each = pytest.mark.parametrize("make", ALL.values(), ids=ALL)


def rounds(speculator: Speculator, history: History, n_rounds: int, rng: random.Random) -> list[list[int]]:
    """Play rounds of a text that follows its drafts half of the time and repeats itself."""
    drafts = []
    for _ in range(n_rounds):
        draft = checked_draft(speculator, history, rng.choice([1, 4, 16]), N_VOCAB)
        drafts.append(draft)
        n_accepted = rng.randrange(len(draft) + 1)
        if draft:
            speculator.accept(len(draft), n_accepted, own=True)
        elif rng.random() < 0.3:
            speculator.accept(3, 1, own=False)
        history.extend(draft[:n_accepted])
        seen = history.view()
        start = rng.randrange(len(seen)) if len(seen) else 0
        history.extend(seen[start : start + rng.choice([5, 30, 100])])
        history.extend([rng.randrange(N_VOCAB)] if rng.random() < 0.3 else [])
    return drafts


@each
def test_a_speculator_has_the_calls_of_the_protocol(make: Callable[[], Speculator]) -> None:
    speculator = make()
    assert isinstance(speculator, Speculator)
    assert speculator.name
    assert speculator.nbytes >= 0


@each
def test_drafts_keep_to_n_max_and_to_the_vocabulary(make: Callable[[], Speculator]) -> None:
    for seed in range(5):
        speculator, history = make(), History([1, 2, 3, 4] * 4)
        speculator.begin(history.view())
        # checked_draft raises for a draft that is too long or out of range
        rounds(speculator, history, 60, random.Random(seed))


@each_ngram
def test_an_ngram_speculator_drafts_only_tokens_of_its_history(make: Callable[[], Speculator]) -> None:
    speculator, history = make(), History([1, 2, 3, 4] * 30)
    speculator.begin(history.view())
    rng = random.Random(1)
    n_drafted = 0
    for _ in range(80):
        draft = checked_draft(speculator, history, 16, N_VOCAB)
        n_drafted += len(draft)
        assert set(draft) <= set(history.view().tolist())
        history.extend([1, 2, 3, 4] if rng.random() < 0.8 else [rng.randrange(N_VOCAB)])
    assert n_drafted > 0


@each_ngram
@pytest.mark.parametrize("prompt", [[], [7], [7, 7]], ids=["empty", "one token", "shorter than n"])
def test_a_history_too_short_to_repeat_gives_no_draft(make: Callable[[], Speculator], prompt: list[int]) -> None:
    speculator = make()
    speculator.begin(as_tokens(prompt))
    assert len(speculator.draft(History(prompt), 16)) == 0


@each
@pytest.mark.parametrize("prompt", [[], [7]], ids=["empty", "one token"])
def test_a_generation_may_start_with_no_or_one_token(make: Callable[[], Speculator], prompt: list[int]) -> None:
    speculator, history = make(), History(prompt)
    speculator.begin(as_tokens(prompt))
    rounds(speculator, history, 40, random.Random(2))


@each
@pytest.mark.parametrize("n_max", [0, -1])
def test_no_room_means_no_draft_and_nothing_open(make: Callable[[], Speculator], n_max: int) -> None:
    speculator, history = make(), History([1, 2, 3, 4] * 30)
    speculator.begin(history.view())
    assert len(speculator.draft(history, n_max)) == 0
    before = pickle.dumps(speculator.get_state())
    speculator.accept(4, 0, own=True)
    assert pickle.dumps(speculator.get_state()) == before


@each_ngram
def test_a_draft_does_not_depend_on_being_asked_twice(make: Callable[[], Speculator]) -> None:
    history = History([1, 2, 3, 4] * 30)
    once, twice = make(), make()
    once.begin(history.view())
    twice.begin(history.view())
    twice.draft(history, 4)
    assert list(once.draft(history, 16)) == list(twice.draft(history, 16))


@each
def test_a_second_generation_with_the_same_prompt_drafts_the_same(make: Callable[[], Speculator]) -> None:
    prompt = as_tokens([1, 2, 3, 4] * 30)
    speculator = make()
    speculator.begin(prompt)
    first = list(speculator.draft(History(prompt), 16))
    speculator.begin(prompt)
    assert list(speculator.draft(History(prompt), 16)) == first


@each
def test_the_prompt_is_not_kept_by_reference(make: Callable[[], Speculator]) -> None:
    prompt = as_tokens([1, 2, 3, 4] * 30)
    speculator, history = make(), History(prompt)
    speculator.begin(prompt)
    expected = make()
    expected.begin(prompt.copy())
    prompt[:] = 9
    assert list(speculator.draft(history, 16)) == list(expected.draft(history, 16))


@each
def test_a_verdict_without_an_open_draft_changes_nothing(make: Callable[[], Speculator]) -> None:
    speculator, history = make(), History([1, 2, 3, 4] * 30)
    speculator.begin(history.view())
    before = pickle.dumps(speculator.get_state())
    for _ in range(8):
        speculator.accept(4, 0, own=True)
    assert pickle.dumps(speculator.get_state()) == before


@each
@pytest.mark.parametrize(("n_drafted", "n_accepted"), [(3, 4), (3, -1), (0, 1)])
def test_an_impossible_verdict_is_refused(make: Callable[[], Speculator], n_drafted: int, n_accepted: int) -> None:
    speculator = make()
    speculator.begin(as_tokens([1, 2, 3]))
    with pytest.raises((InvalidValueError, SpeculatorError), match="n_accepted"):
        speculator.accept(n_drafted, n_accepted, own=True)


@each
@pytest.mark.parametrize("n_rounds", [0, 1, 37])
def test_a_restored_speculator_drafts_as_the_saved_one_would(make: Callable[[], Speculator], n_rounds: int) -> None:
    saved, history = make(), History([1, 2, 3, 4] * 4)
    saved.begin(history.view())
    rounds(saved, history, n_rounds, random.Random(3))
    state = pickle.loads(pickle.dumps(saved.get_state()))
    restored, copy = make(), History(history.view())
    restored.set_state(state)
    drafts = rounds(saved, history, 60, random.Random(4))
    assert rounds(restored, copy, 60, random.Random(4)) == drafts
    assert any(drafts) or (saved.name == "scripted" and n_rounds > 3)


@each
@pytest.mark.parametrize("state", [{}, {"kind": "other"}], ids=["empty", "of another kind"])
def test_a_foreign_state_is_refused(make: Callable[[], Speculator], state: dict[str, object]) -> None:
    with pytest.raises(StateError):
        make().set_state(state)


@each_ngram
def test_a_truncated_history_is_drafted_from_as_it_is_now(make: Callable[[], Speculator]) -> None:
    speculator, history = make(), History([1, 2, 3, 4] * 30)
    speculator.begin(history.view())
    speculator.draft(history, 16)
    history.truncate(10)
    history.extend([30 + i % 4 for i in range(120)])
    draft = list(speculator.draft(history, 16))
    fresh = make()
    fresh.begin(history.view())
    assert draft == list(fresh.draft(history, 16)) != []


@each_ngram
def test_drafts_are_plain_ints(make: Callable[[], Speculator]) -> None:
    speculator, history = make(), History(np.array([1, 2, 3, 4] * 30, np.int32))
    speculator.begin(history.view())
    draft = speculator.draft(history, 16)
    assert len(draft) > 0
    assert {type(token) for token in draft} == {int}
