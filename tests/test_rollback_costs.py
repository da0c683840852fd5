"""What strategies cost: the measurement, what `auto` makes of it, and its cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pyspec import Llama, cache
from pyspec._core import Context, Model
from pyspec.errors import ContextFullError, InvalidValueError, StateError
from pyspec.memory import Capabilities, probe
from pyspec.rollback import StrategyCost, build, cached_costs, candidates, choose, measure_cost, timing

HYBRID = ["shadow", "checkpoint-host", "checkpoint-device"]


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("PYSPEC_CACHE", str(tmp_path / "cache"))
    return cache.root() / "rollback-costs"


@pytest.fixture(scope="module")
def tiny(tiny_target_path: Path) -> Model:
    return Model(tiny_target_path)


def context_of(model: Model, **settings: Any) -> Context:
    return Context(
        model, **{"n_ctx": 256, "n_threads": 1, "n_threads_batch": 1, "n_seq_max": 2, "kv_unified": True} | settings
    )


def cost(name: str, round_s: float) -> StrategyCost:
    return StrategyCost(name, 3, 16, 0, 0.0, round_s, 0.0, 1, 0.0, 2)


def can(**changes: Any) -> Capabilities:
    facts: dict[str, Any] = {
        "kind": "hybrid",
        "can_trim": False,
        "n_snapshots": 0,
        "can_fork": True,
        "can_shadow": True,
        "state_bytes": 100,
        "can_keep_on_device": True,
    }
    return Capabilities(**facts | changes)


# ------------------------------------------------------------------ the choice


@pytest.mark.parametrize(
    ("changes", "spare", "expected"),
    [
        ({}, True, HYBRID),
        ({}, False, ["checkpoint-host", "checkpoint-device"]),
        ({"can_shadow": False}, True, ["fork", "checkpoint-host", "checkpoint-device"]),
        ({"can_keep_on_device": False}, True, ["shadow", "checkpoint-host"]),
        ({"n_snapshots": 4}, True, ["snapshot+shadow"]),
        ({"can_trim": True}, True, ["trim"]),
    ],
)
def test_what_auto_weighs(changes: dict[str, Any], spare: bool, expected: list[str]):
    assert candidates(can(**changes), spare=spare) == expected


def test_without_a_device_a_checkpoint_is_one_on_the_host():
    assert candidates(can(), spare=True, device=False) == ["shadow", "checkpoint-host"]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ((1.0, 1.0, 1.0), "shadow"),
        ((1.0, 0.95, 0.95), "shadow"),
        ((1.0, 0.5, 1.0), "checkpoint-host"),
        ((1.0, 0.5, 0.4), "checkpoint-device"),
        ((1.0, 2.0, 0.4), "checkpoint-device"),
        ((1.0, 0.5, 0.49), "checkpoint-host"),
        ((0.4, 1.0, 1.0), "shadow"),
    ],
)
def test_auto_takes_another_only_where_it_is_clearly_cheaper(tiny: Model, seconds: tuple[float, ...], expected: str):
    costs = {name: cost(name, s) for name, s in zip(HYBRID, seconds, strict=True)}
    strategy, reason = choose(context_of(tiny), can(), spare=1, costs=costs)
    assert strategy.name == expected
    assert all(f"{name} {s * 1e3:.3g} ms" in reason for name, s in zip(HYBRID, seconds, strict=True))


def test_what_was_not_measured_is_not_taken(tiny: Model):
    strategy, _ = choose(context_of(tiny), can(), spare=1, costs={"checkpoint-host": cost("checkpoint-host", 0.1)})
    assert strategy.name == "shadow"


# ------------------------------------------------------------------ the measurement


@pytest.mark.parametrize("name", [*HYBRID, "fork"])
def test_a_measurement_says_what_was_done_and_leaves_nothing(tiny: Model, name: str):
    context = context_of(tiny)
    found = measure_cost(
        build(name, context, seq_id=0, spare=1), width=5, n_accepted=2, n_rounds=3, n_context=40, replay=True
    )
    assert (found.name, found.width, found.n_context, found.n_accepted, found.n_rounds) == (name, 5, 40, 2, 3)
    assert found.n_replayed == 3, "the pending token and both accepted ones"
    assert min(found.save_s, found.decode_s, found.undo_s, found.replay_s) > 0
    assert found.round_s == found.save_s + found.decode_s + found.undo_s
    assert [context.seq_pos_max(seq) for seq in (0, 1)] == [-1, -1]


@pytest.mark.parametrize(("name", "n_rs_seq"), [("snapshot", 6), ("snapshot+shadow", 6)])
def test_what_keeps_accepted_tokens_has_nothing_to_replay(tiny: Model, name: str, n_rs_seq: int):
    context = context_of(tiny, n_rs_seq=n_rs_seq)
    found = measure_cost(build(name, context, seq_id=0, spare=1), width=5, n_accepted=2, replay=True)
    assert (found.n_replayed, found.replay_s) == (0, 0.0)


@pytest.mark.parametrize("n_rs_seq", [3, 5, 6, 7, 8, 12])
def test_a_mixed_strategy_is_measured_whoever_undoes(tiny: Model, n_rs_seq: int):
    strategy = build("snapshot+shadow", context_of(tiny, n_rs_seq=n_rs_seq), seq_id=0, spare=1)
    found = measure_cost(strategy, width=9, n_accepted=3, n_rounds=4, replay=True)
    assert found.n_replayed == (4 if n_rs_seq < 5 else 0)


def test_a_measurement_plays_saves_rejections_and_replays(tiny: Model):
    context = context_of(tiny)
    strategy = build("shadow", context, seq_id=0, spare=1)
    undone: list[int] = []
    original = strategy.roll_back
    strategy.roll_back = lambda keep: undone.append(keep) or original(keep)  # type: ignore[method-assign,func-returns-value]
    measure_cost(strategy, width=4, n_accepted=1, n_rounds=3, n_context=10)
    assert undone == [12] * 4
    assert strategy.n_saves == 4


@pytest.mark.parametrize(("width", "n_accepted"), [(1, 0), (0, 0), (3, 2), (3, -1)])
def test_rounds_that_reject_nothing_are_refused(tiny: Model, width: int, n_accepted: int):
    strategy = build("shadow", context_of(tiny), seq_id=0, spare=1)
    with pytest.raises(InvalidValueError, match=r"width|n_accepted"):
        measure_cost(strategy, width=width, n_accepted=n_accepted)


def test_a_context_without_room_is_refused_with_the_numbers(tiny: Model):
    strategy = build("shadow", context_of(tiny), seq_id=0, spare=1)
    with pytest.raises(ContextFullError, match="256"):
        measure_cost(strategy, width=8, n_rounds=5, n_context=250)


def test_a_strategy_that_fails_leaves_an_empty_memory(tiny: Model):
    context = context_of(tiny)
    strategy = build("checkpoint-host", context, seq_id=0, spare=1, checkpoint_budget_bytes=1)
    with pytest.raises(StateError):
        measure_cost(strategy, width=3, n_context=5)
    assert context.seq_pos_max(0) == -1


# ------------------------------------------------------------------ the cache


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine is doing, a shadow costs 3 ms and a checkpoint 2."""
    seconds = {"shadow": 0.003, "checkpoint-host": 0.002, "checkpoint-device": 0.0025}
    monkeypatch.setattr(timing, "measure_cost", lambda strategy, **options: cost(strategy.name, seconds[strategy.name]))


