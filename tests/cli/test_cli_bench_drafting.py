"""`pyspec bench drafting`: every speculator on every text, honest counts, and reports that can be posted."""

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
from pyspec.bench.drafting_turns import DraftingTurns
from pyspec.bench.generations import Difference
from pyspec.cli import main

SMALL = "ngram-mod:n_match=6,n_min=2,n_max=8"
WORKLOADS = ("code-rewrite", "prose")
SPECS = ("auto", SMALL, "draft-model")
BUDGETS = ("counts", "off")
N_TOKENS = 64
SHARES = ("draft_share", "decode_share", "rollback_share", "rest_share")


@dataclass
class Published:
    """One run's outputs."""

    code: int
    out: str
    data: dict[str, Any]
    markdown: str
    svg: str

    @property
    def one(self) -> dict[str, Any]:
        (model,) = self.data["models"]
        return model


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    folder = tmp_path_factory.mktemp("bench")
    json_file, markdown_file, svg_file = folder / "r.json", folder / "r.md", folder / "r.svg"
    argv = ["bench", "drafting", "tiny-target", "-t", 1, "--runs", 2, "-n", N_TOKENS, "--draft-model", "tiny-draft"]
    argv += ["--workloads", ",".join(WORKLOADS), "--specs", f"auto, {SMALL}, draft-model"]
    argv += ["--budget", ",".join(BUDGETS), "--widths", "2,8"]
    argv += ["--json", json_file, "--markdown", markdown_file, "--plot", svg_file]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = main([str(arg) for arg in argv])
    data, markdown, svg = (file.read_text(encoding="utf-8") for file in (json_file, markdown_file, svg_file))
    return Published(code, out.getvalue(), json.loads(data), markdown, svg)


# ------------------------------------------------------------------ what is measured


def test_every_speculator_is_measured_on_every_text_with_every_budget(published: Published):
    assert published.code == 0
    measured = [(row["workload"], row["spec"], row["budget"]) for row in published.one["rows"]]
    assert measured == [(w, s, b) for w in WORKLOADS for s in SPECS for b in BUDGETS]
    oracle = [(row["workload"], row["width"]) for row in published.one["oracle"]]
    assert oracle == [(w, n) for w in WORKLOADS for n in (2, 8)]
    assert [row["workload"] for row in published.one["workloads"]] == list(WORKLOADS)
    assert [row["width"] for row in published.one["curve"]] == [1, 2, 8]


def test_counts_fit_together(published: Published):
    for row in published.one["rows"]:
        assert row["n_tokens"] == N_TOKENS - 1
        assert row["n_accepted"] <= row["n_drafted"]
        assert row["n_decodes"] == row["n_tokens"] - row["n_accepted"], "each decode gives one token more"
        assert row["tokens_per_decode"] == pytest.approx(row["n_tokens"] / row["n_decodes"])
        assert sum(row[share] for share in SHARES) == pytest.approx(1.0)
        assert all(0 <= row[share] <= 1 for share in SHARES)
        assert row["speed_min"] <= row["speed"] <= row["speed_max"]
        assert row["difference"] is None


def test_what_repeats_is_drafted_and_what_does_not_is_left_alone(published: Published):
    rows = {(row["workload"], row["spec"], row["budget"]): row for row in published.one["rows"]}
    assert rows["code-rewrite", "auto", "counts"]["tokens_per_decode"] > 2
    assert rows["prose", "auto", "counts"]["tokens_per_decode"] < 1.2


def test_the_oracle_is_the_best_of_its_widths_or_plain_decoding(published: Published):
    speeds = {name: [1.0] for name in WORKLOADS}
    for row in published.one["oracle"]:
        speeds[row["workload"]].append(row["speed"])
        assert row["n_accepted"] == row["n_drafted"]
    for row in published.one["workloads"]:
        assert row["oracle_speed"] == max(speeds[row["workload"]])
        assert row["curve_speed"] == max(point["speed"] for point in published.one["curve"]) >= 1.0
    reached = {row["workload"]: row["oracle_speed"] for row in published.one["workloads"]}
    for row in published.one["rows"]:
        assert row["oracle_share"] == pytest.approx(row["speed"] / reached[row["workload"]])


