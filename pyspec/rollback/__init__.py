"""Rollback: bringing a sequence's memory back after a rejected draft.

One strategy a file, all behind `Rollback`; `choose` picks one for a live context, by what `timing` measured.
"""

from pyspec.rollback.choose import (
    NAMES,
    RollbackName,
    able,
    build,
    candidates,
    check_name,
    choose,
    extra_bytes,
    needs_spare,
)
from pyspec.rollback.costs import StrategyCost, cells_needed, measure_cost
from pyspec.rollback.protocol import Rollback
from pyspec.rollback.timing import cached_costs

__all__ = [
    "NAMES",
    "Rollback",
    "RollbackName",
    "StrategyCost",
    "able",
    "build",
    "cached_costs",
    "candidates",
    "cells_needed",
    "check_name",
    "choose",
    "extra_bytes",
    "measure_cost",
    "needs_spare",
]
