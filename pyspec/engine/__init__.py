"""Many requests at once.

`engine` takes them, `worker` is its thread, `scheduler` says what each decode holds, `sequences` decodes it.
"""

from pyspec.engine.engine import Engine
from pyspec.engine.slots import EngineStats
from pyspec.engine.ticket import Ticket

__all__ = ["Engine", "EngineStats", "Ticket"]
