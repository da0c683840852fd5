"""Laws of scripts/check_wheel.py: it accepts a whole wheel and names what is missing or stray in any other.

Owns wheels made on the spot. That the wheel of this checkout is whole is checked by .ci/run, which builds it.
"""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


def load_script() -> ModuleType:
    """scripts/check_wheel.py as a module."""
    spec = importlib.util.spec_from_file_location("check_wheel", ROOT / "scripts" / "check_wheel.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check_wheel = load_script()
INFO = f"pyspec_llama-{check_wheel.version()}.dist-info"


def whole() -> dict[str, bytes]:
    """The files of a wheel that nothing is wrong with."""
    files = dict.fromkeys(check_wheel.sources(), b"")
    files |= dict.fromkeys(("pyspec/__init__.py", "pyspec/_core.pyi", "pyspec/py.typed"), b"")
    files |= {f"pyspec/models_data/{name}.gguf": b"" for name in ("target", "draft")}
    files |= {f"{INFO}/licenses/{name}": (ROOT / name).read_bytes() for name in check_wheel.LICENSES}
    files["pyspec/_core.cpython-311-x86_64-linux-gnu.so"] = b""
    files[f"{INFO}/METADATA"] = f"Name: pyspec-llama\nVersion: {check_wheel.version()}\n".encode()
    files[f"{INFO}/entry_points.txt"] = b"[console_scripts]\npyspec=pyspec.cli:main\n"
    files[f"{INFO}/RECORD"] = b""
    return files


def problems(tmp_path: Path, files: dict[str, bytes]) -> list[str]:
    """What the script says of a wheel with these files."""
    wheel = tmp_path / "wheel.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    found: list[str] = check_wheel.problems(wheel)
    return found


def test_whole_wheel_has_no_problem(tmp_path: Path) -> None:
    assert problems(tmp_path, whole()) == []


def test_portable_wheel_has_no_problem(tmp_path: Path) -> None:
    libraries = {"pyspec/lib/libpyspec-llama.so": b"", "pyspec/lib/libggml-cpu-haswell.so": b""}
    assert problems(tmp_path, {**whole(), **libraries}) == []


@pytest.mark.parametrize(
    "name",
    [
        "lib/libllama.a",
        "include/llama.h",
        "bin/llama-cli",
        "csrc/module.cpp",
        "pyspec/libllama.so",
        "tests/x.py",
    ],
)
def test_stray_file_is_named(tmp_path: Path, name: str) -> None:
    assert problems(tmp_path, {**whole(), name: b""}) == [f"unexpected: {name}"]


@pytest.mark.parametrize("name", ["pyspec/__init__.py", "pyspec/_core.pyi", "pyspec/py.typed", "pyspec/errors.py"])
def test_missing_file_is_named(tmp_path: Path, name: str) -> None:
    files = whole()
    del files[name]
    assert problems(tmp_path, files) == [f"missing: {name}"]


def with_two_extensions(files: dict[str, bytes]) -> None:
    files["pyspec/_core.cpython-312-x86_64-linux-gnu.so"] = b""


def without_a_model(files: dict[str, bytes]) -> None:
    del files["pyspec/models_data/draft.gguf"]


def with_another_licence(files: dict[str, bytes]) -> None:
    files[f"{INFO}/licenses/vendor/licenses/llama.cpp.txt"] = b"all rights reserved"


def without_the_script(files: dict[str, bytes]) -> None:
    del files[f"{INFO}/entry_points.txt"]


def with_another_version(files: dict[str, bytes]) -> None:
    files[f"{INFO}/METADATA"] = b"Name: pyspec-llama\nVersion: 9.9\n"


def without_a_cpu_backend(files: dict[str, bytes]) -> None:
    files["pyspec/lib/libpyspec-llama.so"] = b""


def too_large(files: dict[str, bytes]) -> None:
    files["pyspec/models_data/target.gguf"] = bytes(check_wheel.MAX_BYTES + 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (with_two_extensions, "there are 2"),
        (without_a_model, "there are 1 models"),
        (with_another_licence, "licence: vendor/licenses/llama.cpp.txt"),
        (without_the_script, "no console script"),
        (with_another_version, "the version is not"),
        (without_a_cpu_backend, "without a CPU backend"),
        (too_large, f"more than {check_wheel.MAX_BYTES}"),
    ],
)
def test_problem_is_named(tmp_path: Path, change: Callable[[dict[str, bytes]], None], words: str) -> None:
    files = whole()
    change(files)
    [problem] = problems(tmp_path, files)
    assert words in problem


def test_licences_that_travel_are_those_of_the_sources() -> None:
    vendored = ROOT / "vendor" / "llama.cpp"
    kept = ROOT / "vendor" / "licenses"
    assert (kept / "llama.cpp.txt").read_text() == (vendored / "LICENSE").read_text()
    sgemm = (vendored / "ggml/src/ggml-cpu/llamafile/sgemm.cpp").read_text().split("\n\n")[0]
    assert (kept / "llamafile-sgemm.txt").read_text().split() == sgemm.replace("//", "").split()
