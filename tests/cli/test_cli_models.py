"""`pyspec models` knows what is there, and fetches only when told to."""

import json

import pytest

from pyspec import models


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PYSPEC_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("argv", [["models"], ["models", "list"]], ids=["bare", "list"])
def test_the_list_shows_every_name_with_its_licence(cli, empty_cache, argv):
    result = cli(*argv)
    assert result.code == 0
    lines = {line.split()[0]: line for line in result.out.splitlines()}
    for name in models.names():
        assert models.describe(name).licence in lines[name]
    assert "embedded" in lines["tiny-target"]
    assert "not fetched" in lines["gemma3-270m"]


def test_the_list_as_json_has_paths_of_what_is_there(cli, empty_cache):
    found = {m["name"]: m for m in json.loads(cli("models", "list", "--json").out)}
    assert found["tiny-draft"]["path"] == str(models.tiny_draft())
    assert found["tiny-draft"]["n_bytes"] == models.tiny_draft().stat().st_size
    assert found["smollm2-135m"]["path"] is None


@pytest.mark.parametrize("command", ["path", "fetch"])
def test_an_embedded_model_has_a_path_at_once(cli, empty_cache, command):
    assert cli("models", command, "tiny-target").out == f"{models.tiny_target()}\n"


def test_a_path_is_not_invented_for_what_is_not_there(cli, empty_cache):
    result = cli("models", "path", "smollm2-135m")
    assert (result.code, result.out) == (1, "")
    assert "pyspec models fetch smollm2-135m" in result.err


def test_a_misspelt_name_costs_no_download_of_the_others(cli, empty_cache, monkeypatch):
    def fetch(*_, **__):
        raise AssertionError("something was fetched first")

    monkeypatch.setattr(models, "fetch", fetch)
    assert cli("models", "fetch", "smollm2-135m", "gemma3").code == 2
