"""`pyspec info`: what this build can do, and what a model is.

Owns its arguments and what it prints; every fact is asked of llama.cpp, or seen on a small live context.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import pyspec
from pyspec import _core
from pyspec.cli.loading import load
from pyspec.cli.parser import Parser
from pyspec.cli.table import bytes_text, count_text, table
from pyspec.errors import UnsupportedError
from pyspec.llm import Llama

__all__ = ["add_parser"]

_N_CTX = 512  # the probe needs two positions; state sizes do not depend on more


def add_parser(subparsers: argparse._SubParsersAction[Parser]) -> None:
    """Enter `info`."""
    parser = subparsers.add_parser(
        "info",
        help="versions, backends and devices; a model's architecture and memory",
        description="Print versions, backends and devices, and with MODEL what it is and how drafts are undone on it.",
    )
    parser.add_argument("model", nargs="?", metavar="MODEL", help="a GGUF file, or a name that `pyspec models` lists")
    parser.add_argument("-ngl", "--gpu-layers", type=int, default=-1, metavar="N", help="layers on the GPU [all]")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--verbose", action="store_true", help="print llama.cpp's messages to stderr")
    parser.set_defaults(run=run, parser=parser)


def run(args: argparse.Namespace) -> int:
    """Do what `args` ask for; returns the exit code."""
    facts = _build()
    if args.model is not None:
        facts["model"] = _model(args)
    print(json.dumps(facts, indent=2) if args.json else _text(facts))
    return 0


def _build() -> dict[str, Any]:
    return {
        "pyspec": pyspec.__version__,
        "llama_cpp": _core.LLAMA_CPP_COMMIT,
        "backends": _core.backends(),
        "gpu_offload": _core.supports_gpu_offload(),
        "system": _core.system_info().strip(" |\n"),
        "devices": [
            {
                "name": device.name,
                "kind": device.kind,
                "backend": device.backend,
                "description": device.description,
                "memory_free_bytes": device.memory_free_bytes,
                "memory_total_bytes": device.memory_total_bytes,
            }
            for device in _core.devices()
        ],
    }


def _model(args: argparse.Namespace) -> dict[str, Any]:
    model = load(args.model, n_gpu_layers=args.gpu_layers)
    vocab = model.vocab
    facts = {
        "path": model.path,
        "name": model.metadata.get("general.name"),
        "architecture": model.architecture,
        "quantization": model.quantization,
        "n_params": model.n_params,
        "n_bytes": model.n_bytes,
        "n_layer": model.n_layer,
        "n_embd": model.n_embd,
        "n_ctx_train": model.n_ctx_train,
        "n_swa": model.n_swa,
        "vocabulary": vocab.kind,
        "n_vocab": vocab.n_tokens,
        "has_chat_template": model.chat_template() is not None,
        "memory": model.memory_kind,
    }
    try:
        llm = Llama(model, n_ctx=_N_CTX, spec=None, verbose=args.verbose)
    except UnsupportedError as error:
        return facts | {"rollback": None, "rollback_reason": str(error), "state_bytes": 0}
    with llm:
        can = llm.capabilities
        return facts | {
            "rollback": llm.rollback,
            "rollback_reason": llm.rollback_reason,
            "can_trim": can.can_trim,
            "can_shadow": can.can_shadow,
            "can_fork": can.can_fork,
            "state_bytes": can.state_bytes if can.kind in ("recurrent", "hybrid") else 0,
        }


# ------------------------------------------------------------------ as text
def _text(facts: dict[str, Any]) -> str:
    devices = [
        [
            device["name"],
            device["kind"],
            device["backend"],
            bytes_text(device["memory_free_bytes"]),
            bytes_text(device["memory_total_bytes"]),
            device["description"],
        ]
        for device in facts["devices"]
    ]
    build = [
        ["pyspec", facts["pyspec"]],
        ["llama.cpp", facts["llama_cpp"]],
        ["backends", ", ".join(facts["backends"])],
        ["GPU offload", "yes" if facts["gpu_offload"] else "no"],
        ["CPU features", facts["system"]],
    ]
    parts = [
        table(build),
        table(devices, header=["device", "kind", "backend", "free", "total", "description"], right=[3, 4]),
    ]
    if "model" in facts:
        parts.append(table(_model_rows(facts["model"])))
    return "\n\n".join(parts)


def _model_rows(m: dict[str, Any]) -> list[list[str]]:
    rows = [
        ["model", m["path"]],
        ["architecture", m["architecture"]],
        ["parameters", count_text(m["n_params"])],
        ["size", bytes_text(m["n_bytes"])],
        ["quantisation", m["quantization"]],
        ["layers", f"{m['n_layer']} of width {m['n_embd']}"],
        ["trained context", f"{m['n_ctx_train']} tokens"],
        ["vocabulary", f"{m['n_vocab']} tokens, kind {m['vocabulary']}"],
        ["chat template", "yes" if m["has_chat_template"] else "no"],
        ["memory", m["memory"].replace("_", " ") + (f", window of {m['n_swa']}" if m["n_swa"] else "")],
    ]
    if m["state_bytes"]:
        rows.append(["recurrent state", f"{bytes_text(m['state_bytes'])} a sequence"])
    rows.append(["rollback", f"{m['rollback'] or 'none'}: {m['rollback_reason']}"])
    return rows
