"""What a call may ask for beside its text: echo, time limits, cancelling, aborting, progress; and its ends."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspec import Completion, Llama, Session, halt
from pyspec.errors import AbortedError, ContextFullError, InvalidValueError
from pyspec.speculators import History
from pyspec.speculators.scripted import Scripted

PROMPT = "def total(items):\n    result = 0\n    for item in items:\n        result += item\n    return result\n\n\n"
EAGER = "ngram-mod:n_match=2,n_min=1,n_max=6"
SMALL: dict[str, Any] = {"n_ctx": 512, "n_threads": 1, "budget": "off"}
HOW: dict[str, Any] = {"max_tokens": 40, "ignore_eos": True}
N_BATCH = 32
specs = pytest.mark.parametrize("spec", [None, EAGER, "draft-model"])


@pytest.fixture(scope="module")
def llm(tiny_target_path: Path, tiny_draft_path: Path) -> Iterator[Llama]:
    with Llama(tiny_target_path, draft_model=tiny_draft_path, n_batch=N_BATCH, n_ubatch=N_BATCH, **SMALL) as made:
        yield made


@pytest.fixture(scope="module")
def attention(arch_model: Callable[[str], Path]) -> Iterator[Llama]:
    """Of 128 tokens and no text."""
    with Llama(arch_model("llama"), n_batch=N_BATCH, n_ubatch=N_BATCH, **SMALL | {"n_ctx": 256}) as made:
        yield made


@pytest.fixture(params=["llm", "attention"])
def either(request: pytest.FixtureRequest) -> Llama:
    """A hybrid, and attention."""
    made: Llama = request.getfixturevalue(request.param)
    return made


@pytest.fixture(scope="module")
def plain(llm: Llama) -> Completion:
    return llm.generate(PROMPT, spec=None, **HOW)


class Clock:
    """Stands still until it is told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(halt, "perf_counter", clock)
    return clock


def some_ids(n: int) -> list[int]:
    return [(7 * i + 3) % 100 for i in range(n)]


def in_thread(function: Callable[[], object]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def assert_usable(llm: Llama, plain: Completion, spec: Any = None) -> None:
    assert llm.generate(PROMPT, spec=spec, **HOW).tokens == plain.tokens


# ------------------------------------------------------------------ echo


@specs
def test_echo_puts_the_prompt_in_front_and_changes_nothing_else(llm: Llama, plain: Completion, spec: Any):
    *pieces, echoed = llm.stream(PROMPT, spec=spec, echo=True, logprobs=0, **HOW)
    assert isinstance(echoed, Completion)
    assert pieces[0] == PROMPT == echoed.echo
    assert "".join(str(piece) for piece in pieces) == echoed.text == PROMPT + plain.text
    assert (echoed.tokens, echoed.prompt_tokens) == (plain.tokens, plain.prompt_tokens)
    assert echoed.token_ends == [len(PROMPT) + end for end in plain.token_ends]
    assert len(echoed.origins) == len(echoed.logprobs or ()) == len(echoed.tokens)
    assert plain.echo == ""


def test_echo_of_token_ids_is_their_text(llm: Llama, plain: Completion):
    echoed = llm.generate(llm.tokenize(PROMPT), echo=True, **HOW)
    assert echoed.text == PROMPT + plain.text


@pytest.mark.parametrize("spec", [None, EAGER])
def test_stop_strings_are_not_looked_for_in_the_echo(llm: Llama, plain: Completion, spec: Any):
    stop = "total(items)"
    assert stop in PROMPT and stop in plain.text
    echoed = llm.generate(PROMPT, spec=spec, echo=True, stop=stop, **HOW)
    assert echoed.text == PROMPT + plain.text.split(stop)[0]
    assert all(echoed.text[:end].startswith(PROMPT) for end in echoed.token_ends)


def test_a_notebook_shows_the_echo_unshaded(llm: Llama):
    shown = llm.generate("a <b>\n", spec=Scripted([[1]] * 9), echo=True, max_tokens=6, ignore_eos=True)._repr_html_()
    body = shown.split("pre-wrap")[1]
    assert body.index("a &lt;b&gt;\n") < body.index("<span")


# ------------------------------------------------------------------ the time is over


@specs
def test_no_time_gives_an_empty_completion(llm: Llama, plain: Completion, spec: Any):
    *pieces, completion = llm.stream(PROMPT, spec=spec, timeout_s=0, **HOW)
    assert pieces == []
    assert isinstance(completion, Completion)
    assert (completion.finish_reason, completion.text, completion.tokens) == ("timeout", "", [])
    assert completion.stats.n_decodes == 0
    assert_usable(llm, plain, spec)


@specs
def test_a_timeout_gives_the_text_so_far(llm: Llama, plain: Completion, clock: Clock, spec: Any):
    pieces: list[str] = []

    def on_text(piece: str) -> None:
        pieces.append(piece)
        clock.now += 0.25

    completion = llm.generate(PROMPT, spec=spec, timeout_s=1.0, on_text=on_text, **HOW)
    assert completion.finish_reason == "timeout"
    assert len(pieces) == 4
    assert completion.text == "".join(pieces)
    assert completion.tokens == plain.tokens[: len(completion.tokens)]
    assert 4 <= len(completion.tokens) < 40
    assert_usable(llm, plain, spec)


def test_text_that_was_held_back_is_given_at_a_timeout(llm: Llama, plain: Completion, clock: Clock):
    stop = plain.text + "and more"

    def nothing(history: History, n_max: int) -> list[int]:
        clock.now += 0.25
        return []

    *pieces, completion = llm.stream(PROMPT, spec=Scripted(nothing), stop=stop, timeout_s=1.0, **HOW)
    assert isinstance(completion, Completion)
    assert completion.finish_reason == "timeout"
    assert pieces == [completion.text]
    assert completion.tokens == plain.tokens[:5], "one of the prompt's round, and four"
    assert completion.text == llm.detokenize(completion.tokens)


def test_a_limit_that_is_not_reached_changes_nothing(llm: Llama, plain: Completion):
    completion = llm.generate(PROMPT, spec=EAGER, timeout_s=3600, **HOW)
    assert (completion.tokens, completion.finish_reason) == (plain.tokens, "length")


def test_a_long_prompt_is_left_behind_one_batch_after_the_time(either: Llama, clock: Clock):
    prompt = some_ids(200)
    seen: list[int] = []

    def on_progress(n_done: int, n_total: int) -> None:
        seen.append(n_done)
        clock.now += 1.0

    late = either.generate(prompt, spec=None, timeout_s=1.5, on_progress=on_progress, **HOW)
    assert (late.finish_reason, late.tokens) == ("timeout", [])
    assert seen == [N_BATCH, 2 * N_BATCH]
    assert late.stats.n_decodes == late.stats.n_prompt_decodes == 2
    again = either.generate(prompt, spec=None, reuse=True, **HOW)
    assert again.stats.n_reused == 2 * N_BATCH, "what was read is not read again"
    assert again.tokens == either.generate(prompt, spec=None, **HOW).tokens


def test_a_turn_that_ran_out_of_time_is_part_of_the_session(llm: Llama, clock: Clock):
    session = Session(llm)

    def on_text(piece: str) -> None:
        clock.now += 0.5

    first = session.generate(PROMPT, timeout_s=1.0, on_text=on_text, **HOW)
    assert first.finish_reason == session.turns[0].finish_reason == "timeout"
    assert session.tokens == first.prompt_tokens + first.tokens
    second = session.generate("pass\n", **HOW)
    assert second.tokens == llm.generate(second.prompt_tokens, **HOW).tokens


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "1", True])
def test_a_limit_that_cannot_be_is_refused(llm: Llama, value: Any):
    with pytest.raises(InvalidValueError, match="timeout_s"):
        llm.generate(PROMPT, timeout_s=value)


