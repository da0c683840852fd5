"""Losses and exactness of a model on held-out text and pairs.

A rewrite is exact when the most likely token is the right one at each
position of the expected answer; that is what greedy decoding would write.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from . import prompts
from .model import LFM2


def losses(model: LFM2, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Returns each position's loss and whether its most likely token is right."""
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(ids[:, :-1]).float()
    wanted = ids[:, 1:]
    loss = F.cross_entropy(logits.transpose(1, 2), wanted, reduction="none")
    return loss, logits.argmax(-1) == wanted


def padded(rows: list[list[int]], size: int = 8) -> Iterator[tuple[list[int], Tensor]]:
    """Yields batches of rows of about equal length: their indices and their ids."""
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    for at in range(0, len(rows), size):
        chosen = order[at : at + size]
        longest = len(rows[chosen[-1]])
        yield chosen, torch.tensor([rows[i] + [0] * (longest - len(rows[i])) for i in chosen])


@torch.no_grad()
def code_loss(model: LFM2, work: Path, length: int = 512, rows: int = 16) -> float:
    """Returns the loss on held-out modules of the standard library."""
    ids = torch.from_numpy(np.fromfile(work / "val_code.bin", np.uint16)[: rows * length].astype(np.int64))
    return float(np.mean([losses(model, part)[0].mean().item() for part in ids.view(rows, length).split(8)]))


@torch.no_grad()
def pair_scores(model: LFM2, work: Path, most: int = 100) -> dict[str, float]:
    """Scores held-out pairs: losses on whole pairs and on copies, exact copies."""
    ids = np.fromfile(work / "val_pairs.bin", np.uint16)
    marks = np.fromfile(work / "val_pairs.marks", np.uint8).astype(bool)
    starts = np.flatnonzero(ids == 0)
    spans = list(pairwise(starts))[:most]
    whole, copied, right, exact = [], [], [], []
    for chosen, batch in padded([ids[a : b + 1].tolist() for a, b in spans]):
        loss, ok = losses(model, batch)
        for row, i in enumerate(chosen):
            a, b = spans[i]
            mark = torch.from_numpy(marks[a : b + 1])[1:]
            whole.append(loss[row][: b - a])
            copied.append(whole[-1][mark])
            right.append(ok[row][: b - a][mark].float())
            exact.append(float(right[-1].all()))
    return dict(
        pair_loss=torch.cat(whole).mean().item(),
        copy_loss=torch.cat(copied).mean().item(),
        copy_right=torch.cat(right).mean().item(),
        copy_exact=float(np.mean(exact)),
    )


@torch.no_grad()
def rewrite_scores(model: LFM2, tok: Tokenizer) -> dict[str, int]:
    """Counts the wrong tokens of each prompt of `prompts.rewrites`."""
    cases = [(label, tok.encode(p).ids, tok.encode(a).ids) for label, p, a in prompts.rewrites()]
    wrong = {label: 0 for label, _, _ in cases}
    for chosen, batch in padded([head + tail for _, head, tail in cases]):
        _, ok = losses(model, batch)
        for row, i in enumerate(chosen):
            label, head, tail = cases[i]
            wrong[label] = int((~ok[row][len(head) - 1 : len(head) - 1 + len(tail)]).sum())
    return wrong


@torch.no_grad()
def greedy(model: LFM2, tok: Tokenizer, prompt: str, count: int) -> str:
    """Writes up to `count` tokens after a prompt, without a cache."""
    ids = tok.encode(prompt).ids
    start = len(ids)
    for _ in range(count):
        with torch.autocast("cpu", torch.bfloat16):
            token = int(model(torch.tensor([ids]))[0, -1].argmax())
        if token == 0:
            break
        ids.append(token)
    return tok.decode(ids[start:])


def report(model: LFM2, work: Path, most: int = 100) -> dict[str, float]:
    """Returns all scores, the rewrites as a count of exact ones."""
    tok = Tokenizer.from_file(str(work / "tokenizer.json"))
    wrong = rewrite_scores(model, tok)
    return dict(
        code_loss=code_loss(model, work),
        **pair_scores(model, work, most),
        rewrites_exact=sum(n == 0 for n in wrong.values()),
        rewrites=len(wrong),
        rewrite_tokens_wrong=sum(wrong.values()),
        demo_wrong=next(iter(wrong.values())),
    )
