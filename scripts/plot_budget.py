#!/usr/bin/env python3
"""Draw what the budget decides in real generations: docs/budget-*.svg.

Measures on this machine, which should have nothing else to do. Run:
python scripts/plot_budget.py smollm2-135m --svg docs/budget-smollm2-135m.svg
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pyspec import models
from pyspec._core import Model
from pyspec.bench.budget_plot import budget_svg
from pyspec.bench.budget_runs import measure_budget
from pyspec.bench.drafting_options import DraftingBenchOptions


def main() -> None:
    """Write the picture, and the data if asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="smollm2-135m", help="a name or a path [smollm2-135m]")
    parser.add_argument("--svg", type=Path, required=True, help="the picture")
    parser.add_argument("--json", type=Path, help="its data")
    parser.add_argument("--from-json", type=Path, help="draw these data again, measure nothing")
    parser.add_argument("--workloads", default="code-rewrite,agent,prose", help="of `pyspec bench drafting`")
    parser.add_argument("-n", "--n-tokens", type=int, default=1000, help="most tokens of a generation [1000]")
    parser.add_argument("-t", "--threads", type=int, default=0, help="CPU threads [physical cores]")
    parser.add_argument("-ngl", "--gpu-layers", type=int, default=-1, help="layers on the GPU [all]")
    parser.add_argument("--runs", type=int, default=3, help="runs of each, the middle one is drawn [3]")
    args = parser.parse_args()
    if args.from_json:
        data = json.loads(args.from_json.read_text(encoding="utf-8"))
    else:
        options = DraftingBenchOptions(
            workloads=tuple(args.workloads.split(",")),
            budgets=("measured",),
            n_tokens=args.n_tokens,
            n_runs=args.runs,
            n_threads=args.threads,
            n_gpu_layers=args.gpu_layers,
        )
        data = measure_budget(Model(models.resolve(args.model), n_gpu_layers=args.gpu_layers), options)
    args.svg.write_text(budget_svg(data), encoding="utf-8")
    if args.json:
        args.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
