"""Random-weight GGUF models of many architectures, written by llama.cpp's own test-llama-archs and test_models/rwkv.py.

Owns the build of that program from the vendored tree and its output in the cache, and the build of ngram-drafts,
which tells what llama.cpp's n-gram speculators draft; leaves the rest to tests.
Usage: build_test_models.py [--all] [--jobs N] [NAME ...]; without names, those that the tests need.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable
from pathlib import Path

from pyspec import cache

REPOSITORY = Path(__file__).resolve().parent.parent
LLAMA_CPP = REPOSITORY / "vendor" / "llama.cpp"
RECIPE = Path(__file__).resolve().parent / "test_models"

# Every memory kind and every way in which an architecture can be hybrid.
SPREAD = (
    "lfm2",
    "qwen35",
    "qwen3next",
    "falcon-h1",
    "granitehybrid",
    "nemotron_h",
    "jamba",
    "mamba",
    "mamba2",
    "rwkv7",
    "kimi-linear",
    "gemma3",
    "llama",
    "gpt-oss",
)

# test-llama-archs leaves these out ("hang indefinitely", it says; what test_models/rwkv.py writes does not).
RWKV = ("rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7")

_SEED = 1
_EXE = sysconfig.get_config_var("EXE") or ""
_PROGRAM = "test-llama-archs" + _EXE
_DRAFTS_SOURCES = ("CMakeLists.txt", "ngram_drafts.cpp", "stand_ins.cpp")
_BUILD_LIMIT_S = 3600
_WRITE_LIMIT_S = 600
_N_LINES_SHOWN = 30


class BuildError(Exception):
    """The models could not be made; the message says why and what to do."""


def folder() -> Path:
    """Where the models of the pinned llama.cpp commit lie in the cache."""
    pin = json.loads((REPOSITORY / "vendor" / "llama_cpp.json").read_text())
    return cache.root() / "test-archs" / f"{pin['commit']}-seed{_SEED}"


def find(name: str) -> Path | None:
    """The cached model of an architecture (dense before mixture of experts) or of a file's stem, or None."""
    for stem in (f"{name}-dense", f"{name}-moe", name):
        file = folder() / f"{stem}.gguf"
        if file.is_file():
            return file
    return None


def ensure(names: Iterable[str], *, n_jobs: int = 0) -> dict[str, Path]:
    """Make the models that are missing; safe to call from several processes at once.

    Args:
        names: architectures as llama.cpp spells them, optionally with "-dense" or "-moe".
        n_jobs: compiler processes, 0 for one per core.

    Raises:
        BuildError: a tool is missing, the build failed, or llama.cpp has no such architecture.
    """
    wanted = list(names)
    if missing := [name for name in wanted if find(name) is None]:
        with cache.lock(folder() / ".lock"):
            for name in missing:
                if find(name) is None:
                    _write(name, n_jobs)
    return {name: _found(name) for name in wanted}


def ensure_all(*, n_jobs: int = 0) -> list[Path]:
    """Make the models of all architectures (about 900 MB)."""
    complete = folder() / ".all"
    if not complete.is_file():
        with cache.lock(folder() / ".lock"):
            _save([str(_program(n_jobs))], [])
            complete.touch()
    ensure(RWKV)
    return sorted(folder().glob("*.gguf"))


def ngram_drafts(*, n_jobs: int = 0) -> Path:
    """The program of test_models/ngram_drafts.cpp, built (20 seconds) where this version of it is not in the cache.

    Raises:
        BuildError: a tool is missing, or the build failed.
    """
    source = hashlib.sha256(b"".join((RECIPE / name).read_bytes() for name in _DRAFTS_SOURCES))
    program = folder() / f"ngram-drafts-{source.hexdigest()[:12]}{_EXE}"
    if not program.is_file():
        with cache.lock(folder() / ".drafts.lock"):
            if not program.is_file():
                _build("ngram-drafts", program, n_jobs)
    return program


# ------------------------------------------------------------------ writing


def _found(name: str) -> Path:
    file = find(name)
    assert file is not None, "ensure writes what is missing or raises"
    return file


