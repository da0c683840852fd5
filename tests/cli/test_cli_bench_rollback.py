"""`pyspec bench rollback`: every strategy, honest counts, and texts that can be posted."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pyspec import _core
from pyspec.bench import rollback_turns
from pyspec.bench.generations import Difference
from pyspec.cli import main
from pyspec.errors import StateError

HYBRID = {"snapshot", "shadow", "snapshot+shadow", "fork", "checkpoint-host", "checkpoint-device"}
N_RS_SEQ, N_TOKENS = 4, 24
TRACE = [[4, 4], [0, 0], [3, 1], [2, 0]]
QUICK = ("-t", 1, "-c", 16, "--rounds", 1, "--widths", "2", "--n-tokens", 4, "--patterns", "none")


@dataclass
class Published:
    """One run's outputs."""

    code: int
    out: str
    data: dict[str, Any]
    markdown: str
    svg: str

    def generation(self, strategy: str, replay: str, pattern: str) -> dict[str, Any]:
        (found,) = (
            row
            for row in self.data["generations"]
            if (row["strategy"], row["replay"], row["pattern"]) == (strategy, replay, pattern)
        )
        return found


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    folder = tmp_path_factory.mktemp("bench")
    (folder / "real.json").write_text(json.dumps(TRACE))
    json_file, markdown_file, svg_file = folder / "r.json", folder / "r.md", folder / "r.svg"
    argv = ["bench", "rollback", "tiny-target", "-t", 1, "-c", 24, "--rounds", 2, "--n-tokens", N_TOKENS]
    argv += ["--n-rs-seq", N_RS_SEQ, "--widths", "2,9", "--patterns", f"all,none,3of8,trace:{folder / 'real.json'}"]
    argv += ["--json", json_file, "--markdown", markdown_file, "--plot", svg_file]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = main([str(arg) for arg in argv])
    files = (file.read_text(encoding="utf-8") for file in (json_file, markdown_file, svg_file))
    data, markdown, svg = files
    return Published(code, out.getvalue(), json.loads(data), markdown, svg)


# ------------------------------------------------------------------ what is measured


def test_every_strategy_is_measured_at_every_width_or_named_as_left_out(published: Published):
    assert published.code == 0
    measured = {(row["strategy"], row["width"]) for row in published.data["costs"]}
    left_out = {(row["strategy"], row["width"]) for row in published.data["left_out"]}
    assert measured == {(name, width) for name in HYBRID for width in (2, 9)} - {("snapshot", 9)}
    assert left_out == {("trim", None), ("snapshot", 9)}
    assert {row["strategy"] for row in published.data["generations"]} == HYBRID


def test_every_replay_and_pattern_is_played_where_something_may_be_replayed(published: Published):
    played = {(row["strategy"], row["replay"], row["pattern"]) for row in published.data["generations"]}
    patterns = ("all", "none", "3of8", "trace:real.json")
    expected = {(n, r, p) for n in HYBRID - {"snapshot"} for r in ("fused", "immediate") for p in patterns}
    assert played == expected | {("snapshot", "none", p) for p in patterns}
    assert len(published.data["generations"]) == len(played)


def test_what_is_lost_is_replayed_and_what_is_kept_is_not(published: Published):
    for row in published.data["costs"]:
        kept = row["strategy"] == "snapshot" or (row["strategy"], row["width"]) == ("snapshot+shadow", 2)
        assert row["n_replayed"] == (0 if kept else 1 + row["n_right"])
        assert (row["replay_s"] > 0) == (row["replay_share"] > 0) == (not kept)
        n_right = 4 if row["strategy"] != "snapshot+shadow" else 8 - N_RS_SEQ - 1
        assert row["n_right"] == (0 if row["width"] == 2 else n_right), "half, or so few that snapshots cannot undo it"


