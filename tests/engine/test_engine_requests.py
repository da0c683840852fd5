"""Handing in, waiting, cancelling, failing: one request's fate is its own, and nothing is lost or left behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import re
import threading
import time
import weakref
from pathlib import Path

import pytest
from engine_rig import ANY, N_TOKENS, Hold

from pyspec import Engine
from pyspec.constraint import Regex
from pyspec.errors import (
    BusyError,
    ClosedError,
    ContextFullError,
    InvalidValueError,
    QueueFullError,
    SpeculatorError,
    TokenRangeError,
    UnknownOptionError,
    UnsupportedError,
)
from pyspec.speculators import Scripted

SETTINGS = {"n_ctx": 128, "n_threads": 1, "budget": "off"}


@pytest.fixture
def engine(tiny_target_path: Path):
    with Engine(tiny_target_path, n_parallel=3, **SETTINGS) as engine:
        yield engine


def as_at_the_start(engine: Engine) -> None:
    """Every sequence, spare ones included, can be emptied, and nothing else holds anything."""
    context, slots = engine._sequences.context, engine._worker._scheduler.slots
    for slot in slots:
        assert slot.job is None
        n_past = slot.memory.n_past
        assert context.seq_pos_max(slot.memory.rollback.seq_id) == n_past - 1
        slot.decoder.forget()
        assert slot.decoder.checkpoints.positions == []
    assert [context.seq_pos_max(i) for i in range(context.n_seq_max)] == [-1] * context.n_seq_max


@pytest.mark.parametrize("kind", ["tiny", "llama"])
def test_two_thousand_requests_with_cancellations_leave_nothing_behind(kind: str, model_of, answers_of) -> None:
    answers, rng = answers_of(kind), random.Random(1)
    n_done = n_cancelled = 0
    with Engine(model_of(kind), n_parallel=4, spec="ngram-map-k", **SETTINGS) as engine:
        waiting = []
        for i in range(2000):
            ticket = engine.submit(answers.prompts[i % 16], max_tokens=rng.randint(0, 3), ignore_eos=True)
            if rng.random() < 0.3:
                ticket.cancel()
            waiting.append(ticket)
            if len(waiting) > 20:
                done = waiting.pop(rng.randrange(len(waiting))).result(60)
                assert done.finish_reason in ("length", "cancelled")
        for ticket in waiting:
            ticket.result(60)
        stats = engine.stats
        n_done, n_cancelled = stats.n_done, stats.n_cancelled
        assert (stats.n_submitted, stats.n_failed, stats.n_queued, stats.n_running) == (2000, 0, 0, 0)
        as_at_the_start(engine)
    assert n_done == 2000 and 100 < n_cancelled < 1000


def test_a_refused_request_says_so_at_once(engine: Engine) -> None:
    with pytest.raises(UnknownOptionError, match="max_tokens"):
        engine.submit([1], max_token=3)
    with pytest.raises(InvalidValueError, match="temperature"):
        engine.submit([1], temperature=-1)
    with pytest.raises(TokenRangeError):
        engine.submit([10**6])
    with pytest.raises(ContextFullError, match="128"):
        engine.submit([1] * 129)
    with pytest.raises(InvalidValueError, match="prompt"):
        engine.submit([])
    for name, way_out in (("reuse", "share_prefix=False"), ("on_text", "iterate over the Ticket")):
        with pytest.raises(InvalidValueError, match=rf"^{name}=True: .*{way_out}"):
            engine.submit([1], **{name: True})
    with pytest.raises(UnknownOptionError, match="wait"):
        engine.submit([1], wait=True)
    assert engine.stats.n_submitted == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_parallel": 0}, "n_parallel"),
        ({"n_parallel": 250, "n_spare": 100}, "n_spare"),
        ({"n_paralel": 3}, "n_parallel"),
        ({"max_queue": 0}, "max_queue"),
        ({"batch_width": 0}, "batch_width"),
        ({"rollback": "snapshot"}, "shadow"),
        ({"rollback": "trim"}, "trim"),
        ({"n_cells": -1}, "n_cells"),
        ({"n_cells": 256, "context": {"kv_unified": False}}, "kv_unified"),
    ],
)
def test_an_engine_that_cannot_be_is_refused(tiny_target_path: Path, given: dict[str, object], message: str) -> None:
    with pytest.raises((InvalidValueError, UnknownOptionError, UnsupportedError), match=message):
        Engine(tiny_target_path, **SETTINGS | given)


def test_several_requests_are_refused_where_llama_cpp_mixes_up_sequences(model_of) -> None:
    with pytest.raises(UnsupportedError, match="n_parallel=1"):
        Engine(model_of("plamo2"), n_parallel=2, **SETTINGS)
    with Engine(model_of("plamo2"), n_parallel=1, **SETTINGS) as engine:
        assert len(engine.generate([1, 2, 3], **ANY).tokens) == N_TOKENS


def test_one_requests_failure_leaves_the_others_alone(model_of, answers_of) -> None:
    answers = answers_of("llama")

    def broken(history, n_max):
        if len(history) > len(answers.prompts[1]) + 4:
            raise RuntimeError("out of ideas")
        return []

    def bad_progress(n_done: int, n_total: int) -> None:
        raise ValueError("no progress")

    with Engine(model_of("llama"), n_parallel=3, prefill_chunk=8, **SETTINGS) as engine:
        good = engine.submit(answers.prompts[0], **ANY)
        bad = engine.submit(answers.prompts[1], spec=Scripted(broken), **ANY)
        worse = engine.submit(answers.prompts[6] * 2, on_progress=bad_progress, **ANY)
        unknown = engine.submit(answers.prompts[3], spec="no-such-thing", **ANY)
        with pytest.raises(SpeculatorError, match="out of ideas"):
            bad.result(60)
        with pytest.raises(SpeculatorError, match="out of ideas"):
            list(bad)
        with pytest.raises(ValueError, match="no progress"):
            worse.result(60)
        with pytest.raises(UnknownOptionError):
            unknown.result(60)
        assert good.result(60).tokens == answers.tokens[0]
        assert engine.generate(answers.prompts[2], **ANY).tokens == answers.tokens[2]
        assert engine.stats.n_failed == 3
        as_at_the_start(engine)


def test_a_speculator_drafts_for_one_request_at_a_time(model_of, answers_of) -> None:
    answers = answers_of("llama")
    one = answers.misleading(1)
    with Engine(model_of("llama"), n_parallel=2, **SETTINGS) as engine:
        first, second = (engine.submit(p, spec=one, **ANY) for p in answers.prompts[:2])
        assert first.result(60).tokens == answers.tokens[0]
        with contextlib.suppress(BusyError):  # unless the first one was done before it began
            assert second.result(60).tokens == answers.tokens[1]
        assert engine.submit(answers.prompts[2], spec=one, **ANY).result(60).tokens == answers.tokens[2]


def test_a_full_queue_refuses_and_serves_on(model_of, answers_of) -> None:
    answers = answers_of("llama")
    with Engine(model_of("llama"), n_parallel=1, max_queue=2, **SETTINGS) as engine, Hold() as hold:
        tickets = [engine.submit(answers.prompts[0], spec=hold.spec, max_tokens=80, ignore_eos=True)]
        hold.wait()
        tickets += [engine.submit(answers.prompts[0], max_tokens=80, ignore_eos=True) for _ in range(2)]
        with pytest.raises(QueueFullError, match="max_queue=2"):
            engine.submit(answers.prompts[0])
        hold.release()
        assert all(len(ticket.result(60).tokens) == 80 for ticket in tickets)
        assert engine.generate(answers.prompts[0], **ANY).tokens == answers.tokens[0]


def test_requests_wait_until_their_cells_are_free(model_of, answers_of) -> None:
    answers = answers_of("lfm2")
    with Engine(model_of("lfm2"), n_parallel=8, n_cells=150, **SETTINGS) as engine:
        tickets = [engine.submit(p, max_tokens=N_TOKENS, ignore_eos=True) for p in answers.prompts]
        assert [ticket.result(60).tokens for ticket in tickets] == answers.tokens


@pytest.mark.parametrize("kind", ["llama", "lfm2"])
def test_so_many_cells_are_there_as_were_asked_for(kind: str, model_of, answers_of) -> None:
    with Engine(model_of(kind), n_parallel=4, n_cells=150, **SETTINGS | {"n_ctx": 1024}) as engine:
        assert engine._sequences.context.n_ctx < 512  # llama.cpp rounds up
        most = engine.submit(list(range(1, 100)) + list(range(1, 52)), max_tokens=None, ignore_eos=True)
        assert most.result(60).finish_reason == "context"
        with pytest.raises(
            ContextFullError, match="151 positions, the context has 150; shorten the prompt or raise n_cells"
        ):
            engine.submit([1] * 151)
        assert engine.stats.n_submitted == 1
    with (
        Engine(model_of(kind), n_parallel=4, **SETTINGS) as engine,
        pytest.raises(ContextFullError, match="the context has 128; shorten the prompt or raise n_ctx"),
    ):
        engine.submit([1] * 129)


def test_the_first_that_waits_is_the_first_to_begin(model_of, answers_of) -> None:
    answers, order = answers_of("llama"), []
    with Engine(model_of("llama"), n_parallel=1, **SETTINGS) as engine:
        tickets = [engine.submit(p, max_tokens=2, ignore_eos=True) for p in answers.prompts]
        for i, ticket in enumerate(tickets):
            ticket.add_done_callback(lambda _, i=i: order.append(i))
        for ticket in tickets:
            ticket.result(60)
    assert order == list(range(16))


def test_a_long_prompt_does_not_stop_the_others(model_of, answers_of) -> None:
    answers = answers_of("llama")
    long = (answers.prompts[0] * 40)[:400]
    events: list[str] = []
    with (
        Engine(model_of("llama"), n_parallel=2, prefill_chunk=16, **SETTINGS | {"n_ctx": 512}) as engine,
        Hold() as hold,
    ):
        running = engine.submit(answers.prompts[1], spec=hold.spec, max_tokens=200, ignore_eos=True)
        hold.wait()
        late = engine.submit(long, max_tokens=1, on_progress=lambda done, all_: events.append("chunk"))
        running.add_done_callback(lambda _: events.append("running"))
        late.add_done_callback(lambda _: events.append("late"))
        hold.release()
        late.result(60), running.result(60)
    assert len([e for e in events if e == "chunk"]) >= 20  # in pieces, between the rounds of the other
    assert events.index("late") < events.index("running")


def test_timeouts_and_cancellations_give_what_was_generated(model_of, answers_of) -> None:
    answers = answers_of("llama")
    with Engine(model_of("llama"), n_parallel=1, **SETTINGS) as engine, Hold(5) as hold:
        running = engine.submit(answers.prompts[0], spec=hold.spec, max_tokens=100, ignore_eos=True)
        hold.wait()
        queued = engine.submit(answers.prompts[1], max_tokens=100, ignore_eos=True)
        late = engine.submit(answers.prompts[2], max_tokens=100, ignore_eos=True, timeout_s=1e-6)
        queued.cancel()
        running.cancel()
        for ticket in (running, queued, late):
            assert not ticket.done
            with pytest.raises(TimeoutError):
                ticket.result(0.0)
        hold.release()
        done = queued.result(60)
        assert (done.finish_reason, done.tokens, done.prompt_tokens) == ("cancelled", [], answers.prompts[1])
        assert (late.result(60).finish_reason, late.result(60).tokens) == ("timeout", [])
        assert (running.result(60).finish_reason, running.result(60).tokens) == ("cancelled", answers.tokens[0][:6])


def test_each_request_has_its_own_constraint_and_logprobs(tiny_target_path: Path) -> None:
    regexes = ["[a-c]{5}", "(foo|bar)+", "[0-9]{1,9}"]
    how = {"max_tokens": 30, "logprobs": 1, "temperature": 0.7, "seed": 4}
    with Engine(tiny_target_path, n_parallel=3, context={"kv_unified": False}, **SETTINGS) as engine:
        alone = [engine.generate("def f():", constraint=Regex(one), **how) for one in regexes]
        tickets = [engine.submit("def f():", constraint=Regex(one), **how) for one in regexes]
        together = [ticket.result(60) for ticket in tickets]
    for regex, a, b in zip(regexes, alone, together, strict=True):
        assert a.text == b.text
        assert re.fullmatch(regex, a.text) or a.finish_reason == "length"
        assert [one.token for one in b.logprobs] == b.tokens


def test_many_threads_hand_in(model_of, answers_of) -> None:
    answers, found = answers_of("llama"), {}
    with Engine(model_of("llama"), n_parallel=3, **SETTINGS) as engine:

        def work(i: int) -> None:
            found[i] = engine.generate(answers.prompts[i], **ANY).tokens

        threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert [found[i] for i in range(16)] == answers.tokens


def test_asyncio_waits_streams_and_cancels(model_of, answers_of) -> None:
    answers = answers_of("llama")

    async def work(engine: Engine) -> None:
        done = await asyncio.gather(*(engine.agenerate(p, **ANY) for p in answers.prompts))
        assert [one.tokens for one in done] == answers.tokens
        ticket = engine.submit(answers.prompts[0], **ANY)
        assert [piece async for piece in ticket] == list(ticket)
        assert (await ticket).tokens == answers.tokens[0]
        task = asyncio.create_task(engine.agenerate(answers.prompts[0], max_tokens=110, ignore_eos=True))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async for _ in engine.astream(answers.prompts[0], **ANY):
            break
        assert (await engine.agenerate(answers.prompts[5], **ANY)).tokens == answers.tokens[5]
        with pytest.raises(UnknownOptionError):
            await engine.agenerate(answers.prompts[0], nonsense=1)

    with Engine(model_of("llama"), n_parallel=3, **SETTINGS) as engine:
        asyncio.run(work(engine))


def test_pieces_are_the_text(engine: Engine) -> None:
    ticket = engine.submit("def add(a, b):\n    return", **ANY)
    assert "".join(ticket) == ticket.result(60).text == "".join(ticket)
    assert ticket.done


@pytest.mark.parametrize("drain", [True, False])
def test_closing_ends_or_finishes_what_was_handed_in(drain: bool, model_of, answers_of) -> None:
    answers = answers_of("llama")
    engine = Engine(model_of("llama"), n_parallel=2, **SETTINGS)
    with Hold() as hold:
        held = engine.submit(answers.prompts[0], spec=hold.spec, max_tokens=80, ignore_eos=True)
        tickets = [held, *(engine.submit(p, max_tokens=80, ignore_eos=True) for p in answers.prompts[1:6])]
        hold.wait()
        closing = threading.Thread(target=engine.close, kwargs={"drain": drain})
        closing.start()
        while not engine._worker._stopping:
            time.sleep(0.001)
    closing.join(60)
    engine.close()
    assert [ticket.result(0).finish_reason for ticket in tickets] == ["length" if drain else "cancelled"] * 6
    assert held.result(0).tokens[:4] == answers.tokens[0][:4]
    with pytest.raises(ClosedError, match="Engine"):
        engine.submit("def f():")


def test_an_engine_lives_as_long_as_its_requests(tiny_target_path: Path) -> None:
    ticket = Engine(tiny_target_path, n_parallel=2, **SETTINGS).submit([5, 6, 7], max_tokens=40, ignore_eos=True)
    gc.collect()
    assert ticket.result(60).finish_reason == "length"
    assert ticket._owner is None


def test_an_engine_that_nobody_holds_is_freed(tiny_target_path: Path) -> None:
    engine = Engine(tiny_target_path, n_parallel=2, **SETTINGS)
    engine.generate([5, 6, 7], max_tokens=2)
    thread, ref = engine._thread, weakref.ref(engine)
    del engine
    gc.collect()
    thread.join(10)
    assert ref() is None and not thread.is_alive()


@pytest.mark.parametrize("kind", [RuntimeError, SystemExit], ids=lambda kind: kind.__name__)
def test_a_fault_of_the_worker_reaches_every_request(kind, model_of, answers_of, monkeypatch, caplog) -> None:
    answers = answers_of("llama")
    with Engine(model_of("llama"), n_parallel=1, **SETTINGS) as engine:
        scheduler = engine._worker._scheduler
        started = threading.Event()

        def broken() -> None:
            started.wait(10)
            raise kind("a fault of ours")

        monkeypatch.setattr(scheduler, "step", broken)
        tickets = [engine.submit(p, **ANY) for p in answers.prompts[:3]]
        started.set()
        for ticket in tickets:
            with pytest.raises(RuntimeError, match="a fault of ours"):
                ticket.result(10)
        with pytest.raises(ClosedError):
            engine.submit([1])
    assert "a fault of ours" in caplog.text


def test_what_a_ticket_or_an_end_is_given_wrongly_is_refused(engine: Engine) -> None:
    ticket = engine.submit([1], max_tokens=2)
    for value in ("x", -1, float("nan"), True):
        with pytest.raises(InvalidValueError, match=r"^timeout="):
            ticket.result(value)
    with pytest.raises(InvalidValueError, match=r"^function=5"):
        ticket.add_done_callback(5)
    with pytest.raises(InvalidValueError, match=r"^drain="):
        engine.close(drain="x")
    assert len(ticket.result(60).tokens) <= 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_parallel": 200}, "at most 128 with a spare sequence for each"),
        ({"n_parallel": 8, "n_ctx": 2**30}, r"^n_parallel \* n_ctx=8589934592: must be below"),
    ],
)
def test_sizes_that_cannot_be_are_told_in_the_callers_words(tiny_target_path, given, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        Engine(tiny_target_path, **given)
