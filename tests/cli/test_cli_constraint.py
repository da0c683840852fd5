"""`pyspec generate` with a constraint, log-probabilities and a limit of time."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

GENERATE = ("generate", "tiny-target", "x = ", "-t", "1", "--budget", "off", "--rollback", "shadow")
SCHEMA: dict[str, Any] = {"enum": ["left", "right"]}


@pytest.mark.parametrize("where", ["text", "file", "file-with-mark"])
def test_the_text_is_json_of_the_schema(cli, tmp_path: Path, where: str):
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(SCHEMA), encoding="utf-8-sig" if where == "file-with-mark" else "utf-8")
    result = cli(*GENERATE, "--json-schema", json.dumps(SCHEMA) if where == "text" else file)
    assert (result.code, result.err) == (0, "")
    assert json.loads(result.out) in SCHEMA["enum"]


def test_the_pattern_matches_the_whole_text(cli):
    result = cli(*GENERATE, "--regex", "[a-z]{3}[0-9]")
    assert re.fullmatch("[a-z]{3}[0-9]", result.out)


def test_the_text_is_one_of_the_choices_with_drafts_and_without(cli):
    result = cli(*GENERATE, "--choice", "yes, of course", "--choice", "never", "--compare")
    assert result.code == 0
    assert result.out in ("yes, of course", "never")
    assert "the texts are equal" in result.err


def test_logprobs_are_a_table_on_stderr(cli):
    result = cli(*GENERATE, "--choice", "no", "--logprobs", "2")
    head, _, *lines = result.err.splitlines()
    assert head.split() == ["token", "logprob", "likeliest"]
    assert "".join(line.split("'")[1] for line in lines) == result.out == "no"
    assert all(line.count(", ") == 1 for line in lines)


def test_logprobs_are_part_of_the_json(cli):
    data = json.loads(cli(*GENERATE, "-n", "3", "--json", "--logprobs", "1").out)
    assert [one["token"] for one in data["logprobs"]] == data["tokens"]
    assert b"".join(bytes(one["bytes"]) for one in data["logprobs"]).decode() == data["text"]
    assert all(len(one["top"]) == 1 for one in data["logprobs"])
    assert "logprobs" not in json.loads(cli(*GENERATE, "-n", "3", "--json").out)


def test_a_time_that_is_over_is_told(cli):
    result = cli(*GENERATE, "--timeout", "0")
    assert (result.code, result.out) == (0, "")
    assert "ended by --timeout 0 after 0 tokens" in result.err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--json-schema", "no/such/file"], "no/such/file"),
        (["--json-schema", "."], "'.'"),
        (["--json-schema", "{bad"], "schema="),
        (["--json-schema", '{"not": {}}'], "not"),
        (["--regex", ""], "pattern="),
        (["--regex", "(?=a)"], "look-around"),
        (["--choice", ""], "texts[0]="),
        (["--choice", "a", "--choice", "a"], "none of them twice"),
        (["--choice", "a", "--regex", "b"], "give one constraint"),
        (["--logprobs", "-1"], "logprobs=-1"),
        (["--logprobs", "all"], "'all'"),
        (["--timeout", "-1"], "timeout_s=-1"),
        (["--timeout", "soon"], "'soon'"),
    ],
    ids=str,
)
def test_a_misuse_is_told_with_code_2(cli, given: list[str], said: str):
    result = cli(*GENERATE, *given)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("pyspec: error: ")
    assert said in result.err


def test_a_schema_that_is_no_utf8_is_refused_with_its_place(cli, tmp_path: Path):
    (tmp_path / "schema.json").write_bytes(b'{"const": "\xff"}')
    result = cli(*GENERATE, "--json-schema", tmp_path / "schema.json")
    assert result.code == 2
    assert "byte 11" in result.err
