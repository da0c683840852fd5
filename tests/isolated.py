"""Run a function of a test file in a process of its own, so that native code cannot take pytest down with it.

Owns the child, its time limit and the report of how it died; leaves what is asserted to the test.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_N_CHARACTERS_SHOWN = 4000


def call(function: Callable[..., Any], *args: Any, timeout_s: float = 120.0) -> Any:
    """Return `function(*args)`, computed in a fresh interpreter.

    `function` stands at the top level of its file; arguments and result must be picklable. An exception, an
    abort, a signal or more than `timeout_s` seconds fail the test and show what the child printed.
    """
    file = Path(function.__code__.co_filename)
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer"
        (Path(folder) / "question").write_bytes(pickle.dumps((str(file), function.__name__, args)))
        command = [sys.executable, "-X", "faulthandler", str(Path(__file__).resolve()), folder]
        _run(command, f"{function.__name__}{args!r}", timeout_s)
        return pickle.loads(answer.read_bytes())


def script(source: str, *args: str, timeout_s: float = 120.0) -> str:
    """Run Python source with `args` in `sys.argv[1:]`; returns its standard output, fails as `call` does."""
    return _run([sys.executable, "-X", "faulthandler", "-c", source, *args], "the script", timeout_s)


def _run(command: list[str], what: str, timeout_s: float) -> str:
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    try:
        out, err = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        # SIGABRT makes faulthandler print where every thread hangs.
        child.send_signal(signal.SIGABRT)
        out, err = _last_words(child)
        pytest.fail(f"{what} hung for more than {timeout_s:g} s\n{_tail(out, err)}", pytrace=False)
    if child.returncode != 0:
        pytest.fail(f"{what} {_death(child.returncode)}\n{_tail(out, err)}", pytrace=False)
    return out


def _last_words(child: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        return child.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.communicate()


def _death(status: int) -> str:
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"


def _tail(out: str, err: str) -> str:
    return f"--- stdout\n{out[-_N_CHARACTERS_SHOWN:]}\n--- stderr\n{err[-_N_CHARACTERS_SHOWN:]}"


def _answer(folder: Path) -> None:
    file, name, args = pickle.loads((folder / "question").read_bytes())
    sys.path.insert(0, os.path.dirname(file))
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert spec is not None, f"{file} is a Python file"
    assert spec.loader is not None, f"{file} is a Python file"
    module = importlib.util.module_from_spec(spec)
    sys.modules[Path(file).stem] = module
    spec.loader.exec_module(module)
    (folder / "answer").write_bytes(pickle.dumps(getattr(module, name)(*args)))


if __name__ == "__main__":
    _answer(Path(sys.argv[1]))
