"""What the facade refuses, and that it stays usable after errors, Ctrl-C, aborts and second threads."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspec import Completion, Llama
from pyspec.errors import (
    AbortedError,
    BusyError,
    ClosedError,
    ContextFullError,
    InvalidValueError,
    TokenRangeError,
    UnknownOptionError,
    UnsupportedError,
)

PROMPT = "def total(items):\n    result = 0\n    for item in items:\n        result += item\n    return result\n\n\n"
N_TOKENS = 40
EAGER = "ngram-mod:n_match=2,n_min=1,n_max=6"
SMALL: dict[str, Any] = {"n_ctx": 512, "n_threads": 1, "budget": "off"}


@pytest.fixture(scope="module")
def llm(tiny_target_path: Path, tiny_draft_path: Path) -> Iterator[Llama]:
    with Llama(tiny_target_path, draft_model=tiny_draft_path, **SMALL) as made:
        yield made


@pytest.fixture(scope="module")
def plain(llm: Llama) -> Completion:
    return llm.generate(PROMPT, max_tokens=N_TOKENS, spec=None, ignore_eos=True)


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("options", "nearest"),
    [
        ({"n_cxt": 512}, "n_ctx"),
        ({"draft_modle": "x"}, "draft_model"),
        ({"context": {"type_kk": "f16"}}, "type_k"),
        ({"model": {"use_mlok": True}}, "use_mlock"),
        ({"rollback": "shadwo"}, "shadow"),
        ({"draft_rollback": "frok"}, "fork"),
        ({"spec": "ngram-mud"}, "ngram-mod"),
        ({"spec": "ngram-mod:n_mach=3"}, "n_match"),
        ({"draft_options": {"n_mx": 3}}, "n_max"),
    ],
)
def test_an_unknown_option_of_the_object_names_the_nearest(
    tiny_target_path: Path, options: dict[str, Any], nearest: str
):
    with pytest.raises(UnknownOptionError, match=f"did you mean '{nearest}'"):
        Llama(tiny_target_path, **(SMALL | options))


@pytest.mark.parametrize(
    ("option", "nearest"), [("max_token", "max_tokens"), ("temprature", "temperature"), ("stops", "stop")]
)
def test_an_unknown_option_of_a_call_names_the_nearest(llm: Llama, option: str, nearest: str):
    with pytest.raises(UnknownOptionError, match=f"did you mean '{nearest}'"):
        llm.generate(PROMPT, **{option: 1})
    with pytest.raises(UnknownOptionError, match=f"did you mean '{nearest}'"):
        next(llm.stream(PROMPT, **{option: 1}))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a", ""]}, "stop"),
        ({"stop": 5}, "stop"),
        ({"temperature": -1}, "temperature"),
        ({"seed": -1}, "seed"),
        ({"spec": 3.5}, "spec"),
        ({"stop_tokens": "ab"}, "stop_tokens"),
    ],
)
def test_a_value_that_cannot_be_is_refused_and_nothing_happens(llm: Llama, options: dict[str, Any], name: str):
    with pytest.raises(InvalidValueError, match=name):
        llm.generate(PROMPT, **options)
    assert llm.generate(PROMPT, max_tokens=1).stats.n_decodes == 1


@pytest.mark.parametrize(
    ("options", "error"),
    [
        pytest.param({"rollback": "trim"}, UnsupportedError, id="trim-of-a-hybrid"),
        pytest.param({"draft_rollback": "trim", "draft_model": "SELF"}, UnsupportedError, id="draft-trim-of-a-hybrid"),
        pytest.param({"rollback": "snapshot"}, UnsupportedError, id="snapshot-without-n_rs_seq"),
        pytest.param({"replay": "later"}, InvalidValueError, id="replay"),
        pytest.param({"max_tries": 0}, InvalidValueError, id="max_tries"),
        pytest.param({"n_draft": 0}, InvalidValueError, id="n_draft"),
        pytest.param({"seed": -5}, InvalidValueError, id="seed"),
        pytest.param({"spec": "draft-model"}, InvalidValueError, id="draft-model-without-one"),
    ],
)
def test_an_option_that_cannot_be_had_is_refused_at_construction(
    tiny_target_path: Path, options: dict[str, Any], error: type[Exception]
):
    if options.get("draft_model") == "SELF":
        options = options | {"draft_model": tiny_target_path, "spec": "draft-model"}
    with pytest.raises(error):
        Llama(tiny_target_path, **(SMALL | options))


@pytest.mark.parametrize(
    ("prompt", "error"),
    [
        ([], InvalidValueError),
        ([1.5], InvalidValueError),
        ([[1, 2]], InvalidValueError),
        ([1, -1], TokenRangeError),
        ([1, 10**6], TokenRangeError),
        ([2**40], (InvalidValueError, TokenRangeError)),
        (5, InvalidValueError),
    ],
    ids=repr,
)
def test_a_prompt_that_is_none_is_refused(llm: Llama, prompt: Any, error: Any):
    with pytest.raises(error):
        llm.generate(prompt)


def test_a_prompt_longer_than_the_context_is_refused_with_the_numbers(llm: Llama, plain: Completion):
    with pytest.raises(ContextFullError) as caught:
        llm.generate([5] * 513)
    assert (caught.value.n_new, caught.value.n_ctx) == (513, 512)
    assert llm.generate(PROMPT, max_tokens=N_TOKENS, ignore_eos=True).tokens == plain.tokens


# ------------------------------------------------------------------ interruption, threads, life


@pytest.mark.parametrize("spec", [None, EAGER, "draft-model"])
def test_an_error_of_the_callers_function_leaves_the_object_usable(llm: Llama, plain: Completion, spec: Any):
    def fail(piece: str) -> None:
        raise LookupError(piece)

    with pytest.raises(LookupError) as kept:
        llm.generate(PROMPT, max_tokens=N_TOKENS, spec=spec, ignore_eos=True, on_text=fail)
    assert llm.generate(PROMPT, max_tokens=N_TOKENS, spec=spec, ignore_eos=True).tokens == plain.tokens
    assert kept.traceback  # held until here, as an interactive session holds its last one


def interrupted(target: str, draft: str, spec: str | None, prompt: list[int]) -> list[Any]:
    """Ctrl-C from outside while tokens come; what happened, and a generation afterwards beside a fresh object's."""
    options: dict[str, Any] = {"n_ctx": 8192, "n_threads": 1, "draft_model": draft, "spec": spec}
    llm = Llama(target, **options)
    started = threading.Event()

    def interrupt() -> None:
        started.wait()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    n_pieces = 0

    def count(piece: str) -> None:
        nonlocal n_pieces
        n_pieces += 1
        started.set()

    try:
        llm.generate(prompt, max_tokens=None, ignore_eos=True, on_text=count)
        happened = "finished"
    except KeyboardInterrupt:
        happened = "KeyboardInterrupt"
    after = llm.generate(prompt, max_tokens=30, ignore_eos=True).tokens
    fresh = Llama(target, **options).generate(prompt, max_tokens=30, ignore_eos=True).tokens
    return [happened, n_pieces, after, fresh]


