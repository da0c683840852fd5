"""Laws of scripts/fetch_llama_cpp.py: it never leaves a wrong or half a tree, and never works twice.

Owns archives made on the spot, which real pip finds in a folder or an index on this machine; no network.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "fetch_llama_cpp.py"
STAMP = ".pyspec-source.json"
NAME = "fake_llama-1.0"
FILES = {
    "PKG-INFO": "Metadata-Version: 2.1\nName: fake_llama\nVersion: 1.0\n",
    "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
    # The whole of what pip asks of a source package that it only downloads.
    "backend.py": (
        "import os\n"
        "def prepare_metadata_for_build_wheel(folder, config_settings=None):\n"
        "    name = 'fake_llama-1.0.dist-info'\n"
        "    os.mkdir(os.path.join(folder, name))\n"
        "    with open(os.path.join(folder, name, 'METADATA'), 'w') as file:\n"
        "        file.write('Metadata-Version: 2.1\\nName: fake_llama\\nVersion: 1.0\\n')\n"
        "    return name\n"
    ),
    "LICENSE": "not a part of the subtree",
    "vendor/llama.cpp/.git": "gitdir: elsewhere",
    "vendor/llama.cpp/CMakeLists.txt": "project(fake)",
    "vendor/llama.cpp/src/llama.cpp": "int fake;",
}
TREE = {"CMakeLists.txt": "project(fake)", "src/llama.cpp": "int fake;"}


def write_archive(path: Path, files: Mapping[str, str] = FILES) -> str:
    """An archive of `files`; returns its SHA-256."""
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(f"{NAME}/{name}")
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def contents(tree: Path) -> dict[str, str]:
    """The files of a tree with their text, without the stamp."""
    return {
        path.relative_to(tree).as_posix(): path.read_text()
        for path in sorted(tree.rglob("*"))
        if path.is_file() and path.name != STAMP
    }


class Bench:
    """An index folder, a cache, a pin and the tree to fill, all below one temporary folder."""

    def __init__(self, root: Path) -> None:
        self.index = root / "index"
        self.cache = root / "cache"
        self.tree = root / "vendor" / "llama.cpp"
        self.pin = root / "pin.json"
        self.archive = self.index / f"{NAME}.tar.gz"
        self.kept = self.cache / "llama.cpp" / self.archive.name
        self.index.mkdir()
        self.tree.parent.mkdir()
        self.write_pin(write_archive(self.archive))

    def write_pin(self, sha256: str, version: str = "1.0") -> None:
        """Pin the package with this hash."""
        self.pin.write_text(
            json.dumps(
                {
                    "package": "fake_llama",
                    "version": version,
                    "archive": f"fake_llama-{version}.tar.gz",
                    "sha256": sha256,
                    "subtree": "vendor/llama.cpp",
                    "commit": "abcdef123",
                }
            )
        )

    def start(self, *options: str, **settings: str) -> subprocess.Popen[str]:
        """Start the script, with pip's settings in the environment."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
        environment |= {
            "PYSPEC_CACHE": str(self.cache),
            "PIP_CONFIG_FILE": os.devnull,
            **(settings or {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.index)}),
        }
        command = [sys.executable, str(SCRIPT), "--pin", str(self.pin), "--tree", str(self.tree), *options]
        return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, *options: str, **settings: str) -> tuple[int, str]:
        """Run the script; returns the exit status and what it said."""
        process = self.start(*options, **settings)
        output, _ = process.communicate(timeout=300)
        return process.returncode, output

    def leftovers(self) -> list[str]:
        """What the script forgot beside the tree and in the cache."""
        beside = [path.name for path in self.tree.parent.iterdir()]
        cached = [path.name for path in self.kept.parent.iterdir()] if self.kept.parent.exists() else []
        return sorted({*beside, *cached} - {".llama.cpp.lock", "llama.cpp", self.kept.name})


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A place to fetch into."""
    return Bench(tmp_path)


def test_fetch_extracts_the_subtree_alone_through_pip(bench: Bench) -> None:
    status, output = bench.run()
    assert status == 0, output
    assert contents(bench.tree) == TREE
    assert json.loads((bench.tree / STAMP).read_text()) == json.loads(bench.pin.read_text())
    assert bench.leftovers() == []


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves a folder without a line for each request."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def index_url(tmp_path: Path) -> Iterator[str]:
    """The address of a package index on this machine, which serves `simple/` of the temporary folder."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/simple"
    server.shutdown()
    thread.join()
    server.server_close()


def test_pip_is_stopped_before_it_builds_what_it_downloaded(bench: Bench, tmp_path: Path, index_url: str) -> None:
    served = tmp_path / "simple" / "fake-llama"
    served.mkdir(parents=True)
    stuck = "import time\ntime.sleep(3600)\nraise SystemExit('built')\n"
    bench.write_pin(write_archive(served / bench.archive.name, {**FILES, "backend.py": stuck}))
    status, output = bench.run(PIP_INDEX_URL=index_url)
    assert status == 0, output
    assert contents(bench.tree) == TREE
    assert bench.leftovers() == []


