"""llama.cpp's own programs, built from the vendored tree to be measured against.

Owns their build, once per pinned commit beside that of the extension, so that ccache gives them its very kernels; what
is compiled how stands in llama_cpp_programs/CMakeLists.txt. Leaves running them to the benchmarks.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from pyspec import cache

REPOSITORY = Path(__file__).resolve().parent.parent
LLAMA_CPP = REPOSITORY / "vendor" / "llama.cpp"
RECIPE = Path(__file__).resolve().with_suffix("")
AMX_TILES = REPOSITORY / "cmake" / "amx_tiles.h"


def commit() -> str:
    """The pinned commit of llama.cpp."""
    return str(json.loads((REPOSITORY / "vendor" / "llama_cpp.json").read_text(encoding="utf-8"))["commit"])


def program(name: str, *, n_jobs: int = 0) -> Path:
    """The path of `name` ("llama-bench", "llama-server"), built (minutes) where it was not built by this recipe before.

    Args:
        name: a target of llama.cpp.
        n_jobs: compiler processes, 0 for one per core.

    Raises:
        RuntimeError: CMake or Ninja is missing.
        subprocess.CalledProcessError: the build failed; its output says why.
    """
    recipe = hashlib.sha256((RECIPE / "CMakeLists.txt").read_bytes() + AMX_TILES.read_bytes()).hexdigest()
    place = REPOSITORY / "build" / f"llama-cpp-programs-{commit()}-{recipe[:8]}"
    built = place / "bin" / (name + (sysconfig.get_config_var("EXE") or ""))
    with cache.lock(place / ".lock"):
        if not built.is_file():
            _build(name, place, n_jobs or os.cpu_count() or 1)
    return built


def _build(name: str, place: Path, n_jobs: int) -> None:
    if not (LLAMA_CPP / "CMakeLists.txt").is_file():
        _run([sys.executable, str(REPOSITORY / "scripts" / "fetch_llama_cpp.py")])
    cmake, ninja = _tool("cmake"), _tool("ninja")
    configure = [cmake, "-S", str(RECIPE), "-B", str(place), "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
    configure += ["-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_RUNTIME_OUTPUT_DIRECTORY={place / 'bin'}"]
    configure += [f"-DLLAMA_CPP_DIR={LLAMA_CPP.as_posix()}", f"-DLLAMA_CPP_COMMIT={commit()}"]
    configure += [f"-DPYSPEC_DIR={REPOSITORY.as_posix()}"]
    for variable in ("CC", "CXX"):  # what the extension is built with
        compiler = (os.environ.get(variable) or sysconfig.get_config_var(variable) or "").split()
        if compiler and (found := shutil.which(compiler[0])):
            configure.append(f"-DCMAKE_{'C' if variable == 'CC' else 'CXX'}_COMPILER={found}")
    _run(configure)
    _run([cmake, "--build", str(place), "--target", name, "--parallel", str(n_jobs)])


def _run(command: list[str]) -> None:
    """Run it; what it says goes to stderr, where it can be watched."""
    subprocess.run(command, check=True, stdout=sys.stderr)


def _tool(name: str) -> str:
    """The tool of this Python's environment, or the one on the PATH."""
    beside = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    found = shutil.which(name, path=beside)
    if found is None:
        raise RuntimeError(f"{name} is missing; install it into this environment: python -m pip install {name}")
    return found