# ------------------------------------------------------------------ cancelled and aborted


@specs
def test_cancelling_from_another_thread_gives_the_text_so_far(llm: Llama, plain: Completion, spec: Any):
    pieces: list[str] = []

    def on_text(piece: str) -> None:
        pieces.append(piece)
        if len(pieces) == 3:
            in_thread(llm.cancel)

    completion = llm.generate(PROMPT, spec=spec, on_text=on_text, **HOW)
    assert completion.finish_reason == "cancelled"
    assert (len(pieces), completion.text) == (3, "".join(pieces))
    assert completion.tokens == plain.tokens[: len(completion.tokens)]
    assert_usable(llm, plain, spec)


def test_cancelling_without_a_generation_changes_nothing(llm: Llama, plain: Completion):
    llm.cancel()
    llm.abort()
    assert_usable(llm, plain)


@specs
@pytest.mark.parametrize("stop", ["abort", "cancel"])
def test_what_comes_after_the_last_decode_stops_no_later_generation(
    llm: Llama, plain: Completion, spec: Any, stop: str
):
    """An abort waits for a decode; where there is none left it must not wait for that of another generation."""
    said = ""
    for piece in llm.stream(PROMPT, spec=spec, **HOW):
        if isinstance(piece, Completion):
            assert piece.finish_reason == "length"
        else:
            said += piece
            if said == plain.text:
                in_thread(getattr(llm, stop))
    assert_usable(llm, plain, spec)


def test_an_abort_of_a_stream_that_is_closed_stops_no_later_generation(llm: Llama, plain: Completion):
    stream = llm.stream(PROMPT, **HOW)
    next(stream)
    in_thread(llm.abort)
    stream.close()
    assert_usable(llm, plain)


def test_an_abort_while_a_prompt_is_read_ends_it_there(llm: Llama, plain: Completion):
    prompt = (llm.tokenize(PROMPT) * 20)[:200]
    seen: list[int] = []

    def on_progress(n_done: int, n_total: int) -> None:
        seen.append(n_done)
        llm.abort()

    with pytest.raises(AbortedError):
        llm.generate(prompt, on_progress=on_progress, **HOW)
    assert seen == [N_BATCH]
    assert_usable(llm, plain)


