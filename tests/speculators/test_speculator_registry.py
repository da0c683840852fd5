"""Laws of the names: from what a user writes to a speculator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from pyspec.errors import InvalidValueError, UnknownOptionError
from pyspec.speculators import (
    Chain,
    NgramMapK,
    NgramMapKOptions,
    NgramMod,
    NgramModOptions,
    Scripted,
    Speculator,
    make,
    names,
    parse_options,
    register,
    registry,
)


@pytest.fixture
def own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_factories", dict(registry._factories))


def mod_options(spec: Any) -> NgramModOptions:
    speculator = make(spec, n_vocab=10)
    assert isinstance(speculator, NgramMod)
    return speculator.options


@pytest.mark.parametrize("spec", ["ngram-mod", "ngram_mod", " NGRAM-MOD", "ngram-mod:", "default"])
def test_names_give_the_defaults_of_llama_cpp(spec: str) -> None:
    assert mod_options(spec) == NgramModOptions(n_match=24, n_min=48, n_max=64)


def test_options_may_follow_the_name() -> None:
    assert mod_options("ngram-mod:n_match=12, n-min=2,n_max=32") == NgramModOptions(n_match=12, n_min=2, n_max=32)
    speculator = make("ngram-map-k:size_n=3,min_hits=2", n_vocab=10)
    assert isinstance(speculator, NgramMapK)
    assert speculator.options == NgramMapKOptions(size_n=3, min_hits=2)


def test_options_objects_are_specs() -> None:
    assert mod_options(NgramModOptions(n_match=5)).n_match == 5
    speculator = make(NgramMapKOptions(size_n=5), n_vocab=10)
    assert isinstance(speculator, NgramMapK)
    assert speculator.options.size_n == 5


@pytest.mark.parametrize("spec", [None, "none", "None", [], (), [None, "none"]], ids=repr)
def test_nothing_is_none(spec: Any) -> None:
    assert make(spec, n_vocab=10) is None


def test_a_speculator_is_returned_as_it_is() -> None:
    speculator = Scripted([])
    assert make(speculator, n_vocab=10) is speculator
    assert make([speculator], n_vocab=10) is speculator
    assert make([None, speculator], n_vocab=10) is speculator


def test_a_list_is_a_chain_in_its_order() -> None:
    speculator = make(["ngram-map-k", Scripted([]), NgramModOptions()], n_vocab=10)
    assert isinstance(speculator, Chain)
    assert [member.name for member in speculator.members] == ["ngram-map-k", "scripted", "ngram-mod"]


def test_two_speculators_of_one_name_have_tables_of_their_own() -> None:
    first, second = make("ngram-mod", n_vocab=10), make("ngram-mod", n_vocab=10)
    assert isinstance(first, NgramMod)
    assert isinstance(second, NgramMod)
    assert first.table is not second.table


@pytest.mark.parametrize(
    ("spec", "near"), [("ngram-mood", "ngram-mod"), ("ngram-map", "ngram-map-k"), ("defualt:x=1", "default")]
)
def test_an_unknown_name_is_refused_with_the_nearest(spec: str, near: str) -> None:
    with pytest.raises(UnknownOptionError, match=f"unknown speculator .*did you mean '{near}'"):
        make(spec, n_vocab=10)


def test_an_unknown_option_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownOptionError, match=r"'n_mach'.*did you mean 'n_match'"):
        make("ngram-mod:n_mach=3", n_vocab=10)


@pytest.mark.parametrize(
    "spec",
    [
        "ngram-mod:12",
        "ngram-mod:n_match=",
        "ngram-mod:n_match=4,n_match=5",
        "ngram-mod:n_match=4.5",
        "ngram-mod:n_match=many",
        "ngram-mod:n_match=true",
        "ngram-mod:n_min=9,n_max=8",
        "default:n_match=4",
        7,
        object(),
        Scripted,  # its class wants arguments
        ["ngram-mod", 7],
    ],
    ids=lambda spec: str(spec)[:40],
)
def test_what_cannot_be_is_refused(spec: Any) -> None:
    with pytest.raises(InvalidValueError):
        make(spec, n_vocab=10)


@pytest.mark.parametrize("spec", [NgramMod, lambda: "ngram-mod", NgramModOptions], ids=["class", "function", "options"])
def test_what_makes_a_speculator_is_called_each_time(spec: Any) -> None:
    one, other = make(spec, n_vocab=10), make([spec], n_vocab=10)
    assert isinstance(one, NgramMod)
    assert isinstance(other, NgramMod)
    assert one is not other


def test_the_same_object_twice_in_a_list_is_refused() -> None:
    speculator = Scripted([])
    with pytest.raises(InvalidValueError, match="twice"):
        make([speculator, speculator], n_vocab=10)


def test_names_lists_everything_that_make_knows() -> None:
    assert {"default", "ngram-map-k", "ngram-mod", "none"} <= set(names())
    assert list(names()) == sorted(names())


@pytest.mark.usefixtures("own_names")
def test_a_registered_factory_gets_its_argument_and_the_environment() -> None:
    seen: list[Any] = []

    def factory(argument: str, **environment: Any) -> Speculator:
        seen.append((argument, environment))
        return Scripted([], name="mine")

    register("mine", factory)
    register("mine", factory)
    assert "mine" in names()
    assert make("mine:C:/a=b,c.gguf", n_vocab=10, target="T").name == "mine"  # type: ignore[union-attr]
    make("mine", n_vocab=10)
    assert seen == [("C:/a=b,c.gguf", {"n_vocab": 10, "target": "T"}), ("", {"n_vocab": 10})]


@pytest.mark.usefixtures("own_names")
@pytest.mark.parametrize("name", ["ngram-mod", "none", "", "a:b", "Mine", "a b", "a_b"])
def test_a_name_that_is_taken_or_cannot_be_written_is_refused(name: str) -> None:
    with pytest.raises(InvalidValueError):
        register(name, lambda argument, **environment: Scripted([]))


def test_values_keep_their_kind_so_that_options_can_judge_them() -> None:
    @dataclass
    class Options:
        a: object = None
        b: object = None
        c: object = None
        d: object = None

    assert parse_options(Options, "a=1,b=0.5,c=TRUE,d=x/y") == Options(a=1, b=0.5, c=True, d="x/y")
    assert parse_options(Options, "") == Options()


def test_auto_is_suffix_and_n_gram_drafts_and_the_draft_model_where_there_is_one():
    model = Scripted([], name="a-model")
    alone = make("auto", n_vocab=10, draft=lambda source, options: model, has_draft=False)
    beside = make("auto", n_vocab=10, draft=lambda source, options: model, has_draft=True)
    assert alone is not None
    assert beside is not None
    assert alone.name == "suffix+ngram-mod+copy"
    assert beside.name == "suffix+ngram-mod+copy+a-model"


def test_auto_within_a_list_stands_in_its_place():
    made = make(["ngram-simple", "auto", "ngram-cache"], n_vocab=10)
    assert made is not None
    assert made.name == "ngram-simple+suffix+ngram-mod+copy+ngram-cache"


def test_auto_takes_no_options():
    with pytest.raises(InvalidValueError, match="auto"):
        make("auto:n=3", n_vocab=10)
