"""What a user's function does in the engine's thread is its own request's matter, whatever it raises or waits for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError

import pytest
from engine_rig import ANY, Hold, each_round

from pyspec import Engine
from pyspec.engine.ticket import Ticket
from pyspec.errors import UnsupportedError

SETTINGS = {"n_ctx": 256, "n_threads": 1, "budget": "off"}
ENDS = [SystemExit, KeyboardInterrupt, GeneratorExit, CancelledError, asyncio.CancelledError]


class Raising:
    """A speculator one of whose calls raises."""

    def __init__(self, call: str, error: BaseException) -> None:
        self._call, self._error, self.name = call, error, "raising"

    def _at(self, call: str) -> None:
        if call == self._call:
            raise self._error

    def begin(self, tokens: object) -> None:
        self._at("begin")

    def draft(self, history: object, n_max: int) -> list[int]:
        self._at("draft")
        return [5] if n_max > 0 else []

    def accept(self, n_drafted: int, n_accepted: int, *, own: bool) -> None:
        self._at("accept")


def error_of(ticket: Ticket) -> BaseException:
    try:
        ticket.result(20)
    except BaseException as error:
        return error
    raise AssertionError("it is done")


@pytest.mark.parametrize("where", ["on_progress", "begin", "draft", "accept"])
@pytest.mark.parametrize("kind", [*ENDS, StopIteration, StopAsyncIteration], ids=lambda kind: kind.__name__)
def test_what_a_callback_raises_ends_its_own_request_alone(kind: type[BaseException], where: str, model_of, answers_of):
    answers = answers_of("llama")

    def raises(n_done: int, n_total: int) -> None:
        raise kind

    with Engine(model_of("llama"), n_parallel=2, **SETTINGS) as engine, Hold() as hold:
        held = engine.submit(answers.prompts[0], spec=hold.spec, **ANY)
        hold.wait()
        how = {"on_progress": raises} if where == "on_progress" else {"spec": Raising(where, kind())}
        bad = engine.submit(answers.prompts[1], **how, **ANY)
        others = [engine.submit(p, **ANY) for p in answers.prompts[2:5]]
        hold.release()
        error = error_of(bad)
        assert isinstance(error, kind) or isinstance(error.__cause__, kind)
        # generators and asyncio would take the ends of an iterator for their own
        assert not isinstance(error, (StopIteration, StopAsyncIteration))
        assert [one.result(20).tokens for one in (held, *others)] == [answers.tokens[i] for i in (0, 2, 3, 4)]
        assert engine.generate(answers.prompts[1], **ANY).tokens == answers.tokens[1]
        assert (engine.stats.n_failed, engine.stats.n_done) == (1, 5)


@pytest.mark.parametrize("kind", [*ENDS, ValueError], ids=lambda kind: kind.__name__)
def test_what_a_done_callback_raises_is_logged(kind: type[BaseException], model_of, answers_of, caplog) -> None:
    answers, told = answers_of("llama"), []

    def raises(ticket: Ticket) -> None:
        raise kind

    with Engine(model_of("llama"), n_parallel=2, **SETTINGS) as engine, Hold() as hold:
        first = engine.submit(answers.prompts[0], spec=hold.spec, **ANY)
        first.add_done_callback(raises)
        first.add_done_callback(told.append)
        hold.wait()
        second = engine.submit(answers.prompts[1], **ANY)
        queued = [engine.submit(p, **ANY) for p in answers.prompts[2:4]]
        queued[0].add_done_callback(raises)
        queued[0].cancel()
        hold.release()
        assert [one.result(20).tokens for one in (first, second, queued[1])] == [answers.tokens[i] for i in (0, 1, 3)]
        assert queued[0].result(20).finish_reason == "cancelled"
        assert "".join(first) == first.result().text
    assert told == [first]
    assert caplog.text.count(f"a done callback raised {kind.__name__}") == 2


def test_an_interrupt_in_the_callers_own_thread_reaches_him(model_of, caplog) -> None:
    def raises(ticket: Ticket) -> None:
        raise KeyboardInterrupt

    with Engine(model_of("llama"), n_parallel=1, **SETTINGS) as engine:
        ticket = engine.submit([1, 2], max_tokens=1)
        ticket.result(20)
        with pytest.raises(KeyboardInterrupt):
            ticket.add_done_callback(raises)


WAITS: dict[str, Callable[[Engine, Ticket], object]] = {
    "result": lambda engine, other: other.result(),
    "result-timeout": lambda engine, other: other.result(60),
    "pieces": lambda engine, other: list(other),
    "generate": lambda engine, other: engine.generate([1, 2]),
    "map": lambda engine, other: list(engine.map([[1, 2]])),
    "await": lambda engine, other: asyncio.run(engine.agenerate([1, 2])),
    "async-pieces": lambda engine, other: asyncio.run(_first_of(engine)),
}


async def _first_of(engine: Engine) -> None:
    async for _ in engine.astream([1, 2]):
        return


@pytest.mark.parametrize("where", ["done", "on_progress", "speculator"])
@pytest.mark.parametrize("wait", WAITS)
def test_waiting_in_the_engines_own_thread_is_refused(wait: str, where: str, model_of, answers_of) -> None:
    answers, found = answers_of("llama"), []
    with Engine(model_of("llama"), n_parallel=1, **SETTINGS) as engine:
        others: list[Ticket] = []

        def act(*_: object) -> None:
            if not found:
                with pytest.raises(UnsupportedError, match="callback of the same engine") as caught:
                    WAITS[wait](engine, others[0])
                found.append(caught.value)

        with Hold() as hold:
            first = engine.submit(answers.prompts[2], on_progress=hold.on_progress, **ANY)
            hold.wait()
            how = {"on_progress": {"on_progress": act}, "speculator": {"spec": each_round(act)}}.get(where, {})
            ticket = engine.submit(answers.prompts[0], **how, **ANY)
            if where == "done":
                ticket.add_done_callback(act)
            others.append(engine.submit(answers.prompts[1], **ANY))
        assert first.result(20).tokens == answers.tokens[2]
        assert [one.result(20).tokens for one in (ticket, *others)] == answers.tokens[:2]
        assert len(found) == 1


def test_what_is_done_may_be_read_in_a_callback(model_of, answers_of) -> None:
    answers, read = answers_of("llama"), []
    with Engine(model_of("llama"), n_parallel=1, **SETTINGS) as engine:
        ticket = engine.submit(answers.prompts[0], **ANY)
        ticket.add_done_callback(lambda one: read.append((one.result().tokens, "".join(one) == one.result().text)))
        ticket.result(20)
    assert read == [(answers.tokens[0], True)]


@pytest.mark.parametrize("drain", [False, True])
@pytest.mark.parametrize("where", ["done", "on_progress", "speculator"])
def test_closed_in_a_callback_every_other_request_ends_as_closing_says(
    where: str, drain: bool, model_of, answers_of
) -> None:
    answers = answers_of("llama")
    engine = Engine(model_of("llama"), n_parallel=3, **SETTINGS)

    def close(*_: object) -> None:
        engine.close(drain=drain)
        engine.close(drain=True)  # does not bring back what was to be cancelled

    with Hold() as hold:
        others = [engine.submit(answers.prompts[0], spec=hold.spec, max_tokens=200, ignore_eos=True)]
        hold.wait()
        how = {"on_progress": {"on_progress": close}, "speculator": {"spec": each_round(close)}}.get(where, {})
        ticket = engine.submit(answers.prompts[1], **how, max_tokens=3, ignore_eos=True)
        if where == "done":
            ticket.add_done_callback(close)
        others += [engine.submit(p, max_tokens=200, ignore_eos=True) for p in answers.prompts[2:8]]
    reasons = [one.result(20).finish_reason for one in others]
    assert reasons == ["length" if drain else "cancelled"] * 7
    assert ticket.result(20).finish_reason == "length" if drain or where == "done" else "cancelled"
    assert others[0].result().tokens[:4] == answers.tokens[0][:4]
    engine._thread.join(20)
    assert not engine._thread.is_alive() and engine._sequences.context.closed
    engine.close()


def test_a_callback_in_another_thread_of_the_engine_may_wait(model_of, answers_of) -> None:
    answers, found = answers_of("llama"), []
    with Engine(model_of("llama"), n_parallel=1, **SETTINGS) as engine:

        def act(_: object) -> None:
            thread = threading.Thread(target=lambda: found.append(engine.generate(answers.prompts[1], **ANY).tokens))
            thread.start()
            found.append(thread)

        engine.submit(answers.prompts[0], **ANY).add_done_callback(act)
        while not found:
            pass
        found.pop(0).join(20)
    assert found == [answers.tokens[1]]
