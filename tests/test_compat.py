"""Code written for llama-cpp-python runs: same names, same arguments, results of the same shape, and pyspec's text."""

import inspect
import json
import logging

import chat_templates
import pytest

import pyspec
from pyspec import compat
from pyspec.compat.options import constructor
from pyspec.errors import InvalidValueError, UnknownOptionError, UnsupportedError

PROMPT = "def double(x):"
MESSAGES = [{"role": "user", "content": PROMPT}]
FUNCTION = {
    "name": "weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"enum": ["Bonn", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
TOOLS = [{"type": "function", "function": FUNCTION}]
SAID = '{"name": "weather", "arguments": {"city": "Bonn"}}'
SAYS = f"root ::= {json.dumps(SAID)}"
CPU = {"n_ctx": 512, "n_threads": 1, "n_threads_batch": 1, "budget": "off", "rollback": "shadow"}

# Parameters in their order, as llama-cpp-python 0.3 documents them.
COMPLETION = (
    "prompt suffix max_tokens temperature top_p min_p typical_p logprobs echo stop frequency_penalty presence_penalty "
    "repeat_penalty top_k stream seed tfs_z mirostat_mode mirostat_tau mirostat_eta model stopping_criteria "
    "logits_processor grammar logit_bias"
)
CHAT = (
    "messages functions function_call tools tool_choice temperature top_p top_k min_p typical_p stream stop seed "
    "response_format max_tokens presence_penalty frequency_penalty repeat_penalty tfs_z mirostat_mode mirostat_tau "
    "mirostat_eta model logits_processor grammar logit_bias logprobs top_logprobs"
)
DEFAULTS = {"max_tokens": 16, "temperature": 0.8, "top_p": 0.95, "min_p": 0.05, "top_k": 40}


@pytest.fixture(scope="module")
def llm(tiny_target_path):
    with compat.Llama(str(tiny_target_path), chat_template=chat_templates.CHATML, **CPU) as llm:
        yield llm


# ----------------------------------------------------------------- names
@pytest.mark.parametrize(("method", "names"), [("create_completion", COMPLETION), ("create_chat_completion", CHAT)])
def test_arguments_have_the_same_names_in_the_same_order(method: str, names: str):
    parameters = inspect.signature(getattr(compat.Llama, method)).parameters
    assert list(parameters) == ["self", *names.split(), "further"]


def test_defaults_are_the_same():
    completion = inspect.signature(compat.Llama.create_completion).parameters
    assert {name: completion[name].default for name in DEFAULTS} == DEFAULTS
    chat = inspect.signature(compat.Llama.create_chat_completion).parameters
    assert (chat["temperature"].default, chat["max_tokens"].default) == (0.2, None)
    assert constructor({}).items() >= {"n_ctx": 512, "n_batch": 512, "n_gpu_layers": 0}.items()


# ----------------------------------------------------------------- completions
def test_a_completion_has_the_shape_and_the_text_of_the_generation(llm, tiny_target_path):
    answer = llm(PROMPT, max_tokens=8, temperature=0.0)
    expected = llm.llm.generate(PROMPT, max_tokens=8, spec=None)
    assert answer["id"].startswith("cmpl-")
    assert isinstance(answer["created"], int)
    del answer["id"], answer["created"]
    n_prompt = len(expected.prompt_tokens)
    assert answer == {
        "object": "text_completion",
        "model": str(tiny_target_path),
        "choices": [{"text": expected.text, "index": 0, "logprobs": None, "finish_reason": "length"}],
        "usage": {"prompt_tokens": n_prompt, "completion_tokens": 8, "total_tokens": n_prompt + 8},
    }


def test_a_stop_string_ends_it_with_the_reason_stop(llm):
    whole = llm(PROMPT, max_tokens=12, temperature=0.0)["choices"][0]["text"]
    choice = llm(PROMPT, max_tokens=12, temperature=0.0, stop=[whole[3:6]])["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == (whole[: whole.index(whole[3:6])], "stop")


def test_the_pieces_of_a_stream_are_the_completion(llm):
    whole = llm.create_completion(PROMPT, max_tokens=12, seed=7)
    chunks = list(llm.create_completion(PROMPT, max_tokens=12, seed=7, stream=True))
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole["choices"][0]["text"]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}
    assert len(chunks) > 2


def test_a_limit_of_nothing_means_no_limit(llm):
    for limit in (None, -1, 0):
        answer = llm(PROMPT, max_tokens=limit, temperature=0.0, stop=["\n    "])
        assert answer["choices"][0]["finish_reason"] == "stop"
        assert llm.llm.stats.n_generated > 0


def test_echo_and_logprobs_are_those_of_the_generation(llm):
    choice = llm(PROMPT, max_tokens=4, temperature=0.0, echo=True, logprobs=2)["choices"][0]
    expected = llm.llm.generate(PROMPT, max_tokens=4, logprobs=2)
    assert choice["text"] == PROMPT + expected.text
    found = choice["logprobs"]
    assert found["token_logprobs"] == [one.logprob for one in expected.logprobs]
    assert "".join(found["tokens"]) == expected.text
    for offset, token, top in zip(found["text_offset"], found["tokens"], found["top_logprobs"], strict=True):
        assert choice["text"][offset:].startswith(token)
        assert token in top
        assert 2 <= len(top) <= 3


def test_a_bias_may_have_ids_as_texts_and_a_name_is_reported(llm):
    first = llm.llm.generate(PROMPT, max_tokens=1).tokens[0]
    answer = llm(PROMPT, max_tokens=1, temperature=0.0, logit_bias={str(first): -1e6}, model="mine")
    assert answer["model"] == "mine"
    assert answer["choices"][0]["text"] != llm.llm.detokenize([first])


def test_a_grammar_holds(llm):
    grammar = compat.LlamaGrammar.from_string('root ::= "yes" | "no"')
    assert llm(PROMPT, grammar=grammar)["choices"][0]["text"] in ("yes", "no")


def test_the_gap_before_a_suffix_is_filled_by_the_models_tokens_for_that(llm, monkeypatch):
    with pytest.raises(UnsupportedError, match="no tokens for filling a gap"):
        llm("a", suffix="b")

    class Vocabulary:
        fim_pre, fim_suf, fim_mid, bos, add_bos = 1, 2, 3, 0, True

    monkeypatch.setattr(llm, "_vocab", Vocabulary())
    a, b = (llm.llm.tokenize(text, add_special=False) for text in ("a", "b"))
    assert llm._infill("a", "b") == [0, 1, *a, 2, *b, 3]


@pytest.mark.parametrize("name", ["logits_processor", "stopping_criteria"])
def test_functions_that_look_at_logits_are_refused(llm, name: str):
    with pytest.raises(UnsupportedError, match=name):
        llm(PROMPT, **{name: [print]})


# ----------------------------------------------------------------- chats
def test_a_chat_has_the_shape_and_the_text_of_the_generation(llm):
    answer = llm.create_chat_completion(MESSAGES, temperature=0.0, max_tokens=8)
    expected = llm.llm.chat(MESSAGES, template=chat_templates.CHATML, max_tokens=8)
    assert answer["id"].startswith("chatcmpl-")
    assert answer["object"] == "chat.completion"
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": expected.text},
            "logprobs": None,
            "finish_reason": "length",
        }
    ]
    assert answer["usage"]["prompt_tokens"] == len(expected.prompt.tokens)


