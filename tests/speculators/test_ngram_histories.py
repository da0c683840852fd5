"""What every n-gram speculator owes to its history: it may be cut, it may grow, and the next one is another."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from ngram_texts import repetitive

from pyspec.speculators import (
    History,
    NgramCache,
    NgramMapK,
    NgramMapK4v,
    NgramMapK4vOptions,
    NgramMapKOptions,
    NgramSimple,
    NgramSimpleOptions,
    Speculator,
    as_tokens,
)

Make = Callable[[], Speculator]

LOOKUPS: dict[str, Make] = {
    "ngram-simple": lambda: NgramSimple(NgramSimpleOptions(size_n=2, size_m=8)),
    "ngram-map-k": lambda: NgramMapK(NgramMapKOptions(size_n=2, size_m=8)),
    "ngram-map-k4v": lambda: NgramMapK4v(NgramMapK4vOptions(size_n=2, size_m=8)),
}
"""Those that draft behind two tokens which stood before."""

ALL: dict[str, Make] = LOOKUPS | {"ngram-cache": NgramCache}


def begun(make: Make, prompt: list[int]) -> tuple[Speculator, History]:
    speculator = make()
    speculator.begin(as_tokens(prompt))
    return speculator, History(prompt)


@pytest.mark.parametrize("make", LOOKUPS.values(), ids=LOOKUPS)
def test_a_new_generation_knows_nothing_of_the_history_before(make: Make) -> None:
    speculator, history = begun(make, [1, 2, 3, 4, 5, 1, 2])
    assert speculator.draft(history, 8)
    speculator.begin(as_tokens([9, 1, 2]))
    assert speculator.draft(History([9, 1, 2]), 8) == []


@pytest.mark.parametrize("n_again", [0, 2, 100])
@pytest.mark.parametrize("make", LOOKUPS.values(), ids=LOOKUPS)
def test_a_truncated_history_is_read_again(make: Make, n_again: int) -> None:
    speculator, history = begun(make, [1, 2, 3, 4, 5, 6, 1, 2])
    assert speculator.draft(history, 2) == [3, 4]
    history.truncate(3)
    history.extend([60 + i for i in range(n_again)])
    history.extend([1, 2])
    assert speculator.draft(history, 2) == ([3, 60] if n_again else [3, 1])


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_a_history_cut_and_grown_again_is_drafted_from_as_if_new(make: Make) -> None:
    rng = random.Random(9)
    n_drafted = 0
    for _ in range(200):
        speculator, history = begun(make, repetitive(rng, 4))
        speculator.draft(history, 8)
        history.truncate(rng.randrange(len(history) + 1))
        history.extend(repetitive(rng, 4))
        fresh, _ = begun(make, history.view().tolist())
        draft = list(speculator.draft(history, 8))
        assert draft == list(fresh.draft(history, 8))
        n_drafted += len(draft)
    assert n_drafted > 100
