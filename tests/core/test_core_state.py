"""Laws of a sequence's state: a restored one goes on as if nothing happened; everything else is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pyspec import errors
from pyspec._core import STATE_NONE, STATE_ON_DEVICE, STATE_PARTIAL_ONLY, Context, Model, State

Make = Callable[..., Context]
PROMPT = [3, 10, 17, 24, 31, 38]
DRAFT = [90, 91, 92]
DEVICE = STATE_PARTIAL_ONLY | STATE_ON_DEVICE
ARCHS = ["llama", "gemma3", "lfm2", "qwen35", "falcon-h1", "granitehybrid", "mamba", "mamba2", "deepseek4"]


def _prompted(make: Callable[..., Context], *args: object, **options: object) -> Context:
    context = make(*args, **options)
    context.decode(PROMPT, pos=0)
    return context


def _next_row(context: Context, token: int = 50, pos: int = 6, seq_id: int = 0) -> np.ndarray:
    context.decode([token], pos=pos, seq_id=seq_id)
    return context.logits()[0]


@pytest.mark.parametrize("name", ARCHS)
def test_whole_state_brings_the_sequence_back(arch_context: Make, name: str) -> None:
    context = _prompted(arch_context, name)
    state = State()
    n_bytes = context.state_save(0, state)
    assert n_bytes == state.n_bytes == context.state_size(0) == state.view().size
    assert (state.pos_max, state.flags) == (5, STATE_NONE)
    expected = _next_row(context)
    context.seq_rm(0)
    assert context.state_restore(0, state) == n_bytes
    assert context.seq_pos_max(0) == 5
    assert np.array_equal(_next_row(context), expected)


@pytest.mark.parametrize("name", ARCHS)
def test_partial_state_undoes_a_draft_twice(arch_context: Make, name: str) -> None:
    context = _prompted(arch_context, name)
    state = State()
    context.state_save(0, state, STATE_PARTIAL_ONLY)
    expected = _next_row(_prompted(arch_context, name))
    for _ in range(2):
        context.decode(DRAFT, pos=6)
        context.state_restore(0, state)
        context.seq_rm(0, 6)
        assert context.seq_pos_max(0) == 5
    assert np.array_equal(_next_row(context), expected)


@pytest.mark.parametrize("name", ["qwen35", "falcon-h1", "granitehybrid", "mamba", "mamba2"])
def test_state_on_the_device_undoes_a_draft_twice(arch_context: Make, name: str) -> None:
    context = _prompted(arch_context, name)
    state = State()
    n_bytes = context.state_save(0, state, DEVICE)
    assert n_bytes == context.state_size(0, DEVICE) < context.state_size(0, STATE_PARTIAL_ONLY)
    expected = _next_row(_prompted(arch_context, name))
    for _ in range(2):
        context.decode(DRAFT, pos=6)
        context.state_restore(0, state)
        context.seq_rm(0, 6)
    assert np.array_equal(_next_row(context), expected)


@pytest.mark.parametrize("name", ["llama", "gemma3", "lfm2", "deepseek4"])
def test_attention_cells_are_not_kept_on_the_device(arch_context: Make, name: str) -> None:
    context = _prompted(arch_context, name)
    with pytest.raises(errors.UnsupportedError, match="device"):
        context.state_save(0, State(), DEVICE)


@pytest.mark.parametrize("name", ["llama", "lfm2", "mamba"])
def test_state_moves_to_another_sequence_and_context(arch_context: Make, name: str) -> None:
    context = _prompted(arch_context, name, n_seq_max=2)
    state = State()
    context.state_save(0, state)
    expected = _next_row(context)
    context.state_restore(1, state)
    assert np.array_equal(_next_row(context, seq_id=1), expected)
    other = arch_context(name, n_seq_max=2)
    other.state_restore(1, State.from_bytes(state.to_bytes()))
    assert np.array_equal(_next_row(other, seq_id=1), expected)


def test_buffer_is_reused_and_grows_only(make_context: Make) -> None:
    context = _prompted(make_context)
    state = State()
    assert (state.n_bytes, state.capacity_bytes, state.pos_max, state.flags) == (0, 0, -1, 0)
    context.state_save(0, state)
    capacity = state.capacity_bytes
    context.state_save(0, state, STATE_PARTIAL_ONLY)
    assert state.n_bytes < capacity == state.capacity_bytes
    state.clear()
    assert (state.n_bytes, state.capacity_bytes) == (0, 0)


def test_view_is_read_only_and_outlives_its_state(make_context: Make) -> None:
    context = _prompted(make_context)
    state = State()
    context.state_save(0, state)
    view = state.view()
    copy = view.copy()
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1
    context.decode([1], pos=6)
    context.state_save(0, state)
    state.clear()
    del state
    assert np.array_equal(view, copy)


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize("flags", [-1, 2, 4, 7, 1 << 40])
def test_unknown_flags_are_refused(make_context: Make, flags: int) -> None:
    context = _prompted(make_context)
    for use in (lambda: context.state_size(0, flags), lambda: context.state_save(0, State(), flags)):
        with pytest.raises(errors.InvalidValueError, match="flags"):
            use()


@pytest.mark.parametrize("seq_id", [-1, 1, 256])
def test_sequence_outside_the_context_is_refused(make_context: Make, seq_id: int) -> None:
    context = _prompted(make_context)
    state = State()
    context.state_save(0, state)
    uses: list[Callable[[], object]] = [
        lambda: context.state_size(seq_id),
        lambda: context.state_save(seq_id, State()),
        lambda: context.state_restore(seq_id, state),
    ]
    for use in uses:
        with pytest.raises(errors.SequenceIdError):
            use()


def test_empty_state_is_refused(make_context: Make) -> None:
    context = _prompted(make_context)
    with pytest.raises(errors.StateError, match="empty"):
        context.state_restore(0, State())
    with pytest.raises(errors.StateError, match="empty"):
        State().to_bytes()
    assert context.seq_pos_max(0) == 5


def test_state_of_an_empty_sequence_empties_a_sequence(make_context: Make) -> None:
    context = make_context()
    state = State()
    context.state_save(0, state)
    assert state.pos_max == -1
    context.decode(PROMPT, pos=0)
    context.state_restore(0, state)
    assert context.seq_pos_max(0) == -1


def test_state_of_another_model_is_refused(make_context: Make, tiny_draft_path: Path) -> None:
    state = State()
    _prompted(make_context).state_save(0, state)
    other = Context(Model(tiny_draft_path), n_ctx=256, n_threads=1)
    other.decode(PROMPT, pos=0)
    with pytest.raises(errors.StateError, match="another model"):
        other.state_restore(0, state)
    assert other.seq_pos_max(0) == 5


@pytest.mark.parametrize(
    "options",
    [
        {"type_k": "f32"},
        {"type_v": "f32"},
        {"flash_attn": False},
        {"n_seq_max": 2, "kv_unified": False},
        {"rope_freq_base": 9999.0},
    ],
    ids=str,
)
def test_state_of_other_settings_is_refused(make_context: Make, options: dict[str, object]) -> None:
    state = State()
    _prompted(make_context, flash_attn=True).state_save(0, state)
    other = _prompted(make_context, **{"flash_attn": True, **options})
    with pytest.raises(errors.StateError, match="settings"):
        other.state_restore(0, state)
    assert other.seq_pos_max(0) == 5


def test_size_of_the_context_may_differ(make_context: Make) -> None:
    context = _prompted(make_context)
    state = State()
    context.state_save(0, state)
    expected = _next_row(context)
    larger = make_context(n_ctx=1024, n_batch=128, n_seq_max=3)
    larger.state_restore(2, state)
    assert np.allclose(_next_row(larger, seq_id=2), expected, atol=1e-3)


def test_state_without_room_is_refused_and_says_that_the_sequence_is_lost(arch_context: Make) -> None:
    large = arch_context("llama", n_ctx=512)
    for pos in range(0, 320, 64):
        large.decode([3] * 64, pos=pos)
    state = State()
    large.state_save(0, state)
    small = _prompted(arch_context, "llama", n_ctx=256)
    with pytest.raises(errors.StateError, match="sequence 0 is now empty"):
        small.state_restore(0, state)
    assert small.seq_pos_max(0) == -1
    small.decode(PROMPT, pos=0)


@pytest.mark.parametrize("name", ["lfm2", "qwen35", "gemma3"])
def test_part_without_the_rest_is_refused(arch_context: Make, name: str) -> None:
    context = _prompted(arch_context, name)
    state = State()
    context.state_save(0, state, STATE_PARTIAL_ONLY)
    context.clear()
    context.decode(PROMPT[:3], pos=0)
    with pytest.raises(errors.StateError, match="position 5, and sequence 0 holds positions up to 2"):
        context.state_restore(0, state)
    assert context.seq_pos_max(0) == 2


def test_later_save_on_the_device_makes_the_earlier_stale(make_context: Make) -> None:
    context = _prompted(make_context, n_seq_max=2)
    first, second, other = State(), State(), State()
    context.state_save(0, first, DEVICE)
    context.decode([1], pos=6)
    context.decode(PROMPT, pos=0, seq_id=1)
    context.state_save(1, other, DEVICE)
    context.state_save(0, second, DEVICE)
    with pytest.raises(errors.StateError, match="later save"):
        context.state_restore(0, first)
    assert context.seq_pos_max(0) == 6
    context.state_restore(0, second)
    context.state_restore(1, other)


def test_state_on_the_device_stays_in_its_context(make_context: Make) -> None:
    context = _prompted(make_context)
    state = State()
    context.state_save(0, state, DEVICE)
    with pytest.raises(errors.StateError, match="device"):
        state.to_bytes()
    with pytest.raises(errors.StateError, match="another context"):
        _prompted(make_context).state_restore(0, state)


# ------------------------------------------------------------------ bytes and files


@pytest.fixture
def saved(make_context: Make) -> bytes:
    state = State()
    _prompted(make_context).state_save(0, state, STATE_PARTIAL_ONLY)
    return state.to_bytes()


def test_bytes_give_the_state_back(saved: bytes) -> None:
    state = State.from_bytes(saved)
    assert (state.pos_max, state.flags) == (5, STATE_PARTIAL_ONLY)
    assert state.to_bytes() == saved


@pytest.mark.parametrize("n_bytes", [1, 7, 8, 30, 55, 56, 1000, -1])
def test_truncated_bytes_are_refused(saved: bytes, n_bytes: int) -> None:
    with pytest.raises(errors.StateSizeError):
        State.from_bytes(saved[:n_bytes])


def test_bytes_that_are_too_long_are_refused(saved: bytes) -> None:
    with pytest.raises(errors.StateSizeError) as caught:
        State.from_bytes(saved + b"\x00")
    assert caught.value.n_bytes == caught.value.expected_bytes + 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "data", [b"", b"\x00" * 500, b"GGUF" * 50, bytes(range(256))], ids=["empty", "zero", "gguf", "every-byte"]
)
def test_foreign_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(errors.StateError, match="begin"):
        State.from_bytes(data)


@pytest.mark.parametrize("at", [8, 12, 16, 24, 32, 36, 48, 56, 57, 1000, -1])
def test_one_flipped_bit_is_refused(saved: bytes, at: int) -> None:
    damaged = bytearray(saved)
    damaged[at] ^= 4
    with pytest.raises(errors.StateError):
        State.from_bytes(bytes(damaged))


def test_file_gives_sequence_and_tokens_back(make_context: Make, tmp_path: Path) -> None:
    file = tmp_path / "sequence.state"
    context = _prompted(make_context)
    n_bytes = context.state_save_file(file, 0, PROMPT)
    assert file.stat().st_size == n_bytes
    assert list(tmp_path.iterdir()) == [file]
    expected = _next_row(context)
    other = make_context()
    assert other.state_load_file(str(file), 0).tolist() == PROMPT
    assert np.array_equal(_next_row(other), expected)


def test_file_that_cannot_be_written_leaves_the_old_one(make_context: Make, tmp_path: Path) -> None:
    context = _prompted(make_context)
    with pytest.raises(errors.StateError, match="No such file"):
        context.state_save_file(tmp_path / "nowhere" / "x", 0, PROMPT)
    file = tmp_path / "x"
    context.state_save_file(file, 0, PROMPT)
    before = file.read_bytes()
    with pytest.raises(errors.TokenRangeError):
        context.state_save_file(file, 0, [9999])
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "not a file written by"),
        (lambda data: b"GGUF" + data, "not a file written by"),
        (lambda data: data[:12], "expected 24"),
        (lambda data: data[:30], "truncated"),
        (lambda data: data[:100], "truncated"),
        (lambda data: data[:-1], "truncated"),
        (lambda data: data + b"x", "truncated"),
        (lambda data: data[:8] + b"\xff" * 8 + data[16:], "truncated"),
        (lambda data: data[:17] + b"\x01" + data[18:], "damaged"),
        (lambda data: data[:-9] + b"!" + data[-8:], "checksum"),
    ],
    ids=["empty", "foreign", "head", "tokens", "header", "end", "longer", "count", "token", "state"],
)
def test_damaged_file_is_refused(
    make_context: Make, tmp_path: Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    file = tmp_path / "x"
    _prompted(make_context).state_save_file(file, 0, PROMPT)
    file.write_bytes(damage(file.read_bytes()))
    context = _prompted(make_context)
    with pytest.raises(errors.StateError, match=message):
        context.state_load_file(file, 0)
    assert context.seq_pos_max(0) == 5


def test_missing_file_is_refused(make_context: Make, tmp_path: Path) -> None:
    with pytest.raises(errors.StateError, match="No such file"):
        make_context().state_load_file(tmp_path / "gone", 0)
