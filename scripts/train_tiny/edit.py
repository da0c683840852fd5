"""Copy-with-edit pairs: some code, a comment with an instruction, the new code.

An edit renames a name wherever it occurs as a word, changes a constant, or
changes nothing.
"""

from __future__ import annotations

import random
import re

from . import corpus, generate

NUMBER = re.compile(r"(?<![\w.])\d{1,4}(?![\w.])")


def rename(code: str, old: str, new: str) -> str:
    """Replaces a word wherever it occurs in some code."""
    return re.sub(rf"\b{re.escape(old)}\b", new, code)


def instruction(kind: str, old: str, new: str) -> str:
    """Returns the comment that asks for a rename in the demo's words."""
    return f"\n# the same {kind} with the variable {old} renamed to {new}:\n"


def fresh(rng: random.Random, pool: list[str]) -> str:
    """Returns a name: a common one, one of the corpus or a compound."""
    draw = rng.random()
    if draw < 0.55:
        return rng.choice(generate.NAMES)
    if draw < 0.85:
        return rng.choice(pool)
    return "_".join(rng.sample(generate.NAMES, 2))


def vary(rng: random.Random, code: str, pool: list[str], most: int) -> str:
    """Renames up to `most` names, so that the code cannot be known by heart."""
    counts = corpus.names(code)
    for old in rng.sample(list(counts), min(rng.randint(0, most), len(counts))):
        new = fresh(rng, pool)
        if new not in counts:
            code = rename(code, old, new)
            counts[new] = 1
    return code


def edit(rng: random.Random, code: str, pool: list[str]) -> tuple[str, str] | None:
    """Makes one edit.

    Args:
        rng: Source of randomness.
        code: The code to edit.
        pool: Names of the corpus.

    Returns:
        The instruction and the edited code, or None if this edit does not fit.
    """
    kind = "class" if code.startswith("class") else "function"
    action = rng.choices(["rename", "constant", "copy"], [0.78, 0.08, 0.14])[0]
    if action == "rename":
        counts = corpus.names(code)
        often = [word for word, n in counts.items() if n >= 2] or list(counts)
        if not often:
            return None
        old, new = rng.choice(often), fresh(rng, pool)
        if new in counts or new == old:
            return None
        ask = instruction(kind, old, new)
        if rng.random() < 0.35:
            ask = rng.choice(
                [
                    f"\n# the same {kind} with {old} renamed to {new}:\n",
                    f"\n# the same code with {old} renamed to {new}:\n",
                    f"\n# rename {old} to {new}:\n",
                    f"\n# Rename the variable {old} to {new}.\n",
                    f"\n# the {kind} with {new} instead of {old}:\n",
                ]
            )
        return ask, rename(code, old, new)
    if action == "constant":
        spots = NUMBER.findall(code)
        if not spots:
            return None
        old, new = rng.choice(spots), str(rng.choice([0, 1, 2, 3, 5, 10, 100, rng.randrange(1000)]))
        if old == new:
            return None
        what = rng.choice([f"the same {kind} with", "the same code with"])
        return f"\n# {what} {old} changed to {new}:\n", re.sub(rf"(?<![\w.]){old}(?![\w.])", new, code)
    return (
        f"\n# {rng.choice([f'the same {kind} again', f'the same {kind}', f'a copy of the {kind}'])}:\n",
        code,
    )


def base(rng: random.Random, snippets: list[str], pool: list[str], generated: float) -> str:
    """Returns some code to edit: generated, or of the corpus with names varied."""
    draw = rng.random()
    if draw < generated:
        return generate.function(rng, rng.randint(2, 22))
    code = rng.choice(snippets)
    if draw > 0.97:
        lines = code.splitlines()
        lines[1:] = rng.sample(lines[1:], len(lines) - 1)
        code = "\n".join(lines) + "\n"
    return vary(rng, code, pool, 5)


def example(rng: random.Random, code: str, pool: list[str]) -> list[tuple[str, bool]] | None:
    """Makes a whole example.

    Args:
        rng: Source of randomness.
        code: The code to edit.
        pool: Names of the corpus.

    Returns:
        Pieces of text, each with a flag that tells whether it is the edited
        copy; None if the edit does not fit.
    """
    made = edit(rng, code, pool)
    if made is None:
        return None
    pieces = [(code + made[0], False), (made[1], True)]
    if rng.random() < 0.12:
        again = edit(rng, made[1], pool)
        if again:
            pieces += [(again[0], False), (again[1], True)]
    return pieces
