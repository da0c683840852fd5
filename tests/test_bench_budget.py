"""What the budget decides in real generations, as data and as a picture."""

from __future__ import annotations

import importlib.util
import json
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from pyspec._core import Model
from pyspec.bench.budget_plot import budget_svg
from pyspec.bench.budget_runs import measure_budget
from pyspec.bench.drafting_options import DraftingBenchOptions

WORKLOADS = ("code-rewrite", "prose")


@pytest.fixture(scope="module")
def data(tiny_target_path: Path) -> dict[str, Any]:
    options = DraftingBenchOptions(workloads=WORKLOADS, budgets=("measured",), n_tokens=120, n_runs=1, n_threads=1)
    found = measure_budget(Model(tiny_target_path), options)
    return json.loads(json.dumps(found))


def test_every_token_stands_in_a_round(data: dict[str, Any]):
    assert [row["workload"] for row in data["workloads"]] == list(WORKLOADS)
    for row in data["workloads"]:
        assert row["n_tokens"] == 119
        said = [one[0] for one in row["rounds"]]
        gave = [n_accepted + 1 for _, _, _, n_accepted, _ in row["rounds"]]
        assert said == [1 + sum(gave[:i]) for i in range(len(gave))]
        assert sum(gave) in (119, 120), "the last token may be an accepted one"


def test_what_repeats_is_drafted(data: dict[str, Any]):
    rewritten, prose = (sum(one[2] for one in row["rounds"]) for row in data["workloads"])
    assert rewritten > prose


def test_costs_are_those_of_the_widths(data: dict[str, Any]):
    learned = data["costs"]["learned"]
    assert [width for width, _ in learned] == list(range(1, 49))
    seconds = [s for _, s in learned]
    assert seconds == sorted(seconds)


def test_a_picture_shows_every_round(data: dict[str, Any]):
    tree = ElementTree.fromstring(budget_svg(data))
    titles = [title.text or "" for title in tree.iter("{http://www.w3.org/2000/svg}title")]
    for row in data["workloads"]:
        for said, _, n_drafted, n_accepted, why in row["rounds"]:
            assert (f"{said}: {why}, {n_accepted} right" if n_drafted else f"{said}: {why}") in titles
    words = " ".join(text.text or "" for text in tree.iter("{http://www.w3.org/2000/svg}text"))
    assert all(name in words for name in WORKLOADS)


def test_bars_stand_inside_the_picture(data: dict[str, Any]):
    data = data | {"costs": {"measured": [[1, 0.01], [2, 0.02], [32, 0.3]], "learned": data["costs"]["learned"]}}
    tree = ElementTree.fromstring(budget_svg(data))
    width, height = (float(tree.attrib[name]) for name in ("width", "height"))
    for box in tree.iter("{http://www.w3.org/2000/svg}rect"):
        if not box.attrib["width"].endswith("%"):
            x, y, w, h = (float(box.attrib[name]) for name in ("x", "y", "width", "height"))
            assert 0 <= x <= x + w <= width
            assert 0 <= y <= y + h <= height


def test_a_script_draws_the_data_again(data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = Path(__file__).parent.parent / "scripts" / "plot_budget.py"
    spec = importlib.util.spec_from_file_location("plot_budget", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    (tmp_path / "data.json").write_text(json.dumps(data))
    monkeypatch.setattr(sys, "argv", ["", "--from-json", str(tmp_path / "data.json"), "--svg", str(tmp_path / "a.svg")])
    script.main()
    assert (tmp_path / "a.svg").read_text() == budget_svg(data)
