"""Every parameter of llama-cpp-python's `Llama` is taken with its meaning, or refused by name with the way out."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyspec import compat
from pyspec.compat.options import constructor
from pyspec.errors import InvalidValueError, UnknownOptionError, UnsupportedError

PROMPT = "def double(x):"
MESSAGES = [{"role": "user", "content": PROMPT}]
FEW: dict[str, Any] = {"max_tokens": 3}

# Methods and constructor arguments with their defaults, as llama-cpp-python 0.3.36 documents them.
METHODS = {
    "tokenize": "text add_bos special",
    "detokenize": "tokens prev_tokens special",
    "set_cache": "cache",
    "set_seed": "seed",
    "reset": "",
    "n_ctx": "",
    "n_embd": "",
    "n_vocab": "",
    "token_eos": "",
    "token_bos": "",
    "token_nl": "",
    "close": "",
}
REFUSED = (
    "eval sample generate create_embedding embed create_chat_completion_openai_v1 save_state load_state tokenizer "
    "pooling_type logits_to_logprobs longest_token_prefix from_pretrained __getstate__"
).split()
CONSTRUCTOR: dict[str, Any] = {
    "n_gpu_layers": 0,
    "split_mode": 1,
    "main_gpu": 0,
    "tensor_split": None,
    "vocab_only": False,
    "use_mmap": True,
    "use_mlock": False,
    "kv_overrides": None,
    "seed": 0xFFFFFFFF,
    "n_ctx": 512,
    "n_batch": 512,
    "n_ubatch": 512,
    "n_threads": None,
    "n_threads_batch": None,
    "rope_scaling_type": -1,
    "pooling_type": -1,
    "attention_type": -1,
    "rope_freq_base": 0.0,
    "rope_freq_scale": 0.0,
    "yarn_ext_factor": -1.0,
    "yarn_attn_factor": 1.0,
    "yarn_beta_fast": 32.0,
    "yarn_beta_slow": 1.0,
    "yarn_orig_ctx": 0,
    "logits_all": False,
    "embedding": False,
    "offload_kqv": True,
    "flash_attn": False,
    "op_offload": None,
    "swa_full": None,
    "no_perf": False,
    "lora_base": None,
    "lora_scale": 1.0,
    "lora_path": None,
    "numa": False,
    "chat_handler": None,
    "draft_model": None,
    "tokenizer": None,
    "type_k": None,
    "type_v": None,
    "spm_infill": False,
    "verbose": True,
}


@pytest.fixture(scope="module")
def old(tiny_target_path: Path) -> Iterator[compat.Llama]:
    small: dict[str, Any] = {"n_ctx": 256, "n_threads": 1, "budget": "off", "rollback": "shadow"}
    with compat.Llama(str(tiny_target_path), chat_format="chatml", **small) as made:
        yield made


def text(answer: dict[str, Any]) -> str:
    return str(answer["choices"][0]["text"])


# ----------------------------------------------------------------- signatures


@pytest.mark.parametrize("method", METHODS)
def test_a_method_has_the_same_arguments(method: str):
    assert list(inspect.signature(getattr(compat.Llama, method)).parameters) == ["self", *METHODS[method].split()]


@pytest.mark.parametrize("method", REFUSED)
def test_a_method_that_is_not_to_be_had_is_refused_by_its_name(old: compat.Llama, method: str):
    with pytest.raises(UnsupportedError, match="is not possible here"):
        getattr(old, method)() if method == "__getstate__" else getattr(old, method)("x", whatever=1)


@pytest.mark.parametrize("name", CONSTRUCTOR)
def test_every_argument_of_the_constructor_may_be_given_its_default(name: str):
    constructor({name: CONSTRUCTOR[name]})


def test_all_defaults_together_load_a_model(tiny_target_path: Path):
    given = CONSTRUCTOR | {"n_threads": 1, "n_threads_batch": 1, "n_ctx": 256}
    with compat.Llama(str(tiny_target_path), spec=None, rollback="shadow", **given) as made:
        assert text(made(PROMPT, **FEW))


# ----------------------------------------------------------------- prompts


@pytest.mark.parametrize("prompt", ["", []], ids=["text", "tokens"])
def test_an_empty_prompt_begins_with_the_token_that_begins_a_text(old: compat.Llama, prompt: Any):
    expected = old.llm.generate([old.token_bos()], max_tokens=3)
    answer = old(prompt, temperature=0.0, echo=True, **FEW)
    assert text(answer) == expected.text
    assert answer["usage"]["prompt_tokens"] == 1
    assert "".join(piece["choices"][0]["text"] for piece in old(prompt, temperature=0, stream=True, **FEW)) == text(
        answer
    )


def test_an_empty_prompt_needs_such_a_token(old: compat.Llama, monkeypatch: pytest.MonkeyPatch):
    class Vocabulary:
        bos = None

    monkeypatch.setattr(old, "_vocab", Vocabulary())
    with pytest.raises(InvalidValueError, match="no token that begins"):
        old("")


# ----------------------------------------------------------------- sampling


@pytest.mark.parametrize(
    ("given", "same"),
    [
        ({"top_k": -1}, {"top_k": 0}),
        ({"top_p": 2}, {"top_p": 1.0}),
        ({"typical_p": 1.5}, {"typical_p": 1.0}),
        ({"min_p": -1}, {"min_p": 0.0}),
        ({"temperature": None, "top_k": None, "top_p": None}, {}),
        ({"tfs_z": None}, {}),
        ({"logit_bias": {"5": 3.0}}, {"logit_bias": {5: 3.0}}),
        ({"logit_bias": None}, {}),
        ({"stop": []}, {"stop": None}),
        ({"stop": ("x",)}, {"stop": "x"}),
        ({"n": 1, "user": "me"}, {}),
        ({"logprobs": False}, {}),
    ],
    ids=str,
)
def test_two_ways_to_say_it_give_one_text(old: compat.Llama, given: dict[str, Any], same: dict[str, Any]):
    how: dict[str, Any] = {"seed": 7, "temperature": 1.5, "max_tokens": 12}
    how = {name: value for name, value in how.items() if name not in given}
    assert text(old(PROMPT, **how | given)) == text(old(PROMPT, **how | same))


def test_a_negative_temperature_draws_from_all_tokens(old: compat.Llama):
    whole = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 3, "max_tokens": 12}
    given = {"temperature": -1.0, "top_k": 1, "mirostat_mode": 2, "seed": 3, "max_tokens": 12}
    assert text(old(PROMPT, **given)) == text(old(PROMPT, **whole))


@pytest.mark.parametrize("seed", [-1, 2**32 - 1, None])
def test_a_seed_of_none_draws_one(old: compat.Llama, seed: int | None):
    assert text(old(PROMPT, seed=seed, **FEW))


@pytest.mark.parametrize("call", ["__call__", "create_completion", "create_chat_completion"])
def test_several_answers_and_unknown_names_are_refused(old: compat.Llama, call: str):
    prompt: Any = MESSAGES if "chat" in call else PROMPT
    with pytest.raises(UnsupportedError, match=r"n=2.*generate_many"):
        getattr(old, call)(prompt, n=2)
    with pytest.raises(UnknownOptionError, match="did you mean 'temperature'"):
        getattr(old, call)(prompt, temprature=1)


# ----------------------------------------------------------------- chats


def test_an_assistant_that_said_nothing_is_empty(old: compat.Llama):
    def answer(**assistant: Any) -> Any:
        messages = [*MESSAGES, {"role": "assistant"} | assistant, *MESSAGES]
        return old.create_chat_completion(messages, temperature=0.0, **FEW)["choices"][0]["message"]

    assert answer(content=None) == answer(content="") == answer()


@pytest.mark.parametrize("content", [{"content": None}, {}], ids=["none", "missing"])
def test_a_user_that_said_nothing_is_a_mistake(old: compat.Llama, content: dict[str, Any]):
    with pytest.raises(InvalidValueError, match=r"messages\[0\]\['content'\]"):
        old.create_chat_completion([{"role": "user"} | content], **FEW)


def test_the_last_word_about_the_form_counts(old: compat.Llama):
    """`tool_choice` before `response_format` before `grammar`."""
    function = {"name": "f", "parameters": {"const": 1}}
    how: dict[str, Any] = {"grammar": 'root ::= "no"', "max_tokens": 60, "temperature": 0.0}
    how |= {"response_format": {"type": "json_object", "schema": {"const": 2}}}
    assert old.create_chat_completion(MESSAGES, **how)["choices"][0]["message"]["content"] == "2"
    tools = [{"type": "function", "function": function}]
    said = old.create_chat_completion(MESSAGES, tools=tools, tool_choice="required", **how)["choices"][0]["message"]
    assert '"f"' in str(said["content"]) or said["tool_calls"][0]["function"]["name"] == "f"


def test_a_grammar_may_be_made_of_a_schema(old: compat.Llama):
    grammar = compat.LlamaGrammar.from_json_schema('{"enum": ["left", "right"]}')
    assert text(old(PROMPT, grammar=grammar, max_tokens=20)) in ('"left"', '"right"')


def test_a_call_may_choose_its_speculator(old: compat.Llama):
    def counts(**options: Any) -> tuple[str, int]:
        answer = old.create_completion("a b c a b c a b", max_tokens=12, temperature=0.0, **options)
        return text(answer), old.llm.stats.n_drafted

    plain, n_plain = counts(spec=None)
    fast, n_fast = counts(spec="suffix")
    assert (plain, n_plain) == (fast, 0)
    assert n_fast > 0
    answer = old.create_chat_completion([{"role": "user", "content": "a"}], max_tokens=4, spec=None)
    assert answer["choices"]
    with pytest.raises(UnknownOptionError, match="speculator 'sufix'; did you mean 'suffix'"):
        old.create_completion("a", spec="sufix")


@pytest.mark.parametrize(
    ("given", "name"), [({"tool_choice": "required"}, "tool_choice"), ({"top_logprobs": 2}, "top_logprobs")]
)
def test_what_means_nothing_alone_is_refused(old: compat.Llama, given: dict[str, Any], name: str):
    with pytest.raises(InvalidValueError, match=f"^{name}="):
        old.create_chat_completion([{"role": "user", "content": "a"}], **given)


@pytest.mark.parametrize("path", [5, None, b"x", ""])
def test_a_path_that_is_none_is_refused_by_its_name(path: Any):
    with pytest.raises(InvalidValueError, match=r"^model_path="):
        compat.Llama(path)


ARRAY = np.array([1, 2])


@pytest.mark.parametrize("method", ["create_completion", "create_chat_completion"])
def test_an_array_where_none_is_wanted_is_refused_by_its_name(old: compat.Llama, method: str):
    call = getattr(old, method)
    text = PROMPT if method == "create_completion" else MESSAGES
    for name in [*inspect.signature(call).parameters][1:]:
        if name == "further":
            continue
        with pytest.raises((InvalidValueError, UnsupportedError), match=name.removesuffix("_mode")):
            call(text, **(FEW | {name: ARRAY}))


MEANINGLESS = {"numa", "logits_all", "lora_scale", "no_perf"}


@pytest.mark.parametrize("value", [ARRAY, []], ids=["array", "list"])
@pytest.mark.parametrize("name", sorted({*CONSTRUCTOR, "spec", "budget"} - MEANINGLESS - {"tensor_split"}))
def test_so_is_one_given_to_the_constructor(tiny_target_path: Path, name: str, value: Any):
    if name == "spec" and not len(value):
        return  # none of several
    with pytest.raises((InvalidValueError, UnsupportedError)) as error:
        compat.Llama(str(tiny_target_path), **({"n_ctx": 256} | {name: value}))
    assert name.split("_")[0] in str(error.value)


@pytest.mark.parametrize("name", sorted(MEANINGLESS))
def test_what_means_nothing_may_be_anything(tiny_target_path: Path, name: str):
    compat.Llama(str(tiny_target_path), n_ctx=256, **{name: ARRAY}).close()
