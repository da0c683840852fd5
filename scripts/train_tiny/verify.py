"""Compares a GGUF file with its checkpoint, through the package's own llama.cpp.

Checks the tokenizer and the logits, writes greedy text, counts exact rewrites
and, with a draft model, how many of its tokens the target keeps.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

from pyspec import Llama

from . import edit, prompts, train

ODD = ["  \n\n\t x = 1   \n", "naïve “quoted” 日本語 🙂", "a\r\nb\r\n", "   ", "x" * 50, "'s't 1234 5.6e7"]


def snippets(work: Path, tok: Tokenizer, seed: int, count: int = 200) -> list[str]:
    """Returns random pieces of held-out code, and odd ones."""
    rng = random.Random(seed)
    text = tok.decode(np.fromfile(work / "val_code.bin", np.uint16).tolist())
    starts = [rng.randrange(len(text) - 400) for _ in range(count - len(ODD))]
    return ODD + [text[i : i + rng.randrange(20, 400)] for i in starts]


def check_tokenizer(llm: Llama, tok: Tokenizer, texts: list[str]) -> int:
    """Counts the texts that both tokenizers cut alike."""
    return sum(llm.tokenize(text, add_special=False, parse_special=False) == tok.encode(text).ids for text in texts)


def check_logits(llm: Llama, model: torch.nn.Module, ids: list[int]) -> str:
    """Compares the logits of some tokens."""
    with torch.no_grad():
        wanted = model(torch.tensor([ids]))[0].numpy()
    llm.context.clear()
    llm.context.decode(np.array(ids, np.int32), pos=0, n_outputs=len(ids))
    got = np.array(llm.context.logits())
    llm.context.clear()
    same = int((got.argmax(1) == wanted.argmax(1)).sum())
    return f"max difference {np.abs(got - wanted).max():.4f}, argmax equal {same}/{len(ids)}"


def write(llm: Llama, prompt: str, count: int) -> str:
    """Writes greedily after a prompt, without drafts."""
    return llm.generate(prompt, max_tokens=count, spec=None, temperature=0).text


def check_rewrites(llm: Llama, most: int = 1000) -> tuple[int, int]:
    """Counts the rewrites that begin with exactly the expected answer."""
    cases = prompts.rewrites()[:most]
    exact = 0
    for label, prompt, answer in cases:
        room = len(llm.tokenize(answer, add_special=False)) + 16
        good = write(llm, prompt, room).startswith(answer.rstrip("\n"))
        exact += good
        print(f"  {'exact' if good else 'wrong'}: {label}")
    return exact, len(cases)


def check_draft(target: Path, draft: Path) -> None:
    """Prints how many drafted tokens of the first rewrite of each function are kept."""
    drafted = accepted = 0
    with Llama(target, n_ctx=2048, spec="draft-model", draft_model=draft, draft_options={"n_max": 4}) as llm:
        for code, renames in prompts.FUNCTIONS:
            old, new = renames[0]
            kind = "class" if code.startswith("class") else "function"
            prompt = code + edit.instruction(kind, old, new)
            llm.generate(prompt, max_tokens=160, temperature=0)
            drafted += llm.stats.n_drafted
            accepted += llm.stats.n_accepted
    print(f"draft: {accepted} of {drafted} drafted tokens kept ({accepted / max(drafted, 1):.0%})")


def run(work: Path, size: str, path: Path, draft: Path | None, seed: int) -> None:
    """Runs all checks.

    Args:
        work: Folder of the checkpoint, the tokenizer and the held-out streams.
        size: Name of the checkpoint.
        path: The GGUF file.
        draft: A draft model to count acceptance with.
        seed: Seed of the choice of snippets.
    """
    tok = Tokenizer.from_file(str(work / "tokenizer.json"))
    model, _ = train.load(work / f"{size}.pt")
    with Llama(path, n_ctx=2048, spec=None) as llm:
        texts = snippets(work, tok, seed)
        print(f"tokenizer equal on {check_tokenizer(llm, tok, texts)}/{len(texts)} snippets")
        print("logits:", check_logits(llm, model, tok.encode(prompts.AVERAGE * 2).ids[:100]))
        for name, prompt in prompts.TEXTS.items():
            print(f"--- {name}\n{prompt}«{write(llm, prompt, 100)}»")
        label, prompt, _ = prompts.rewrites()[0]
        print(f"--- {label}\n{write(llm, prompt, 240)}")
        exact, count = check_rewrites(llm)
        print(f"rewrites exact: {exact}/{count}")
    if draft:
        check_draft(path, draft)
