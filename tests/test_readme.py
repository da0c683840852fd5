"""The README's promises that can be run."""

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_the_first_example_has_eight_lines_of_code():
    assert sum(bool(line.strip()) for line in BLOCKS[0].splitlines()) <= 8


def test_every_example_runs_as_it_stands_in_order(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in BLOCKS:
        exec(compile(block, str(README), "exec"), names)
    printed = capsys.readouterr().out
    assert "decodes became" in printed
    assert names["fast"].text == names["plain"].text


def test_the_first_example_saves_decodes():
    names: dict[str, object] = {}
    exec(compile(BLOCKS[0], str(README), "exec"), names)
    assert names["fast"].stats.n_decodes < names["plain"].stats.n_decodes


def test_the_two_commands_exist_and_are_executable():
    for command in re.findall(r"^scripts/\w+", README.read_text(encoding="utf-8"), re.MULTILINE):
        assert (README.parent / command).stat().st_mode & 0o111, command
