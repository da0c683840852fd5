"""Random functions in the style of a textbook, from a small grammar.

They give the model code to copy that it cannot know by heart, with the
repeated names and near-equal lines that make copying ambiguous.
"""

from __future__ import annotations

import random

NAMES = """total result value count index item items name key data line text node path size start end step
left right first last current previous acc out buf tmp n i j k x y a b s res ret values keys lines words
numbers names parts found limit offset length width height score state func callback args options config
flag done table entry record field stack queue average longest shortest best worst minimum maximum lower
upper row column rows columns cell matrix vector word letter char digit token tokens pair pairs group groups
price amount balance rate factor weight weights sample samples point points angle radius area source dest
target parent child children root leaf depth level pos position low high mid pivot seen visited pending
ready message error reason status code mode user users account order orders product products seconds
minutes hours day month year date age number square sum product difference ratio percent delta epsilon
prefix suffix head tail front back chunk block page title author book books city cities color shape""".split()
VERBS = """get find count make build compute merge split parse read write update remove add check is_valid
sort filter group sum average normalize convert format print show load save create collect select join reverse
flatten rotate replace search insert apply clean scale shift compare validate""".split()
WORDS = """the a first last next of for in all each given list number value words items and with from to
must not be is are longest shortest empty invalid name found missing negative zero at least one too large
small return compute find sum average count string""".split()
CALLS = ["len", "sum", "min", "max", "sorted", "abs", "int", "str", "float", "list", "set", "round", "bool"]
METHODS = ["append", "strip", "lower", "upper", "split", "get", "pop", "add", "join", "items", "values"]


class Writer:
    """Writes one random function."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.vars = rng.sample(NAMES, rng.randint(3, 7))
        if rng.random() < 0.3:
            self.vars[0] = "_".join(rng.sample(NAMES, 2))

    def name(self) -> str:
        """Returns a variable; the first ones are the frequent ones."""
        return self.vars[min(int(self.rng.expovariate(0.5)), len(self.vars) - 1)]

    def number(self) -> str:
        """Returns a constant."""
        r = self.rng
        return r.choice(["0", "1", "2", "0.0", "10", "100", "-1", str(r.randrange(1000))])

    def atom(self) -> str:
        """Returns a short expression."""
        r, v = self.rng, self.name()
        options = [v, v, v, self.number(), f"{r.choice(CALLS)}({v})", f"{v}[{self.name()}]"]
        options += [f"{v}[{self.number()}]", f'"{self.phrase(1)}"', f"{v}.{r.choice(METHODS)}({self.name()})"]
        return r.choice(options)

    def phrase(self, most: int) -> str:
        """Returns some words, sometimes with the name of a variable in them."""
        r = self.rng
        words = [r.choice(WORDS) if r.random() < 0.8 else self.name() for _ in range(r.randint(1, most))]
        return " ".join(words)

    def expression(self) -> str:
        """Returns an expression of one or two operands."""
        r = self.rng
        if r.random() < 0.5:
            return self.atom()
        return f"{self.atom()} {r.choice(['+', '-', '*', '/', '//', '%'])} {self.atom()}"

    def condition(self) -> str:
        """Returns a condition."""
        r, v = self.rng, self.name()
        compare = f"{v} {r.choice(['==', '!=', '<', '>', '<=', '>=', 'in', 'not in'])} {self.atom()}"
        return r.choice([compare, compare, compare, v, f"not {v}", f"{v} is None", f"{compare} and {self.name()}"])

    def simple(self, loop: bool, depth: int) -> str:
        """Returns a statement of one line."""
        r, v = self.rng, self.name()
        options = [f"{v} = {self.expression()}"] * 4
        options += [f"{v} {r.choice(['+=', '-=', '*='])} {self.atom()}"] * 2
        options += [f"{v}.{r.choice(METHODS)}({self.atom()})", f"{v}[{self.name()}] = {self.expression()}"]
        options += [
            f'print("{self.phrase(3)}:", {self.name()})',
            f"{v}, {self.name()} = {self.atom()}, {self.atom()}",
        ]
        if depth > 1:
            options += [f"return {self.expression()}", f'raise ValueError("{self.phrase(6)}")']
            if loop:
                options += ["continue", "break"]
        return r.choice(options)

    def block(self, room: int, depth: int, loop: bool) -> list[str]:
        """Returns the lines of a block of about `room` lines."""
        r, lines, pad = self.rng, [], "    " * depth
        while len(lines) < room:
            left = room - len(lines)
            if left < 2 or depth > 3 or r.random() < 0.6:
                lines.append(pad + self.simple(loop, depth))
                continue
            heads = [f"if {self.condition()}:"] * 3
            heads += [f"for {self.name()} in {self.name()}:", f"for {self.name()} in range({self.atom()}):"]
            heads += [
                f"while {self.condition()}:",
                f"for {self.name()}, {self.name()} in enumerate({self.name()}):",
            ]
            head = r.choice(heads)
            inner = loop or not head.startswith("if")
            lines.append(pad + head)
            lines += self.block(r.randint(1, min(left - 1, 4)), depth + 1, inner)
            if head.startswith("if") and r.random() < 0.25:
                lines.append(pad + "else:")
                lines += self.block(r.randint(1, 2), depth + 1, inner)
        return lines

    def function(self, room: int) -> str:
        """Returns a function with a body of about `room` lines."""
        r = self.rng
        args = self.vars[1 : r.randint(2, min(4, len(self.vars)))]
        args = [a if r.random() < 0.8 else f"{a}={self.number()}" for a in args]
        head = f"def {r.choice(VERBS)}_{r.choice(NAMES)}({', '.join(args)}):"
        lines = [head]
        if r.random() < 0.6:
            lines.append(f'    """{self.phrase(8).capitalize()}."""')
        if r.random() < 0.7:
            lines += [
                f"    {v} = {r.choice(['0', '[]', '{}', 'None', '1', '0.0'])}" for v in self.vars[: r.randint(1, 3)]
            ]
        lines += self.block(room, 1, False)
        if r.random() < 0.85:
            lines.append(f"    return {self.expression()}")
        return "\n".join(lines) + "\n"


def function(rng: random.Random, room: int) -> str:
    """Returns a random function with a body of about `room` lines."""
    return Writer(rng).function(room)
