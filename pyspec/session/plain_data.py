"""Nested plain data with arrays and bytes, as JSON and parts beside it.

Owns the two directions, and that reading makes nothing but numbers, texts, lists, dicts, bytes and arrays of numbers.
Leaves files and the meaning of the data to others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["pack", "unpack"]

_PART = "$part"
"""Key of the dict that stands for a part; no other dict may have it."""

_KINDS = "biuf"
"""Kinds of numpy types that are plain numbers."""


def pack(data: Any, parts: list[bytes]) -> Any:
    """`data` as JSON can hold it; bytes and arrays become entries of `parts`, in order.

    Args:
        data: None, bools, numbers, texts, bytes, arrays of numbers, and lists, tuples and dicts of such.
        parts: is appended to.

    Raises:
        TypeError: something else.
    """
    if data is None or isinstance(data, (bool, int, float, str)):
        return data
    if isinstance(data, np.generic) and data.dtype.kind in _KINDS:
        return data.item()
    if isinstance(data, (bytes, bytearray, memoryview)):
        parts.append(bytes(data))
        return {_PART: len(parts) - 1}
    if isinstance(data, np.ndarray) and data.dtype.kind in _KINDS:
        array = np.ascontiguousarray(data, data.dtype.newbyteorder("<"))
        parts.append(array.tobytes())
        return {_PART: len(parts) - 1, "dtype": array.dtype.str, "shape": list(data.shape)}
    if isinstance(data, (list, tuple)):
        return [pack(one, parts) for one in data]
    if isinstance(data, Mapping) and all(isinstance(name, str) and name != _PART for name in data):
        return {name: pack(one, parts) for name, one in data.items()}
    raise TypeError(f"{type(data).__name__} is no plain data")


def unpack(packed: Any, parts: Sequence[memoryview]) -> Any:
    """Inverse of `pack`; tuples come back as lists, arrays are new.

    Raises:
        ValueError, TypeError, KeyError, IndexError: it was not made by `pack`.
    """
    if isinstance(packed, list):
        return [unpack(one, parts) for one in packed]
    if not isinstance(packed, dict):
        return packed
    if _PART not in packed:
        return {name: unpack(one, parts) for name, one in packed.items()}
    number = packed[_PART]
    if not isinstance(number, int) or not 0 <= number < len(parts):
        raise IndexError(f"part {number!r} of {len(parts)}")
    if "dtype" not in packed:
        return bytes(parts[number])
    kind = np.dtype(str(packed["dtype"]))
    if kind.kind not in _KINDS or kind.subdtype is not None:
        raise TypeError(f"an array of {kind}")
    shape = [int(n) for n in packed["shape"]]
    if any(n < 0 for n in shape):
        raise ValueError(f"an array of shape {shape}")
    return np.frombuffer(parts[number], kind).reshape(shape).astype(kind.newbyteorder("="))
