"""Strategies between saves, faults and neighbours: nothing stale comes back, nothing half done stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from decoder_rig import ABLE, N_TOKENS, PATTERNS, SAMPLINGS, Rig, Subject
from test_decoder_failures import FaultyContext, assert_empty, assert_generates_on

from pyspec._core import STATE_ON_DEVICE, STATE_PARTIAL_ONLY, State
from pyspec.errors import ContextFullError, MemoryRefusedError, StateError, UnsupportedError

SAMPLED = SAMPLINGS["sampled"]
NAMES = ("llama", "mamba2", "qwen35", "lfm2", "gpt-oss")
CASES = [(name, strategy) for name in NAMES for strategy in ABLE[name]]
SAVING = ("shadow", "fork", "checkpoint-host", "checkpoint-device")
SAVING_CASES = [case for case in CASES if case[1] in SAVING]
#: The call into the context that makes a save.
SAVES_BY = {"shadow": "seq_cp", "fork": "seq_cp", "checkpoint-host": "state_save", "checkpoint-device": "state_save"}
N_DRAFT = 4


def prompted(subject: Subject, strategy: str, **settings: object) -> Rig:
    rig = subject.rig(strategy, **settings)
    rig.memory.decode(subject.prompt, 1)
    return rig


def assert_holds(rig: Rig, subject: Subject, *steps: Sequence[int]) -> None:
    """Memory is that of decoding the prompt and then each of `steps`."""
    fresh = rig.fresh()
    for tokens in (subject.prompt, *steps):
        fresh.memory.decode(list(tokens), 1)
    assert rig.memory.n_past == fresh.memory.n_past
    assert rig.state_bytes() == fresh.state_bytes()
    assert np.array_equal(rig.next_logits([9]), fresh.next_logits([9]))


# ------------------------------------------------------------------ saves


@pytest.mark.parametrize(("subject_name", "strategy"), SAVING_CASES)
def test_a_save_at_another_position_replaces_the_earlier_one(subject: Subject, strategy: str):
    rig = prompted(subject, strategy)
    n = len(subject.prompt)
    rig.memory.save(N_DRAFT)
    rig.memory.decode([5, 6], 1)
    rig.memory.save(N_DRAFT)
    rig.memory.decode([7, 8, 9], 1)
    assert rig.memory.roll_back(n + 4) == n + 2
    assert_holds(rig, subject, [5, 6])


@pytest.mark.parametrize(("subject_name", "strategy"), SAVING_CASES)
def test_a_save_that_fails_leaves_memory_and_no_earlier_save(subject: Subject, strategy: str):
    """The earlier one is overwritten or gone; what it would bring back belongs to no position."""
    rig = prompted(subject, strategy, wrap=FaultyContext)
    rig.memory.save(N_DRAFT)
    rig.memory.decode([5, 6], 1)
    rig.context.arm(SAVES_BY[strategy], StateError(reason="injected"), 0)
    with pytest.raises(StateError, match="injected"):
        rig.memory.save(N_DRAFT)
    end = rig.memory.n_past
    assert not any(rig.memory.rollback.can_roll_back(keep) for keep in range(end + 1))
    rig.memory.decode([7], 1)
    assert_holds(rig, subject, [5, 6], [7])


@pytest.mark.parametrize(("subject_name", "strategy"), [c for c in SAVING_CASES if c[1] in ("shadow", "fork")])
def test_a_committed_save_shares_no_cell(subject: Subject, strategy: str):
    rig = prompted(subject, strategy)
    rig.memory.save(N_DRAFT)
    rig.memory.decode([5, 6], 1)
    rig.memory.commit()
    assert rig.context.seq_pos_max(1 - rig.memory.rollback.seq_id) == -1
    assert_holds(rig, subject, [5, 6])


@pytest.mark.parametrize("pattern", ["accepted-then-none", "rejected-then-none"])
@pytest.mark.parametrize(("subject_name", "strategy"), SAVING_CASES)
def test_a_round_without_a_draft_keeps_no_save(subject: Subject, strategy: str, pattern: str):
    """It commits before it decodes: a save that it kept would be read when a later draft is rejected."""
    seen: list[tuple[int, int | None]] = []

    class Watched(FaultyContext):
        def decode(self, tokens: Any, *, pos: int, seq_id: int, n_outputs: int) -> None:
            if pos >= len(subject.prompt):
                seen.append((n_outputs - 1, rig.memory.rollback.saved_pos))
            self._context.decode(tokens, pos=pos, seq_id=seq_id, n_outputs=n_outputs)

    rig = subject.rig(strategy, wrap=Watched)
    rig.run(subject.prompt, subject.script(PATTERNS[pattern], "sampled"), max_tokens=N_TOKENS, **SAMPLED)
    assert {saved is not None for n_draft, saved in seen if n_draft == 0} == {False}
    assert {saved is not None for n_draft, saved in seen if n_draft > 0} == {True}


@pytest.mark.parametrize("subject_name", ["mamba2", "qwen35", "jamba"])
def test_a_strangers_save_on_the_device_is_an_error_of_the_rollback(subject: Subject):
    """There is room for one per sequence: restoring would bring back the stranger's."""
    rig = prompted(subject, "checkpoint-device")
    rig.memory.save(N_DRAFT)
    rig.memory.decode([5, 6], 1)
    rig.context.state_save(0, State(), STATE_PARTIAL_ONLY | STATE_ON_DEVICE)
    with pytest.raises(StateError, match="later save"):
        rig.memory.roll_back(rig.memory.n_past - 1)
    assert_empty(rig)
    assert_generates_on(rig, subject)


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(("subject_name", "strategy"), SAVING_CASES)
def test_a_rollback_behind_the_save_is_refused_and_the_save_stays_good(subject: Subject, strategy: str):
    rig = prompted(subject, strategy)
    n = len(subject.prompt)
    rig.memory.save(N_DRAFT)
    rig.memory.decode([5, 6], 1)
    with pytest.raises(MemoryRefusedError):
        rig.memory.rollback.roll_back(n - 1)
    assert rig.context.seq_pos_max(rig.memory.rollback.seq_id) == n + 1
    assert rig.memory.roll_back(n) == n
    assert_holds(rig, subject)


