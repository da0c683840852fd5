"""The models of the engine's tests, and what each says to the prompts of `engine_rig`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from engine_rig import Answers


@pytest.fixture(scope="session")
def model_of(arch_model: Callable[[str], Path], tiny_target_path: Path) -> Callable[[str], Path]:
    return lambda kind: tiny_target_path if kind == "tiny" else arch_model(kind)


@pytest.fixture(scope="session")
def answers_of(model_of: Callable[[str], Path]) -> Callable[[str], Answers]:
    known: dict[str, Answers] = {}

    def answers(kind: str) -> Answers:
        if kind not in known:
            known[kind] = Answers(model_of(kind), 16)
        return known[kind]

    return answers
