"""`pyspec models`: the small models that have names.

Owns its arguments and what it prints; leaves the table and the fetching to `pyspec.models`.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from pyspec import models
from pyspec.cli.loading import find
from pyspec.cli.parser import Parser
from pyspec.cli.table import bytes_text, table
from pyspec.errors import ModelFetchError

__all__ = ["add_parser"]

_ABOUT = "List the named models, fetch them into the cache, or say where they lie."


def add_parser(subparsers: argparse._SubParsersAction[Parser]) -> None:
    """Enter `models` and its own three commands."""
    parser = subparsers.add_parser("models", help="small models by name", description=_ABOUT)
    parser.set_defaults(run=_list, json=False, parser=parser)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")

    listing = commands.add_parser("list", help="names, licences, sizes (the default)")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(run=_list, parser=listing)

    fetch = commands.add_parser("fetch", help="bring models into the cache")
    fetch.add_argument("names", nargs="+", metavar="NAME")
    fetch.set_defaults(run=_fetch, parser=fetch)

    where = commands.add_parser("path", help="print where a model lies; never downloads")
    where.add_argument("name", metavar="NAME")
    where.set_defaults(run=_path, parser=where)


def _list(args: argparse.Namespace) -> int:
    found = [_known(name) for name in models.names()]
    if args.json:
        print(json.dumps(found, indent=2))
        return 0
    rows = [[m["name"], bytes_text(m["n_bytes"]), m["state"], m["licence"], m["about"]] for m in found]
    print(table(rows, header=["name", "size", "state", "licence", "about"], right=[1]))
    return 0


def _known(name: str) -> dict[str, Any]:
    model, path = models.describe(name), models.path(name)
    state = "embedded" if not model.parts else "cached" if path is not None else "not fetched"
    return {
        "name": name,
        "about": model.about,
        "licence": model.licence,
        "n_bytes": path.stat().st_size if path is not None else model.n_bytes,
        "state": state,
        "path": None if path is None else str(path),
    }


def _fetch(args: argparse.Namespace) -> int:
    for name in args.names:
        models.describe(name)  # a typing error in the last name shall not cost the download of the first
    for name in args.names:
        print(find(name), flush=True)
    return 0


def _path(args: argparse.Namespace) -> int:
    path = models.path(args.name)
    if path is None:
        raise ModelFetchError(
            name=args.name, reason=f"it is not in the cache; `pyspec models fetch {args.name}` gets it"
        )
    print(path)
    return 0
