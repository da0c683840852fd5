"""`pyspec demo`: the main job on the embedded models, for someone who sees pyspec for the first time.

Owns what is run, in which order, and what is said about it; every run starts with a speculator that has
learned nothing, since a table that has seen the answer would only recite it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspec.arguments import BUDGETS
from pyspec.cli.demo_prompt import ANSWER, PROMPT
from pyspec.cli.loading import load
from pyspec.cli.parser import Parser
from pyspec.cli.report import COLUMNS, first_difference, run_cells, usage
from pyspec.cli.table import table
from pyspec.completion import Completion
from pyspec.llm import Llama
from pyspec.progress import ProgressBar
from pyspec.speculators import Spec, make
from pyspec.speculators.draft_model import DraftModel

__all__ = ["add_parser"]

_NGRAM_MOD = "ngram-mod:n_match=6,n_min=2,n_max=8"
_NGRAM_MAP_K = "ngram-map-k:size_n=3,size_m=12"
_N_CTX = 2048
_N_SPARE = 16  # tokens beyond the right answer, enough to see whether the model stops


@dataclass(slots=True)
class _Row:
    """One speculator: how to make it anew, and what its runs gave."""

    name: str
    about: str
    new: Callable[[], Spec | Sequence[Spec]]
    runs: list[Completion] = field(default_factory=list)

    @property
    def speeds(self) -> list[float]:
        return [run.timings.tokens_per_s for run in self.runs]


def add_parser(subparsers: argparse._SubParsersAction[Parser]) -> None:
    """Enter `demo`."""
    parser = subparsers.add_parser(
        "demo",
        help="see it work: one text, plain and with every speculator",
        description="Let a model rewrite some code, plainly and with each speculator, and compare speeds and texts.",
    )
    parser.add_argument("--model", default="tiny-target", metavar="MODEL", help="the target [%(default)s]")
    parser.add_argument(
        "--draft", metavar="MODEL", help="the draft model [tiny-draft with the default target, else none]"
    )
    parser.add_argument("--prompt-file", type=Path, metavar="FILE", help="another prompt")
    parser.add_argument("-n", "--max-tokens", type=int, metavar="N", help="most tokens [as the prompt needs]")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="runs of each, alternating [%(default)s]")
    parser.add_argument("-t", "--threads", type=int, default=0, metavar="N", help="CPU threads [the physical cores]")
    parser.add_argument("--budget", choices=BUDGETS, help="how long drafts are [measured]")
    parser.set_defaults(run=run, parser=parser)


def run(args: argparse.Namespace) -> int:
    """Run the demo; 0 when all texts are the same, 1 when one differs."""
    if args.runs < 1:
        args.parser.error(f"--runs {args.runs}: must be at least 1")
    prompt = PROMPT if args.prompt_file is None else args.prompt_file.read_text(encoding="utf-8")
    draft = args.draft or ("tiny-draft" if args.model == "tiny-target" else None)
    print("One model writes one text several times: first plainly, a token per step, then with guesses of the")
    print("next tokens (drafts) that it checks many at a time. The text must stay the same; only the speed may change.")
    print()
    options = {"n_ctx": _N_CTX, "n_threads": args.threads, "budget": args.budget}
    with Llama(load(args.model), spec=None, **options) as llm:
        answer = ANSWER if args.prompt_file is None else None
        n_answer = 240 if answer is None else len(llm.tokenize(answer, add_special=False))
        max_tokens = args.max_tokens or n_answer + _N_SPARE
        rows = _rows(llm, draft, args.threads)
        print(f"model: {args.model}, {usage(llm)}")
        if draft is not None:
            print(f"draft model: {draft}")
        print(f"\n{_rule('prompt')}\n{prompt}{_rule('what the model writes after it')}", flush=True)
        _run_all(llm, prompt, max_tokens, rows, args.runs)
        return _judge(rows, answer, args.runs)


def _rows(llm: Llama, draft: str | None, n_threads: int) -> list[_Row]:
    def fresh(name: str) -> Spec:
        return make(name, n_vocab=llm.n_vocab)

    rows = [
        _Row("plain", "no drafts", lambda: None),
        _Row("ngram-mod", "a hashed table of what followed the last 6 tokens", lambda: fresh(_NGRAM_MOD)),
        _Row("ngram-map-k", "the place where the last 3 tokens stood before", lambda: fresh(_NGRAM_MAP_K)),
    ]
    if draft is None:
        return rows
    model = load(draft)

    def fresh_draft() -> DraftModel:
        return DraftModel(
            model,
            target=llm.model.vocab,
            n_ctx=llm.n_ctx,
            context={"n_threads": n_threads},
        )

    return [
        *rows,
        _Row("draft-model", "a smaller model of the same vocabulary", fresh_draft),
        _Row("both", "ngram-mod, and draft-model where it finds nothing", lambda: [fresh(_NGRAM_MOD), fresh_draft()]),
    ]


def _run_all(llm: Llama, prompt: str, max_tokens: int, rows: list[_Row], n_runs: int) -> None:
    """Run every row in turn, `n_runs` times over, so that a machine that slows down slows all of them."""
    with ProgressBar("measuring") as bar:
        for i in range(n_runs):
            for k, row in enumerate(rows):
                first = i == 0 and k == 0
                row.runs.append(
                    llm.generate(prompt, max_tokens=max_tokens, spec=row.new(), on_text=_show if first else None)
                )
                if first:
                    print("" if row.runs[0].text.endswith("\n") else "\n", end="")
                    print(_rule("speed"), flush=True)
                bar((i * len(rows) + k + 1) / (n_runs * len(rows)))


def _show(piece: str) -> None:
    sys.stdout.write(piece)
    sys.stdout.flush()


def _rule(title: str) -> str:
    return f"---- {title} ".ljust(80, "-")


# ------------------------------------------------------------------ what is said about it
def _judge(rows: list[_Row], answer: str | None, n_runs: int) -> int:
    """Print the table and the judgement; 0 when all texts are the same."""
    plain = rows[0].runs[0]
    cells, slower = [], []
    for row in rows:
        speed = statistics.median(row.speeds)
        ratio = statistics.median(a / b if b else 0.0 for a, b in zip(row.speeds, rows[0].speeds, strict=True))
        cells.append([row.name, *run_cells(row.runs[0], speed, ratio)])
        slower += [row.name] if ratio < 1 else []
    print(table(cells, header=["speculator", *COLUMNS], right=range(1, len(COLUMNS) + 1)))
    print(f"\ntokens/s, ratio to plain: medians of {n_runs} alternating runs; a round is one decode of the model;")
    print("drafted, accepted: tokens; replayed: decided tokens decoded again after a rollback.\n")
    print(table([[row.name, row.about] for row in rows]) + "\n")
    if slower:
        print(f"Slower than plain here: {', '.join(slower)}. Drafts cost more there than the rounds they save.")
    print(f"The text: {_described(plain, answer)}")
    differing = [(row.name, at) for row in rows for run in row.runs if (at := first_difference(plain, run))]
    for name, at in dict(differing).items():
        print(f"ERROR: WITH {name} THE TEXT DIFFERS from the plain one {at}")
    if not differing:
        print(f"All {len(rows) * n_runs} runs wrote the same {len(plain.tokens)} tokens.")
    return 1 if differing else 0


def _described(plain: Completion, answer: str | None) -> str:
    """What the model made of its task; speculation is not to blame for it, nor to be praised."""
    ended = "the model ended it" if plain.finish_reason == "stop" else "it was cut at the most tokens"
    if answer is None:
        return f"{ended}."
    if plain.text == answer:
        return "the rewrite is exact, every character."
    if plain.text.startswith(answer):
        return f"the rewrite is exact, but the model wrote on after it ({ended})."
    n_same = next((i for i, (a, b) in enumerate(zip(plain.text, answer, strict=False)) if a != b), len(plain.text))
    line = answer.count("\n", 0, n_same)
    wrong, right = ((text.splitlines() + [""] * (line + 1))[line] for text in (plain.text, answer))
    return (
        f"the rewrite is not exact, with drafts or without ({ended}).\n"
        f"  first difference in line {line + 1}: {wrong.strip()!r} instead of {right.strip()!r}"
    )
