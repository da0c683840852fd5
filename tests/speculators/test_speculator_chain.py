"""Laws of a chain: who is asked, who drafts, who hears what."""

from __future__ import annotations

import pytest

from pyspec.errors import InvalidValueError, SpeculatorError, StateError
from pyspec.speculators import Chain, History, Scripted, Tokens, as_tokens


def failing(history: History, n_max: int) -> list[int]:
    raise RuntimeError("no luck")


def test_the_first_draft_that_is_not_empty_wins() -> None:
    a, b, c = Scripted([[], [1]], name="a"), Scripted([[2], [3]], name="b"), Scripted([[4], [5]], name="c")
    chain = Chain([a, b, c], n_vocab=10)
    history = History([9])
    assert [chain.draft(history, 4), chain.draft(history, 4)] == [[2], [1]]
    assert [len(a.calls), len(b.calls), len(c.calls)] == [2, 1, 0]


def test_no_draft_of_any_member_is_no_draft() -> None:
    chain = Chain([Scripted([]), Scripted([])], n_vocab=10)
    assert chain.draft(History([9]), 4) == []
    assert chain.author is None


def test_everybody_hears_the_verdict_and_only_the_author_as_its_own() -> None:
    a, b, c = Scripted([[]], name="a"), Scripted([[2, 3]], name="b"), Scripted([[4]], name="c")
    chain = Chain([a, b, c], n_vocab=10)
    chain.draft(History([9]), 4)
    assert chain.author is b
    chain.accept(2, 1, own=True)
    assert [a.verdicts, b.verdicts, c.verdicts] == [[(2, 1, False)], [(2, 1, True)], [(2, 1, False)]]
    assert chain.author is None


@pytest.mark.parametrize("own", [True, False])
def test_a_verdict_without_an_open_draft_is_nobodys_own(own: bool) -> None:
    a, b = Scripted([[1]], name="a"), Scripted([], name="b")
    chain = Chain([a, b], n_vocab=10)
    chain.accept(2, 1, own=own)
    assert a.verdicts == b.verdicts == [(2, 1, False)]


def test_a_draft_of_somebody_outside_is_nobodys_own() -> None:
    a = Scripted([[1]], name="a")
    chain = Chain([a, Scripted([])], n_vocab=10)
    chain.draft(History([9]), 4)
    chain.accept(2, 1, own=False)
    assert a.verdicts == [(2, 1, False)]


def test_every_member_begins() -> None:
    a, b = Scripted([], name="a"), Scripted([], name="b")
    Chain([a, b], n_vocab=10).begin(as_tokens([1, 2]))
    assert a.prompts == b.prompts == [[1, 2]]


@pytest.mark.parametrize("draft", [[10], [-1], [1, 2, 3], ["x"]], ids=str)
def test_a_bad_draft_is_an_error_that_names_the_member(draft: list[int]) -> None:
    chain = Chain([Scripted([[]], name="fine"), Scripted([draft], name="broken", cut=False)], n_vocab=10)
    with pytest.raises(SpeculatorError, match="broken"):
        chain.draft(History([9]), 2)


def test_a_member_that_raises_is_named_and_leaves_the_chain_usable() -> None:
    a, b = Scripted([[1]], name="a"), Scripted(failing, name="broken")
    chain = Chain([a, b], n_vocab=10)
    history = History([9])
    chain.draft(history, 4)
    with pytest.raises(SpeculatorError, match=r"'broken'.*RuntimeError: no luck"):
        chain.draft(history, 4)
    assert chain.author is None
    chain.begin(as_tokens([9]))
    assert chain.draft(history, 4) == [1]


def test_a_member_that_fails_at_begin_or_accept_is_named() -> None:
    class Broken(Scripted):
        def begin(self, tokens: Tokens) -> None:
            raise KeyError("b")

        def accept(self, n_drafted: int, n_accepted: int, *, own: bool) -> None:
            raise KeyError("a")

    chain = Chain([Broken([], name="broken")], n_vocab=10)
    with pytest.raises(SpeculatorError, match=r"'broken'.*begin raised KeyError"):
        chain.begin(as_tokens([1]))
    with pytest.raises(SpeculatorError, match=r"'broken'.*accept raised KeyError"):
        chain.accept(1, 1, own=True)


def test_name_and_memory_are_those_of_the_members() -> None:
    chain = Chain([Scripted([[1, 2]], name="a"), Scripted([[3]], name="b")], n_vocab=10)
    assert chain.name == "a+b"
    assert chain.nbytes == 24


@pytest.mark.parametrize("members", [[], ["ngram-mod"], [None]], ids=["none", "a name", "None"])
def test_a_chain_needs_speculators(members: list[object]) -> None:
    with pytest.raises(InvalidValueError):
        Chain(members, n_vocab=10)  # type: ignore[arg-type]


def test_state_is_refused_by_other_members_and_restored_as_a_whole() -> None:
    def chain(*names: str) -> Chain:
        return Chain([Scripted([[1], [2], [3]], name=name) for name in names], n_vocab=10)

    saved = chain("a", "b")
    saved.draft(History([9]), 1)
    state = saved.get_state()
    restored = chain("a", "b")
    restored.set_state(state)
    assert restored.draft(History([9]), 1) == [2]
    with pytest.raises(StateError, match="'a', 'b'"):
        chain("a", "c").set_state(state)
    damaged = {**state, "members": [state["members"][0], {"kind": "b"}]}
    untouched = chain("a", "b")
    with pytest.raises(StateError):
        untouched.set_state(damaged)
    assert untouched.draft(History([9]), 1) == [1]
