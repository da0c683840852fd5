"""Notebooks show well-formed, escaped HTML that says where each token comes from and loads nothing."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pyspec import Completion, Llama
from pyspec.html import N_TOKENS_SHOWN, stats_html
from pyspec.rounds import RoundRecord
from pyspec.stats import Stats, Timings

BLUE, GREEN, ORANGE = "rgba(0,114,178,0.35)", "rgba(0,158,115,0.35)", "rgba(230,159,0,0.45)"
PROMPT = "def total(items):\n    result = 0\n    for item in items:\n        result += item\n    return result\n\n\n"


class Page(HTMLParser):
    """The shown text of each element, by its style; fails on tags that do not match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[tuple[str, str]] = []
        self.texts: list[tuple[str, str]] = []  # (style of the innermost element, text)
        self.block = ""
        self.titles: list[str] = []
        self.tags: set[str] = set()
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        assert set(given) <= {"style", "title"}, "nothing is loaded or run"
        self.tags.add(tag)
        self.titles += [given["title"]] if "title" in given else []
        self.open.append((tag, given.get("style", "")))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1][1], data))
        if any("monospace" in style for _, style in self.open):
            self.block += data

    def shaded(self, colour: str) -> str:
        return "".join(text for style, text in self.texts if style == f"background:{colour}")


def record(n_drafted: int, n_accepted: int, n_own: int = 1, speculator: str = "a") -> RoundRecord:
    n = n_accepted + n_own
    return RoundRecord(1 + n_drafted, 1, n_drafted, n_accepted, n, speculator, "", 0.0, 1.0, 0.0, "drafted", n_drafted)


def completion(pieces: list[str], rounds: list[RoundRecord], rest: str = "") -> Completion:
    ends = [sum(map(len, pieces[: i + 1])) for i in range(len(pieces))]
    stats = Stats(rounds=rounds, n_rounds=len(rounds), n_generated=len(pieces))
    text = "".join(pieces) + rest
    return Completion(text, list(range(len(pieces))), "length", None, [3], 5, stats, Timings(), ends)


def page(made: Completion) -> Page:
    return Page(made._repr_html_())


ROUNDS = [record(0, 0), record(3, 3), record(2, 1), record(0, 0)]
PIECES = ["<p", "la&i", "n>", '"one"', " two", "\n3", " th", "\ree"]


def test_tokens_are_shaded_by_where_they_come_from():
    shown = page(completion(PIECES, ROUNDS))
    assert shown.shaded(BLUE) == "".join(PIECES[1:4] + PIECES[5:6])
    assert shown.shaded(GREEN) == PIECES[4]
    assert shown.shaded(ORANGE) == PIECES[6]


def test_the_whole_text_is_shown_and_no_more():
    assert page(completion(PIECES, ROUNDS, rest=" cut <b>")).block == "".join(PIECES).replace("\r", "␍") + " cut <b>"


def test_what_the_text_says_is_never_markup():
    pieces = ["<script>", "alert(1)", "</script>", "</div>", "&amp;", "'\"", " onload=x"]
    shown = page(completion(pieces, [record(3, 3), record(2, 2)]))
    assert shown.block == "".join(pieces)
    assert shown.tags <= {"div", "span", "details", "summary", "table", "tbody", "tr", "td"}


def test_a_speculators_name_is_never_markup():
    shown = page(completion(["a", "b"], [record(1, 1, speculator='"><img src=x>')]))
    assert shown.titles == ['round 0, "><img src=x>: accepted 1 of 1'] * 2


def test_nothing_outside_the_page_is_named():
    html = completion(PIECES, ROUNDS)._repr_html_()
    assert not any(word in html for word in ("http", "url(", "src", "@import", "<script", "<link"))


def test_text_keeps_the_pages_own_colour():
    html = completion(PIECES, ROUNDS)._repr_html_()
    assert ";color:" not in html
    assert '"color:' not in html
    assert html.count("background:") == html.count("background:rgba(")


def test_a_model_without_text_shows_ids():
    made = completion(["", "", ""], [record(1, 1), record(0, 0)])
    assert page(made).block == "0 1 2 "
    assert page(made).shaded(BLUE) == "0 "


def test_control_characters_are_shown_by_their_pictures():
    assert page(completion(["a\x00b\x1bc\x7f"], [record(0, 0)])).block == "a␀b␛c␡"


def test_without_the_ends_of_tokens_the_text_is_shown_plain():
    made = Completion("a<b", [1, 2], "length", None, [3], 5, Stats(rounds=[record(1, 1)]), Timings())
    assert page(made).block == "a<b"


def test_of_a_long_text_the_beginning_is_shown_and_how_much_is_left():
    made = completion(["x "] * (N_TOKENS_SHOWN + 7), [record(0, 0)] * (N_TOKENS_SHOWN + 7), rest="end")
    shown = page(made)
    assert shown.block == "x " * N_TOKENS_SHOWN
    assert any("7 more are not shown" in text for _, text in shown.texts)


def test_an_empty_generation_is_well_formed():
    assert page(completion([], [])).block == ""


@pytest.mark.parametrize("name", ["accepted", "bonus", "correction"])
def test_the_legend_names_what_is_shown_and_nothing_else(name: str):
    rounds = {"accepted": record(1, 1, n_own=0), "bonus": record(1, 1), "correction": record(1, 0)}[name]
    shown = page(completion(["a"] * rounds.n_emitted, [rounds]))
    legend = {
        text.split(":")[0].removesuffix(" from a draft") for style, text in shown.texts if "padding:0 0.4em" in style
    }
    assert legend == {"accepted": {"accepted"}, "bonus": {"accepted", "bonus"}, "correction": {"correction"}}[name]


def test_the_stats_table_holds_every_row_of_the_text():
    stats = Stats(n_prompt=3, n_generated=4, n_rounds=2, rollback="<trim>")
    stats.count_draft("a&b", 3, 2)
    shown = Page(stats._repr_html_())
    cells = [text for _, text in shown.texts]
    lines = [f"{name} {numbers}" for name, numbers in zip(cells[::2], cells[1::2], strict=True)]
    assert [line.split() for line in lines] == [line.split() for line in str(stats).splitlines()]


def test_a_table_without_rows_is_well_formed():
    assert Page(stats_html([])).texts == []


# ------------------------------------------------------------------ of a model


@pytest.fixture(scope="module")
def llm(tiny_target_path: Path) -> Iterator[Llama]:
    with Llama(tiny_target_path, n_ctx=512, n_threads=1, budget="counts") as made:
        yield made


@pytest.mark.parametrize("spec", [None, "ngram-map-k:size_n=4"])
def test_a_generation_shows_its_text_and_its_accepted_tokens(llm: Llama, spec: str | None):
    made = llm.generate(PROMPT * 2, max_tokens=60, spec=spec, ignore_eos=True)
    shown = page(made)
    assert shown.block == made.text
    ends = [0, *made.token_ends]
    accepted = [made.text[ends[i] : ends[i + 1]] for i, origin in enumerate(made.origins) if origin == "accepted"]
    assert shown.shaded(BLUE) == "".join(accepted)
    assert bool(accepted) == (spec is not None)
    assert str(made) in [text for _, text in shown.texts]


def test_elsewhere_a_generation_stays_plain_text(llm: Llama):
    made = llm.generate(PROMPT, max_tokens=8)
    assert "<div" not in repr(made) + str(made) + str(made.stats)
    assert "RoundRecord" not in repr(made)