def test_the_deltas_of_a_streamed_chat_are_the_chat(llm):
    whole = llm.create_chat_completion(MESSAGES, seed=7, max_tokens=12)
    chunks = list(llm.create_chat_completion(MESSAGES, seed=7, max_tokens=12, stream=True))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant"}
    assert deltas[-1] == {}
    assert "".join(delta["content"] for delta in deltas[1:-1]) == whole["choices"][0]["message"]["content"]
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}


def test_a_call_of_a_tool_is_told_as_openai_does(llm):
    choice = llm.create_chat_completion(MESSAGES, tools=TOOLS, grammar=SAYS)["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "weather", "arguments": '{"city": "Bonn"}'}
    assert (choice["message"]["content"], choice["finish_reason"]) == (None, "tool_calls")
    chunks = list(llm.create_chat_completion(MESSAGES, tools=TOOLS, grammar=SAYS, stream=True))
    (streamed,) = chunks[1]["choices"][0]["delta"]["tool_calls"]
    assert (streamed["index"], streamed["function"]) == (0, call["function"])
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_functions_of_the_old_kind_are_answered_in_the_old_way(llm):
    choice = llm.create_chat_completion(MESSAGES, functions=[FUNCTION], grammar=SAYS)["choices"][0]
    assert choice["message"] == {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "weather", "arguments": '{"city": "Bonn"}'},
    }
    assert choice["finish_reason"] == "function_call"
    again = [*MESSAGES, choice["message"], {"role": "function", "name": "weather", "content": "rain"}]
    assert llm.create_chat_completion(again, max_tokens=1)["choices"][0]["message"]["role"] == "assistant"


