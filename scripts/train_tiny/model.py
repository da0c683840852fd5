"""LFM2 in PyTorch: gated short convolutions and grouped-query attention.

Shapes, norms and rotary embedding match llama.cpp's "lfm2" graph, so that
the exported weights give the same logits there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor


@dataclass
class Config:
    """Shape of one model.

    Attributes:
        layers: One letter a block: C for a short convolution, A for attention.
        d_model: Width of the residual stream.
        d_ff: Width of the gated feed-forward layer.
        n_head: Number of query heads.
        n_kv: Number of key and value heads.
        vocab: Number of tokens.
        l_cache: Width of the convolution kernel.
        rope_base: Base of the rotary frequencies.
        qk_gain: Initial weight of the query and key norms.
        eps: Epsilon of the RMS norms.
        context: Longest context that the model is exported for.
    """

    layers: str
    d_model: int
    d_ff: int
    n_head: int
    n_kv: int
    vocab: int = 4096
    l_cache: int = 3
    rope_base: float = 1e6
    qk_gain: float = 1.4
    eps: float = 1e-5
    context: int = 2048

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.d_model // self.n_head


CONFIGS = {
    "target": Config(layers="CCACACA", d_model=256, d_ff=512, n_head=4, n_kv=2),
    "draft": Config(layers="CCAA", d_model=128, d_ff=384, n_head=2, n_kv=1),
}


class RMSNorm(nn.Module):
    """Root-mean-square norm with a weight, computed in float32."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Norms the last dimension."""
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return (y * self.weight).to(x.dtype)


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates the halves of each head (the NEOX layout); x is [B, H, T, D]."""
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


class Attention(nn.Module):
    """Causal grouped-query attention with normed queries and keys."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.c = c
        kv = c.n_kv * c.head_dim
        self.q = nn.Linear(c.d_model, c.d_model, bias=False)
        self.k = nn.Linear(c.d_model, kv, bias=False)
        self.v = nn.Linear(c.d_model, kv, bias=False)
        self.o = nn.Linear(c.d_model, c.d_model, bias=False)
        self.q_norm = RMSNorm(c.head_dim, c.eps)
        self.k_norm = RMSNorm(c.head_dim, c.eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Attends; x is [B, T, d_model]."""
        c, (rows, length, _) = self.c, x.shape
        q = self.q(x).view(rows, length, c.n_head, c.head_dim)
        k = self.k(x).view(rows, length, c.n_kv, c.head_dim)
        v = self.v(x).view(rows, length, c.n_kv, c.head_dim).transpose(1, 2)
        q = rope(self.q_norm(q).transpose(1, 2), cos, sin)
        k = rope(self.k_norm(k).transpose(1, 2), cos, sin)
        repeat = c.n_head // c.n_kv
        k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
        y = F.scaled_dot_product_attention(q, k, v.to(q.dtype), is_causal=True)
        return self.o(y.transpose(1, 2).reshape(rows, length, c.d_model))


class ShortConv(nn.Module):
    """Gated causal depthwise convolution: out(C * conv(B * X))."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.inp = nn.Linear(c.d_model, 3 * c.d_model, bias=False)
        self.conv = nn.Parameter(torch.empty(c.d_model, c.l_cache))
        self.out = nn.Linear(c.d_model, c.d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Mixes each position with those just before it; x is [B, T, d_model]."""
        b, c, v = self.inp(x).chunk(3, dim=-1)
        bx, length, kernel = b * v, x.shape[1], self.conv.shape[1]
        padded = F.pad(bx, (0, 0, kernel - 1, 0))
        w = self.conv.to(bx.dtype)
        y = sum(padded[:, i : i + length] * w[:, i] for i in range(kernel))
        return self.out(c * y)


class Block(nn.Module):
    """One residual block: an operator, then a gated feed-forward layer."""

    def __init__(self, c: Config, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.op_norm = RMSNorm(c.d_model, c.eps)
        self.op = Attention(c) if kind == "A" else ShortConv(c)
        self.ffn_norm = RMSNorm(c.d_model, c.eps)
        self.gate = nn.Linear(c.d_model, c.d_ff, bias=False)
        self.up = nn.Linear(c.d_model, c.d_ff, bias=False)
        self.down = nn.Linear(c.d_ff, c.d_model, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Adds the block to the residual stream x, [B, T, d_model]."""
        h = self.op_norm(x)
        x = x + (self.op(h, cos, sin) if self.kind == "A" else self.op(h))
        h = self.ffn_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class LFM2(nn.Module):
    """The whole model, with input and output embeddings tied."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.c = c
        self.embed = nn.Embedding(c.vocab, c.d_model)
        self.blocks = nn.ModuleList(Block(c, kind) for kind in c.layers)
        self.norm = RMSNorm(c.d_model, c.eps)
        freq = c.rope_base ** (-torch.arange(0, c.head_dim, 2).float() / c.head_dim)
        angle = torch.arange(c.context).float()[:, None] * freq[None]
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        self.reset()

    @torch.no_grad()
    def reset(self) -> None:
        """Sets random initial weights.

        The embeddings are wide and the last norm's weight is small: the tied
        matrix is then large enough as an input and the first logits are small.
        """
        c = self.c
        for name, p in self.named_parameters():
            if name.endswith("conv"):
                nn.init.normal_(p, std=1 / math.sqrt(c.l_cache))
            elif name.endswith(("o.weight", "out.weight", "down.weight")):
                nn.init.normal_(p, std=0.3 / math.sqrt(2 * len(c.layers) * p.shape[1]))
            elif p.dim() == 2:
                nn.init.normal_(p, std=1 / math.sqrt(c.d_model))
            elif name.endswith(("q_norm.weight", "k_norm.weight")):
                p.fill_(c.qk_gain)
        self.embed.weight.normal_(std=0.7)
        self.norm.weight.fill_(0.5 / math.sqrt(c.d_model))

    def hidden(self, ids: Tensor) -> Tensor:
        """Returns the normed last hidden states of token ids [B, T]."""
        length = ids.shape[1]
        cos, sin = self.cos[:length], self.sin[:length]
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.norm(x)

    def forward(self, ids: Tensor) -> Tensor:
        """Returns the logits [B, T, vocab] of token ids [B, T]."""
        return F.linear(self.hidden(ids), self.embed.weight)


def parameters(model: nn.Module) -> int:
    """Returns the number of weights."""
    return sum(p.numel() for p in model.parameters())
