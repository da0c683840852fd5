"""Width classes are measured on the live context, and what differs is seen."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pyspec import _core, widths
from pyspec.errors import ContextFullError


@pytest.fixture
def context(tiny_target_path: Path) -> _core.Context:
    model = _core.Model(tiny_target_path)
    return _core.Context(model, n_ctx=96, n_seq_max=2, n_ubatch=16, n_threads=1, kv_unified=True)


def test_width_two_equals_itself_and_memory_is_left_empty(context: _core.Context):
    context.decode([1, 2, 3], pos=0)
    (report,) = widths.measure_widths(context, n_context=8, widths=[2], n_tokens=16)
    assert (report.width, report.n_context, report.n_tokens, report.equal) == (2, 8, 16, True)
    assert (report.max_difference, report.n_flips, report.smallest_margin) == (0.0, 0, 0.0)
    assert context.seq_pos_max(0) == -1


@pytest.mark.parametrize("width", [1, 3, 16])
@pytest.mark.parametrize("n_context", [0, 20])
def test_a_report_tells_what_a_comparison_by_hand_finds(context: _core.Context, width: int, n_context: int):
    n = 48
    (report,) = widths.measure_widths(context, n_context=n_context, widths=[width], n_tokens=n, seed=5)
    tokens = np.random.default_rng(5).integers(0, context.model.vocab.n_tokens, n_context + n).astype(np.int32)

    def rows(step: int) -> np.ndarray:
        context.clear()
        found = []
        for start in range(0, n_context, 16):
            part = tokens[start : min(n_context, start + 16)]
            context.decode(part, pos=start, n_outputs=0)
        for pos in range(n_context, n_context + n, step):
            part = tokens[pos : pos + step]
            context.decode(part, pos=pos, n_outputs=len(part))
            found.append(context.logits())
        return np.concatenate(found)

    a, b = rows(2), rows(width)
    assert report.equal == np.array_equal(a, b)
    assert report.max_difference == float(np.abs(a - b).max())
    assert report.n_flips == int((a.argmax(1) != b.argmax(1)).sum())


def test_a_difference_of_one_logit_is_seen_and_a_flip_is_counted_with_its_margin():
    reference = np.array([[1.0, 0.5], [0.25, 0.5], [3.0, 1.0]], np.float32)
    other = reference.copy()
    other[1, 0] = 0.75
    report = widths._compare(1, 0, reference, other)
    assert (report.equal, report.max_difference, report.n_flips, report.smallest_margin) == (False, 0.5, 1, 0.25)
    assert widths.widths_of_one_class([report]) == set()


def test_a_last_step_of_another_width_is_not_compared():
    reference = np.zeros((5, 2), np.float32)
    other = reference.copy()
    other[4] = 1.0
    assert widths._compare(2, 0, reference, other).equal
    assert not widths._compare(5, 0, reference, other).equal


def test_a_width_that_differs_once_is_of_another_class():
    same = widths.WidthReport(3, 0, 6, True, 0.0, 0, 0.0)
    other = widths.WidthReport(3, 500, 6, False, 0.1, 0, 0.0)
    assert widths.widths_of_one_class([same]) == {3}
    assert widths.widths_of_one_class([same, other]) == set()


def test_the_dummy_token_leaves_its_sequence_empty(context: _core.Context):
    first, *_ = widths.measure_widths(context, n_context=4, widths=[2], n_tokens=8, scratch=1)
    assert (first.width, first.n_tokens) == (widths.PADDED, 8)
    assert context.seq_pos_max(1) == -1


def test_wider_than_the_context_allows_is_left_out(context: _core.Context):
    reports = widths.measure_widths(context, n_context=0, widths=[2, 16, 17, 64], n_tokens=32)
    assert [r.width for r in reports] == [2, 16]


def test_a_context_that_is_too_short_is_refused_and_left_empty(context: _core.Context):
    with pytest.raises(ContextFullError):
        widths.measure_widths(context, n_context=context.n_ctx, n_tokens=8)
    assert context.seq_pos_max(0) == -1


def test_every_architecture_can_be_measured(arch_model: Callable[[str], Path], arch_name: str):
    model = _core.Model(arch_model(arch_name))
    context = _core.Context(model, n_ctx=64, n_seq_max=2, n_threads=1, kv_unified=True)
    reports = widths.measure_widths(context, n_context=5, widths=[1, 2, 4], n_tokens=12, scratch=1)
    assert [r.width for r in reports] == [widths.PADDED, 1, 2, 4]
    assert all(np.isfinite(r.max_difference) for r in reports)
    assert reports[2].equal