def test_times_are_positive_and_shares_are_of_a_plain_decode(published: Published):
    plain = {row["width"]: row for row in published.data["plain"]}
    assert plain[1]["share"] == 1.0
    assert set(plain) == {1, 2, 9, 24}, "those asked for, and what the generations' decodes lie between"
    for row in (*plain.values(), *published.data["costs"], *published.data["generations"]):
        numbers = [value for value in row.values() if isinstance(value, float)]
        assert all(math.isfinite(n) and n >= 0 for n in numbers)
    assert all(row["decode_s"] > 0 and row["decode_ratio"] > 0 for row in published.data["costs"])
    assert all(row["time_ratio"] > 0 and row["decode_ratio"] > 0 for row in published.data["generations"])


# ------------------------------------------------------------------ counts


@pytest.mark.parametrize("strategy", sorted(HYBRID - {"snapshot"}))
def test_fused_replay_needs_fewer_decodes_a_token_than_immediate(published: Published, strategy: str):
    fused, immediate = (published.generation(strategy, replay, "3of8") for replay in ("fused", "immediate"))
    assert fused["decodes_per_token"] < immediate["decodes_per_token"]
    assert immediate["n_forced_commits"] == 0


def test_counts_of_immediate_replay_follow_from_the_pattern(published: Published):
    row = published.generation("shadow", "immediate", "3of8")
    n_rounds = N_TOKENS // 4
    assert row["n_tokens"] == 4 * n_rounds, "3 right ones and the correction"
    assert row["n_decodes"] == 2 * n_rounds
    assert (row["n_drafts"], row["n_drafted"], row["n_accepted"]) == (n_rounds, 8 * n_rounds, 3 * n_rounds)
    assert row["n_rollbacks"] == n_rounds
    assert row["n_replayed"] == 4 * n_rounds, "the pending token and the 3 right ones"


def test_right_drafts_are_accepted_whole_and_wrong_ones_not_at_all(published: Published):
    for row in published.data["generations"]:
        n_draft = N_RS_SEQ if row["strategy"] == "snapshot" else 8
        if row["pattern"] == "all":
            assert row["decodes_per_token"] == pytest.approx(1 / (n_draft + 1))
            assert row["n_rollbacks"] == row["n_replayed"] == 0
        if row["pattern"] == "none":
            assert row["n_accepted"] == 0
            assert row["decodes_per_token"] == (2 if row["replay"] == "immediate" else 1)


def test_a_trace_is_played_from_its_start_again_and_again(published: Published):
    row = published.generation("checkpoint-host", "immediate", "trace:real.json")
    n_tokens, n_drafted, n_accepted, i = 0, 0, 0, 0
    while n_tokens < N_TOKENS:
        drafted, accepted = TRACE[i % len(TRACE)]
        n_tokens, n_drafted, n_accepted, i = n_tokens + accepted + 1, n_drafted + drafted, n_accepted + accepted, i + 1
    assert (row["n_tokens"], row["n_drafted"], row["n_accepted"]) == (n_tokens, n_drafted, n_accepted)


def test_text_stays_that_of_plain_decoding_but_for_near_ties(published: Published):
    found = [row["difference"] for row in published.data["generations"]]
    assert all(difference is None or difference["near_tie"] for difference in found)


# ------------------------------------------------------------------ what is published


def test_json_says_what_the_numbers_belong_to(published: Published):
    data = published.data
    assert (data["benchmark"], data["format"]) == ("rollback", 1)
    about = data["about"]
    assert about["llama_cpp"] == _core.LLAMA_CPP_COMMIT
    assert about["backends"] == _core.backends()
    assert (about["architecture"], about["quantization"], about["memory"]) == ("lfm2", "Q8_0", "hybrid")
    assert about["n_threads"] == 1
    assert about["state_bytes"] > 0
    assert about["pyspec"] and about["cpu"] and about["os"] and about["devices"]
    assert data["settings"]["n_rs_seq"] == N_RS_SEQ


def test_no_folder_is_published(published: Published):
    assert re.fullmatch(r"[^/\\]+\.gguf", published.data["about"]["model"])
    for text in (published.out, json.dumps(published.data), published.markdown):
        assert str(Path.home()) not in text
        assert "/tmp" not in text