def test_times_are_finite_and_positive(published: Published):
    one = published.one
    for row in (*one["rows"], *one["oracle"], *one["workloads"], *one["curve"]):
        assert all(math.isfinite(value) and value >= 0 for value in row.values() if isinstance(value, float))
    assert all(row["plain_tokens_per_s"] > 0 and row["plain_spread"] >= 1 for row in one["workloads"])
    assert all(row["decode_s"] > 0 for row in one["curve"])


# ------------------------------------------------------------------ what is published


def test_json_says_what_the_numbers_belong_to(published: Published):
    assert (published.data["benchmark"], published.data["format"]) == ("drafting", 1)
    about, settings = published.one["about"], published.one["settings"]
    assert about["llama_cpp"] == _core.LLAMA_CPP_COMMIT
    assert (about["architecture"], about["memory"], about["n_threads"]) == ("lfm2", "hybrid", 1)
    assert about["state_bytes"] > 0
    assert (settings["continuation"], settings["n_runs"], settings["warm"]) == ("forced", 2, False)
    assert settings["rollback"] in ("shadow", "fork", "checkpoint-host", "checkpoint-device")
    assert re.fullmatch(r"[^/\\]+\.gguf", settings["draft_model"])


def test_forced_texts_are_called_so(published: Published):
    assert "forced continuation" in published.out
    assert "- text: forced continuation" in published.markdown
    assert "forced continuation" in published.svg


def test_no_folder_is_published(published: Published):
    assert re.fullmatch(r"[^/\\]+\.gguf", published.one["about"]["model"])
    for text in (published.out, json.dumps(published.data), published.markdown, published.svg):
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
    one = published.one
    assert n_rows == [len(SPECS) * len(BUDGETS), len(one["rows"]), len(one["workloads"]), len(one["curve"])]


def test_the_printed_table_has_a_line_for_every_row(published: Published):
    for row in published.one["rows"]:
        line = rf"^{row['workload']} +{re.escape(row['spec'])} +{row['budget']} +{row['speed']:.2f} "
        assert re.search(line, published.out, re.MULTILINE)


