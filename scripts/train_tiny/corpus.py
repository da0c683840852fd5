"""The corpus: Python's standard library and documentation sources.

Also cuts the functions and small classes out of a module, which the
copy-with-edit pairs are made from.
"""

from __future__ import annotations

import ast
import keyword
import random
import re
import textwrap
import warnings
from collections import Counter
from pathlib import Path

CORPUS = (
    "CPython 3.11 standard library sources and Python 3.11 documentation sources (PSF licence), "
    "and copy-with-edit pairs made from those sources and from generated functions"
)
WORD = re.compile(r"\b[A-Za-z_]\w*\b")
SKIP_FOLDERS = {
    "__pycache__",
    "encodings",
    "idle_test",
    "lib-dynload",
    "pydoc_data",
    "site-packages",
    "test",
    "tests",
}
SKIP_FILES = {"entities.py", "stringprep.py"}


def sources(stdlib: Path) -> list[Path]:
    """Returns the modules of the standard library, without tests and big tables."""
    found = []
    for path in sorted(stdlib.rglob("*.py")):
        if SKIP_FOLDERS & set(path.relative_to(stdlib).parts):
            continue
        if path.name not in SKIP_FILES and not path.name.startswith("_sysconfigdata"):
            found.append(path)
    return found


def read(paths: list[Path], rng: random.Random) -> list[str]:
    """Returns the texts of some files, without the shortest, in random order."""
    texts = [text for path in paths if len(text := path.read_text("utf-8", "ignore")) > 200]
    rng.shuffle(texts)
    return texts


def functions(text: str) -> list[str]:
    """Returns each function and small class of a module, moved to column 0."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            return []
    lines, found = text.splitlines(), []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            body = lines[node.lineno - 1 : node.end_lineno]
            if 3 <= len(body) <= 60:
                found.append(textwrap.dedent("\n".join(body)) + "\n")
    return found


def names(code: str) -> Counter[str]:
    """Counts the words of some code that an edit may rename."""
    fixed = {"self", "cls", "None", "True", "False"}
    return Counter(w for w in WORD.findall(code) if not keyword.iskeyword(w) and w not in fixed)


def pool(snippets: list[str], size: int = 4000) -> list[str]:
    """Returns the most frequent names of all snippets."""
    counts: Counter[str] = Counter()
    for snippet in snippets:
        counts.update(names(snippet))
    return [word for word, _ in counts.most_common(size) if len(word) > 1]
