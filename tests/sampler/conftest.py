"""Models and contexts that the sampler's tests share; nothing in them changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sampler_reference import PROMPT

from pyspec._core import Context, Model


@pytest.fixture(scope="module")
def model(arch_model: Callable[[str], Path]) -> Model:
    """128 test tokens, random weights."""
    return Model(arch_model("llama"))


@pytest.fixture(scope="module")
def context(model: Model) -> Context:
    """One decode of eight tokens, all of them with an output row."""
    context = Context(model, n_ctx=64, n_batch=64, n_threads=1)
    context.decode(PROMPT, pos=0, n_outputs=len(PROMPT))
    return context


@pytest.fixture(scope="module")
def text_model(tiny_target_path: Path) -> Model:
    """A text vocabulary."""
    return Model(tiny_target_path)


@pytest.fixture(scope="module")
def text_context(text_model: Model) -> Context:
    """One decode of some code."""
    context = Context(text_model, n_ctx=512, n_batch=64, n_threads=1)
    context.decode(text_model.vocab.tokenize("def total(items):\n    return"), pos=0)
    return context
