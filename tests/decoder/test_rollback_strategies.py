"""Each strategy by itself: what it refuses, and llama.cpp's traps that it stands in front of."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from decoder_rig import ABLE, ABLE_REAL, STRATEGIES, Rig, Subject

from pyspec._core import STATE_ON_DEVICE, STATE_PARTIAL_ONLY, State
from pyspec.errors import MemoryRefusedError, StateError, UnknownOptionError, UnsupportedError
from pyspec.rollback import check_name, needs_spare

ABLE_ALL = ABLE | ABLE_REAL
CASES = [(name, strategy) for name, able in ABLE.items() for strategy in able]
KEEPS_ACCEPTED = ("trim", "snapshot", "snapshot+shadow")
UNABLE_CASES = [(name, strategy) for name, able in ABLE_ALL.items() for strategy in STRATEGIES if strategy not in able]
REFUSED_BY_SETTINGS = [("llama", "fork"), ("mamba2", "shadow"), ("mamba2", "fork"), ("lfm2", "snapshot")]


@pytest.mark.usefixtures("smollm2_path", "gemma3_path")
@pytest.mark.parametrize(("subject_name", "strategy"), UNABLE_CASES)
def test_a_strategy_that_the_memory_cannot_do_is_refused_with_those_it_can(subject: Subject, strategy: str):
    with pytest.raises(UnsupportedError) as caught:
        subject.rig(strategy)
    way_out = str(caught.value).split("use one of ")[1]
    assert strategy not in way_out.split("or 'auto'")[0].replace(",", "").split()
    assert "checkpoint-host" in way_out


@pytest.mark.parametrize(("subject_name", "strategy"), REFUSED_BY_SETTINGS)
def test_a_strategy_that_the_settings_cannot_do_is_refused(subject: Subject, strategy: str):
    with pytest.raises(UnsupportedError, match=strategy):
        subject.rig(strategy, n_seq_max=1, kv_unified=None, n_rs_seq=0)


@pytest.mark.parametrize("subject_name", list(ABLE_ALL))
@pytest.mark.usefixtures("smollm2_path", "gemma3_path")
def test_auto_takes_the_cheapest_that_the_memory_can_do(subject: Subject):
    able = ABLE_ALL[subject.name]
    assert subject.rig("auto").memory.rollback.name == ("trim" if "trim" in able else "shadow")


@pytest.mark.parametrize("subject_name", ["mamba2", "qwen35", "lfm2"])
def test_auto_without_a_spare_sequence_takes_the_checkpoint(subject: Subject):
    rig = subject.rig("auto", n_seq_max=1, kv_unified=None)
    assert rig.memory.rollback.name == "checkpoint-host"


def test_a_name_that_does_not_exist_names_the_nearest():
    with pytest.raises(UnknownOptionError, match="did you mean 'shadow'"):
        check_name("shadwo")


def test_checkpoint_alone_means_the_one_in_host_memory():
    assert check_name("checkpoint") == "checkpoint-host"


@pytest.mark.parametrize(
    ("name", "kind", "spare"),
    [
        ("auto", "attention", False),
        ("auto", "sliding_window", False),
        ("auto", "hybrid", True),
        ("auto", "recurrent", True),
        ("fork", "attention", True),
        ("shadow", "hybrid", True),
        ("checkpoint-host", "hybrid", False),
        ("snapshot", "hybrid", False),
        ("trim", "attention", False),
    ],
)
def test_only_strategies_that_share_states_need_a_spare_sequence(name: str, kind: str, spare: bool):
    assert needs_spare(name, kind) is spare


@pytest.mark.parametrize("subject_name", list(ABLE))
def test_a_probe_leaves_an_empty_memory(subject: Subject):
    assert subject.rig().context.seq_pos_max(0) == -1


# ------------------------------------------------------------------ the life of a save


def prompted(subject: Subject, strategy: str) -> Rig:
    rig = subject.rig(strategy)
    rig.memory.decode(subject.prompt, 1)
    return rig


@pytest.mark.parametrize(("subject_name", "strategy"), [c for c in CASES if c[1] != "trim"])
def test_without_a_save_a_rollback_is_refused_and_changes_nothing(subject: Subject, strategy: str):
    rig = prompted(subject, strategy)
    rollback, n = rig.memory.rollback, len(subject.prompt)
    assert not rollback.can_roll_back(n - 2)
    with pytest.raises(MemoryRefusedError):
        rollback.roll_back(n - 2)
    assert rig.context.seq_pos_max(rollback.seq_id) == n - 1


@pytest.mark.parametrize(("subject_name", "strategy"), [c for c in CASES if c[1] not in KEEPS_ACCEPTED])
def test_a_rollback_reaches_the_save_and_no_further_back(subject: Subject, strategy: str):
    rig = prompted(subject, strategy)
    n = len(subject.prompt)
    rig.memory.save(8)
    rig.memory.decode([5, 6, 7], 1)
    assert not rig.memory.rollback.can_roll_back(n - 1)
    assert rig.memory.roll_back(n + 2) == n
    assert rig.context.seq_pos_max(rig.memory.rollback.seq_id) == n - 1


@pytest.mark.parametrize(("subject_name", "strategy"), [c for c in CASES if c[1] not in ("trim", "snapshot")])
def test_one_save_serves_any_number_of_rollbacks(subject: Subject, strategy: str):
    rig = prompted(subject, strategy)
    n = len(subject.prompt)
    rig.memory.save(8)
    rows = []
    for other in ([9, 9], [1, 2, 3, 4], [6], [9, 9]):
        rig.memory.decode(other, 1)
        rows.append(rig.context.logits(0, 1)[0])
        rig.memory.roll_back(n)
    assert rig.memory.rollback.n_saves == 1
    assert np.array_equal(rows[0], rows[3])
    assert not np.array_equal(rows[0], rows[1])


@pytest.mark.parametrize(("subject_name", "strategy"), [c for c in CASES if c[1] not in ("trim", "snapshot")])
def test_a_committed_save_is_gone(subject: Subject, strategy: str):
    rig = prompted(subject, strategy)
    rig.memory.save(8)
    rig.memory.decode([5, 6], 1)
    rig.memory.commit()
    assert not rig.memory.rollback.can_roll_back(len(subject.prompt) + 1)


# ------------------------------------------------------------------ llama.cpp's traps

SNAPSHOT_NAMES = [name for name, able in ABLE.items() if "snapshot" in able]


@pytest.mark.parametrize("subject_name", SNAPSHOT_NAMES)
def test_a_snapshot_never_undoes_the_whole_last_decode(subject: Subject):
    """llama.cpp says yes and leaves a stale state."""
    rig = prompted(subject, "snapshot")
    n = len(subject.prompt)
    rig.memory.save(8)
    rig.memory.decode([5, 6, 7], 1)
    assert not rig.memory.rollback.can_roll_back(n)
    with pytest.raises(MemoryRefusedError):
        rig.memory.rollback.roll_back(n)
    assert rig.context.seq_pos_max(0) == n + 2


@pytest.mark.parametrize("subject_name", SNAPSHOT_NAMES)
def test_a_snapshot_serves_once_between_two_decodes(subject: Subject):
    rig = prompted(subject, "snapshot")
    n = len(subject.prompt)
    rig.memory.save(8)
    rig.memory.decode([5, 6, 7, 8], 1)
    assert rig.memory.rollback.roll_back(n + 3) == n + 3
    assert not rig.memory.rollback.can_roll_back(n + 2)
    with pytest.raises(MemoryRefusedError):
        rig.memory.rollback.roll_back(n + 2)
    assert rig.context.seq_pos_max(0) == n + 2


@pytest.mark.parametrize("subject_name", SNAPSHOT_NAMES)
def test_no_draft_outgrows_the_snapshots(subject: Subject):
    rig = subject.rig("snapshot", n_rs_seq=3)
    plain = subject.plain("sampled")
    script = subject.script(((0, 8), (3, 8), (8, 8), (2, 8)), "sampled")
    run = rig.run(subject.prompt, script, max_tokens=32, temperature=1.0, seed=11, top_k=0, top_p=1.0, min_p=0.0)
    assert len(run.stats.drafted_per_position) == rig.context.n_rs_seq == 3
    assert run.tokens == plain


@pytest.mark.parametrize("subject_name", ["mamba2", "qwen35"])
def test_a_later_save_on_the_device_makes_the_earlier_one_stale(subject: Subject):
    rig = prompted(subject, "checkpoint-device")
    earlier, later = State(), State()
    rig.context.state_save(0, earlier, STATE_PARTIAL_ONLY | STATE_ON_DEVICE)
    rig.memory.decode([5], 1)
    rig.context.state_save(0, later, STATE_PARTIAL_ONLY | STATE_ON_DEVICE)
    with pytest.raises(StateError, match="later save"):
        rig.context.state_restore(0, earlier)
    rig.context.state_restore(0, later)
    assert rig.context.seq_pos_max(0) == len(subject.prompt)


@pytest.mark.parametrize("subject_name", ["mamba2", "qwen35", "lfm2", "jamba"])
def test_a_recurrent_memory_refuses_to_be_cut(arch_subject: Callable[[str], Subject], subject_name: str):
    rig = prompted(arch_subject(subject_name), "checkpoint-host")
    with pytest.raises(MemoryRefusedError):
        rig.context.seq_rm(0, 10, -1)
    assert rig.context.seq_pos_max(0) == 19


@pytest.mark.parametrize("subject_name", ["gemma3", "gpt-oss"])
def test_a_window_that_has_moved_on_is_not_trimmed_back(arch_subject: Callable[[str], Subject], subject_name: str):
    """Cells behind the window are overwritten: going back to where they are needed must be refused, not guessed."""
    subject = arch_subject(subject_name)
    rig = subject.rig("trim", n_ctx=1024, n_batch=16, n_ubatch=16)
    rig.memory.feed(np.full(1000, 5, np.int32), n_last=16)
    oldest = rig.context.seq_pos_min(0)
    assert oldest > subject.model.n_swa
    keep = oldest + subject.model.n_swa - 2
    assert not rig.memory.rollback.can_roll_back(keep)
    with pytest.raises(MemoryRefusedError):
        rig.memory.rollback.roll_back(keep)
    assert rig.memory.rollback.can_roll_back(rig.memory.n_past - 1)
