"""Laws of a sequence's memory: what may be removed, copied and shifted, and what is refused without a change."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pyspec import errors
from pyspec._core import Context

Make = Callable[..., Context]
PROMPT = [3, 10, 17, 24, 31, 38]


def _prompted(make: Callable[..., Context], *args: object, **options: object) -> Context:
    context = make(*args, **options)
    context.decode(PROMPT, pos=0)
    return context


def _next_row(context: Context, token: int, pos: int, seq_id: int = 0) -> np.ndarray:
    context.decode([token], pos=pos, seq_id=seq_id)
    return context.logits()[0]


def test_positions_are_those_decoded(make_context: Make) -> None:
    context = make_context(n_seq_max=2)
    assert (context.seq_pos_min(0), context.seq_pos_max(0)) == (-1, -1)
    context.decode(PROMPT, pos=0, seq_id=1)
    assert (context.seq_pos_max(0), context.seq_pos_max(1)) == (-1, 5)


def test_clear_forgets_every_sequence(make_context: Make) -> None:
    context = _prompted(make_context, n_seq_max=2)
    context.decode(PROMPT, pos=0, seq_id=1)
    row = context.logits()
    context.clear()
    assert [context.seq_pos_max(s) for s in (0, 1)] == [-1, -1]
    context.decode(PROMPT, pos=0, seq_id=1)
    assert np.array_equal(context.logits(), row)


@pytest.mark.parametrize("call", ["seq_rm", "seq_keep", "seq_pos_min", "seq_pos_max"])
@pytest.mark.parametrize("seq_id", [-1, 2, 256, 1 << 40])
def test_sequence_outside_the_context_is_refused(make_context: Make, call: str, seq_id: int) -> None:
    context = make_context(n_seq_max=2)
    with pytest.raises(errors.SequenceIdError) as caught:
        getattr(context, call)(seq_id)
    assert caught.value.seq_id == seq_id  # type: ignore[attr-defined]


@pytest.mark.parametrize(("src", "dst"), [(0, 2), (2, 0), (-1, 0)])
def test_copy_outside_the_context_is_refused(make_context: Make, src: int, dst: int) -> None:
    with pytest.raises(errors.SequenceIdError):
        make_context(n_seq_max=2).seq_cp(src, dst)


@pytest.mark.parametrize("pos", [-2, 1 << 31, 1 << 40])
def test_position_that_cannot_be_is_refused(make_context: Make, pos: int) -> None:
    context = make_context(n_seq_max=2)
    calls: list[Callable[[], object]] = [
        lambda: context.seq_rm(0, pos, -1),
        lambda: context.seq_rm(0, 0, pos),
        lambda: context.seq_cp(0, 1, pos, -1),
        lambda: context.seq_cp(0, 1, 0, pos),
        lambda: context.seq_add(0, pos, -1, 1),
    ]
    for call in calls:
        with pytest.raises(errors.InvalidValueError):
            call()


@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt-oss"])
def test_attention_forgets_an_end_and_goes_on_as_if_it_never_was(arch_context: Make, name: str) -> None:
    context = _prompted(arch_context, name)
    context.decode([90, 91, 92], pos=6)
    context.seq_rm(0, 6)
    assert context.seq_pos_max(0) == 5
    assert np.array_equal(_next_row(context, 50, 6), _next_row(_prompted(arch_context, name), 50, 6))


def test_attention_forgets_a_middle(arch_context: Make) -> None:
    context = _prompted(arch_context, "llama")
    context.seq_rm(0, 1, 3)
    assert (context.seq_pos_min(0), context.seq_pos_max(0)) == (0, 5)
    context.seq_rm(0, 0, 2)
    assert context.seq_pos_min(0) == 3


@pytest.mark.parametrize("name", ["lfm2", "qwen35", "falcon-h1", "jamba", "mamba", "mamba2", "deepseek4"])
@pytest.mark.parametrize(("p0", "p1"), [(4, -1), (5, 6), (0, 3), (2, 4)])
def test_state_cannot_forget_a_part(arch_context: Make, name: str, p0: int, p1: int) -> None:
    context = _prompted(arch_context, name)
    with pytest.raises(errors.MemoryRefusedError) as caught:
        context.seq_rm(0, p0, p1)
    assert (caught.value.seq_id, caught.value.p0, caught.value.p1) == (0, p0, p1)  # type: ignore[attr-defined]
    assert context.seq_pos_max(0) == 5
    assert np.array_equal(_next_row(context, 50, 6), _next_row(_prompted(arch_context, name), 50, 6))


@pytest.mark.parametrize("name", ["llama", "gemma3", "lfm2", "mamba", "deepseek4"])
@pytest.mark.parametrize(("p0", "p1"), [(-1, -1), (0, -1), (0, 6), (-1, 99)])
def test_every_memory_forgets_a_whole_sequence(arch_context: Make, name: str, p0: int, p1: int) -> None:
    context = _prompted(arch_context, name)
    context.seq_rm(0, p0, p1)
    assert context.seq_pos_max(0) == -1
    context.decode(PROMPT, pos=0)
    assert np.array_equal(context.logits(), _prompted(arch_context, name).logits())


@pytest.mark.parametrize("name", ["llama", "lfm2", "mamba"])
@pytest.mark.parametrize(("p0", "p1"), [(6, -1), (100, -1), (3, 3), (4, 2)])
def test_forgetting_nothing_changes_nothing(arch_context: Make, name: str, p0: int, p1: int) -> None:
    context = _prompted(arch_context, name)
    context.seq_rm(0, p0, p1)
    assert context.seq_pos_max(0) == 5


def test_window_that_was_pruned_cannot_be_returned_to(arch_context: Make) -> None:
    context = arch_context("gemma3", n_ctx=2048)
    window = context.model.n_swa
    end = 0
    while context.seq_pos_min(0) <= 0:
        context.decode([3 + end % 90] * 32, pos=end, n_outputs=0)
        end += 32
    oldest = context.seq_pos_min(0)
    with pytest.raises(errors.MemoryRefusedError):
        context.seq_rm(0, oldest + window - 1)
    assert context.seq_pos_max(0) == end - 1
    context.seq_rm(0, oldest + window)
    assert context.seq_pos_max(0) == oldest + window - 1


# ------------------------------------------------------------------ rollback by snapshots (n_rs_seq)


@pytest.mark.parametrize("name", ["lfm2", "qwen35"])
@pytest.mark.parametrize("n_removed", [1, 2, 3])
def test_snapshot_rolls_the_last_decode_back(arch_context: Make, name: str, n_removed: int) -> None:
    context = arch_context(name, n_rs_seq=4)
    context.decode(PROMPT, pos=0)
    context.decode([90, 91, 92, 93], pos=6)
    context.seq_rm(0, 10 - n_removed)
    assert context.seq_pos_max(0) == 9 - n_removed
    reference = arch_context(name, n_rs_seq=4)
    reference.decode(PROMPT, pos=0)
    reference.decode([90, 91, 92, 93][: 4 - n_removed], pos=6)
    pos = 10 - n_removed
    assert np.allclose(_next_row(context, 50, pos), _next_row(reference, 50, pos), atol=1e-4)


@pytest.mark.parametrize("n_removed", [4, 5], ids="n_removed={}".format)
def test_snapshot_has_no_state_before_the_last_decode(arch_context: Make, n_removed: int) -> None:
    context = arch_context("qwen35", n_rs_seq=8)
    context.decode(PROMPT, pos=0)
    context.decode([90, 91, 92, 93], pos=6)
    with pytest.raises(errors.MemoryRefusedError):
        context.seq_rm(0, 10 - n_removed)
    assert context.seq_pos_max(0) == 9


def test_snapshot_serves_once(arch_context: Make) -> None:
    context = arch_context("qwen35", n_rs_seq=8, n_seq_max=2)
    context.decode(PROMPT, pos=0)
    context.seq_rm(0, 5)
    with pytest.raises(errors.MemoryRefusedError):
        context.seq_rm(0, 4)
    with pytest.raises(errors.UnsupportedError, match="snapshot"):
        context.seq_cp(0, 1)
    context.decode([38], pos=5)
    context.seq_cp(0, 1)
    assert context.seq_pos_max(1) == 5


# ------------------------------------------------------------------ copies


@pytest.mark.parametrize("name", ["llama", "gemma3", "lfm2", "qwen35", "falcon-h1", "jamba", "mamba", "mamba2"])
def test_copy_goes_on_like_its_original(arch_context: Make, name: str) -> None:
    context = _prompted(arch_context, name, n_seq_max=2)
    assert context.can_seq_cp(partial=False)
    context.seq_cp(0, 1)
    assert context.seq_pos_max(1) == 5
    copied = _next_row(context, 50, 6, seq_id=1)
    assert np.array_equal(copied, _next_row(context, 50, 6))


def test_attention_shares_a_beginning(arch_context: Make) -> None:
    context = _prompted(arch_context, "llama", n_seq_max=2)
    assert context.can_seq_cp(partial=True)
    context.seq_cp(0, 1, 0, 4)
    assert context.seq_pos_max(1) == 3
    reference = arch_context("llama", n_seq_max=2)
    reference.decode(PROMPT[:4], pos=0)
    assert np.allclose(_next_row(context, 50, 4, seq_id=1), _next_row(reference, 50, 4), atol=1e-4)


def test_copy_of_a_state_without_its_end_is_refused(arch_context: Make) -> None:
    context = _prompted(arch_context, "lfm2", n_seq_max=2)
    with pytest.raises(errors.UnsupportedError, match="recurrent"):
        context.seq_cp(0, 1, 0, 4)
    assert context.seq_pos_max(1) == -1


def test_copy_of_only_the_state_leaves_the_original(arch_context: Make) -> None:
    context = _prompted(arch_context, "qwen35", n_seq_max=2)
    context.seq_cp(0, 1, 6, -1)
    context.decode([90, 91, 92], pos=6)
    context.seq_cp(1, 0, 6, -1)
    context.seq_rm(0, 6)
    assert context.seq_pos_max(0) == 5
    reference = _prompted(arch_context, "qwen35", n_seq_max=2)
    assert np.array_equal(_next_row(context, 50, 6), _next_row(reference, 50, 6))


@pytest.mark.parametrize("name", ["llama", "gemma3", "lfm2"])
def test_part_cannot_be_copied_between_separate_caches(arch_context: Make, name: str) -> None:
    context = _prompted(arch_context, name, n_seq_max=2, kv_unified=False)
    assert (context.can_seq_cp(partial=False), context.can_seq_cp(partial=True)) == (True, False)
    for p0, p1 in ((1, -1), (0, 3), (2, 4)):
        with pytest.raises(errors.UnsupportedError, match="kv_unified"):
            context.seq_cp(0, 1, p0, p1)
    assert context.seq_pos_max(1) == -1
    context.seq_cp(0, 1, 0, 6)
    assert context.seq_pos_max(1) == 5
    assert np.array_equal(_next_row(context, 50, 6, seq_id=1), _next_row(context, 50, 6))


@pytest.mark.parametrize("kv_unified", [True, False])
def test_deepseek4_copies_whole_sequences_of_separate_caches_only(arch_context: Make, kv_unified: bool) -> None:
    context = _prompted(arch_context, "deepseek4", n_seq_max=2, kv_unified=kv_unified)
    assert not context.can_seq_cp(partial=True)
    assert context.can_seq_cp(partial=False) == (not kv_unified)
    with pytest.raises(errors.UnsupportedError):
        context.seq_cp(0, 1, 3, -1)
    if kv_unified:
        with pytest.raises(errors.UnsupportedError):
            context.seq_cp(0, 1)
        assert context.seq_pos_max(1) == -1
    else:
        context.seq_cp(0, 1)
        assert context.seq_pos_max(1) == 5


@pytest.mark.parametrize("kv_unified", [True, False])
@pytest.mark.parametrize("name", ["llama", "lfm2", "mamba"])
def test_keep_forgets_every_other_sequence(arch_context: Make, name: str, kv_unified: bool) -> None:
    context = arch_context(name, n_seq_max=3, kv_unified=kv_unified)
    for seq_id in range(3):
        context.decode(PROMPT, pos=0, seq_id=seq_id)
    context.seq_keep(1)
    assert [context.seq_pos_max(s) for s in range(3)] == [-1, 5, -1]


def test_several_sequences_at_once_are_refused_where_llama_cpp_mixes_them_up(arch_context: Make) -> None:
    context = arch_context("plamo2", n_seq_max=2)
    with pytest.raises(errors.UnsupportedError):
        context.decode_batch([1, 2], [0, 0], [0, 1], [True, True])
    context.decode_batch([1, 2], [0, 1], [1, 1], [True, True])
    assert context.seq_pos_max(1) == 1


@pytest.mark.parametrize("name", ["arwkv7", "rwkv6qwen2"])
def test_several_tokens_of_several_sequences_are_refused_where_llama_cpp_mixes_them_up(
    arch_context: Make, name: str
) -> None:
    context = arch_context(name, n_seq_max=2)
    with pytest.raises(errors.UnsupportedError):
        context.decode_batch([1, 2, 3], [0, 1, 0], [0, 0, 1], [False, True, True])
    context.decode_batch([1, 2], [0, 0], [0, 1], [True, True])
    assert [context.seq_pos_max(s) for s in range(2)] == [0, 0]


def test_separate_caches_are_refused_where_llama_cpp_aborts(arch_context: Make) -> None:
    with pytest.raises(errors.UnsupportedError, match="kv_unified"):
        arch_context("kimi-linear", n_seq_max=2, kv_unified=False)


# ------------------------------------------------------------------ shifts


@pytest.mark.parametrize("delta", [-2, 3])
def test_shift_moves_positions(arch_context: Make, delta: int) -> None:
    context = _prompted(arch_context, "llama")
    assert context.can_shift
    context.seq_rm(0, 0, 2)
    context.seq_add(0, 2, -1, delta)
    assert (context.seq_pos_min(0), context.seq_pos_max(0)) == (2 + delta, 5 + delta)
    context.decode([50], pos=6 + delta)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("qwen2vl", {}),
        ("lfm2", {}),
        ("deepseek4", {}),
        ("llama", {"type_k": "bf16"}),
        ("llama", {"type_k": "q8_0"}),
    ],
    ids=str,
)
def test_shift_is_refused_where_llama_cpp_aborts(arch_context: Make, name: str, options: dict[str, object]) -> None:
    context = _prompted(arch_context, name, **options)
    assert not context.can_shift
    with pytest.raises(errors.UnsupportedError, match="can_shift"):
        context.seq_add(0, 0, -1, 2)
    assert context.seq_pos_max(0) == 5
    context.decode([50], pos=6)


@pytest.mark.parametrize("delta", [-3, 1 << 31, -(1 << 40), (1 << 31) - 4])
def test_shift_out_of_all_positions_is_refused(arch_context: Make, delta: int) -> None:
    context = _prompted(arch_context, "llama")
    with pytest.raises(errors.InvalidValueError, match="delta"):
        context.seq_add(0, 2, -1, delta)
    assert context.seq_pos_max(0) == 5


def test_state_without_cells_is_copied_between_separate_sequences(arch_context: Make) -> None:
    context = _prompted(arch_context, "mamba", n_seq_max=2, kv_unified=False)
    assert context.can_seq_cp(partial=True)
    context.seq_cp(0, 1, 6, -1)
    assert context.seq_pos_max(1) == 5
    assert np.array_equal(_next_row(context, 50, 6, seq_id=1), _next_row(context, 50, 6))
