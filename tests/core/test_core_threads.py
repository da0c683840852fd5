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


@pytest.fixture
def at_work(make_context: Make) -> Context:
    return make_context(n_ctx=16384, n_batch=16384, n_ubatch=256, n_seq_max=2, n_outputs_max=64)


def _during_a_decode(context: Context, use: Callable[[], object]) -> object:
    """What `use` returned while another thread was decoding in `context`.

    On a busy machine the decode may be over before this thread gets its turn: then there is another one.
    """

    def work() -> None:
        with contextlib.suppress(errors.AbortedError):
            context.decode([3] * 16384, pos=0, n_outputs=0)

    def is_busy() -> bool:
        try:
            context.seq_pos_max(1)
        except errors.BusyError:
            return True
        return False

    for _ in range(20):
        thread = threading.Thread(target=work)
        thread.start()
        outcome: object = None
        try:
            while thread.is_alive() and not is_busy():
                pass
            outcome = use()
            still_at_work = thread.is_alive()
        finally:
            context.abort()
            thread.join()
        if still_at_work:
            return outcome
        context.clear()
    raise AssertionError("no decode was seen at work")


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
def test_second_thread_in_a_context_gets_an_error(at_work: Context, use: Callable[[Context], object]) -> None:
    def refusal() -> str:
        try:
            use(at_work)
        except errors.BusyError as error:
            return str(error)
        return "not refused"

    assert "context" in str(_during_a_decode(at_work, refusal))
    assert not at_work.closed


def test_facts_can_be_read_during_a_decode(at_work: Context) -> None:
    def facts() -> tuple[int, ...]:
        return (at_work.n_ctx, at_work.n_threads, at_work.n_seq_max, at_work.n_outputs_max)

    assert _during_a_decode(at_work, facts) == (16384, 1, 2, 64)


def test_python_runs_during_a_decode(at_work: Context) -> None:
    assert _during_a_decode(at_work, lambda: sum(range(100_000))) == 4999950000


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
