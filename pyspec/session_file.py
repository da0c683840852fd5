"""The file of a saved session: what stands in it, and that it is whole.

Owns the format: a magic, a version, a JSON header with the lengths of the parts that follow, the parts, and a SHA-256
of everything before it. Nothing in a file is ever executed. Leaves the meaning of the parts to `pyspec.session`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import tempfile
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from pyspec.errors import InvalidValueError, StateError
from pyspec.speculators import Tokens

__all__ = ["HeldMemory", "SessionData", "read_session", "write_session"]

_MAGIC = b"pyspec-session\0\0"
_VERSION = 1
_N_DIGEST = 32
_N_HEADER_MAX = 2**26


@dataclass(frozen=True, slots=True)
class HeldMemory:
    """What a context holds of a session's text.

    Attributes:
        tokens: [n_past] those in memory.
        state: bytes of the whole state (`State.to_bytes`).
        checkpoints: positions and bytes of earlier states, ascending.
    """

    tokens: Tokens
    state: bytes
    checkpoints: list[tuple[int, bytes]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SessionData:
    """What a file holds.

    Attributes:
        model: which model the session belongs to, as plain data.
        tokens: [n_tokens] the text.
        turns: plain data.
        defaults: options of generations, plain data.
        memory: None where memory did not hold this session's text.
    """

    model: dict[str, Any]
    tokens: Tokens
    turns: list[dict[str, Any]]
    defaults: dict[str, Any]
    memory: HeldMemory | None


def write_session(path: str | PathLike[str], data: SessionData) -> int:
    """Write `data` to `path` in one step; returns the file's bytes.

    Raises:
        InvalidValueError: options that JSON cannot hold.
        OSError: the file cannot be written; an old one is still there.
    """
    parts = [np.ascontiguousarray(data.tokens, "<i4").tobytes()]
    positions: list[int] = []
    if data.memory is not None:
        parts += [np.ascontiguousarray(data.memory.tokens, "<i4").tobytes(), data.memory.state]
        positions = [pos for pos, _ in data.memory.checkpoints]
        parts += [state for _, state in data.memory.checkpoints]
    about = {
        "model": data.model,
        "turns": data.turns,
        "defaults": data.defaults,
        "checkpoints": positions,
        "lengths": [len(part) for part in parts],
    }
    try:
        header = json.dumps(about, default=_plain).encode()
    except (TypeError, ValueError) as error:
        allowed = f"options that JSON can hold ({error})"
        raise InvalidValueError(name="defaults", value=data.defaults, allowed=allowed) from error
    start = _MAGIC + _VERSION.to_bytes(4, "little") + len(header).to_bytes(4, "little") + header
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(target.parent))
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    digest, n_bytes = hashlib.sha256(), 0
    try:
        with os.fdopen(handle, "wb") as file:
            for part in (start, *parts):
                file.write(part)
                digest.update(part)
                n_bytes += len(part)
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
    if hashlib.sha256(raw[:-_N_DIGEST]).digest() != raw[-_N_DIGEST:]:
        raise StateError(reason=f"{name} is cut or damaged: its checksum does not fit")
    try:
        about = json.loads(raw[n_fixed : n_fixed + n_header])
        parts = _parts(raw, n_fixed + n_header, about["lengths"])
        memory = None
        if len(parts) > 1:
            states = [bytes(part) for part in parts[3:]]
            memory = HeldMemory(
                _tokens(parts[1]), bytes(parts[2]), list(zip(map(int, about["checkpoints"]), states, strict=True))
            )
        return SessionData(
            model=dict(about["model"]),
            tokens=_tokens(parts[0]),
            turns=[dict(turn) for turn in about["turns"]],
            defaults=dict(about["defaults"]),
            memory=memory,
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise StateError(reason=f"{name} is a session of another make: {error!r}") from error


def _plain(value: Any) -> Any:
    """Numbers and arrays of numpy as JSON has them."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no plain data")


def _parts(raw: bytes, start: int, lengths: list[int]) -> list[memoryview]:
    if any(n < 0 for n in lengths) or start + sum(lengths) + _N_DIGEST != len(raw):
        raise ValueError("parts do not fill the file")
    view, parts = memoryview(raw), []
    for n in lengths:
        parts.append(view[start : start + n])
        start += n
    return parts


def _tokens(part: memoryview) -> Tokens:
    return np.frombuffer(part, "<i4").astype(np.int32)
