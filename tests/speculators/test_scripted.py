"""Laws of the scripted speculator, on which tests of other parts stand."""

from __future__ import annotations

import pytest

from pyspec.errors import StateError
from pyspec.speculators import History, Scripted, as_tokens


def test_drafts_come_one_a_round_and_then_no_more() -> None:
    speculator = Scripted([[1, 2], [], [3]])
    assert [list(speculator.draft(History([9]), 8)) for _ in range(5)] == [[1, 2], [], [3], [], []]


def test_a_function_sees_the_history_and_the_room() -> None:
    speculator = Scripted(lambda history, n_max: [len(history), n_max])
    assert speculator.draft(History([7, 7, 7]), 5) == [3, 5]


def test_drafts_are_cut_to_the_room_unless_told_otherwise() -> None:
    assert Scripted([[1, 2, 3]]).draft(History([9]), 2) == [1, 2]
    assert Scripted([[1, 2, 3]], cut=False).draft(History([9]), 2) == [1, 2, 3]


def test_begin_starts_the_script_again() -> None:
    speculator = Scripted([[1], [2]])
    speculator.draft(History([9]), 8)
    speculator.begin(as_tokens([9]))
    assert speculator.draft(History([9]), 8) == [1]


def test_what_was_asked_and_told_is_recorded() -> None:
    speculator = Scripted([[1]])
    speculator.begin(as_tokens([4, 5]))
    speculator.draft(History([4, 5]), 8)
    speculator.accept(1, 0, own=True)
    speculator.accept(3, 2, own=False)
    assert speculator.prompts == [[4, 5]]
    assert speculator.calls == [(2, 8)]
    assert speculator.verdicts == [(1, 0, True), (3, 2, False)]


def test_a_negative_round_is_refused() -> None:
    with pytest.raises(StateError):
        Scripted([]).set_state({"kind": "scripted", "n_rounds": -1})
