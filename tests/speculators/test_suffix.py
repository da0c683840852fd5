"""Laws of the suffix speculator's drafts, against literal tokens and against a slow reference."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace
from typing import Any

import pytest

from pyspec.errors import InvalidValueError
from pyspec.speculators import History, Suffix, SuffixOptions, as_tokens, make

SHORT = SuffixOptions(n_match_min=1, n_max=8, factor=8, max_depth=8)


def begun(prompt: list[int], options: SuffixOptions = SHORT, **others: Any) -> tuple[Suffix, History]:
    speculator = Suffix(replace(options, **others))
    speculator.begin(as_tokens(prompt))
    return speculator, History(prompt)


def drafted(prompt: list[int], n_max: int = 64, **others: Any) -> list[int]:
    speculator, history = begun(prompt, **others)
    return list(speculator.draft(history, n_max))


def generate(speculator: Suffix, prompt: list[int], output: list[int]) -> History:
    """A generation that says `output`, token by token."""
    history = History(prompt)
    speculator.begin(as_tokens(prompt))
    for token in output:
        speculator.draft(history, 4)
        history.append(token)
    speculator.draft(history, 4)
    return history


def reference_draft(tokens: list[int], outputs: list[list[int]], options: SuffixOptions, n_max: int) -> list[int]:
    """Definition: try every length, look at every place, count what followed; latest first."""
    for length in range(min(options.max_depth, len(tokens)), options.n_match_min - 1, -1):
        key = tokens[len(tokens) - length :]
        places = [
            (text, end)
            for text in (tokens, *reversed(outputs))
            for end in range(len(text) - 1, length - 1, -1)
            if text[end - length : end] == key
        ][: options.n_counted]
        if places:
            n_max = min(n_max, options.n_max, max(1, int(options.factor * length)))
            return reference_path(tokens, places, options.p_min, n_max)
    return []


def reference_path(tokens: list[int], places: list[tuple[list[int], int]], p_min: float, n_max: int) -> list[int]:
    grown, n_all = list(tokens), len(places)
    for n_drafted in range(n_max):
        followers: dict[int, list[tuple[list[int], int]]] = {}
        for text, end in places:
            source = grown if text is tokens else text
            if end + n_drafted < len(source):
                followers.setdefault(source[end + n_drafted], []).append((text, end))
        best = max(followers, key=lambda token: len(followers[token]), default=None)
        if best is None or len(followers[best]) < p_min * n_all:
            break
        places = followers[best]
        grown.append(best)
    return grown[len(tokens) :]


# ------------------------------------------------------------------ what is drafted


def test_the_longest_match_decides_however_often_a_shorter_one_occurred() -> None:
    assert drafted([1, 2, 7, 3, 2, 8, 4, 2, 8, 1, 2], 1) == [7]


def test_the_most_frequent_continuation_wins_over_the_latest() -> None:
    assert drafted([2, 7, 3, 2, 7, 4, 2, 8, 5, 2], 1) == [7]


def test_the_latest_wins_among_equal_counts() -> None:
    assert drafted([2, 7, 3, 2, 8, 4, 2], 1) == [8]
    assert drafted([2, 7, 3, 2, 8, 4, 2, 8, 5, 2, 7, 6, 2], 1) == [7]


def test_only_occurrences_that_agree_so_far_vote_on_the_next_token() -> None:
    # after 2: 7 9, 7 9, 8 5, 8 5, 8 6 ; alone, 9 would follow as often as 5
    prompt = [2, 7, 9, 2, 7, 9, 2, 8, 5, 2, 8, 5, 2, 8, 6, 0, 2]
    assert drafted(prompt, 2) == [8, 5]


def test_only_the_latest_n_counted_occurrences_vote() -> None:
    prompt = [2, 7, 3, 2, 7, 4, 2, 7, 5, 2, 8, 6, 2]
    assert [drafted(prompt, 1, n_counted=n) for n in (1, 2, 3, 4)] == [[8], [8], [7], [7]]


@pytest.mark.parametrize(("p_min", "n_drafted"), [(0, 4), (0.25, 4), (0.3, 2), (0.5, 2), (0.51, 1), (0.8, 0), (1, 0)])
def test_a_draft_ends_where_the_share_of_those_that_agree_falls_below_p_min(p_min: float, n_drafted: int) -> None:
    # of four that follow 2, three go on with 7, two with 7 8, one with 7 8 9
    prompt = [2, 5, 0, 2, 7, 6, 0, 2, 7, 8, 3, 0, 2, 7, 8, 9, 1, 2]
    assert drafted(prompt, 4, p_min=p_min) == [7, 8, 9, 1][:n_drafted]


@pytest.mark.parametrize(("factor", "n_drafted"), [(0, 1), (0.5, 1), (1, 2), (1.5, 3), (2.4, 4), (2.5, 5), (90, 8)])
def test_a_draft_is_at_most_factor_times_as_long_as_the_match(factor: float, n_drafted: int) -> None:
    assert drafted([1, 2, *range(10, 30), 1, 2], factor=factor) == list(range(10, 10 + n_drafted))


def test_a_match_shorter_than_n_match_min_gives_no_draft() -> None:
    prompt = [1, 2, 3, 9, 8, 1, 2, 3]
    assert [drafted(prompt, 1, n_match_min=n) for n in (2, 3, 4)] == [[9], [9], []]


def test_max_depth_is_the_longest_match_that_is_told_apart() -> None:
    prompt = [0, 1, 2, 7, 5, 1, 2, 8, 0, 1, 2]
    assert [drafted(prompt, 1, max_depth=n) for n in (2, 3)] == [[8], [7]]


def test_an_occurrence_near_the_end_is_drafted_as_a_period() -> None:
    assert drafted([9, 1, 2, 3, 1, 2], 7) == [3, 1, 2, 3, 1, 2, 3]
    assert drafted([4, 4, 4], 5) == [4] * 5


@pytest.mark.parametrize("reading", ["inserted", "sorted", "as it comes"])
@pytest.mark.parametrize("n_alphabet", [1, 2, 3, 6])
def test_drafts_equal_the_reference_however_the_tokens_arrive(
    n_alphabet: int, reading: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reading != "as it comes":
        monkeypatch.setattr("pyspec.speculators.suffix_index._SORT_FIXED", 0 if reading == "sorted" else 10**9)
        monkeypatch.setattr("pyspec.speculators.suffix_index._SORT_RATIO", 10**6 if reading == "sorted" else 1)
    rng = random.Random(n_alphabet)
    n_long = 0
    for _ in range(60):
        options = random_options(rng)
        speculator, outputs = Suffix(options), list[list[int]]()
        for _ in range(4):
            history = History([rng.randrange(n_alphabet) for _ in range(rng.randrange(60))])
            speculator.begin(history.view())
            assert [output.tolist() for output in speculator.corpus.outputs()] == outputs
            n_prompt = len(history)
            for _ in range(8):
                n_max = rng.randrange(1, 20)
                draft = speculator.draft(history, n_max)
                assert draft == reference_draft(history.view().tolist(), outputs, options, n_max)
                n_long += len(draft) > 2
                history.extend([rng.randrange(n_alphabet) for _ in range(rng.choice([1, 1, 2, 5, 40]))])
            speculator.draft(history, 1)
            remember(outputs, history.view().tolist()[n_prompt:], options.corpus_tokens)
    assert n_long > 100


def random_options(rng: random.Random) -> SuffixOptions:
    max_depth = rng.choice([1, 2, 3, 5, 8])
    return SuffixOptions(
        n_match_min=rng.randrange(1, max_depth + 1),
        n_max=rng.randrange(1, 30),
        factor=rng.choice([0.5, 1, 2.5, 8]),
        p_min=rng.choice([0, 0.1, 0.4, 0.6, 1]),
        max_depth=max_depth,
        n_counted=rng.choice([1, 2, 5, 1000]),
        corpus_tokens=rng.choice([0, 20, 200]),
    )


def remember(outputs: list[list[int]], output: list[int], n_tokens_max: int) -> None:
    """Definition of the corpus: the last generation's output enters at the next `begin`."""
    if n_tokens_max and output:
        outputs.append(output[-n_tokens_max:])
    while sum(map(len, outputs)) > n_tokens_max:
        outputs.pop(0)


