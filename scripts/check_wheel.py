#!/usr/bin/env python3
"""Check that a wheel holds what pyspec needs, and nothing that would land elsewhere in site-packages.

Owns the list of what may be in a wheel and builds one when none is named. Leaves running it to the tests.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXTENSION = re.compile(r"pyspec/_core\.[\w.-]+\.(?:so|pyd)")
LIBRARY = re.compile(r"pyspec/lib/[\w.-]+\.(?:so|dylib|dll)")
SOURCE = re.compile(r"pyspec/(?:\w+/)*\w+\.py")
DATA = re.compile(r"pyspec/(?:_core\.pyi|py\.typed|models_data/[\w.-]+)")
LINKED = ("llama.cpp", "llamafile-sgemm", "pybind11", "yarn")
LICENSES = ("LICENSE", *(f"vendor/licenses/{name}.txt" for name in LINKED))
MAX_BYTES = 30_000_000
MAX_PORTABLE_BYTES = 60_000_000


def build(folder: Path) -> Path:
    """A wheel of the checkout, as pip builds it."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--disable-pip-version-check",
        "--no-deps",
        "--wheel-dir",
    ]
    result = subprocess.run([*command, str(folder), str(ROOT)], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"check_wheel: pip could not build a wheel:\n{result.stdout[-4000:]}\n{result.stderr[-4000:]}")
    return next(folder.glob("*.whl"))


def sources() -> set[str]:
    """Every Python file of the package in the checkout, by its name in a wheel."""
    return {path.relative_to(ROOT).as_posix() for path in (ROOT / "pyspec").rglob("*.py")}


def version() -> str:
    """The version in pyproject.toml, its only place."""
    match = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert match, "pyproject.toml has a version"
    return match[1]


def problems(wheel: Path) -> list[str]:
    """What is wrong with a wheel, one line each; empty for a good one."""
    found = []
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        tops = {name.split("/")[0] for name in names}
        info = next((top for top in sorted(tops) if top.endswith(".dist-info")), "")
        texts = {name: archive.read(name) for name in names if name.startswith(f"{info}/")}

    def text_of(name: str) -> str:
        return texts.get(f"{info}/{name}", b"").decode().replace("\r\n", "\n")

    if not info.startswith("pyspec_llama-"):
        found.append(f"the distribution is called {info or 'nothing'}, not pyspec_llama")

    extensions = [name for name in names if EXTENSION.fullmatch(name)]
    if len(extensions) != 1:
        found.append(f"there must be one extension, there are {len(extensions)}: {', '.join(extensions)}")
    libraries = [name for name in names if LIBRARY.fullmatch(name)]
    if libraries and not any("ggml-cpu" in name for name in libraries):
        found.append(f"libraries without a CPU backend: {', '.join(libraries)}")

    allowed = {*extensions, *libraries, *texts}
    allowed |= {name for name in names if SOURCE.fullmatch(name) or DATA.fullmatch(name)}
    found += [f"unexpected: {name}" for name in names if name not in allowed]
    needed = {"pyspec/__init__.py", "pyspec/_core.pyi", "pyspec/py.typed", *sources()}
    found += [f"missing: {name}" for name in sorted(needed - set(names))]
    n_models = sum(name.startswith("pyspec/models_data/") and name.endswith(".gguf") for name in names)
    if n_models != 2:
        found.append(f"the embedded default is a target and a draft, there are {n_models} models")

    for name in LICENSES:
        if texts.get(f"{info}/licenses/{name}") != (ROOT / name).read_bytes():
            found.append(f"missing or changed licence: {name}")
    if "pyspec=pyspec.cli:main" not in text_of("entry_points.txt").replace(" ", ""):
        found.append("no console script `pyspec`")
    if f"\nVersion: {version()}\n" not in text_of("METADATA"):
        found.append(f"the version is not {version()}")

    size, limit = wheel.stat().st_size, MAX_PORTABLE_BYTES if libraries else MAX_BYTES
    if size > limit:
        found.append(f"{size} bytes, more than {limit}")
    return found


def main() -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Check the files of a wheel of pyspec.")
    parser.add_argument("wheel", type=Path, nargs="?", help="the wheel; built from the checkout when not given")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wheel = options.wheel or build(Path(folder))
        found = problems(wheel)
        for problem in found:
            print(f"check_wheel: {wheel.name}: {problem}")
        if not found:
            print(f"check_wheel: {wheel.name}: {wheel.stat().st_size} bytes, nothing missing, nothing stray")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