@pytest.mark.parametrize(("subject_name", "strategy"), [c for c in CASES if c[1] != "trim"])
def test_a_sequence_whose_rollback_was_refused_is_empty(subject: Subject, strategy: str):
    """Whoever rolls back, the draft model included: a rejected token must not stay."""
    rig = prompted(subject, strategy)
    with pytest.raises(MemoryRefusedError):
        rig.memory.roll_back(len(subject.prompt) - 2)
    assert_empty(rig)
    assert_generates_on(rig, subject)


@pytest.mark.parametrize("subject_name", ["gemma3", "gpt-oss"])
def test_a_sequence_whose_window_has_moved_on_is_empty_after_a_rollback(subject: Subject):
    rig = subject.rig("trim", n_ctx=1024, n_batch=16, n_ubatch=16)
    rig.memory.feed(np.full(1000, 5, np.int32), n_last=16)
    with pytest.raises(MemoryRefusedError):
        rig.memory.roll_back(rig.context.seq_pos_min(0) + subject.model.n_swa - 1)
    assert_empty(rig)


@pytest.mark.parametrize("strategy", ["shadow", "fork", "snapshot+shadow"])
@pytest.mark.parametrize("n_rs_seq", [0, 4])
def test_memory_of_compressed_blocks_is_never_shared(
    arch_subject: Callable[[str], Subject], strategy: str, n_rs_seq: int
):
    """llama.cpp asserts on it, so the answer must come from the architecture and not from trying."""
    subject = arch_subject("deepseek4")
    with pytest.raises(UnsupportedError, match="checkpoint-host"):
        subject.rig(strategy, n_rs_seq=n_rs_seq)
    assert subject.rig("auto").memory.rollback.name == "checkpoint-host"


@pytest.mark.parametrize(("subject_name", "strategy"), [("qwen35", "shadow"), ("lfm2", "snapshot+shadow")])
def test_a_state_is_not_shared_across_separate_caches(subject: Subject, strategy: str):
    """A part of a sequence cannot be copied from one cache to another: llama.cpp asserts."""
    with pytest.raises(UnsupportedError, match="checkpoint-host"):
        subject.rig(strategy, kv_unified=False)


@pytest.mark.parametrize(
    ("subject_name", "strategy"),
    [("llama", "fork"), ("qwen35", "fork"), ("lfm2", "fork"), ("gpt-oss", "fork"), ("mamba2", "shadow")],
)
def test_what_separate_caches_can_share_rolls_back_to_the_same(subject: Subject, strategy: str):
    rig = prompted(subject, strategy, kv_unified=False)
    rig.memory.save(N_DRAFT)
    for draft in ([5, 6, 7], [8, 9]):
        rig.memory.decode(draft, 1)
        rig.memory.roll_back(len(subject.prompt))
    rig.memory.decode([11, 12], 1)
    assert_holds(rig, subject, [11, 12])


# ------------------------------------------------------------------ neighbours


@pytest.mark.parametrize(
    ("subject_name", "strategy"),
    [("llama", "trim"), ("llama", "fork"), ("gpt-oss", "trim"), ("qwen35", "shadow"), ("lfm2", "fork")],
)
def test_a_neighbour_that_fills_the_cells_ends_this_generation_and_nothing_else(subject: Subject, strategy: str):
    """llama_decode returns 1 and changes nothing; the sequence is emptied, for its state may be one of a draft."""
    n_ctx, neighbour = 256, 2
    rig = subject.rig(strategy, n_ctx=n_ctx, n_seq_max=3, kv_unified=True)
    n_held = n_ctx - len(subject.prompt) - 8
    for start in range(0, n_held, 64):
        rig.context.decode([3] * min(64, n_held - start), pos=start, seq_id=neighbour, n_outputs=0)
    with pytest.raises(ContextFullError):
        rig.run(subject.prompt, subject.script(PATTERNS["mixed"], "sampled"), max_tokens=N_TOKENS, **SAMPLED)
    assert_empty(rig)
    assert rig.context.seq_pos_max(neighbour) == n_held - 1
    rig.context.seq_rm(neighbour)
    assert_generates_on(rig, subject)
