"""The models that tests run on, as fixtures that hold paths.

Owns how they get into the cache before the first test starts; leaves what is done with them to the tests.
A model that cannot be had is an error of every test that needs it, never a skip.
"""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType

import isolated as isolated_process
import pytest

from pyspec import models

_NAMED = {"smollm2_path": "smollm2-135m", "gemma3_path": "gemma3-270m"}
_ARCHS = ("arch_model", "arch_path")


def _script(name: str) -> ModuleType:
    file = Path(__file__).parent.parent / "scripts" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None, f"{file} is a Python file"
    assert spec.loader is not None, f"{file} is a Python file"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session", autouse=True)
def _neutral_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests run in an empty folder and hear Ctrl-C, however pytest was started.

    In the repository a child Python would import the sources instead of the installed package; a run in the
    background begins with SIGINT ignored.
    """
    before, heard = Path.cwd(), signal.getsignal(signal.SIGINT)
    os.chdir(tmp_path_factory.mktemp("cwd"))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, heard)
    os.chdir(before)


@pytest.fixture(scope="session", autouse=True)
def _untimed_widths() -> Iterator[None]:
    """No budget starts from what decodes took on this machine; `pyspec.width_costs` is tested for itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyspec.assembly.cached_width_costs", lambda *_, **__: {})
        patch.setattr("pyspec.engine.sequences.cached_width_costs", lambda *_, **__: {})
        yield


build_test_models = _script("build_test_models")

ARCH_NAMES: tuple[str, ...] = build_test_models.SPREAD


def _needed(items: Iterable[pytest.Item]) -> set[str]:
    return {name for item in items for name in getattr(item, "fixturenames", ())}


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch and build what the chosen tests need, so that no test's time limit has to hold a download."""
    if session.config.option.collectonly:
        return
    needed = _needed(session.items)
    try:
        for fixture, name in _NAMED.items():
            if fixture in needed and models.path(name) is None:
                _say(session, f"fetching {name}")
                models.fetch(name)
        if needed.intersection(_ARCHS) and any(build_test_models.find(name) is None for name in ARCH_NAMES):
            _say(session, "building llama.cpp's random test models (minutes)")
            build_test_models.ensure(ARCH_NAMES)
    except Exception as error:
        # The fixtures try again and fail the tests that need it, with the whole error; the others still run.
        _say(session, f"not ready: {error}")


def _say(session: pytest.Session, text: str) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(text)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `arch_name` runs on each architecture of the spread, unless it lists its own."""
    if "arch_name" not in metafunc.fixturenames:
        return
    listed = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if not any("arch_name" in names for names in listed):
        metafunc.parametrize("arch_name", ARCH_NAMES)


@pytest.fixture(scope="session")
def tiny_target_path() -> Path:
    """LFM2 hybrid with a text vocabulary: the embedded target."""
    return models.tiny_target()


@pytest.fixture(scope="session")
def tiny_draft_path() -> Path:
    """LFM2 hybrid with the target's vocabulary: the embedded draft model."""
    return models.tiny_draft()


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M Instruct, attention."""
    return models.fetch("smollm2-135m")


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    """Gemma 3 270M, sliding window of 512."""
    return models.fetch("gemma3-270m")


@pytest.fixture(scope="session")
def arch_names() -> tuple[str, ...]:
    """Architectures of the required spread, as llama.cpp spells them."""
    return ARCH_NAMES


@pytest.fixture(scope="session")
def build_test_models_module() -> ModuleType:
    """scripts/build_test_models.py, imported once."""
    return build_test_models


@pytest.fixture(scope="session")
def arch_model() -> Callable[[str], Path]:
    """Name of an architecture ("qwen35", "llama-moe") -> its random model with 128 tokens and no text."""

    def model(name: str) -> Path:
        found: Path = build_test_models.ensure([name])[name]
        return found

    return model


@pytest.fixture
def arch_path(arch_name: str, arch_model: Callable[[str], Path]) -> Path:
    """The random model of the test's `arch_name`."""
    return arch_model(arch_name)


@pytest.fixture(scope="session")
def isolated() -> Callable[..., object]:
    """`isolated(function, *args, timeout_s=120)`: its result from a process of its own; see isolated.py."""
    return isolated_process.call


@pytest.fixture(scope="session")
def isolated_script() -> Callable[..., str]:
    """`isolated_script(source, *args, timeout_s=120)`: what Python source prints in a process of its own."""
    return isolated_process.script
