"""From what a user names to a loaded model, with a bar while it takes.

Owns finding and loading for every subcommand; leaves contexts and what is done with the model to them.
"""

from __future__ import annotations

from pathlib import Path

from pyspec import models
from pyspec._core import Model
from pyspec.progress import ProgressBar

__all__ = ["find", "load"]


def find(name_or_path: str) -> Path:
    """The file of a model; a named one is fetched when it is missing.

    Raises:
        ModelLoadError: neither a name nor a file.
        ModelFetchError: it cannot be fetched.
    """
    with ProgressBar(f"fetching {name_or_path}") as bar:
        return models.resolve(name_or_path, progress=bar)


def load(name_or_path: str, *, n_gpu_layers: int = -1) -> Model:
    """Load a model by name or path. Ctrl-C cancels.

    Raises:
        ModelLoadError, ModelFetchError: see `find` and `pyspec._core.Model`.
    """
    path = find(name_or_path)
    with ProgressBar(f"loading {path.name}") as bar:
        return Model(path, n_gpu_layers=n_gpu_layers, progress=bar)
