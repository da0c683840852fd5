"""The README's promises that can be run."""

import re
import subprocess
import sys
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


def test_an_import_from_the_source_folder_says_what_to_do(tmp_path: Path):
    """A folder named pyspec without the compiled extension, first on the path: as in a fresh clone."""
    folder = tmp_path / "pyspec"
    folder.mkdir()
    (folder / "__init__.py").write_bytes((README.parent / "pyspec" / "__init__.py").read_bytes())
    script = "import sys; sys.meta_path[:] = sys.meta_path[-3:]; sys.path[:] = [sys.argv[1], *sys.path]; import pyspec"
    ran = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "pyspec was found in its source folder" in ran.stderr
    assert "pip install -e" in ran.stderr


@pytest.mark.parametrize("name", ["bench", "testing"])
def test_what_is_seldom_needed_is_there_when_asked_for(name: str):
    script = f"import sys, pyspec; assert 'pyspec.{name}' not in sys.modules; print(pyspec.{name}.__name__)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd="/")
    assert ran.stdout.strip() == f"pyspec.{name}"