def test_aborts_at_any_time_stop_only_what_is_at_work(llm: Llama, plain: Completion):
    """Many aborts from a thread that knows nothing of the generations: each is either whole or aborted."""
    over = threading.Event()

    def abort_on() -> None:
        while not over.wait(0.002):
            llm.abort()

    thread = threading.Thread(target=abort_on)
    thread.start()
    try:
        for _ in range(30):
            with contextlib.suppress(AbortedError):
                assert llm.generate(PROMPT, spec=EAGER, max_tokens=4, ignore_eos=True).tokens == plain.tokens[:4]
    finally:
        over.set()
        thread.join()
    assert_usable(llm, plain)


# ------------------------------------------------------------------ progress


@specs
def test_progress_tells_every_decode_of_the_prompt(llm: Llama, spec: Any):
    prompt = (llm.tokenize(PROMPT) * 20)[:100]
    seen: list[tuple[int, int]] = []
    llm.generate(prompt, spec=spec, max_tokens=5, on_progress=lambda *counts: seen.append(counts))
    assert seen == [(32, 100), (64, 100), (96, 100), (100, 100)]


def test_progress_begins_with_what_memory_holds(either: Llama):
    prompt = some_ids(100)
    seen: list[int] = []
    either.generate(prompt[:70], max_tokens=1)
    either.generate(prompt, max_tokens=1, reuse=True, on_progress=lambda done, total: seen.append(done))
    assert seen == sorted(set(seen))
    assert 70 < seen[0] <= 100, "the first decode went on from there"
    assert seen[-1] == 100


@pytest.mark.parametrize("at", [32, 100])
def test_an_error_in_it_ends_the_generation_and_leaves_the_object_usable(llm: Llama, plain: Completion, at: int):
    def on_progress(n_done: int, n_total: int) -> None:
        if n_done == at:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        llm.generate((llm.tokenize(PROMPT) * 20)[:100], on_progress=on_progress)
    assert_usable(llm, plain)


def test_returning_false_from_it_cancels(llm: Llama, plain: Completion):
    completion = llm.generate((llm.tokenize(PROMPT) * 20)[:100], on_progress=lambda done, total: done < 64)
    assert (completion.finish_reason, completion.tokens) == ("cancelled", [])
    assert completion.stats.n_decodes == 2
    assert_usable(llm, plain)


# ------------------------------------------------------------------ prompts


@pytest.mark.parametrize("prompts", [["one", "two"], ("one",), [b"one"], ["one", 2]])
def test_several_prompts_are_told_where_to_go(llm: Llama, prompts: Any):
    with pytest.raises(InvalidValueError, match=r"llm\.map.*Engine"):
        llm.generate(prompts)


# ------------------------------------------------------------------ the context is full

FULL_ARCHS = ["llama", "gemma3", "qwen35", "mamba2", "falcon-h1", "jamba", "rwkv7"]


def long_drafts(tokens: list[int], n_prompt: int) -> Scripted:
    """Drafts of eight tokens, all right but for every third draft."""
    n_drafts = 0

    def script(history: History, n_max: int) -> list[int]:
        nonlocal n_drafts
        n_drafts += 1
        draft = tokens[len(history) - n_prompt :][:8]
        return [*draft[:1], 0, *draft[2:]] if n_drafts % 3 == 0 else draft

    return Scripted(script)


@pytest.mark.parametrize("arch", FULL_ARCHS)
@pytest.mark.parametrize("n_left", [0, 1, 2, 9, 20])
def test_a_full_context_ends_every_memorys_text_at_the_same_token(
    arch: str, n_left: int, arch_model: Callable[[str], Path]
):
    """The last token of a full context stands beyond memory: one more than there is room for."""
    prompt = some_ids(256 - n_left)
    with Llama(arch_model(arch), n_ctx=256, n_threads=1, budget="off") as llm:
        plain = llm.generate(prompt, max_tokens=None, ignore_eos=True, spec=None)
        drafts = long_drafts(plain.tokens, len(prompt))
        drafted = llm.generate(prompt, max_tokens=None, ignore_eos=True, spec=drafts)
        assert plain.finish_reason == drafted.finish_reason == "context"
        assert drafted.tokens == plain.tokens
        assert len(plain.tokens) == llm.n_ctx - len(prompt) + 1
        with pytest.raises(ContextFullError) as caught:
            llm.generate([5] * (llm.n_ctx + 1))
        assert caught.value.n_new == llm.n_ctx + 1
        assert llm.generate(prompt[:9], max_tokens=3, ignore_eos=True).finish_reason == "length"


def test_a_limit_of_tokens_that_just_fits_is_a_length(either: Llama):
    prompt = some_ids(either.n_ctx - 3)
    for n, reason in ((4, "length"), (5, "context")):
        completion = either.generate(prompt, max_tokens=n, ignore_eos=True, spec=EAGER)
        assert (len(completion.tokens), completion.finish_reason) == (4, reason)
