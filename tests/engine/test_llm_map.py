"""`Llama.map`: many prompts through an engine with the same settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspec import Llama
from pyspec.errors import ClosedError, InvalidValueError, UnknownOptionError

PROMPTS = ["def add(a, b):", "import os", [5, 6, 7], "class A:"]


@pytest.fixture
def llm(tiny_target_path: Path):
    with Llama(tiny_target_path, n_ctx=256, n_threads=1, seed=3, spec="ngram-map-k", budget="off") as llm:
        yield llm


@pytest.mark.parametrize("how", [{}, {"temperature": 0.8}], ids=["greedy", "drawn"])
def test_the_texts_are_those_of_one_call_after_the_other(llm: Llama, how: dict[str, float]) -> None:
    apart = {"context": {"kv_unified": False}}
    done = list(llm.map(PROMPTS, max_tokens=12, n_parallel=2, engine=apart, **how))
    assert [one.tokens for one in done] == [llm.generate(p, max_tokens=12, **how).tokens for p in PROMPTS]
    assert [one.seed for one in done] == [3] * 4


def test_any_number_of_prompts_may_be_given_and_left(llm: Llama) -> None:
    endless = llm.map((p for _ in range(10**9) for p in PROMPTS), max_tokens=2)
    assert len([next(endless) for _ in range(9)]) == 9
    endless.close()
    assert list(llm.map([])) == []


def test_mistakes_are_refused(llm: Llama) -> None:
    with pytest.raises(UnknownOptionError, match="max_tokens"):
        next(llm.map(PROMPTS, max_token=3))
    with pytest.raises(UnknownOptionError, match="n_spare"):
        next(llm.map(PROMPTS, engine={"n_spar": 3}))
    with pytest.raises(InvalidValueError, match="several prompts"):
        next(llm.map("def f():"))
    llm.close()
    with pytest.raises(ClosedError):
        next(llm.map(PROMPTS))


def test_a_bar_is_drawn_on_a_terminal_alone(llm: Llama, capsys, monkeypatch) -> None:
    list(llm.map(PROMPTS, max_tokens=2))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("pyspec.progress.sys.stderr.isatty", lambda: True, raising=False)
    list(llm.map(PROMPTS, max_tokens=2))
    assert "generating" in capsys.readouterr().err
    list(llm.map(PROMPTS, max_tokens=2, progress=False))
    assert capsys.readouterr().err == ""
