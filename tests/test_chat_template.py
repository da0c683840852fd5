"""Templates of the field give the texts that their authors meant; the guards change none of them."""

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import chat_templates
import pytest
from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pyspec._core import Model
from pyspec.chat.template import ChatTemplate
from pyspec.chat.templating.rewrite import Generation
from pyspec.errors import ChatTemplateError, InvalidValueError

NOW = datetime(2026, 3, 4, 5, 6)
ROOT = Path(__file__).parent.parent
TEMPLATES = sorted((ROOT / "vendor" / "llama.cpp" / "models" / "templates").glob("*.jinja"))

USER, ASSISTANT, SYSTEM = (
    lambda text, role=role: {"role": role, "content": text} for role in ("user", "assistant", "system")
)
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather & more",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALL = {"type": "function", "id": "abcdefghi", "function": {"name": "weather", "arguments": {"city": "Köln"}}}
RESULT = {"role": "tool", "tool_call_id": "abcdefghi", "name": "weather", "content": "rain"}
SIMPLE = [USER("Hello <there> é"), ASSISTANT("Greetings!"), USER("How are you?")]
CONVERSATIONS = {
    "simple": (SIMPLE, None),
    "system": ([SYSTEM("Be brief."), *SIMPLE], None),
    "tools": ([SYSTEM("Be brief."), USER("Hello")], [TOOL]),
    "call": ([USER("Weather?"), {**ASSISTANT(""), "tool_calls": [CALL]}, RESULT, ASSISTANT("It rains.")], [TOOL]),
}
# What a template needs beside the usual variables.
VARIABLES = {"fireworks-ai-llama-3-firefunction-v2": {"functions": "", "datetime": "now"}}


# ----------------------------------------------------------------- templates of the field
def rendered(template: ChatTemplate, messages: list, tools: list | None, variables: dict) -> str | ChatTemplateError:
    try:
        return template.render(messages, tools=tools, bos_token="<s>", eos_token="</s>", now=NOW, **variables)
    except ChatTemplateError as error:
        return error


class Unguarded:
    """Jinja's own sandbox, set up as Hugging Face's `apply_chat_template` does."""

    def __init__(self, source: str) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
        )
        environment.filters |= {"tojson": self.tojson, "from_json": json.loads, "safe": str}
        environment.globals |= {"raise_exception": self.raise_exception, "strftime_now": NOW.strftime}
        self.template = environment.from_string(source)

    @staticmethod
    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    @staticmethod
    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def render(self, messages: list, tools: list | None, variables: dict) -> str | Exception:
        given = {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": True}
        try:
            return self.template.render(**given, bos_token="<s>", eos_token="</s>", **variables)
        except Exception as error:
            return error


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_the_guards_change_no_text_of_a_template_of_llama_cpp(path: Path):
    source, variables = path.read_text(encoding="utf-8"), VARIABLES.get(path.stem, {})
    template, reference = ChatTemplate(source), Unguarded(source)
    for messages, tools in CONVERSATIONS.values():
        found = rendered(template, messages, tools, variables)
        expected = reference.render(messages, tools, variables)
        if isinstance(expected, str):
            assert found == expected
        elif type(expected) is TemplateError:  # raise_exception: the template refuses these messages
            assert (found.kind, found.reason) == ("refused", str(expected))
        elif isinstance(found, str):  # a list in the place of None or of a generator, where Jinja's sandbox fails
            assert isinstance(expected, TypeError)
        else:
            assert found.kind == "failed"
    text = rendered(template, SIMPLE, None, variables)
    assert isinstance(text, str), f"a simple conversation is refused: {text}"
    assert text.index("Hello <there> é") < text.index("Greetings!") < text.index("How are you?")


# ----------------------------------------------------------------- texts, written out
def test_the_template_of_smollm2_gives_chatml_with_its_own_system_message(smollm2_path: Path):
    template = ChatTemplate(Model(smollm2_path, vocab_only=True).chat_template())
    assert template.render([USER("Hello")]) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )
    assert template.render([SYSTEM("Be brief."), USER("Hello")], add_generation_prompt=False) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n"
    )


