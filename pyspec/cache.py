"""The user's cache folder: where it lies, who may write to it, and room to work in.

Owns the root, the lock between processes and the temporary folder; leaves what is cached to its callers.
Nothing here reads or changes a finished file.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["lock", "root", "workspace"]

_POLL_S = 0.05

if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: int) -> bool:
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def _try_lock(file: int) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def root() -> Path:
    """The cache folder: `PYSPEC_CACHE`, or `pyspec` in `XDG_CACHE_HOME` or `~/.cache`. Not created here."""
    if own := os.environ.get("PYSPEC_CACHE"):
        return Path(own).expanduser().absolute()
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification tells to ignore relative paths.
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "pyspec"


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Hold `path` (created if missing) against other threads and processes; waits for as long as it takes.

    The system gives the lock back when a process dies, so a crash never leaves a stale one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        while not _try_lock(file):
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(file)


@contextmanager
def workspace(folder: Path, name: str) -> Iterator[Path]:
    """A temporary folder inside `folder`, gone afterwards whatever happens.

    Being on the same file system, a finished file is moved out of it in one step. The caller holds a lock on
    `name`: folders of the same name that a killed process left behind are removed first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob(f".{name}-tmp-*"):
        shutil.rmtree(stale, ignore_errors=True)
    place = Path(tempfile.mkdtemp(prefix=f".{name}-tmp-", dir=folder))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
