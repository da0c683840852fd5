"""A shape as a GGUF file describes it: its metadata, and its tensors with the range of their random numbers.

Owns names (as llama.cpp's `src/llama-arch.cpp` and `src/models/*.cpp` read them), types (as its `src/llama-quant.cpp`
gives them in Q8_0) and ranges; leaves the numbers themselves to `weights`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from shape_models.shapes import GatedDelta, Mamba2, Shape, ShortConv, Value

__all__ = ["Normal", "Tensor", "Uniform", "metadata", "n_parameters", "tensors"]

# The standard deviation of a row of logits, about that of a trained model.
_LOGIT_STD = 2.0
# By how many of them a token's own logit stands out, which with tied embeddings is sqrt(n_embd) times the part that the
# token's embedding has in the last residual. Were it many, every greedy text would be one token without end.
_OWN_LOGIT_BIAS = 1.0
# About the rms of what a layer's last projection reads.
_MIXED_RMS = 0.5

# As Mamba-2 is initialised: decay rates of 1 to 16 per unit of time and steps of 1e-3 to 1e-1, whose softplus inverse
# is about the logarithm. A state then forgets within 1 to 1000 tokens, and exp(rate * step) stays below 1.
_DECAY = (-16.0, -1.0)
_STEP_BIAS = (math.log(1e-3), math.log(1e-1))


@dataclass(frozen=True, slots=True)
class Normal:
    """A Q8_0 matrix of random numbers of this standard deviation."""

    std: float


@dataclass(frozen=True, slots=True)
class Uniform:
    """F32 numbers, uniform in [low, high)."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor; `shape` is in NumPy's order: [n_out, n_in] for a matrix."""

    name: str
    shape: tuple[int, ...]
    fill: Normal | Uniform


_NORM = Uniform(0.8, 1.2)
_FFN_NORM = {
    "qwen35": "post_attention_norm.weight",
    "lfm2": "ffn_norm.weight",
    "falcon-h1": "ffn_norm",  # without "weight": so converted files have it, and so llama.cpp reads it
    "granitehybrid": "ffn_norm.weight",
}


def metadata(shape: Shape) -> dict[str, Value]:
    """Keys and values of the file, without the architecture, which the writer adds."""
    kv_heads: Value = shape.n_head_kv
    if shape.architecture in ("lfm2", "granitehybrid"):
        # A layer of these is recurrent where it has no key and value heads.
        kv_heads = tuple(0 if layer == "recurrent" else shape.n_head_kv for layer in shape.layers)
    own: dict[str, Value] = {
        "vocab_size": shape.n_vocab,
        "context_length": shape.n_ctx_train,
        "embedding_length": shape.n_embd,
        "block_count": len(shape.layers),
        "feed_forward_length": shape.n_ff,
        "attention.head_count": shape.n_head,
        "attention.head_count_kv": kv_heads,
        "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim,
        "attention.layer_norm_rms_epsilon": shape.rms_eps,
        "rope.freq_base": shape.rope_freq_base,
        **_recurrence_metadata(shape),
        **_scale_metadata(shape),
        **shape.extra,
    }
    general: dict[str, Value] = {
        "general.name": f"{shape.name} with random weights",
        "general.description": "The true shape of a released model, filled with random numbers: for measuring, not "
        "for use.",
        "tokenizer.ggml.model": "none",
    }
    return general | {f"{shape.architecture}.{key}": value for key, value in own.items()}


def _scale_metadata(shape: Shape) -> dict[str, Value]:
    """Only the scales that the model has: converted files of other models have no such keys."""
    scales = {name: getattr(shape, name) for name in ("embedding_scale", "residual_scale", "logit_scale")}
    return {name: scale for name, scale in scales.items() if scale != 1.0}


def _recurrence_metadata(shape: Shape) -> dict[str, Value]:
    match shape.recurrence:
        case ShortConv(l_cache):
            return {"shortconv.l_cache": l_cache}
        case Mamba2() as own:
            return _ssm(own.d_conv, own.d_inner, own.d_state, own.n_head, own.n_group)
        case GatedDelta() as own:
            recurrent = tuple(layer == "recurrent" for layer in shape.layers)
            ssm = _ssm(own.d_conv, own.d_inner, own.head_dim, own.n_head_v, own.n_head_k)
            return ssm | {"attention.recurrent_layers": recurrent}


def _ssm(conv_kernel: int, inner_size: int, state_size: int, time_step_rank: int, group_count: int) -> dict[str, Value]:
    return {
        "ssm.conv_kernel": conv_kernel,
        "ssm.inner_size": inner_size,
        "ssm.state_size": state_size,
        "ssm.time_step_rank": time_step_rank,
        "ssm.group_count": group_count,
    }


def n_parameters(shape: Shape) -> int:
    """Numbers in all tensors; a tied output counts once."""
    return sum(math.prod(tensor.shape) for tensor in tensors(shape))


