"""Benchmarks that any machine can run, as data: nothing here prints.

`rollback` measures what a rejected draft costs under each strategy, `drafting` what speculators gain on texts of
several kinds, `budget_runs` what the budget decides round by round; `simulate` plays the same texts without a model.
`*_tables` and `*_plot` show their data as Markdown and SVG. `machine`, `prompts`, `trace`, `tables` and
`svg` serve every benchmark.
"""

from pyspec.bench.drafting import DraftingBenchOptions, DraftingReport, measure_drafting
from pyspec.bench.drafting_plot import drafting_svg
from pyspec.bench.drafting_rows import drafting_data
from pyspec.bench.drafting_tables import drafting_markdown
from pyspec.bench.forced import Forced
from pyspec.bench.rollback import RollbackBenchOptions, RollbackReport, measure_rollback
from pyspec.bench.rollback_plot import rollback_svg
from pyspec.bench.rollback_tables import rollback_markdown
from pyspec.bench.trace import Traced, read_trace, write_trace
from pyspec.bench.workloads import Workload

__all__ = [
    "DraftingBenchOptions",
    "DraftingReport",
    "Forced",
    "RollbackBenchOptions",
    "RollbackReport",
    "Traced",
    "Workload",
    "drafting_data",
    "drafting_markdown",
    "drafting_svg",
    "measure_drafting",
    "measure_rollback",
    "read_trace",
    "rollback_markdown",
    "rollback_svg",
    "write_trace",
]
