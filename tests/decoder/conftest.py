"""Models with a prompt and what plain decoding says after it, loaded and decoded once for all tests of the decoder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from decoder_rig import Subject

from pyspec._core import Model

_CODE = "def total(items):\n    result = 0\n    for item in items:\n        result += item\n    return result\n\n\n"
_WINDOW_PASSED = 530
_REAL = {"tiny": "tiny", "smollm2-135m": "smollm2", "gemma3-270m": "gemma3"}


@pytest.fixture(scope="session")
def load() -> Callable[[Path], Model]:
    """Path -> the model, loaded once."""
    loaded: dict[Path, Model] = {}

    def model(path: Path) -> Model:
        if path not in loaded:
            loaded[path] = Model(path)
        return loaded[path]

    return model


@pytest.fixture(scope="session")
def tiny(tiny_target_path: Path, load: Callable[[Path], Model]) -> Subject:
    """Hybrid with text."""
    model = load(tiny_target_path)
    return Subject("tiny", model, model.vocab.tokenize(_CODE).tolist())


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path, load: Callable[[Path], Model]) -> Subject:
    """Attention with text."""
    model = load(smollm2_path)
    return Subject("smollm2-135m", model, model.vocab.tokenize(_CODE + "def total(items):\n").tolist())


@pytest.fixture(scope="session")
def gemma3(gemma3_path: Path, load: Callable[[Path], Model]) -> Subject:
    """Sliding window of 512, with a prompt that has passed it."""
    model = load(gemma3_path)
    prompt = model.vocab.tokenize(_CODE * 40).tolist()[:_WINDOW_PASSED]
    return Subject("gemma3-270m", model, prompt, n_ctx=1024)


@pytest.fixture(scope="session")
def arch_subject(arch_model: Callable[[str], Path], load: Callable[[Path], Model]) -> Callable[[str], Subject]:
    """Architecture -> its random model with 128 tokens."""
    made: dict[str, Subject] = {}

    def subject(name: str) -> Subject:
        if name not in made:
            made[name] = Subject(name, load(arch_model(name)), [(7 * i + 3) % 100 for i in range(20)])
        return made[name]

    return subject


@pytest.fixture
def subject(request: pytest.FixtureRequest, subject_name: str) -> Subject:
    """The model called `subject_name`: a key of `_REAL` or an architecture."""
    if subject_name in _REAL:
        real: Subject = request.getfixturevalue(_REAL[subject_name])
        return real
    arch: Subject = request.getfixturevalue("arch_subject")(subject_name)
    return arch
