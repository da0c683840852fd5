"""The laws of scripts/conformance.py on a spread of random models, one of each way in which a memory is built.

Text as plain decoding says it, state bytes and logits as sequential decoding leaves them, every strategy that the
memory can do and no other, two interleaved sequences. Each model runs in a process of its own with a time limit, with
one pattern of drafts; the script itself takes more patterns and every architecture.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
LIMIT_S = 120.0
_CHECK = """
import json, pathlib, sys
sys.path.insert(0, sys.argv[1])
import conformance
conformance.PATTERN_NAMES = ("mixed",)
print(json.dumps(conformance.check(pathlib.Path(sys.argv[2]))))
"""

CUT = {"trim", "fork", "checkpoint-host"}
SHARE = {"shadow", "fork", "checkpoint-host"}
DEVICE = SHARE | {"checkpoint-device"}
SNAPSHOTS = {"snapshot", "snapshot+shadow"}
#: What the memory of each architecture can do.
SPREAD = {
    "llama": ("attention", CUT),
    "deepseek2": ("attention", CUT),  # latent attention
    "gemma3": ("sliding_window", CUT),
    "gpt-oss": ("sliding_window", CUT),
    "mamba": ("recurrent", DEVICE),
    "mamba2": ("recurrent", DEVICE),
    "rwkv6": ("recurrent", DEVICE),
    "rwkv7": ("recurrent", DEVICE),
    "lfm2": ("hybrid", SHARE | SNAPSHOTS),  # with a sliding window beside the state
    "qwen35": ("hybrid", DEVICE | SNAPSHOTS),
    "qwen3next": ("hybrid", DEVICE),
    "falcon-h1": ("hybrid", DEVICE),
    "granitehybrid": ("hybrid", DEVICE),
    "nemotron_h": ("hybrid", DEVICE | SNAPSHOTS),
    "jamba": ("hybrid", DEVICE),
    "plamo2": ("hybrid", DEVICE),
    "minimax-01": ("hybrid", DEVICE),
    "kimi-linear": ("hybrid", DEVICE),
    "bailingmoe3": ("hybrid", DEVICE | SNAPSHOTS),
    "deepseek4": ("hybrid", {"checkpoint-host", "snapshot"}),  # compressed blocks
}

#: llama.cpp mixes up several sequences in one batch.
ONE_A_BATCH = ("plamo2",)


@pytest.mark.parametrize("name", SPREAD)
def test_speculation_keeps_text_and_memory_of_plain_decoding(
    arch_model: Callable[[str], Path], isolated_script: Callable[..., str], name: str
) -> None:
    printed = isolated_script(_CHECK, str(SCRIPTS), str(arch_model(name)), timeout_s=LIMIT_S)
    found = json.loads(printed.splitlines()[-1])
    assert "refused" not in found
    able = {strategy for strategy, answer in found["strategies"].items() if answer == "yes"}
    assert (found["memory"], able, found["two"]) == (*SPREAD[name], "yes")
    assert found["batch"] == ("-" if name in ONE_A_BATCH else "yes")
