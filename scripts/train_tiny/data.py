"""Token streams on disk, and the batches that training draws from them.

Each stream is a file of token ids; the pairs' stream has a second file that
marks the tokens of edited copies.
"""

from __future__ import annotations

import json
import multiprocessing
import random
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from . import corpus, edit
from .tokenizer import SPECIALS

STREAMS = ("code", "docs", "pairs")


def encode(tok: Tokenizer, pieces: list[tuple[str, bool]]) -> tuple[list[int], list[bool]]:
    """Encodes an example as a whole; returns its ids and which are of a copy."""
    flags: list[bool] = []
    for text, copied in pieces:
        flags += [copied] * len(text)
    coded = tok.encode("".join(text for text, _ in pieces))
    return coded.ids, [flags[start] for start, _ in coded.offsets]


def make_pairs(job: tuple[str, int, int, list[str], list[str], float]) -> tuple[np.ndarray, np.ndarray]:
    """Makes `count` examples; each begins with the end-of-text token."""
    path, seed, count, snippets, pool, generated = job
    tok, rng = Tokenizer.from_file(path), random.Random(seed)
    ids: list[int] = []
    marks: list[bool] = []
    made = 0
    while made < count:
        pieces = edit.example(rng, edit.base(rng, snippets, pool, generated), pool)
        if pieces is None:
            continue
        more, flags = encode(tok, pieces)
        if len(more) > 1000:
            continue
        ids += [0, *more]
        marks += [marks[-1] if marks else False, *flags]  # the end after a copy belongs to it
        made += 1
    return np.array(ids, np.uint16), np.array(marks, np.uint8)


def build(work: Path, stdlib: Path, docs: Path, count: int, seed: int, threads: int) -> dict:
    """Writes all streams.

    Args:
        work: Folder with tokenizer.json; the streams go there.
        stdlib: Python's Lib folder.
        docs: Folder with the documentation's *.rst.txt files.
        count: Number of pairs.
        seed: Seed of everything random.
        threads: Number of processes.

    Returns:
        The number of tokens of each stream.
    """
    rng = random.Random(seed)
    path = str(work / "tokenizer.json")
    tok = Tokenizer.from_file(path)
    code = corpus.read(corpus.sources(stdlib), rng)
    texts = corpus.read(sorted(docs.rglob("*.rst.txt")), rng)
    held, code = code[:16], code[16:]

    snippets = [f for text in code for f in corpus.functions(text)]
    lengths = [len(e.ids) for e in tok.encode_batch(snippets)]
    snippets = [s for s, n in zip(snippets, lengths, strict=True) if 16 <= n <= 420]
    pool = corpus.pool(snippets)
    held_snippets = [f for text in held for f in corpus.functions(text) if 60 <= len(f) <= 1200]

    streams = {}
    for name, group in (("code", code), ("docs", texts), ("val_code", held)):
        parts = [np.array([0, *e.ids], np.uint16) for e in tok.encode_batch(group)]
        streams[name] = np.concatenate(parts)
    share = count // 8
    jobs = [(path, seed + 1 + i, share, snippets, pool, 0.45) for i in range(8)]
    jobs.append((path, seed + 100, 300, held_snippets, pool, 0.0))
    with multiprocessing.get_context("fork").Pool(threads) as workers:
        made = workers.map(make_pairs, jobs, chunksize=1)
    for name, group in (("pairs", made[:8]), ("val_pairs", made[8:])):
        streams[name] = np.concatenate([ids for ids, _ in group])
        np.concatenate([marks for _, marks in group]).tofile(work / f"{name}.marks")
    for name, ids in streams.items():
        ids.tofile(work / f"{name}.bin")
    sizes = {name: len(ids) for name, ids in streams.items()}
    sizes["snippets"] = len(snippets)
    (work / "data.json").write_text(json.dumps(sizes))
    return sizes


EDIT_MARK = 2


def edited(ids: np.ndarray, marks: np.ndarray) -> np.ndarray:
    """Raises the mark of a copy's tokens that stand after another token than in what is copied.

    These are the tokens that an edit changed, and the first ones after them: few, and the only hard ones.
    """
    pairs = ids.astype(np.int64) * 65536 + np.roll(ids, 1)
    copied = marks.astype(bool)
    copied[0] = False
    marks = marks.copy()
    marks[copied & ~np.isin(pairs, pairs[~copied])] = EDIT_MARK
    return marks


class Batches:
    """Random rows of code, of documentation, of pairs and of repeated chunks.

    Repeated chunks are there only to make the model copy from its context.
    """

    def __init__(self, work: Path, seed: int, copy_weight: float = 1.0) -> None:
        self.rng = np.random.default_rng(seed)
        self.ids = {name: np.fromfile(work / f"{name}.bin", np.uint16) for name in STREAMS}
        self.marks = np.fromfile(work / "pairs.marks", np.uint8)
        self.copy_weight = copy_weight
        starts = np.flatnonzero(self.ids["pairs"] == 0)
        self.starts = starts[:-1]
        self.lengths = np.diff(starts)
        self.chosen: dict[int, np.ndarray] = {}

    def window(self, name: str, n: int) -> np.ndarray:
        """Returns n tokens of a stream from a random place."""
        ids = self.ids[name]
        at = int(self.rng.integers(len(ids) - n))
        return ids[at : at + n]

    def tiled(self, n: int, shortest: int, longest: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns a random chunk, repeated; the repeats are marked."""
        size = int(self.rng.integers(shortest, longest))
        if self.rng.random() < 0.5:
            chunk = self.rng.integers(len(SPECIALS), int(self.ids["code"].max()) + 1, size).astype(np.uint16)
        else:
            chunk = self.window("code", size)
        row = np.tile(chunk, n // size + 1)[:n]
        return row, np.arange(n) >= size

    def pairs(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns whole pairs that begin with the row, the last one cut off."""
        if n not in self.chosen:  # only pairs that fit into the row
            self.chosen[n] = np.flatnonzero(self.lengths <= n)
        ids, marks, room = [], [], n
        skip = int(self.rng.random() < 0.5)
        while room > 0:
            i = self.rng.choice(self.chosen[n])
            part = slice(self.starts[i] + skip, self.starts[i] + self.lengths[i] + 1)
            ids.append(self.ids["pairs"][part][:room])
            marks.append(edited(ids[-1], self.marks[part][:room]))
            room -= len(ids[-1])
            skip = 1  # the previous pair's slice ended with the end-of-text token
        return np.concatenate(ids), np.concatenate(marks)

    def __call__(self, rows: int, length: int, mix: dict[str, float]) -> tuple[Tensor, Tensor, Tensor]:
        """Draws a batch.

        Args:
            rows: Number of rows.
            length: Number of tokens a row.
            mix: Share of each kind of row: code, docs, pairs, tiled.

        Returns:
            Input ids, target ids and the weight of each target.
        """
        n, kinds = length + 1, list(mix)
        share = np.array(list(mix.values()))
        ids, marks = [], []
        for kind in self.rng.choice(kinds, size=rows, p=share / share.sum()):
            if kind == "pairs":
                row, mark = self.pairs(n)
            elif kind == "tiled":
                row, mark = self.tiled(n, 8, max(16, n // 3))
            else:
                row, mark = self.window(kind, n), np.zeros(n)
            ids.append(row)
            marks.append(mark)
        x = torch.from_numpy(np.stack(ids).astype(np.int64))
        weight = 1 + (self.copy_weight - 1) * torch.from_numpy(np.stack(marks).astype(np.float32))
        return x[:, :-1].contiguous(), x[:, 1:].contiguous(), weight[:, 1:].contiguous()
