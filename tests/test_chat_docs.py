"""What docs/chat.md and examples/chat_model.py promise can be run."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import pyspec
from pyspec.chat.template import TemplateLimits

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = (ROOT / "docs" / "chat.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "examples" / "chat_model.py"


def test_every_example_of_the_document_runs_as_it_stands_in_order(
    smollm2_path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def quiet(*args, **options):  # one thread: tests run beside others
        return Llama(*args, n_threads=1, context={"n_threads_batch": 1}, budget="counts", rollback="trim", **options)

    Llama = pyspec.Llama
    monkeypatch.setattr(pyspec, "Llama", quiet)
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL):
        exec(compile(block, "docs/chat.md", "exec"), names)
    names["llm"].close()
    assert "total_tokens" in capsys.readouterr().out


def test_the_document_tells_the_limits_as_they_are():
    limits = TemplateLimits()
    words = {1_000_000: "1 million", 10_000_000: "10 million", 100_000: "100,000"}
    for name in ("n_work", "n_chars", "n_depth", "n_nested", "n_bits", "n_source"):
        (row,) = re.findall(rf"^\| `{name}`.*", DOCUMENT, re.MULTILINE)
        value = getattr(limits, name)
        assert f"| {words.get(value, value)} |" in row
    assert f"| {limits.n_work_per_input} a character, {limits.n_work_per_pair} for each two messages |" in DOCUMENT
    assert f"| {limits.n_chars_per_input} a character |" in DOCUMENT


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("chat_model", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def model(example, tiny_target_path):
    options = {"n_ctx": 512, "n_threads": 1, "context": {"n_threads_batch": 1}, "budget": "off", "rollback": "shadow"}
    with pyspec.Llama(tiny_target_path, **options) as llm:
        yield example.ChatModel(llm, template=example.TEMPLATE, max_tokens=12)


def test_the_example_answers_streams_and_chains_alike(model):
    text = model.invoke("double x")
    assert text
    assert text == model("double x") == "".join(model.stream("double x"))
    assert model.batch(["double x", "double x"], max_tokens=3) == [model.invoke("double x", max_tokens=3)] * 2
    assert (model | str.upper)("double x") == text.upper()
    assert model.invoke("double x", stop=[text[3:5]]) == text[: text.index(text[3:5])]


def test_the_example_takes_messages_in_every_usual_form(model):
    dicts = [
        {"role": "system", "content": "a"},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "c"},
    ]
    pairs = [("system", "a"), ("human", "b"), ("ai", "c")]
    objects = [SimpleNamespace(type=role, content=content) for role, content in pairs]
    assert model._messages(dicts) == model._messages(pairs) == model._messages(objects) == dicts


def test_the_example_runs():
    ran = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, check=True, cwd="/")
    assert ran.stderr == ""
    assert len(ran.stdout) > 20
