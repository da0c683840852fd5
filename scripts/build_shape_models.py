#!/usr/bin/env python3
"""Random-weight Q8_0 models of the true shape of released hybrids, for measuring real state sizes and real costs.

Owns the files in the cache (or in --out) and the command line; leaves shapes and weights to `shape_models`.
Usage: build_shape_models.py [NAME ...] [--out DIR] [--list] [--check]; without names, all of them (3 GB).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np
from shape_models import weights
from shape_models.shapes import SHAPES, Shape, Value
from shape_models.tensors import Normal, metadata, n_parameters, tensors

from pyspec import _core, cache
from pyspec.errors import PyspecError
from pyspec.memory import probe

if TYPE_CHECKING:
    import gguf

# Raise it whenever the files change, so that old ones in the cache are not taken for new.
_RECIPE = 1
_SEED = 1
_CHECK_TOKENS = 16


class BuildError(Exception):
    """A model could not be made or does not decode; the message says why and what to do."""


def folder() -> Path:
    """Where the models lie in the cache."""
    return cache.root() / "shape-models" / f"v{_RECIPE}-seed{_SEED}"


def file_name(shape: Shape) -> str:
    """The file of a shape, in whatever folder."""
    return f"{shape.name}-random-q8_0.gguf"


def ensure(names: Iterable[str], out: Path | None = None) -> dict[str, Path]:
    """Write the models that are missing; safe to call from several processes at once.

    Args:
        names: as in `SHAPES`.
        out: the folder, by default one in the cache.

    Raises:
        BuildError: no shape has that name, or the gguf package is missing.
    """
    shapes = [_shape(name) for name in names]
    return {shape.name: write(shape, out or folder()) for shape in shapes}


def write(shape: Shape, out: Path, *, seed: int = _SEED) -> Path:
    """Write one model into `out` unless it is there; it appears whole or not at all."""
    file = out / file_name(shape)
    if not file.is_file():
        with cache.lock(out / f".{shape.name}.lock"), cache.workspace(out, shape.name) as place:
            if not file.is_file():
                _write(shape, place / file.name, seed)
                (place / file.name).replace(file)
    return file


def check(file: Path, shape: Shape) -> str:
    """Decode a few tokens and measure the state; returns a line that tells what was seen.

    Raises:
        BuildError: logits that are not finite or all the same, or a state of another size than the shape's.
    """
    model = _core.Model(file)
    context = _core.Context(model, n_ctx=256)
    can = probe(context)
    # llama.cpp adds a few words per layer to the numbers themselves.
    if not 0 <= can.state_bytes - shape.state_bytes <= shape.state_bytes // 100:
        raise BuildError(f"{file}: the state has {can.state_bytes} bytes, its shape says {shape.state_bytes}")
    tokens = np.arange(_CHECK_TOKENS) * 7919 % shape.n_vocab
    context.decode(tokens, pos=0, n_outputs=_CHECK_TOKENS)
    for row in range(_CHECK_TOKENS):
        logits = context.logits(row, 1)
        if not np.isfinite(logits).all() or logits.std() == 0.0:
            raise BuildError(f"{file}: the logits of token {row} are not finite or all the same")
    return f"{can.kind} memory, state {can.state_bytes:,} bytes, decodes"


# ------------------------------------------------------------------ writing


def _shape(name: str) -> Shape:
    try:
        return SHAPES[name]
    except KeyError:
        raise BuildError(f"there is no shape called {name!r}; there are {', '.join(SHAPES)}") from None


def _write(shape: Shape, file: Path, seed: int) -> None:
    try:
        import gguf
    except ImportError:
        raise BuildError("gguf is missing; install it into this environment: python -m pip install gguf") from None
    all_tensors = list(tensors(shape))
    writer = gguf.GGUFWriter(file, shape.architecture)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for key, value in metadata(shape).items():
        _add(writer, key, value)
    for tensor in all_tensors:
        quantised = isinstance(tensor.fill, Normal)
        kind = gguf.GGMLQuantizationType.Q8_0 if quantised else gguf.GGMLQuantizationType.F32
        # Not np.uint8, for which the writer would take the shape to be one in bytes.
        writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), weights.n_bytes(tensor), kind)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor in all_tensors:
            writer.write_tensor_data(weights.data(tensor, seed))
    finally:
        writer.close()


def _add(writer: gguf.GGUFWriter, key: str, value: Value) -> None:
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case _:
            writer.add_array(key, value)


# ------------------------------------------------------------------ command line


def _listing(shape: Shape) -> str:
    size = sum(weights.n_bytes(tensor) for tensor in tensors(shape))
    return (
        f"{shape.name}: {shape.architecture}, {n_parameters(shape):,} parameters, {size / 1e6:,.0f} MB, "
        f"{len(shape.layers)} layers, recurrent state {shape.state_bytes:,} bytes\n    from {shape.source}"
    )


def main() -> int:
    """Command line; prints a line for each model on stdout."""
    parser = argparse.ArgumentParser(description="Write random-weight models of the true shape of released hybrids.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(SHAPES)} (default: all, 3 GB)")
    parser.add_argument("--out", type=Path, help="folder to write to (default: in the user's cache)")
    parser.add_argument("--list", action="store_true", help="tell about the shapes and write nothing")
    parser.add_argument("--check", action="store_true", help="load each model, decode, and measure its state")
    options = parser.parse_args()
    try:
        shapes = [_shape(name) for name in options.names or SHAPES]
        if options.list:
            print(*map(_listing, shapes), sep="\n")
            return 0
        for shape in shapes:
            file = write(shape, options.out or folder())
            print(f"{file}: {file.stat().st_size:,} bytes, {n_parameters(shape):,} parameters", flush=True)
            if options.check:
                print(f"    {check(file, shape)}", flush=True)
    except (BuildError, PyspecError, OSError) as error:
        print(f"build_shape_models: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