# ------------------------------------------------------------------ cuts and turns


@pytest.mark.parametrize("n_again", [0, 2, 100])
def test_a_truncated_history_is_read_again(n_again: int) -> None:
    speculator, history = begun([1, 2, 3, 4, 5, 6, 1, 2])
    assert speculator.draft(history, 2) == [3, 4]
    history.truncate(3)
    history.extend([60 + i for i in range(n_again)])
    history.extend([1, 2])
    assert speculator.draft(history, 2) == ([3, 60] if n_again else [3, 1])


def test_what_follows_a_cut_into_the_prompt_is_output() -> None:
    speculator, history = begun([1, 2, 3, 4])
    history.truncate(2)
    history.extend([8, 9])
    speculator.draft(history, 2)
    speculator.begin(as_tokens([]))
    assert [output.tolist() for output in speculator.corpus.outputs()] == [[8, 9]]


def test_a_history_that_is_cut_and_grown_at_random_is_drafted_from_as_it_is() -> None:
    rng = random.Random(6)
    speculator, history = begun([], max_depth=4)
    n_long = 0
    for _ in range(300):
        history.extend([rng.randrange(3) for _ in range(rng.choice([1, 2, 3, 80]))])
        if rng.random() < 0.3:
            history.truncate(rng.randrange(len(history)))
        draft = speculator.draft(history, 6)
        assert draft == reference_draft(history.view().tolist(), [], replace(SHORT, max_depth=4), 6)
        n_long += len(draft) > 2
    assert n_long > 50


