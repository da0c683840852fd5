"""The example notebook runs from top to bottom, without a notebook server, and is stored without outputs."""

from __future__ import annotations

import ast
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).resolve().parent.parent / "examples" / "quickstart.ipynb"
BOOK: dict[str, Any] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
CELLS: list[dict[str, Any]] = BOOK["cells"]
#: What the format (nbformat 4.5) asks of each kind of cell, and allows.
KEYS = {
    "markdown": {"cell_type", "id", "metadata", "source"},
    "code": {"cell_type", "execution_count", "id", "metadata", "outputs", "source"},
}


class WellFormed(HTMLParser):
    """Fails on tags that do not match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def run(source: str, names: dict[str, Any]) -> Any:
    """As a notebook runs a cell: the value of its last line, when that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, str(NOTEBOOK), "exec"), names)
    return eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names) if last is not None else None


@pytest.fixture(scope="module")
def shown() -> dict[str, Any]:
    """The value that each code cell shows, by the cell's id, after a run of all in order."""
    names: dict[str, Any] = {}
    values = {cell["id"]: run("".join(cell["source"]), names) for cell in CELLS if cell["cell_type"] == "code"}
    return values | {"names": names}


def test_every_cell_runs_in_order_and_speculation_saves_decodes(shown: dict[str, Any]):
    names = shown["names"]
    assert names["fast"].text == names["own"].text == names["plain"].text
    assert names["fast"].stats.n_decodes < names["plain"].stats.n_decodes
    assert names["own"].stats.by_speculator["again"].n_drafts > 0


@pytest.mark.parametrize("name", ["show", "stats", "own"])
def test_what_cells_show_is_well_formed(shown: dict[str, Any], name: str):
    html = shown[name]._repr_html_()
    WellFormed(html)
    assert ("rgba(" in html) == (name != "stats")


def test_the_generation_shows_every_origin_that_the_text_explains(shown: dict[str, Any]):
    assert {"accepted", "correction"} <= set(shown["show"].origins)


def test_the_own_speculator_takes_ten_lines():
    source = next("".join(cell["source"]) for cell in CELLS if cell["id"] == "own")
    assert sum(bool(line.strip()) for line in source.splitlines()) <= 10


def test_it_is_a_notebook_of_version_4_5():
    assert set(BOOK) == {"cells", "metadata", "nbformat", "nbformat_minor"}
    assert (BOOK["nbformat"], BOOK["nbformat_minor"]) == (4, 5)
    assert set(BOOK["metadata"]["kernelspec"]) == {"display_name", "language", "name"}
    assert BOOK["metadata"]["language_info"]["name"] == "python"


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell["id"])
def test_a_cell_is_of_the_format_and_has_no_output(cell: dict[str, Any]):
    assert set(cell) == KEYS[cell["cell_type"]]
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", cell["id"])
    assert cell["metadata"] == {}
    assert all(line.endswith("\n") for line in cell["source"][:-1])
    assert not cell["source"][-1].endswith("\n")
    assert cell.get("outputs", []) == []
    assert cell.get("execution_count") is None


def test_ids_of_cells_are_unique():
    assert len({cell["id"] for cell in CELLS}) == len(CELLS)
