"""The file of a saved session: what stands in it, and that it is whole.

Owns the format: a magic, a version, a JSON header with the lengths of the parts that follow, the parts, and a SHA-256
of everything before it. Nothing in a file is ever executed. Leaves the meaning of its contents to `pyspec.session`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from pyspec.errors import InvalidValueError, StateError
from pyspec.held import HeldMemory
from pyspec.session.plain_data import pack, unpack
from pyspec.speculators import Tokens, as_tokens

__all__ = ["SessionData", "read_session", "write_session"]

_MAGIC = b"pyspec-session\0\0"
_VERSION = 2
_N_DIGEST = 32
_N_HEADER_MAX = 2**26


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionData:
    """What a file holds.

    Attributes:
        model: which model the session belongs to, as plain data.
        tokens: [n_tokens] the text.
        turns: plain data.
        defaults: options of generations, plain data.
        overflow: what happens where the context is full, as plain data.
        memory: None where memory did not hold this session's text.
        drafting: what the speculators learned, nested plain data with arrays; None for nothing.
    """

    model: dict[str, Any]
    tokens: Tokens
    turns: list[dict[str, Any]]
    defaults: dict[str, Any]
    overflow: dict[str, Any]
    memory: HeldMemory | None
    drafting: dict[str, Any] | None


def write_session(path: str | PathLike[str], data: SessionData) -> int:
    """Write `data` to `path` in one step; returns the file's bytes.

    Raises:
        InvalidValueError: options that JSON cannot hold.
        OSError: the file cannot be written; an old one is still there.
    """
    parts: list[bytes] = []
    about = {
        "model": data.model,
        "tokens": pack(np.asarray(data.tokens, np.int32), parts),
        "turns": data.turns,
        "defaults": data.defaults,
        "overflow": data.overflow,
        "memory": pack(data.memory.to_plain(), parts) if data.memory is not None else None,
        "drafting": pack(data.drafting, parts),
        "lengths": [len(part) for part in parts],
    }
    try:
        header = json.dumps(about, default=_plain).encode()
    except (TypeError, ValueError) as error:
        allowed = f"options that JSON can hold ({error})"
        raise InvalidValueError(name="defaults", value=data.defaults, allowed=allowed) from error
    if len(header) > _N_HEADER_MAX:
        allowed = f"defaults and turns of at most {_N_HEADER_MAX} bytes as JSON, not {len(header)}"
        raise InvalidValueError(name="session", value=f"{len(data.turns)} turns", allowed=allowed)
    start = _MAGIC + _VERSION.to_bytes(4, "little") + len(header).to_bytes(4, "little") + header
    return _write([start, *parts], Path(path))


def _write(chunks: list[bytes], target: Path) -> int:
    """Chunks and their digest, beside the target first and then in its place."""
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(target.parent))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    digest, n_bytes = hashlib.sha256(), 0
    try:
        with os.fdopen(handle, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
                digest.update(chunk)
                n_bytes += len(chunk)
            file.write(digest.digest())
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileNotFoundError):
            os.chmod(temporary, target.stat().st_mode & 0o777)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return n_bytes + _N_DIGEST


def read_session(path: str | PathLike[str]) -> SessionData:
    """Inverse of `write_session`.

    Raises:
        StateError: not such a file, of another version, cut or damaged.
        OSError: it cannot be read.
    """
    raw = Path(path).read_bytes()
    name = Path(path).name
    n_fixed = len(_MAGIC) + 8
    if not raw.startswith(_MAGIC) or len(raw) < n_fixed:
        raise StateError(reason=f"{name} is no saved session")
    version = int.from_bytes(raw[len(_MAGIC) : len(_MAGIC) + 4], "little")
    if version != _VERSION:
        raise StateError(reason=f"{name} is a session of version {version}, known is {_VERSION}")
    n_header = int.from_bytes(raw[len(_MAGIC) + 4 : n_fixed], "little")
    if n_header > _N_HEADER_MAX or n_fixed + n_header + _N_DIGEST > len(raw):
        raise StateError(reason=f"{name} is cut: {len(raw)} bytes, its header alone has {n_header}")
    view = memoryview(raw)
    if hashlib.sha256(view[:-_N_DIGEST]).digest() != raw[-_N_DIGEST:]:
        raise StateError(reason=f"{name} is cut or damaged: its checksum does not fit")
    try:
        about = json.loads(raw[n_fixed : n_fixed + n_header])
        return _data(about, _parts(view, n_fixed + n_header, about["lengths"]))
    except StateError as error:
        raise StateError(reason=f"{name} is a session of another make: {error}") from error
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as error:
        raise StateError(reason=f"{name} is a session of another make: {error!r}") from error


def _data(about: dict[str, Any], parts: list[memoryview]) -> SessionData:
    memory, drafting = unpack(about["memory"], parts), unpack(about["drafting"], parts)
    return SessionData(
        model=dict(about["model"]),
        tokens=as_tokens(unpack(about["tokens"], parts)),
        turns=[dict(turn) for turn in about["turns"]],
        defaults=dict(about["defaults"]),
        overflow=dict(about["overflow"]),
        memory=HeldMemory.from_plain(memory) if memory is not None else None,
        drafting=dict(drafting) if drafting is not None else None,
    )


def _plain(value: Any) -> Any:
    """Numbers and arrays of numpy as JSON has them."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no plain data")


def _parts(view: memoryview, start: int, lengths: list[int]) -> list[memoryview]:
    if any(n < 0 for n in lengths) or start + sum(lengths) + _N_DIGEST != len(view):
        raise ValueError("parts do not fill the file")
    parts = []
    for n in lengths:
        parts.append(view[start : start + n])
        start += n
    return parts
