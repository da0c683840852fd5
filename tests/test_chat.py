"""A conversation becomes the model's own prompt, begins once, and the answer is a message again."""

import json
from datetime import datetime

import chat_templates
import pytest

import pyspec
from pyspec._core import Model
from pyspec.chat import ChatCompletion, chat_prompt
from pyspec.chat.tool_calls import parse_tool_calls
from pyspec.errors import (
    ChatTemplateError,
    InvalidValueError,
    UnknownOptionError,
    UnsupportedError,
    VocabularyMissingError,
)

USER = {"role": "user", "content": "def double(x):"}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
CALL = {"type": "function", "id": "call00001", "function": {"name": "weather", "arguments": {"city": "Köln"}}}
ASKS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
SAID = '{"name": "weather", "arguments": {"city": "Bonn"}}'


@pytest.fixture(scope="module")
def tiny(tiny_target_path):
    with pyspec.Llama(
        tiny_target_path, n_ctx=1024, n_threads=1, context={"n_threads_batch": 1}, budget="off", rollback="shadow"
    ) as llm:
        yield llm


@pytest.fixture(scope="module")
def vocabulary(tiny_target_path):
    return Model(tiny_target_path, vocab_only=True)


class WithTemplates:
    """A model with chat templates of its own."""

    def __init__(self, model: Model, **templates: str) -> None:
        self.vocab = model.vocab
        self._templates = templates
        self.metadata = {f"tokenizer.chat_template.{name}".removesuffix(".own"): "..." for name in templates}

    def chat_template(self, name: str | None = None) -> str | None:
        return self._templates.get(name or "own")


# ----------------------------------------------------------------- the prompt
def test_the_models_own_template_is_used(smollm2_path):
    model = Model(smollm2_path, vocab_only=True)
    prompt = chat_prompt(model, [USER])
    assert prompt.text.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert prompt.text.endswith("<|im_start|>user\ndef double(x):<|im_end|>\n<|im_start|>assistant\n")
    assert model.vocab.detokenize(prompt.tokens, unparse_special=True).decode() == prompt.text
    im_start = model.vocab.tokenize("<|im_start|>", add_special=False, parse_special=True)
    assert prompt.tokens.count(im_start[0]) == 3


@pytest.mark.parametrize("template", ["{{ bos_token }}{{ messages[0].content }}", "{{ messages[0].content }}"])
def test_a_text_begins_once_whether_the_template_writes_it_or_not(gemma3_path, template: str):
    model = Model(gemma3_path, vocab_only=True)
    tokens = chat_prompt(model, [USER], template=template).tokens
    assert tokens[0] == model.vocab.bos
    assert tokens.count(model.vocab.bos) == 1
    assert model.vocab.detokenize(tokens[1:]).decode() == USER["content"]


def test_gemmas_turns_are_special_tokens(gemma3_path):
    model = Model(gemma3_path, vocab_only=True)
    prompt = chat_prompt(model, [USER], template=chat_templates.GEMMA)
    assert prompt.text == "<bos><start_of_turn>user\ndef double(x):<end_of_turn>\n<start_of_turn>model\n"
    begins = model.vocab.tokenize("<start_of_turn>", add_special=False, parse_special=True).tolist()
    assert len(begins) == 1
    assert prompt.tokens[:2] == [model.vocab.bos, *begins]


def test_a_model_without_a_template_asks_for_one(vocabulary):
    with pytest.raises(ChatTemplateError, match="the model brings none; give one, template=") as caught:
        chat_prompt(vocabulary, [USER])
    assert caught.value.kind == "missing"


def test_templates_are_chosen_by_name_and_by_tools(vocabulary):
    model = WithTemplates(vocabulary, own="own", tool_use="tools", rag="rag {{ documents[0].text }}")
    assert chat_prompt(model, [USER]).text == "own"
    assert chat_prompt(model, [USER], tools=[TOOL]).text == "tools"
    assert chat_prompt(model, [USER], tools=[]).text == "own"
    assert chat_prompt(model, [USER], template="rag", documents=[{"text": "d"}]).text == "rag d"
    assert chat_prompt(model, [USER], template="{{ messages[0].role }}").text == "user"
    with pytest.raises(ChatTemplateError, match=r"none of the name 'rug'; it has: .*rag, tool_use"):
        chat_prompt(model, [USER], template="rug")


def test_variables_and_the_time_reach_the_template(vocabulary):
    template = "{{ strftime_now('%Y') }} {{ mood }} {{ add_generation_prompt }} {{ eos_token }}"
    prompt = chat_prompt(
        vocabulary, [USER], template=template, add_generation_prompt=False, mood="good", now=datetime(2026, 3, 4)
    )
    assert prompt.text == "2026 good False <|endoftext|>"


