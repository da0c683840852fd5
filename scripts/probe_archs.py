"""What the memory of each architecture can do, found by trying it on random models.

Owns the trials and the table that it prints; leaves the models to build_test_models.py and laws to the tests.
Usage: probe_archs.py [--models DIR] [--limit SECONDS] [--json FILE] [NAME ...]; a process for each model.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import build_test_models
import numpy as np

from pyspec import errors
from pyspec._core import STATE_NONE, STATE_ON_DEVICE, STATE_PARTIAL_ONLY, Context, Model, State

N_RS_SEQ = 4
N_PROMPT = 12
N_DRAFT = 4
PROMPT = [(7 * i + 3) % 128 for i in range(N_PROMPT)]
DRAFT = [11, 90, 5, 77]
OTHER = [64, 2, 101, 33]  # what is decoded instead, after the draft was undone

_COLUMNS = (
    "memory",
    "trim",
    "n_rs_seq",
    "snapshot",
    "cp_whole",
    "cp_part",
    "shift",
    "shadow",
    "fork",
    "partial",
    "partial_bytes",
    "device",
    "full",
    "full_bytes",
    "batch2",
)


def _step(name: str) -> None:
    """Leave a trace for the report of an abort."""
    print(f"step: {name}", file=sys.stderr, flush=True)


def _prompted(model: Model, **options: Any) -> Context:
    context = Context(model, n_ctx=256, n_batch=64, n_ubatch=64, n_threads=1, n_threads_batch=1, **options)
    context.decode(PROMPT, pos=0)
    return context


def _same(context: Context, expected: np.ndarray, *, seq_id: int = 0) -> str:
    """Decode `OTHER` after the prompt and compare with a context that never saw the draft."""
    context.decode(OTHER, pos=N_PROMPT, seq_id=seq_id, n_outputs=N_DRAFT)
    rows = context.logits()
    if np.array_equal(rows, expected):
        return "exact"
    return f"off {float(np.max(np.abs(rows - expected))):.0e}"


def _trim(model: Model, expected: np.ndarray) -> str:
    context = _prompted(model)
    context.decode(DRAFT, pos=N_PROMPT)
    context.seq_rm(0, N_PROMPT, -1)
    return _same(context, expected)


def _snapshot(model: Model, expected: np.ndarray) -> str:
    context = _prompted(model, n_rs_seq=N_RS_SEQ)
    # Less than the last decode held: undoing all of it would leave a stale state.
    context.seq_rm(0, N_PROMPT - 2, -1)
    context.decode(PROMPT[-2:], pos=N_PROMPT - 2)
    return _same(context, expected)


def _shadow(model: Model, expected: np.ndarray) -> str:
    context = _prompted(model, n_seq_max=2)
    if not context.can_seq_cp(partial=True):
        return "-"
    context.seq_cp(0, 1, N_PROMPT, -1)
    context.decode(DRAFT, pos=N_PROMPT)
    context.seq_cp(1, 0, N_PROMPT, -1)
    context.seq_rm(0, N_PROMPT, -1)
    return _same(context, expected)


def _fork(model: Model, expected: np.ndarray) -> str:
    context = _prompted(model, n_seq_max=2)
    if not context.can_seq_cp(partial=False):
        return "-"
    context.seq_cp(0, 1)
    context.decode(DRAFT, pos=N_PROMPT, seq_id=1)
    context.seq_rm(1)
    return _same(context, expected)


def _state(model: Model, expected: np.ndarray, flags: int, sizes: dict[str, int], key: str) -> str:
    context = _prompted(model)
    state = State()
    sizes[key] = context.state_save(0, state, flags)
    context.decode(DRAFT, pos=N_PROMPT)
    if flags & STATE_PARTIAL_ONLY:
        context.state_restore(0, state)
        context.seq_rm(0, N_PROMPT, -1)
    else:
        context.clear()
        context.state_restore(0, state)
    return _same(context, expected)


def _batch2(model: Model, expected: np.ndarray) -> str:
    context = _prompted(model, n_seq_max=2)
    context.decode(PROMPT, pos=0, seq_id=1)
    pos = [*range(N_PROMPT, N_PROMPT + N_DRAFT)] * 2
    context.decode_batch(OTHER + DRAFT, pos, [0] * N_DRAFT + [1] * N_DRAFT, [True] * N_DRAFT + [False] * N_DRAFT)
    difference = float(np.max(np.abs(context.logits() - expected)))
    return "exact" if difference == 0 else f"off {difference:.0e}"


def _try(name: str, trial: Callable[[], str]) -> str:
    _step(name)
    try:
        return trial()
    except errors.MemoryRefusedError:
        return "refused"
    except errors.PyspecError as error:
        return f"{type(error).__name__}: {error}"


def probe(path: str) -> dict[str, Any]:
    """Try everything on one model, in this process."""
    _step("load")
    model = Model(path)
    row: dict[str, Any] = {"memory": model.memory_kind}
    _step("decode")
    try:
        context = _prompted(model, n_rs_seq=N_RS_SEQ)
    except errors.PyspecError as error:
        return {**row, "refused": f"{type(error).__name__}: {error}"}
    row["n_rs_seq"] = context.n_rs_seq
    row["shift"] = context.can_shift
    context = _prompted(model, n_seq_max=2)
    row["cp_whole"] = context.can_seq_cp(partial=False)
    row["cp_part"] = context.can_seq_cp(partial=True)
    context = _prompted(model)
    context.decode(OTHER, pos=N_PROMPT, n_outputs=N_DRAFT)
    expected = context.logits()
    context.close()
    if not np.isfinite(expected).all():
        row["note"] = "logits are not finite"
    sizes: dict[str, int] = {}
    trials: dict[str, Callable[[], str]] = {
        "trim": lambda: _trim(model, expected),
        "snapshot": lambda: _snapshot(model, expected),
        "shadow": lambda: _shadow(model, expected),
        "fork": lambda: _fork(model, expected),
        "partial": lambda: _state(model, expected, STATE_PARTIAL_ONLY, sizes, "partial_bytes"),
        "device": lambda: _state(model, expected, STATE_PARTIAL_ONLY | STATE_ON_DEVICE, sizes, "device_bytes"),
        "full": lambda: _state(model, expected, STATE_NONE, sizes, "full_bytes"),
        "batch2": lambda: _batch2(model, expected),
    }
    for name, trial in trials.items():
        row[name] = _try(name, trial)
    _step("done")
    return {**row, **sizes}


def probe_apart(path: Path, limit_s: float) -> dict[str, Any]:
    """The same in a process of its own; a death is a row with "fault"."""
    command = [sys.executable, "-X", "faulthandler", __file__, "--one", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=limit_s)
    except subprocess.TimeoutExpired as late:
        trace = late.stderr.decode(errors="replace") if late.stderr else ""
        return {"fault": f"hung for more than {limit_s:g} s", "trace": trace[-2000:]}
    if done.returncode == 0:
        return dict(json.loads(done.stdout.splitlines()[-1]))
    status = done.returncode
    how = signal.Signals(-status).name if status < 0 else f"status {status}"
    return {"fault": how, "trace": done.stderr[-2000:]}


def _table(rows: dict[str, dict[str, Any]]) -> Iterable[str]:
    yield "  ".join(["model".ljust(24), *_COLUMNS])
    for name, row in rows.items():
        if "fault" in row:
            yield f"{name.ljust(24)}  FAULT {row['fault']}\n{row['trace']}"
        elif "refused" in row:
            yield f"{name.ljust(24)}  {row['memory']}  {row['refused']}"
        else:
            cells = [str(row.get(column, "")).partition(":")[0].ljust(len(column)) for column in _COLUMNS]
            yield "  ".join([name.ljust(24), *cells, row.get("note", "")])


def main() -> int:
    """Command line; prints a table and returns 1 when any model aborted or hung."""
    parser = argparse.ArgumentParser(description="Try llama.cpp's memory operations on random models.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="architecture or file stem (default: all)")
    parser.add_argument("--models", type=Path, help="folder of GGUF files (default: the cache's)")
    parser.add_argument("--limit", type=float, default=60, metavar="SECONDS", help="per model")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there too")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(probe(options.one)))
        return 0
    if options.models:
        files = sorted(options.models.glob("*.gguf"))
        if options.names:
            files = [f for f in files if f.stem.removesuffix("-dense").removesuffix("-moe") in options.names]
    elif options.names:
        files = list(build_test_models.ensure(options.names).values())
    else:
        files = build_test_models.ensure_all()
    rows = {}
    for file in files:
        print(file.stem, file=sys.stderr, flush=True)
        rows[file.stem] = probe_apart(file, options.limit)
    print(*_table(rows), sep="\n")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    return int(any("fault" in row for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
