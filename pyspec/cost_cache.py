"""Measured costs that are kept in the user's cache: one file for each model file, its settings, machine and llama.cpp.

Owns the key, the reading and the writing in one step; leaves what is measured, and its format, to the callers. A cache
that cannot be read or written only means measuring again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pyspec import cache
from pyspec._core import LLAMA_CPP_COMMIT, Context, devices

__all__ = ["CostCache"]

_T = TypeVar("_T")
_log = logging.getLogger("pyspec")


class CostCache:
    """The file of what is known about the decodes of `context`.

    Args:
        context: its model, sizes and threads are part of the key.
        folder: name inside the cache, for one kind of costs.
        version: of the measurement and its format.
        settings: whatever else the costs depend on.
    """

    def __init__(
        self, context: Context, folder: str, *, version: int, settings: Mapping[str, str] | None = None
    ) -> None:
        self._about = folder.replace("-", " ")
        self.path = cache.root() / folder / f"{_key(context, version, settings or {})}.json"

    def read(self, parse: Callable[[Any], _T]) -> _T | None:
        """What `parse` makes of the file's data, None where there is no file or none that it can make sense of.

        `parse` may raise ValueError, TypeError, KeyError or AttributeError for data of another form.
        """
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self._ignore(error)
            return None
        try:
            return parse(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self._ignore(error)
            return None

    def write(self, data: object) -> None:
        """Replace the file in one step; a cache that must not be written to is left alone."""
        temporary = self.path.with_name(f".{self.path.name}-{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(data, indent=1), encoding="utf-8")
            temporary.replace(self.path)
        except OSError as error:
            _log.debug("%s are not kept: %s", self._about, error)
            with contextlib.suppress(OSError):
                temporary.unlink()

    def _ignore(self, error: Exception) -> None:
        _log.info("%s of %s are damaged and measured again: %s", self._about, self.path, error)


def _key(context: Context, version: int, settings: Mapping[str, str]) -> str:
    model = context.model
    about: dict[str, Any] = {
        "format": version,
        "llama_cpp": LLAMA_CPP_COMMIT,
        "model": os.path.abspath(model.path),
        "devices": [(d.name, d.description) for d in devices()],
        "context": [
            context.n_ctx,
            context.n_batch,
            context.n_ubatch,
            context.n_seq_max,
            context.n_rs_seq,
            context.kv_unified,
            context.n_threads,
        ],
        "settings": dict(settings),
    }
    with contextlib.suppress(OSError):
        status = os.stat(model.path)
        about["file"] = [status.st_size, status.st_mtime_ns]
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:32]
