"""A misuse ends with code 2 and one line that names the way out; a failure with 1; neither with a traceback."""

import pytest

from pyspec import models
from pyspec.errors import DecodeError
from pyspec.llm import Llama

GENERATE = ("generate", "tiny-target")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        pytest.param([], "COMMAND", id="no-command"),
        pytest.param(["genrate"], "generate", id="unknown-command"),
        pytest.param([*GENERATE, "x", "--temprature", "1"], "did you mean '--temperature'", id="misspelt-option"),
        pytest.param([*GENERATE, "x", "--temp", "1"], "unknown option '--temp'", id="abbreviated-option"),
        pytest.param([*GENERATE, "x", "y"], "unexpected argument 'y'", id="two-prompts"),
        pytest.param([*GENERATE, "x", "--tokens", "1"], "one prompt", id="prompt-and-tokens"),
        pytest.param([*GENERATE, "--tokens", "1,b"], "token ids", id="token-that-is-no-number"),
        pytest.param([*GENERATE, "--tokens", "4096"], "vocabulary of 4096", id="token-out-of-range"),
        pytest.param([*GENERATE, "-f", "no/such/file"], "no/such/file", id="missing-prompt-file"),
        pytest.param([*GENERATE, "-f", "."], "'.'", id="folder-as-prompt-file"),
        pytest.param([*GENERATE, "x", "-n", "many"], "'many'", id="length-that-is-no-number"),
        pytest.param([*GENERATE, "x", "--spec", "ngram-mdo"], "did you mean 'ngram-mod'", id="misspelt-speculator"),
        pytest.param([*GENERATE, "x", "--spec", "ngram-mod:n_mach=3"], "did you mean 'n_match'", id="misspelt-field"),
        pytest.param([*GENERATE, "x", "--spec", "ngram-mod:n_match=0"], "n_match=0", id="field-out-of-range"),
        pytest.param([*GENERATE, "x", "--spec", "draft-model"], "--draft-model", id="draft-model-not-given"),
        pytest.param([*GENERATE, "x", "--spec", "draft:nowhere"], "nowhere", id="draft-file-missing"),
        pytest.param([*GENERATE, "x", "--spec", "none", "--compare"], "nothing to compare", id="compare-with-none"),
        pytest.param([*GENERATE, "x", "--rollback", "shado"], "did you mean 'shadow'", id="misspelt-rollback"),
        pytest.param([*GENERATE, "x", "--rollback", "trim"], "hybrid memory", id="rollback-that-memory-cannot-do"),
        pytest.param([*GENERATE, "x", "--temperature", "-1"], "temperature=-1", id="temperature-out-of-range"),
        pytest.param([*GENERATE, "x", "--stop", ""], "stop", id="empty-stop"),
        pytest.param([*GENERATE, "x", "-c", "-5"], "n_ctx=-5", id="negative-context"),
        pytest.param(["generate", "no-such-model", "x"], "tiny-target", id="missing-model"),
        pytest.param(["info", "no-such-model"], "tiny-target", id="info-of-missing-model"),
        pytest.param(["models", "path", "gemma3"], "did you mean 'gemma3-270m'", id="misspelt-model"),
        pytest.param(["demo", "--runs", "0"], "at least 1", id="no-runs"),
        pytest.param(["demo", "--prompt-file", "no/such/file"], "no/such/file", id="missing-demo-prompt"),
    ],
)
def test_a_misuse_is_told_in_one_line_with_code_2(cli, argv, said):
    result = cli(*argv)
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("pyspec: error: ")
    assert said in result.err
    assert "Traceback" not in result.err
    assert len(result.err.splitlines()) <= 2


def test_a_prompt_that_is_no_utf8_is_refused_with_its_place(cli):
    result = cli(*GENERATE, "-", stdin=b"abc\xff")
    assert (result.code, result.out) == (2, "")
    assert "byte 3" in result.err


def test_a_damaged_model_is_refused_with_the_reason(cli, tmp_path):
    file = tmp_path / "broken.gguf"
    file.write_bytes(models.tiny_target().read_bytes()[:5000])
    result = cli("generate", file, "x")
    assert result.code == 2
    assert result.err.startswith(f"pyspec: error: cannot load model '{file}': ")
    assert len(result.err.splitlines()) == 1


def test_text_for_a_model_without_text_is_refused_with_the_way_out(cli, no_text_path):
    result = cli("generate", no_text_path, "x")
    assert result.code == 2
    assert "pass and read token ids" in result.err


def test_a_draft_model_of_another_vocabulary_is_refused(cli, arch_model):
    result = cli(*GENERATE, "x", "--draft-model", arch_model("lfm2"))
    assert result.code == 2
    assert "vocabulary differs" in result.err


def test_a_failure_of_llama_cpp_ends_with_code_1(cli, monkeypatch):
    def fail(*_, **__):
        raise DecodeError(status=-3, reason="the graph failed")

    monkeypatch.setattr(Llama, "generate", fail)
    result = cli(*GENERATE, "x")
    assert result.code == 1
    assert result.err.startswith("pyspec: error: llama_decode returned -3")


def test_a_misspelt_speculator_is_refused_before_the_model_is_loaded(cli, monkeypatch):
    def load(*_, **__):
        raise AssertionError("the model was loaded first")

    monkeypatch.setattr("pyspec.cli.generate.load", load)
    assert cli(*GENERATE, "x", "--spec", "ngram-mdo").code == 2
