"""What drafts follows the conversation: a draft model's memory by common prefix, and into files and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyspec import Completion, Llama, Session
from pyspec._core import Model
from pyspec.acceptance import AcceptanceRecord
from pyspec.budget import BudgetOptions
from pyspec.errors import AbortedError, StateError
from pyspec.session.file import read_session, write_session
from pyspec.speculators import History
from pyspec.speculators.draft_model import DraftModel
from pyspec.speculators.scripted import Scripted

FIRST = "def area(width, height):\n    return width * height\n\n# the same function again:\n"
SECOND = "# and once more, with other names:\ndef area"
HOW: dict[str, Any] = {"max_tokens": 40, "ignore_eos": True}
FEW: dict[str, Any] = {"max_tokens": 5, "ignore_eos": True}
N_AGAIN = 8
"""Tokens that a turn of `FEW` reads beside what is new: its own, and those that ride again after a wrong draft."""


@pytest.fixture
def make(tiny_target_path: Path, tiny_draft_path: Path) -> Iterator[Callable[..., Llama]]:
    made: list[Llama] = []

    def new(**options: Any) -> Llama:
        defaults: dict[str, Any] = {"draft_model": tiny_draft_path, "spec": "draft-model", "budget": "off"}
        made.append(Llama(tiny_target_path, n_ctx=1024, n_threads=1, **(defaults | options)))
        return made[-1]

    yield new
    for llm in made:
        llm.close()


def draft_of(llm: Llama) -> DraftModel:
    return next(iter(llm._speculators._drafts.values()))


def turn(session: Session, text: str, **options: Any) -> tuple[int, int]:
    """Tokens that are new in a turn, and tokens that the draft model read."""
    before, n_text = draft_of(session.llm).n_ingested, len(session)
    session.generate(text, **(FEW | options))
    assert session.llm.stats.n_drafted > 0, "the draft model was asked"
    return session.turns[-1].n_prompt - n_text, draft_of(session.llm).n_ingested - before


def rounds(out: Completion) -> list[tuple[Any, ...]]:
    return [(r.width, r.n_drafted, r.n_accepted, r.speculator) for r in out.stats.rounds]


# ------------------------------------------------------------------ the draft model's memory


def test_a_draft_model_reads_only_what_is_new(make: Callable[..., Llama]):
    session = Session(make())
    assert turn(session, FIRST * 4)[1] > 80
    for text in (SECOND, FIRST, "x"):
        n_new, n_read = turn(session, text)
        assert n_new <= n_read <= n_new + N_AGAIN


def test_a_draft_model_goes_back_with_an_edited_text(make: Callable[..., Llama]):
    session = Session(make())
    turn(session, FIRST * 4)
    for text in (SECOND, FIRST, "x = 1\n"):
        turn(session, text)
        session.undo()
    n_new, n_read = turn(session, "# something else\n")
    assert n_read <= n_new + N_AGAIN + 1


def test_without_checkpoints_a_recurrent_draft_model_reads_all_of_an_edited_text(make: Callable[..., Llama]):
    session = Session(make(ctx_checkpoints=0))
    turn(session, FIRST * 4)
    turn(session, SECOND)
    session.undo()
    _, n_read = turn(session, "# something else\n")
    assert n_read > len(session) - N_AGAIN


def test_a_draft_model_goes_back_past_a_long_answer_of_which_an_end_is_taken_back(make: Callable[..., Llama]):
    session = Session(make())
    turn(session, FIRST, max_tokens=300)
    session.truncate(len(session) - 20)
    n_new, n_read = turn(session, "# and\n")
    assert n_read <= n_new + N_AGAIN + 20 + 64


@pytest.mark.parametrize("arch", ["mamba2", "rwkv7", "qwen35", "jamba", "falcon-h1", "gemma3", "llama"])
def test_a_draft_model_that_went_back_says_what_a_fresh_one_says(arch: str, arch_model: Callable[[str], Path]):
    model = Model(arch_model(arch))
    rng = np.random.default_rng(3)
    base, ends = rng.integers(1, 100, 90).tolist(), rng.integers(1, 100, (3, 12)).tolist()

    def new() -> DraftModel:
        return DraftModel(model, target=model.vocab, n_ctx=256, context={"n_threads": 1, "n_threads_batch": 1})

    def ask(draft: DraftModel, tokens: list[int]) -> np.ndarray:
        draft.begin(np.array(tokens[:-1], np.int32))
        draft.draft(History(tokens), 1)
        return draft.context.logits(0, 1)[0].copy()

    followed = new()
    ask(followed, [*base, 5])
    for end in ends:
        n_before = followed.n_ingested
        said = ask(followed, base + end)
        assert followed.n_ingested - n_before == len(end), "back to the end of the first prompt"
        fresh = ask(new(), base + end)
        same = 1e-3 if arch in ("llama", "gemma3") else 2e-5  # half precision, added in another order
        assert np.abs(said - fresh).max() < same * np.abs(fresh).max()


def test_a_draft_model_whose_decode_failed_forgets_its_states(arch_model: Callable[[str], Path]):
    model = Model(arch_model("rwkv7"))
    draft = DraftModel(model, target=model.vocab, n_ctx=256, context={"n_threads": 1, "n_threads_batch": 1})
    draft.begin(np.arange(1, 90, dtype=np.int32))
    draft.draft(History(range(1, 92)), 1)
    assert draft.checkpoints.positions
    draft.context.abort()
    with pytest.raises(AbortedError):
        draft.draft(History(range(1, 95)), 1)
    assert draft.checkpoints.positions == []
    assert draft.memory.n_past == 0


# ------------------------------------------------------------------ files


@pytest.mark.parametrize(
    "budget", ["off", BudgetOptions(measured=False, slope=0.05, draft_token=0.05, probe_every=4)], ids=["off", "counts"]
)
@pytest.mark.parametrize("spec", ["draft-model", "auto", "ngram-mod:n_match=4,n_min=2", "ngram-cache", "suffix"])
def test_a_loaded_session_drafts_as_the_saved_one_would(
    make: Callable[..., Llama], tmp_path: Path, spec: str, budget: Any
):
    session = Session(make(spec=spec, budget=budget))
    for text in (FIRST, FIRST, SECOND):
        session.generate(text, **HOW)
    session.save(tmp_path / "talk.session")
    expected = session.generate(FIRST, **HOW)
    assert expected.stats.n_drafted > 0
    again = Session.load(tmp_path / "talk.session", make(spec=spec, budget=budget)).generate(FIRST, **HOW)
    assert again.tokens == expected.tokens
    assert rounds(again) == rounds(expected)
    assert again.stats.n_reused == expected.stats.n_reused


def test_without_what_was_learned_a_loaded_session_drafts_otherwise(make: Callable[..., Llama], tmp_path: Path):
    """So the law above is not empty: the answers of an undone turn are in the saved table, and not in the text.

    They are drawn hot, so that they do not only repeat what stands before them.
    """
    path, spec, hot = tmp_path / "talk.session", "suffix", HOW | {"temperature": 2.0, "seed": 5}
    session = Session(make(spec=spec))
    session.generate(FIRST, **HOW)
    session.generate(SECOND, **hot)
    session.undo()
    session.save(path)
    expected = session.generate(SECOND, **hot)
    assert expected.stats.n_accepted > 30
    assert rounds(Session.load(path, make(spec=spec)).generate(SECOND, **hot)) == rounds(expected)
    write_session(path, replace(read_session(path), drafting=None))
    forgetful = Session.load(path, make(spec=spec)).generate(SECOND, **hot)
    assert forgetful.tokens == expected.tokens
    assert forgetful.stats.n_accepted < expected.stats.n_accepted - 5


def test_a_loaded_draft_model_reads_only_what_is_new(make: Callable[..., Llama], tmp_path: Path):
    session = Session(make())
    turn(session, FIRST * 4)
    for n in range(30, 60):
        turn(session, SECOND, max_tokens=n)
        held = draft_of(session.llm)._held.view().tolist()
        if held != session.tokens[: len(held)]:
            break
        session.undo()
    assert session.turns[1:], "a wrong draft is still in the draft model's memory"
    session.save(tmp_path / "talk.session")
    loaded = Session.load(tmp_path / "talk.session", make())
    assert draft_of(loaded.llm).n_ingested == 0
    n_new, n_read = turn(loaded, FIRST)
    assert n_new <= n_read <= n_new + N_AGAIN
    loaded.undo()
    loaded.undo()
    n_new, n_read = turn(loaded, "# something else\n")
    assert n_read <= n_new + N_AGAIN + 1, "its checkpoints came along"


def test_drawn_drafts_and_drawn_tokens_go_on_as_without_saving(make: Callable[..., Llama], tmp_path: Path):
    options: dict[str, Any] = {"draft_options": {"temperature": 0.9}}
    session = Session(make(**options), temperature=0.9, seed=4)
    session.generate(FIRST, **HOW)
    session.save(tmp_path / "talk.session")
    expected = session.generate(SECOND, **HOW)
    assert expected.stats.n_drafted > expected.stats.n_accepted > 0
    again = Session.load(tmp_path / "talk.session", make(**options)).generate(SECOND, **HOW)
    assert again.tokens == expected.tokens


def test_saving_changes_nothing_of_the_session_that_is_saved(make: Callable[..., Llama], tmp_path: Path):
    outs = []
    for saves in (False, True):
        session = Session(make())
        session.generate(FIRST, **HOW)
        if saves:
            session.save(tmp_path / "talk.session")
        outs.append(session.generate(SECOND, **HOW))
    assert rounds(outs[0]) == rounds(outs[1])
    assert outs[0].tokens == outs[1].tokens


def test_another_draft_model_starts_anew_and_says_so(
    make: Callable[..., Llama], tiny_target_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    session = Session(make())
    session.generate(FIRST, **HOW)
    session.save(tmp_path / "talk.session")
    expected = session.generate(SECOND, **HOW)
    loaded = Session.load(tmp_path / "talk.session", make(draft_model=tiny_target_path))
    assert "another draft model" in caplog.text
    assert loaded.generate(SECOND, **HOW).tokens == expected.tokens
    assert loaded.turns[-1].n_decoded == session.turns[-1].n_decoded


@pytest.mark.parametrize("spec", ["suffix", ["suffix", "ngram-cache"], None])
def test_other_speculators_start_anew(
    make: Callable[..., Llama], tmp_path: Path, caplog: pytest.LogCaptureFixture, spec: Any
):
    session = Session(make())
    session.generate(FIRST, **HOW)
    session.save(tmp_path / "talk.session")
    expected = session.generate(SECOND, **HOW)
    loaded = Session.load(tmp_path / "talk.session", make(spec=spec))
    assert "no use here" in caplog.text
    assert loaded.generate(SECOND, **HOW).tokens == expected.tokens


def test_a_session_without_speculators_loads_into_one_that_has_them(make: Callable[..., Llama], tmp_path: Path):
    session = Session(make(spec=None, draft_model=None))
    session.generate(FIRST, **HOW)
    session.save(tmp_path / "talk.session")
    expected = session.generate(SECOND, **HOW)
    assert Session.load(tmp_path / "talk.session", make()).generate(SECOND, **HOW).tokens == expected.tokens


class Unsavable(Scripted):
    def get_state(self) -> dict[str, Any]:
        return {"kind": "unsavable", "secret": object()}


class Broken(Scripted):
    def get_state(self) -> dict[str, Any]:
        raise RuntimeError("no state today")


@pytest.mark.parametrize("kind", [Unsavable, Broken])
def test_a_speculator_that_cannot_be_saved_does_not_keep_the_session_from_it(
    make: Callable[..., Llama], tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: type[Scripted]
):
    session = Session(make(spec=kind(lambda history, n_max: [5])))
    session.generate(FIRST, **HOW)
    session.save(tmp_path / "talk.session")
    assert "is not saved" in caplog.text
    expected = session.generate(SECOND, **HOW)
    assert Session.load(tmp_path / "talk.session", make()).generate(SECOND, **HOW).tokens == expected.tokens


def test_a_draft_model_whose_context_cannot_take_the_state_reads_the_text_again(
    make: Callable[..., Llama], tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    session = Session(make())
    turn(session, FIRST * 4)
    session.save(tmp_path / "talk.session")
    other = make(flash_attn=True)
    loaded = Session.load(tmp_path / "talk.session", other)
    assert "the draft model is of no use here" in caplog.text
    assert turn(loaded, SECOND)[1] > 100


# ------------------------------------------------------------------ records


def test_a_restored_record_expects_what_the_saved_one_does():
    saved, rng = AcceptanceRecord(BudgetOptions()), np.random.default_rng(1)
    for _ in range(300):
        saved.observe(int(rng.integers(0, 20)), int(rng.integers(0, 40)), bool(rng.random() < 0.6))
    restored = AcceptanceRecord(BudgetOptions())
    before = restored.expected(0, 3, 30)
    restored.set_state(saved.get_state())
    for streak, match_length in ((0, 0), (0, 5), (3, 5), (70, 1)):
        assert np.array_equal(restored.expected(streak, match_length, 30), saved.expected(streak, match_length, 30))
    assert not np.array_equal(before, restored.expected(0, 3, 30))


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.pop("first"),
        lambda s: s.update(later="x"),
        lambda s: s.update(first=s["first"][:3]),
        lambda s: s.update(later=s["later"] - 1),
        lambda s: s.update(first=s["first"] * [0, 1]),
        lambda s: s.update(first=s["first"] * np.nan),
        lambda s: s.update(later=s["later"] + [0, 1]),
    ],
)
def test_a_record_of_nonsense_is_refused_and_changes_nothing(change: Callable[[dict[str, Any]], object]):
    record = AcceptanceRecord(BudgetOptions())
    before, state = record.expected(0, 3, 30), record.get_state()
    change(state)
    with pytest.raises(StateError):
        record.set_state(state)
    assert np.array_equal(record.expected(0, 3, 30), before)
