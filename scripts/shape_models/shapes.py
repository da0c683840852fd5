"""The shapes: layers, widths, heads and vocabulary of released hybrid models, each with the source of its numbers.

Owns these numbers and what follows from them by arithmetic (the size of the recurrent state); leaves names of tensors
to `tensors`. A config.json was read as fine-tunes and ports of the model quote it; the sums of parameters agree with
the published ones. llama.cpp also loads a shape with other `layers`, `n_ff` and `n_vocab`: tests shrink it so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["SHAPES", "GatedDelta", "Layer", "Mamba2", "Shape", "ShortConv", "Value"]

Layer = Literal["recurrent", "attention", "both"]
Value = bool | int | float | str | tuple[int, ...] | tuple[bool, ...]

_BYTES_F32 = 4


@dataclass(frozen=True, slots=True)
class GatedDelta:
    """Gated delta net: one matrix [head_dim, head_dim] per value head, and a convolution over q, k and v."""

    n_head_k: int
    n_head_v: int
    head_dim: int
    d_conv: int

    @property
    def d_inner(self) -> int:
        """Width of the values."""
        return self.n_head_v * self.head_dim

    @property
    def d_mixed(self) -> int:
        """Channels of the convolution: q, k and v side by side."""
        return self.d_inner + 2 * self.n_head_k * self.head_dim

    def n_state(self, n_embd: int) -> int:
        """Numbers kept per sequence and layer."""
        return self.d_inner * self.head_dim + (self.d_conv - 1) * self.d_mixed


@dataclass(frozen=True, slots=True)
class Mamba2:
    """Mamba-2: `d_state` numbers per inner channel, and a convolution over x, B and C."""

    d_inner: int
    n_head: int
    d_state: int
    n_group: int
    d_conv: int
    has_norm: bool

    @property
    def d_mixed(self) -> int:
        """Channels of the convolution: x, B and C side by side."""
        return self.d_inner + 2 * self.n_group * self.d_state

    def n_state(self, n_embd: int) -> int:
        """Numbers kept per sequence and layer."""
        return self.d_inner * self.d_state + (self.d_conv - 1) * self.d_mixed


@dataclass(frozen=True, slots=True)
class ShortConv:
    """Gated short convolution over the model's own width; keeps the last `l_cache - 1` inputs."""

    l_cache: int

    def n_state(self, n_embd: int) -> int:
        """Numbers kept per sequence and layer."""
        return (self.l_cache - 1) * n_embd


@dataclass(frozen=True, slots=True)
class Shape:
    """One model, without its weights and its text.

    Attributes:
        name: how the command line calls it.
        architecture: llama.cpp's name.
        source: where the numbers come from.
        layers: what each layer mixes with; "both" is attention and recurrence side by side.
        tied: the output matrix is the embedding matrix.
        gated_attention: the query projection also gives a gate of the same width.
        qk_norm: queries and keys are normalised per head.
        embedding_scale: embeddings are multiplied by it.
        residual_scale: what a layer adds to the residual is multiplied by it.
        logit_scale: logits are divided by it.
        extra: metadata that only this architecture has, without the architecture's prefix.
    """

    name: str
    architecture: str
    source: str
    n_vocab: int
    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    head_dim: int
    n_ctx_train: int
    rms_eps: float
    rope_freq_base: float
    recurrence: GatedDelta | Mamba2 | ShortConv
    layers: tuple[Layer, ...]
    tied: bool
    gated_attention: bool = False
    qk_norm: bool = False
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    extra: Mapping[str, Value] = field(default_factory=dict)

    @property
    def state_bytes(self) -> int:
        """Bytes of one sequence's recurrent state in F32, over all layers; attention is not in it."""
        n_recurrent = sum(layer != "attention" for layer in self.layers)
        return n_recurrent * self.recurrence.n_state(self.n_embd) * _BYTES_F32


