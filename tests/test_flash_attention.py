"""Where nobody says how attention is computed, a CPU does it so that a token's logits are the same at every width."""

import logging
import platform
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import pyspec
from pyspec import _core
from pyspec.flash_attention import SCORES_MAX, flash_attention
from pyspec.widths import measure_widths

has_tiles = platform.machine().lower() in ("x86_64", "amd64")


def model_of(n_head: int = 8, n_ctx_train: int = 4096, n_gpu_layers: int = -1) -> SimpleNamespace:
    heads = {"llama.attention.head_count": str(n_head)} if n_head else {}  # a count for each layer is no text
    return SimpleNamespace(
        architecture="llama", metadata=heads, n_ctx_train=n_ctx_train, n_gpu_layers=n_gpu_layers, n_head=n_head
    )


@pytest.fixture
def on_a_cpu(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pyspec.flash_attention.has_device", lambda: False)


@pytest.mark.usefixtures("on_a_cpu")
@pytest.mark.parametrize("wanted", [True, False])
def test_what_the_caller_says_is_done(wanted: bool):
    assert flash_attention(model_of(), {"flash_attn": wanted}) is wanted


@pytest.mark.usefixtures("on_a_cpu")
@pytest.mark.parametrize("options", [{}, {"flash_attn": None}, {"n_ctx": 8192, "type_k": "q8_0", "type_v": "f32"}])
def test_a_cpu_goes_without(options: dict):
    assert flash_attention(model_of(), options) is False


@pytest.mark.usefixtures("on_a_cpu")
@pytest.mark.parametrize(
    ("model", "options"), [(model_of(), {"type_v": "q8_0"}), (model_of(n_head=0), {})], ids=["quantised", "unknown"]
)
def test_quantised_values_and_unknown_heads_are_left_to_llama_cpp(model: SimpleNamespace, options: dict):
    assert flash_attention(model, options) is None


@pytest.mark.usefixtures("on_a_cpu")
@pytest.mark.parametrize("trained", [False, True])
def test_scores_beyond_the_limit_are_left_to_llama_cpp(trained: bool):
    n_ctx = SCORES_MAX // 6 // 512 // 16
    for n, expected in ((n_ctx, False), (n_ctx + 1, None)):
        model = model_of(n_head=16, n_ctx_train=n if trained else 1)
        assert flash_attention(model, {"n_ctx": 0 if trained else n, "n_ubatch": 512}) is expected
    for smaller in ({"n_ubatch": 256}, {"n_batch": 256}):
        assert flash_attention(model_of(n_head=16), {"n_ctx": 2 * n_ctx} | smaller) is False


@pytest.mark.parametrize(("n_gpu_layers", "expected"), [(-1, None), (1, None), (0, False)])
def test_layers_on_a_gpu_are_left_to_llama_cpp(monkeypatch: pytest.MonkeyPatch, n_gpu_layers: int, expected):
    monkeypatch.setattr("pyspec.flash_attention.has_device", lambda: True)
    assert flash_attention(model_of(n_gpu_layers=n_gpu_layers), {}) is expected


def test_a_model_knows_how_many_layers_were_wanted_on_a_gpu(tiny_target_path: Path):
    assert [_core.Model(tiny_target_path, n_gpu_layers=n).n_gpu_layers for n in (-1, 0, 3)] == [-1, 0, 3]


def test_a_hybrid_without_it_gives_no_warning(tiny_target_path: Path, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO, "pyspec.llama"), pyspec.Llama(tiny_target_path, n_ctx=256, verbose=True):
        pass
    assert [r.levelname for r in caplog.records if "padding V cache" in r.getMessage()] == ["INFO"]
    assert "WARNING" not in {record.levelname for record in caplog.records}


@pytest.mark.parametrize("type_v", ["f16", "q8_0"])
def test_a_model_generates_with_either_cache(smollm2_path: Path, type_v: str):
    with pyspec.Llama(smollm2_path, n_ctx=256, n_threads=1, context={"type_v": type_v}) as llm:
        assert len(llm.generate("a b c a b c", max_tokens=8, ignore_eos=True).tokens) == 8


@pytest.mark.skipif(not has_tiles, reason="one column takes a tile's sums on x86 only")
@pytest.mark.parametrize("n_context", [0, 100, 600])
@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize("cache", ["f16", "f32"])
def test_a_tokens_logits_are_the_same_to_the_bit_alone_and_beside_others(
    tiny_target_path: Path, n_context: int, n_threads: int, cache: str
):
    model = _core.Model(tiny_target_path)
    context = _core.Context(
        model, n_ctx=1024, flash_attn=False, n_threads=n_threads, n_threads_batch=n_threads, type_k=cache, type_v=cache
    )
    reports = measure_widths(context, n_context=n_context, widths=[1, 3, 8, 17, 33], n_tokens=40)
    assert [(report.width, report.max_difference) for report in reports if not report.equal] == []


@pytest.mark.skipif(not has_tiles, reason="one column takes a tile's sums on x86 only")
def test_float_weights_give_a_token_the_same_logits_alone(arch_model: Callable[[str], Path]):
    model = _core.Model(arch_model("llama"))
    context = _core.Context(model, n_ctx=128, flash_attn=False, n_threads=2, n_threads_batch=2)
    reports = measure_widths(context, n_context=16, widths=[1, 3, 8, 33], n_tokens=40)
    assert [(report.width, report.max_difference) for report in reports if not report.equal] == []


@pytest.mark.skipif(not has_tiles, reason="one column takes a tile's sums on x86 only")
def test_a_plain_run_and_drafts_say_the_same_to_the_bit_by_default(smollm2_path: Path):
    """Beyond 512 tokens of context and with two threads, where flash attention sums a single token in parts."""
    prompt = np.random.default_rng(1).integers(300, 40_000, 300).tolist()
    with pyspec.Llama(smollm2_path, n_ctx=1024, n_threads=2, budget="off", rollback="trim") as llm:
        options = {"max_tokens": 24, "ignore_eos": True, "logprobs": 2}
        plain = llm.generate(prompt, spec=None, **options)
        fast = llm.generate([*prompt, *plain.tokens, *prompt], spec=None, **options)
        again = llm.generate([*prompt, *plain.tokens, *prompt], spec="suffix", **options)
        assert again.stats.n_drafted > 0
        assert again.tokens == fast.tokens
        assert [one.logprob for one in again.logprobs] == [one.logprob for one in fast.logprobs]


@pytest.mark.parametrize("wanted", [None, True, False])
def test_an_engine_tells_what_was_chosen(tiny_target_path: Path, wanted: bool | None):
    with pyspec.Engine(tiny_target_path, n_parallel=2, n_ctx=256, n_threads=1, flash_attn=wanted) as engine:
        assert engine.flash_attn is (wanted if wanted is not None else flash_attention(engine.model, {"n_ctx": 512}))