def test_a_refusal_of_the_template_is_shown(vocabulary):
    with pytest.raises(ChatTemplateError, match="only user and assistant speak here"):
        chat_prompt(vocabulary, [USER, {"role": "narrator", "content": "x"}], template=chat_templates.MISTRAL)


def test_parts_of_text_are_joined_by_lines(vocabulary):
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert chat_prompt(vocabulary, [{**USER, "content": parts}], template="{{ messages[0].content }}").text == "a\nb"


@pytest.mark.parametrize(
    ("messages", "name"),
    [
        ("hello", "messages"),
        ([], "messages"),
        ({"role": "user", "content": "x"}, "messages"),
        (["hello"], r"messages\[0\]"),
        ([USER, {"content": "x"}], r"messages\[1\]\['role'\]"),
        ([{"role": "", "content": "x"}], r"messages\[0\]\['role'\]"),
        ([{"role": "user"}], r"messages\[0\]\['content'\]"),
        ([{"role": "assistant", "content": None}], r"messages\[0\]\['content'\]"),
        ([{"role": "user", "content": 3}], r"messages\[0\]\['content'\]"),
        ([{"role": "user", "content": [{"type": "text"}]}], r"messages\[0\]\['content'\]\[0\]"),
        ([{"role": "assistant", "tool_calls": [{"name": "weather"}]}], r"messages\[0\]\['tool_calls'\]\[0\]"),
    ],
    ids=str,
)
def test_a_message_that_cannot_be_is_named(vocabulary, messages, name: str):
    with pytest.raises(InvalidValueError, match=f"^{name}="):
        chat_prompt(vocabulary, messages, template=chat_templates.CHATML)


@pytest.mark.parametrize("tools", [[{"name": "weather"}], {"function": {}}, "weather"], ids=str)
def test_a_tool_that_cannot_be_is_named(vocabulary, tools):
    with pytest.raises(InvalidValueError, match=r"^tools"):
        chat_prompt(vocabulary, [USER], tools=tools, template=chat_templates.CHATML)


@pytest.mark.parametrize("kind", ["image_url", "input_audio"])
def test_what_is_no_text_is_refused(vocabulary, kind: str):
    content = [{"type": "text", "text": "a"}, {"type": kind, kind: {"url": "x"}}]
    with pytest.raises(UnsupportedError, match=rf"\['content'\]\[1\] of type '{kind}'"):
        chat_prompt(vocabulary, [{"role": "user", "content": content}], template=chat_templates.CHATML)


@pytest.mark.parametrize("arguments", [{"city": "Köln"}, '{"city": "Köln"}'], ids=["dict", "json"])
@pytest.mark.parametrize(
    ("template", "text"),
    [
        (chat_templates.TEXT_ARGUMENTS, 'CALL weather {"city": "Köln"}'),
        (chat_templates.PRINTED_ARGUMENTS, 'CALL weather {"city": "Köln"}'),
        ("{{ messages[0].tool_calls[0].function.arguments.city }}", "Köln"),
        ("{{ messages[0].tool_calls[0].function.arguments|tojson }}", '{"city": "Köln"}'),
    ],
    ids=["added", "printed", "read", "json"],
)
def test_arguments_come_as_the_template_wants_them(vocabulary, template: str, text: str, arguments):
    call = {**CALL, "function": {"name": "weather", "arguments": arguments}}
    messages = [{"role": "assistant", "content": "", "tool_calls": [call]}]
    before = json.dumps(messages)
    assert chat_prompt(vocabulary, messages, template=template).text == text
    assert json.dumps(messages) == before


def test_a_model_without_text_cannot_chat():
    class WithoutText:
        class vocab:
            has_text = False

    with pytest.raises(VocabularyMissingError, match="a chat"):
        chat_prompt(WithoutText(), [USER], template=chat_templates.CHATML)


# ----------------------------------------------------------------- the answer
@pytest.mark.parametrize("spec", [None, "ngram-map-k:size_n=3"], ids=str)
def test_a_chat_is_the_generation_after_its_prompt(tiny, spec):
    answer = tiny.chat([USER], template=chat_templates.CHATML, max_tokens=24, spec=spec)
    expected = tiny.generate(answer.prompt.tokens, max_tokens=24, spec=None)
    assert answer.completion.tokens == expected.tokens
    assert (answer.text, answer.finish_reason) == (expected.text, expected.finish_reason)
    assert answer.message == {"role": "assistant", "content": expected.text}
    assert answer.tool_calls == []


def test_a_streamed_chat_says_the_same_piece_by_piece(tiny):
    whole = tiny.chat([USER], template=chat_templates.CHATML, max_tokens=24)
    *pieces, answer = tiny.chat_stream([USER], template=chat_templates.CHATML, max_tokens=24)
    assert isinstance(answer, ChatCompletion)
    assert str(answer) == str(answer.completion)
    assert len(pieces) > 1
    assert "".join(pieces) == answer.message["content"] == whole.text
    heard: list[str] = []
    tiny.chat([USER], template=chat_templates.CHATML, max_tokens=24, on_text=heard.append)
    assert "".join(heard) == whole.text


