"""Laws of scripts/demo and scripts/test: what a machine lacks is said in words, before anything is made.

Owns machines that lack something, made from folders of links. What the scripts do on a whole machine is seen
where they run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
TOOLS = ("bash", "env", "dirname", "cat", "grep", "tail", "tr", "sleep", "mkdir")


def machine(folder: Path, **programs: str) -> dict[str, str]:
    """The environment of a machine that has a few tools and `programs`, the texts of shell scripts."""
    folder.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found, f"{tool} is part of every system"
        (folder / tool).symlink_to(found)
    for name, text in programs.items():
        (folder / name).write_text(f"#!{folder / 'bash'}\n{text}\n")
        (folder / name).chmod(0o755)
    return {"PATH": str(folder), "PYSPEC_VENV": str(folder.parent / "venv"), "HOME": str(folder.parent)}


NEW_PYTHON = f'exec {sys.executable} "$@"'
OLD_PYTHON = 'if [ "$1" = --version ]; then echo Python 3.9.2; else exit 1; fi'
NO_VENV = f'case "$*" in *"import venv"*) exit 1 ;; *) exec {sys.executable} "$@" ;; esac'


@pytest.mark.skipif(os.name != "posix", reason="the scripts are for a POSIX shell")
@pytest.mark.parametrize("script", ["demo", "test"])
@pytest.mark.parametrize(
    ("programs", "reason"),
    [
        pytest.param({}, "no Python 3.10 or newer found; install one", id="no Python"),
        pytest.param({"python3": OLD_PYTHON}, "python3 is Python 3.9.2", id="old Python"),
        pytest.param({"python3": NEW_PYTHON}, "no C++ compiler found", id="no compiler"),
        pytest.param({"python3": NO_VENV, "c++": ""}, "has no venv module", id="no venv module"),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, script: str, programs: dict[str, str], reason: str) -> None:
    environment = machine(tmp_path / "bin", **programs)
    result = subprocess.run([str(SCRIPTS / script)], env=environment, capture_output=True, text=True)
    assert result.returncode == 1
    assert reason in result.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.skipif(os.name != "posix", reason="the scripts are for a POSIX shell")
def test_failed_install_shows_its_reason(tmp_path: Path) -> None:
    environment = machine(tmp_path / "bin", **{"c++": ""})
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\ncase "$*" in *pip*) echo the disk is full; exit 1 ;; esac\n')
    python.chmod(0o755)
    environment["PYTHON"] = sys.executable
    result = subprocess.run([str(SCRIPTS / "demo")], env=environment, capture_output=True, text=True)
    assert result.returncode == 1
    assert "the disk is full" in result.stderr
    assert "installing failed" in result.stderr