@pytest.mark.parametrize("spec", [None, EAGER, "draft-model"])
def test_ctrl_c_stops_a_generation_and_leaves_the_object_usable(
    isolated: Any, llm: Llama, tiny_target_path: Path, tiny_draft_path: Path, spec: str | None
):
    prompt = llm.tokenize(PROMPT)
    happened, n_pieces, after, fresh = isolated(interrupted, str(tiny_target_path), str(tiny_draft_path), spec, prompt)
    assert happened == "KeyboardInterrupt"
    assert n_pieces < 4000
    assert after == fresh


def call_in_thread(function: Any) -> BaseException | None:
    """What `function` raised in a thread of its own."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised[0] if raised else None


@pytest.mark.parametrize("call", ["generate", "close"])
def test_a_second_thread_is_told_that_the_object_is_at_work(llm: Llama, plain: Completion, call: str):
    raised: list[BaseException | None] = []
    second = {"generate": lambda: llm.generate(PROMPT, max_tokens=1), "close": llm.close}[call]

    def on_text(piece: str) -> None:
        if not raised:
            raised.append(call_in_thread(second))

    completion = llm.generate(PROMPT, max_tokens=N_TOKENS, spec=EAGER, ignore_eos=True, on_text=on_text)
    assert isinstance(raised[0], BusyError)
    assert completion.tokens == plain.tokens


@pytest.mark.parametrize("spec", [None, EAGER, "draft-model"])
def test_an_abort_from_another_thread_ends_the_generation_and_leaves_the_object_usable(
    llm: Llama, plain: Completion, spec: Any
):
    pieces: list[str] = []

    def on_text(piece: str) -> None:
        pieces.append(piece)
        if len(pieces) == 3:
            call_in_thread(llm.abort)

    with pytest.raises(AbortedError):
        llm.generate(PROMPT, max_tokens=N_TOKENS, spec=spec, ignore_eos=True, on_text=on_text)
    assert len(pieces) == 3
    assert llm.generate(PROMPT, max_tokens=N_TOKENS, spec=spec, ignore_eos=True).tokens == plain.tokens


def test_an_abort_without_a_generation_changes_nothing(llm: Llama, plain: Completion):
    llm.abort()
    assert llm.generate(PROMPT, max_tokens=N_TOKENS, ignore_eos=True).tokens == plain.tokens


def test_a_closed_object_refuses_and_may_be_closed_again(tiny_target_path: Path):
    llm = Llama(tiny_target_path, **SMALL)
    llm.close()
    llm.close()
    for use in (
        lambda: llm.generate(PROMPT),
        lambda: next(llm.stream(PROMPT)),
        lambda: llm.tokenize("a"),
        lambda: llm.detokenize([1]),
    ):
        with pytest.raises(ClosedError):
            use()
    assert "closed" in repr(llm)
