"""`pyspec verify`: plain against speculative decoding of the same prompts.

Owns its arguments and what it prints; the comparison is `pyspec.lossless`'s.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from pyspec.arguments import BUDGETS
from pyspec.cli.demo_prompt import PROMPT
from pyspec.cli.loading import load
from pyspec.cli.parser import Parser
from pyspec.cli.table import table
from pyspec.errors import InvalidValueError
from pyspec.llm import Llama
from pyspec.lossless import Comparison, check_lossless

__all__ = ["add_parser"]


def add_parser(subparsers: argparse._SubParsersAction[Parser]) -> None:
    """Enter `verify`."""
    parser = subparsers.add_parser(
        "verify",
        help="compare plain and speculative decoding of prompts",
        description="Generate every prompt plainly and with drafts; print whether the tokens are equal, where they "
        "first differ and how close the two candidates were there. Exit code 1 when any differ, or none was drafted.",
    )
    parser.add_argument("model", metavar="MODEL", help="a GGUF file, or a name that `pyspec models` lists")
    parser.add_argument("-f", "--file", action="append", default=[], metavar="FILE", help="a file with one prompt")
    about = "speculator to compare, in order [auto, or draft-model where one is given]"
    parser.add_argument("--spec", action="append", metavar="SPEC", help=about)
    parser.add_argument("--draft-model", metavar="MODEL", help="for the speculator draft-model")
    parser.add_argument("--budget", choices=BUDGETS, default="off", help="how long drafts are [off: every draft]")
    parser.add_argument("-n", "--max-tokens", type=int, default=256, metavar="N", help="tokens to generate [256]")
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0 is greedy [0]")
    parser.add_argument("--seed", type=int, metavar="N", help="of both runs, with a temperature")
    parser.add_argument("-c", "--ctx", type=int, default=4096, metavar="N", help="positions of the context [4096]")
    parser.add_argument("-t", "--threads", type=int, default=0, metavar="N", help="CPU threads [physical cores]")
    parser.add_argument("-ngl", "--gpu-layers", type=int, default=-1, metavar="N", help="layers on the GPU [all]")
    parser.add_argument("--rollback", default="auto", metavar="NAME", help="rollback strategy [auto]")
    parser.add_argument("--exact", action="store_true", help="keep logits equal to the bit")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--verbose", action="store_true", help="print llama.cpp's messages to stderr")
    parser.set_defaults(run=run, parser=parser)


def run(args: argparse.Namespace) -> int:
    """Do what `args` ask for; returns the exit code."""
    prompts = [Path(name).read_text(encoding="utf-8") for name in args.file] or [PROMPT]
    if not all(prompts):
        raise InvalidValueError(name="--file", value=args.file, allowed="files that hold a prompt")
    spec = args.spec or (["draft-model"] if args.draft_model else ["auto"])
    model = load(args.model, n_gpu_layers=args.gpu_layers)
    llm = Llama(
        model,
        n_ctx=args.ctx,
        n_threads=args.threads,
        n_gpu_layers=args.gpu_layers,
        draft_model=args.draft_model,
        spec=spec,
        rollback=args.rollback,
        budget=args.budget,
        exact=args.exact,
        verbose=args.verbose,
    )
    with llm:
        options = {"max_tokens": args.max_tokens, "temperature": args.temperature, "seed": args.seed}
        found = check_lossless(llm, prompts, spec=spec, **options)
        print(json.dumps([c.to_dict() for c in found], indent=2) if args.json else _text(found, args.file))
    if not any(c.stats.n_drafted for c in found):
        print("no draft was decoded, so nothing was compared: try other prompts or speculators", file=sys.stderr)
        return 1
    return 0 if all(c.equal for c in found) else 1


def _text(found: list[Comparison], names: list[str]) -> str:
    rows = [
        [
            names[c.index] if names else "(the demo's prompt)",
            "equal" if c.equal else "DIFFERENT",
            str(c.n_tokens),
            "" if c.first_difference is None else str(c.first_difference),
            "" if c.margin is None else f"{c.margin:.2e}",
            str(c.stats.n_drafted),
            str(c.stats.n_accepted),
            str(c.stats.n_rollbacks),
        ]
        for c in found
    ]
    header = ["prompt", "tokens are", "tokens", "first difference", "margin", "drafted", "accepted", "rollbacks"]
    n_equal = sum(c.equal for c in found)
    return table(rows, header=header, right=range(2, 8)) + f"\n\n{n_equal} of {len(found)} equal"