def tensors(shape: Shape) -> Iterator[Tensor]:
    """All tensors of the file, in its order."""
    output_std = _LOGIT_STD * shape.logit_scale / math.sqrt(shape.n_embd)
    yield Tensor("token_embd.weight", (shape.n_vocab, shape.n_embd), Normal(output_std))
    yield _norm("token_embd_norm" if shape.architecture == "lfm2" else "output_norm", shape.n_embd)
    if not shape.tied:
        yield Tensor("output.weight", (shape.n_vocab, shape.n_embd), Normal(output_std))
    gain = _residual_gain(shape, output_std)
    for i, layer in enumerate(shape.layers):
        block = f"blk.{i}"
        yield _norm(f"{block}.attn_norm", shape.n_embd)
        if layer != "attention":
            yield from _recurrent(shape, block, gain)
        if layer != "recurrent":
            yield from _attention(shape, block, gain)
        yield Tensor(f"{block}.{_FFN_NORM[shape.architecture]}", (shape.n_embd,), _NORM)
        yield _matrix(f"{block}.ffn_gate", shape.n_ff, shape.n_embd)
        yield _matrix(f"{block}.ffn_up", shape.n_ff, shape.n_embd)
        yield _matrix(f"{block}.ffn_down", shape.n_embd, shape.n_ff, gain)


def _residual_gain(shape: Shape, embedding_std: float) -> float:
    """The gain of each layer's last projections that gives the last residual its `_OWN_LOGIT_BIAS`."""
    ratio = math.sqrt(shape.n_embd) / _OWN_LOGIT_BIAS
    n_additions = 2 * len(shape.layers)
    added = _MIXED_RMS * math.sqrt(n_additions) * shape.residual_scale
    return ratio * embedding_std * shape.embedding_scale / added


def _norm(name: str, *shape: int) -> Tensor:
    return Tensor(f"{name}.weight", shape, _NORM)


def _matrix(name: str, n_out: int, n_in: int, gain: float = 1.0) -> Tensor:
    """A projection that turns inputs of rms 1 into outputs of rms `gain`."""
    return Tensor(f"{name}.weight", (n_out, n_in), Normal(gain / math.sqrt(n_in)))


def _conv(name: str, n_channel: int, n_tap: int) -> Tensor:
    bound = math.sqrt(3 / n_tap)  # inputs of rms 1 give outputs of rms 1
    return Tensor(f"{name}.weight", (n_channel, n_tap), Uniform(-bound, bound))


def _attention(shape: Shape, block: str, gain: float) -> Iterator[Tensor]:
    n_q, n_kv = shape.n_head * shape.head_dim, shape.n_head_kv * shape.head_dim
    yield _matrix(f"{block}.attn_q", n_q * (2 if shape.gated_attention else 1), shape.n_embd)
    yield _matrix(f"{block}.attn_k", n_kv, shape.n_embd)
    yield _matrix(f"{block}.attn_v", n_kv, shape.n_embd)
    yield _matrix(f"{block}.attn_output", shape.n_embd, n_q, gain)
    if shape.qk_norm:
        yield _norm(f"{block}.attn_q_norm", shape.head_dim)
        yield _norm(f"{block}.attn_k_norm", shape.head_dim)


def _recurrent(shape: Shape, block: str, gain: float) -> Iterator[Tensor]:
    match shape.recurrence:
        case ShortConv(l_cache):
            yield _matrix(f"{block}.shortconv.in_proj", 3 * shape.n_embd, shape.n_embd)
            yield _conv(f"{block}.shortconv.conv", shape.n_embd, l_cache)
            yield _matrix(f"{block}.shortconv.out_proj", shape.n_embd, shape.n_embd, gain)
        case Mamba2() as own:
            yield from _mamba2(own, shape.n_embd, block, gain)
        case GatedDelta() as own:
            yield from _gated_delta(own, shape.n_embd, block, gain)


def _gated_delta(own: GatedDelta, n_embd: int, block: str, gain: float) -> Iterator[Tensor]:
    yield _matrix(f"{block}.attn_qkv", own.d_mixed, n_embd)
    yield _matrix(f"{block}.attn_gate", own.d_inner, n_embd)
    yield _matrix(f"{block}.ssm_alpha", own.n_head_v, n_embd)
    yield _matrix(f"{block}.ssm_beta", own.n_head_v, n_embd)
    yield _conv(f"{block}.ssm_conv1d", own.d_mixed, own.d_conv)
    yield Tensor(f"{block}.ssm_dt.bias", (own.n_head_v,), Uniform(*_STEP_BIAS))
    yield Tensor(f"{block}.ssm_a", (own.n_head_v,), Uniform(*_DECAY))
    yield _norm(f"{block}.ssm_norm", own.head_dim)
    yield _matrix(f"{block}.ssm_out", n_embd, own.d_inner, gain)


def _mamba2(own: Mamba2, n_embd: int, block: str, gain: float) -> Iterator[Tensor]:
    yield _matrix(f"{block}.ssm_in", own.d_inner + own.d_mixed + own.n_head, n_embd)
    yield _conv(f"{block}.ssm_conv1d", own.d_mixed, own.d_conv)
    yield Tensor(f"{block}.ssm_conv1d.bias", (own.d_mixed,), Uniform(-0.1, 0.1))
    yield Tensor(f"{block}.ssm_dt.bias", (own.n_head,), Uniform(*_STEP_BIAS))
    yield Tensor(f"{block}.ssm_a", (own.n_head, 1), Uniform(*_DECAY))
    yield Tensor(f"{block}.ssm_d", (own.n_head, 1), Uniform(0.8, 1.2))
    if own.has_norm:
        yield _norm(f"{block}.ssm_norm", own.n_group, own.d_inner // own.n_group)
    yield _matrix(f"{block}.ssm_out", n_embd, own.d_inner, gain)
