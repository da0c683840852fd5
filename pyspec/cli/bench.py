"""`pyspec bench`: benchmarks, each with a command of its own.

Owns the choice between them, and the outputs that all of them have; each benchmark's options and texts are in one file
named after it, the measuring is `pyspec.bench`'s.
"""

from __future__ import annotations

import argparse

from pyspec.cli import bench_drafting, bench_rollback
from pyspec.cli.parser import Parser

__all__ = ["add_parser"]


def add_parser(subparsers: argparse._SubParsersAction[Parser]) -> None:
    """Enter `bench` and its own commands."""
    parser = subparsers.add_parser(
        "bench",
        help="benchmarks to run on any machine and post",
        description="Measure, and print a table; as Markdown, JSON or SVG where asked for.",
    )
    parser.set_defaults(parser=parser)
    commands = parser.add_subparsers(metavar="BENCHMARK", title="benchmarks", required=True, parser_class=Parser)
    for benchmark in (bench_drafting, bench_rollback):
        benchmark.add_parser(commands)
