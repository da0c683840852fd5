"""Muon for the matrices and Adam for everything else.

Muon makes each matrix's momentum orthogonal before it is applied; that needs
far fewer tokens than Adam on models of this size.
"""

from __future__ import annotations

import torch
import torch.nn as nn
from torch import Tensor


def orthogonal(g: Tensor, steps: int = 5) -> Tensor:
    """Returns the stack of matrices nearest-orthogonal to g (Newton-Schulz)."""
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = g.shape[-2] > g.shape[-1]
    x = g.mT if tall else g
    x = (x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)).bfloat16()
    for _ in range(steps):
        xx = x @ x.mT
        x = a * x + (b * xx + c * xx @ xx) @ x
    x = x.float()
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Momentum with orthogonal updates; matrices of one shape go together."""

    def __init__(self, params: list[nn.Parameter], lr: float, momentum: float = 0.95, decay: float = 0.02):
        super().__init__(params, dict(lr=lr, momentum=momentum, decay=decay))

    @torch.no_grad()
    def step(self) -> None:
        """Applies one update."""
        for group in self.param_groups:
            shapes: dict[torch.Size, list[nn.Parameter]] = {}
            for p in group["params"]:
                shapes.setdefault(p.shape, []).append(p)
            for shape, params in shapes.items():
                updates = []
                for p in params:
                    buf = self.state[p].setdefault("buf", torch.zeros_like(p))
                    buf.lerp_(p.grad, 1 - group["momentum"])
                    updates.append(p.grad.lerp(buf, group["momentum"]))
                scale = max(1.0, shape[0] / shape[1]) ** 0.5
                for p, u in zip(params, orthogonal(torch.stack(updates)), strict=True):
                    p.mul_(1 - group["lr"] * group["decay"]).add_(u, alpha=-group["lr"] * scale)


def optimizers(model: nn.Module, lr: float) -> list[torch.optim.Optimizer]:
    """Returns the optimizers of a model.

    Args:
        model: The model.
        lr: Muon's learning rate; Adam's rates are fixed multiples of it.

    Returns:
        Muon for the matrices, Adam for embeddings, norms and convolutions.
    """
    matrices, embed, last, other = [], [], [], []
    for name, p in model.named_parameters():
        if name == "embed.weight":
            embed.append(p)
        elif name == "norm.weight":
            last.append(p)
        elif p.dim() == 2 and not name.endswith("conv"):
            matrices.append(p)
        else:
            other.append(p)
    adam = torch.optim.Adam(
        [
            dict(params=embed, lr=lr * 0.4),
            dict(params=other, lr=lr * 0.15),
            dict(params=last, lr=lr * 0.03),
        ],
        betas=(0.9, 0.98),
        fused=True,
    )
    result = [Muon(matrices, lr), adam]
    for optimizer in result:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return result