def test_a_machine_too_busy_to_tell_decides_nothing(tiny: Model, own_cache: Path, monkeypatch: pytest.MonkeyPatch):
    times = iter(range(1, 1000))
    monkeypatch.setattr(timing, "measure_cost", lambda strategy, **options: cost(strategy.name, 2.0 ** next(times)))
    assert cached_costs(context_of(tiny), HYBRID, spare=1) == {}
    assert not own_cache.exists()


def test_each_is_measured_twice_at_least_and_the_fastest_counts(tiny: Model, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(timing, "_LIMIT_S", 0.0)
    times = iter([1.1, 2.0, 3.0, 1.0, 2.1, 3.3])
    monkeypatch.setattr(timing, "measure_cost", lambda strategy, **options: cost(strategy.name, next(times)))
    found = cached_costs(context_of(tiny), HYBRID, spare=1)
    assert [found[name].round_s for name in HYBRID] == [1.0, 2.0, 3.0]


def test_costs_are_measured_once_for_a_file_and_its_settings(
    tiny: Model, own_cache: Path, monkeypatch: pytest.MonkeyPatch, steady: None
):
    first = cached_costs(context_of(tiny), HYBRID, spare=1)
    assert set(first) == set(HYBRID)
    assert len(list(own_cache.iterdir())) == 1
    monkeypatch.setattr(timing, "measure_cost", lambda *args, **options: pytest.fail("measured again"))
    assert cached_costs(context_of(tiny), HYBRID, spare=1) == first


@pytest.mark.parametrize("changes", [{"n_ctx": 512}, {"n_threads": 2}, {"n_ubatch": 64}, {"n_rs_seq": 2}])
def test_other_settings_are_measured_for_themselves(
    tiny: Model, own_cache: Path, changes: dict[str, Any], steady: None
):
    cached_costs(context_of(tiny), HYBRID, spare=1)
    cached_costs(context_of(tiny, **changes), HYBRID, spare=1)
    assert len(list(own_cache.iterdir())) == 2


def test_another_placement_is_measured_for_itself(tiny: Model, own_cache: Path, steady: None):
    for placement in ("cpu", "gpu"):
        cached_costs(context_of(tiny), HYBRID, spare=1, settings={"placement": placement})
    assert len(list(own_cache.iterdir())) == 2


@pytest.mark.parametrize("damage", ["", "{", "[]", "null", '{"shadow": {}}', '{"shadow": 3}', "\x00\xff"])
def test_a_damaged_file_is_measured_again(tiny: Model, own_cache: Path, damage: str, steady: None):
    cached_costs(context_of(tiny), HYBRID, spare=1)
    (path,) = own_cache.iterdir()
    path.write_bytes(damage.encode("latin-1"))
    assert set(cached_costs(context_of(tiny), HYBRID, spare=1)) == set(HYBRID)
    assert set(json.loads(path.read_text())) == set(HYBRID)


def test_a_cache_that_cannot_be_written_stops_nothing(
    tiny: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, steady: None
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PYSPEC_CACHE", str(tmp_path / "file"))
    assert set(cached_costs(context_of(tiny), HYBRID, spare=1)) == set(HYBRID)


@pytest.mark.parametrize("changes", [{}, {"n_batch": 2}, {"n_ubatch": 2}])
def test_without_room_nothing_is_measured(
    tiny: Model, own_cache: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
):
    if not changes:
        monkeypatch.setattr(timing, "_N_CONTEXT", context_of(tiny).n_ctx_seq - 5)
    assert cached_costs(context_of(tiny, **changes), HYBRID, spare=1) == {}
    assert not own_cache.exists()


def test_a_strategy_that_cannot_be_measured_leaves_the_order_of_preference(
    tiny: Model, own_cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def fail(*args: Any, **options: Any) -> StrategyCost:
        raise StateError(reason="cells are not contiguous")

    monkeypatch.setattr(timing, "measure_cost", fail)
    with Llama(tiny, n_ctx=256, n_threads=1) as llm:
        assert llm.rollback == "shadow"
    assert "not contiguous" in caplog.text


# ------------------------------------------------------------------ the facade


def test_a_hybrid_says_what_was_measured(tiny: Model, caplog: pytest.LogCaptureFixture, steady: None):
    with caplog.at_level("INFO", "pyspec"), Llama(tiny, n_ctx=256, n_threads=1) as llm:
        assert set(llm.rollback_costs) >= {"shadow", "checkpoint-host"}
        assert "rejected round: shadow 3 ms, checkpoint-host 2 ms" in llm.rollback_reason
        assert llm.rollback == "checkpoint-host"
        out = llm.generate("x = 1\n", max_tokens=2)
    assert out.stats.rollback_reason == llm.rollback_reason
    assert llm.rollback_reason in caplog.text


def test_what_is_asked_for_is_not_measured(tiny: Model, own_cache: Path):
    with Llama(tiny, n_ctx=256, n_threads=1, rollback="checkpoint-host") as llm:
        assert (llm.rollback, llm.rollback_costs) == ("checkpoint-host", {})
    assert not own_cache.exists()


def test_a_probe_after_measuring_finds_the_same(tiny: Model):
    context = context_of(tiny)
    before = probe(context)
    cached_costs(context, HYBRID, spare=1)
    assert probe(context) == before
