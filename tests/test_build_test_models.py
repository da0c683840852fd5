"""Laws of the maker of random models: it makes what is asked, once, and says plainly why it cannot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def maker(arch_model: Callable[[str], Path], build_test_models_module: ModuleType) -> ModuleType:
    """The script as a module; its program is built."""
    arch_model("llama")
    return build_test_models_module


@pytest.mark.parametrize(
    ("name", "file_name"),
    [
        ("llama", "llama-dense.gguf"),
        ("llama-moe", "llama-moe.gguf"),
        ("llama-dense", "llama-dense.gguf"),
        ("gpt-oss", "gpt-oss-moe.gguf"),
    ],
)
def test_a_name_means_an_architecture_or_a_file(maker: ModuleType, name: str, file_name: str) -> None:
    assert maker.ensure([name])[name].name == file_name


def test_every_architecture_of_the_spread_has_a_gguf(arch_path: Path) -> None:
    assert arch_path.read_bytes()[:4] == b"GGUF"


def test_a_model_that_is_there_starts_no_process(maker: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maker.subprocess, "run", lambda *_, **__: pytest.fail("a process was started"))
    assert maker.ensure(["llama"])["llama"].is_file()


def test_an_unknown_architecture_is_named(maker: ModuleType) -> None:
    with pytest.raises(maker.BuildError, match="'no-such-architecture'"):
        maker.ensure(["no-such-architecture"])


def test_a_missing_tool_says_how_to_get_it(maker: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYSPEC_CACHE", str(tmp_path))
    monkeypatch.setattr(maker.shutil, "which", lambda *_, **__: None)
    with pytest.raises(maker.BuildError, match="python -m pip install cmake"):
        maker.ensure(["llama"])


def test_a_failing_build_shows_its_last_words_and_leaves_nothing(
    maker: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "recipe"
    broken.mkdir()
    (broken / "CMakeLists.txt").write_text('message(FATAL_ERROR "this recipe is broken")\n')
    monkeypatch.setenv("PYSPEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(maker, "RECIPE", broken)
    with pytest.raises(maker.BuildError, match=r"(?s)configuring .* ended with status 1.*this recipe is broken"):
        maker.ensure(["llama"])
    assert [f.name for f in maker.folder().iterdir()] == [".lock"]
