"""Turns for asyncio: the same text and record, and a task that is cancelled takes its turn back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from asyncio_rig import run

from pyspec import Completion, Llama, Session
from pyspec.errors import BusyError, ContextFullError, InvalidValueError, UnknownOptionError
from pyspec.session import Turn

FIRST = "def area(width, height):\n    return width * height\n\n"
SECOND = "# the same function again:\n"
EAGER = "ngram-mod:n_match=2,n_min=1,n_max=6"
HOW: dict[str, Any] = {"max_tokens": 12, "ignore_eos": True}
ENDLESS: dict[str, Any] = {"max_tokens": None, "ignore_eos": True}


@pytest.fixture(scope="module", params=["tiny_target_path", "smollm2_path"])
def llm(request: pytest.FixtureRequest) -> Iterator[Llama]:
    """A hybrid, and attention."""
    path: Path = request.getfixturevalue(request.param)
    with Llama(path, n_ctx=2048, n_threads=1, budget="off", spec=EAGER) as made:
        yield made


def assert_usable(session: Session, llm: Llama) -> None:
    out = session.generate(SECOND, **HOW)
    assert out.tokens == llm.generate(out.prompt_tokens, spec=None, **HOW).tokens


def records(session: Session) -> list[Turn]:
    """Without what memory happened to hold of another session's text."""
    return [replace(turn, n_decoded=0) for turn in session.turns]


def test_turns_are_those_of_generate(llm: Llama):
    async def main(session: Session) -> list[Completion]:
        first = await session.agenerate(FIRST, **HOW)
        *pieces, second = [piece async for piece in session.astream(SECOND, **HOW)]
        assert isinstance(second, Completion)
        assert "".join(str(piece) for piece in pieces) == second.text
        return [first, second]

    session, other = Session(llm, temperature=0.8, seed=3), Session(llm, temperature=0.8, seed=3)
    done = run(main(session))
    plain = [other.generate(text, **HOW) for text in (FIRST, SECOND)]
    assert [one.tokens for one in done] == [one.tokens for one in plain]
    assert session.tokens == other.tokens
    assert records(session) == records(other)


def test_text_is_told_in_the_thread_of_the_loop(llm: Llama):
    pieces: list[str] = []
    threads: set[threading.Thread] = set()

    def on_text(piece: str) -> None:
        pieces.append(piece)
        threads.add(threading.current_thread())

    out = run(Session(llm).agenerate(FIRST, on_text=on_text, **HOW))
    assert "".join(pieces) == out.text
    assert threads == {threading.current_thread()}


@pytest.mark.parametrize("begun", [False, True], ids=["in-the-prompt", "in-the-text"])
def test_a_cancelled_task_has_stopped_its_decode_and_taken_its_turn_back(llm: Llama, begun: bool):
    session = Session(llm)
    session.generate(FIRST, **HOW)
    before, turns = session.tokens, list(session.turns)
    text = SECOND if begun else llm.tokenize(SECOND, add_special=False) * 200

    async def main() -> None:
        started = asyncio.Event()

        async def read() -> None:
            async for _ in session.astream(text[:1800], **ENDLESS):
                started.set()

        task = asyncio.ensure_future(read())
        if begun:
            await started.wait()
        while not llm._lock.locked():
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not llm._lock.locked(), "the thread is over when the task is"

    run(main())
    assert (session.tokens, session.turns) == (before, turns)
    assert_usable(session, llm)


def test_leaving_the_loop_early_takes_the_turn_back_even_where_the_thread_is_done(llm: Llama):
    """The thread runs ahead: it may have the completion when the reader leaves at the first piece."""
    session = Session(llm)

    async def main() -> None:
        async with aclosing(session.astream(FIRST, **HOW)) as stream:
            async for _ in stream:
                while llm._lock.locked():
                    await asyncio.sleep(0.001)
                break

    run(main())
    assert (session.tokens, session.turns) == ([], [])
    session.append(FIRST)
    assert_usable(session, llm)


def test_a_turn_is_kept_once_its_completion_is_read(llm: Llama):
    session = Session(llm)

    async def main() -> None:
        async with aclosing(session.astream(FIRST, **HOW)) as stream:
            async for piece in stream:
                if isinstance(piece, Completion):
                    break

    run(main())
    assert [turn.n_generated for turn in session.turns] == [12]
    assert_usable(session, llm)


def test_the_text_of_an_open_turn_cannot_be_changed(llm: Llama):
    session = Session(llm)

    async def main() -> None:
        async with aclosing(session.astream(FIRST, **HOW)) as stream:
            await anext(stream)
            with pytest.raises(BusyError, match="session"):
                session.append("x")
            with pytest.raises(BusyError, match="session"):
                await session.agenerate("x", **HOW)

    run(main())
    session.append("x")


def test_a_turn_that_was_never_read_began_nothing(llm: Llama):
    session = Session(llm)

    async def main() -> None:
        session.astream(FIRST, **HOW)
        session.append("x")

    run(main())
    assert len(session) > 0


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"text": [5] * 3000}, ContextFullError),
        ({"text": ""}, InvalidValueError),
        ({"temprature": 1}, UnknownOptionError),
        ({"on_text": 3}, InvalidValueError),
        ({"timeout_s": -1}, InvalidValueError),
    ],
)
def test_errors_are_raised_in_the_task_and_leave_the_session(llm: Llama, given: dict[str, Any], error: Any):
    session = Session(llm)
    with pytest.raises(error):
        run(session.agenerate(**({"text": FIRST} | HOW | given)))
    assert (session.tokens, session.turns) == ([], [])
    session.append(FIRST)


def test_a_full_context_is_shifted_here_too(smollm2_path: Path):
    async def turns(session: Session) -> None:
        for _ in range(3):
            await session.agenerate([100] * 100, **HOW)

    done: list[tuple[list[int], list[Turn]]] = []
    for is_async in (True, False):
        with Llama(smollm2_path, n_ctx=256, n_threads=1, budget="off", spec=None) as llm:
            session = Session(llm, overflow="shift")
            if is_async:
                run(turns(session))
            else:
                for _ in range(3):
                    session.generate([100] * 100, **HOW)
            done.append((session.seen, session.turns))
    assert done[0] == done[1]
    assert done[0][1][-1].n_dropped > 0