def test_every_row_of_markdown_has_the_columns_of_its_table(published: Published):
    tables = re.findall(r"(?:^\|.*\|\n)+", published.markdown, re.MULTILINE)
    n_rows = []
    for text in tables:
        header, marks, *rows = [line.strip("|\n").split("|") for line in text.splitlines()]
        assert all(re.fullmatch(r" ---:? ", mark) for mark in marks)
        assert {len(row) for row in (header, marks, *rows)} == {len(header)}
        n_rows.append(len(rows))
    n_costs = len(published.data["plain"]) + len(published.data["costs"])
    assert n_rows == [n_costs, n_costs, 1 + len(published.data["generations"])]


def test_the_printed_table_names_every_strategy_and_what_was_left_out(published: Published):
    assert all(re.search(rf"^{re.escape(name)} +9 ", published.out, re.MULTILINE) for name in HYBRID - {"snapshot"})
    assert "not measured: snapshot, width 9: can undo drafts of at most 4 tokens" in published.out


def test_the_picture_is_well_formed_and_has_a_bar_for_every_generation(published: Published):
    root = ElementTree.fromstring(published.svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    titles = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
    for row in published.data["generations"]:
        replay = "" if row["replay"] == "none" else f", {row['replay']}"
        label = f"{row['pattern']}: {row['strategy']}{replay}"
        assert [title for title in titles if title.startswith(label + " ")] == [f"{label}  {row['time_ratio']:.3f}"]
    assert all(
        float(bar.get("x")) + float(bar.get("width")) <= 900 for bar in root.iter() if bar.get("fill") == "#0072b2"
    )


def test_attention_is_trimmed_without_a_replay_and_json_alone_is_printed(cli, arch_model):
    result = cli("bench", "rollback", arch_model("llama"), *QUICK, "--json", "-")
    assert (result.code, result.err) == (0, "")
    data = json.loads(result.out)
    assert {row["strategy"] for row in data["costs"]} == {"trim", "fork", "checkpoint-host"}
    assert [row["replay"] for row in data["generations"]] == ["none", *["fused", "immediate"] * 2]
    assert data["about"]["state_bytes"] == 0


def test_generations_can_be_left_out_and_strategies_chosen(cli):
    result = cli(
        "bench", "rollback", "tiny-target", *QUICK, "--n-tokens", 0, "--strategies", "fork,checkpoint", "--json", "-"
    )
    assert result.code == 0
    data = json.loads(result.out)
    assert (data["generations"], data["plain_generation"], data["left_out"]) == ([], None, [])
    assert [row["strategy"] for row in data["costs"]] == ["fork", "checkpoint-host"]


# ------------------------------------------------------------------ what goes wrong


def test_a_text_that_is_more_than_a_near_tie_away_ends_with_code_1(cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rollback_turns, "judge", lambda *_: Difference(2, 17, 18, 4.5, 0.01, near_tie=False))
    result = cli("bench", "rollback", "tiny-target", *QUICK, "--strategies", "shadow")
    assert result.code == 1
    assert "shadow, fused, none: the text left the plain one at token 2 (17 became 18)" in result.out
    assert "MORE THAN ROUNDING EXPLAINS" in result.out


@pytest.mark.parametrize("part", ["measure_rejected", "play"])
def test_a_strategy_that_fails_is_left_out_and_the_others_are_measured(cli, monkeypatch: pytest.MonkeyPatch, part: str):
    honest = getattr(rollback_turns, part)

    def fail(rollback: Any, *args: Any, **options: Any) -> Any:
        if rollback.name == "checkpoint-device":
            raise StateError(reason="cells are not contiguous")
        return honest(rollback, *args, **options)

    monkeypatch.setattr(rollback_turns, part, fail)
    result = cli("bench", "rollback", "tiny-target", *QUICK, "--json", "-")
    assert result.code == 0
    data = json.loads(result.out)
    rows = (*data["costs"], *data["generations"])
    assert {row["strategy"] for row in rows} == {"shadow", "fork", "checkpoint-host"}
    assert "cells are not contiguous" in {row["strategy"]: row["why"] for row in data["left_out"]}["checkpoint-device"]
    assert "checkpoint-device failed" in result.err


ROLLBACK = ("bench", "rollback", "tiny-target")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        pytest.param(["bench"], "BENCHMARK", id="no-benchmark"),
        pytest.param(["bench", "rolback", "tiny-target"], "rollback", id="unknown-benchmark"),
        pytest.param([*ROLLBACK, "--n-drafts", 3], "did you mean '--n-draft'", id="misspelt-option"),
        pytest.param([*ROLLBACK, "--widths", "2,x"], "whole numbers like 2,4,9", id="width-that-is-no-number"),
        pytest.param([*ROLLBACK, "--widths", "1,2"], "a decided token and a draft", id="width-without-a-draft"),
        pytest.param([*ROLLBACK, "--widths", "2,,3"], "--widths '2,,3'", id="empty-width"),
        pytest.param([*ROLLBACK, "--strategies", "shado"], "did you mean 'shadow'", id="misspelt-strategy"),
        pytest.param([*ROLLBACK, "--strategies", "auto"], "strategy to measure 'auto'", id="auto"),
        pytest.param([*ROLLBACK, "--strategies", "trim"], "hybrid memory of lfm2", id="strategy-that-memory-cannot-do"),
        pytest.param([*ROLLBACK, "--strategies", "snapshot"], "n_rs_seq=0", id="snapshot-without-states"),
        pytest.param([*ROLLBACK, "--patterns", "al"], "did you mean 'all'", id="misspelt-pattern"),
        pytest.param([*ROLLBACK, "--patterns", "9of8"], "as many right as drafted", id="more-right-than-drafted"),
        pytest.param([*ROLLBACK, "--patterns", "trace:no/file"], "no/file", id="missing-trace"),
        pytest.param([*ROLLBACK, "-c", 0], "n_context=0", id="no-context"),
        pytest.param([*ROLLBACK, "--rounds", 0], "n_rounds=0", id="no-rounds"),
        pytest.param([*ROLLBACK, "--n-draft", 0], "n_draft=0", id="no-draft"),
        pytest.param([*ROLLBACK, "-f", "no/prompt"], "no/prompt", id="missing-prompt"),
        pytest.param([*ROLLBACK, "--json", "no/folder/r.json"], "no/folder/r.json", id="json-in-no-folder"),
        pytest.param([*ROLLBACK, "--plot", "-"], "needs a file", id="picture-on-stdout"),
        pytest.param([*ROLLBACK, "--json", "-", "--markdown", "-"], "different places", id="two-texts-on-stdout"),
        pytest.param([*ROLLBACK, "--json", "r", "--plot", "r"], "different places", id="two-texts-in-one-file"),
        pytest.param(["bench", "rollback", "no-such-model"], "tiny-target", id="missing-model"),
    ],
)
def test_a_misuse_is_told_in_one_line_with_code_2(cli, argv: list[Any], said: str):
    result = cli(*argv)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("pyspec: error: ")
    assert said in result.err
    assert len(result.err.splitlines()) <= 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("[[3, 1]", "JSON", id="cut"),
        pytest.param("[]", "at least one", id="empty"),
        pytest.param('{"a": 1}', "a list of", id="no-list"),
        pytest.param("[[3, 1], [3, 4]]", "round 1=[3, 4]", id="more-accepted-than-drafted"),
        pytest.param("[[3, 1], [3]]", "round 1=[3]", id="no-pair"),
        pytest.param("[[3.0, 1]]", "round 0=[3.0, 1]", id="no-whole-number"),
        pytest.param("[[true, false]]", "round 0=[True, False]", id="no-numbers"),
        pytest.param("[[257, 1]]", "<= 256", id="too-long"),
    ],
)
def test_a_malformed_trace_is_named_with_its_first_wrong_round(cli, tmp_path: Path, text: str, said: str):
    file = tmp_path / "bad.json"
    file.write_text(text)
    result = cli(*ROLLBACK, "--patterns", f"none,trace:{file}")
    assert (result.code, result.out) == (2, "")
    assert str(file) in result.err
    assert said in result.err


def test_traces_of_one_name_are_refused(cli, tmp_path: Path):
    files = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        files.append(tmp_path / folder / "t.json")
        files[-1].write_text("[[1, 1]]")
    result = cli(*ROLLBACK, "--patterns", ",".join(f"trace:{file}" for file in files))
    assert (result.code, "different names" in result.err) == (2, True)
