"""The draft model's own memory is as true as the target's: it, too, may be recurrent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decoder_rig import (
    ABLE,
    N_TOKENS,
    SAMPLINGS,
    SNAPSHOTS,
    RecordingMemory,
    Rig,
    Subject,
    flash_attention_of,
    replay,
)

from pyspec._core import STATE_PARTIAL_ONLY, Model, State
from pyspec.errors import InvalidValueError, StateError, UnsupportedError, VocabularyMismatchError
from pyspec.speculators import History
from pyspec.speculators.draft_model import DraftModel, DraftModelOptions

SAMPLED = SAMPLINGS["sampled"]
CASES = [(name, strategy) for name, able in ABLE.items() for strategy in able if strategy not in SNAPSHOTS]
RECURRENT_CASES = [c for c in CASES if c[0] in ("mamba2", "qwen35", "lfm2", "jamba")]


def draft_of(subject: Subject, rollback: str = "auto", *, is_timed: bool = False, **options: Any) -> DraftModel:
    """The subject's own model as its draft model."""
    return DraftModel(
        subject.model,
        target=subject.model.vocab,
        options=DraftModelOptions(**({"n_max": 4} | options)),
        n_ctx=512,
        rollback=rollback,
        is_timed=is_timed,
        context={"n_threads": 1, "n_threads_batch": 1, "flash_attn": flash_attention_of(subject.model, rollback)},
    )


@pytest.mark.parametrize(("subject_name", "strategy"), CASES)
def test_its_state_after_rejected_drafts_is_that_of_sequential_decoding(subject: Subject, strategy: str):
    """A sampled target often rejects what the greedy draft model said, so its memory goes back again and again."""
    draft = draft_of(subject, strategy)
    draft.memory = draft.checkpoints.memory = RecordingMemory(draft.context, draft.memory.rollback)
    run = subject.rig().run(subject.prompt, draft, max_tokens=N_TOKENS, **SAMPLED)
    assert run.stats.n_rollbacks > 0
    memory: Any = draft.memory
    again = Rig(subject.model, strategy, seq_id=memory.rollback.seq_id)
    replay(again, memory.decodes, filler=5)
    state = State()
    draft.context.state_save(memory.rollback.seq_id, state, STATE_PARTIAL_ONLY)
    assert state.view().tobytes() == again.state_bytes()
    memory.decode([7], 1)
    assert np.array_equal(draft.context.logits(0, 1)[0], again.next_logits([7]))


@pytest.mark.parametrize(("subject_name", "strategy"), CASES)
def test_what_it_holds_is_the_history_it_was_asked_about(subject: Subject, strategy: str):
    draft = draft_of(subject, strategy)
    plain_draft = draft.draft
    seen = 0

    def checked(history: History, n_max: int) -> list[int]:
        nonlocal seen
        proposed = plain_draft(history, n_max)
        held = [*history.view().tolist(), *proposed][: draft.memory.n_past]
        assert draft._held.view().tolist() == held
        assert draft.context.seq_pos_max(draft.memory.rollback.seq_id) + 1 == len(held)
        seen += 1
        return proposed

    draft.draft = checked  # type: ignore[method-assign]
    subject.rig().run(subject.prompt, draft, max_tokens=N_TOKENS, **SAMPLED)
    assert seen > 4


@pytest.mark.parametrize(("subject_name", "strategy"), RECURRENT_CASES)
def test_a_model_that_drafts_for_itself_is_right(subject: Subject, strategy: str):
    """Greedy against greedy, every draft must be accepted; a stale recurrent state would say something else.

    One rejection is granted, for a near-tie between width 1 (the draft) and wider decodes (the target).
    """
    draft = draft_of(subject, strategy)
    draft.draft(History([1, 2, 3, 4, 5]), 4)  # a memory of something else comes first
    run = subject.rig().run(subject.prompt, draft, max_tokens=N_TOKENS)
    assert run.stats.n_drafted > 20
    assert run.stats.n_rollbacks <= 1


@pytest.mark.parametrize(("subject_name", "strategy"), CASES)
def test_its_memory_follows_any_history(subject: Subject, strategy: str):
    """Whatever was drafted before: a prompt that parts at any place, and rounds in which others drafted."""
    draft = draft_of(subject, strategy)
    base = [(11 * i + 2) % 100 for i in range(24)]
    for prompt in (base, [*base, 5, 6, 7, 8, 9], base[:12], [*base[:20], 1, 2, 3], [9], base):
        history = History(prompt)
        draft.begin(history.view())
        for n_others in (1, 3, 5):
            proposed = draft.draft(history, 4)
            assert draft._held.view().tolist() == [*history.view().tolist(), *proposed][: draft.memory.n_past]
            assert draft.context.seq_pos_max(draft.memory.rollback.seq_id) + 1 == draft.memory.n_past
            history.extend([(token + 1) % 100 for token in (proposed * 2)[:n_others]])


@pytest.mark.parametrize("subject_name", ["llama", "mamba2", "qwen35"])
def test_a_second_turn_decodes_only_what_is_new(subject: Subject):
    draft = draft_of(subject, n_max=1)
    draft.begin(np.array(subject.prompt, np.int32))
    draft.draft(History(subject.prompt), 1)
    n_before = draft.memory.n_decodes
    longer = History([*subject.prompt, 5, 6, 7])
    draft.begin(longer.view())
    draft.draft(longer, 1)
    assert draft.memory.n_decodes == n_before + 1
    assert draft.memory.n_past == len(longer)


# ------------------------------------------------------------------ options


@pytest.mark.parametrize("n_max", [1, 3, 7])
def test_no_draft_is_longer_than_n_max(arch_subject: Callable[[str], Subject], n_max: int):
    subject = arch_subject("llama")
    assert len(draft_of(subject, n_max=n_max).draft(History(subject.prompt), 100)) == n_max


