"""`Engine.map`: results line up with prompts, none that is done is lost, and errors say of which prompt they are."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from engine_rig import ANY, Hold

from pyspec import Completion, Engine
from pyspec.errors import (
    ClosedError,
    ContextFullError,
    InvalidValueError,
    PyspecError,
    QueueFullError,
    TokenRangeError,
    UnknownOptionError,
)

SETTINGS = {"n_ctx": 128, "n_threads": 1, "budget": "off"}


@pytest.fixture
def engine(model_of):
    with Engine(model_of("llama"), n_parallel=2, **SETTINGS) as engine:
        yield engine


def test_map_gives_completions_in_order_and_takes_no_more_than_it_needs(model_of, answers_of) -> None:
    answers, taken, told = answers_of("llama"), [], []

    def prompts():
        for i in range(10**6):
            taken.append(i)
            yield answers.prompts[i % 16]

    with Engine(model_of("llama"), n_parallel=2, **SETTINGS) as engine:
        done = engine.map(prompts(), on_done=lambda n, one: told.append(n), **ANY)
        assert [next(done).tokens for _ in range(32)] == answers.tokens * 2
        done.close()
        assert told == list(range(1, 33)) and len(taken) < 64
        assert list(engine.map([], **ANY)) == []


def test_one_text_is_not_taken_for_several(engine: Engine) -> None:
    with pytest.raises(InvalidValueError, match="several prompts"):
        next(engine.map("def f():"))


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (None, InvalidValueError),
        (7, InvalidValueError),
        (1.5, InvalidValueError),
        ({}, InvalidValueError),
        ({3}, InvalidValueError),
        (object(), InvalidValueError),
        ([], InvalidValueError),
        ([None], InvalidValueError),
        (["a"], InvalidValueError),
        (np.zeros((2, 2), int), InvalidValueError),
        ([10**6], TokenRangeError),
        ([1] * 129, ContextFullError),
    ],
    ids=lambda one: type(one).__name__ if not isinstance(one, type) else one.__name__,
)
def test_what_is_no_prompt_is_told_in_its_place(bad: object, error: type[PyspecError], engine, answers_of) -> None:
    answers, got = answers_of("llama"), []
    prompts = [*answers.prompts[:6], bad, *answers.prompts[6:9]]
    with pytest.raises(error, match=r"^prompts\[6\]: "):
        got.extend(engine.map(prompts, **ANY))
    assert [one.tokens for one in got] == answers.tokens[:6]
    told: list[object] = []
    results = list(engine.map(prompts, return_exceptions=True, on_done=lambda n, one: told.append(one), **ANY))
    assert results == told
    assert isinstance(results[6], error) and str(results[6]).startswith("prompts[6]: ")
    assert [one.tokens for one in results if isinstance(one, Completion)] == answers.tokens[:9]
    assert [isinstance(one, Completion) for one in results] == [True] * 6 + [False] + [True] * 3


def test_what_goes_wrong_at_work_is_told_in_its_place(engine, answers_of) -> None:
    class TwoNumbersError(Exception):
        def __init__(self, a: int, b: int) -> None:
            super().__init__(a, b)

    answers, got, n_calls = answers_of("llama"), [], [0]
    errors = [ValueError("no progress"), TwoNumbersError(1, 2)]

    def tell(n_done: int, n_total: int) -> None:
        n_calls[0] += 1
        if n_calls[0] in (3, 5):
            raise errors[n_calls[0] // 4]

    with Engine(engine.model, n_parallel=1, **SETTINGS) as one_by_one:
        with pytest.raises(ValueError, match=r"^prompts\[2\]: no progress$") as caught:
            got.extend(one_by_one.map(answers.prompts, on_progress=tell, **ANY))
        assert caught.value.__cause__ is errors[0]
        assert [one.tokens for one in got] == answers.tokens[:2]
    n_calls[0] = 0
    with Engine(engine.model, n_parallel=1, **SETTINGS) as one_by_one:
        results = list(one_by_one.map(answers.prompts, on_progress=tell, return_exceptions=True, **ANY))
    assert [i for i, one in enumerate(results) if isinstance(one, Exception)] == [2, 4]
    assert results[4] is errors[1]


def test_an_option_that_cannot_be_is_no_matter_of_a_prompt(engine: Engine) -> None:
    for given, error in (({"max_token": 3}, UnknownOptionError), ({"temperature": -1}, InvalidValueError)):
        for goes_on in (False, True):
            with pytest.raises(error, match=r"^(unknown option|temperature)"):
                next(engine.map([[1], [2]], return_exceptions=goes_on, **given))
    with pytest.raises(InvalidValueError, match="return_exceptions"):
        next(engine.map([[1]], return_exceptions=1))
    assert engine.stats.n_submitted == 0


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_fault_of_the_iterable_comes_after_what_it_gave(goes_on: bool, engine: Engine, answers_of) -> None:
    answers, got = answers_of("llama"), []

    def prompts():
        yield from answers.prompts[:3]
        raise OSError("the file is gone")

    with pytest.raises(OSError, match=r"^the file is gone$"):
        got.extend(engine.map(prompts(), return_exceptions=goes_on, **ANY))
    assert [one.tokens for one in got] == answers.tokens[:3]


def test_map_waits_for_room_where_others_fill_the_queue(model_of, answers_of) -> None:
    answers, is_over, n_refused = answers_of("llama"), threading.Event(), [0]
    with Engine(model_of("llama"), n_parallel=1, max_queue=2, **SETTINGS) as engine, Hold() as hold:
        engine.submit(answers.prompts[0], spec=hold.spec, **ANY)
        hold.wait()
        for _ in range(2):
            engine.submit(answers.prompts[1], max_tokens=1)

        def others() -> None:
            while not is_over.wait(0.0005):
                try:
                    engine.submit(answers.prompts[1], max_tokens=1)
                except QueueFullError:
                    n_refused[0] += 1
                    hold.release()

        thread = threading.Thread(target=others)
        thread.start()
        try:
            done = [one.tokens for one in engine.map(answers.prompts, **ANY)]
        finally:
            is_over.set()
            thread.join(60)
    assert done == answers.tokens
    assert n_refused[0] > 0


def test_who_waits_for_room_hears_of_the_end(model_of, answers_of) -> None:
    answers, found = answers_of("llama"), []
    with Engine(model_of("llama"), n_parallel=1, max_queue=1, **SETTINGS) as engine, Hold() as hold:
        engine.submit(answers.prompts[0], spec=hold.spec, **ANY)
        hold.wait()
        engine.submit(answers.prompts[1], max_tokens=1)

        def work() -> None:
            try:
                found.extend(engine.map(answers.prompts, return_exceptions=True, **ANY))
            except PyspecError as error:
                found.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        while not engine._worker._n_patient:
            assert thread.is_alive()
        engine._worker.stop(drain=True)
        hold.release()
        thread.join(60)
    assert [type(one) for one in found] == [ClosedError]


def test_what_was_done_before_the_engine_was_closed_is_handed_out(model_of, answers_of) -> None:
    answers, got = answers_of("llama"), []
    engine = Engine(model_of("llama"), n_parallel=2, **SETTINGS)
    done = engine.map((p for _ in range(9) for p in answers.prompts), **ANY)
    got += [next(done) for _ in range(3)]
    engine.close()
    with pytest.raises(ClosedError):
        got.extend(done)
    assert len(got) >= 8  # as many as were handed in ahead
    assert [one.finish_reason for one in got[:3]] == ["length"] * 3
    assert {one.finish_reason for one in got} <= {"length", "cancelled"}


def test_an_own_iterator_of_prompts_may_be_empty(tiny_target_path: Path) -> None:
    with Engine(tiny_target_path, n_parallel=2, **SETTINGS) as engine:
        assert list(engine.map(iter(()))) == []
