#!/usr/bin/env python3
"""Every architecture that llama.cpp's test-llama-archs can write, under every rollback strategy that it supports.

Each model runs in a process of its own with a time limit. Checked are the text against plain decoding (up to a
near-tie between widths), state bytes and next logits against sequential decoding in the same widths, for accepting,
rejecting, empty and over-long drafts, fused and immediate replay, and two interleaved sequences. Writes the table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "decoder"), str(ROOT / "scripts")]

import build_test_models  # noqa: E402
import numpy as np  # noqa: E402
from decoder_rig import PATTERNS, STRATEGIES, RecordingMemory, Rig, Subject, assert_same_choices  # noqa: E402

from pyspec import _core  # noqa: E402
from pyspec.config import SamplingOptions  # noqa: E402
from pyspec.decoder import Decoder, DecoderOptions, Request  # noqa: E402
from pyspec.drafting import Drafting  # noqa: E402
from pyspec.errors import UnsupportedError  # noqa: E402
from pyspec.memory import probe  # noqa: E402
from pyspec.rollback import choose, needs_spare  # noqa: E402
from pyspec.speculators import as_tokens  # noqa: E402

LIMIT_S = 180
PROMPT = [(7 * i + 3) % 100 for i in range(20)]
PATTERN_NAMES = ("mixed", "one-save-many-tries")
N_TOKENS = 32
LAW = """A model passes when, for every strategy that its memory can do, fused and immediate replay, and drafts that
are accepted, rejected at each place, empty and tried again from one save, the text is that of plain decoding up to a
near-tie (margin below 1e-3 of the row's spread, at widths 1 and 2), and state bytes and next logits equal those of
sequential decoding in the same widths to the bit. "two" are two interleaved sequences with drafts, "batch" are rounds
of two sequences in one decode, whose logits must be those of decodes one by one (to 1e-3 of the rows' spread). "ties"
counts the runs whose text left the plain one at a near-tie. A dash: this cannot be."""


class NotConforming(AssertionError):
    """A law that does not hold; the message says which and where."""


def check(path: Path) -> dict[str, Any]:
    """All checks of one model; raises `NotConforming`."""
    found: dict[str, Any] = {"strategies": {}}
    try:
        model = _core.Model(path)
        found["memory"] = model.memory_kind
        subject = Subject(path.stem, model, PROMPT)
        subject.plain()
    except UnsupportedError as refusal:
        return found | {"refused": str(refusal)}
    n_ties = 0
    for strategy in STRATEGIES:
        try:
            subject.rig(strategy)
        except UnsupportedError:
            found["strategies"][strategy] = "-"
            continue
        for replay in ("fused", "immediate"):
            for pattern in PATTERN_NAMES:
                n_ties += check_run(subject, strategy, replay, pattern)
        found["strategies"][strategy] = "yes"
    found["two"] = check_two(subject)
    found["batch"] = check_batch(subject)
    return found | {"n_ties": n_ties}


def check_run(subject: Subject, strategy: str, replay: str, pattern: str) -> int:
    """One pattern of drafts; returns 1 when the text left the plain one at a near-tie."""
    where = f"{strategy}, {replay} replay, {pattern} drafts"
    played = subject.play(strategy, replay, pattern)
    try:
        assert_same_choices(subject.model, subject.prompt, subject.plain(), played.run.tokens)
    except AssertionError as difference:
        raise NotConforming(f"{where}: {difference}") from None
    if played.state != played.replayed_state:
        raise NotConforming(f"{where}: state bytes differ from sequential decoding")
    if not np.array_equal(played.logits, played.replayed_logits):
        raise NotConforming(f"{where}: next logits differ from sequential decoding")
    return int(played.run.tokens != subject.plain())


def check_two(subject: Subject) -> str:
    """Two sequences of one context, round by round in turn, say what each says alone."""
    model = subject.model
    prompts = [subject.prompt, subject.prompt[::-1]]
    alone = [Rig(model).run(prompt, None, max_tokens=N_TOKENS).tokens for prompt in prompts]
    spare = needs_spare("auto", model.memory_kind)
    try:
        context = _core.Context(model, n_ctx=512, n_threads=1, n_seq_max=4 if spare else 2, kv_unified=True)
        can = probe(context)
        decoders = []
        for seq_id, (prompt, plain) in enumerate(zip(prompts, alone, strict=True)):
            rollback, _ = choose(context, can, seq_id=seq_id, spare=2 + seq_id if spare else None)
            decoder = Decoder(RecordingMemory(context, rollback), DecoderOptions(), n_vocab=model.vocab.n_tokens)
            script = Subject(str(seq_id), model, prompt)
            script._plain["greedy"] = plain
            decoder.begin(
                Request(
                    prompt=as_tokens(prompt),
                    sampler=_core.Sampler(model, SamplingOptions()),
                    drafting=Drafting(script.script(PATTERNS["mixed"])),
                    max_tokens=N_TOKENS,
                    end_tokens=frozenset(),
                    emit=lambda token: None,
                )
            )
            decoders.append(decoder)
    except UnsupportedError:
        return "-"
    said: list[list[int]] = [[], []]
    while any(decoder.finish is None for decoder in decoders):
        for decoder, tokens in zip(decoders, said, strict=True):
            if decoder.finish is None:
                tokens += decoder.step().tokens
    for prompt, plain, tokens in zip(prompts, alone, said, strict=True):
        try:
            assert_same_choices(model, prompt, plain, tokens)
        except AssertionError as difference:
            raise NotConforming(f"two interleaved sequences: {difference}") from None
    return "yes"


def check_batch(subject: Subject) -> str:
    """Rounds of two sequences in one decode, of equal and other widths, give what each gives alone."""
    prompts = [subject.prompt, subject.prompt[::-1]]
    for widths, n_rows in (((1, 1), (1, 1)), ((4, 4), (2, 4)), ((2, 5), (1, 3)), ((5, 1), (5, 1))):
        found = []
        for together in (False, True):
            context = _core.Context(
                subject.model, n_ctx=128, n_threads=1, n_threads_batch=1, n_seq_max=2, kv_unified=True
            )
            for seq_id, prompt in enumerate(prompts):
                context.decode(prompt, pos=0, seq_id=seq_id)
            tokens = [[(31 * i + 11 * s) % 100 for i in range(width)] for s, width in enumerate(widths)]
            rows = []
            if together:
                pos = [len(p) + i for p, width in zip(prompts, widths, strict=True) for i in range(width)]
                outputs = [i >= w - n for w, n in zip(widths, n_rows, strict=True) for i in range(w)]
                ids = [s for s, width in enumerate(widths) for _ in range(width)]
                try:
                    context.decode_batch(tokens[0] + tokens[1], pos, ids, outputs)
                except UnsupportedError:
                    return "-"
                rows.append(context.logits())
            for s, (prompt, n) in enumerate(zip(prompts, n_rows, strict=True)):
                if not together:
                    context.decode(tokens[s], pos=len(prompt), seq_id=s, n_outputs=n)
                    rows.append(context.logits())
            for s, (prompt, width) in enumerate(zip(prompts, widths, strict=True)):
                context.decode([5], pos=len(prompt) + width, seq_id=s)
                rows.append(context.logits())
            found.append(np.concatenate(rows))
        spread = float(found[0].max() - found[0].min())
        difference = float(np.abs(found[0] - found[1]).max())
        if not difference <= 1e-3 * spread:
            raise NotConforming(f"a batch of widths {widths}: logits differ by {difference:.2g} of {spread:.2g}")
    return "yes"


def run_apart(path: Path) -> dict[str, Any]:
    """`check` in a process of its own; what ends it otherwise is its fault."""
    command = [sys.executable, "-X", "faulthandler", __file__, "--one", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return {"fault": f"no end after {LIMIT_S} s"}
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"fault": f"exit status {done.returncode}: {last}"}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def as_markdown(results: dict[str, dict[str, Any]]) -> str:
    """The tables of docs/conformance.md."""
    passed = {name: r for name, r in results.items() if "strategies" in r and "refused" not in r and "fault" not in r}
    refused = {name: r["refused"] for name, r in results.items() if "refused" in r}
    faults = {name: r["fault"] for name, r in results.items() if "fault" in r}
    lines = [
        "# Conformance",
        "",
        textwrap.fill(
            f"llama.cpp {_core.LLAMA_CPP_COMMIT}, backends {', '.join(_core.backends())}. Written by "
            f"`scripts/conformance.py`: {len(results)} random-weight models (F32), {len(passed)} pass, {len(refused)} "
            f"are refused, {len(faults)} fail.",
            width=118,
        ),
        "",
        textwrap.fill(LAW, width=118),
        "",
        "| model | memory | " + " | ".join(STRATEGIES) + " | two | batch | ties |",
        "|---" * (len(STRATEGIES) + 5) + "|",
    ]
    for name, r in sorted(passed.items()):
        cells = [r["strategies"].get(s, "-") for s in STRATEGIES]
        cells += [r["two"], r["batch"], str(r["n_ties"])]
        lines.append(f"| {name} | {r['memory'].replace('_', ' ')} | {' | '.join(cells)} |")
    for title, table in (("Refused", refused), ("Failing", faults)):
        if table:
            lines += ["", f"## {title}", "", "| model | reason |", "|---|---|"]
            lines += [f"| {name} | {reason.replace('|', '/')} |" for name, reason in sorted(table.items())]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the models and write the table; 1 when one fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="parts of model names; all without")
    parser.add_argument("--models", type=Path, help="a folder of GGUF files instead of those in the cache")
    parser.add_argument("--out", type=Path, help="write the table to this file, e.g. docs/conformance.md")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(check(args.one)))
        return 0
    folder = args.models or build_test_models.folder()
    if args.models is None:
        build_test_models.ensure_all()
    paths = [p for p in sorted(folder.glob("*.gguf")) if not args.names or any(n in p.stem for n in args.names)]
    results: dict[str, dict[str, Any]] = {}
    for path in paths:
        started = time.monotonic()
        results[path.stem] = result = run_apart(path)
        verdict = result.get("fault") or result.get("refused") or "passes"
        print(f"{path.stem}: {verdict} ({time.monotonic() - started:.0f} s)", flush=True)
    if args.out:
        args.out.write_text(as_markdown(results), encoding="utf-8")
    return int(any("fault" in r for r in results.values()))


if __name__ == "__main__":
    sys.exit(main())