def test_no_draft_is_longer_than_was_asked_for(arch_subject: Callable[[str], Subject]):
    subject = arch_subject("llama")
    assert len(draft_of(subject, n_max=7).draft(History(subject.prompt), 2)) == 2


def test_a_draft_shorter_than_n_min_is_dropped(arch_subject: Callable[[str], Subject]):
    subject = arch_subject("llama")
    draft = draft_of(subject, n_max=7, n_min=5)
    assert draft.draft(History(subject.prompt), 4) == []
    assert len(draft.draft(History(subject.prompt), 5)) == 5


@pytest.mark.parametrize("subject_name", ["llama", "mamba2"])
def test_to_be_timed_changes_no_draft(subject: Subject):
    plain, timed = draft_of(subject), draft_of(subject, is_timed=True)
    assert plain.token_s == 0.0
    history = History(subject.prompt)
    for _ in range(3):
        draft = timed.draft(history, 4)
        assert draft == plain.draft(history, 4) != []
        history.extend(draft[:2])


def test_what_a_drafted_token_takes_is_that_of_a_decode_of_one(
    arch_subject: Callable[[str], Subject], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("pyspec.assembly.cached_width_costs", lambda context, **_: {1: 0.25, 2: 0.5})
    draft = draft_of(arch_subject("llama"), is_timed=True, n_max=5)
    assert (draft.token_s, draft.n_draft_max) == (0.25, 5)


@pytest.mark.parametrize("subject_name", ["llama", "mamba2"])
def test_it_tells_what_of_a_history_is_new_to_it(subject: Subject):
    draft, history = draft_of(subject), History(subject.prompt)
    n_prompt = len(history)
    assert draft.n_unread(history) == n_prompt
    drafted = draft.draft(history, 4)
    assert draft.n_unread(history) == 0
    history.extend([*drafted[:2], 1 + drafted[2] % 9, 5])
    assert draft.n_unread(history) == 2, "what it drafted itself is there"
    draft.begin(history.view())
    assert draft.n_unread(history) == 2, "also for a next generation of the same text"
    other = History([(token + 1) % 9 for token in subject.prompt])
    draft.begin(other.view())
    assert draft.n_unread(other) == len(other)


@pytest.mark.parametrize("p_min", [0.0, 0.05, 0.1, 0.2, 0.5, 1.0])
def test_a_draft_stops_before_the_first_token_less_probable_than_p_min(
    tiny: Subject, tiny_draft_path: Path, load: Callable[[Path], Model], p_min: float
):
    model = load(tiny_draft_path)
    options = DraftModelOptions(n_max=8, p_min=p_min)
    draft = DraftModel(model, target=tiny.model.vocab, options=options, n_ctx=512, context={"n_threads": 1})
    rig = Rig(model)
    rig.memory.decode(tiny.prompt, 1)
    expected: list[int] = []
    while len(expected) < 8:
        row = rig.context.logits(0, 1)[0].astype(np.float64)
        p = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
        if p.max() < p_min:
            break
        expected.append(int(p.argmax()))
        rig.memory.decode(expected[-1:], 1)
    assert draft.draft(History(tiny.prompt), 8) == expected


@pytest.mark.parametrize(
    ("name", "value"), [("n_max", 0), ("n_max", 1.5), ("n_min", -1), ("p_min", 1.1), ("p_min", -0.1)]
)
def test_an_option_outside_its_range_is_refused(name: str, value: Any):
    with pytest.raises(InvalidValueError, match=name):
        DraftModelOptions(**{name: value})


def test_a_history_longer_than_its_context_gets_no_draft(arch_subject: Callable[[str], Subject]):
    subject = arch_subject("llama")
    draft = draft_of(subject)
    assert draft.draft(History([1] * 511), 4) != []
    assert draft.draft(History([1] * 512), 4) == []
    assert draft.draft(History([1] * 700), 4) == []


# ------------------------------------------------------------------ refusals


def test_a_model_of_another_vocabulary_is_refused_with_the_differences(
    tiny: Subject, arch_subject: Callable[[str], Subject]
):
    with pytest.raises(VocabularyMismatchError) as caught:
        DraftModel(arch_subject("llama").model, target=tiny.model.vocab, n_ctx=512)
    assert caught.value.differences


def test_a_strategy_that_its_memory_cannot_do_is_refused(arch_subject: Callable[[str], Subject]):
    with pytest.raises(UnsupportedError, match="trim"):
        draft_of(arch_subject("mamba2"), "trim")


def test_snapshots_which_undo_one_decode_only_are_refused(arch_subject: Callable[[str], Subject]):
    subject = arch_subject("qwen35")
    with pytest.raises(UnsupportedError, match="token by token"):
        DraftModel(subject.model, target=subject.model.vocab, n_ctx=512, rollback="snapshot", context={"n_rs_seq": 8})


@pytest.mark.parametrize("state", [{}, {"kind": "draft-model"}, {"kind": "ngram-mod", "tokens": np.zeros(2, np.int32)}])
def test_a_state_of_something_else_is_refused(arch_subject: Callable[[str], Subject], state: dict[str, Any]):
    with pytest.raises(StateError):
        draft_of(arch_subject("llama")).set_state(state)


@pytest.mark.parametrize("subject_name", ["llama", "mamba2"])
def test_a_restored_state_drafts_as_before(subject: Subject):
    before = draft_of(subject)
    before.draft(History(subject.prompt), 4)
    after = draft_of(subject)
    after.set_state(before.get_state())
    longer = History([*subject.prompt, 5])
    assert after.draft(longer, 4) == before.draft(longer, 4)
