"""copy: a passage goes on behind every kind of edit, edits are repeated, and what is not trusted is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from pyspec.errors import StateError
from pyspec.speculators import EditedCopy, EditedCopyOptions, History

PASSAGE = list(range(100, 160))


def copying(
    said: Sequence[int], *, prompt: Sequence[int] = (*PASSAGE, 1), **options: Any
) -> tuple[EditedCopy, History]:
    """A speculator that has followed `said` behind `prompt`, token by token."""
    speculator = EditedCopy(EditedCopyOptions(**{"size_n": 4, **options}))
    history = History(prompt)
    speculator.begin(history.view())
    for token in said:
        speculator.draft(history, 8)
        history.append(token)
    return speculator, history


def drafted(said: Sequence[int], n_drafted: int = 4, **options: Any) -> list[int]:
    speculator, history = copying(said, **options)
    return list(speculator.draft(history, n_drafted))


def test_a_passage_is_found_by_its_first_tokens():
    assert drafted(PASSAGE[:3]) == []
    assert drafted(PASSAGE[:4]) == PASSAGE[4:8]


@pytest.mark.parametrize(
    ("edit", "goes_on_at"),
    [
        ([7], 11),
        ([7, 111], 12),
        ([7, 8, 111, 112], 13),
        ([7, 112, 113], 14),
        ([111], 12),
        ([113, 114], 15),
        ([7, 8, 9, 110, 111], 12),
    ],
    ids=["replaced", "replaced-and-on", "longer", "shorter", "one-left-out", "three-left-out", "put-in"],
)
def test_behind_an_edit_the_passage_goes_on(edit: list[int], goes_on_at: int):
    assert drafted([*PASSAGE[:10], *edit], 5) == PASSAGE[goes_on_at : goes_on_at + 5]


def test_an_edit_is_repeated_where_the_passage_has_the_same_again():
    passage = [100, 101, 50, 102, 103, 104, 105, 50, 106, 107]
    prompt = (*passage, 1, 2, 3)
    speculator, history = copying([100, 101, 50, 102, 103, 104, 105], prompt=prompt)
    assert list(speculator.draft(history, 4)) == [50, 106, 107, 1]
    longer = [*passage[:8], *range(200, 210), 50, 211]
    speculator, history = copying([*longer[:7], 60, 61, *longer[8:18]], prompt=(*longer, 1, 2, 3))
    assert list(speculator.draft(history, 3)) == [60, 61, 211]


def test_an_edit_that_is_not_made_again_is_not_repeated_a_third_time():
    passage = [*range(100, 108), 50, *range(108, 116), 50, *range(116, 124), 50, 124, 125]
    said = [*passage[:8], 60, *passage[9:26]]
    speculator, history = copying(said, prompt=(*passage, 1, 2, 3))
    assert list(speculator.draft(history, 3)) == [50, 124, 125]


def test_trust_grows_with_every_right_token_and_an_edit_costs_half():
    lengths = []
    for n in (10, 20, 30):
        speculator, history = copying(PASSAGE[:n])
        speculator.draft(history, 4)
        lengths.append(speculator.match_length)
    assert lengths == sorted(set(lengths))
    speculator, history = copying([*PASSAGE[:30], 7, *PASSAGE[31:33]])
    speculator.draft(history, 4)
    assert lengths[-1] // 2 <= speculator.match_length <= lengths[-1] // 2 + 4


def test_inside_an_edit_without_an_end_little_is_promised():
    speculator, history = copying([*PASSAGE[:30], 7, 8])
    assert speculator.draft(history, 4)
    assert speculator.match_length < 4


@pytest.mark.parametrize("seed", range(20))
def test_a_run_that_is_read_at_once_is_read_as_token_by_token(seed: int, monkeypatch: pytest.MonkeyPatch):
    """A copy of a passage with random edits, some of them made again and again."""
    rng = np.random.default_rng(seed)
    passage = rng.integers(0, 40, 200).tolist()
    copy: list[int] = []
    for token in passage:
        left_out, put_in = rng.random() < 0.03, rng.random() < 0.03
        copy += [99, 98] if token == 7 else [] if left_out else [token, 97] if put_in else [token]
    at_once, one_by_one = (EditedCopy(EditedCopyOptions(size_n=3)) for _ in range(2))
    monkeypatch.setattr(one_by_one, "_go_on_unchanged", lambda *_: 0)
    history = History(passage)
    for speculator in (at_once, one_by_one):
        speculator.begin(history.view())
    at, n_drafted = 0, 0
    while at < len(copy):
        n = int(rng.integers(1, 30))
        history.extend(copy[at : at + n])
        at += n
        draft = list(at_once.draft(history, 12))
        assert draft == one_by_one.draft(history, 12)
        assert at_once.match_length == one_by_one.match_length
        n_drafted += len(draft)
    assert n_drafted > 20


def test_a_text_that_goes_its_own_way_loses_the_passage():
    own = list(range(300, 330))
    assert drafted([*PASSAGE[:20], *own]) == []


def test_a_lost_passage_is_found_again():
    own = list(range(300, 330))
    assert drafted([*PASSAGE[:20], *own, *PASSAGE[30:34]]) == PASSAGE[34:38]


def test_a_place_that_is_hardly_trusted_is_left_for_one_that_is_found():
    assert drafted([*PASSAGE[:5], *PASSAGE[40:44]]) == PASSAGE[44:48]


def test_the_latest_place_is_the_passage():
    prompt = [*PASSAGE[:8], 1, *PASSAGE[:6], 9, 9, 9, 2]
    assert drafted(PASSAGE[:6], 3, prompt=prompt) == [9, 9, 9]


def test_the_end_of_the_text_ends_a_draft():
    prompt = [*PASSAGE[:8], 1]
    speculator, history = copying(PASSAGE[:7], prompt=prompt)
    assert list(speculator.draft(history, 32)) == [*PASSAGE[7:8], 1, *PASSAGE[:7]]


@pytest.mark.parametrize("n_max", [0, 1, 7, 64, 100])
def test_a_draft_has_at_most_what_was_asked_for(n_max: int):
    prompt = [*range(1000, 1200), 1]
    assert len(drafted(range(1000, 1010), n_max, prompt=prompt, n_max=64)) == min(n_max, 64)


def test_a_history_that_was_cut_is_read_again():
    speculator, history = copying(PASSAGE[:20])
    history.truncate(len(PASSAGE) + 1)
    history.extend(PASSAGE[30:36])
    assert list(speculator.draft(history, 3)) == PASSAGE[36:39]


def test_a_generation_forgets_the_edits_of_the_one_before():
    speculator, _ = copying([*PASSAGE[:10], 7, *PASSAGE[11:14]])
    history = History([*PASSAGE, 1, *PASSAGE[:8]])
    speculator.begin(history.view()[:-8])
    assert list(speculator.draft(history, 4)) == PASSAGE[8:12]


@pytest.mark.parametrize(
    "said", [PASSAGE[:10], [*PASSAGE[:10], 7, 8], [*PASSAGE[:10], 7, *PASSAGE[11:14]], []], ids=len
)
def test_a_state_drafts_the_same(said: list[int]):
    speculator, history = copying(said)
    speculator.draft(history, 4)
    other = EditedCopy(EditedCopyOptions(size_n=4))
    other.set_state(speculator.get_state())
    for token in (*PASSAGE[len(said) : len(said) + 3], 5, 110, 111):
        assert list(other.draft(history, 6)) == list(speculator.draft(history, 6))
        history.append(token)


def _without(state: dict, name: str) -> dict:
    return {key: value for key, value in state.items() if key != name}


@pytest.mark.parametrize(
    "damage",
    [
        lambda s: s | {"kind": "suffix"},
        lambda s: _without(s, "edits"),
        lambda s: s | {"place": [1]},
        lambda s: s | {"place": [-1, 2, 1, 0]},
        lambda s: s | {"place": [10_000, 2, 1, 0]},
        lambda s: s | {"n_read": "x"},
        lambda s: s | {"coming": [1]},
        lambda s: s | {"edits": [3]},
    ],
    ids=["kind", "missing", "short", "negative", "beyond", "text", "coming", "edits"],
)
def test_a_damaged_state_is_refused_and_changes_nothing(damage: Callable[[dict], dict]):
    speculator, history = copying(PASSAGE[:10])
    with pytest.raises(StateError):
        speculator.set_state(damage(speculator.get_state()))
    assert list(speculator.draft(history, 4)) == PASSAGE[10:14]