def test_a_next_turn_drafts_as_if_its_prompt_were_new() -> None:
    speculator = Suffix(replace(SHORT, corpus_tokens=0))
    first = generate(speculator, [1, 2, 3, 1], [2, 3, 4])
    prompt = [*first.view().tolist(), 5, 1, 2, 3]
    speculator.begin(as_tokens(prompt))
    assert speculator.draft(History(prompt), 8) == drafted(prompt, 8) == [4, 5, 1, 2, 3, 4, 5, 1]


# ------------------------------------------------------------------ learned lengths


def lengths_after(verdicts: list[tuple[int, int]], *, own: bool = True) -> list[int]:
    """Draft lengths after one match of two tokens, before each verdict and after the last."""
    speculator, history = begun([1, 2, *range(10, 30), 1, 2])
    lengths = []
    for n_drafted, n_accepted in verdicts:
        lengths.append(len(speculator.draft(history, 64)))
        speculator.accept(n_drafted, n_accepted, own=own)
    return [*lengths, len(speculator.draft(history, 64))]


def test_a_draft_that_was_wrong_somewhere_shortens_the_next_half_way_to_what_was_right() -> None:
    assert lengths_after([(8, 4), (6, 0), (3, 2)]) == [8, 6, 3, 2]


def test_rejected_drafts_leave_one_token_so_that_their_length_can_recover() -> None:
    assert lengths_after([(8, 0), (4, 0), (2, 0), (1, 0), (1, 0)]) == [8, 4, 2, 1, 1, 1]


def test_full_acceptance_doubles_the_length_up_to_n_max() -> None:
    assert lengths_after([(8, 0), (4, 0), (2, 2), (4, 4), (8, 8)]) == [8, 4, 2, 4, 8, 8]


def test_full_acceptance_of_a_draft_that_was_cut_never_shortens() -> None:
    assert lengths_after([(8, 6), (2, 2)]) == [8, 7, 7]
    assert lengths_after([(2, 2)]) == [8, 8]


@pytest.mark.parametrize(("verdict", "own"), [((8, 0), False), ((0, 0), True)], ids=["another's", "not verified"])
def test_what_is_no_verdict_on_an_own_draft_changes_nothing(verdict: tuple[int, int], own: bool) -> None:
    assert lengths_after([verdict, verdict], own=own) == [8, 8, 8]


def test_one_draft_is_judged_once() -> None:
    speculator, history = begun([1, 2, *range(10, 30), 1, 2])
    speculator.draft(history, 64)
    speculator.accept(8, 4, own=True)
    speculator.accept(8, 0, own=True)
    assert len(speculator.draft(history, 64)) == 6


def test_a_draft_that_came_to_nothing_cannot_be_judged() -> None:
    speculator, history = begun([2, 7, 3, 2, 8, 4, 2], p_min=1)
    before = pickle.dumps(speculator.get_state())
    assert speculator.draft(history, 8) == []
    speculator.accept(4, 0, own=True)
    assert pickle.dumps(speculator.get_state()) == before


def test_lengths_belong_to_the_power_of_two_of_the_match_length() -> None:
    # matches end in 4 and go on with 10, 11, ...: of one token, of two, of three, of four
    speculator, history = begun([1, 2, 3, 4, *range(10, 30), 0, 3, 4])
    assert len(speculator.draft(history, 64)) == 8
    speculator.accept(8, 0, own=True)
    for end, length in (([4], 8), ([3, 4], 4), ([2, 3, 4], 4), ([1, 2, 3, 4], 8)):
        speculator.begin(as_tokens([1, 2, 3, 4, *range(10, 30), 0, *end]))
        assert len(speculator.draft(History([1, 2, 3, 4, *range(10, 30), 0, *end]), 64)) == length


# ------------------------------------------------------------------ options


@pytest.mark.parametrize(
    "options",
    [
        {"n_match_min": 0},
        {"n_match_min": 65},
        {"n_match_min": 9, "max_depth": 8},
        {"n_max": -1},
        {"n_max": 1.5},
        {"factor": -0.1},
        {"factor": float("inf")},
        {"p_min": 1.1},
        {"max_depth": 0},
        {"n_counted": 0},
        {"corpus_tokens": -1},
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError):
        SuffixOptions(**options)


def test_it_is_made_by_name_and_by_options() -> None:
    for spec in ("suffix:n_match_min=3,factor=1.5", SuffixOptions(n_match_min=3, factor=1.5)):
        speculator = make(spec, n_vocab=10)
        assert isinstance(speculator, Suffix)
        assert speculator.options == SuffixOptions(n_match_min=3, factor=1.5)