def test_the_picture_is_well_formed_and_has_a_bar_for_every_row(published: Published):
    root = ElementTree.fromstring(published.svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    titles = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
    for row in published.one["rows"]:
        assert f"{row['spec']} {row['budget']} {row['speed']:.3f}" in titles
    bars = [bar for bar in root.iter("{http://www.w3.org/2000/svg}rect") if bar.get("x")]
    assert len(bars) == len(published.one["rows"]) + len(WORKLOADS) + 1 + len(BUDGETS), "bars and the legend"
    assert all(float(bar.get("x")) + float(bar.get("width")) <= 900 for bar in bars)


def test_several_models_are_one_report_and_quick_is_short(cli):
    result = cli("bench", "drafting", "tiny-target", "tiny-draft", "--quick", "-t", 1, "-n", 12, "--json", "-")
    assert (result.code, result.err) == (0, "")
    data = json.loads(result.out)
    files = [one["about"]["model"] for one in data["models"]]
    assert files == ["pyspec-tiny-target-q8_0.gguf", "pyspec-tiny-draft-q8_0.gguf"]
    for one in data["models"]:
        assert [row["workload"] for row in one["workloads"]] == ["code-rewrite", "agent", "prose"]
        assert {row["spec"] for row in one["rows"]} == {"auto", "suffix", "ngram-mod"}
        assert {row["budget"] for row in one["rows"]} == {"measured"}
        assert one["settings"]["n_runs"] == 1


def test_a_vocabulary_without_text_gets_the_random_workload(cli, no_text_path: Path):
    argv = ("bench", "drafting", no_text_path, "-t", 1, "-n", 8, "--runs", 1, "--widths", 2, "--specs", "suffix")
    result = cli(*argv, "--json", "-")
    assert result.code == 0
    (one,) = json.loads(result.out)["models"]
    assert [row["workload"] for row in one["workloads"]] == ["random"]
    result = cli(*argv, "--workloads", "prose")
    assert (result.code, result.out) == (2, "")
    assert "prose" in result.err


# ------------------------------------------------------------------ what goes wrong

QUICK = ("--quick", "-t", 1, "-n", 8, "--workloads", "prose", "--specs", "suffix")


@pytest.mark.parametrize(("near_tie", "code"), [(True, 0), (False, 1)])
def test_an_own_text_that_is_more_than_a_near_tie_away_ends_with_code_1(
    cli, monkeypatch: pytest.MonkeyPatch, near_tie: bool, code: int
):
    monkeypatch.setattr(DraftingTurns, "_judge", lambda *_: Difference(2, 17, 18, 4.5, 0.01, near_tie=near_tie))
    result = cli("bench", "drafting", "tiny-target", *QUICK, "--continuation", "own")
    assert result.code == code
    assert "prose, suffix, measured: the text left the plain one at token 2 (17 became 18)" in result.out
    assert ("MORE THAN ROUNDING EXPLAINS" in result.out) == (not near_tie)
    assert "the model's own continuation" in result.out


DRAFTING = ("bench", "drafting", "tiny-target")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        pytest.param(["bench", "draftin", "tiny-target"], "drafting", id="unknown-benchmark"),
        pytest.param([*DRAFTING, "--run", 3], "did you mean '--runs'", id="misspelt-option"),
        pytest.param([*DRAFTING, "--workloads", "prosa"], "did you mean 'prose'", id="misspelt-workload"),
        pytest.param([*DRAFTING, "--workloads", "prose,,json"], "--workloads 'prose,,json'", id="empty-workload"),
        pytest.param([*DRAFTING, "--specs", "sufix"], "did you mean 'suffix'", id="misspelt-speculator"),
        pytest.param([*DRAFTING, "--specs", "suffix:n_ma=3"], "did you mean 'n_max'", id="misspelt-speculator-option"),
        pytest.param([*DRAFTING, "--specs", "draft-model"], "draft_model", id="no-draft-model"),
        pytest.param([*DRAFTING, "--budget", "much"], "measured, counts, off", id="unknown-budget"),
        pytest.param([*DRAFTING, "--widths", "2,x"], "whole numbers like 2,4,8", id="width-that-is-no-number"),
        pytest.param([*DRAFTING, "--widths", "1,2"], "a decided token and a draft", id="width-without-a-draft"),
        pytest.param([*DRAFTING, "--continuation", "mine"], "forced", id="unknown-continuation"),
        pytest.param([*DRAFTING, "--rollback", "shado"], "did you mean 'shadow'", id="misspelt-rollback"),
        pytest.param([*DRAFTING, "--rollback", "trim"], "trim", id="rollback-that-memory-cannot-do"),
        pytest.param([*DRAFTING, "-n", 1], "n_tokens=1", id="no-tokens"),
        pytest.param([*DRAFTING, "--runs", 0], "n_runs=0", id="no-runs"),
        pytest.param([*DRAFTING, "--json", "no/folder/r.json"], "no/folder/r.json", id="json-in-no-folder"),
        pytest.param([*DRAFTING, "--plot", "-"], "needs a file", id="picture-on-stdout"),
        pytest.param([*DRAFTING, "no-such-model"], "no-such-model", id="missing-model"),
        pytest.param([*DRAFTING, "--draft-model", "no-such-model"], "no-such-model", id="missing-draft-model"),
    ],
)
def test_a_misuse_is_told_in_one_line_with_code_2(cli, argv: list[Any], said: str):
    result = cli(*argv)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("pyspec: error: ")
    assert said in result.err
    assert len(result.err.splitlines()) <= 2


@pytest.mark.parametrize(
    ("text", "specs"),
    [
        ("auto,suffix", ("auto", "suffix")),
        (f"auto,{SMALL},suffix", ("auto", SMALL, "suffix")),
        ("suffix:n_max=3,ngram-mod:n_match=4,n_min=2", ("suffix:n_max=3", "ngram-mod:n_match=4,n_min=2")),
    ],
)
def test_a_list_of_speculators_may_have_options(text: str, specs: tuple[str, ...]):
    from pyspec.cli.bench_drafting import _specs

    assert _specs(tuple(text.split(","))) == specs
