"""`pyspec bench rollback`: what a rejected draft costs under each strategy that a model's memory can do.

Owns its arguments and the plain text; the measuring, Markdown and picture are `pyspec.bench`'s.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspec.bench.rollback import RollbackBenchOptions, measure_rollback
from pyspec.bench.rollback_plot import rollback_svg
from pyspec.bench.rollback_tables import about_rows, notes, rollback_markdown, rollback_tables
from pyspec.cli.bench_outputs import add_outputs, check_outputs, comma_list, report_text, write_outputs
from pyspec.cli.demo_prompt import PROMPT
from pyspec.cli.loading import load
from pyspec.cli.parser import Parser
from pyspec.progress import ProgressBar

__all__ = ["add_parser"]

_DEFAULTS = RollbackBenchOptions()
_EPILOG = (
    "Patterns: all (every draft token is right), none, half (the first half is right), 3of8 (3 of drafts of 8; any "
    "other numbers, too), trace:FILE (a JSON list of [n_drafted, n_accepted], a round each, as "
    "pyspec.bench.write_trace writes it). Exit code 1 when a text differs from the plain one by more than a near-tie."
)


def add_parser(subparsers: argparse._SubParsersAction[Parser]) -> None:
    """Enter `rollback`."""
    parser = subparsers.add_parser(
        "rollback",
        help="what a rejected draft costs under each strategy",
        description="Measure on MODEL, for each rollback strategy that its memory can do: save, decode, undo and "
        "replay of a rejected draft by width, as shares of a plain decode; and generations with drafts that are right "
        "as a pattern says.",
        epilog=_EPILOG,
    )
    parser.add_argument("model", metavar="MODEL", help="a GGUF file, or a name that `pyspec models` lists")
    numbers = (
        (("-c", "--ctx"), _DEFAULTS.n_context, "tokens in memory before a round"),
        (("-t", "--threads"), _DEFAULTS.n_threads, "CPU threads, 0 for the physical cores"),
        (("-ngl", "--gpu-layers"), _DEFAULTS.n_gpu_layers, "layers on the GPU, negative for all"),
        (("--n-rs-seq",), _DEFAULTS.n_rs_seq, "states kept for snapshots"),
        (("--n-draft",), _DEFAULTS.n_draft, "tokens of a draft in generations"),
        (("--n-tokens",), _DEFAULTS.n_tokens, "tokens of a generation, 0 for none"),
        (("--rounds",), _DEFAULTS.n_rounds, "turns through everything; medians are reported"),
    )
    for names, default, about in numbers:
        parser.add_argument(*names, type=int, default=default, metavar="N", help=f"{about} [{default}]")
    parser.add_argument("--flash-attn", choices=("on", "off", "auto"), default="auto", help="flash attention [auto]")
    lists = (
        ("--widths", _DEFAULTS.widths, "tokens of a round's decode, the draft and one more"),
        ("--strategies", ("all that MODEL can do",), "rollback strategies"),
        ("--patterns", _DEFAULTS.patterns, "of drafts in generations, see below"),
    )
    for name, given, about in lists:
        parser.add_argument(name, metavar="LIST", help=f"{about} [{','.join(map(str, given))}]")
    parser.add_argument("-f", "--file", type=Path, metavar="FILE", help="the text that generations start from")
    add_outputs(parser)
    parser.add_argument("--verbose", action="store_true", help="print llama.cpp's messages to stderr")
    parser.set_defaults(run=run, parser=parser)


def run(args: argparse.Namespace) -> int:
    """Do what `args` ask for; returns the exit code."""
    options = _options(args)
    check_outputs(args)
    try:
        prompt = PROMPT if args.file is None else args.file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        args.parser.error(f"{args.file}: not UTF-8 text ({error.reason} at byte {error.start})")
    model = load(args.model, n_gpu_layers=args.gpu_layers)
    with ProgressBar("measuring") as bar:
        report = measure_rollback(model, options, prompt=prompt, progress=bar)
    write_outputs(args, report.to_dict(), {"text": _text, "markdown": rollback_markdown, "plot": rollback_svg})
    return 0 if report.same_text else 1


def _options(args: argparse.Namespace) -> RollbackBenchOptions:
    lists: dict[str, Any] = {}
    for name in ("widths", "strategies", "patterns"):
        if (parts := comma_list(args, name)) is not None:
            lists[name] = parts
    if "widths" in lists:
        try:
            lists["widths"] = tuple(map(int, lists["widths"]))
        except ValueError:
            args.parser.error(f"--widths {args.widths!r}: must be whole numbers like 2,4,9")
    return RollbackBenchOptions(
        n_context=args.ctx,
        n_draft=args.n_draft,
        n_tokens=args.n_tokens,
        n_rounds=args.rounds,
        n_rs_seq=args.n_rs_seq,
        n_threads=args.threads,
        n_gpu_layers=args.gpu_layers,
        flash_attn={"on": True, "off": False, "auto": None}[args.flash_attn],
        **lists,
    )


def _text(data: Mapping[str, Any]) -> str:
    return report_text(about_rows(data), rollback_tables(data), notes(data))
