"""Whatever a caller hands in by mistake is refused by its name before anything is decoded, in words of pyspec.

The first law goes through every parameter with values of every type: what is not an error of pyspec must be no error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pyspec
from pyspec import Llama, Session, compat
from pyspec.chat.template import ChatTemplate, TemplateLimits
from pyspec.constraint import Choice, JsonSchema, Lark, Regex
from pyspec.errors import InvalidValueError, PyspecError, UnknownOptionError
from pyspec.shown import shown

TEMPLATE = "{{ messages[0].content }}"
MESSAGES = [{"role": "user", "content": "x"}]
ONE: dict[str, Any] = {"max_tokens": 1}
TOOLS = [{"type": "function", "function": {"name": "f"}}]
SMALL: dict[str, Any] = {"n_ctx": 64, "n_threads": 1, "budget": "off", "rollback": "shadow"}
CONTEXT: dict[str, Any] = {"n_threads_batch": 1}

VALUES: dict[str, Any] = {
    "none": None,
    "whole": 5,
    "negative": -1,
    "fraction": 1.5,
    "nan": float("nan"),
    "huge": 2**70,
    "true": True,
    "text": "x",
    "empty": "",
    "surrogate": "\ud800",
    "bytes": b"x",
    "list": [5],
    "texts": ["\ud800"],
    "nones": [None],
    "dict": {"a": 1},
    "numbered": {5: 5},
    "object": object(),
    "function": lambda *_: None,
    "iterator": iter([1]),
}

CHAT = (
    "tools template add_generation_prompt variables on_text spec constraint stop max_tokens on_progress logprobs "
    "timeout_s echo grammar logit_bias stop_tokens seed reuse n_keep"
).split()
COMPLETION = (
    "prompt suffix max_tokens temperature top_p min_p typical_p logprobs echo stop frequency_penalty repeat_penalty "
    "top_k stream seed tfs_z mirostat_mode mirostat_tau stopping_criteria logits_processor grammar logit_bias n user"
).split()
CHAT_COMPLETION = (
    "messages functions function_call tools tool_choice stream stop seed response_format grammar logit_bias logprobs "
    "top_logprobs max_tokens n user"
).split()
CONSTRUCTOR = (
    "chat_format chat_template last_n_tokens_size verbose draft_model type_k split_mode rope_scaling_type tensor_split "
    "seed rollback draft_rollback main_gpu use_mmap n_threads_batch rope_freq_base logits_all numa offload_kqv "
    "op_offload swa_full yarn_orig_ctx embedding kv_overrides n_seq_max"
).split()


@pytest.fixture(scope="module")
def llm(tiny_target_path: Path) -> Iterator[Llama]:
    with Llama(tiny_target_path, context=CONTEXT, **SMALL) as made:
        yield made


@pytest.fixture(scope="module")
def old(tiny_target_path: Path) -> Iterator[compat.Llama]:
    with compat.Llama(str(tiny_target_path), chat_template=TEMPLATE, n_threads_batch=1, **SMALL) as made:
        yield made


def _all(result: Any) -> Any:
    return result if isinstance(result, dict) else list(result)


def _calls(llm: Llama, old: compat.Llama, path: str, value: Any) -> Iterator[tuple[str, Callable[[], object]]]:
    """Every parameter of the packages that talk to users, set to `value`."""

    def each(what: str, names: list[str], call: Callable[..., object], **given: Any) -> Iterator[tuple[str, Any]]:
        for name in names:
            yield f"{what} {name}", lambda name=name: call(**(given | {name: value}))

    chat = {"messages": MESSAGES, "template": TEMPLATE} | ONE
    yield from each("chat", ["messages", *CHAT], llm.chat, **chat)
    for field in ("role", "content", "name", "tool_calls", "tool_call_id", "more"):
        yield f"message {field}", lambda f=field: llm.chat([{**MESSAGES[0], f: value}], template=TEMPLATE, **ONE)
    yield "message", lambda: llm.chat([value], template=TEMPLATE, **ONE)
    for field in ("name", "description", "parameters"):
        tool = {"function": {"name": "f", field: value}}
        yield f"tool {field}", lambda t=tool: llm.chat(MESSAGES, template=TEMPLATE, tools=[t], **ONE)
    call = {"function": {"name": "f", "arguments": value}}
    asks = {"role": "assistant", "content": "x", "tool_calls": [call]}
    yield "arguments", lambda: llm.chat([asks], template=TEMPLATE, **ONE)
    names = ["llm", "overflow", "n_keep", "temperature", "on_progress", "constraint", "spec"]
    yield from each("session", names, Session, llm=llm)
    yield from each(
        "turn", ["text", "on_text", "spec", "stop"], lambda **k: Session(llm).generate(**k), text="x", **ONE
    )
    yield "truncate", lambda: Session(llm).truncate(value)
    yield "append", lambda: Session(llm).append(value)
    if value not in ("x",):
        yield "save", lambda: Session(llm).save(value)
    yield "load", lambda: Session.load(value, llm)
    many = {"prompt": "x", "n": 1} | ONE
    yield from each("many", ["n", "best_of", "spec", "on_text"], llm.generate_many, **many)
    mapped = {"prompts": ["x"], "n_ctx": 64, "n_parallel": 1} | ONE
    names = ["prompts", "n_parallel", "progress", "engine", "on_done", "prompt"]
    yield from each("map", names, lambda **k: list(llm.map(**k)), **mapped)
    yield from each("generate", ["on_text", "on_progress"], llm.generate, prompt="x", **ONE)
    for owner in (llm, Session(llm)):
        yield "agenerate", lambda owner=owner: asyncio.run(owner.agenerate("x", on_text=value, **ONE))
    for kind in (JsonSchema, Regex, Lark, Choice):
        yield kind.__name__, lambda kind=kind: kind(value).grammar()
    yield "texts", lambda: Choice([value])
    yield "whitespace", lambda: JsonSchema(True, value)
    yield "schema", lambda: JsonSchema({"const": value}).grammar()
    yield "limits", lambda: ChatTemplate(TEMPLATE, limits=value)
    yield "n_work", lambda: TemplateLimits(n_work=value)
    yield "source", lambda: ChatTemplate(value)
    yield "render", lambda: ChatTemplate(TEMPLATE).render(value)
    yield "now", lambda: ChatTemplate("{{ strftime_now('%Y') }}").render(MESSAGES, now=value)
    completion = {"prompt": "x"} | ONE
    yield from each("completion", COMPLETION, lambda **k: _all(old(**k)), **completion)
    chat = {"messages": MESSAGES} | ONE
    for name in CHAT_COMPLETION:
        with_it = {"function_call": {"functions": [{"name": "f"}]}, "tool_choice": {"tools": TOOLS}}.get(name, {})
        with_it |= {"logprobs": True} if name == "top_logprobs" else {}
        given = chat | with_it | {name: value}
        yield f"chat completion {name}", lambda given=given: _all(old.create_chat_completion(**given))
    for shape in ({"type": "json_object", "schema": value}, {"type": "json_schema", "json_schema": value}):
        yield "format", lambda shape=shape: old.create_chat_completion(MESSAGES, response_format=shape, **ONE)
    yield "tokenize", lambda: old.tokenize(value)
    yield "detokenize", lambda: old.detokenize(value)
    yield "prev_tokens", lambda: old.detokenize([1], value)
    yield "grammar", lambda: compat.LlamaGrammar.from_string(value)
    yield "schema grammar", lambda: compat.LlamaGrammar.from_json_schema(value)
    made = {"model_path": path, "n_threads_batch": 1} | SMALL
    yield from each("constructor", CONSTRUCTOR, lambda **k: compat.Llama(**k).close(), **made)


@pytest.mark.parametrize("name", VALUES)
def test_a_wrong_value_anywhere_is_an_error_of_pyspec(llm: Llama, old: compat.Llama, tiny_target_path: Path, name: str):
    wrong: list[str] = []
    for what, call in _calls(llm, old, str(tiny_target_path), VALUES[name]):
        try:
            call()
        except (PyspecError, FileNotFoundError):
            continue
        except Exception as error:
            wrong.append(f"{what}: {type(error).__name__}: {error}")
    assert wrong == []


# ------------------------------------------------------------------ the name, and why


def _next(stream: Iterator[Any]) -> Any:
    return next(iter(stream))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda m: m.chat(MESSAGES, template=TEMPLATE, variables=[1]), r"^variables=\[1\]: must be a dict"),
        (lambda m: m.chat(MESSAGES, template=TEMPLATE, variables={1: 2}), "1 is none"),
        (lambda m: m.chat(MESSAGES, template=TEMPLATE, variables={"tools": 2}), "without 'tools'"),
        (lambda m: m.chat(MESSAGES, template=TEMPLATE, prompt="x"), "^prompt='x': must be left out: the messages"),
        (lambda m: _next(m.chat_stream(MESSAGES, template=TEMPLATE, prompt="x")), "^prompt='x': must be left out"),
        (
            lambda m: m.chat([{"role": "assistant", "content": "x", "tool_calls": 5}]),
            r"^messages\[0\]\['tool_calls'\]=5",
        ),
        (
            lambda m: m.chat([{"role": "tool", "content": "x", "tool_call_id": 5}]),
            r"^messages\[0\]\['tool_call_id'\]=5",
        ),
        (lambda m: _next(m.map(["a"], engine={"n_parallel": 2})), "^n_parallel=2: must be left out: it is a parameter"),
        (lambda m: _next(m.map(["a"], engine={"path": 2})), "^path=2: must be left out"),
        (lambda m: _next(m.map(["a"], engine=[])), r"^engine=\[\]"),
        (lambda m: _next(m.map(["a"], prompt="b")), "^prompt='b': must be left out"),
        (lambda m: _next(m.map(["a"], on_done=5)), "^on_done=5"),
        (lambda m: _next(m.map(5)), "^prompts=5: must be several prompts"),
        (lambda m: _next(m.map(["a"], engine={"rollback": None})), "^rollback=None: must be one of auto, trim"),
        (lambda m: Llama(m.model, rollback=None), "^rollback=None: must be one of auto, trim"),
        (lambda m: Llama(m.model, draft_rollback=3), "^draft_rollback=3: must be one of auto, trim"),
        (lambda m: pyspec.Engine(m.model, rollback=None), "^rollback=None: must be one of auto, trim"),
        (lambda m: Llama(m.model, context={"type_k": 8}), r"^context\['type_k'\]=8: must be a name"),
        (lambda m: Llama("x", model={"tensor_split": 1}), r"^model\['tensor_split'\]=1: must be None or a list"),
    ],
)
def test_a_mistake_is_refused_with_its_reason(llm: Llama, call: Callable[[Llama], object], says: str):
    with pytest.raises(InvalidValueError, match=says):
        call(llm)


def test_an_option_of_a_chat_that_does_not_exist_names_the_nearest(llm: Llama):
    with pytest.raises(UnknownOptionError, match="did you mean 'temperature'"):
        llm.chat(MESSAGES, template=TEMPLATE, temprature=1)


def test_a_variable_that_no_template_can_read_is_refused(llm: Llama):
    with pytest.raises(InvalidValueError, match="without 'self'"):
        llm.chat(MESSAGES, template=TEMPLATE, variables={"self": 1})


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.generate("x", on_text=5),
        lambda m: m.generate("x", on_progress=5),
        lambda m: _next(m.stream("x", on_progress=5)),
        lambda m: m.generate_many("x", 2, on_progress=5),
        lambda m: m.chat(MESSAGES, template=TEMPLATE, on_text=5),
        lambda m: m.chat(MESSAGES, template=TEMPLATE, on_progress=5),
        lambda m: Session(m).generate("x", on_text=5),
        lambda m: Session(m).generate("x", on_progress=5),
        lambda m: Session(m, on_progress=5),
        lambda m: asyncio.run(m.agenerate("x", on_text=5)),
        lambda m: asyncio.run(Session(m).agenerate("x", on_text=5)),
    ],
)
def test_a_wrong_callback_is_refused_before_anything_is_decoded(llm: Llama, call: Callable[[Llama], object]):
    before = llm._decoder.memory.n_decodes
    with pytest.raises(InvalidValueError, match=r"^on_(text|progress)=5: must be a function"):
        call(llm)
    assert llm._decoder.memory.n_decodes == before


def test_an_engine_needs_no_length_of_a_context(llm: Llama):
    with pyspec.Engine(llm.model, n_parallel=1, n_threads=1, budget="off", rollback="shadow") as engine:
        assert engine.n_ctx == min(4096, llm.model.n_ctx_train)


# ------------------------------------------------------------------ how values are shown


def test_a_message_is_short_whatever_the_value():
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    long: dict[str, Any] = {"text": "a" * 10**6, "list": list(range(10**6)), "number": 10**5000, "deep": deep}

    class Broken:
        def __repr__(self) -> str:
            raise ZeroDivisionError

    for value in (deep, long, [long] * 1000, Broken(), [Broken()], "x" * 10**6, b"x" * 10**6):
        error = InvalidValueError(name="value", value=value, allowed="short")
        assert len(str(error)) < 500
        assert error.value is value
    assert len(str(PyspecError("a" * 10**6))) < 2500
    while deep:  # Python's own way of freeing it would be as deep
        deep = deep.pop()


@pytest.mark.parametrize("value", [5, -1, 2.5, True, None, "a'b", b"x", [1, "a"], (1,), {}, {"b": 1, "a": [2]}, {1}])
def test_short_values_are_shown_as_python_writes_them(value: Any):
    assert shown(value) == repr(value)
