"""`pyspec doctor`: how drafts are undone on a model at which cost, and which widths of a decode agree to the bit.

Owns its arguments and what it prints; the measuring is that of `pyspec.memory`, `pyspec.rollback`, `pyspec.width_costs`
and `pyspec.widths`.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from pyspec import _core
from pyspec.cli.loading import load
from pyspec.cli.parser import Parser
from pyspec.cli.table import bytes_text, table
from pyspec.flash_attention import flash_attention, flash_attention_text
from pyspec.llm import Llama
from pyspec.memory import has_device
from pyspec.rollback import NAMES, StrategyCost, able, build, extra_bytes, measure_cost
from pyspec.width_costs import WIDTHS, measure_width_costs
from pyspec.widths import PADDED, WidthReport, measure_widths, widths_of_one_class

__all__ = ["add_parser"]

_N_TOKENS = 64
_N_DRAFT, _N_ACCEPTED, _N_ROUNDS = 8, 3, 5


def add_parser(subparsers: argparse._SubParsersAction[Parser]) -> None:
    """Enter `doctor`."""
    parser = subparsers.add_parser(
        "doctor",
        help="how drafts are undone on a model, and which widths agree to the bit",
        description="Measure on MODEL which rollback strategies its memory can do, what they cost and hold in bytes, "
        "and which widths of a decode give the same logits to the bit, after a short and after a long context.",
    )
    parser.add_argument("model", metavar="MODEL", help="a GGUF file, or a name that `pyspec models` lists")
    parser.add_argument("-c", "--ctx", type=int, default=1024, metavar="N", help="tokens of the long context [1024]")
    parser.add_argument("-t", "--threads", type=int, default=0, metavar="N", help="CPU threads [physical cores]")
    parser.add_argument("-ngl", "--gpu-layers", type=int, default=-1, metavar="N", help="layers on the GPU [all]")
    parser.add_argument("--flash-attn", choices=("on", "off", "auto"), default="auto", help="flash attention [auto]")
    about = "positions of the context you use, which may decide about flash attention [what the model was trained with]"
    parser.add_argument("--n-ctx", type=int, default=0, metavar="N", help=about)
    parser.add_argument("--n-rs-seq", type=int, default=0, metavar="N", help="states kept for snapshots [0]")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--verbose", action="store_true", help="print llama.cpp's messages to stderr")
    parser.set_defaults(run=run, parser=parser)


def run(args: argparse.Namespace) -> int:
    """Do what `args` ask for; returns the exit code."""
    for name in ("ctx", "n_ctx"):
        if getattr(args, name) < 0:
            args.parser.error(f"--{name.replace('_', '-')} {getattr(args, name)}: must be 0 or more")
    facts = _examine(args)
    print(json.dumps(facts, indent=2) if args.json else _text(facts))
    return 0


def _examine(args: argparse.Namespace) -> dict[str, Any]:
    model = load(args.model, n_gpu_layers=args.gpu_layers)
    flash = {"on": True, "off": False, "auto": None}[args.flash_attn]
    if flash is None:
        flash = flash_attention(model, {"n_ctx": args.n_ctx})
        flash = True if flash is None and not has_device() else flash  # as llama.cpp decides for a large context
    room = args.ctx + _N_TOKENS
    options: dict[str, Any] = {"n_ctx": room, "n_threads": args.threads, "flash_attn": flash, "spec": None}
    options["n_rs_seq"] = args.n_rs_seq
    # One sequence to measure, one for the dummy token, and the spare one of `auto`.
    with Llama(model, n_seq_max=2, context={"kv_unified": True}, verbose=args.verbose, **options) as llm:
        can = llm.capabilities
        reports: list[WidthReport] = []
        for n_context in sorted({0, args.ctx}):
            reports += measure_widths(llm.context, n_context=n_context, n_tokens=_N_TOKENS, scratch=1)
        same = widths_of_one_class(reports)
        possible = able(can, spare=True)
        costs = {name: _cost(llm, name, args.ctx) for name in NAMES if possible.get(name)}
        width_costs = measure_width_costs(llm.context, WIDTHS)
        return {
            "model": model.path,
            "architecture": model.architecture,
            "quantization": model.quantization,
            "llama_cpp": _core.LLAMA_CPP_COMMIT,
            "backends": _core.backends(),
            "memory": can.kind,
            "flash_attention": flash_attention_text(llm.flash_attn),
            "rollback": llm.rollback,
            "rollback_reason": llm.rollback_reason,
            "n_rs_seq": llm.context.n_rs_seq,
            "strategies": [
                {
                    "name": name,
                    "possible": possible[name],
                    "extra_bytes": extra_bytes(name, can),
                    "cost": costs[name].to_dict() if name in costs else None,
                }
                for name in NAMES
                if name != "auto"
            ],
            "width_costs": [{"width": width, "decode_s": seconds} for width, seconds in width_costs.items()],
            "widths": [report.to_dict() for report in reports],
            "same_as_width_2": sorted(same),
            "plain_in_class": 1 in same,
            "padded_in_class": PADDED in same,
        }


def _cost(llm: Llama, name: str, n_context: int) -> StrategyCost:
    strategy = build(name, llm.context, seq_id=0, spare=llm.context.n_seq_max - 1)
    width = 1 + min(_N_DRAFT, strategy.max_draft)
    n_accepted = min(_N_ACCEPTED, width - 2)
    return measure_cost(
        strategy, width=width, n_accepted=n_accepted, n_rounds=_N_ROUNDS, n_context=n_context, replay=True
    )


def _width_costs(costs: list[dict[str, Any]]) -> str:
    """What the budget starts from, in milliseconds and in decodes of one token."""
    if not costs:
        return "What decodes cost by their width could not be told: the machine is busy, or decodes take long."
    plain = costs[0]["decode_s"]
    rows = [[str(one["width"]), f"{1e3 * one['decode_s']:.3f}", f"{one['decode_s'] / plain:.2f}"] for one in costs]
    about = "Decodes by width in a short context, in ms and in decodes of one token; the budget starts from these:\n"
    return about + table(rows, header=["width", "decode", "of one token"], right=[0, 1, 2])


def _milliseconds(cost: dict[str, Any]) -> list[str]:
    return [str(cost["width"])] + [f"{1e3 * cost[part]:.3f}" for part in ("save_s", "decode_s", "undo_s", "replay_s")]


def _text(facts: dict[str, Any]) -> str:
    about = [
        ["model", f"{facts['model']} ({facts['architecture']}, {facts['quantization']})"],
        ["llama.cpp", f"{facts['llama_cpp']}, {', '.join(facts['backends'])}"],
        ["memory", facts["memory"].replace("_", " ")],
        ["flash attention", facts["flash_attention"]],
        ["rollback auto", f"{facts['rollback']}: {facts['rollback_reason']}"],
    ]
    strategies = [
        [s["name"], "yes", bytes_text(s["extra_bytes"]), *_milliseconds(s["cost"])]
        if s["possible"]
        else [s["name"], "no", *[""] * 6]
        for s in facts["strategies"]
    ]
    widths = [
        [
            "1 + dummy" if r["width"] == PADDED else str(r["width"]),
            str(r["n_context"]),
            "equal" if r["equal"] else "differ",
            f"{r['max_difference']:.1e}" if not r["equal"] else "",
            f"{r['n_flips']} of {r['n_tokens']}" if r["n_flips"] else "",
            f"{r['smallest_margin']:.1e}" if r["n_flips"] else "",
        ]
        for r in facts["widths"]
    ]
    header = ["width", "context", "logits", "difference", "choices that flip", "smallest margin"]
    if facts["plain_in_class"]:
        verdict = "Plain decoding (width 1) gives the same logits to the bit as wider decodes."
    elif facts["padded_in_class"]:
        verdict = "Plain decoding (width 1) is a class of its own; with a dummy token beside it, it is not."
    else:
        verdict = "Plain decoding (width 1) is a class of its own, also with a dummy token beside it."
    return "\n\n".join(
        [
            table(about),
            f"Drafts of {_N_DRAFT}, or as many as snapshots undo, of which {_N_ACCEPTED} are right; in ms.\n"
            "Replay is a decode of the lost tokens alone, which fused replay saves:\n"
            + table(
                strategies,
                header=["strategy", "possible", "state held", "width", "save", "decode", "undo", "replay"],
                right=[2, 3, 4, 5, 6, 7],
            ),
            _width_costs(facts["width_costs"]),
            "Compared with decodes of width 2, random tokens:\n" + table(widths, header=header, right=[0, 1, 3, 4, 5]),
            verdict,
        ]
    )
