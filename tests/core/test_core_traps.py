"""Laws of what lies between two calls: snapshots that another call made stale, rows and copies that are no more.

llama.cpp would go on in each of these cases without a word, or abort.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pyspec import errors
from pyspec._core import STATE_NONE, STATE_PARTIAL_ONLY, Context, State

Make = Callable[..., Context]
PROMPT = [3, 10, 17, 24, 31, 38]
DRAFT = [90, 91, 92, 93]
N = len(PROMPT)
SNAPSHOTS = ["lfm2", "qwen35", "nemotron_h"]


def _drafted(make: Make, name: str, **options: object) -> Context:
    """Sequence 0 with a prompt and a draft behind it that snapshots could undo."""
    context = make(name, **({"n_rs_seq": 4, "n_seq_max": 2} | options))
    context.decode(PROMPT, pos=0)
    context.decode(DRAFT, pos=N)
    return context


def _next_row(context: Context, token: int, pos: int, seq_id: int = 0) -> np.ndarray:
    context.decode([token], pos=pos, seq_id=seq_id)
    return context.logits()[0]


# ------------------------------------------------------------------ snapshots that are gone


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_decode_of_other_sequences_ends_the_snapshots_of_one(arch_context: Make, name: str) -> None:
    """It may move the state of a sequence that it does not decode; its snapshots stay behind."""
    context = arch_context(name, n_rs_seq=4, n_seq_max=3)
    for seq_id in (0, 1, 2):
        context.decode(PROMPT, pos=0, seq_id=seq_id)
    context.decode(DRAFT, pos=N, seq_id=1)
    context.decode_batch([5, 6], [N, N], [0, 2], [True, True])
    with pytest.raises(errors.MemoryRefusedError):
        context.seq_rm(1, N + 2)
    assert context.seq_pos_max(1) == N + 3


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_rollback_by_snapshot_survives_a_decode_of_other_sequences(arch_context: Make, name: str) -> None:
    rows = []
    for others in (True, False):
        context = arch_context(name, n_rs_seq=4, n_seq_max=3)
        for seq_id in (0, 1, 2):
            context.decode(PROMPT, pos=0, seq_id=seq_id)
        context.decode(DRAFT, pos=N, seq_id=1)
        context.seq_rm(1, N + 2)
        if others:
            context.decode_batch([5, 6], [N, N], [0, 2], [True, True])
        rows.append(_next_row(context, 50, N + 2, seq_id=1))
    assert np.array_equal(*rows)


@pytest.mark.parametrize("flags", [STATE_NONE, STATE_PARTIAL_ONLY], ids=["whole", "partial"])
@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_restored_state_has_no_snapshots(arch_context: Make, name: str, flags: int) -> None:
    context = arch_context(name, n_rs_seq=4)
    context.decode(PROMPT, pos=0)
    state = State()
    context.state_save(0, state, flags)
    context.decode(DRAFT, pos=N)
    context.state_restore(0, state)
    with pytest.raises(errors.MemoryRefusedError):
        context.seq_rm(0, N - 1)
    assert context.seq_pos_max(0) == N - 1


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_restored_state_replaces_a_rollback_by_snapshot(arch_context: Make, name: str) -> None:
    context = _drafted(arch_context, name)
    state = State()
    context.state_save(0, state)
    expected = _next_row(context, 50, N + 4)
    context = _drafted(arch_context, name)
    context.seq_rm(0, N + 2)
    context.state_restore(0, state)
    context.seq_cp(0, 1)
    assert np.array_equal(_next_row(context, 50, N + 4, seq_id=1), expected)


@pytest.mark.parametrize("flags", [STATE_NONE, STATE_PARTIAL_ONLY], ids=["whole", "partial"])
@pytest.mark.parametrize("name", [*SNAPSHOTS, "deepseek4"])
def test_a_state_saved_after_a_rollback_by_snapshot_is_the_earlier_one(
    arch_context: Make, name: str, flags: int
) -> None:
    expected = _drafted(arch_context, name, n_seq_max=1)
    expected.seq_rm(0, N + 2)
    context = _drafted(arch_context, name, n_seq_max=1)
    context.seq_rm(0, N + 2)
    state = State()
    context.state_save(0, state, flags)
    context.decode([7, 8, 9], pos=N + 2)
    context.state_restore(0, state)
    if flags == STATE_PARTIAL_ONLY:
        context.seq_rm(0, N + 2)
    assert context.seq_pos_max(0) == N + 1
    assert np.array_equal(_next_row(context, 50, N + 2), _next_row(expected, 50, N + 2))


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_copied_state_has_no_snapshots(arch_context: Make, name: str) -> None:
    context = arch_context(name, n_rs_seq=8, n_seq_max=2)
    context.decode(PROMPT + DRAFT, pos=0)
    context.decode(DRAFT, pos=0, seq_id=1)
    context.seq_cp(0, 1, N + 4, -1)
    with pytest.raises(errors.MemoryRefusedError):
        context.seq_rm(1, 2)


def test_a_cleared_sequence_waits_for_no_rollback(arch_context: Make) -> None:
    context = _drafted(arch_context, "qwen35")
    context.seq_rm(0, N + 2)
    context.clear()
    context.seq_cp(0, 1)
    assert (context.seq_pos_max(0), context.seq_pos_max(1)) == (-1, -1)


def test_a_rollback_by_snapshot_still_waits_after_a_decode_that_found_no_room(arch_context: Make) -> None:
    context = arch_context("qwen35", n_rs_seq=4, n_seq_max=3, n_batch=64, n_ubatch=64)
    for pos in (0, 64, 128):
        context.decode([3] * 64, pos=pos, seq_id=1)
    context.decode([3] * 50, pos=192, seq_id=1)
    context.decode(PROMPT, pos=0)
    context.seq_rm(0, 4)
    with pytest.raises(errors.ContextFullError):
        context.decode([7] * 30, pos=4)
    assert context.seq_pos_max(0) == 3
    with pytest.raises(errors.UnsupportedError, match="snapshot"):
        context.seq_cp(0, 2)


@pytest.mark.parametrize("n_ubatch", [5, 6])
@pytest.mark.parametrize("name", SNAPSHOTS)
def test_the_kept_states_and_one_token_more_must_fit_one_ubatch(arch_context: Make, name: str, n_ubatch: int) -> None:
    options = {"n_rs_seq": 4, "n_batch": 64, "n_ubatch": n_ubatch}
    if n_ubatch == 5:  # llama.cpp asserts in the first decode
        with pytest.raises(errors.InvalidValueError, match="n_ubatch"):
            arch_context(name, **options)
        return
    context = arch_context(name, **options)
    context.decode([*PROMPT, *DRAFT, *PROMPT], pos=0)
    context.seq_rm(0, 12)
    reference = arch_context(name, **options)
    reference.decode([*PROMPT, *DRAFT, *PROMPT[:2]], pos=0)
    row = _next_row(context, 50, 12)
    assert np.abs(row - _next_row(reference, 50, 12)).max() <= 1e-4 * row.std()


# ------------------------------------------------------------------ rows that are gone


def test_a_decode_that_found_no_room_leaves_no_rows(arch_context: Make) -> None:
    context = arch_context("llama")
    for pos in range(0, 256, 64):
        context.decode([3] * 64, pos=pos)
    assert context.n_outputs == 1
    with pytest.raises(errors.ContextFullError):
        context.decode([3], pos=256)
    assert context.n_outputs == 0
    with pytest.raises(errors.NoOutputError):
        context.logits()


def test_rows_of_a_batch_begin_at_its_first_after_a_decode_that_skipped_some(arch_context: Make) -> None:
    """cogvlm computes every row; those that were not asked for stand before the others."""
    rows = []
    for n_outputs in (1, len(PROMPT)):
        context = arch_context("cogvlm")
        context.decode(PROMPT, pos=0, n_outputs=n_outputs)
        context.decode_batch([5, 6], [N, N + 1], [0, 0], [True, True])
        rows.append(context.logits())
    assert np.array_equal(*rows)


# ------------------------------------------------------------------ copies


@pytest.mark.parametrize("name", ["llama", "gemma3", "lfm2"])
def test_a_copy_never_lies_beside_what_a_sequence_holds(arch_context: Make, name: str) -> None:
    context = arch_context(name, n_seq_max=2)
    context.decode(PROMPT, pos=0)
    context.decode(DRAFT, pos=0, seq_id=1)
    with pytest.raises(errors.InvalidValueError, match="remove them first"):
        context.seq_cp(0, 1)
    assert context.seq_pos_max(1) == 3
    reference = arch_context(name, n_seq_max=2)
    reference.decode(DRAFT, pos=0, seq_id=1)
    assert np.array_equal(_next_row(context, 50, 4, seq_id=1), _next_row(reference, 50, 4, seq_id=1))
    context.seq_rm(1)
    context.seq_cp(0, 1)
    assert context.seq_pos_max(1) == N - 1


def test_a_beginning_is_not_copied_once_its_window_has_moved_on(arch_context: Make) -> None:
    context = arch_context("gemma3", n_ctx=2048, n_seq_max=2)
    end = 0
    while context.seq_pos_min(0) <= 0:
        context.decode([3 + end % 90] * 32, pos=end, n_outputs=0)
        end += 32
    whole = context.seq_pos_min(0) + context.model.n_swa
    with pytest.raises(errors.UnsupportedError, match="sliding window"):
        context.seq_cp(0, 1, 0, whole - 1)
    assert context.seq_pos_max(1) == -1
    context.seq_cp(0, 1, 0, whole)
    assert context.seq_pos_max(1) == whole - 1


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_nothing_is_copied_onto_a_sequence_whose_rollback_waits(arch_context: Make, name: str) -> None:
    """llama.cpp's cursor belongs to the sequence: the copied state would be looked for in another one's place."""
    context = arch_context(name, n_rs_seq=4, n_seq_max=2)
    context.decode(PROMPT + DRAFT[:2], pos=0)
    context.decode(PROMPT, pos=0, seq_id=1)
    context.decode(DRAFT, pos=N, seq_id=1)
    context.seq_rm(1, N + 2)
    with pytest.raises(errors.UnsupportedError, match="snapshot"):
        context.seq_cp(0, 1, N + 2, -1)
    context.decode([50], pos=N + 2, seq_id=1)
    context.seq_rm(1)
    context.seq_cp(0, 1)
    assert context.seq_pos_max(1) == N + 1