def test_a_later_turn_decodes_only_what_is_new(tiny):
    messages = [USER]
    first = tiny.chat(messages, template=chat_templates.CHATML, max_tokens=16, reuse=False)
    assert first.completion.stats.n_reused == 0
    messages = [*messages, first.message, {"role": "user", "content": "again"}]
    second = tiny.chat(messages, template=chat_templates.CHATML, max_tokens=8)
    assert second.completion.stats.n_reused >= len(first.prompt.tokens) - 1
    fresh = tiny.chat(messages, template=chat_templates.CHATML, max_tokens=8, reuse=False)
    assert fresh.completion.stats.n_reused == 0
    assert fresh.completion.tokens == second.completion.tokens


def test_a_mistaken_option_is_named_with_the_nearest(tiny):
    with pytest.raises(UnknownOptionError, match=r"temprature.*'temperature'"):
        tiny.chat([USER], template=chat_templates.CHATML, temprature=1)


def test_nothing_is_generated_for_a_message_that_cannot_be(tiny):
    before = tiny.stats
    with pytest.raises(InvalidValueError):
        tiny.chat([{"role": "user"}], template=chat_templates.CHATML)
    assert tiny.stats is before


def test_a_call_of_a_tool_becomes_part_of_the_message(tiny):
    grammar = f"root ::= {json.dumps('<tool_call>' + SAID + '</tool_call>')}"
    answer = tiny.chat([USER], tools=[TOOL], template=chat_templates.CHATML_TOOLS, grammar=grammar, max_tokens=200)
    assert answer.text == f"<tool_call>{SAID}</tool_call>"
    (call,) = answer.tool_calls
    assert call["function"] == {"name": "weather", "arguments": '{"city": "Bonn"}'}
    assert answer.message == {"role": "assistant", "content": "", "tool_calls": [call]}
    # the message can go back into the conversation
    messages = [USER, answer.message, {"role": "tool", "tool_call_id": call["id"], "content": "rain"}]
    text = chat_prompt(tiny.model, messages, tools=[TOOL], template=chat_templates.CHATML_TOOLS).text
    assert f"<tool_call>\n{SAID}\n</tool_call>" in text


def test_without_tools_nothing_is_taken_for_a_call(tiny):
    grammar = f"root ::= {json.dumps(SAID)}"
    answer = tiny.chat([USER], template=chat_templates.CHATML, grammar=grammar, max_tokens=200)
    assert answer.message == {"role": "assistant", "content": SAID}


# ----------------------------------------------------------------- calls of tools
@pytest.mark.parametrize(
    ("said", "before", "calls"),
    [
        (f"<tool_call>\n{SAID}\n</tool_call>", "", [("weather", {"city": "Bonn"})]),
        (f"Let me see.\n<tool_call>{SAID}</tool_call>", "Let me see.", [("weather", {"city": "Bonn"})]),
        (f"<tool_call>{SAID}</tool_call>\n<tool_call>{SAID}</tool_call>", "", [("weather", {"city": "Bonn"})] * 2),
        (f"<tool_call>{SAID}", "", [("weather", {"city": "Bonn"})]),
        (f"[TOOL_CALLS][{SAID}]", "", [("weather", {"city": "Bonn"})]),
        (f"[TOOL_CALLS] [{SAID}, {SAID}]</s>", "", [("weather", {"city": "Bonn"})] * 2),
        (SAID, "", [("weather", {"city": "Bonn"})]),
        (f"  {SAID}\n", "", [("weather", {"city": "Bonn"})]),
        (f"[{SAID}]", "", [("weather", {"city": "Bonn"})]),
        ('{"name": "weather", "parameters": {"a": 1}}', "", [("weather", {"a": 1})]),
        ('{"name": "weather", "arguments": "{\\"a\\": 1}"}', "", [("weather", {"a": 1})]),
        ('{"name": "weather"}', "", [("weather", {})]),
        ("<tool_call>{broken</tool_call>", None, []),
        (f"<tool_call>{SAID}</tool_call><tool_call>[]</tool_call>", None, []),
        ("[TOOL_CALLS]weather", None, []),
        ('{"name": "another", "arguments": {}}', None, []),
        ('{"name": "weather", "arguments": 3}', None, []),
        (f"Say {SAID}", None, []),
        ("[]", None, []),
        ("[" * 100_000, None, []),
        ("It rains.", None, []),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, str) else None,
)
def test_calls_are_read_in_three_forms_and_else_left_as_text(said: str, before: str | None, calls: list):
    content, found = parse_tool_calls(said, ["weather"])
    assert content == (said if before is None else before)
    assert [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in found] == calls
    assert len({c["id"] for c in found}) == len(found)
    assert all(len(c["id"]) == 9 and c["id"].isalnum() for c in found)
