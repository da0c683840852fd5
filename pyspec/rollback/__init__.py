"""Rollback: bringing a sequence's memory back after a rejected draft.

One strategy a file, all behind `Rollback`; `choose` picks one for a live context.
"""

from pyspec.rollback.choose import NAMES, RollbackName, check_name, choose, needs_spare
from pyspec.rollback.protocol import Rollback

__all__ = ["NAMES", "Rollback", "RollbackName", "check_name", "choose", "needs_spare"]