def test_tools_that_may_not_be_chosen_are_not_shown(llm):
    answer = llm.create_chat_completion(MESSAGES, tools=TOOLS, tool_choice="none", grammar=SAYS)
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": SAID}


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "weather"}}], ids=["required", "named"]
)
def test_a_tool_that_must_be_chosen_is_called(llm, choice):
    answer = llm.create_chat_completion(MESSAGES, tools=TOOLS, tool_choice=choice, temperature=0.0, max_tokens=100)
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "weather"
    assert json.loads(call["function"]["arguments"])["city"] in ("Bonn", "Rome")


def test_a_tool_that_does_not_exist_cannot_be_chosen(llm):
    with pytest.raises(InvalidValueError, match="tool_choice"):
        llm.create_chat_completion(MESSAGES, tools=TOOLS, tool_choice={"function": {"name": "nothing"}})


def test_a_json_object_is_one(llm):
    messages = [{"role": "user", "content": "x = {"}]
    answer = llm.create_chat_completion(messages, response_format={"type": "json_object"}, temperature=0.0)
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert isinstance(json.loads(choice["message"]["content"]), dict)


def test_json_of_a_schema_is_of_that_schema(llm):
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    for response_format in (
        {"type": "json_object", "schema": schema},
        {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
    ):
        answer = llm.create_chat_completion(MESSAGES, response_format=response_format, temperature=0.0, max_tokens=40)
        assert json.loads(answer["choices"][0]["message"]["content"]) in ({"n": 1}, {"n": 2})


def test_an_unknown_format_is_refused(llm):
    with pytest.raises(InvalidValueError, match="response_format"):
        llm.create_chat_completion(MESSAGES, response_format={"type": "xml"})


def test_logprobs_of_a_chat(llm):
    answer = llm.create_chat_completion(MESSAGES, temperature=0.0, max_tokens=3, logprobs=True, top_logprobs=2)
    choice = answer["choices"][0]
    content = choice["logprobs"]["content"]
    assert "".join(one["token"] for one in content) == choice["message"]["content"]
    for one in content:
        assert bytes(one["bytes"]).decode() == one["token"]
        assert len(one["top_logprobs"]) == 2
        assert one["logprob"] == one["top_logprobs"][0]["logprob"]


# ----------------------------------------------------------------- the object
def test_the_vocabulary_speaks_bytes(llm):
    tokens = llm.tokenize(b"def f(x): pass")
    assert llm.detokenize(tokens) == b"def f(x): pass"
    assert llm.detokenize(tokens[:2]) + llm.detokenize(tokens[2:], prev_tokens=tokens[:2]) == b"def f(x): pass"
    with pytest.raises(InvalidValueError, match="bytes"):
        llm.tokenize("def")
    assert llm.n_ctx() == llm.llm.n_ctx
    assert llm.n_vocab() == llm.llm.n_vocab
    assert llm.n_embd() == llm.llm.model.n_embd
    assert llm.token_bos() == llm.token_eos() == 0
    assert llm.metadata["general.architecture"] == "lfm2"


def test_memory_is_reused_until_reset(llm):
    llm(PROMPT * 8, max_tokens=2, temperature=0.0)
    llm(PROMPT * 8, max_tokens=2, temperature=0.0)
    assert llm.llm.stats.n_reused > 0
    llm.reset()
    llm(PROMPT * 8, max_tokens=2, temperature=0.0)
    assert llm.llm.stats.n_reused == 0


def test_a_seed_that_was_set_counts_where_the_call_has_none(llm):
    def text(**options):
        return llm(PROMPT, temperature=1.5, max_tokens=12, **options)["choices"][0]["text"]

    try:
        llm.set_seed(11)
        assert text() == text() == text(seed=11)
        assert text(seed=12) != text()
        with pytest.raises(InvalidValueError, match="seed='x'"):
            llm.set_seed("x")
        assert text() == text(seed=11)
    finally:
        llm.set_seed(-1)


def test_options_without_meaning_are_accepted_with_a_line_in_the_log(caplog):
    with caplog.at_level(logging.INFO, logger="pyspec"):
        assert "logits_all" not in constructor({"logits_all": True, "no_perf": False, "numa": None})
    assert [record.getMessage() for record in caplog.records] == [
        "logits_all=True has no meaning in pyspec and is ignored"
    ]


@pytest.mark.parametrize(
    ("given", "own"),
    [
        ({"seed": 2**32 - 1}, {"seed": None}),
        ({"seed": -1}, {"seed": None}),
        ({"seed": 5}, {"seed": 5}),
        ({"n_threads": None}, {"n_threads": 0}),
        ({"n_threads_batch": 2, "type_k": 8}, {"context": {"n_threads_batch": 2, "type_k": "q8_0"}}),
        ({"type_v": "f16", "type_k": None}, {"context": {"type_v": "f16"}}),
        ({"rope_scaling_type": 2, "rope_freq_base": 1e6}, {"context": {"rope_scaling": "yarn", "rope_freq_base": 1e6}}),
        ({"split_mode": 2, "tensor_split": None}, {"model": {"split_mode": "row"}}),
        ({"use_mlock": True}, {"model": {"use_mlock": True}}),
        ({"draft_model": compat.LlamaPromptLookupDecoding(5)}, {"spec": "ngram-simple:size_n=2,size_m=5"}),
        ({"draft_model": "a.gguf", "exact": True}, {"draft_model": "a.gguf", "exact": True}),
        ({"spec": None}, {"spec": None}),
        ({"embedding": False, "lora_path": None, "vocab_only": False}, {"model": None, "context": None}),
    ],
    ids=lambda value: ",".join(value),
)
def test_arguments_become_pyspecs(given: dict, own: dict):
    assert constructor(given).items() >= own.items()


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"n_contxt": 1}, UnknownOptionError, "n_ctx|n_contxt"),
        ({"embedding": True}, UnsupportedError, "text only"),
        ({"lora_path": "a"}, UnsupportedError, "merge the adapter"),
        ({"chat_handler": print}, UnsupportedError, "chat_template="),
        ({"type_k": 99}, InvalidValueError, r"8 \(q8_0\)"),
        ({"draft_model": print}, InvalidValueError, "LlamaPromptLookupDecoding"),
        ({"chat_format": "vicuna"}, UnsupportedError, "chat_template="),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_what_cannot_be_had_is_refused_before_anything_is_loaded(given: dict, error: type, words: str):
    with pytest.raises(error, match=words):
        compat.Llama("no-such-file.gguf", **given)


