"""What our n-gram speculators draft beside what llama.cpp's own do, on the same tokens with the same feedback.

Drafts are equal, or differ in a way that docs/speculators.md names; a test of each way says exactly what llama.cpp
does there. `explain_*` take a round in which the drafts differ and return the name, or fail.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from llama_cpp_drafts import N_VOCAB, LlamaCpp, Round, play, small_steps
from ngram_texts import ends_of, followed, recorded, repetitive
from test_ngram_map_k4v import reference_draft
from test_ngram_trie import Counts, counted

from pyspec.speculators import (
    History,
    NgramCache,
    NgramMapK4vOptions,
    NgramMod,
    NgramModOptions,
    NgramModTable,
    NgramTable,
    as_tokens,
)

DOCS = Path(__file__).parents[2] / "docs" / "speculators.md"
Options = dict[str, Any]


@pytest.fixture(scope="session")
def ngram_drafts(build_test_models_module: ModuleType) -> Path:
    """The program that tells what llama.cpp drafts."""
    program: Path = build_test_models_module.ngram_drafts()
    return program


@pytest.fixture
def llama_cpp(ngram_drafts: Path) -> Iterator[LlamaCpp]:
    running = LlamaCpp(ngram_drafts)
    yield running
    running.close()


def documented(name: str) -> set[str]:
    """Differences of a speculator: the first column of its table in the documentation."""
    section = re.search(rf"^### {name}\n(.*?)(?=^##|\Z)", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    assert section, f"{DOCS.name} has a section {name}"
    return set(re.findall(r"^\| \*\*(.+?)\*\* \|", section[1], re.MULTILINE))


def texts(seed: int) -> Iterator[tuple[int, list[int]]]:
    """Prompt lengths and tokens: recorded, repetitive, of few and of many different tokens, periodic."""
    rng = random.Random(seed)
    for text in recorded().values():
        yield text.n_prompt, text.tokens
    for n_alphabet in (2, 3, 5, 8, 20, 100):
        for _ in range(4):
            tokens = repetitive(rng, n_alphabet, 60)
            yield max(1, len(tokens) // 3), tokens
    yield 50, [rng.randrange(N_VOCAB) for _ in range(150)]
    yield 20, [1, 2, 3, 4, 5, 6, 7] * 20
    yield 20, [7] * 120
    passage = [rng.randrange(1000) for _ in range(60)]
    yield 70, [*passage, *range(2000, 2020), *passage, *range(3000, 3030), *passage, *passage[:30], 5, *passage]


def differences(
    llama_cpp: LlamaCpp,
    name: str,
    options: Options,
    explain: Callable[[Round, Options, dict[Any, Any]], str],
    *,
    judged: bool,
) -> Counter[str]:
    """How often drafts were the same and not empty, and how often they differed in which way."""
    met: Counter[str] = Counter()
    for seed, (n_prompt, tokens) in enumerate(texts(1)):
        n_prompt = max(4, n_prompt)  # llama.cpp's ngram-cache reads before the start of shorter texts
        notes: dict[Any, Any] = {"n_prompt": n_prompt}  # what an explanation remembers of the rounds before
        for round_ in play(llama_cpp, name, options, tokens, small_steps(n_prompt, random.Random(seed)), judged=judged):
            kind = explain(round_, options, notes)
            met[kind] += bool(round_.ours or round_.theirs)
    assert met["same"] > 0
    return met


# ------------------------------------------------------------------ ngram-simple, ngram-map-k, ngram-map-k4v


N_SLOTS = 262_144  # of the table of keys in llama.cpp (common/ngram-map.h)


def slot_of(key: list[int]) -> int:
    """Slot of a key there (common/ngram-map.cpp): a linear congruential hash of 32 bits."""
    value = 0
    for token in key:
        value = (value * 2654435761 + token) % 2**32
    return value % N_SLOTS


def why_not_found(t: list[int], n: int, m: int, n_prompt: int) -> str:
    """Why llama.cpp's maps cannot find the last key of `t`, "" where they can."""
    if len(t) - 1 < 2 * n + m:
        return "short history"
    if not whole_ends(t, n, m):
        return "whole continuation"
    # neither the search in the prompt nor that behind it begins among the prompt's last n + m + 1 tokens
    is_blind = all(n_prompt - m <= end <= n_prompt + n for end in whole_ends(t, n, m))
    return "end of the prompt" if is_blind else ""


