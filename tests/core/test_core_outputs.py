"""Laws of output rows: which exist, what they hold, and greedy choice from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pyspec import errors
from pyspec._core import Context, Model

Make = Callable[..., Context]


@pytest.fixture
def context(make_context: Make) -> Context:
    made = make_context()
    made.decode([5, 6, 7, 8, 9], pos=0, n_outputs=4)
    return made


def test_rows_are_copies_in_batch_order(context: Context) -> None:
    rows = context.logits()
    assert (rows.shape, rows.dtype) == ((4, 4096), np.float32)
    assert np.array_equal(context.logits(1, 2), rows[1:3])
    assert np.array_equal(context.logits(3), rows[3:])
    kept = rows.copy()
    context.decode([10], pos=5)
    assert np.array_equal(rows, kept)


def test_greedy_choice_is_numpys_argmax(context: Context) -> None:
    expected = context.logits().argmax(axis=1).tolist()
    assert context.argmax_rows().tolist() == expected
    assert [context.argmax(row) for row in range(4)] == expected
    assert context.argmax_rows(1, 2).tolist() == expected[1:3]
    assert context.argmax_rows(2).tolist() == expected[2:]
    assert context.argmax_rows().dtype == np.int32


@pytest.mark.parametrize(
    ("first_row", "n_rows", "row"),
    [(4, 1, 4), (-1, 1, -1), (0, 5, 4), (3, 2, 4), (4, None, 4), (1 << 40, None, 1 << 40)],
)
@pytest.mark.parametrize("method", ["logits", "argmax_rows"])
def test_row_that_does_not_exist_is_named(
    context: Context, method: str, first_row: int, n_rows: int | None, row: int
) -> None:
    with pytest.raises(errors.OutputRowError) as caught:
        getattr(context, method)(first_row, n_rows)
    assert (caught.value.row, caught.value.n_outputs) == (row, 4)  # type: ignore[attr-defined]


def test_argmax_of_a_row_that_does_not_exist_is_refused(context: Context) -> None:
    for row in (-1, 4):
        with pytest.raises(errors.OutputRowError):
            context.argmax(row)


def test_negative_count_of_rows_is_refused(context: Context) -> None:
    with pytest.raises(errors.InvalidValueError, match="n_rows"):
        context.logits(0, -1)


def test_no_rows_can_be_asked_for(context: Context) -> None:
    assert context.logits(0, 0).shape == (0, 4096)
    assert context.argmax_rows(0, 0).shape == (0,)


def _nothing_decoded(context: Context) -> None:
    pass


def _no_rows_asked(context: Context) -> None:
    context.decode([1, 2], pos=0, n_outputs=0)


@pytest.mark.parametrize("before", [_nothing_decoded, _no_rows_asked])
def test_no_output_is_an_error(make_context: Make, before: Callable[[Context], None]) -> None:
    context = make_context()
    before(context)
    for use in (context.logits, context.argmax_rows, lambda: context.argmax(0)):
        with pytest.raises(errors.NoOutputError):
            use()


def test_decode_that_never_began_leaves_the_rows(context: Context) -> None:
    rows = context.logits()
    context.abort()
    with pytest.raises(errors.AbortedError):
        context.decode([1], pos=5)
    assert np.array_equal(context.logits(), rows)


def test_logits_that_are_not_numbers_are_refused(tiny_draft_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "nan.gguf"
    file.write_bytes(tiny_draft_path.read_bytes()[:-2048] + b"\xff" * 2048)
    context = Context(Model(file), n_ctx=64, n_threads=1)
    context.decode([5, 6, 7], pos=0)
    assert np.isnan(context.logits()).any()
    for use in (context.argmax_rows, lambda: context.argmax(0)):
        with pytest.raises(errors.SamplerError, match="NaN"):
            use()


ARCHS = ["cogvlm", "llama", "lfm2", "qwen35", "falcon-h1", "mamba2", "gemma3", "gpt-oss", "kimi-linear"]


@pytest.mark.parametrize("n_outputs", [1, 2, 3])
@pytest.mark.parametrize("name", ARCHS)
def test_rows_that_were_asked_for_are_those_of_the_last_tokens(arch_context: Make, name: str, n_outputs: int) -> None:
    """cogvlm's graph in llama.cpp computes the first rows instead."""

    def rows(n: int) -> np.ndarray:
        context = arch_context(name)
        context.decode([3, 17, 42, 8, 77], pos=0)
        context.decode([21, 64, 90, 11], pos=5, n_outputs=n)
        assert context.n_outputs == n
        return context.logits()

    every = rows(4)
    some = rows(n_outputs)
    # one row alone may be summed in another order than several
    assert np.abs(some - every[4 - n_outputs :]).max() <= 1e-4 * every.std()
    assert np.abs(every[0] - every[3]).max() > 1e-2 * every.std(), "the rows can be told apart"


def test_rows_chosen_inside_a_batch_are_refused_where_llama_cpp_mixes_them_up(arch_context: Make) -> None:
    context = arch_context("cogvlm", n_seq_max=2, kv_unified=True)
    with pytest.raises(errors.UnsupportedError, match="wrong ones"):
        context.decode_batch([3, 17, 42], [0, 0, 1], [0, 1, 0], [False, True, True])
    context.decode_batch([3, 17, 42], [0, 0, 1], [0, 1, 0], [True, True, True])
    assert context.n_outputs == 3
