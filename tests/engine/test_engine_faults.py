"""What goes wrong inside an engine harms one request, is told to it, and leaves its place as good as new."""

from __future__ import annotations

import asyncio
import threading
from itertools import count
from pathlib import Path

import pytest
from engine_rig import ANY

from pyspec import Completion, Engine, Llama
from pyspec.engine.ticket import Ticket
from pyspec.errors import InvalidValueError
from pyspec.generation import Generation

SETTINGS = {"n_ctx": 256, "n_threads": 1, "budget": "off"}


class Faulty:
    """The context of an engine, one of whose methods raises once."""

    def __init__(self, context, name: str) -> None:
        self._context, self._name, self.armed = context, name, False

    def __getattr__(self, name: str):
        if name == self._name and self.armed:
            self.armed = False
            raise RuntimeError("a fault of the device")
        return getattr(self._context, name)


@pytest.mark.parametrize("kind", ["llama", "lfm2"])
@pytest.mark.parametrize("name", ["argmax", "argmax_rows"])
def test_a_fault_behind_a_decode_leaves_no_draft_in_memory(kind: str, name: str, model_of, answers_of) -> None:
    answers = answers_of(kind)
    with Engine(model_of(kind), n_parallel=1, **SETTINGS) as engine:
        faulty = Faulty(engine._sequences.context, name)
        engine._sequences.context = faulty
        for memory in engine._sequences.memories:
            memory.context = faulty
        faulty.armed = True
        with pytest.raises(RuntimeError, match="a fault of the device"):
            engine.generate(answers.prompts[0], spec=answers.misleading(1), **ANY)
        for prompt, tokens in zip(answers.prompts, answers.tokens, strict=True):
            assert engine.generate(prompt, spec=answers.misleading(2), **ANY).tokens == tokens
        engine._sequences.context = faulty._context


def test_a_fault_in_making_the_result_is_told_to_its_request(model_of, answers_of, monkeypatch) -> None:
    answers, complete, n_calls = answers_of("llama"), Generation.complete, [0]

    def broken(generation, decoder, **how) -> Completion:
        n_calls[0] += 1
        if n_calls[0] == 1:
            raise RuntimeError("no result")
        return complete(generation, decoder, **how)

    monkeypatch.setattr(Generation, "complete", broken)
    with Engine(model_of("llama"), n_parallel=1, **SETTINGS) as engine:
        with pytest.raises(RuntimeError, match="no result"):
            engine.submit(answers.prompts[0], **ANY).result(20)
        assert engine.submit(answers.prompts[1], **ANY).result(20).tokens == answers.tokens[1]


def test_every_piece_comes_before_the_end_of_an_async_loop() -> None:
    ticket = Ticket(generation=None)  # type: ignore[arg-type]
    completion = object()

    class LastMoment(list[str]):
        """Gives its pieces; while they are read, the last one comes and the request is done."""

        def __getitem__(self, key):
            found = super().__getitem__(key)
            if not ticket.done and len(self) == 1:
                ticket.push("last")
                ticket.finish(completion)  # type: ignore[arg-type]
            return found

    ticket._pieces = LastMoment(["first"])

    async def read() -> list[str]:
        return [piece async for piece in ticket]

    assert asyncio.run(read()) == ["first", "last"]


def test_a_conversation_reuses_its_memory_also_where_it_fills_the_context(tiny_target_path: Path) -> None:
    with Engine(tiny_target_path, n_parallel=1, **SETTINGS) as engine:
        text = list(range(40, 160))
        first = engine.generate(text, max_tokens=15, ignore_eos=True)
        second = engine.generate([*text, *first.tokens, 7, 8], max_tokens=None, ignore_eos=True)
    assert second.stats.n_reused >= len(text)
    assert second.finish_reason == "context"