def has_rival(t: list[int], n: int, m: int) -> bool:
    """Whether another key than the last one lies in its slot."""
    keys = (t[end - n : end] for end in range(n + 1, len(t) - m - 1))
    return any(slot_of(key) == slot_of(t[-n:]) for key in keys if key != t[-n:])


def whole_ends(t: list[int], n: int, m: int) -> list[int]:
    """Occurrences that llama.cpp's maps may draft from: not at the very start, m tokens and one more behind them."""
    return [end for end in ends_of(t, n) if n < end <= len(t) - m - 2]


def explain_simple(r: Round, options: Options, _: dict[Any, Any]) -> str:
    t, n, m = r.tokens, options["size_n"], options["size_m"]
    ends = ends_of(t, n)
    if len(ends) < options["min_hits"]:
        assert r.ours == []
        return "same" if r.theirs == [] else "min_hits"
    if r.ours == r.theirs:
        return "same"
    assert r.ours == followed(t, ends[-1], m)
    if len(t) - 1 <= n + m + 1:
        assert r.theirs == []
        return "short history"
    if ends == [n]:
        assert r.theirs == []
        return "first tokens"
    assert len(t) - ends[-1] <= m, "what followed runs into the end"
    near = [end for end in ends if n < end < len(t) - 1]
    rest = t[near[-1] : -1][:m] if near else []
    assert r.theirs == (rest if len(rest) >= n else [])
    return "end of the history"


def explain_map_k(r: Round, options: Options, notes: dict[Any, Any]) -> str:
    t, n, m = r.tokens, options["size_n"], options["size_m"]
    key, ends, whole = tuple(t[-n:]), ends_of(t, n), whole_ends(t, n, m)
    n_theirs = min(m, notes.get(key, m))  # llama.cpp never drafts more than was right of the draft before
    if r.theirs:
        notes[key] = r.n_right_theirs if options["judged"] else m
        assert r.theirs in [t[end : end + n_theirs] for end in whole]
    if r.ours == r.theirs:
        return "same"
    if len(ends) < options["min_hits"]:
        assert r.ours == []
        return "min_hits"
    assert r.ours == followed(t, ends[-1], len(r.ours)) != []
    if r.theirs == followed(t, ends[-1], n_theirs):
        assert key in notes, "a length that was learned"
        return "learned length"
    if r.theirs:
        return "older occurrence"
    reason = why_not_found(t, n, m, notes["n_prompt"])
    assert reason or has_rival(t, n, m)
    return reason or "shared slot"


def explain_map_k4v(r: Round, options: Options, notes: dict[Any, Any]) -> str:
    t, n, m = r.tokens, options["size_n"], options["size_m"]
    key, ends, whole = tuple(t[-n:]), ends_of(t, n), whole_ends(t, n, m)
    ours = reference_draft(t, NgramMapK4vOptions(**{o: options[o] for o in ("size_n", "size_m", "min_hits")}), m)
    assert r.ours == ours[: len(r.ours)] and bool(r.ours) == bool(ours)
    reason = why_not_found(t, n, m, notes["n_prompt"])
    notes["rounds", key] = notes.get(("rounds", key), 0) + (reason == "")
    judged = notes.setdefault(("judged", key), {m})  # how much was right of drafts for this key, whichever value
    if r.theirs:
        assert r.theirs in [t[end : end + min(m, n_right)] for end in whole for n_right in judged]
        judged.add(r.n_right_theirs if options["judged"] else m)
    if r.ours == r.theirs:
        return "same"
    if reason and not r.theirs:
        return reason
    if len(ends) < options["min_hits"] or notes["rounds", key] < options["min_hits"]:
        assert [] in (r.ours, r.theirs)
        return "min_hits"
    if not r.theirs and has_rival(t, n, m):
        return "shared slot"
    is_prefix = r.ours[: len(r.theirs)] == r.theirs or r.theirs[: len(r.ours)] == r.ours
    values = {tuple(followed(t, end, m)) for end in ends[-32:]}
    if len(judged) > 1 and is_prefix and (len(values) == 1 or [] not in (r.ours, r.theirs)):
        return "learned length"
    assert len(values) > 1, "what followed differs"
    return "agreement" if 0 < len(r.ours) < m and r.theirs == [] else "counts"


# ------------------------------------------------------------------ ngram-mod, ngram-cache


