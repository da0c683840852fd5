"""Laws of decoding: what is checked before llama.cpp sees it, and what each status means."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from pyspec import errors
from pyspec._core import Context

Make = Callable[..., Context]
PROMPT = [7, 11, 13, 17, 19, 23]


@pytest.mark.parametrize(
    "tokens",
    [
        tuple(PROMPT),
        np.array(PROMPT, dtype=np.int32),
        np.array(PROMPT, dtype=np.int64),
        np.array(PROMPT, dtype=np.uint64),
        np.array(PROMPT, dtype=np.uint8),
        np.array([t for token in PROMPT for t in (token, 0)], dtype=np.int32)[::2],
        [np.int64(t) for t in PROMPT],
        range(7, 7),
    ],
    ids=["tuple", "int32", "int64", "uint64", "uint8", "strided", "numpy-scalars", "empty-range"],
)
def test_any_array_of_integers_decodes_alike(make_context: Make, tokens: object) -> None:
    context = make_context()
    if len(tokens) == 0:  # type: ignore[arg-type]
        with pytest.raises(errors.EmptyBatchError):
            context.decode(tokens, pos=0)  # type: ignore[arg-type]
        return
    context.decode(tokens, pos=0)  # type: ignore[arg-type]
    reference = make_context()
    reference.decode(PROMPT, pos=0)
    assert np.array_equal(context.logits(), reference.logits())


@pytest.mark.parametrize(
    "tokens",
    [
        [1.5],
        np.array([1.0, 2.0]),
        [True],
        np.array([True]),
        [[1, 2]],
        np.zeros((2, 2), dtype=np.int32),
        5,
        "12",
        [1 << 31],
        [1 << 70],
        np.array([1 << 40]),
        np.array([1 << 63], dtype=np.uint64),
        [None],
    ],
    ids=str,
)
def test_what_is_no_array_of_integers_is_refused(make_context: Make, tokens: object) -> None:
    context = make_context()
    with pytest.raises(errors.InvalidValueError) as caught:
        context.decode(tokens, pos=0)  # type: ignore[arg-type]
    assert caught.value.name == "tokens"
    assert context.seq_pos_max(0) == -1


@pytest.mark.parametrize(
    ("tokens", "options", "kind", "numbers"),
    [
        ([], {"pos": 3}, errors.EmptyBatchError, {}),
        ([1] * 65, {"pos": 3}, errors.BatchTooLargeError, {"n_tokens": 65, "n_batch": 64}),
        ([1, -1], {"pos": 3}, errors.TokenRangeError, {"token": -1, "index": 1, "n_vocab": 4096}),
        ([4096], {"pos": 3}, errors.TokenRangeError, {"token": 4096, "index": 0}),
        ([1], {"pos": 3, "seq_id": 2}, errors.SequenceIdError, {"seq_id": 2, "n_seq_max": 2}),
        ([1], {"pos": 3, "seq_id": -1}, errors.SequenceIdError, {"seq_id": -1}),
        ([1], {"pos": 2}, errors.PositionError, {"seq_id": 0, "pos": 2, "expected": 3}),
        ([1], {"pos": 4}, errors.PositionError, {"expected": 3}),
        ([1], {"pos": -1}, errors.PositionError, {"expected": 3}),
        ([1], {"pos": 3, "seq_id": 1}, errors.PositionError, {"seq_id": 1, "expected": 0}),
        ([1] * 9, {"pos": 3, "n_outputs": 9}, errors.TooManyOutputsError, {"n_outputs": 9, "n_outputs_max": 8}),
        ([1, 2], {"pos": 3, "n_outputs": 3}, errors.InvalidValueError, {"name": "n_outputs", "value": 3}),
        ([1, 2], {"pos": 3, "n_outputs": -1}, errors.InvalidValueError, {"name": "n_outputs"}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else str(value)[:30],
)
def test_refused_decode_changes_nothing(
    make_context: Make,
    tokens: list[int],
    options: dict[str, int],
    kind: type[errors.PyspecError],
    numbers: dict[str, object],
) -> None:
    context = make_context(n_seq_max=2, n_outputs_max=8)
    context.decode([1, 2, 3], pos=0)
    before = context.logits()
    with pytest.raises(kind) as caught:
        context.decode(tokens, **options)
    for name, value in numbers.items():
        assert getattr(caught.value, name) == value
    assert context.seq_pos_max(0) == 2
    assert np.array_equal(context.logits(), before)


def test_pieces_of_a_prompt_give_the_rows_of_the_whole(make_context: Make) -> None:
    whole = make_context(n_batch=64, n_ubatch=64)
    whole.decode(PROMPT + PROMPT, pos=0, n_outputs=3)
    parts = make_context(n_batch=64, n_ubatch=64)
    parts.decode(PROMPT, pos=0, n_outputs=0)
    assert parts.n_outputs == 0
    parts.decode(PROMPT, pos=6, n_outputs=3)
    assert np.allclose(whole.logits(), parts.logits(), atol=0.3)
    assert whole.argmax_rows().tolist() == parts.argmax_rows().tolist()


@pytest.mark.parametrize("kv_unified", [True, False], ids=["unified", "separate"])
def test_batch_of_sequences_keeps_its_row_order(make_context: Make, kv_unified: bool) -> None:
    alone = make_context(n_seq_max=2, kv_unified=kv_unified)
    alone.decode([5, 6, 7], pos=0, seq_id=0, n_outputs=3)
    first = alone.logits()
    alone.decode([8, 9, 10], pos=0, seq_id=1, n_outputs=3)
    second = alone.logits()
    both = make_context(n_seq_max=2, kv_unified=kv_unified)
    both.decode_batch([8, 5, 6, 9, 10, 7], [0, 0, 1, 1, 2, 2], [1, 0, 0, 1, 1, 0], [True] * 6)
    rows = both.logits()
    expected = np.stack([second[0], first[0], first[1], second[1], second[2], first[2]])
    assert np.allclose(rows, expected, atol=0.3)
    assert rows.argmax(axis=1).tolist() == expected.argmax(axis=1).tolist()


@pytest.mark.parametrize(
    ("tokens", "pos", "seq_ids", "outputs", "kind"),
    [
        ([], [], [], [], errors.EmptyBatchError),
        ([1, 2], [0], [0, 0], [True, True], errors.InvalidValueError),
        ([1, 2], [0, 1], [0], [True, True], errors.InvalidValueError),
        ([1, 2], [0, 1], [0, 0], [True], errors.InvalidValueError),
        ([1, 2], [0, 1], [0, 0], [1, 0], errors.InvalidValueError),
        ([1, 2], [0, 2], [0, 0], [True, True], errors.PositionError),
        ([1, 2], [1, 0], [0, 0], [True, True], errors.PositionError),
        ([1, 2], [0, 0], [0, 0], [True, True], errors.PositionError),
        ([1, 2], [0, 1], [0, 1], [True, True], errors.PositionError),
        ([1, 2], [0, 0], [0, 7], [True, True], errors.SequenceIdError),
        ([1, 9999], [0, 0], [0, 1], [True, True], errors.TokenRangeError),
        ([1] * 65, list(range(65)), [0] * 65, [False] * 65, errors.BatchTooLargeError),
        ([1] * 9, list(range(9)), [0] * 9, [True] * 9, errors.TooManyOutputsError),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else str(value)[:20],
)
def test_refused_batch_changes_nothing(
    make_context: Make,
    tokens: list[int],
    pos: list[int],
    seq_ids: list[int],
    outputs: list[object],
    kind: type[errors.PyspecError],
) -> None:
    context = make_context(n_seq_max=2, n_outputs_max=8)
    with pytest.raises(kind):
        context.decode_batch(tokens, pos, seq_ids, outputs)
    assert [context.seq_pos_max(s) for s in (0, 1)] == [-1, -1]


@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen35"])
def test_full_context_is_named_and_left_as_it_was(arch_context: Make, name: str) -> None:
    context = arch_context(name)
    for pos in range(0, 256, 64):
        context.decode([3] * 64, pos=pos)
    with pytest.raises(errors.ContextFullError) as caught:
        context.decode([3, 4], pos=256)
    assert (caught.value.n_past, caught.value.n_new, caught.value.n_ctx) == (256, 2, 256)
    assert context.seq_pos_max(0) == 255


def test_other_sequences_count_when_a_shared_cache_is_full(arch_context: Make) -> None:
    context = arch_context("llama", n_seq_max=2)
    for pos in range(0, 192, 64):
        context.decode([3] * 64, pos=pos)
    context.decode([4] * 60, pos=0, seq_id=1)
    with pytest.raises(errors.ContextFullError) as caught:
        context.decode([4] * 8, pos=60, seq_id=1)
    assert caught.value.n_past == 252
    assert context.seq_pos_max(1) == 59


def test_recurrent_memory_has_no_end(arch_context: Make) -> None:
    context = arch_context("mamba")
    for pos in range(0, 640, 64):
        context.decode([3] * 64, pos=pos)
    assert context.seq_pos_max(0) == 639


def test_positions_end_where_the_model_has_a_table_of_them(arch_context: Make) -> None:
    context = arch_context("gpt2", n_ctx=1024)
    end = context.model.n_ctx_train
    assert end < 1024, "the random gpt2 has fewer positions than the context"
    for pos in range(0, end, 64):
        context.decode([3] * 64, pos=pos)
    with pytest.raises(errors.ContextFullError) as caught:
        context.decode([3], pos=end)
    assert caught.value.n_ctx == end


def test_abort_without_a_decode_stops_the_next_one_and_no_other(make_context: Make) -> None:
    context = make_context()
    context.abort()
    with pytest.raises(errors.AbortedError):
        context.decode([1, 2, 3], pos=0)
    assert context.seq_pos_max(0) == -1
    context.decode([1, 2, 3], pos=0)
    assert context.seq_pos_max(0) == 2


def test_an_abort_that_was_taken_back_stops_nothing(make_context: Make) -> None:
    context = make_context()
    context.abort()
    context.clear_abort()
    context.decode([1, 2, 3], pos=0)
    assert context.seq_pos_max(0) == 2


def _decode_until_stopped(context: Context) -> None:
    pos = 0
    while True:
        if pos + 512 > context.n_ctx:
            context.clear()
            pos = 0
        context.decode([3] * 512, pos=pos, n_outputs=0)
        pos += 512


def test_abort_from_another_thread_stops_a_decode(make_context: Make) -> None:
    context = make_context(n_ctx=4096, n_batch=512, n_ubatch=512)
    timer = threading.Timer(0.2, context.abort)
    timer.start()
    with pytest.raises(errors.AbortedError):
        _decode_until_stopped(context)
    timer.join()
    assert context.n_outputs == 0
    context.clear()
    context.decode(PROMPT, pos=0)
    fresh = make_context(n_ctx=4096, n_batch=512, n_ubatch=512)
    fresh.decode(PROMPT, pos=0)
    assert np.array_equal(context.logits(), fresh.logits())


def test_interrupt_stops_a_decode_and_leaves_a_usable_context(make_context: Make) -> None:
    context = make_context(n_ctx=4096, n_batch=512, n_ubatch=512)
    timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        _decode_until_stopped(context)
    timer.join()
    context.clear()
    context.decode(PROMPT, pos=0)
    assert context.seq_pos_max(0) == len(PROMPT) - 1


def test_interrupt_inside_one_long_decode_does_not_wait_for_its_end(make_context: Make) -> None:
    context = make_context(n_ctx=8192, n_batch=8192, n_ubatch=128)
    started = time.monotonic()
    context.decode([3] * 8192, pos=0, n_outputs=0)
    whole_s = time.monotonic() - started
    context.clear()
    timer = threading.Timer(whole_s / 10, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        context.decode([3] * 8192, pos=0, n_outputs=0)
    timer.join()
    assert context.seq_pos_max(0) < 8191
