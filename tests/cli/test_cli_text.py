"""Tables line up, units are the largest that fit, and a bar leaves no trace."""

import io
import sys

import pytest

from pyspec.cli import main
from pyspec.cli.table import bytes_text, count_text, table
from pyspec.progress import ProgressBar, PromptBar


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_columns_are_as_wide_as_their_widest_cell():
    assert table([["a", "10"], ["bbb", "5"]], header=["x", "n"], right=[1]) == (
        "x     n\n"
        "---  --\n"
        "a    10\n"
        "bbb   5"
    )  # fmt: skip


def test_a_table_without_a_header_has_no_line_below_one():
    assert table([["a", "b"], ["cc", ""]]) == "a   b\ncc"


def test_no_rows_make_no_text():
    assert table([]) == ""


@pytest.mark.parametrize(
    ("n", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (12361792, "11.8 MiB"), (2**50, "1024.0 TiB")]
)
def test_bytes_are_told_in_the_largest_unit_that_fits(n, text):
    assert bytes_text(n) == text


@pytest.mark.parametrize(("n", "text"), [(0, "0"), (999, "999"), (11479424, "11.5 M"), (1_200_000_000, "1.2 B")])
def test_counts_are_told_as_people_tell_parameters(n, text):
    assert count_text(n) == text


def test_a_bar_on_a_terminal_shows_the_end_and_wipes_itself(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with ProgressBar("loading x") as bar:
        bar(0.5)
        bar(1.0)
    drawn = terminal.getvalue().split("\r")
    assert drawn[1] == "loading x [###############...............]  50%"
    assert drawn[2] == "loading x [##############################] 100%"
    assert drawn[3:] == [" " * len(drawn[2]), ""]


def test_a_prompts_bar_is_wiped_before_the_text_and_not_drawn_for_one_decode(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    bar = PromptBar()
    with bar:
        bar(30, 120)
        bar(120, 120)
        drawn = terminal.getvalue()
    assert drawn == terminal.getvalue(), "wiped once"
    assert drawn.startswith("\rreading the prompt [#######....")
    assert drawn.split("\r")[-2:] == [" " * len(drawn.split("\r")[1]), ""]
    PromptBar()(9, 9)
    assert drawn == terminal.getvalue()


def test_a_bar_draws_nothing_where_stderr_is_no_terminal(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    with ProgressBar("loading x") as bar:
        bar(0.5)
    assert stream.getvalue() == ""


def test_text_that_the_terminal_cannot_show_is_replaced_and_no_error(tmp_path, monkeypatch, capsys):
    file = tmp_path / "prompt.txt"
    file.write_text("# naïve\n", encoding="utf-8")
    screen = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", screen)
    assert main(["demo", "--model", "tiny-draft", "--prompt-file", str(file), "--runs", "1", "-n", "4"]) == 0
    assert b"# na?ve\n" in screen.buffer.getvalue()
    assert capsys.readouterr().err == ""