def mod_draft(t: list[int], n_learned: int, options: Options) -> list[int]:
    """What a table drafts that holds the n-grams of the first `n_learned` tokens."""
    n = options["n_match"]
    table = {tuple(t[i - n : i]): t[i] for i in range(n, n_learned)}
    grown = list(t)
    while len(grown) < len(t) + options["n_max"] and tuple(grown[-n:]) in table:
        grown.append(table[tuple(grown[-n:])])
    draft = grown[len(t) :]
    return draft if len(draft) >= options["n_min"] else []


def explain_mod(r: Round, options: Options, notes: dict[Any, Any]) -> str:
    t, n = r.tokens, options["n_match"]
    n_prompt = notes["n_prompt"]
    n_before = len(t) - 1  # llama.cpp learns nothing from the token sampled last
    start, n_learned = notes.get("read", (max(0, n_prompt - n), n_prompt))
    if n_before >= n and start + 32 < n_before:
        start, n_learned = n_before - n, n_before
    assert r.ours == mod_draft(t, len(t), options)
    assert r.theirs == mod_draft(t, n_learned, options)
    if options["judged"] and r.theirs:
        notes["bad"] = notes.get("bad", 0) + 1 if 4 * r.n_right_theirs < len(r.theirs) else 0
        if notes["bad"] == 5:  # then it reads this text anew
            notes["bad"], start, n_learned = 0, 0, 0
    notes["read"] = start, n_learned
    return "same" if r.ours == r.theirs else "late learning"


LAX = {1: (2, 66), 2: (2, 50), 3: (1, 50), 4: (1, 50)}
STRICT = {1: (4, 75), 2: (3, 66), 3: (2, 66), 4: (2, 66)}


def can_be(t: list[int], draft: list[int], text: Counts, dynamic: Counts, static: Counts) -> bool:
    """Whether these counts give this draft of up to eight tokens, whichever of equals is taken."""
    grown = list(t)
    for token in [*draft, None][:8]:
        known = static.get(tuple(grown[-2:]), Counter())
        weights = {follower: 100 * count for follower, count in known.items()}
        ends = [tuple(grown[-n:]) for n in (4, 3, 2, 1)]
        looks = [(text.get(g), LAX[len(g)], weights) for g in ends]
        looks += [(dynamic.get(g), STRICT[len(g)], weights) for g in ends]
        looks += [(known, LAX[2], {})]
        taken: set[int] = set()
        is_sure = False
        for counts, (n_seen, percent), weight in looks:
            if counts and counts.total() >= n_seen and not is_sure:
                highest = max(count * weight.get(follower, 1) for follower, count in counts.items())
                heaviest = {f for f, count in counts.items() if count * weight.get(f, 1) == highest}
                frequent = {f for f in heaviest if 100 * counts[f] >= percent * counts.total()}
                taken |= frequent
                is_sure = frequent == heaviest
        if token is None:
            return not is_sure
        if token not in taken:
            return False
        grown.append(token)
    return True


def explain_cache(r: Round, options: Options, notes: dict[Any, Any]) -> str:
    tables = rows_of(options["dynamic"]), rows_of(options["static"])
    n_read, notes["n_read"] = notes.get("n_read", 0), len(r.tokens)
    # llama.cpp counts what arrived since the last round as a text of its own
    whole, pieces = notes.setdefault("whole", {}), notes.setdefault("pieces", {})
    for counts, new in ((whole, counted(r.tokens, 4, n_read)), (pieces, counted(r.tokens[n_read:], 4))):
        for ngram, followers in new.items():
            counts.setdefault(ngram, Counter()).update(followers)
    assert can_be(r.tokens, r.ours, whole, *tables)
    assert can_be(r.tokens, r.theirs, pieces, *tables)
    if r.ours == r.theirs:
        return "same"
    return "equal counts" if can_be(r.tokens, r.theirs, whole, *tables) else "pieces"


@cache
def rows_of(path: Path) -> Counts:
    counts: Counts = {}
    table = NgramTable.load(path)
    for ngram, token, count in zip(*(column.tolist() for column in table.rows), strict=True):
        counts.setdefault(tuple(t for t in ngram if t >= 0), Counter())[token] = count
    return counts


# ------------------------------------------------------------------ all of them on all texts

