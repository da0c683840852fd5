"""Laws of the border to speculators: every mistake becomes a SpeculatorError that names it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyspec.errors import SpeculatorError
from pyspec.speculators import History, Scripted, as_tokens, checked_accept, checked_begin, checked_draft


def drafting(value: Any) -> Scripted:
    return Scripted(lambda history, n_max: value, cut=False, name="mine")


@pytest.mark.parametrize(
    "value",
    [
        [1, 2, 9],
        (1, 2, 9),
        np.array([1, 2, 9], np.int32),
        np.array([1, 2, 9], np.uint64),
        [np.int32(1), np.int64(2), 9],
    ],
    ids=["list", "tuple", "int32 array", "uint64 array", "numpy ints"],
)
def test_whole_numbers_of_any_kind_become_a_list_of_ints(value: Any) -> None:
    draft = checked_draft(drafting(value), History([3]), 3, 10)
    assert draft == [1, 2, 9]
    assert {type(token) for token in draft} == {int}


@pytest.mark.parametrize("value", [[], (), np.array([]), np.array([], np.int32)], ids=["list", "tuple", "f8", "i4"])
def test_an_empty_draft_is_an_empty_list(value: Any) -> None:
    assert checked_draft(drafting(value), History([3]), 3, 10) == []


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "drafted NoneType"),
        (7, "drafted int"),
        ("12", "drafted str"),
        (b"12", "drafted bytes"),
        ({1, 2}, "drafted set"),
        ({1: 2}, "drafted dict"),
        (iter([1, 2]), "drafted list_iterator"),
        ([1.0, 2], r"drafted 1\.0 \(float\)"),
        ([1, True], r"drafted True \(bool\)"),
        ([1, np.True_], "bool"),
        ([1, None], r"drafted None \(NoneType\)"),
        ([1, "2"], r"drafted '2' \(str\)"),
        ([[1], [2]], r"drafted \[1\] \(list\)"),
        (np.array([1.0]), "float64"),
        (np.array([True]), "bool"),
        (np.array([[1, 2]]), r"shape \(1, 2\)"),
        (np.array(3), r"shape \(\)"),
        ([1, 10], "token 10 at index 1"),
        ([1, 2, -1], "token -1 at index 2"),
        (np.array([2**63], np.uint64), "token 9223372036854775808 at index 0"),
        ([1, 2, 3, 4], "drafted 4 tokens, at most 3"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_anything_else_is_an_error_that_names_the_speculator(value: Any, reason: str) -> None:
    with pytest.raises(SpeculatorError, match=f"'mine'.*{reason}") as caught:
        checked_draft(drafting(value), History([3]), 3, 10)
    assert caught.value.speculator == "mine"  # type: ignore[attr-defined]


def test_a_draft_where_none_was_asked_for_is_too_long() -> None:
    with pytest.raises(SpeculatorError, match="at most 0"):
        checked_draft(drafting([1]), History([3]), 0, 10)


def test_the_result_is_not_the_speculators_own_list() -> None:
    own = [1, 2, 3]
    draft = checked_draft(drafting(own), History([3]), 3, 10)
    draft.clear()
    assert own == [1, 2, 3]


def test_an_exception_is_told_with_its_cause() -> None:
    def fail(history: History, n_max: int) -> list[int]:
        raise ZeroDivisionError("halves")

    with pytest.raises(SpeculatorError, match=r"'mine'.*draft raised ZeroDivisionError: halves") as caught:
        checked_draft(Scripted(fail, name="mine"), History([3]), 3, 10)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_is_no_mistake_of_the_speculator_passes(error: type[BaseException]) -> None:
    def stop(history: History, n_max: int) -> list[int]:
        raise error

    with pytest.raises(error):
        checked_draft(Scripted(stop), History([3]), 3, 10)


def test_a_speculator_cannot_write_into_the_history() -> None:
    def scribble(history: History, n_max: int) -> list[int]:
        history.view()[0] = 5
        return []

    history = History([3, 4])
    with pytest.raises(SpeculatorError, match="read-only"):
        checked_draft(Scripted(scribble), history, 3, 10)
    assert history.view().tolist() == [3, 4]


def test_begin_and_accept_are_passed_on_and_their_exceptions_told() -> None:
    speculator = Scripted([[1]], name="mine")
    checked_begin(speculator, as_tokens([1, 2]))
    checked_accept(speculator, 3, 2, own=False)
    assert (speculator.prompts, speculator.verdicts) == ([[1, 2]], [(3, 2, False)])
    with pytest.raises(SpeculatorError, match=r"'mine'.*accept raised InvalidValueError"):
        checked_accept(speculator, 2, 3, own=True)
