"""Laws of the random RWKV models: written without a compiler, the same each time, recurrent, and not a single word."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from pyspec._core import Context, Model
from pyspec.errors import UnsupportedError

NAMES = ("rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7")
PROMPT = [3, 10, 17, 24, 31, 38]


@pytest.fixture
def no_compiler(build_test_models_module: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The maker of models with an empty cache on a machine without cmake and ninja."""
    monkeypatch.setenv("PYSPEC_CACHE", str(tmp_path))
    monkeypatch.setattr(build_test_models_module.shutil, "which", lambda *_, **__: None)
    return build_test_models_module


def test_they_are_written_without_a_compiler_and_with_the_same_bytes(no_compiler: ModuleType) -> None:
    assert no_compiler.RWKV == NAMES
    first = {name: path.read_bytes() for name, path in no_compiler.ensure(NAMES).items()}
    for name in NAMES:
        no_compiler.find(name).unlink()
    again = {name: path.read_bytes() for name, path in no_compiler.ensure([f"{n}-dense" for n in NAMES]).items()}
    assert first == {name.removesuffix("-dense"): data for name, data in again.items()}


@pytest.mark.parametrize("name", NAMES)
def test_they_are_recurrent_and_say_something_else_after_each_token(
    build_test_models_module: ModuleType, name: str
) -> None:
    model = Model(build_test_models_module.ensure([name])[name])
    assert (model.architecture, model.memory_kind) == (name, "recurrent")
    context = Context(model, n_ctx=256, n_threads=1)
    context.decode(PROMPT, pos=0, n_outputs=len(PROMPT))
    rows = context.logits()
    assert np.isfinite(rows).all()
    assert len(set(context.argmax_rows().tolist())) > len(PROMPT) // 2
    context.clear()
    context.decode([PROMPT[0] + 1, *PROMPT[1:]], pos=0, n_outputs=1)
    assert np.abs(context.logits()[0] - rows[-1]).max() > 1e-2 * rows[-1].std(), "the first token is remembered"


@pytest.mark.parametrize("n_threads", [1, 3, 8])
@pytest.mark.parametrize("name", NAMES)
def test_they_end_with_more_threads_than_heads(build_test_models_module: ModuleType, name: str, n_threads: int) -> None:
    """llama.cpp's own test leaves these architectures out because they hang there."""
    model = Model(build_test_models_module.ensure([name])[name])
    context = Context(model, n_ctx=256, n_ubatch=64, n_threads=n_threads, n_threads_batch=n_threads)
    context.decode([i % 128 for i in range(128)], pos=0)
    context.decode([5], pos=128)
    assert context.seq_pos_max(0) == 128


@pytest.mark.parametrize("name", ["rwkv7", "arwkv7"])
def test_heads_that_llama_cpp_would_write_past_the_end_of_are_refused(
    build_test_models_module: ModuleType, tmp_path: Path, name: str
) -> None:
    source = (build_test_models_module.RECIPE / "rwkv.py").read_text(encoding="utf-8")
    narrow = source.replace("128, 2, 128, 192, 64", "128, 2, 128, 192, 32")
    assert narrow != source
    written: dict[str, Any] = {"__name__": "narrow"}
    exec(compile(narrow, "rwkv.py", "exec"), written)
    written["write"](name, tmp_path / "narrow.gguf", 1)
    with pytest.raises(UnsupportedError, match=r"head_size is 32.*multiple of 64"):
        Context(Model(tmp_path / "narrow.gguf"), n_ctx=256)
