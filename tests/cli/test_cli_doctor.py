"""`pyspec doctor` tells what the library measures."""

import json

import pytest

import pyspec


def test_json_names_the_strategy_that_llama_takes_and_the_bytes_of_its_state(cli, tiny_target_path):
    result = cli("doctor", tiny_target_path, "-c", 32, "-t", 1, "--json")
    assert result.code == 0
    facts = json.loads(result.out)
    with pyspec.Llama(tiny_target_path, n_ctx=64, n_threads=1) as llm:
        assert (facts["rollback"], facts["rollback_reason"]) == (llm.rollback, llm.rollback_reason)
        held = {s["name"]: s["extra_bytes"] for s in facts["strategies"] if s["possible"]}
        assert held["shadow"] == llm.capabilities.state_bytes > 0
    assert {r["n_context"] for r in facts["widths"]} == {0, 32}
    assert facts["plain_in_class"] == (1 in facts["same_as_width_2"])


def test_json_has_the_costs_of_every_possible_strategy(cli, tiny_target_path):
    result = cli("doctor", tiny_target_path, "-c", 32, "-t", 1, "--n-rs-seq", 3, "--json")
    assert result.code == 0
    strategies = {s["name"]: s for s in json.loads(result.out)["strategies"]}
    assert {name for name, s in strategies.items() if s["cost"]} == {n for n, s in strategies.items() if s["possible"]}
    assert not strategies["trim"]["possible"]
    for name, s in strategies.items():
        if s["possible"]:
            assert s["cost"]["n_context"] == 32
            assert s["cost"]["decode_s"] > 0
            assert s["cost"]["width"] == (4 if name == "snapshot" else 9)
            assert (s["cost"]["n_replayed"] == 0) == (name == "snapshot")


@pytest.mark.parametrize("costs", [{1: 0.01, 2: 0.015, 8: 0.04}, {}], ids=["measured", "busy"])
def test_what_widths_cost_is_told_or_that_it_cannot_be(cli, tiny_target_path, monkeypatch, costs):
    monkeypatch.setattr("pyspec.cli.doctor.measure_width_costs", lambda context, widths: costs)
    facts = json.loads(cli("doctor", tiny_target_path, "-c", 0, "-t", 1, "--json").out)
    assert facts["width_costs"] == [{"width": width, "decode_s": s} for width, s in costs.items()]
    text = cli("doctor", tiny_target_path, "-c", 0, "-t", 1).out
    assert ("40.000" in text and "4.00" in text) if costs else "the machine is busy" in text


def test_the_text_has_a_verdict_about_plain_decoding(cli, tiny_target_path):
    result = cli("doctor", tiny_target_path, "-c", 0, "-t", 1)
    assert result.code == 0
    assert result.out.splitlines()[-1].startswith("Plain decoding (width 1)")


def test_a_negative_length_is_misuse(cli, tiny_target_path):
    result = cli("doctor", tiny_target_path, "-c", -1)
    assert (result.code, "must be 0 or more" in result.err) == (2, True)


@pytest.mark.parametrize(("n_ctx", "chosen"), [(1024, "off"), (4_000_000, "on")])
def test_it_measures_with_the_attention_that_a_context_of_the_users_size_has(cli, tiny_target_path, n_ctx, chosen):
    result = cli("doctor", tiny_target_path, "-c", 32, "-t", 1, "--n-ctx", n_ctx, "--json")
    assert (result.code, json.loads(result.out)["flash_attention"]) == (0, chosen)
