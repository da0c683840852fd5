#!/usr/bin/env python3
"""Plain decoding through pyspec against llama.cpp's own llama-bench, in alternating runs.

Builds llama-bench from the vendored tree (`llama_cpp_programs`) unless --llama-bench names one. Prints tokens a second
of both and their ratio (median of paired runs); asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
from pathlib import Path

import llama_cpp_programs

import pyspec
from pyspec import models


def native(program: Path, model: Path, n_new: int, n_threads: int) -> float:
    """Tokens a second of llama-bench's token generation."""
    command = [
        str(program),
        "-m",
        str(model),
        "-p",
        "0",
        "-n",
        str(n_new),
        "-r",
        "1",
        "-t",
        str(n_threads),
        "-o",
        "json",
    ]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return float(found[0]["avg_ts"])


def main() -> None:
    """Print one line per model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=["smollm2-135m", "tiny-target"], help="names or paths")
    parser.add_argument("--llama-bench", type=Path, help="a llama-bench of the same llama.cpp")
    parser.add_argument("-n", type=int, default=128, help="tokens a run")
    parser.add_argument("-r", type=int, default=7, help="paired runs")
    parser.add_argument("-t", type=int, default=2, help="threads")
    args = parser.parse_args()
    program = args.llama_bench or llama_cpp_programs.program("llama-bench")
    for name in args.models:
        path = models.path(name) or (models.fetch(name) if name in models.names() else Path(name))
        ratios, ours, theirs = [], [], []
        with pyspec.Llama(path, n_ctx=512, n_threads=args.t, spec=None) as llm:
            llm.generate([1], max_tokens=args.n, ignore_eos=True)
            for _ in range(args.r):
                theirs.append(native(program, path, args.n, args.t))
                ours.append(llm.generate([1], max_tokens=args.n, ignore_eos=True).timings.tokens_per_s)
                ratios.append(ours[-1] / theirs[-1])
        print(
            f"{name}: pyspec {statistics.median(ours):.1f}, llama-bench {statistics.median(theirs):.1f} tokens/s, "
            f"ratio {statistics.median(ratios):.3f} (of {args.r} pairs: {min(ratios):.3f} to {max(ratios):.3f})"
        )


if __name__ == "__main__":
    main()