MAP_OPTIONS = [
    {"size_n": 2, "size_m": 4, "min_hits": 1},
    {"size_n": 3, "size_m": 12, "min_hits": 2},
    {"size_n": 12, "size_m": 48, "min_hits": 1},
]
MOD_OPTIONS = [{"n_match": 3, "n_min": 2, "n_max": 8}, {"n_match": 24, "n_min": 48, "n_max": 64}]
PLAYED: dict[str, tuple[Callable[[Round, Options, dict[Any, Any]], str], list[dict[str, int]]]] = {
    "ngram-simple": (explain_simple, MAP_OPTIONS),
    "ngram-map-k": (explain_map_k, MAP_OPTIONS),
    "ngram-map-k4v": (explain_map_k4v, MAP_OPTIONS),
    "ngram-mod": (explain_mod, MOD_OPTIONS),
    "ngram-cache": (explain_cache, [{}]),
}
SHOWN: dict[str, set[str]] = {
    "ngram-simple": set(),
    "ngram-map-k": {"shared slot"},
    "ngram-map-k4v": {"shared slot", "tokens of the occurrence"},
    "ngram-mod": {"other sequences", "crowded table"},
    "ngram-cache": {"next generation"},
}
"""Differences that the texts do not show; each has a test below."""


def two_tables(folder: Path) -> dict[str, Path]:
    """Files of a static and a dynamic table: of parts of a recorded text, and of texts of few different tokens."""
    code, rng = recorded()["code"].tokens, random.Random(4)
    paths = {"static": folder / "static", "dynamic": folder / "dynamic"}
    few = [NgramTable.from_tokens(repetitive(rng, 8, 100)) for _ in range(2)]
    NgramTable.from_tokens(code[:600], n_min=2, n_max=2).merge(few[0]).save(paths["static"])
    NgramTable.from_tokens(code[400:]).merge(few[1]).save(paths["dynamic"])
    return paths


@pytest.mark.parametrize("name", PLAYED)
def test_drafts_are_those_of_llama_cpp_but_for_the_documented_differences(
    llama_cpp: LlamaCpp, tmp_path: Path, name: str
) -> None:
    explain, all_options = PLAYED[name]
    met: Counter[str] = Counter()
    for options in all_options:
        tables = two_tables(tmp_path) if name == "ngram-cache" else {}
        for judged in (False, True):

            def explained(r: Round, options: Options, notes: dict[Any, Any], judged: bool = judged) -> str:
                return explain(r, {**options, "judged": judged}, notes)

            met += differences(llama_cpp, name, {**options, **tables}, explained, judged=judged)
    assert set(met) - {"same"} | SHOWN[name] == documented(name)


def test_every_speculator_that_is_compared_has_a_table() -> None:
    assert re.findall(r"^### (ngram-.*)", DOCS.read_text(), re.MULTILINE) == list(PLAYED)


# ------------------------------------------------------------------ one by one


def both(llama_cpp: LlamaCpp, name: str, options: Options, *pieces: list[int]) -> tuple[list[int], list[int]]:
    """What ours and llama.cpp's draft after the last piece of a text; both draft after each."""
    text = [token for piece in pieces for token in piece]
    *_, last = play(llama_cpp, name, options, text, map(len, pieces), judged=False)
    return last.ours, last.theirs


@pytest.mark.parametrize("name", ["ngram-map-k", "ngram-map-k4v"])
def test_keys_that_share_a_slot_are_both_found_here_and_the_earlier_one_is_not_there(
    llama_cpp: LlamaCpp, name: str
) -> None:
    one, two = 5, 5 + N_SLOTS
    assert slot_of([one]) == slot_of([two])
    prompt = [1, one, 11, 12, 1, 1, two, 21, 22, 1, 1, 1, 1, 1, 1]
    for key, ours, theirs in ((one, [11, 12], []), (two, [21, 22], [21, 22])):
        options = {"size_n": 1, "size_m": 2, "min_hits": 1}
        assert both(llama_cpp, name, options, prompt, [9], [key]) == (ours, theirs)


def test_map_k4v_drafts_the_value_that_it_chose_and_llama_cpp_another_ones_tokens(llama_cpp: LlamaCpp) -> None:
    key, often, once = [1, 2], [11, 12], [21, 22]
    text = [0, *(key + often) * 3, *key, *once, 3, 4, 5, 6, 7, 8, 9]
    options = {"size_n": 2, "size_m": 2, "min_hits": 1}
    assert both(llama_cpp, "ngram-map-k4v", options, text, key) == (often, once)