def _write(name: str, n_jobs: int) -> None:
    """Write the model of one name: of the architecture called so, or of the stem "llama-moe" for instance."""
    architecture, _, _ = name.rpartition("-")
    for candidate in (name, architecture):
        if candidate in RWKV:
            _save([sys.executable, str(RECIPE / "rwkv.py")], [candidate])
            return
    program = str(_program(n_jobs))
    for candidate in (name, architecture):
        if candidate:
            _save([program], ["-a", candidate])
            if find(name) is not None:
                return
    raise BuildError(f"llama.cpp's test-llama-archs writes no model called {name!r}")


def _save(program: list[str], arguments: list[str]) -> None:
    """Run the program and move what it wrote into the cache, each file in one step."""
    with cache.workspace(folder(), "write") as place:
        command = [*program, "-s", str(_SEED), "-o", str(place), *arguments]
        _run(command, "writing the test models", _WRITE_LIMIT_S)
        for file in place.glob("*.gguf"):
            file.replace(folder() / file.name)


# ------------------------------------------------------------------ building


def _program(n_jobs: int) -> Path:
    """Build the program unless the cache has it. The caller holds the lock."""
    program = folder() / _PROGRAM
    if not program.is_file():
        _build("test-llama-archs", program, n_jobs)
    return program


def _build(target: str, program: Path, n_jobs: int) -> None:
    """Build a target of the recipe and move it to `program`. The caller holds a lock on the target."""
    _need_sources()
    cmake, ninja = _tool("cmake"), _tool("ninja")
    with cache.workspace(folder(), f"build-{target}") as place:
        configure = [
            cmake,
            "-S",
            str(RECIPE),
            "-B",
            str(place),
            "-G",
            "Ninja",
            f"-DCMAKE_MAKE_PROGRAM={ninja}",
        ]
        # A build type without flags of its own: the compiler's default, the quickest to compile.
        configure += ["-DCMAKE_BUILD_TYPE=None", f"-DLLAMA_CPP_DIR={LLAMA_CPP.as_posix()}"]
        _run(configure, f"configuring {target}", _BUILD_LIMIT_S)
        jobs = str(n_jobs or os.cpu_count() or 1)
        build = [cmake, "--build", str(place), "--target", target, "--parallel", jobs]
        _run(build, f"building {target}", _BUILD_LIMIT_S)
        (place / (target + _EXE)).replace(program)


def _need_sources() -> None:
    source = LLAMA_CPP / "tests" / "test-llama-archs.cpp"
    if not source.is_file():
        fetch = [sys.executable, str(REPOSITORY / "scripts" / "fetch_llama_cpp.py")]
        _run(fetch, "fetching llama.cpp", _BUILD_LIMIT_S)
    if not source.is_file():
        raise BuildError(f"{source} is missing; fetch a whole llama.cpp tree with scripts/fetch_llama_cpp.py")


def _tool(name: str) -> str:
    """The tool of this Python's environment, or the one on the PATH."""
    beside = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    found = shutil.which(name, path=beside)
    if found is None:
        raise BuildError(f"{name} is missing; install it into this environment: python -m pip install {name}")
    return found


def _run(command: list[str], doing: str, limit_s: int) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired as late:
        raise BuildError(f"{doing} took longer than {limit_s} s: {' '.join(command)}") from late
    if done.returncode != 0:
        lines = done.stdout.decode(errors="replace").splitlines()[-_N_LINES_SHOWN:]
        raise BuildError("\n".join([f"{doing} ended with status {done.returncode}: {' '.join(command)}", *lines]))


def main() -> int:
    """Command line; prints the models' paths on stdout and what it does on stderr."""
    parser = argparse.ArgumentParser(description="Write random test models of llama.cpp's architectures.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="architecture, e.g. lfm2 or llama-moe")
    parser.add_argument("--all", action="store_true", help="every architecture (about 900 MB)")
    parser.add_argument("--jobs", type=int, default=0, help="compiler processes (default: one per core)")
    options = parser.parse_args()
    print(f"test models in {folder()} (a first run builds test-llama-archs: minutes)", file=sys.stderr)
    start_s = time.monotonic()
    try:
        if options.all:
            files = ensure_all(n_jobs=options.jobs)
        else:
            files = list(ensure(options.names or SPREAD, n_jobs=options.jobs).values())
    except (BuildError, OSError) as error:
        print(f"build_test_models: {error}", file=sys.stderr)
        return 1
    print(f"{len(files)} models in {time.monotonic() - start_s:.1f} s", file=sys.stderr)
    print(*files, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
