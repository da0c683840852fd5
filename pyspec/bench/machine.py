"""What a benchmark's numbers belong to: model, build and machine, as plain data that may be published.

Owns the choice of these facts, and that no folder or user name is among them; leaves the numbers to the benchmarks.
"""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pyspec._core import LLAMA_CPP_COMMIT, Context, Device, backends, devices

__all__ = ["describe"]


def describe(context: Context, *, state_bytes: int) -> dict[str, Any]:
    """Facts about the model of `context`, the build and the machine; sizes in bytes.

    `state_bytes` is the recurrent state of one sequence, 0 where there is none.
    """
    model, found = context.model, devices()
    return {
        "model": Path(model.path).name,
        "architecture": model.architecture,
        "quantization": model.quantization,
        "n_params": model.n_params,
        "n_bytes": model.n_bytes,
        "memory": model.memory_kind,
        "state_bytes": state_bytes,
        "backends": backends(),
        "devices": [{"name": d.name, "kind": d.kind, "backend": d.backend, "about": d.description} for d in found],
        "cpu": _cpu(found),
        "n_threads": context.n_threads,
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "pyspec": version("pyspec-llama"),
        "llama_cpp": LLAMA_CPP_COMMIT,
    }


def _cpu(found: list[Device]) -> str:
    """The processor's name, as its driver says it; the kind of machine where it says none."""
    named = (d.description for d in found if d.kind == "cpu" and d.description not in ("", d.name))
    return next(named, "") or platform.processor() or platform.machine()
