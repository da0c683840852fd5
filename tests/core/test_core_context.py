"""Laws of making a context: defaults, values read back, and every refusal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pyspec import errors
from pyspec._core import Context, Model, State

Make = Callable[..., Context]


def test_context_reads_back_its_settings(make_context: Make) -> None:
    context = make_context(n_ctx=300, n_seq_max=3, n_outputs_max=8)
    assert (context.n_ctx, context.n_ctx_seq, context.n_batch, context.n_ubatch) == (512, 512, 64, 32)
    assert (context.n_seq_max, context.n_outputs_max, context.kv_unified) == (3, 8, True)
    assert (context.n_threads, context.n_threads_batch, context.n_outputs) == (1, 1, 0)


def test_one_sequence_needs_no_unified_cache(make_context: Make) -> None:
    assert not make_context(n_seq_max=1).kv_unified


def test_separate_caches_share_the_context_out(make_context: Make) -> None:
    context = make_context(n_ctx=1024, n_seq_max=2, kv_unified=False)
    assert (context.n_ctx, context.n_ctx_seq) == (1024, 512)


def test_default_batch_and_threads_are_those_of_the_machine(tiny: Model) -> None:
    context = Context(tiny, n_ctx=4096)
    assert (context.n_batch, context.n_ubatch, context.n_outputs_max) == (2048, 512, 2048)
    assert context.n_threads >= 1


def test_n_rs_seq_is_read_back_as_llama_cpp_clamps_it(arch_context: Make) -> None:
    assert arch_context("qwen35", n_rs_seq=4).n_rs_seq == 4
    assert arch_context("mamba", n_rs_seq=4).n_rs_seq == 0


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"n_ctx": -1}, "n_ctx"),
        ({"n_ctx": 1 << 31}, "n_ctx"),
        ({"n_batch": -1}, "n_batch"),
        ({"n_ubatch": -5}, "n_ubatch"),
        ({"n_seq_max": 0}, "n_seq_max"),
        ({"n_seq_max": 257}, "n_seq_max"),
        ({"n_rs_seq": -1}, "n_rs_seq"),
        ({"n_rs_seq": 40}, "n_rs_seq"),
        ({"n_rs_seq": 13}, "n_rs_seq"),
        ({"n_outputs_max": -1}, "n_outputs_max"),
        ({"n_outputs_max": 2, "n_seq_max": 3}, "n_outputs_max"),
        ({"n_threads": -1}, "n_threads"),
        ({"n_threads": 513}, "n_threads"),
        ({"n_threads_batch": 513}, "n_threads_batch"),
        ({"type_k": "q9_9"}, "type_k"),
        ({"type_v": "float16"}, "type_v"),
        ({"type_v": "q8_0", "flash_attn": False}, "type_v"),
        ({"rope_scaling": "cubic"}, "rope_scaling"),
        ({"rope_freq_base": -1.0}, "rope_freq_base"),
        ({"rope_freq_scale": float("nan")}, "rope_freq_scale"),
        ({"yarn_ext_factor": float("inf")}, "yarn_ext_factor"),
        ({"yarn_orig_ctx": -1}, "yarn_orig_ctx"),
    ],
    ids=str,
)
def test_setting_out_of_range_is_refused(make_context: Make, options: dict[str, object], name: str) -> None:
    with pytest.raises(errors.InvalidValueError) as caught:
        make_context(**options)
    assert caught.value.name == name


def test_blocks_that_do_not_divide_the_heads_are_refused(arch_model: Callable[[str], Path]) -> None:
    model = Model(arch_model("llama"))
    head = model.n_embd // model.n_head
    assert head % 32 == 0, "the random llama has heads that 32 divides"
    for flash_attn in (None, True, False):
        Context(model, n_ctx=64, type_k="q8_0", flash_attn=flash_attn)


@pytest.mark.parametrize("n_batch", [1, 2])
@pytest.mark.parametrize("n_seq_max", [1, 4])
def test_smallest_batches_decode(make_context: Make, n_batch: int, n_seq_max: int) -> None:
    context = make_context(n_batch=n_batch, n_seq_max=n_seq_max)
    assert context.n_outputs_max == max(n_batch, n_seq_max)
    for pos in range(3):
        for seq_id in range(n_seq_max):
            context.decode([5], pos=pos, seq_id=seq_id)
    assert [context.seq_pos_max(s) for s in range(n_seq_max)] == [2] * n_seq_max


@pytest.mark.parametrize(
    "options",
    [{"n_batch": 0, "n_ubatch": 0}, {"n_ubatch": 100_000}, {"n_threads": 0, "n_threads_batch": 0}],
    ids=str,
)
def test_zero_and_too_large_mean_the_default(make_context: Make, options: dict[str, object]) -> None:
    context = make_context(**options)
    assert 1 <= context.n_ubatch <= context.n_batch
    assert context.n_threads >= 1


@pytest.mark.parametrize("kv_type", ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"])
def test_every_cache_type_decodes(make_context: Make, kv_type: str) -> None:
    context = make_context(type_k=kv_type, type_v=kv_type)
    context.decode([1, 2, 3, 4], pos=0)
    assert context.argmax(0) >= 0


@pytest.mark.parametrize("rope_scaling", [None, "none", "linear", "yarn", "longrope"])
def test_every_rope_scaling_decodes(make_context: Make, rope_scaling: str | None) -> None:
    context = make_context(rope_scaling=rope_scaling, rope_freq_scale=0.5, rope_freq_base=10_000.0)
    context.decode([1, 2, 3, 4], pos=0)
    assert context.argmax(0) >= 0


@pytest.mark.parametrize("name", ["llada", "dream", "rnd1"])
def test_model_that_predicts_no_next_token_is_refused(arch_context: Make, name: str) -> None:
    with pytest.raises(errors.UnsupportedError):
        arch_context(name)


def test_threads_can_be_changed(make_context: Make) -> None:
    context = make_context()
    context.set_n_threads(2, 1)
    assert (context.n_threads, context.n_threads_batch) == (2, 1)
    for bad in (-1, 513):
        with pytest.raises(errors.InvalidValueError):
            context.set_n_threads(bad, 1)
        with pytest.raises(errors.InvalidValueError):
            context.set_n_threads(1, bad)
    assert (context.n_threads, context.n_threads_batch) == (2, 1)


def test_counters_count_tokens_and_restart(make_context: Make) -> None:
    context = make_context()
    assert context.perf()["n_prompt"] == 0
    context.decode([1, 2, 3, 4, 5], pos=0)
    context.decode([6], pos=5)
    perf = context.perf()
    assert (perf["n_prompt"], perf["n_eval"]) == (5, 1)
    assert perf["prompt_s"] > 0
    context.perf_reset()
    assert (context.perf()["n_prompt"], context.perf()["n_eval"]) == (0, 0)


def test_closed_context_refuses(make_context: Make) -> None:
    context = make_context()
    context.decode([1], pos=0)
    context.close()
    context.close()
    assert context.closed
    uses: list[Callable[[], object]] = [
        lambda: context.decode([1], pos=1),
        lambda: context.logits(),
        lambda: context.argmax_rows(),
        lambda: context.clear(),
        lambda: context.seq_pos_max(0),
        lambda: context.can_shift,
        lambda: context.n_threads,
        lambda: context.perf(),
    ]
    for use in uses:
        with pytest.raises(errors.ClosedError, match="context"):
            use()


def test_none_in_place_of_an_object_is_a_type_error(make_context: Make) -> None:
    context = make_context()
    uses: list[Callable[[], object]] = [
        lambda: Context(None),  # type: ignore[arg-type]
        lambda: context.state_save(0, None),  # type: ignore[arg-type]
        lambda: context.state_restore(0, None),  # type: ignore[arg-type]
        lambda: context.model.vocab.differences(None),  # type: ignore[arg-type]
        lambda: Context.clear(None),  # type: ignore[arg-type]
        lambda: Context.decode(None, [1], pos=0),  # type: ignore[arg-type]
        lambda: Context.logits(None),  # type: ignore[arg-type]
        lambda: State.view(None),  # type: ignore[arg-type]
        lambda: Model.close(None),  # type: ignore[arg-type]
    ]
    for use in uses:
        with pytest.raises(TypeError):
            use()
