"""Benchmarks that any machine can run, as data: nothing here prints.

`rollback` measures what a rejected draft costs under each strategy; `rollback_tables` and `rollback_plot` show its
data as Markdown and SVG. `machine`, `prompts` and `trace` serve every benchmark.
"""

from pyspec.bench.rollback import RollbackBenchOptions, RollbackReport, measure_rollback
from pyspec.bench.rollback_plot import rollback_svg
from pyspec.bench.rollback_tables import rollback_markdown
from pyspec.bench.trace import Traced, read_trace, write_trace

__all__ = [
    "RollbackBenchOptions",
    "RollbackReport",
    "Traced",
    "measure_rollback",
    "read_trace",
    "rollback_markdown",
    "rollback_svg",
    "write_trace",
]
