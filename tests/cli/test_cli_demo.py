"""`pyspec demo` shows one text many times, or fails loudly."""

from dataclasses import replace

import pytest

from pyspec import Llama
from pyspec.cli import demo
from pyspec.cli.demo_prompt import ANSWER, PROMPT


def rows(out: str) -> dict[str, list[str]]:
    table = out.split("\nspeculator ")[1].split("\n\n")[0]
    return {line.split()[0]: line.split()[1:] for line in table.splitlines()[2:]}


def test_every_speculator_writes_the_same_text_and_the_demo_succeeds(cli):
    result = cli("demo", "--runs", 1, "-n", 40)
    assert (result.code, result.err) == (0, "")
    assert "All 5 runs wrote the same 40 tokens." in result.out
    assert PROMPT in result.out
    assert list(rows(result.out)) == ["plain", "ngram-mod", "ngram-map-k", "draft-model", "both"]


def test_the_text_is_shown_once(cli, tiny_target_path):
    with Llama(tiny_target_path, spec=None) as llm:
        text = llm.generate(PROMPT, max_tokens=40).text
    shown = cli("demo", "--runs", 2, "-n", 40).out.split(PROMPT)
    assert len(shown) == 2
    lines = shown[1].split("\n", 1)[1]
    assert lines.startswith(text)
    assert lines[len(text) :].lstrip("\n").startswith("---- speed ")


def test_each_run_starts_with_a_speculator_that_has_not_seen_the_answer(cli):
    """A table kept from the first run would draft more in the second."""
    seen = []

    def generate(self, prompt, **options):
        completion = honest(self, prompt, **options)
        seen.append((completion.stats.n_rounds, completion.stats.n_drafted, completion.stats.n_accepted))
        return completion

    honest = Llama.generate
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Llama, "generate", generate)
        cli("demo", "--runs", 2, "-n", 40, "--budget", "counts")
    assert seen[:5] == seen[5:]


def test_a_text_that_differs_fails_the_demo_and_names_the_speculator(cli, monkeypatch):
    honest = Llama.generate

    def lying(self, prompt, *, spec, **options):
        completion = honest(self, prompt, spec=spec, **options)
        return replace(completion, tokens=[0]) if getattr(spec, "name", "") == "ngram-map-k" else completion

    monkeypatch.setattr(Llama, "generate", lying)
    result = cli("demo", "--runs", 1, "-n", 20)
    assert result.code == 1
    assert "ERROR: WITH ngram-map-k THE TEXT DIFFERS" in result.out
    assert "WITH ngram-mod" not in result.out
    assert "the same" not in result.out.split("The text:")[1]


def test_another_model_runs_without_a_draft_model(cli, tmp_path):
    file = tmp_path / "prompt.txt"
    file.write_text("a = 1\nb = 2\na = 1\nb =")
    result = cli("demo", "--model", "tiny-draft", "--prompt-file", file, "--runs", 1, "-n", 24)
    assert result.code == 0
    assert list(rows(result.out)) == ["plain", "ngram-mod", "ngram-map-k"]


@pytest.mark.parametrize(
    ("text", "finish", "said"),
    [
        pytest.param(ANSWER, "stop", "the rewrite is exact, every character", id="exact"),
        pytest.param(ANSWER + "x", "length", "wrote on after it", id="goes-on"),
        pytest.param(ANSWER.replace(">= maximum", ">= limit"), "stop", "first difference in line 10", id="one-line"),
        pytest.param(ANSWER[:100], "length", "not exact", id="cut"),
        pytest.param("", "stop", "first difference in line 1", id="nothing"),
    ],
)
def test_the_judgement_of_the_rewrite_is_honest(text, finish, said):
    class Plain:
        pass

    plain = Plain()
    plain.text, plain.finish_reason = text, finish
    assert said in demo._described(plain, ANSWER)


def test_the_embedded_target_rewrites_the_function_exactly(cli):
    result = cli("demo", "--runs", 1)
    assert (result.code, result.err) == (0, "")
    assert "the rewrite is exact, every character" in result.out


def test_the_right_answer_renames_the_variable_everywhere_and_changes_nothing_else():
    function = PROMPT.split("\n# the same function")[0]
    assert function.replace("limit", "maximum") == ANSWER
    assert "limit" not in ANSWER
