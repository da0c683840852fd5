"""One loaded model and a maker of small contexts for the tests of the extension."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyspec._core import Context, Model

SMALL = {"n_ctx": 256, "n_batch": 64, "n_ubatch": 32, "n_threads": 1, "n_threads_batch": 1}


@pytest.fixture(scope="session")
def tiny(tiny_target_path: Path) -> Model:
    """The tiny hybrid: 4096 tokens of text vocabulary, recurrent and attention layers."""
    return Model(tiny_target_path)


@pytest.fixture
def make_context(tiny: Model) -> Callable[..., Context]:
    """`make_context(**options)`: a context of 256 positions, batches of 64, one thread."""

    def make(**options: Any) -> Context:
        return Context(tiny, **{**SMALL, **options})

    return make


@pytest.fixture
def arch_context(arch_model: Callable[[str], Path]) -> Callable[..., Context]:
    """`arch_context(name, **options)`: the same for a random model of an architecture."""

    def make(name: str, **options: Any) -> Context:
        return Context(Model(arch_model(name)), **{**SMALL, **options})

    return make
