"""Command line: tokenizer, data, start, train, export, verify.

Each command reads and writes the folder given as --work; see the README for
the order and the options of the models that ship.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path


def parser() -> argparse.ArgumentParser:
    """Returns the command line's parser."""
    top = argparse.ArgumentParser(prog="python -m scripts.train_tiny", description=__doc__.splitlines()[0])
    top.add_argument("--work", type=Path, default=Path("work"), help="folder of streams and checkpoints")
    top.add_argument("--seed", type=int, default=1234)
    top.add_argument("--threads", type=int, default=2)
    commands = top.add_subparsers(dest="command", required=True)

    p = commands.add_parser("tokenizer", help="train the tokenizer, or restore it from a GGUF file")
    p.add_argument("--stdlib", type=Path, help="Python's Lib folder")
    p.add_argument("--docs", type=Path, help="folder of the documentation's *.rst.txt files")
    p.add_argument("--gguf", type=Path, help="restore from this file instead")

    p = commands.add_parser("data", help="write the token streams")
    p.add_argument("--stdlib", type=Path, required=True)
    p.add_argument("--docs", type=Path, required=True)
    p.add_argument("--pairs", type=int, default=60000)

    p = commands.add_parser("start", help="turn a GGUF file into a checkpoint to begin with")
    p.add_argument("--gguf", type=Path, required=True)
    p.add_argument("--size", required=True, help="name of the checkpoint")

    p = commands.add_parser("train", help="train one model")
    p.add_argument("--size", required=True)
    p.add_argument("--tokens", type=float, required=True, help="millions of tokens in all")
    p.add_argument("--decay", type=float, required=True, help="millions of tokens of the decay at the end")
    p.add_argument("--short", type=float, default=1.5, help="millions of tokens in rows of 256")
    p.add_argument("--middle", type=float, default=9.0, help="millions of tokens in rows of up to 512")
    p.add_argument("--lr", type=float, default=0.02)
    p.add_argument("--warm-up", type=float, default=0.2, help="millions of tokens")
    p.add_argument("--copy-weight", type=float, default=1.0)
    p.add_argument("--pairs", type=float, default=0.68, help="share of rows of copy-with-edit pairs")
    p.add_argument("--start", default="", help="checkpoint in the work folder to begin with")
    p.add_argument("--pid-file", type=Path, help="where to write the process id")
    p.add_argument("--plan", type=Path, help="JSON file of newer values of tokens and decay, read while it runs")
    p.add_argument("--teacher", default="", help="checkpoint in the work folder to distil from")
    p.add_argument("--resume", action="store_true")
    p.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    p.add_argument("--save-seconds", type=float, default=120, help="CPU seconds")

    p = commands.add_parser("export", help="write a GGUF file")
    p.add_argument("--size", required=True)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--type", choices=["f16", "q8_0"], default="q8_0")

    p = commands.add_parser("verify", help="compare a GGUF file with the checkpoint, in llama.cpp")
    p.add_argument("--size", required=True)
    p.add_argument("--gguf", type=Path, required=True)
    p.add_argument("--draft", type=Path, help="also count what this draft model would get accepted")
    return top


def main() -> None:
    """Runs one command."""
    a = parser().parse_args()
    a.work.mkdir(parents=True, exist_ok=True)
    path = a.work / "tokenizer.json"
    if a.command == "tokenizer":
        from . import corpus, tokenizer

        if a.gguf:
            tokenizer.restore(a.gguf, path)
        else:
            rng = random.Random(a.seed)
            code = corpus.read(corpus.sources(a.stdlib), rng)[16:]
            tokenizer.train(code + corpus.read(sorted(a.docs.rglob("*.rst.txt")), rng)[::4], path)
    elif a.command == "data":
        from . import data

        print(data.build(a.work, a.stdlib, a.docs, a.pairs, a.seed, a.threads))
    elif a.command == "start":
        from . import export, train

        train.save(a.work / f"{a.size}.pt", export.read(a.gguf), [])
    elif a.command == "train":
        from . import train

        values = {k: v for k, v in vars(a).items() if k != "command"}
        train.run(train.Options(**values))
    elif a.command == "export":
        from . import export

        export.write(a.work, a.size, a.out, a.type)
    else:
        from . import verify

        verify.run(a.work, a.size, a.gguf, a.draft, a.seed)


if __name__ == "__main__":
    main()
