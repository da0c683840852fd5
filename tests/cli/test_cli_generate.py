"""`pyspec generate` writes the text of `Llama.generate` to stdout, and nothing else."""

import json
import re
from dataclasses import replace

import pytest

from pyspec import Llama

PROMPT = "def add(a, b):\n    return a + b\n\ndef add(a, b):\n    return"
NGRAM = "ngram-mod:n_match=3,n_min=1,n_max=8"


@pytest.fixture(scope="module")
def expected(tiny_target_path):
    with Llama(tiny_target_path, spec=None) as llm:
        return llm.generate(PROMPT, max_tokens=32)


@pytest.mark.parametrize("spec", ["none", "default", NGRAM, "ngram-map-k:size_n=3,size_m=8", "draft:tiny-draft"])
def test_stdout_is_the_text_of_the_model_whatever_drafts(cli, expected, spec):
    result = cli("generate", "tiny-target", PROMPT, "-n", 32, "--spec", spec)
    assert (result.code, result.out, result.err) == (0, expected.text, "")


@pytest.mark.parametrize("how", [[], ["--compare"]])
def test_a_long_prompt_shows_a_bar_on_a_terminal_and_stdout_is_still_the_text(cli, expected, monkeypatch, how):
    monkeypatch.setattr("pyspec.progress.sys.stderr.isatty", lambda: True, raising=False)
    result = cli("generate", "tiny-target", PROMPT, "-n", 32, "--batch", 8, "--ubatch", 8, *how)
    assert (result.code, result.out) == (0, expected.text)
    shown = result.err.split("reading the prompt")
    assert [part[2 + 30 + 1 :].strip() for part in shown[1:3]] == ["35%", "70%"], "8 and 16 of 23 tokens"


def test_the_prompt_comes_from_stdin_when_none_is_given(cli, expected):
    assert cli("generate", "tiny-target", "-n", 32, stdin=PROMPT.encode()).out == expected.text


def test_a_dash_reads_the_prompt_from_stdin(cli, expected):
    assert cli("generate", "tiny-target", "-", "-n", 32, stdin=PROMPT.encode()).out == expected.text


@pytest.mark.parametrize("text", ["def f(x):\n", "# naïve 中文\r\n\n"], ids=["line-end", "utf8-crlf"])
def test_a_prompt_file_is_taken_to_the_last_byte(cli, tmp_path, tiny_target_path, text):
    file = tmp_path / "prompt.txt"
    file.write_bytes(text.encode())
    printed = json.loads(cli("generate", "tiny-target", "-f", file, "-n", 1, "--json").out)
    with Llama(tiny_target_path) as llm:
        assert printed["prompt_tokens"] == llm.tokenize(text)


def test_json_holds_the_completion_and_replaces_the_text(cli, expected):
    result = cli("generate", "tiny-target", PROMPT, "-n", 32, "--spec", NGRAM, "--budget", "off", "--json")
    printed = json.loads(result.out)
    assert printed["text"] == expected.text
    assert printed["tokens"] == expected.tokens
    assert printed["prompt_tokens"] == expected.prompt_tokens
    assert printed["finish_reason"] == expected.finish_reason
    assert printed["stats"]["n_drafted"] > 0
    assert printed["timings"]["tokens_per_s"] > 0


def test_several_specs_are_asked_in_the_order_given(cli):
    def authors(*specs):
        given = [word for spec in specs for word in ("--spec", spec)]
        printed = json.loads(cli("generate", "tiny-target", PROMPT, "-n", 32, *given, "--budget", "off", "--json").out)
        return set(printed["stats"]["by_speculator"])

    # A draft model always finds something, so whoever stands behind it gets no turn.
    assert authors("draft:tiny-draft", NGRAM) == {"draft-model"}
    assert "ngram-mod" in authors(NGRAM, "draft:tiny-draft")


def test_a_draft_model_is_used_without_being_named_again(cli):
    result = cli(
        "generate", "tiny-target", PROMPT, "-n", 16, "--draft-model", "tiny-draft", "--budget", "off", "--json"
    )
    assert json.loads(result.out)["stats"]["by_speculator"]["draft-model"]["n_drafted"] > 0


def test_options_reach_the_sampler(cli, tiny_target_path):
    given = ["--temperature", 0.9, "--top-k", 30, "--top-p", 0.9, "--min-p", 0.01, "--seed", 7, "--repeat-penalty", 1.1]
    result = cli("generate", "tiny-target", PROMPT, "-n", 24, *given)
    with Llama(tiny_target_path, spec=None) as llm:
        wanted = llm.generate(
            PROMPT, max_tokens=24, temperature=0.9, top_k=30, top_p=0.9, min_p=0.01, seed=7, repeat_penalty=1.1
        )
    assert result.out == wanted.text


def test_the_text_ends_before_a_stop_string(cli, expected):
    stop = expected.text[5:8]
    result = cli("generate", "tiny-target", PROMPT, "-n", 32, "--stop", "never there", "--stop", stop)
    assert result.out == expected.text[: expected.text.index(stop)]