def test_second_run_does_nothing(bench: Bench) -> None:
    assert bench.run()[0] == 0
    before = {path: path.stat().st_mtime_ns for path in [bench.tree, *bench.tree.rglob("*")]}
    bench.archive.unlink()
    bench.kept.unlink()
    status, output = bench.run()
    assert status == 0
    assert "already holds" in output
    assert {path: path.stat().st_mtime_ns for path in [bench.tree, *bench.tree.rglob("*")]} == before


def test_a_fresh_clone_needs_no_second_download(bench: Bench) -> None:
    assert bench.run()[0] == 0
    bench.archive.unlink()
    bench.tree = bench.tree.parent / "clone"
    status, output = bench.run()
    assert status == 0, output
    assert contents(bench.tree) == TREE


def test_damaged_cache_is_downloaded_again(bench: Bench) -> None:
    bench.kept.parent.mkdir(parents=True)
    bench.kept.write_bytes(bench.archive.read_bytes()[:-40])
    status, output = bench.run()
    assert status == 0
    assert "is damaged" in output
    assert contents(bench.tree) == TREE
    assert bench.kept.read_bytes() == bench.archive.read_bytes()


@pytest.mark.parametrize("case", ["other file", "cut file", "missing file"])
def test_bad_download_leaves_the_old_tree(bench: Bench, case: str) -> None:
    assert bench.run()[0] == 0
    bench.kept.unlink()
    if case == "other file":
        write_archive(bench.archive, {**FILES, "vendor/llama.cpp/src/llama.cpp": "int evil;"})
    elif case == "cut file":
        bench.archive.write_bytes(bench.archive.read_bytes()[:-40])
    else:
        bench.archive.unlink()
    status, output = bench.run("--force")
    assert status == 1
    assert json.loads(bench.pin.read_text())["sha256"] in output
    assert contents(bench.tree) == TREE
    assert not bench.kept.exists()
    assert bench.leftovers() == []


def test_a_named_archive_with_the_wrong_hash_is_refused(bench: Bench, tmp_path: Path) -> None:
    other = tmp_path / "other.tar.gz"
    digest = write_archive(other, {**FILES, "LICENSE": "changed"})
    status, output = bench.run("--archive", str(other))
    assert status == 1
    assert digest in output
    assert not bench.tree.exists()


@pytest.mark.parametrize("name", ["../../escape", "link"])
def test_archive_that_reaches_outside_is_refused(bench: Bench, name: str) -> None:
    with tarfile.open(bench.archive, "w:gz") as tar:
        for inside in ["CMakeLists.txt", name]:
            member = tarfile.TarInfo(f"{NAME}/vendor/llama.cpp/{inside}")
            if inside == "link":
                member.type, member.linkname = tarfile.SYMTYPE, "/etc"
            tar.addfile(member, io.BytesIO(b""))
    bench.write_pin(hashlib.sha256(bench.archive.read_bytes()).hexdigest())
    status, output = bench.run("--archive", str(bench.archive))
    assert status == 1
    assert name in output
    assert not bench.tree.exists()
    assert not (bench.tree.parent.parent / "escape").exists()
    assert bench.leftovers() == []


@pytest.mark.parametrize("stamp", [None, {"package": "fake_llama", "version": "0.9"}, "no mapping"])
def test_foreign_tree_is_left_alone_unless_forced(bench: Bench, stamp: object) -> None:
    bench.tree.mkdir()
    (bench.tree / "CMakeLists.txt").write_text("somebody's work")
    if stamp is not None:
        (bench.tree / STAMP).write_text(json.dumps(stamp))
    status, output = bench.run()
    assert status == 1
    assert "--force" in output and "PYSPEC_LLAMA_CPP_DIR" in output
    assert contents(bench.tree) == {"CMakeLists.txt": "somebody's work"}
    status, output = bench.run("--force")
    assert status == 0, output
    assert contents(bench.tree) == TREE
    assert bench.leftovers() == []


def test_another_pin_does_not_replace_the_tree_unasked(bench: Bench) -> None:
    assert bench.run()[0] == 0
    bench.write_pin("0" * 64, version="2.0")
    status, output = bench.run()
    assert status == 1
    assert "holds fake_llama 1.0" in output
    assert contents(bench.tree) == TREE


def test_concurrent_runs_fill_the_tree_once(bench: Bench) -> None:
    processes = [bench.start() for _ in range(4)]
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0, 0], outputs
    assert sum("files" in output for output in outputs) == 1
    assert sum("already holds" in output for output in outputs) == 3
    assert contents(bench.tree) == TREE
    assert bench.leftovers() == []


def test_files_are_as_new_as_the_extraction(bench: Bench) -> None:
    # Builds compare times: an archive made long ago must still look newer than objects of the tree before it.
    started = bench.pin.stat().st_mtime
    assert bench.run()[0] == 0
    assert all(path.stat().st_mtime >= started for path in bench.tree.rglob("*"))
