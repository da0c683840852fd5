"""Generations for asyncio: the same text, a loop that never waits, and tasks whose cancelling stops the work."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from asyncio_rig import WAIT_S, run

from pyspec import Completion, Llama
from pyspec.errors import AbortedError, BusyError, ContextFullError, InvalidValueError, UnknownOptionError

PROMPT = "def total(items):\n    result = 0\n    for item in items:\n        result += item\n    return result\n\n\n"
EAGER = "ngram-mod:n_match=2,n_min=1,n_max=6"
SMALL: dict[str, Any] = {"n_ctx": 2048, "n_threads": 1, "budget": "off", "spec": EAGER}
HOW: dict[str, Any] = {"max_tokens": 40, "ignore_eos": True}
ENDLESS: dict[str, Any] = {"max_tokens": None, "ignore_eos": True}


@pytest.fixture(scope="module", params=["tiny_target_path", "smollm2_path"])
def llm(request: pytest.FixtureRequest) -> Iterator[Llama]:
    """A hybrid, and attention."""
    path: Path = request.getfixturevalue(request.param)
    with Llama(path, **SMALL) as made:
        yield made


@pytest.fixture
def plain(llm: Llama) -> Completion:
    return llm.generate(PROMPT, spec=None, **HOW)


def assert_usable(llm: Llama, plain: Completion) -> None:
    assert llm.generate(PROMPT, spec=EAGER, **HOW).tokens == plain.tokens


@pytest.mark.parametrize("spec", [None, EAGER])
def test_the_pieces_are_those_of_a_stream(llm: Llama, plain: Completion, spec: Any):
    async def main() -> list[str | Completion]:
        return [piece async for piece in llm.astream(PROMPT, spec=spec, **HOW)]

    *pieces, completion = run(main())
    assert isinstance(completion, Completion)
    assert "".join(str(piece) for piece in pieces) == completion.text == plain.text
    assert completion.tokens == plain.tokens
    assert len(pieces) > 2


@pytest.mark.parametrize("spec", [None, EAGER])
def test_a_completion_is_that_of_generate(llm: Llama, plain: Completion, spec: Any):
    pieces: list[str] = []
    threads: set[threading.Thread] = set()

    def on_text(piece: str) -> None:
        pieces.append(piece)
        threads.add(threading.current_thread())

    completion = run(llm.agenerate(PROMPT, spec=spec, on_text=on_text, **HOW))
    assert (completion.tokens, completion.finish_reason) == (plain.tokens, plain.finish_reason)
    assert "".join(pieces) == plain.text
    assert threads == {threading.current_thread()}


def test_the_loop_goes_on_while_a_decode_waits(llm: Llama, plain: Completion):
    """The generation waits for the loop, which could not be if the loop waited for it."""
    ticked = threading.Event()

    async def main() -> Completion:
        task = asyncio.ensure_future(llm.agenerate(PROMPT, on_progress=lambda done, total: ticked.wait(WAIT_S), **HOW))
        while not llm._lock.locked():
            await asyncio.sleep(0)
        ticked.set()
        return await task

    assert run(main()).tokens == plain.tokens


def test_a_cancelled_task_has_stopped_its_generation_when_it_ends(llm: Llama, plain: Completion):
    async def main() -> int:
        n_pieces = 0
        begun = asyncio.Event()

        async def read() -> None:
            nonlocal n_pieces
            async for _ in llm.astream(PROMPT, **ENDLESS):
                n_pieces += 1
                begun.set()

        task = asyncio.ensure_future(read())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert llm.stats.n_generated < 1900
        assert_usable(llm, plain)
        return n_pieces

    assert run(main()) > 0


def test_a_cancelled_task_breaks_off_a_long_prompt(llm: Llama, plain: Completion):
    prompt = (llm.tokenize(PROMPT) * 200)[:2000]

    async def main() -> None:
        task = asyncio.ensure_future(llm.agenerate(prompt, **ENDLESS))
        while not llm._lock.locked():
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert llm.stats.n_generated == 0 or llm.stats.n_prompt < 2000
        assert_usable(llm, plain)

    run(main())


def test_a_task_that_is_cancelled_twice_still_waits_for_its_generation(llm: Llama, plain: Completion):
    """The generation is held in its prompt until the second cancelling has come."""
    held, free = threading.Event(), threading.Event()

    def on_progress(n_done: int, n_total: int) -> None:
        held.set()
        free.wait(WAIT_S)

    async def main() -> None:
        task = asyncio.ensure_future(llm.agenerate(PROMPT, on_progress=on_progress, **HOW))
        while not held.is_set():
            await asyncio.sleep(0.001)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0.01)
        assert not task.done()
        free.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert_usable(llm, plain)

    run(main())


def test_leaving_a_stream_ends_its_generation(llm: Llama, plain: Completion):
    async def main() -> None:
        async with aclosing(llm.astream(PROMPT, **ENDLESS)) as stream:
            async for _ in stream:
                break
        assert_usable(llm, plain)

    run(main())


def test_a_stream_that_is_left_open_is_over_when_the_loop_is(llm: Llama, plain: Completion):
    async def main() -> None:
        stream = llm.astream(PROMPT, **ENDLESS)
        await anext(stream)

    run(main())
    assert_usable(llm, plain)


def test_a_stream_that_was_never_read_began_nothing(llm: Llama, plain: Completion):
    async def main() -> None:
        llm.astream(PROMPT, **ENDLESS)
        assert_usable(llm, plain)

    run(main())


def test_two_at_once_are_one_too_many(llm: Llama, plain: Completion):
    free = threading.Event()

    async def main() -> Completion:
        first = asyncio.ensure_future(llm.agenerate(PROMPT, on_progress=lambda done, n: free.wait(WAIT_S), **HOW))
        while not llm._lock.locked():
            await asyncio.sleep(0.001)
        with pytest.raises(BusyError):
            await llm.agenerate(PROMPT, **HOW)
        free.set()
        return await first

    assert run(main()).tokens == plain.tokens


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"prompt": [5] * 3000}, ContextFullError),
        ({"temprature": 1}, UnknownOptionError),
        ({"on_text": 3}, InvalidValueError),
        ({"timeout_s": -1}, InvalidValueError),
    ],
)
def test_errors_are_raised_in_the_task(llm: Llama, plain: Completion, given: dict[str, Any], error: Any):
    with pytest.raises(error):
        run(llm.agenerate(**({"prompt": PROMPT} | HOW | given)))
    assert_usable(llm, plain)


def test_an_error_of_a_callback_ends_the_generation(llm: Llama, plain: Completion):
    def on_text(piece: str) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(llm.agenerate(PROMPT, on_text=on_text, **ENDLESS))
    assert_usable(llm, plain)


@pytest.mark.parametrize("stop", ["cancel", "abort"])
def test_the_objects_own_ends_work_here_too(llm: Llama, plain: Completion, stop: str):
    async def main() -> Completion:
        return await llm.agenerate(PROMPT, on_text=lambda _: getattr(llm, stop)(), **ENDLESS)

    if stop == "abort":
        with pytest.raises(AbortedError):
            run(main())
    else:
        completion = run(main())
        assert completion.finish_reason == "cancelled"
        assert completion.text
        assert plain.text.startswith(completion.text[:20])
    assert_usable(llm, plain)


def test_options_of_the_call_count(llm: Llama):
    completion = run(
        llm.agenerate(PROMPT, max_tokens=5, logprobs=2, echo=True, temperature=0.8, seed=3, ignore_eos=True)
    )
    want = llm.generate(PROMPT, max_tokens=5, logprobs=2, echo=True, temperature=0.8, seed=3, ignore_eos=True)
    assert (completion.text, completion.logprobs, completion.seed) == (want.text, want.logprobs, 3)


def test_no_thread_is_left_behind(llm: Llama):
    for _ in range(3):
        run(llm.agenerate(PROMPT, max_tokens=2))
    left = [thread for thread in threading.enumerate() if thread.name == "pyspec-generation"]
    for thread in left:
        thread.join(WAIT_S)
    assert not any(thread.is_alive() for thread in left)
