"""Laws of threads: one at a time in a context, the second gets an error at once, others go on meanwhile."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from pyspec import errors
from pyspec._core import Context, Model, State

Make = Callable[..., Context]


def _during_a_decode(make_context: Make, use: Callable[[Context], object]) -> tuple[object, Context]:
    """What `use` returned, or the refusal that it raised, while another thread was decoding; and the context.

    On a busy machine the decode may be over before this thread gets its turn: then it counts for nothing.
    """
    for _ in range(20):
        context = make_context(n_ctx=16384, n_batch=16384, n_ubatch=256, n_seq_max=2, n_outputs_max=64)
        thread = threading.Thread(target=_decode_long, args=(context,))
        thread.start()
        outcome: object
        try:
            while thread.is_alive() and not _is_busy(context):
                pass
            try:
                outcome = use(context)
            except errors.PyspecError as error:
                outcome = error
            still_at_work = thread.is_alive()
        finally:
            with contextlib.suppress(errors.ClosedError):
                context.abort()
            thread.join()
        if still_at_work:
            return outcome, context
    raise AssertionError("no decode was seen at work")


def _decode_long(context: Context) -> None:
    while True:
        try:
            context.decode([3] * 16384, pos=0, n_outputs=0)
        except errors.BusyError:
            continue  # the other thread was just looking
        except (errors.AbortedError, errors.ClosedError):
            pass
        return


def _is_busy(context: Context) -> bool:
    try:
        context.seq_pos_max(1)
    except errors.BusyError:
        return True
    return False


@pytest.mark.parametrize(
    "use",
    [
        lambda c: c.decode([], pos=0),
        lambda c: c.decode_batch([], [], [], []),
        lambda c: c.logits(),
        lambda c: c.argmax(0),
        lambda c: c.argmax_rows(),
        lambda c: c.clear(),
        lambda c: c.seq_rm(9),
        lambda c: c.seq_cp(9, 0),
        lambda c: c.can_seq_cp(partial=True),
        lambda c: c.seq_keep(9),
        lambda c: c.seq_add(9, 0, 1, 1),
        lambda c: c.seq_pos_min(1),
        lambda c: c.seq_pos_max(1),
        lambda c: c.can_shift,
        lambda c: c.state_size(9),
        lambda c: c.state_save(9, State()),
        lambda c: c.state_restore(9, State()),
        lambda c: c.synchronize(),
        lambda c: c.perf(),
        lambda c: c.perf_reset(),
        lambda c: c.set_n_threads(-1, 1),
        lambda c: c.close(),
    ],
    ids=[
        *["decode", "decode_batch", "logits", "argmax", "argmax_rows", "clear", "seq_rm", "seq_cp", "can_seq_cp"],
        *["seq_keep", "seq_add", "seq_pos_min", "seq_pos_max", "can_shift", "state_size", "state_save"],
        *["state_restore", "synchronize", "perf", "perf_reset", "set_n_threads", "close"],
    ],
)
def test_second_thread_in_a_context_gets_an_error(make_context: Make, use: Callable[[Context], object]) -> None:
    refusal, context = _during_a_decode(make_context, use)
    assert isinstance(refusal, errors.BusyError)
    assert "context" in str(refusal)
    assert not context.closed


def test_facts_can_be_read_during_a_decode(make_context: Make) -> None:
    facts, _ = _during_a_decode(make_context, lambda c: (c.n_ctx, c.n_threads, c.n_seq_max, c.n_outputs_max))
    assert facts == (16384, 1, 2, 64)


def test_python_runs_during_a_decode(make_context: Make) -> None:
    total, _ = _during_a_decode(make_context, lambda c: sum(range(100_000)))
    assert total == 4999950000


def test_contexts_of_one_model_decode_in_parallel_as_alone(make_context: Make) -> None:
    def run(first: int) -> list[int]:
        context = make_context()
        context.decode([first, 2, 3], pos=0)
        tokens = []
        for pos in range(3, 40):
            tokens.append(context.argmax(0))
            context.decode(tokens[-1:], pos=pos)
        return tokens

    alone = [run(first) for first in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(4))) == alone


def test_vocabulary_serves_many_threads(tiny: Model) -> None:
    vocab = tiny.vocab
    text = "for x in range(10): print(x)\n" * 50
    expected = vocab.tokenize(text).tolist()
    with ThreadPoolExecutor(8) as pool:
        assert all(tokens.tolist() == expected for tokens in pool.map(vocab.tokenize, [text] * 64))


def test_state_at_work_in_one_context_is_refused_by_another(make_context: Make) -> None:
    state = State()
    first, second = make_context(), make_context()
    for context in (first, second):
        context.decode(list(range(60)), pos=0)
    outcomes: list[str] = []

    def save(context: Context) -> None:
        for _ in range(300):
            try:
                context.state_save(0, state)
            except errors.BusyError:
                outcomes.append("busy")
            else:
                outcomes.append("saved")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(save, (first, second)))
    assert len(outcomes) == 600
    assert outcomes.count("saved") > 0
    first.state_restore(0, state)
    assert first.seq_pos_max(0) == 59
