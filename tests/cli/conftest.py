"""The command line as a function, and as a process where signals and pipes matter."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pyspec.cli import main

# A parent that ignores Ctrl-C (a job in the background) would hand that on to the child.
_START = """\
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from pyspec.cli import main
sys.exit(main(sys.argv[1:]))
"""


@dataclass
class Result:
    code: int
    out: str
    err: str


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`cli("info", "--json", stdin=b"")`: exit code and what was printed; no traceback gets past it."""

    def run(*argv: object, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        try:
            code = main([str(arg) for arg in argv])
        except SystemExit as end:
            code = end.code
        return Result(code, *capsys.readouterr())

    return run


@pytest.fixture
def no_text_path(arch_model: Callable[[str], Path], tmp_path: Path) -> Path:
    """A hybrid of 128 tokens whose vocabulary has no text: llama.cpp's random one, its tokenizer's name changed."""
    name = b"tokenizer.ggml.model" + struct.pack("<IQ", 8, 4)
    data = arch_model("lfm2").read_bytes()
    assert data.count(name + b"test") == 1
    path = tmp_path / "no-text.gguf"
    path.write_bytes(data.replace(name + b"test", name + b"none"))
    return path


@pytest.fixture
def cli_process():
    """`cli_process(...)`: a running `pyspec`, with bytes on its pipes; killed at the end of the test."""
    started = []

    def start(*argv: object) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", _START, *map(str, argv)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


@pytest.fixture(autouse=True)
def untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`auto` takes the first strategy in the order of preference, however busy this machine is."""
    monkeypatch.setattr("pyspec.assembly.cached_costs", lambda *_, **__: {})
