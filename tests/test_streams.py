"""A stream that is left early has ended its generation at once, however many streams stand around it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspec import Completion, Llama, Session, compat
from pyspec.errors import BusyError
from pyspec.streams import drained

PROMPT = "def total(items):\n    result = 0\n"
TEMPLATE = "{{ messages[0].content }}"
MESSAGES = [{"role": "user", "content": PROMPT}]
LONG: dict[str, Any] = {"max_tokens": 40}
SMALL: dict[str, Any] = {"n_ctx": 256, "n_threads": 1, "budget": "off", "rollback": "shadow"}

Stream = Generator[Any, None, Any]
STREAMS: dict[str, Callable[[compat.Llama], Any]] = {
    "stream": lambda m: m.llm.stream(PROMPT, **LONG),
    "chat": lambda m: m.llm.chat_stream(MESSAGES, template=TEMPLATE, **LONG),
    "session": lambda m: Session(m.llm).stream(PROMPT, **LONG),
    "completion": lambda m: m(PROMPT, stream=True, **LONG),
    "chat-completion": lambda m: m.create_chat_completion(MESSAGES, stream=True, **LONG),
}


@pytest.fixture(scope="module")
def old(tiny_target_path: Path) -> Iterator[compat.Llama]:
    with compat.Llama(str(tiny_target_path), chat_template=TEMPLATE, n_threads_batch=1, **SMALL) as made:
        yield made


def begun(stream: Stream) -> Stream:
    """At its second piece: the first of a chat may come before the generation."""
    next(stream), next(stream)
    return stream


def assert_free(llm: Llama) -> None:
    assert llm.generate("x", max_tokens=1).finish_reason == "length"


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """What Python happens to collect shall close nothing."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("kind", STREAMS)
def test_closing_ends_the_generation(old: compat.Llama, kind: str):
    stream = begun(STREAMS[kind](old))
    with pytest.raises(BusyError):
        old.llm.generate("x")
    stream.close()
    assert_free(old.llm)


@pytest.mark.parametrize("kind", STREAMS)
def test_an_error_that_is_thrown_in_ends_the_generation(old: compat.Llama, kind: str):
    stream = begun(STREAMS[kind](old))
    with pytest.raises(ZeroDivisionError) as caught:
        stream.throw(ZeroDivisionError())
    assert_free(old.llm)
    assert caught.traceback, "the frames of the streams are still held"


@pytest.mark.parametrize("kind", STREAMS)
def test_closing_closes_the_inner_stream_before_it_returns(
    old: compat.Llama, kind: str, monkeypatch: pytest.MonkeyPatch
):
    """Also where something else holds the inner stream, so that no counting of references closes it."""
    held: list[Stream] = []
    real = Llama._stream_to_completion

    def holding(self: Llama, *args: Any) -> Stream:
        held.append(real(self, *args))
        return held[-1]

    monkeypatch.setattr(Llama, "_stream_to_completion", holding)
    begun(STREAMS[kind](old)).close()
    assert held[0].gi_frame is None
    assert_free(old.llm)


@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_that_is_read_to_its_end_frees_the_model(old: compat.Llama, kind: str):
    assert len(list(STREAMS[kind](old))) > 2
    assert_free(old.llm)


@pytest.mark.parametrize(
    "call",
    [
        lambda m, f: m.generate(PROMPT, on_text=f, **LONG),
        lambda m, f: m.chat(MESSAGES, template=TEMPLATE, on_text=f, **LONG),
        lambda m, f: Session(m).generate(PROMPT, on_text=f, **LONG),
    ],
    ids=["generate", "chat", "session"],
)
def test_an_error_of_a_callback_ends_the_generation(old: compat.Llama, call: Callable[..., object]):
    def fail(piece: str) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        call(old.llm, fail)
    assert_free(old.llm)
    assert caught.traceback


def test_a_drained_stream_gives_its_result_and_tells_its_texts():
    def stream() -> Generator[str | int, None, int]:
        yield "a"
        yield "b"
        yield 3
        return 3

    told: list[str] = []
    assert drained(stream(), told.append) == 3
    assert told == ["a", "b"]
    assert drained(stream()) == 3


# ------------------------------------------------------------------ a prompt that was cancelled


@pytest.mark.parametrize("how", [{}, {"temperature": 0.8, "seed": 1}, {"stop": ["x"]}, {"logprobs": 1}], ids=str)
@pytest.mark.parametrize("n_reports", [1, 2, 3])
def test_a_prompt_that_is_cancelled_gives_no_token(tiny_target_path: Path, how: dict[str, Any], n_reports: int):
    """At any of its reports, the last one among them, which comes behind the decode of the whole prompt."""
    with Llama(tiny_target_path, n_batch=32, **SMALL) as llm:
        prompt, told = [5] * 32 * n_reports, []
        out = llm.generate(prompt, on_progress=lambda done, n: told.append(done) or done < n, max_tokens=8, **how)
        assert told[-1] == len(prompt)
        assert (out.finish_reason, out.tokens, out.text, out.token_ends) == ("cancelled", [], "", [])
        assert out.logprobs in (None, [])
        again = llm.generate(prompt, max_tokens=8, **how)
        assert len(again.tokens) or how.get("stop")


def test_a_prompt_that_is_cancelled_gives_no_token_where_the_text_would_end(tiny_target_path: Path):
    with Llama(tiny_target_path, **SMALL) as llm:
        first = llm.generate(PROMPT, max_tokens=1).tokens
        out = llm.generate(PROMPT, stop_tokens=first, on_progress=lambda done, n: False)
        assert (out.finish_reason, out.tokens) == ("cancelled", [])


def test_a_cancelled_prompt_is_a_turn_without_words_and_the_next_goes_on_from_it(tiny_target_path: Path):
    with Llama(tiny_target_path, **SMALL) as llm:
        session = Session(llm)
        session.generate(PROMPT, on_progress=lambda done, n: False)
        assert session.turns[0].n_generated == 0
        out: Completion = session.generate("    for", **LONG)
        assert session.turns[1].n_decoded < session.turns[1].n_prompt
        assert out.tokens == llm.generate(out.prompt_tokens, spec=None, **LONG).tokens