def test_the_time_of_a_long_prompt_is_all_of_its_decodes(model_of, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count()
    monkeypatch.setattr("pyspec.engine.scheduler.perf_counter", lambda: float(next(ticks)))
    with Engine(model_of("llama"), n_parallel=1, n_ctx=1024, n_threads=1, n_batch=64, spec="none") as engine:
        stats = engine.generate([i % 100 for i in range(900)], max_tokens=1).stats
    assert stats.n_decodes > 10
    assert stats.timings.prompt_decode_s >= stats.n_decodes, "each decode takes one tick at least"


def test_states_are_kept_where_a_llama_keeps_them(model_of) -> None:
    prompt, settings = [i % 100 for i in range(2500)], {"n_ctx": 3000, "n_threads": 1, "spec": "none"}
    with Llama(model_of("mamba2"), ctx_checkpoints=16, **settings) as llm:
        llm.generate(prompt, max_tokens=1, reuse=True)
        expected = llm._decoder.checkpoints.positions
    with Engine(model_of("mamba2"), n_parallel=1, ctx_checkpoints=16, **settings) as engine:
        engine.generate(prompt, max_tokens=1)
        assert engine._worker._scheduler.slots[0].decoder.checkpoints.positions == expected
    assert len(expected) >= 3


def test_a_draft_model_keeps_as_many_states_as_the_target(tiny_target_path: Path, tiny_draft_path: Path) -> None:
    with Engine(
        tiny_target_path, n_parallel=1, draft_model=tiny_draft_path, spec="draft-model", ctx_checkpoints=0, **SETTINGS
    ) as engine:
        engine.generate([5, 6, 7], max_tokens=2)
        (draft,) = engine._worker._scheduler.slots[0].speculators._drafts.values()
        assert draft.checkpoints.n_max == 0


def test_an_object_is_no_speculator_of_several_requests(model_of, answers_of) -> None:
    one = answers_of("llama").misleading(1)
    for spec in (one, ["suffix", one]):
        with pytest.raises(InvalidValueError, match="a function"):
            Engine(model_of("llama"), n_parallel=2, spec=spec, **SETTINGS)
    with Llama(model_of("llama"), n_ctx=256, n_threads=1, spec=one) as llm:
        with pytest.raises(InvalidValueError, match="engine="):
            next(llm.map([[1], [2]]))
        made = llm.map([[1], [2]], engine={"spec": lambda: answers_of("llama").misleading(3)}, max_tokens=2)
        assert len(list(made)) == 2


class Drafter:
    """A speculator of three methods, whose class makes one for each request."""

    n_made = 0

    def __init__(self) -> None:
        type(self).n_made += 1
        self.n_begun = 0

    def begin(self, tokens: object) -> None:
        self.n_begun += 1

    def draft(self, history: object, n_max: int) -> list[int]:
        return [33, 34][:n_max]

    def accept(self, n_drafted: int, n_accepted: int, *, own: bool) -> None:
        pass


class Unmade(Drafter):
    def __init__(self, n: int) -> None:
        super().__init__()


@pytest.mark.parametrize("wrap", [lambda kind: kind, lambda kind: [kind, "suffix"], lambda kind: lambda: kind()])
def test_a_class_or_a_function_makes_speculators(wrap, model_of, answers_of) -> None:
    answers = answers_of("llama")

    class Mine(Drafter):
        n_made = 0

    spec = wrap(Mine)
    with Engine(model_of("llama"), n_parallel=2, spec=spec, **SETTINGS) as engine:
        assert [one.tokens for one in engine.map(answers.prompts[:4], **ANY)] == answers.tokens[:4]
        assert Mine.n_made == 4
        assert engine.generate(answers.prompts[4], spec=spec, **ANY).stats.n_drafted > 0
    assert Mine.n_made == 5
    with Llama(model_of("llama"), n_ctx=256, n_threads=1, spec=spec, budget="off") as llm:
        assert Mine.n_made == 6
        assert [llm.generate(p, **ANY).tokens for p in answers.prompts[:2]] == answers.tokens[:2]
        assert Mine.n_made == 6
        assert llm.generate(answers.prompts[2], spec=spec, **ANY).stats.n_drafted > 0
        assert Mine.n_made == 7
        assert [one.tokens for one in llm.map(answers.prompts[:3], **ANY)] == answers.tokens[:3]
    assert Mine.n_made == 10


@pytest.mark.parametrize("spec", [Unmade, lambda n: Drafter(), ["suffix", Unmade]], ids=["class", "function", "list"])
def test_what_cannot_be_called_without_arguments_makes_no_speculator(spec, model_of) -> None:
    with pytest.raises(InvalidValueError, match="called without arguments"):
        Llama(model_of("llama"), n_ctx=256, n_threads=1, spec=spec)
    with (
        Engine(model_of("llama"), n_parallel=2, **SETTINGS) as engine,
        pytest.raises(InvalidValueError, match="called without arguments"),
    ):
        engine.submit([1], spec=spec)


def test_a_function_that_makes_something_else_is_refused(model_of) -> None:
    with Engine(model_of("llama"), n_parallel=2, spec=lambda: 7, **SETTINGS) as engine:
        with pytest.raises(InvalidValueError, match=r"spec=7: must be a name"):
            engine.generate([1], max_tokens=1)
        assert engine.generate([1], max_tokens=1, spec="none").finish_reason == "length"


def test_a_request_that_never_began_is_whole(tiny_target_path: Path) -> None:
    started, go_on = threading.Event(), threading.Event()

    def hold(n_done: int, n_total: int) -> None:
        started.set()
        go_on.wait(20)

    with Engine(tiny_target_path, n_parallel=1, **SETTINGS) as engine:
        engine.submit(list(range(5, 100)), max_tokens=1, on_progress=hold)
        assert started.wait(20)
        ticket = engine.submit("def f", max_tokens=9, echo=True, logprobs=0)
        ticket.cancel()
        go_on.set()
        done = ticket.result(20)
    assert (done.finish_reason, done.text, done.logprobs) == ("cancelled", "def f", [])
    assert list(ticket) == ["def f"]


def test_an_engine_may_be_closed_by_a_request_that_is_done(model_of, answers_of) -> None:
    answers = answers_of("llama")
    engine = Engine(model_of("llama"), n_parallel=2, **SETTINGS)
    others = [engine.submit(p, max_tokens=200, ignore_eos=True) for p in answers.prompts[:3]]
    last = engine.submit(answers.prompts[3], max_tokens=1)
    last.add_done_callback(lambda _: engine.close())
    reasons = {ticket.result(20).finish_reason for ticket in others}
    assert last.result(20).finish_reason == "length"
    assert reasons <= {"cancelled", "length"}
    engine._thread.join(20)
    assert not engine._thread.is_alive()


def test_two_threads_may_close_an_engine(model_of) -> None:
    engine = Engine(model_of("llama"), n_parallel=1, **SETTINGS)
    context, overlaps, alone = engine._sequences.context, [], threading.Lock()

    class Slow:
        def close(self) -> None:
            overlaps.append(not alone.acquire(blocking=False))
            threading.Event().wait(0.05)
            context.close()
            alone.release()

    engine._sequences.context = Slow()
    threads = [threading.Thread(target=engine.close) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert overlaps == [False] * 3
