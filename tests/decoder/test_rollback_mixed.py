"""Snapshots and a shadow within one generation: which of them undoes what, and what must never meet."""

from __future__ import annotations

import numpy as np
import pytest
from decoder_rig import PATTERNS, SAMPLINGS, Rig, Subject, replay

from pyspec.errors import MemoryRefusedError, UnsupportedError

NAMES = ["lfm2", "qwen35", "nemotron_h"]
SAMPLED = SAMPLINGS["sampled"]
named = pytest.mark.parametrize("subject_name", NAMES)


def prompted(subject: Subject, n_snapshots: int = 3) -> Rig:
    rig = subject.rig("snapshot+shadow", n_rs_seq=n_snapshots)
    rig.memory.decode(subject.prompt, 1)
    return rig


@named
@pytest.mark.parametrize("pattern", ["mixed", "each-position", "rejected-at-once", "one-save-many-tries"])
@pytest.mark.parametrize("replay_mode", ["fused", "immediate"])
def test_both_undo_drafts_of_one_generation(subject: Subject, pattern: str, replay_mode: str):
    rig = subject.rig("snapshot+shadow", n_rs_seq=2, replay=replay_mode)
    plain = subject.plain("sampled")
    run = rig.run(subject.prompt, subject.script(PATTERNS[pattern], "sampled"), max_tokens=32, **SAMPLED)
    by = run.stats.rollbacks_by_strategy
    assert set(by) <= {"snapshot", "shadow"}
    assert sum(by.values()) == run.stats.n_rollbacks
    if pattern == "mixed":
        assert set(by) == {"snapshot", "shadow"}
    assert run.tokens == plain


@named
@pytest.mark.parametrize("pattern", ["mixed", "each-position"])
def test_memory_is_as_after_decoding_what_survived(subject: Subject, pattern: str):
    rig = subject.rig("snapshot+shadow", n_rs_seq=2)
    run = rig.run(subject.prompt, subject.script(PATTERNS[pattern], "sampled"), max_tokens=32, **SAMPLED)
    again = rig.fresh()
    replay(again, run.decodes, filler=5)
    assert rig.state_bytes() == again.state_bytes()
    pending = run.history[len(run.held) :]
    assert np.array_equal(rig.next_logits(pending), again.next_logits(pending))


@named
def test_a_few_rejected_tokens_are_undone_by_the_cursor_also_of_a_long_draft(subject: Subject):
    rig = prompted(subject)
    n = len(subject.prompt)
    rig.memory.save(6)
    rig.memory.decode([5, 6, 7, 8, 9, 10, 11], 1)
    assert rig.memory.roll_back(n + 4) == n + 4
    assert rig.memory.rollback.undone_by == "snapshot"
    assert rig.context.seq_pos_max(1) == -1, "the shadow is of no more use"


@named
def test_more_than_the_snapshots_are_undone_by_the_shadow(subject: Subject):
    rig = prompted(subject)
    n = len(subject.prompt)
    rig.memory.save(6)
    rig.memory.decode([5, 6, 7, 8, 9, 10, 11], 1)
    assert rig.memory.roll_back(n + 3) == n
    assert rig.memory.rollback.undone_by == "shadow"
    assert rig.memory.rollback.n_saves == 1


@named
def test_a_short_draft_shares_nothing(subject: Subject):
    rig = prompted(subject)
    n = len(subject.prompt)
    rig.memory.save(3)
    assert rig.context.seq_pos_max(1) == -1
    rig.memory.decode([5, 6, 7, 8], 1)
    assert rig.memory.roll_back(n + 1) == n + 1


@named
def test_a_short_draft_cannot_be_undone_whole_decode_and_all(subject: Subject):
    """llama.cpp says yes and leaves a stale state."""
    rig = prompted(subject)
    n = len(subject.prompt)
    rig.memory.save(2)
    rig.memory.decode([5, 6, 7], 1)
    assert not rig.memory.rollback.can_roll_back(n)
    with pytest.raises(MemoryRefusedError):
        rig.memory.rollback.roll_back(n)
    assert rig.context.seq_pos_max(0) == n + 2


@named
def test_no_state_is_shared_while_the_cursor_is_moved(subject: Subject):
    """The cursor belongs to the sequence: a shadow taken now would hold the state before the rollback."""
    rig = prompted(subject)
    n = len(subject.prompt)
    rollback = rig.memory.rollback
    rig.memory.save(3)
    rig.memory.decode([5, 6, 7, 8], 1)
    rig.memory.roll_back(n + 2)
    assert rollback.max_draft == 3
    with pytest.raises(MemoryRefusedError):
        rollback.save(n + 2, 4)
    rig.memory.save(3)
    rig.memory.decode([9], 1)
    assert rollback.max_draft > 3
    rig.memory.commit()
    rig.memory.save(8)
    rig.memory.decode([1, 2, 3, 4, 5, 6, 7, 8, 9], 1)
    assert rig.memory.roll_back(n + 4) == n + 3
    other = subject.rig("snapshot+shadow", n_rs_seq=3)
    other.memory.decode(subject.prompt, 1)
    other.memory.decode([5, 6, 44, 45], 1)
    other.context.seq_rm(0, n + 2, -1)
    other.memory.n_past = n + 2
    other.memory.decode([9], 1)
    assert rig.state_bytes() == other.state_bytes()


@named
def test_a_cursor_serves_once_between_two_decodes(subject: Subject):
    rig = prompted(subject)
    n = len(subject.prompt)
    rig.memory.save(3)
    rig.memory.decode([5, 6, 7, 8], 1)
    rig.memory.roll_back(n + 3)
    rig.memory.save(3)
    assert not rig.memory.rollback.can_roll_back(n + 2)
    with pytest.raises(MemoryRefusedError):
        rig.memory.rollback.roll_back(n + 2)


@pytest.mark.parametrize("subject_name", ["falcon-h1", "llama"])
def test_without_snapshots_it_is_refused(subject: Subject):
    with pytest.raises(UnsupportedError, match="n_rs_seq=0"):
        subject.rig("snapshot+shadow", n_rs_seq=3)


@named
def test_auto_mixes_where_the_context_keeps_snapshots(subject: Subject):
    assert subject.rig("auto", n_rs_seq=3).memory.rollback.name == "snapshot+shadow"
    assert subject.rig("auto", n_rs_seq=0).memory.rollback.name == "shadow"
