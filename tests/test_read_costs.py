"""What reading costs: the measurement, and its cache."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pyspec import cache, read_costs
from pyspec._core import Context, Model
from pyspec.errors import StateError
from pyspec.memory import probe
from pyspec.read_costs import cached_read_cost, measure_read_cost

TURNS = (0.003, 0.002, 0.0021)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("PYSPEC_CACHE", str(tmp_path / "cache"))
    return cache.root() / "read-costs"


@pytest.fixture(scope="module")
def tiny(tiny_target_path: Path) -> Model:
    return Model(tiny_target_path)


def context_of(model: Model, **settings: Any) -> Context:
    return Context(model, **{"n_ctx": 256, "n_threads": 1, "n_threads_batch": 1} | settings)


@pytest.fixture
def widths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A clock on which a decode takes `TURNS` seconds for each of its tokens, in turn; holds the widths."""
    now, widths, decode = [0.0], [], Context.decode
    monkeypatch.setattr(read_costs, "perf_counter", lambda: now[0])

    def timed(context: Context, tokens: Any, **options: Any) -> None:
        decode(context, tokens, **options)
        now[0] += len(tokens) * TURNS[len(widths) % len(TURNS)]
        widths.append(len(tokens))

    monkeypatch.setattr(Context, "decode", timed)
    return widths


@pytest.mark.parametrize(("settings", "n_tokens"), [({}, 64), ({"n_batch": 16, "n_ubatch": 16}, 16)], ids=str)
def test_the_best_of_some_turns_counts(tiny: Model, widths: list[int], settings: dict[str, int], n_tokens: int):
    with closing(context_of(tiny, **settings)) as context:
        assert measure_read_cost(context) == (pytest.approx(0.002), True)
    assert widths == [n_tokens] * 3


def test_where_that_takes_little_it_is_measured_with_as_many_as_prompts_have(
    tiny: Model, widths: list[int], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(globals(), "TURNS", (0.0002, 0.0001, 0.0001, 0.0001))
    with closing(context_of(tiny, n_ctx=2048)) as context:
        assert measure_read_cost(context) == (pytest.approx(0.0001), True)
    assert widths == [64, 512, 512, 512]


def test_a_busy_machine_is_not_remembered(
    tiny: Model, widths: list[int], own_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(globals(), "TURNS", (0.002, 0.001, 0.003))
    with closing(context_of(tiny)) as context:
        assert cached_read_cost(context, token_s=0.001) == pytest.approx(0.001)
    assert len(widths) == 3
    assert not own_cache.exists()


def test_measuring_ends_where_it_takes_long(tiny: Model, widths: list[int], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(read_costs, "_LIMIT_S", 0.01)
    with closing(context_of(tiny)) as context:
        assert measure_read_cost(context) == (pytest.approx(0.003), False)
    assert len(widths) == 1


def test_nothing_is_in_memory_afterwards(tiny: Model):
    with closing(context_of(tiny)) as context:
        assert cached_read_cost(context, token_s=0.001) > 0.0
        assert context.seq_pos_max(0) < 0
        probe(context)  # refuses a memory that is not empty


def test_it_is_measured_once_for_a_model_and_its_settings(tiny: Model, widths: list[int], own_cache: Path):
    for _ in range(2):
        with closing(context_of(tiny)) as context:
            assert cached_read_cost(context, token_s=0.001) == pytest.approx(0.002)
    assert len(widths) == 3
    with closing(context_of(tiny)) as context:
        cached_read_cost(context, token_s=0.001, settings={"type_k": "f32"})
    assert len(widths) == 6
    assert len(list(own_cache.iterdir())) == 2


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"read_s": -1}', '{"read_s": "x"}', '{"read_s": NaN}'])
def test_a_damaged_file_is_measured_again(tiny: Model, widths: list[int], own_cache: Path, text: str):
    with closing(context_of(tiny)) as context:
        cached_read_cost(context, token_s=0.001)
        (path,) = own_cache.iterdir()
        path.write_text(text)
        assert cached_read_cost(context, token_s=0.001) == pytest.approx(0.002)
        assert len(widths) == 6
        assert json.loads(path.read_text())["read_s"] == pytest.approx(0.002)


def test_where_decodes_are_slow_it_is_guessed(tiny: Model, widths: list[int], own_cache: Path):
    with closing(context_of(tiny)) as context:
        assert cached_read_cost(context, token_s=0.2) == pytest.approx(0.02)
    assert not widths
    assert not own_cache.exists()


def test_a_decode_that_fails_costs_nothing_but_the_knowledge(tiny: Model, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: Any, **__: Any) -> None:
        raise StateError(reason="out of memory")

    monkeypatch.setattr(Context, "decode", refuse)
    with closing(context_of(tiny)) as context:
        assert cached_read_cost(context, token_s=0.001) == pytest.approx(0.0001)
