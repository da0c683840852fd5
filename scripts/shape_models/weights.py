"""Random bytes of a tensor, quick and the same on every machine.

Owns the stream of random numbers and the Q8_0 blocks; leaves ranges and names to `tensors`. Only the raw output of
PCG64 is used: NumPy promises that it never changes, and it is as fast as memory.
"""

from __future__ import annotations

import math
import zlib

import numpy as np
from numpy.typing import NDArray

from shape_models.tensors import Normal, Tensor, Uniform

__all__ = ["data", "n_bytes"]

# ggml's block_q8_0: a scale in F16, then 32 signed bytes.
_N_WEIGHTS, _SCALE_BYTES = 32, 2
_BLOCK_BYTES = _SCALE_BYTES + _N_WEIGHTS
# A random byte as a quant; -128 becomes -127 because ggml's own quantiser never writes it.
_QUANT_STD = math.sqrt(sum(max(q, -127) ** 2 for q in range(-128, 128)) / 256)


def n_bytes(tensor: Tensor) -> int:
    """Bytes of the tensor in the file."""
    n = math.prod(tensor.shape)
    if isinstance(tensor.fill, Uniform):
        return n * 4
    assert tensor.shape[-1] % _N_WEIGHTS == 0, f"{tensor.name}: a row of {tensor.shape[-1]} is no whole Q8_0 blocks"
    return n // _N_WEIGHTS * _BLOCK_BYTES


def data(tensor: Tensor, seed: int) -> NDArray[np.uint8] | NDArray[np.float32]:
    """The tensor's content, which depends on nothing but its name, shape, range and the seed.

    Returns:
        Q8_0 as uint8 [n_out, bytes of a row], F32 as float32 of the tensor's shape.
    """
    stream = np.random.PCG64([seed, zlib.crc32(tensor.name.encode())])
    if isinstance(tensor.fill, Uniform):
        return _uniform(stream, tensor.shape, tensor.fill)
    return _q8_0(stream, tensor.shape, tensor.fill)


def _uniform(stream: np.random.PCG64, shape: tuple[int, ...], fill: Uniform) -> NDArray[np.float32]:
    unit = (stream.random_raw(math.prod(shape)) >> np.uint64(11)) * 2.0**-53
    values: NDArray[np.float32] = (fill.low + unit * (fill.high - fill.low)).astype(np.float32).reshape(shape)
    return values


def _q8_0(stream: np.random.PCG64, shape: tuple[int, ...], fill: Normal) -> NDArray[np.uint8]:
    n = math.prod(shape) // _N_WEIGHTS * _BLOCK_BYTES
    quants = stream.random_raw(-(-n // 8)).astype("<u8", copy=False).view(np.int8)[:n]
    np.maximum(quants, -127, out=quants)
    blocks = quants.view(np.uint8).reshape(-1, _BLOCK_BYTES)
    blocks[:, :_SCALE_BYTES] = np.array([fill.std / _QUANT_STD], dtype="<f2").view(np.uint8)
    return blocks.reshape(shape[0], -1)
