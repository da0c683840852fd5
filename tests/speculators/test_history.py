"""Laws of the token buffer that speculators read."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from pyspec.errors import InvalidValueError
from pyspec.speculators import History, as_tokens


def test_history_holds_what_was_appended_in_order() -> None:
    history = History([5, 6])
    history.append(7)
    history.extend([8, 9])
    history.extend(np.array([10], np.int32))
    history.extend(())
    assert history.view().tolist() == [5, 6, 7, 8, 9, 10]
    assert len(history) == 6


def test_history_grows_past_its_first_capacity_without_losing_tokens() -> None:
    history = History()
    for token in range(3000):
        history.append(token)
    history.extend(range(3000, 9000))
    assert history.view().tolist() == list(range(9000))
    assert 4 * 9000 <= history.nbytes <= 2 * 4 * 9000


@pytest.mark.parametrize(
    ("n_tokens", "expected"),
    [(0, []), (2, [2, 3]), (3, [1, 2, 3]), (9, [1, 2, 3])],
    ids=lambda value: str(value),
)
def test_tail_gives_the_last_tokens_or_all_there_are(n_tokens: int, expected: list[int]) -> None:
    assert History([1, 2, 3]).tail(n_tokens).tolist() == expected


def test_views_are_read_only_and_keep_their_tokens_through_growth_and_truncation() -> None:
    history = History([1, 2, 3])
    view = history.view()
    history.truncate(1)
    history.extend([70, 80])
    later = history.view()
    history.extend(range(5000))
    history.truncate(3)
    assert view.tolist() == [1, 2, 3]
    assert later.tolist() == [1, 70, 80]
    assert history.view().tolist() == [1, 70, 80]
    for readable in (view, history.view(), history.tail(1)):
        with pytest.raises(ValueError, match="read-only"):
            readable[0] = 9


def test_epoch_changes_exactly_when_tokens_go() -> None:
    history = History([1, 2, 3])
    history.append(4)
    history.truncate(4)
    assert history.epoch == 0
    history.truncate(2)
    assert history.epoch == 1
    history.extend([3, 4])
    assert history.epoch == 1


@pytest.mark.parametrize("n_tokens", [-1, 4])
def test_truncating_outside_the_history_is_refused_and_changes_nothing(n_tokens: int) -> None:
    history = History([1, 2, 3])
    with pytest.raises(InvalidValueError):
        history.truncate(n_tokens)
    assert history.view().tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "tokens",
    [[1.5], np.array([1.0]), [[1, 2]], ["a"], 3, [2**31], np.array([2**40]), np.array([True])],
    ids=["float", "float array", "nested", "text", "scalar", "33 bits", "41 bits", "bool"],
)
def test_what_is_not_a_flat_sequence_of_ids_is_refused(tokens: object) -> None:
    with pytest.raises(InvalidValueError):
        as_tokens(tokens)  # type: ignore[arg-type]


def test_a_refused_extension_adds_nothing() -> None:
    history = History([1])
    with pytest.raises(InvalidValueError):
        history.extend([2, 3.5])  # type: ignore[list-item]
    assert history.view().tolist() == [1]


def test_int32_tokens_are_not_copied() -> None:
    tokens = np.array([1, 2], np.int32)
    assert np.shares_memory(as_tokens(tokens), tokens)
    assert as_tokens(np.array([1, 2], np.uint16)).dtype == np.int32


def test_a_history_is_freed_as_soon_as_nobody_holds_it():
    class Held(History):
        """Can be referred to weakly."""

    history = Held([1, 2, 3])
    assert history.read_only.view().tolist() == [1, 2, 3]
    kept = weakref.ref(history)
    del history
    assert kept() is None, "without waiting for the collector"


def test_what_is_read_only_grows_with_the_history():
    history = History([1, 2])
    reader = history.read_only
    history.extend([3] * 3000)
    assert len(reader) == 3002
    assert reader.tail(1).tolist() == [3]
    history.truncate(2)
    assert (len(reader), reader.epoch, reader.nbytes) == (2, history.epoch, history.nbytes)
    for change in (lambda: reader.append(1), lambda: reader.extend([1]), lambda: reader.truncate(0)):
        with pytest.raises(TypeError, match="only the decoder"):
            change()
    assert history.view().tolist() == [1, 2]
