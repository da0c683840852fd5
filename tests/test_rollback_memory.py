"""What strategies hold in memory: as they say, and as llama.cpp says of its buffers."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pyspec._core import Context, Model, flush_log, set_log_level
from pyspec.memory import Capabilities, probe
from pyspec.rollback import extra_bytes


def can(kind: str = "hybrid", n_snapshots: int = 0) -> Capabilities:
    return Capabilities(kind, False, n_snapshots, True, True, 100, True)


@pytest.mark.parametrize("arch", ["qwen35", "falcon-h1", "jamba", "mamba2"])
def test_a_shadow_holds_one_state_more_and_no_kv_cell(
    arch: str, arch_model: Callable[[str], Path], caplog: pytest.LogCaptureFixture
):
    model = Model(arch_model(arch))
    state, kv = [], []
    for n_seq_max in (1, 2):
        caplog.clear()
        set_log_level(logging.INFO)
        with caplog.at_level("INFO", "pyspec.llama"):
            context = Context(model, n_ctx=1024, n_threads=1, n_threads_batch=1, n_seq_max=n_seq_max, kv_unified=True)
            flush_log()
        set_log_level(logging.WARNING)
        state += [float(n) for n in re.findall(r"RS buffer size = +([0-9.]+) MiB", caplog.text)]
        kv.append(re.findall(r"KV buffer size = +([0-9.]+) MiB", caplog.text))
    extra = extra_bytes("shadow", probe(context)) / 2**20
    assert extra > 0.02, "large enough to be seen in what llama.cpp says of its buffers"
    assert state[1] - state[0] == pytest.approx(extra, abs=0.011)
    assert kv[0] == kv[1]
    assert bool(kv[0]) == (arch != "mamba2")


@pytest.mark.parametrize(
    ("name", "n_states"),
    [
        ("trim", 0),
        ("snapshot", 3),
        ("shadow", 1),
        ("snapshot+shadow", 7),
        ("fork", 1),
        ("checkpoint-host", 1),
        ("checkpoint-device", 1),
    ],
)
def test_what_strategies_hold_is_counted_in_states(name: str, n_states: int):
    assert extra_bytes(name, can(n_snapshots=3)) == 100 * n_states


@pytest.mark.parametrize("kind", ["attention", "sliding_window"])
def test_a_fork_of_attention_holds_nothing(kind: str):
    assert extra_bytes("fork", can(kind=kind)) == 0