@pytest.mark.parametrize("rollback", ["shadow", "fork", "checkpoint-host"])
@pytest.mark.parametrize("replay", ["fused", "immediate"])
def test_rollback_and_replay_are_as_asked_and_change_no_text(cli, expected, rollback, replay):
    options = ["--rollback", rollback, "--replay", replay, "--spec", NGRAM]
    printed = json.loads(cli("generate", "tiny-target", PROMPT, "-n", 32, *options, "--json").out)
    assert (printed["stats"]["rollback"], printed["text"]) == (rollback, expected.text)


def test_stats_go_to_stderr_and_name_the_rollback(cli, expected):
    options = ["--spec", NGRAM, "--budget", "off", "--rollback", "shadow", "--stats"]
    result = cli("generate", "tiny-target", PROMPT, "-n", 32, *options)
    assert result.out == expected.text
    assert "rollback shadow" in result.err
    assert "ngram-mod" in result.err
    assert re.search(rf"^generated +{len(expected.tokens)} tokens", result.err, re.MULTILINE)


def test_a_model_without_text_takes_and_prints_token_ids(cli, no_text_path):
    result = cli("generate", no_text_path, "--tokens", "1,2,3", "-n", 8)
    with Llama(no_text_path, spec=None) as llm:
        wanted = llm.generate([1, 2, 3], max_tokens=8).tokens
    assert result.out == ",".join(map(str, wanted)) + "\n"
    assert len(wanted) == 8


def test_ids_in_give_ids_out_where_there_is_text_too(cli, expected):
    ids = " ".join(map(str, expected.prompt_tokens))
    result = cli("generate", "tiny-target", "--tokens", ids, "-n", 32)
    assert result.out == ",".join(map(str, expected.tokens)) + "\n"


# ------------------------------------------------------------------ --compare
def test_compare_prints_one_text_and_says_that_both_are_equal(cli, expected):
    result = cli("generate", "tiny-target", PROMPT, "-n", 32, "--spec", NGRAM, "--compare")
    assert (result.code, result.out) == (0, expected.text)
    assert f"the texts are equal ({len(expected.tokens)} tokens)" in result.err


def test_compare_of_sampled_text_uses_one_seed(cli):
    result = cli("generate", "tiny-target", PROMPT, "-n", 32, "--spec", NGRAM, "--temperature", 1.5, "--compare")
    assert "the texts are equal" in result.err


def test_compare_fails_and_says_where_when_texts_differ(cli, monkeypatch):
    honest = Llama.generate

    def lying(self, prompt, *, spec="default", **options):
        completion = honest(self, prompt, spec=spec, **options)
        if spec is None:
            return completion
        return replace(completion, text=completion.text[:4] + "WRONG", tokens=completion.tokens[:2])

    monkeypatch.setattr(Llama, "generate", lying)
    result = cli("generate", "tiny-target", PROMPT, "-n", 16, "--compare")
    assert result.code == 1
    assert "THE TEXTS DIFFER at token 2, character 4" in result.err
    assert "'WRONG'" in result.err


def test_compare_as_json_holds_both_runs(cli, expected):
    how = ("-n", 32, "--spec", NGRAM, "--budget", "off")
    printed = json.loads(cli("generate", "tiny-target", PROMPT, *how, "--compare", "--json").out)
    assert printed["equal"] is True
    assert printed["plain"]["text"] == printed["speculative"]["text"] == expected.text
    assert printed["plain"]["stats"]["n_drafted"] == 0 < printed["speculative"]["stats"]["n_drafted"]
    assert printed["ratio"] > 0


# ------------------------------------------------------------------ the context's size
def test_the_context_grows_with_the_prompt_but_not_past_the_training(cli, tmp_path):
    file = tmp_path / "long.txt"
    file.write_text("x = 1\n" * 2000)
    result = cli("generate", "tiny-target", "-f", file)
    assert result.code == 2
    assert "the context has 2048" in result.err


def test_a_generation_ends_when_the_given_context_is_full(cli):
    result = cli("generate", "tiny-target", PROMPT, "-c", 256, "-n", -1, "--ignore-eos", "--json")
    printed = json.loads(result.out)
    assert printed["finish_reason"] == "context"
    assert len(printed["prompt_tokens"]) + len(printed["tokens"]) in (256, 257)


# ------------------------------------------------------------------ messages
def test_llama_cpp_is_heard_with_verbose_alone(cli):
    quiet = cli("generate", "tiny-target", PROMPT, "-n", 2)
    loud = cli("generate", "tiny-target", PROMPT, "-n", 2, "--verbose")
    assert quiet.err == ""
    assert "pyspec.llama: " in loud.err
    assert "hybrid memory, flash attention " in loud.err
    assert loud.out == quiet.out


def test_a_draft_model_that_no_spec_uses_is_told(cli):
    result = cli("generate", "tiny-target", PROMPT, "-n", 2, "--draft-model", "tiny-draft", "--spec", NGRAM)
    assert result.err.startswith("pyspec: draft_model was given but")
