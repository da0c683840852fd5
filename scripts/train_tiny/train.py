"""The training loop: a curriculum from short to long rows, then a decay.

The schedule counts tokens, so that a run may be paused, stopped and resumed
at any time; a resumed run may have other lengths for its stages.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from . import evaluate
from .data import Batches
from .model import CONFIGS, LFM2, Config, parameters
from .optimizer import optimizers


@dataclass
class Stage:
    """One part of the curriculum.

    Attributes:
        tokens: The stage ends when this many tokens were seen in all.
        length: Tokens a row.
        mix: Share of each kind of row.
    """

    tokens: float
    length: int
    mix: dict[str, float]


FIRST = dict(tiled=0.35, pairs=0.55, code=0.1)
MAIN = dict(tiled=0.04, pairs=0.68, code=0.23, docs=0.05)


@dataclass
class Options:
    """Options of a run; all counts of tokens are in millions.

    The file `plan`, if it exists, has newer values of `tokens` and `decay`
    as JSON; a run reads it again from time to time.
    """

    size: str
    work: Path
    tokens: float
    decay: float
    warm_up: float = 0.2
    lr: float = 0.02
    copy_weight: float = 1.0
    pairs: float = MAIN["pairs"]
    batch: int = 4096
    seed: int = 1234
    threads: int = 2
    log_steps: int = 20
    save_seconds: float = 120
    resume: bool = False
    compile: bool = True
    teacher: str = ""
    start: str = ""
    short: float = 1.5
    middle: float = 9.0
    pid_file: Path | None = None
    plan: Path | None = None

    def stages(self) -> list[Stage]:
        """Returns the curriculum."""
        rest = 1 - self.pairs
        mix = {name: share if name == "pairs" else share * rest / (1 - MAIN["pairs"]) for name, share in MAIN.items()}
        mix["pairs"] = self.pairs
        return [
            Stage(self.short * 1e6, 256, FIRST),
            Stage(self.middle * 1e6, 512, mix),
            Stage(float("inf"), 1024, mix),
        ]

    def rate(self, seen: float) -> float:
        """Returns the share of the peak learning rate after `seen` tokens."""
        rise = min(1.0, (seen / 1e6 + 0.01) / self.warm_up)
        left = (self.tokens - seen / 1e6) / self.decay
        return rise * max(0.0, min(1.0, left))

    def refresh(self) -> None:
        """Reads the plan."""
        if self.plan and self.plan.exists():
            plan = json.loads(self.plan.read_text())
            self.tokens, self.decay = plan["tokens"], plan["decay"]


def weighted(logits: Tensor, targets: Tensor, weight: Tensor) -> Tensor:
    """Returns the weighted mean of the loss."""
    loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none")
    return (loss * weight.flatten()).sum() / weight.sum()


def distilled(logits: Tensor, hints: Tensor, targets: Tensor, weight: Tensor) -> Tensor:
    """Returns the loss against the teacher's distribution and the text, mixed."""
    own = F.log_softmax(logits.float().flatten(0, 1), -1)
    hint = F.softmax(hints.float().flatten(0, 1), -1)
    soft = -(hint * own).sum(-1)
    hard = F.nll_loss(own, targets.flatten(), reduction="none")
    return ((0.8 * soft + 0.2 * hard) * weight.flatten()).sum() / weight.sum()


def save(path: Path, model: LFM2, optims: list, **state: object) -> None:
    """Writes a checkpoint in one step, so that a reader never sees half of it."""
    temporary = path.with_suffix(".tmp")
    torch.save(
        dict(model=model.state_dict(), config=asdict(model.c), optims=[o.state_dict() for o in optims], **state),
        temporary,
    )
    os.replace(temporary, path)


def load(path: Path) -> tuple[LFM2, dict]:
    """Reads a checkpoint; returns the model and everything that was saved."""
    state = torch.load(path, map_location="cpu", weights_only=True)
    model = LFM2(Config(**state["config"]))
    model.load_state_dict(state["model"])
    return model.eval(), state


def run(o: Options) -> dict:
    """Trains one model; returns the scores of the last evaluation."""
    torch.manual_seed(o.seed)
    torch.set_num_threads(o.threads)
    if o.pid_file:
        o.pid_file.write_text(str(os.getpid()))
    path = o.work / f"{o.size}.pt"
    seen = steps = 0
    seconds = 0.0
    if o.resume:
        model, state = load(path)
        model.train()
        optims = optimizers(model, o.lr)
        for optim, saved in zip(optims, state["optims"], strict=True):
            peaks = [g["peak"] for g in optim.param_groups]
            optim.load_state_dict(saved)
            for group, peak in zip(optim.param_groups, peaks, strict=True):
                group["peak"] = peak
        seen, steps, seconds = state["seen"], state["steps"], state["seconds"]
    else:
        model = load(o.work / o.start)[0].train() if o.start else LFM2(CONFIGS[o.size])
        optims = optimizers(model, o.lr)
    teacher = load(o.work / o.teacher)[0] if o.teacher else None
    print(f"{o.size}: {parameters(model) / 1e6:.2f} M parameters, {model.c.layers}, from {seen / 1e6:.2f} M tokens")

    def objective(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(x)
            if teacher is None:
                return weighted(logits, y, weight)
            with torch.no_grad():
                hints = teacher(x)
        return distilled(logits, hints, y, weight)

    step_loss = torch.compile(objective, dynamic=False) if o.compile else objective
    batches = Batches(o.work, o.seed + 1 + seen, o.copy_weight)
    mean, length = None, 0
    last_log, cpu = time.time(), time.process_time()
    since = seen
    while seen < o.tokens * 1e6:
        stage = next(s for s in o.stages() if seen < s.tokens)
        if stage.length != length:
            length, mean = stage.length, None
            print(f"rows of {length} tokens from {seen / 1e6:.2f} M tokens", flush=True)
        for optim in optims:
            for group in optim.param_groups:
                group["lr"] = group["peak"] * o.rate(seen)
        x, y, weight = batches(o.batch // length, length, stage.mix)
        loss = step_loss(x, y, weight)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optim in optims:
            optim.step()
            optim.zero_grad(set_to_none=True)
        steps, seen = steps + 1, seen + x.numel()
        mean = loss.item() if mean is None else 0.97 * mean + 0.03 * loss.item()
        if steps % o.log_steps == 0:
            now = time.time()
            speed, last_log, since = (seen - since) / (now - last_log), now, seen
            print(
                f"step {steps} {seen / 1e6:.2f} Mtok loss {mean:.3f} rate {o.rate(seen):.2f} {speed:.0f} tok/s",
                flush=True,
            )
            o.refresh()
        if time.process_time() - cpu > o.save_seconds:
            seconds, cpu = seconds + time.process_time() - cpu, time.process_time()
            save(path, model, optims, seen=seen, steps=steps, seconds=seconds)
            scores = evaluate.report(model, o.work, 24)
            print(time.strftime("%H:%M"), {k: round(v, 3) for k, v in scores.items()}, flush=True)
    seconds += time.process_time() - cpu
    save(path, model, optims, seen=seen, steps=steps, seconds=seconds)
    scores = evaluate.report(model, o.work, 96)
    save(path, model, optims, seen=seen, steps=steps, seconds=seconds, scores=scores)
    made = dict(
        size=o.size,
        parameters=parameters(model),
        tokens=seen,
        steps=steps,
        cpu_seconds=round(seconds),
        **scores,
    )
    (o.work / f"{o.size}.json").write_text(json.dumps(made, indent=1))
    print("done", made, flush=True)
    return made
