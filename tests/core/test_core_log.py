"""Laws of llama.cpp's messages: quiet by default, whole lines under `pyspec.llama`, nothing lost or doubled."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyspec import _core, errors
from pyspec._core import Context, Model

Make = Callable[..., Context]


@pytest.fixture
def everything() -> Iterator[None]:
    """Messages of every level reach Python during a test."""
    _core.set_log_level(logging.DEBUG)
    try:
        yield
    finally:
        _core.set_log_level(logging.WARNING)
        _core.flush_log()


def test_loading_is_quiet_by_default(tiny_draft_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    context = Context(Model(tiny_draft_path), n_ctx=256, n_threads=1)
    context.decode([1, 2, 3], pos=0)
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("everything")
def test_messages_are_whole_lines_with_their_levels(tiny_draft_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="pyspec.llama"):
        Context(Model(tiny_draft_path), n_ctx=256, n_threads=1)
    records = [r for r in caplog.records if r.name == "pyspec.llama"]
    assert {logging.DEBUG, logging.INFO} <= {r.levelno for r in records}
    assert any("general.architecture" in r.getMessage() for r in records)
    assert not any("\n" in r.getMessage() or r.getMessage() == "" for r in records)


def test_level_drops_messages_before_python(tiny_draft_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="pyspec.llama"):
        Context(Model(tiny_draft_path), n_ctx=256, n_threads=1)
    assert all(r.levelno >= logging.WARNING for r in caplog.records if r.name == "pyspec.llama")


def test_reason_is_found_when_logging_is_off(tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(b"GGUF" + b"\x09" * 100)
    _core.set_log_level(1000)
    try:
        with pytest.raises(errors.ModelLoadError) as caught:
            Model(file)
    finally:
        _core.set_log_level(logging.WARNING)
    assert "version" in str(caught.value)
    assert _core.flush_log() == 0


@pytest.mark.usefixtures("everything")
def test_messages_are_handed_over_once_and_by_the_call_that_caused_them(tiny_draft_path: Path) -> None:
    seen: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())

    log = logging.getLogger("pyspec.llama")
    collector = Collector()
    level = log.level
    log.addHandler(collector)
    log.setLevel(logging.DEBUG)
    try:
        Model(tiny_draft_path)
        n_seen = len(seen)
        assert n_seen > 10
        assert _core.flush_log() == 0
        assert len(seen) == n_seen
    finally:
        log.removeHandler(collector)
        log.setLevel(level)


@pytest.mark.usefixtures("everything")
def test_handler_that_raises_does_not_harm_the_call(tiny_draft_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unraisable: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", lambda info: unraisable.append(info.exc_value))

    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("broken handler")

    log = logging.getLogger("pyspec.llama")
    broken = Broken()
    log.addHandler(broken)
    log.setLevel(logging.DEBUG)
    try:
        model = Model(tiny_draft_path)
    finally:
        log.removeHandler(broken)
        log.setLevel(logging.NOTSET)
    assert model.n_layer > 0
    assert [str(e) for e in unraisable] == ["broken handler"]


@pytest.mark.usefixtures("everything")
def test_messages_of_several_threads_do_not_mix(tiny_draft_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="pyspec.llama"):
        Model(tiny_draft_path)
        alone = {r.getMessage() for r in caplog.records}
        caplog.clear()
        threads = [threading.Thread(target=Model, args=(tiny_draft_path,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        _core.flush_log()
    stems = {message.split(":")[0] for message in alone}
    assert {r.getMessage().split(":")[0] for r in caplog.records} <= stems
