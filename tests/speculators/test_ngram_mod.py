"""Laws of ngram-mod, against literal tokens and against a slow reference."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from pyspec.errors import InvalidValueError, StateError
from pyspec.speculators import SPEC_DEFAULT, History, NgramMod, NgramModOptions, NgramModTable, as_tokens

SHORT = NgramModOptions(n_match=2, n_min=1, n_max=8)


def begun(prompt: list[int], options: NgramModOptions = SHORT, **kwargs: Any) -> tuple[NgramMod, History]:
    speculator = NgramMod(options, **kwargs)
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


def reference_draft(tokens: list[int], options: NgramModOptions, n_entries: int, n_max: int) -> list[int]:
    """Definition: a dict filled from left to right, then one lookup after the other."""

    def slot(window: list[int]) -> int:
        value = 0
        for token in window:
            value = value * 6364136223846793005 + token
        return value % n_entries

    n = options.n_match
    if len(tokens) < n or n_max <= 0:
        return []
    followers: dict[int, int] = {}
    for end in range(n, len(tokens)):
        followers[slot(tokens[end - n : end])] = tokens[end]
    grown = list(tokens)
    while len(grown) - len(tokens) < options.n_max and slot(grown[-n:]) in followers:
        grown.append(followers[slot(grown[-n:])])
    draft = grown[len(tokens) :]
    return draft[:n_max] if len(draft) >= options.n_min else []


def bad_rounds(speculator: NgramMod, history: History, n_rounds: int) -> None:
    for _ in range(n_rounds):
        assert len(speculator.draft(history, 8)) > 0, "a round without a draft is not a bad one"
        speculator.accept(8, 1, own=True)


def test_defaults_are_those_of_llama_cpp() -> None:
    assert NgramModOptions() == NgramModOptions(n_match=24, n_min=48, n_max=64) == SPEC_DEFAULT
    assert NgramMod().table.n_entries == 4_194_304
    assert NgramMod().nbytes == 16 * 2**20


def test_the_draft_is_what_followed_the_last_tokens_before() -> None:
    speculator, history = begun([1, 2, 3, 4, 5, 9, 1, 2])
    assert speculator.draft(history, 3) == [3, 4, 5]


def test_the_later_of_two_continuations_wins() -> None:
    speculator, history = begun([1, 2, 3, 7, 1, 2, 4, 8, 1, 2])
    assert speculator.draft(history, 2) == [4, 8]
    history.extend([6, 5, 1, 2])
    assert speculator.draft(history, 2) == [6, 5]


def test_a_loop_is_drafted_as_long_as_it_may_be() -> None:
    speculator, history = begun([1, 2, 3, 1, 2, 3, 1, 2])
    assert speculator.draft(history, 8) == [3, 1, 2, 3, 1, 2, 3, 1]


@pytest.mark.parametrize(("n_known", "n_drafted"), [(3, 0), (4, 4), (5, 5)])
def test_fewer_than_n_min_known_tokens_are_no_draft(n_known: int, n_drafted: int) -> None:
    continuation = [30, 31, 32, 33, 34][:n_known]
    options = NgramModOptions(n_match=2, n_min=4, n_max=8)
    table = NgramModTable(2)
    table.learn(as_tokens([1, 2, *continuation]))
    speculator = NgramMod(options, table=table)
    assert len(speculator.draft(History([8, 1, 2]), 8)) == n_drafted


def test_n_min_is_about_what_is_known_and_n_max_of_the_call_cuts_afterwards() -> None:
    table = NgramModTable(2)
    table.learn(as_tokens([1, 2, 30, 31, 32, 33]))
    speculator = NgramMod(NgramModOptions(n_match=2, n_min=4, n_max=8), table=table)
    assert speculator.draft(History([8, 1, 2]), 2) == [30, 31]


@pytest.mark.parametrize("n_entries", [16, 4096])
@pytest.mark.parametrize("n_match", [1, 2, 3, 5])
@pytest.mark.parametrize("n_alphabet", [2, 5])
def test_drafts_equal_the_reference_however_the_tokens_arrive(n_match: int, n_alphabet: int, n_entries: int) -> None:
    rng = random.Random(1000 * n_match + 10 * n_alphabet + n_entries)
    n_long = 0
    for _ in range(20):
        options = NgramModOptions(n_match=n_match, n_min=rng.randrange(4), n_max=rng.randrange(4, 20))
        tokens = text(rng, n_alphabet)
        speculator = NgramMod(options, table=NgramModTable(n_match, n_entries=n_entries))
        n_prompt = rng.randrange(len(tokens) + 1)
        speculator.begin(as_tokens(tokens[:n_prompt]))
        history = History(tokens[:n_prompt])
        while True:
            n_max = rng.randrange(20)
            seen = history.view().tolist()
            draft = speculator.draft(history, n_max)
            assert draft == reference_draft(seen, options, n_entries, n_max)
            n_long += len(draft) > 2
            if len(history) == len(tokens):
                break
            history.extend(tokens[len(history) : len(history) + rng.choice([1, 1, 2, 5, 63, 64, 65, 100])])
    assert n_long > 10


def test_a_prompt_longer_than_a_chunk_of_learning_is_learned_as_one() -> None:
    rng = random.Random(3)
    tokens = [rng.randrange(40) for _ in range(140_000)]
    table = NgramModTable(2)
    table.learn(as_tokens(tokens))
    followers: dict[tuple[int, int], int] = {}
    for first, second, third in zip(tokens, tokens[1:], tokens[2:], strict=False):
        followers[first, second] = third
    assert table.n_used == len(followers) == 1600
    for (first, second), third in followers.items():
        assert table.cells[table.hash.slot([first, second])] - 1 == third


def test_what_an_earlier_generation_taught_stays() -> None:
    speculator, _ = begun([1, 2, 3, 4, 5])
    speculator.begin(as_tokens([9, 1, 2]))
    assert speculator.draft(History([9, 1, 2]), 8) == [3, 4, 5]


# ------------------------------------------------------------------ bad drafts


MISLEADING = [1, 2, 30, 1, 2, 30, 1, 2]  # an earlier generation that drafts a loop
CONTEXT = [7, 8, 40, 41, 9, 1, 2]


def misled() -> tuple[NgramMod, History]:
    speculator, _ = begun(MISLEADING)
    speculator.begin(as_tokens(CONTEXT))
    return speculator, History(CONTEXT)


def test_five_bad_drafts_in_a_row_end_the_influence_of_earlier_generations() -> None:
    speculator, history = misled()
    bad_rounds(speculator, history, 4)
    assert speculator.draft(history, 8) == [30, 1, 2, 30, 1, 2, 30, 1]
    speculator.accept(8, 1, own=True)
    assert speculator.draft(history, 8) == []


def test_after_the_reset_the_current_context_is_known_again() -> None:
    speculator, history = misled()
    bad_rounds(speculator, history, 5)
    history.extend([7, 8])
    assert speculator.draft(history, 4) == [40, 41, 9, 1]
    assert speculator.table.n_used == len(CONTEXT) + 2 - 2


@pytest.mark.parametrize(
    ("n_drafted", "n_accepted", "is_bad"),
    [(8, 0, True), (8, 1, True), (8, 2, False), (4, 1, False), (1, 0, True), (8, 8, False)],
)
def test_less_than_a_quarter_accepted_is_bad(n_drafted: int, n_accepted: int, is_bad: bool) -> None:
    speculator, history = misled()
    bad_rounds(speculator, history, 4)
    assert speculator.draft(history, 8)
    speculator.accept(n_drafted, n_accepted, own=True)
    assert (speculator.draft(history, 8) == []) is is_bad


def test_a_good_draft_ends_the_streak() -> None:
    speculator, history = misled()
    bad_rounds(speculator, history, 4)
    assert speculator.draft(history, 8)
    speculator.accept(8, 2, own=True)
    bad_rounds(speculator, history, 4)
    assert speculator.draft(history, 8)


@pytest.mark.parametrize(("n_drafted", "own"), [(8, False), (0, True)], ids=["of another", "nothing verified"])
def test_what_is_no_verdict_on_a_draft_of_its_own_does_not_count(n_drafted: int, own: bool) -> None:
    speculator, history = misled()
    bad_rounds(speculator, history, 4)
    for _ in range(5):
        assert speculator.draft(history, 8)
        speculator.accept(n_drafted, 0, own=own)
    assert speculator.draft(history, 8)


def test_one_draft_is_judged_once() -> None:
    speculator, history = misled()
    assert speculator.draft(history, 8)
    for _ in range(9):
        speculator.accept(8, 0, own=True)
    assert speculator.draft(history, 8)


def test_a_table_that_holds_only_the_context_is_not_emptied_and_refilled() -> None:
    speculator, history = begun(MISLEADING)
    bad_rounds(speculator, history, 20)
    assert speculator.table.generation == 0
    assert speculator.draft(history, 2) == [30, 1]


# ------------------------------------------------------------------ shared tables


def test_sequences_that_share_a_table_draft_from_each_other() -> None:
    table = NgramModTable(2)
    begun([1, 2, 3, 4, 5], table=table)
    second, history = begun([9, 1, 2], table=table)
    assert second.draft(history, 8) == [3, 4, 5]


def test_bad_rounds_of_one_sequence_never_cost_another_its_drafts() -> None:
    table = NgramModTable(2)
    first, first_history = begun(MISLEADING, table=table)
    third, third_history = begun([50, 51, 52, 53, 9, 1, 2], table=table)
    second, second_history = begun(CONTEXT, table=table)
    before = [first.draft(first_history, 8), third.draft(third_history, 8)]
    bad_rounds(second, second_history, 5)
    assert second.draft(second_history, 8) == []
    assert [first.draft(first_history, 8), third.draft(third_history, 8)] == before
    assert before == [[30, 1, 2, 30, 1, 2, 30, 1]] * 2
    assert second.table is not table
    assert second.nbytes == 2 * table.nbytes


def test_a_sequence_returns_to_the_shared_table_with_its_next_generation() -> None:
    table = NgramModTable(2)
    begun(MISLEADING, table=table)
    second, history = begun(CONTEXT, table=table)
    bad_rounds(second, history, 5)
    assert second.draft(history, 8) == []
    second.begin(as_tokens(CONTEXT))
    assert second.table is table
    assert second.draft(history, 2) == [30, 1]


def test_a_crowded_table_forgets_at_begin_and_other_sequences_teach_it_again() -> None:
    table = NgramModTable(2, n_entries=64)
    first, history = begun([1, 2, 3, 4, 5, 1, 2], table=table)
    assert first.draft(history, 3) == [3, 4, 5]
    table.learn(as_tokens(range(100, 140)))
    assert table.n_used > 16
    begun([80, 81, 82], table=table)
    assert table.generation == 1
    assert table.n_used == 1
    assert first.draft(history, 3) == [3, 4, 5]


def test_a_prompt_learned_again_and_again_does_not_crowd_a_table() -> None:
    table = NgramModTable(2, n_entries=64)
    speculator, history = begun([1, 2, 3, 4, 5, 1, 2], table=table)
    for _ in range(50):
        speculator.begin(history.view())
    assert table.generation == 0
    assert speculator.draft(history, 3) == [3, 4, 5]


def test_a_table_of_another_n_match_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="n_match=2"):
        NgramMod(SHORT, table=NgramModTable(3))


# ------------------------------------------------------------------ truncation, options, state


@pytest.mark.parametrize("n_again", [0, 2, 5, 100])
def test_a_truncated_history_is_read_again(n_again: int) -> None:
    speculator, history = begun([1, 2, 3, 4, 5, 6, 1, 2])
    assert speculator.draft(history, 2) == [3, 4]
    history.truncate(3)
    history.extend([60 + i for i in range(n_again)])
    history.extend([1, 2])
    expected = [3, 60] if n_again else [3, 1]
    assert speculator.draft(history, 2) == expected


def test_what_was_cut_off_may_mislead_and_is_forgotten_after_bad_drafts() -> None:
    speculator, history = begun(MISLEADING)
    assert speculator.draft(history, 1) == [30]
    history.truncate(0)
    history.extend(CONTEXT)
    bad_rounds(speculator, history, 5)
    assert speculator.draft(history, 8) == []


@pytest.mark.parametrize(
    "options",
    [
        {"n_match": 0},
        {"n_match": 1025},
        {"n_min": -1},
        {"n_max": 1025},
        {"n_max": 8.0},
        {"n_min": 9, "n_max": 8},
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError):
        NgramModOptions(**options)


@pytest.mark.parametrize("n_entries", [0, 1, 3, 2**33])
def test_a_table_needs_a_power_of_two_entries(n_entries: int) -> None:
    with pytest.raises(InvalidValueError):
        NgramModTable(2, n_entries=n_entries)


def test_a_restored_speculator_knows_earlier_generations_and_its_streak() -> None:
    saved, history = misled()
    bad_rounds(saved, history, 4)
    restored = NgramMod(SHORT)
    restored.set_state(saved.get_state())
    assert restored.draft(history, 8) == [30, 1, 2, 30, 1, 2, 30, 1]
    restored.accept(8, 0, own=True)
    assert restored.draft(history, 8) == []
    history.extend([7, 8])
    assert restored.draft(history, 2) == [40, 41]


def test_restoring_leaves_a_shared_table_alone() -> None:
    table = NgramModTable(2)
    first, first_history = begun(MISLEADING, table=table)
    second, _ = begun([9, 9, 9], table=table)
    saved, history = begun([1, 2, 77, 1, 2])
    second.set_state(saved.get_state())
    assert second.draft(history, 1) == [77]
    assert first.draft(first_history, 1) == [30]


GOOD = {
    "kind": "ngram-mod",
    "table": {"n_match": 2, "n_entries": 64, "slots": np.array([1, 2]), "tokens": np.array([5, 6])},
    "n_seen": 4,
    "n_low": 0,
    "others_inside": False,
}


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "ngram-map-k"},
        {"table": {}},
        {"table": {**GOOD["table"], "n_match": 3}},  # type: ignore[dict-item]
        {"table": {**GOOD["table"], "n_entries": 63}},  # type: ignore[dict-item]
        {"table": {**GOOD["table"], "slots": np.array([1, 64])}},  # type: ignore[dict-item]
        {"table": {**GOOD["table"], "slots": np.array([1])}},  # type: ignore[dict-item]
        {"table": {**GOOD["table"], "tokens": np.array([5, -6])}},  # type: ignore[dict-item]
        {"table": 7},
        {"n_seen": -1},
        {"n_low": 5},
        {"n_low": "many"},
    ],
    ids=[
        "kind",
        "no table",
        "n_match",
        "n_entries",
        "slot",
        "lengths",
        "token",
        "table type",
        "n_seen",
        "n_low",
        "text",
    ],
)
def test_a_damaged_state_is_refused_and_changes_nothing(change: dict[str, Any]) -> None:
    speculator, history = begun(MISLEADING)
    NgramMod(SHORT).set_state(GOOD)
    with pytest.raises(StateError):
        speculator.set_state({**GOOD, **change})
    assert speculator.draft(history, 2) == [30, 1]


def test_a_state_of_a_longer_history_than_the_one_it_meets_is_read_again() -> None:
    saved, _ = begun([1, 2, 3, 4, 5, 6, 7, 8])
    restored = NgramMod(SHORT)
    restored.set_state(saved.get_state())
    assert restored.draft(History([20, 21, 22, 20, 21]), 1) == [22]