def test_chatml():
    assert ChatTemplate(chat_templates.CHATML).render(SIMPLE) == (
        "<|im_start|>user\nHello <there> é<|im_end|>\n<|im_start|>assistant\nGreetings!<|im_end|>\n"
        "<|im_start|>user\nHow are you?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_chatml_with_tools_and_their_results():
    template = ChatTemplate(chat_templates.CHATML_TOOLS)
    messages, tools = CONVERSATIONS["call"]
    assert template.render([SYSTEM("Be brief."), *messages[:3]], tools=tools) == (
        "<|im_start|>system\nBe brief.\n\nTools:\n" + json.dumps(TOOL) + "<|im_end|>\n"
        "<|im_start|>user\nWeather?<|im_end|>\n"
        '<|im_start|>assistant\n\n<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>'
        "<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\nrain\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_further_variables_reach_the_template():
    template = ChatTemplate(chat_templates.CHATML_TOOLS)
    assert template.render([USER("Hello")]).endswith("<|im_start|>assistant\n")
    assert template.render([USER("Hello")], enable_thinking=False).endswith("assistant\n<think>\n\n</think>\n\n")


def test_llama_3_writes_the_date():
    template = ChatTemplate(chat_templates.LLAMA3)
    expected = (
        "<bos><|start_header_id|>system<|end_header_id|>\n\nToday Date: {}\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    messages = [SYSTEM(" Be brief. "), USER("Hello\n")]
    assert template.render(messages, bos_token="<bos>", now=NOW) == expected.format("04 Mar 2026")
    assert template.render(messages, bos_token="<bos>", date_string="today") == expected.format("today")


def test_mistral_refuses_roles_that_do_not_alternate_in_its_own_words():
    template = ChatTemplate(chat_templates.MISTRAL)
    text = template.render(SIMPLE, bos_token="<s>", eos_token="</s>")
    assert text == "<s>[INST] Hello <there> é [/INST] Greetings!</s>[INST] How are you? [/INST]"
    with pytest.raises(
        ChatTemplateError, match=r"roles must alternate: user, assistant, user \.\.\.; got user"
    ) as caught:
        template.render([USER("a"), USER("b")])
    assert caught.value.kind == "refused"


def test_gemma_puts_the_system_message_in_front_of_the_first_turn():
    assert ChatTemplate(chat_templates.GEMMA).render([SYSTEM("Be brief."), *SIMPLE], bos_token="<bos>") == (
        "<bos><start_of_turn>user\nBe brief.\n\nHello <there> é<end_of_turn>\n"
        "<start_of_turn>model\nGreetings!<end_of_turn>\n"
        "<start_of_turn>user\nHow are you?<end_of_turn>\n<start_of_turn>model\n"
    )


# ----------------------------------------------------------------- the language
@pytest.mark.parametrize(
    ("source", "text"),
    chat_templates.LANGUAGE,
)
def test_the_language_of_templates(source: str, text: str):
    assert ChatTemplate(source).render([]) == text


@pytest.mark.parametrize(
    ("source", "kind", "words", "line"),
    [
        ("a\n{% if %}", "syntax", "Expected an expression", 2),
        ("{% for x in y %}", "syntax", "end of template", 1),
        ("{{ 1|nosuchfilter }}", "syntax", "nosuchfilter", 1),
        ("\n\n{{ messages[0].content.name }}", "failed", "has no attribute 'content'", 3),
        ("{{ nothing.a }}", "failed", "'nothing' is undefined", 1),
        ("{{ raise_exception('no, thanks') }}", "refused", "no, thanks", None),
        ("{{ 'a' + 1 }}", "failed", r"str \+ int", 1),
        ("{{ 1(2) }}", "failed", "cannot be called", 1),
    ],
)
def test_an_error_tells_its_kind_reason_and_line(source: str, kind: str, words: str, line: int | None):
    with pytest.raises(ChatTemplateError, match=words) as caught:
        ChatTemplate(source).render([{"role": "user"}])
    assert (caught.value.kind, caught.value.line) == (kind, line)


def test_a_template_is_text():
    with pytest.raises(InvalidValueError, match="source"):
        ChatTemplate(None)


def test_importing_the_package_does_not_import_jinja():
    code = "import sys, pyspec, pyspec.chat, pyspec.compat; assert 'jinja2' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
