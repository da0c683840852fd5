"""`pyspec generate`: text after a prompt.

Owns its arguments, and what goes to stdout (the text alone) and to stderr (everything else).
Leaves reading the prompt, loading, comparing and reporting to their files.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from time import perf_counter
from typing import Any

from pyspec._core import Model
from pyspec.arguments import BUDGETS, prompt_tokens
from pyspec.cli import constraint as constraints
from pyspec.cli import prompt as prompts
from pyspec.cli.compare import compare
from pyspec.cli.loading import find, load
from pyspec.cli.parser import Parser
from pyspec.cli.report import as_dict, interrupted, logprobs_table, stats_table
from pyspec.completion import Completion
from pyspec.config import SamplingOptions
from pyspec.decoder import DecoderOptions
from pyspec.generation import CallOptions
from pyspec.llm import Llama
from pyspec.progress import PromptBar
from pyspec.rollback import check_name
from pyspec.speculators import make, names, parse_options
from pyspec.speculators.draft_model import DraftModelOptions

__all__ = ["add_parser"]

_INTERRUPTED = 130
_N_CTX_USUAL = 4096
_FLASH_ATTN = {"on": True, "off": False, "auto": None}
_SAMPLING = {
    "temperature": (float, "0 (the default) always takes the likeliest token"),
    "top_k": (int, "only the k likeliest tokens"),
    "top_p": (float, "only the likeliest tokens that together reach p"),
    "min_p": (float, "only tokens at least p times as likely as the likeliest"),
    "seed": (int, "of the random draws"),
    "repeat_penalty": (float, "above 1 makes repetitions unlikely"),
}


def add_parser(subparsers: argparse._SubParsersAction[Parser]) -> None:
    """Enter `generate`."""
    parser = subparsers.add_parser(
        "generate",
        help="generate text after a prompt",
        description="Generate text after a prompt. The text goes to stdout as it comes, everything else to stderr.",
    )
    parser.set_defaults(run=run, parser=parser)
    parser.add_argument("model", metavar="MODEL", help="a GGUF file, or a name that `pyspec models` lists")
    prompts.add_arguments(parser)

    draft = parser.add_argument_group("speculation")
    draft.add_argument(
        "--spec",
        action="append",
        metavar="NAME[:OPTIONS]",
        help=f"what drafts: {', '.join(names())}; e.g. ngram-mod:n_match=12,n_max=32 or draft:PATH; "
        "several are asked in this order",
    )
    draft.add_argument("--draft-model", metavar="MODEL", help="a small model of the same vocabulary, for draft-model")
    draft.add_argument("--budget", choices=BUDGETS, help="how long drafts are [measured]")
    draft.add_argument("--rollback", default="auto", metavar="NAME", help="how rejected drafts are undone")
    draft.add_argument("--replay", choices=("fused", "immediate"), default="fused", help="how state is rebuilt")

    text = parser.add_argument_group("generation")
    text.add_argument(
        "-n", "--max-tokens", type=int, default=256, metavar="N", help="most tokens, -1 for no limit [256]"
    )
    text.add_argument("--stop", action="append", metavar="TEXT", help="ends the generation; may be given again")
    text.add_argument("--ignore-eos", action="store_true", help="go on after the model's own end")
    for name, (kind, about) in _SAMPLING.items():
        text.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar="X", help=about)
    text.add_argument("--timeout", type=float, metavar="S", help="end after S seconds with what there is")
    constraints.add_arguments(parser)

    sizes = parser.add_argument_group("model and context")
    sizes.add_argument(
        "-c", "--ctx", type=int, metavar="N", help="positions, 0 for all the model was trained with [what is needed]"
    )
    sizes.add_argument("--batch", type=int, default=2048, metavar="N", help="most tokens in one decode [2048]")
    sizes.add_argument("--ubatch", type=int, default=512, metavar="N", help="most tokens in one graph [512]")
    sizes.add_argument("-t", "--threads", type=int, default=0, metavar="N", help="CPU threads [the physical cores]")
    sizes.add_argument("-ngl", "--gpu-layers", type=int, default=-1, metavar="N", help="layers on the GPU [all]")
    sizes.add_argument("--n-rs-seq", type=int, default=0, metavar="N", help="states kept for --rollback snapshot")
    sizes.add_argument("--flash-attn", choices=tuple(_FLASH_ATTN), default="auto", help="flash attention [auto]")

    output = parser.add_argument_group("output")
    output.add_argument(
        "--logprobs",
        type=int,
        metavar="N",
        help="print each token's log-probability and those of the N likeliest, to stderr, or as part of --json",
    )
    output.add_argument("--stats", action="store_true", help="print counts and times to stderr afterwards")
    output.add_argument(
        "--compare", action="store_true", help="generate plainly too and compare; exit code 1 when the texts differ"
    )
    output.add_argument("--json", action="store_true", help="print one JSON object instead of the text")
    output.add_argument("--verbose", action="store_true", help="print llama.cpp's messages to stderr")


def run(args: argparse.Namespace) -> int:
    """Do what `args` ask for; returns the exit code."""
    prompt = prompts.read(args)
    sampling = {name: value for name in _SAMPLING if (value := getattr(args, name)) is not None}
    limits = {"constraint": constraints.read(args), "timeout_s": args.timeout, "logprobs": args.logprobs}
    _check(args, sampling, limits)
    model = load(args.model, n_gpu_layers=args.gpu_layers)
    ids = prompt_tokens(model.vocab, prompt).tolist()
    with _open(args, model, len(ids)) as llm:
        options = sampling | limits
        options |= {"max_tokens": args.max_tokens, "stop": args.stop, "ignore_eos": args.ignore_eos}
        start = perf_counter()
        try:
            bar = PromptBar()
            with bar:
                return _generate(args, llm, partial(llm.generate, ids, on_progress=bar), options)
        except KeyboardInterrupt:
            sys.stderr.write(f"\n{interrupted(llm, perf_counter() - start)}\n")
            return _INTERRUPTED


def _generate(args: argparse.Namespace, llm: Llama, generate: Any, options: dict[str, Any]) -> int:
    show = _show if args.tokens is None and not args.json else _ignore
    if args.compare:
        pair = compare(generate, show, **options)
        last, data, equal = pair.speculative, pair.to_dict(), pair.difference is None
        _finish(args, pair.plain, data)
        sys.stderr.write(f"{pair}\n")
    else:
        last, equal = generate(on_text=show, **options), True
        _finish(args, last, as_dict(last))
    if last.logprobs is not None and not args.json:
        sys.stderr.write(f"{logprobs_table(llm, last.logprobs)}\n")
    if last.finish_reason == "timeout":
        sys.stderr.write(f"[ended by --timeout {args.timeout:g} after {len(last.tokens)} tokens]\n")
    if args.stats:
        sys.stderr.write(f"{stats_table(llm, last)}\n")
    return 0 if equal else 1


def _finish(args: argparse.Namespace, shown: Completion, data: dict[str, Any]) -> None:
    """End the output of `shown`, whose text has been streamed unless ids or JSON are wanted."""
    if args.json:
        print(json.dumps(data))
    elif args.tokens is not None:
        print(",".join(map(str, shown.tokens)))
    elif sys.stdout.isatty() and not shown.text.endswith("\n"):
        print()
    sys.stdout.flush()


def _show(piece: str) -> None:
    sys.stdout.write(piece)
    sys.stdout.flush()


def _ignore(piece: str) -> None:
    pass


# ------------------------------------------------------------------ before the model is there
def _check(args: argparse.Namespace, sampling: dict[str, Any], limits: dict[str, Any]) -> None:
    """Refuse what can be refused before a large model has been loaded, and find its files."""
    SamplingOptions(**sampling)
    CallOptions(**limits)
    DecoderOptions(replay=args.replay)
    check_name(args.rollback)

    def draft(source: str, options: str) -> None:
        if source:
            find(source)
        elif args.draft_model is None:
            args.parser.error("--spec draft-model needs --draft-model; or use --spec draft:PATH")
        parse_options(DraftModelOptions, options)

    for name in args.spec or ():
        make(name, n_vocab=2**31 - 1, draft=draft)  # the model's own vocabulary is checked when it is there
    if args.compare and args.spec and all(name.strip().lower() == "none" for name in args.spec):
        args.parser.error("--compare with --spec none has nothing to compare; name a speculator")


def _open(args: argparse.Namespace, model: Model, n_prompt: int) -> Llama:
    given: dict[str, Any] = {}
    if args.spec is not None:
        given["spec"] = args.spec
    if args.draft_model is not None:
        given["draft_model"] = load(args.draft_model, n_gpu_layers=args.gpu_layers)
    return Llama(
        model,
        n_ctx=_n_ctx(model, n_prompt, args.max_tokens) if args.ctx is None else args.ctx,
        n_batch=args.batch,
        n_ubatch=args.ubatch,
        n_threads=args.threads,
        n_gpu_layers=args.gpu_layers,
        n_rs_seq=args.n_rs_seq,
        flash_attn=_FLASH_ATTN[args.flash_attn],
        rollback=args.rollback,
        replay=args.replay,
        budget=args.budget,
        verbose=args.verbose,
        **given,
    )


def _n_ctx(model: Model, n_prompt: int, max_tokens: int) -> int:
    """Positions for this generation: all that a model was trained with can need more memory than there is."""
    wanted = max(_N_CTX_USUAL, n_prompt + max(max_tokens, 0))
    return min(wanted, model.n_ctx_train or wanted)