def test_prompt_lookup_drafts_and_changes_no_text(tiny_target_path, llm):
    drafting = {"draft_model": compat.LlamaPromptLookupDecoding(num_pred_tokens=4, max_ngram_size=2)}
    text = PROMPT + "\n    return 2 * x\n\ndef double(x):"
    with compat.Llama(str(tiny_target_path), **CPU, **drafting) as other:
        found = other(text, max_tokens=16, temperature=0.0)["choices"][0]["text"]
        assert other.llm.stats.n_drafted > 0
    assert found == llm.llm.generate(text, max_tokens=16, spec=None).text


def test_chatml_is_a_format(tiny_target_path):
    with compat.Llama(str(tiny_target_path), chat_format="chatml", **CPU) as other:
        n_tokens = other.create_chat_completion(MESSAGES, max_tokens=1)["usage"]["prompt_tokens"]
    model = pyspec._core.Model(tiny_target_path, vocab_only=True)
    assert n_tokens == len(pyspec.chat.chat_prompt(model, MESSAGES, template=chat_templates.CHATML).tokens)


@pytest.mark.parametrize("name", ["create_embedding", "embed", "from_pretrained"])
def test_what_is_no_text_is_refused(llm, name: str):
    with pytest.raises(UnsupportedError):
        getattr(llm, name)("text")
