"""`pyspec bench drafting`: what every speculator gains on texts of several kinds, against an oracle.

Owns its arguments and the plain text; the measuring, Markdown and picture are `pyspec.bench`'s.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspec.bench.drafting import DraftingReport, measure_drafting
from pyspec.bench.drafting_options import CONTINUATIONS, QUICK, SPECS, DraftingBenchOptions
from pyspec.bench.drafting_plot import drafting_svg
from pyspec.bench.drafting_rows import drafting_data
from pyspec.bench.drafting_tables import about_rows, drafting_markdown, drafting_tables, notes
from pyspec.bench.workloads import names
from pyspec.cli.bench_outputs import add_outputs, check_outputs, comma_list, report_text, write_outputs
from pyspec.cli.loading import find, load
from pyspec.cli.parser import Parser
from pyspec.progress import ProgressBar

__all__ = ["add_parser"]

_DEFAULTS = DraftingBenchOptions()
_DEFAULT_MODEL = "tiny-target"
_FLASH_ATTN = {"on": True, "off": False, "auto": None}
_EPILOG = (
    "A forced continuation is the workload's own text: it is said whatever the model would say, so that drafts are as "
    "right as they are for such texts, while decodes cost what they cost. A draft model guesses its target, not a "
    "text: judge it with --continuation own. Exit code 1 when a text differs from the plain one by more than a "
    "near-tie."
)


def add_parser(subparsers: argparse._SubParsersAction[Parser]) -> None:
    """Enter `drafting`."""
    parser = subparsers.add_parser(
        "drafting",
        help="what every speculator gains on texts of several kinds",
        description="Measure on each MODEL how many tokens a second every speculator gives in those of plain decoding, "
        "on texts from all repeated to nothing, and compare with an oracle, which knows the text.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help=f"GGUF files, or names that `pyspec models` lists [{_DEFAULT_MODEL}]"
    )
    lists = (
        ("--workloads", names(), "texts"),
        ("--specs", SPECS, "speculators with their options, and draft-model where there is one"),
        ("--budget", _DEFAULTS.budgets, "how long drafts are: measured, counts, off; each speculator with each"),
        ("--widths", _DEFAULTS.widths, "tokens of the oracle's decodes"),
    )
    for name, given, about in lists:
        parser.add_argument(name, metavar="LIST", help=f"{about} [{','.join(map(str, given))}]")
    numbers = (
        (("-n", "--n-tokens"), _DEFAULTS.n_tokens, "most tokens of a continuation"),
        (("-t", "--threads"), _DEFAULTS.n_threads, "CPU threads, 0 for the physical cores"),
        (("-ngl", "--gpu-layers"), _DEFAULTS.n_gpu_layers, "layers on the GPU, negative for all"),
        (("--runs",), _DEFAULTS.n_runs, "runs of everything; medians are reported"),
        (("--seed",), _DEFAULTS.seed, "of the random tokens"),
    )
    for given_names, default, about in numbers:
        parser.add_argument(*given_names, type=int, metavar="N", help=f"{about} [{default}]")
    parser.add_argument(
        "--continuation", choices=CONTINUATIONS, help=f"who says the text, see below [{_DEFAULTS.continuation}]"
    )
    parser.add_argument("--draft-model", metavar="MODEL", help="a small model of the same vocabulary, for draft-model")
    parser.add_argument("--rollback", metavar="NAME", help=f"how rejected drafts are undone [{_DEFAULTS.rollback}]")
    parser.add_argument("--flash-attn", choices=tuple(_FLASH_ATTN), default="auto", help="flash attention [auto]")
    parser.add_argument(
        "--warm", action="store_true", help="remember the costs of decodes from run to run, as in a long session"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a first look in a minute: three texts, three speculators, one short run"
    )
    add_outputs(parser)
    parser.add_argument("--verbose", action="store_true", help="print llama.cpp's messages to stderr")
    parser.set_defaults(run=run, parser=parser)


def run(args: argparse.Namespace) -> int:
    """Do what `args` ask for; returns the exit code."""
    options = _options(args)
    check_outputs(args)
    named = args.models or [_DEFAULT_MODEL]
    for name in (*named, *([args.draft_model] if args.draft_model else [])):
        find(name)  # a typing error in the last name shall not cost the minutes of the first
    draft_model = load(args.draft_model, n_gpu_layers=options.n_gpu_layers) if args.draft_model else None
    reports: list[DraftingReport] = []
    for name in named:
        model = load(name, n_gpu_layers=options.n_gpu_layers)
        with ProgressBar(f"measuring {name}") as bar:
            reports.append(measure_drafting(model, options, draft_model=draft_model, progress=bar))
        model.close()
    data = drafting_data(reports)
    write_outputs(args, data, {"text": _text, "markdown": drafting_markdown, "plot": drafting_svg})
    return 0 if all(report.same_text for report in reports) else 1


def _options(args: argparse.Namespace) -> DraftingBenchOptions:
    given = {
        "workloads": comma_list(args, "workloads"),
        "specs": _specs(comma_list(args, "specs")),
        "budgets": comma_list(args, "budget"),
        "widths": _widths(args),
        "continuation": args.continuation,
        "n_tokens": args.n_tokens,
        "n_runs": args.runs,
        "rollback": args.rollback,
        "seed": args.seed,
        "n_threads": args.threads,
        "n_gpu_layers": args.gpu_layers,
        "flash_attn": _FLASH_ATTN[args.flash_attn],
    }
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return replace(QUICK if args.quick else _DEFAULTS, warm=args.warm, **changes)


def _specs(parts: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Speculators with their options, whose commas are those of the list, too: "a,b:x=1,y=2" are two."""
    if parts is None:
        return None
    specs: list[str] = []
    for part in parts:
        option = part.partition("=")
        if specs and ":" in specs[-1] and option[1] and ":" not in option[0]:
            specs[-1] += f",{part}"
        else:
            specs.append(part)
    return tuple(specs)


def _widths(args: argparse.Namespace) -> tuple[int, ...] | None:
    parts = comma_list(args, "widths")
    if parts is None:
        return None
    if not all(map(str.isdecimal, parts)):
        args.parser.error(f"--widths {args.widths!r}: must be whole numbers like 2,4,8")
    return tuple(map(int, parts))


def _text(data: Mapping[str, Any]) -> str:
    return "\n\n".join(report_text(about_rows(one), drafting_tables(one), notes(one)) for one in data["models"])