def _layers(n: int, attention: set[int]) -> tuple[Layer, ...]:
    return tuple("attention" if i in attention else "recurrent" for i in range(n))


_QWEN = Shape(
    name="qwen3.5-0.8b",
    architecture="qwen35",
    # Of the GGUF's 25 blocks the last predicts one token further; llama.cpp skips it unless asked, so it is left out.
    source="metadata of a published qwen35 Q8_0 GGUF of 0.8B; Qwen/Qwen3.5-0.8B config.json (text_config) for the "
    "vocabulary and tied embeddings",
    n_vocab=248320,
    n_embd=1024,
    n_ff=3584,
    n_head=8,
    n_head_kv=2,
    head_dim=256,
    n_ctx_train=262144,
    rms_eps=1e-6,
    rope_freq_base=1e7,
    recurrence=GatedDelta(n_head_k=16, n_head_v=16, head_dim=128, d_conv=4),
    layers=_layers(24, {3, 7, 11, 15, 19, 23}),
    tied=True,
    gated_attention=True,
    qk_norm=True,
    extra={"full_attention_interval": 4, "rope.dimension_count": 64, "rope.dimension_sections": (11, 11, 10, 0)},
)

_LFM2 = Shape(
    name="lfm2-1.2b",
    architecture="lfm2",
    # block_ff_dim 12288 with block_auto_adjust_ff_dim means 2/3 of it, rounded up to 256: 8192.
    source="LiquidAI/LFM2-1.2B config.json; metadata of a published lfm2 GGUF of 1.2B",
    n_vocab=65536,
    n_embd=2048,
    n_ff=8192,
    n_head=32,
    n_head_kv=8,
    head_dim=64,
    n_ctx_train=128000,
    rms_eps=1e-5,
    rope_freq_base=1e6,
    recurrence=ShortConv(l_cache=3),
    layers=_layers(16, {2, 5, 8, 10, 12, 14}),
    tied=True,
    qk_norm=True,
)

_FALCON = Shape(
    name="falcon-h1-0.5b",
    architecture="falcon-h1",
    # The multipliers of config.json are folded into the weights when a GGUF is made, so its metadata has none.
    source="tiiuae/Falcon-H1-0.5B-Instruct config.json; transformers' table of the Falcon-H1 models",
    n_vocab=32784,
    n_embd=1024,
    n_ff=2048,
    n_head=8,
    n_head_kv=2,
    head_dim=64,
    n_ctx_train=16384,
    rms_eps=1e-5,
    rope_freq_base=1e11,
    recurrence=Mamba2(d_inner=1536, n_head=24, d_state=128, n_group=1, d_conv=4, has_norm=False),
    layers=("both",) * 36,
    tied=False,
)

_GRANITE = Shape(
    name="granite-4.0-h-350m",
    architecture="granitehybrid",
    source="ibm-granite/granite-4.0-h-350m config.json; metadata of a published granitehybrid GGUF of 350m-h",
    n_vocab=100352,
    n_embd=768,
    n_ff=2048,
    n_head=12,
    n_head_kv=4,
    head_dim=64,
    n_ctx_train=1048576,
    rms_eps=1e-5,
    rope_freq_base=1e4,
    recurrence=Mamba2(d_inner=1536, n_head=48, d_state=128, n_group=1, d_conv=4, has_norm=True),
    layers=_layers(32, {10, 13, 17, 27}),
    tied=True,
    embedding_scale=12.0,
    residual_scale=0.246,
    logit_scale=3.0,
    extra={
        "attention.scale": 0.015625,
        "rope.dimension_count": 64,
        # llama.cpp reads this as "there are positions": this model has none.
        "rope.scaling.finetuned": False,
        "expert_count": 0,
        "expert_used_count": 0,
        "expert_shared_feed_forward_length": 2048,
    },
)

SHAPES: Mapping[str, Shape] = {shape.name: shape for shape in (_QWEN, _LFM2, _FALCON, _GRANITE)}
