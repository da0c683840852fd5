"""What decodes of each width cost: the measurement, when it is believed, its cache, and what the budget makes of it."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from pyspec import Llama, assembly, cache, width_costs
from pyspec._core import Context, Model
from pyspec.assembly import assemble
from pyspec.budget import BudgetOptions
from pyspec.errors import StateError
from pyspec.memory import probe
from pyspec.width_costs import cached_width_costs, measure_width_costs

CURVE = {1: 0.002, 2: 0.003, 4: 0.004}


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("PYSPEC_CACHE", str(tmp_path / "cache"))
    return cache.root() / "width-costs"


@pytest.fixture(scope="module")
def tiny(tiny_target_path: Path) -> Model:
    return Model(tiny_target_path)


def context_of(model: Model, **settings: Any) -> Context:
    return Context(model, **{"n_ctx": 256, "n_threads": 1, "n_threads_batch": 1} | settings)


class Clock:
    """Time that passes only in decodes: `seconds(width, n)` for the n-th of a width."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: Any) -> None:
        self.now, self.widths, self.seconds = 0.0, [], seconds
        monkeypatch.setattr(width_costs, "perf_counter", lambda: self.now)
        decode = Context.decode

        def timed(context: Context, tokens: Any, **options: Any) -> None:
            decode(context, tokens, **options)
            self.widths.append(len(tokens))
            self.now += seconds(len(tokens), self.widths.count(len(tokens)))

        monkeypatch.setattr(Context, "decode", timed)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Whatever this machine is doing, decodes cost `CURVE`; holds the widths of each measurement."""
    asked: list[tuple[int, ...]] = []

    def measure(context: Context, widths: list[int], **_: Any) -> dict[int, float]:
        asked.append(tuple(widths))
        return dict(CURVE)

    monkeypatch.setattr(width_costs, "measure_width_costs", measure)
    return asked


# ------------------------------------------------------------------ the measurement


def test_what_decodes_take_is_what_is_found(tiny: Model, monkeypatch: pytest.MonkeyPatch):
    Clock(monkeypatch, lambda width, n: 0.001 * (1 + 0.25 * (width - 1)))
    found = measure_width_costs(context_of(tiny), (1, 2, 4, 8, 16, 32))
    assert found == pytest.approx({w: 0.001 * (1 + 0.25 * (w - 1)) for w in (1, 2, 4, 8, 16, 32)})


def test_a_plain_decode_is_one_that_follows_others(tiny: Model, monkeypatch: pytest.MonkeyPatch):
    """The first two of a text build their graphs, where memory is recurrent."""
    clock = Clock(monkeypatch, lambda width, n: 0.001 * width + 0.001 * (clock.context_pos() < 2))
    context = context_of(tiny)
    clock.context_pos = lambda: context.seq_pos_max(0) + 1 - clock.widths[-1]
    assert measure_width_costs(context, (1, 2))[1] == pytest.approx(0.001)


def test_the_best_of_the_turns_counts(tiny: Model, monkeypatch: pytest.MonkeyPatch):
    Clock(monkeypatch, lambda width, n: 0.001 * width * (3 if n % 2 else 1))
    assert measure_width_costs(context_of(tiny), (1, 2))[2] == pytest.approx(0.002)


def test_a_real_measurement_leaves_nothing_and_never_takes_long(tiny: Model):
    context = context_of(tiny)
    before = probe(context)
    found = measure_width_costs(context, (1, 2, 4))
    assert found == {} or (set(found) == {1, 2, 4} and min(found.values()) > 0), "nothing on a busy machine"
    assert context.seq_pos_max(0) == -1
    assert probe(context) == before


def test_a_machine_too_busy_to_tell_decides_nothing(
    tiny: Model, own_cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    Clock(monkeypatch, lambda width, n: 0.001 * 1.5**n)
    with caplog.at_level(logging.INFO, "pyspec"):
        assert cached_width_costs(context_of(tiny), width_max=8) == {}
    assert "busy" in caplog.text
    assert not own_cache.exists()


@pytest.mark.parametrize(
    ("plain_s", "widest"),
    [(1e-4, 32), (0.013, 16), (0.03, 4), (0.05, 2), (1.0, 0)],
    ids=["gpu", "13ms", "30ms", "50ms", "1s"],
)
def test_slow_decodes_leave_out_the_wide_ones(
    tiny: Model, monkeypatch: pytest.MonkeyPatch, plain_s: float, widest: int
):
    clock = Clock(monkeypatch, lambda width, n: plain_s * (1 + 0.4 * (width - 1)))
    found = measure_width_costs(context_of(tiny), (1, 2, 4, 8, 16, 32))
    assert max(found, default=0) == widest
    assert clock.now < max(0.8, 2.1 * plain_s), "under a second, or the two decodes without which nothing is known"


def test_a_machine_that_becomes_slow_is_given_up(tiny: Model, monkeypatch: pytest.MonkeyPatch):
    clock = Clock(monkeypatch, lambda width, n: 0.001 if len(clock.widths) < 10 else 0.7)
    assert measure_width_costs(context_of(tiny), (1, 2, 4, 8)) == {}
    assert clock.widths == [1, 1] + [1, 1, 1, 2, 4, 8] * 2, "two turns that find out, one that takes too long"


# ------------------------------------------------------------------ the cache


def test_costs_are_measured_once_for_a_file_and_its_settings(tiny: Model, own_cache: Path, measured: list[Any]):
    first = cached_width_costs(context_of(tiny), width_max=4)
    assert cached_width_costs(context_of(tiny), width_max=4) == first == CURVE
    assert measured == [(1, 2, 4)]
    assert len(list(own_cache.iterdir())) == 1


@pytest.mark.parametrize("changes", [{"n_ctx": 512}, {"n_threads": 2}, {"n_ubatch": 64}])
def test_a_curve_of_other_settings_is_never_used(tiny: Model, measured: list[Any], changes: dict[str, Any]):
    cached_width_costs(context_of(tiny), width_max=4)
    cached_width_costs(context_of(tiny, **changes), width_max=4)
    assert len(measured) == 2


def test_a_curve_of_another_model_is_never_used(tiny: Model, tiny_draft_path: Path, measured: list[Any]):
    for model in (tiny, Model(tiny_draft_path)):
        cached_width_costs(context_of(model), width_max=4)
    assert len(measured) == 2


def test_a_curve_of_a_changed_file_is_never_used(tiny_target_path: Path, tmp_path: Path, measured: list[Any]):
    path = tmp_path / "model.gguf"
    path.write_bytes(tiny_target_path.read_bytes())
    cached_width_costs(context_of(Model(path)), width_max=4)
    path.write_bytes(tiny_target_path.read_bytes() + b"\0")
    cached_width_costs(context_of(Model(path)), width_max=4)
    assert len(measured) == 2


@pytest.mark.parametrize("settings", [{"placement": "gpu"}, {"type_k": "q8_0"}])
def test_a_curve_of_another_placement_is_never_used(tiny: Model, measured: list[Any], settings: dict[str, str]):
    cached_width_costs(context_of(tiny), width_max=4)
    cached_width_costs(context_of(tiny), width_max=4, settings=settings)
    assert len(measured) == 2


@pytest.mark.parametrize("version", [width_costs._VERSION + 1])
def test_a_curve_of_another_version_is_never_used(
    tiny: Model, measured: list[Any], monkeypatch: pytest.MonkeyPatch, version: int
):
    cached_width_costs(context_of(tiny), width_max=4)
    monkeypatch.setattr(width_costs, "_VERSION", version)
    cached_width_costs(context_of(tiny), width_max=4)
    assert len(measured) == 2


@pytest.mark.parametrize(
    "damage",
    [
        *("", "{", "[]", "null", "{}", "\x00\xff", '{"1": 1}', '{"2": 1, "4": 2}', '{"4": 1, "1": 2}'),
        *('{"1": 0, "2": 1}', '{"1": 1, "2": "x"}', '{"1": 1, "2": NaN}', '{"1": 1, "2": null}'),
    ],
)
def test_a_damaged_file_is_told_and_measured_again(
    tiny: Model, own_cache: Path, measured: list[Any], damage: str, caplog: pytest.LogCaptureFixture
):
    cached_width_costs(context_of(tiny), width_max=4)
    (path,) = own_cache.iterdir()
    path.write_bytes(damage.encode("latin-1"))
    with caplog.at_level(logging.INFO, "pyspec"):
        assert cached_width_costs(context_of(tiny), width_max=4) == CURVE
    assert "damaged" in caplog.text
    assert str(path) in caplog.text
    assert len(measured) == 2
    assert json.loads(path.read_text()) == {str(width): seconds for width, seconds in CURVE.items()}


def test_a_cache_that_cannot_be_written_stops_nothing(
    tiny: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, measured: list[Any]
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PYSPEC_CACHE", str(tmp_path / "file"))
    assert cached_width_costs(context_of(tiny), width_max=4) == CURVE


@pytest.mark.parametrize("changes", [{"n_batch": 1}, {"n_ubatch": 1}], ids=str)
def test_where_only_one_token_fits_nothing_is_measured(tiny: Model, measured: list[Any], changes: dict[str, int]):
    assert cached_width_costs(context_of(tiny, **changes), width_max=8) == {}
    assert cached_width_costs(context_of(tiny), width_max=1) == {}
    assert measured == []


def test_widths_that_a_context_has_no_room_for_are_left_out(
    tiny: Model, measured: list[Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(width_costs, "WIDTHS", (1, 2, 4, 128, 250))
    cached_width_costs(context_of(tiny), width_max=300)
    cached_width_costs(context_of(tiny, n_ubatch=2, n_ctx=512), width_max=32)
    assert measured == [(1, 2, 4, 128), (1, 2)]


def test_decodes_that_fail_leave_the_assumed_costs(
    tiny: Model, own_cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def fail(*args: Any, **options: Any) -> dict[int, float]:
        raise StateError(reason="no decode today")

    monkeypatch.setattr(width_costs, "measure_width_costs", fail)
    assert cached_width_costs(context_of(tiny), width_max=8) == {}
    assert "no decode today" in caplog.text
    assert not own_cache.exists()


# ------------------------------------------------------------------ the hook


@pytest.mark.parametrize(
    ("options", "expected"),
    [({"width_max": 48}, 48), ({}, None), ({"width_max": 0}, None), ({"width_max": 48, "exact": True}, None)],
    ids=["asked", "default", "none", "exact"],
)
def test_an_assembly_measures_what_it_is_asked_for(
    tiny: Model, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], expected: int | None
):
    asked: list[int] = []

    def measure(context: Context, *, width_max: int, settings: Any) -> dict[int, float]:
        asked.append(width_max)
        assert settings["placement"] == "here"
        return dict(CURVE)

    monkeypatch.setattr(assembly, "cached_width_costs", measure)
    made = assemble(tiny, options={"n_ctx": 256, "n_threads": 1}, rollback="shadow", placement="here", **options)
    assert asked == ([] if expected is None else [expected])
    assert made.width_costs == ({} if expected is None else CURVE)
    made.context.close()


def llama(model: Model, **options: Any) -> Llama:
    return Llama(model, **{"n_ctx": 256, "n_threads": 1} | options)


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({}, True),
        ({"budget": "measured", "spec": "suffix"}, True),
        ({"budget": "counts"}, False),
        ({"budget": "off"}, False),
        ({"n_draft": 4}, False),
        ({"spec": None}, False),
        ({"spec": "none"}, False),
        ({"budget": BudgetOptions(measured=False)}, False),
    ],
    ids=str,
)
def test_widths_are_measured_only_for_a_budget_that_measures_and_a_speculator_that_drafts(
    tiny: Model, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], asked: bool
):
    calls: list[Any] = []
    monkeypatch.setattr(assembly, "cached_width_costs", lambda *_, **given: calls.append(given) or dict(CURVE))
    with llama(tiny, **options) as llm:
        assert llm.width_costs == (CURVE if asked else {})
    assert len(calls) == asked


def test_a_measured_curve_decides_the_first_draft(tiny: Model, monkeypatch: pytest.MonkeyPatch):
    """Where width costs in full nothing is decoded, where it costs nothing long drafts are, from the first round on."""
    widest = {}
    for name, slope in (("steep", 1.0), ("flat", 0.0)):
        curve = {width: 1e-3 * (1 + slope * (width - 1)) for width in (1, 2, 4, 8, 16, 32)}
        monkeypatch.setattr(assembly, "cached_width_costs", lambda *_, curve=curve, **__: curve)
        monkeypatch.setattr("pyspec.budget.CostModel.observe", lambda *_: None)  # only what was measured before counts
        with llama(tiny) as llm:
            stats = llm.generate([5, 6, 7, 8, 9, 10, 11] * 8, max_tokens=20).stats
        widest[name] = max(record.n_drafted for record in stats.rounds)
    assert widest["steep"] == 0
    assert widest["flat"] > 1


def test_a_counted_budget_drafts_the_same_whatever_was_measured(tiny: Model, monkeypatch: pytest.MonkeyPatch):
    widths = []
    for slope in (0.0, 1.0):
        curve = {width: 1e-3 * (1 + slope * (width - 1)) for width in (1, 2, 4, 8)}
        monkeypatch.setattr(assembly, "cached_width_costs", lambda *_, curve=curve, **__: curve)
        with llama(tiny, budget="counts") as llm:
            stats = llm.generate([5, 6, 7, 8, 9, 10, 11] * 8, max_tokens=30).stats
        widths.append([record.width for record in stats.rounds])
    assert widths[0] == widths[1]
