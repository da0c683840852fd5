"""`pyspec info` tells what this build and a model really are."""

import json

import pytest

import pyspec
from pyspec import Llama, _core


def test_info_names_versions_backends_and_devices(cli):
    result = cli("info")
    assert (result.code, result.err) == (0, "")
    assert pyspec.__version__ in result.out
    assert _core.LLAMA_CPP_COMMIT in result.out
    assert "CPU" in [line.split()[0] for line in result.out.splitlines() if line]
    assert "GiB" in result.out


def test_version_names_both_projects(cli):
    result = cli("--version")
    assert (result.code, result.out) == (0, f"pyspec {pyspec.__version__}, llama.cpp {_core.LLAMA_CPP_COMMIT}\n")


def test_info_as_json_lists_a_cpu_with_its_memory(cli):
    facts = json.loads(cli("info", "--json").out)
    cpus = [device for device in facts["devices"] if device["kind"] == "cpu"]
    assert cpus
    assert cpus[0]["memory_total_bytes"] > 0
    assert "CPU" in facts["backends"]


def test_info_of_a_model_tells_what_llama_cpp_tells(cli, tiny_target_path):
    facts = json.loads(cli("info", "tiny-target", "--json").out)["model"]
    with Llama(tiny_target_path, n_ctx=64) as llm:
        model = llm.model
        assert facts["architecture"] == model.architecture == "lfm2"
        assert facts["n_params"] == model.n_params
        assert facts["n_ctx_train"] == 2048
        assert facts["n_vocab"] == 4096
        assert facts["memory"] == "hybrid"
        assert facts["rollback"] == llm.rollback
        assert facts["state_bytes"] == llm.capabilities.state_bytes > 0


@pytest.mark.parametrize(
    ("arch_name", "memory", "rollback"),
    [
        pytest.param("llama", "attention", "trim", id="llama"),
        pytest.param("gemma3", "sliding window", "trim", id="gemma3"),
        pytest.param("mamba2", "recurrent", "shadow", id="mamba2"),
    ],
)
def test_info_says_how_drafts_are_undone_on_each_memory(cli, arch_path, memory, rollback):
    result = cli("info", arch_path)
    rows = dict(line.split("  ", 1) for line in result.out.splitlines() if "  " in line)
    assert rows["memory"].strip().split(", ")[0] == memory
    assert rows["rollback"].strip().startswith(f"{rollback}: ")
    assert ("recurrent state" in rows) == (memory == "recurrent")
