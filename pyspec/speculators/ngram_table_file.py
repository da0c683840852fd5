"""The file format of llama.cpp's lookup caches (common/ngram-cache.cpp), read with checks and written in one step.

Owns the layout and what a damaged or foreign file is told; leaves the meaning of the rows to `ngram_table`.
The file is a list of records of little-endian 32-bit integers, without a header:

    4 x token of the n-gram, -1 behind those of fewer tokens;  n_followers;  n_followers x (token, count)
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyspec.errors import StateError

__all__ = ["N_MAX", "Rows", "find_wrong_row", "read_rows", "write_rows"]

Rows = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]
"""N-grams [n_rows, 4], the token that followed [n_rows], how often [n_rows]."""

N_MAX = 4  # tokens of an n-gram
_HEADER = N_MAX + 1
_CELL = np.dtype("<i4")


def read_rows(path: str | os.PathLike[str]) -> Rows:
    """All rows of a file, in its order. An empty file has none.

    Raises:
        StateError: it cannot be read, or is damaged or something else; names the file and the byte.
    """
    name = os.fspath(path)
    try:
        data = Path(name).read_bytes()
    except OSError as error:
        raise StateError(reason=f"cannot read lookup cache {name!r}: {error.strerror or error}") from error
    if len(data) % _CELL.itemsize:
        raise _damaged(name, len(data), "the file ends inside a number")
    cells = np.frombuffer(data, _CELL).astype(np.int32)
    records = _records(name, cells)
    n_followers = cells[records + N_MAX].astype(np.int64)
    before = np.cumsum(n_followers) - n_followers
    places = np.repeat(records + _HEADER - 2 * before, n_followers) + 2 * np.arange(n_followers.sum())
    ngrams = np.repeat(cells[records[:, None] + np.arange(N_MAX)], n_followers, axis=0)
    rows = ngrams, cells[places], cells[places + 1]
    if (wrong := find_wrong_row(rows)) is not None:
        i, reason = wrong
        raise _damaged(name, int(places[i]) * _CELL.itemsize, reason)
    return rows


def _records(name: str, cells: NDArray[np.int32]) -> NDArray[np.int64]:
    """Where each record begins."""
    numbers: memoryview[int] = memoryview(cells)  # type: ignore[arg-type]
    records, start, n_cells = [], 0, len(cells)
    while start < n_cells:
        if start + _HEADER > n_cells:
            raise _damaged(name, start * _CELL.itemsize, "the file ends inside a record")
        n_followers = numbers[start + N_MAX]
        end = start + _HEADER + 2 * n_followers
        if n_followers < 1 or end > n_cells:
            n_left = (n_cells - start - _HEADER) // 2
            reason = f"an n-gram with {n_followers} followers, and there are {n_left} more pairs"
            raise _damaged(name, start * _CELL.itemsize, reason)
        records.append(start)
        start = end
    return np.array(records, np.int64)


def _damaged(name: str, byte: int, reason: str) -> StateError:
    return StateError(reason=f"{name!r} is damaged or no lookup cache: at byte {byte}: {reason}")


def find_wrong_row(rows: Rows) -> tuple[int, str] | None:
    """The first row that no text can give, and what is wrong with it."""
    ngrams, tokens, counts = rows
    wrong_ngram = (ngrams[:, 0] < 0) | (ngrams < -1).any(1) | ((ngrams[:, 1:] >= 0) & (ngrams[:, :-1] < 0)).any(1)
    is_wrong = wrong_ngram | (tokens < 0) | (counts < 1)
    if not is_wrong.any():
        return None
    i = int(is_wrong.argmax())
    if wrong_ngram[i]:
        return i, f"the n-gram {ngrams[i].tolist()}"
    return i, f"token {tokens[i]}, seen {counts[i]} times"


def write_rows(path: str | os.PathLike[str], starts: NDArray[np.int64], rows: Rows) -> None:
    """Write rows of which each n-gram's begin at `starts` [n_ngrams]; the file is the old one or the new, never half.

    Raises:
        StateError: it cannot be written; names the file. An older file is as it was.
    """
    ngrams, tokens, counts = rows
    n_followers = np.diff(starts, append=len(tokens))
    records = _HEADER * np.arange(len(starts)) + 2 * starts
    cells = np.empty(_HEADER * len(starts) + 2 * len(tokens), _CELL)
    cells[records[:, None] + np.arange(N_MAX)] = ngrams[starts]
    cells[records + N_MAX] = n_followers
    places = 2 * np.arange(len(tokens)) + _HEADER * np.repeat(np.arange(1, len(starts) + 1), n_followers)
    cells[places], cells[places + 1] = tokens, counts
    target = Path(path)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(cells.tobytes())
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except OSError as error:
        raise StateError(reason=f"cannot write lookup cache {str(target)!r}: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)