def test_one_sequences_bad_drafts_cost_others_theirs_in_llama_cpp_and_not_here(llama_cpp: LlamaCpp) -> None:
    options = {"n_match": 3, "n_min": 1, "n_max": 4}
    table = NgramModTable(3)
    speculators = [NgramMod(NgramModOptions(**options), table=table) for _ in range(2)]
    llama_cpp.open("ngram-mod", options, n_seq=2)
    texts_of_two = [list(range(100, 140)) * 2, list(range(200, 240)) * 2]
    for seq_id, text in enumerate(texts_of_two):
        speculators[seq_id].begin(as_tokens(text))
        llama_cpp.tell("begin", seq_id, text)
        llama_cpp.tell("extend", seq_id, [text[0]])
    histories = [History([*text, text[0]]) for text in texts_of_two]
    coming = [text[1:5] for text in texts_of_two]
    assert [list(s.draft(h, 4)) for s, h in zip(speculators, histories, strict=True)] == coming
    assert [llama_cpp.draft(seq_id) for seq_id in (0, 1)] == coming
    for _ in range(5):
        assert len(speculators[0].draft(histories[0], 4)) == len(llama_cpp.draft(0)) == 4
        speculators[0].accept(4, 0, own=True)
        llama_cpp.tell("accept", 0, 0)
    assert speculators[1].draft(histories[1], 4) == coming[1]
    assert llama_cpp.draft(1) == []


def test_a_prompt_that_crowds_the_table_is_learned_here_and_not_in_llama_cpp(llama_cpp: LlamaCpp) -> None:
    options = {"n_match": 2, "n_min": 1, "n_max": 4}
    crowd, passage = list(range(1_300_000)), [7, 8, 9, 10, 11, 12]
    assert both(llama_cpp, "ngram-mod", options, [*crowd, *passage], [7, 8]) == ([9, 10, 11, 12], [])


def test_a_new_generation_is_counted_anew_here_and_not_at_all_in_llama_cpp(llama_cpp: LlamaCpp) -> None:
    speculator = NgramCache()
    llama_cpp.open("ngram-cache", {})
    for text, theirs in (([1, 2, 3, 4] * 10, [1, 2, 3, 4] * 2), ([5, 6, 7, 8] * 9, [])):
        speculator.begin(as_tokens(text))
        llama_cpp.tell("begin", 0, text)
        llama_cpp.tell("extend", 0, [text[0]])
        history = History([*text, text[0]])
        assert speculator.draft(history, 8) == [*text[1:4], *text[:4], text[0]]
        assert llama_cpp.draft() == ([*theirs[1:], theirs[0]] if theirs else [])


def test_the_program_is_built_once(
    ngram_drafts: Path, build_test_models_module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        build_test_models_module.subprocess, "run", lambda *_, **__: pytest.fail("a process was started")
    )
    assert build_test_models_module.ngram_drafts() == ngram_drafts


# ------------------------------------------------------------------ lookup caches


@pytest.mark.parametrize(("n_min", "n_max"), [(1, 4), (2, 2)])
def test_a_lookup_cache_of_llama_cpp_is_the_table_of_its_tokens(
    llama_cpp: LlamaCpp, tmp_path: Path, n_min: int, n_max: int
) -> None:
    path = tmp_path / "a cache"
    for _, tokens in texts(2):
        llama_cpp.tell("write", f'"{path}"', n_min, n_max, tokens)
        llama_cpp.ask("read", f'"{path}"')  # so that it is written
        ours = NgramTable.from_tokens(tokens, n_min=n_min, n_max=n_max)
        theirs = NgramTable.load(path)
        assert [a.tolist() for a in theirs.rows] == [a.tolist() for a in ours.rows]


def test_llama_cpp_reads_a_saved_table_and_joins_two_as_merge_does(llama_cpp: LlamaCpp, tmp_path: Path) -> None:
    one, two, joined = (tmp_path / name for name in ("one", "two", "joined"))
    rng = random.Random(3)
    tables = [NgramTable.from_tokens(repetitive(rng, 5)) for _ in range(2)]
    tables[0].save(one)
    tables[1].save(two)
    llama_cpp.tell("merge", f'"{one}"', f'"{two}"', f'"{joined}"')
    read = llama_cpp.ask("read", f'"{joined}"')
    both_tables = tables[0].merge(tables[1])
    expected: dict[tuple[int, ...], list[list[int]]] = {}
    for ngram, token, count in zip(*(column.tolist() for column in both_tables.rows), strict=True):
        expected.setdefault(tuple(ngram), []).append([token, count])
    assert {tuple(ngram): counts for ngram, counts in read} == {g: sorted(counts) for g, counts in expected.items()}
    assert [a.tolist() for a in NgramTable.load(joined).rows] == [a.tolist() for a in both_tables.rows]
