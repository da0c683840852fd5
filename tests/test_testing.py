"""The contract for authors: it holds for the built-in speculators and the example, and finds each kind of fault."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pyspec import Llama
from pyspec.errors import InvalidValueError, SpeculatorError, StateError
from pyspec.speculators import NgramMapK, NgramSimple, Suffix, make, optional
from pyspec.speculators.adapted import Adapted
from pyspec.testing import Scripted, SpeculatorContract, check_speculator

EXAMPLE = Path(__file__).parent.parent / "examples" / "own_speculator.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("own_speculator", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", [NgramMapK, NgramSimple, Suffix, lambda: Scripted([[1, 2], [], [3]])])
def test_the_contract_holds_for_the_built_in_ones(kind: Callable[[], Any]):
    check_speculator(kind)


def test_the_contract_holds_for_the_example(example: ModuleType):
    check_speculator(example.AfterTheSamePair)


def test_the_example_drafts_and_changes_nothing(example: ModuleType, capsys: pytest.CaptureFixture[str]):
    completion = example.main()
    assert completion.stats.by_speculator["AfterTheSamePair"].n_accepted > 0
    assert "decodes became" in capsys.readouterr().out


class Minimal:
    """Keeps the contract by doing nothing."""

    def begin(self, tokens: Any) -> None: ...

    def draft(self, history: Any, n_max: int) -> Any:
        return []

    def accept(self, n_drafted: int, n_accepted: int, *, own: bool) -> None: ...


class TooLong(Minimal):
    def draft(self, history: Any, n_max: int) -> Any:
        return [1] * (n_max + 1)


class OutOfRange(Minimal):
    def draft(self, history: Any, n_max: int) -> Any:
        return [64][:n_max]


class Fractions(Minimal):
    def draft(self, history: Any, n_max: int) -> Any:
        return [0.5][:n_max]


class NeedsAPrompt(Minimal):
    def begin(self, tokens: Any) -> None:
        self.last = tokens[-1]


class KeepsThePrompt(Minimal):
    def begin(self, tokens: Any) -> None:
        self.tokens = tokens

    def draft(self, history: Any, n_max: int) -> Any:
        return self.tokens[:n_max].tolist()


class OnlyOnce(Minimal):
    begun = False

    def begin(self, tokens: Any) -> None:
        if self.begun:
            raise RuntimeError("already begun")
        self.begun = True


class TrustsVerdicts(Minimal):
    def begin(self, tokens: Any) -> None:
        self.open: list[int] = []

    def accept(self, n_drafted: int, n_accepted: int, *, own: bool) -> None:
        self.open[n_drafted - 1]


class ReadsOn(Minimal):
    """Remembers how much it read and not that tokens may be taken back."""

    def begin(self, tokens: Any) -> None:
        self.n = len(tokens)

    def draft(self, history: Any, n_max: int) -> Any:
        if len(history) < self.n:
            raise IndexError("fewer tokens than were read")
        self.n = len(history)
        return []


class Forgetful(Minimal):
    """Its state is not all that it drafts by."""

    def __init__(self) -> None:
        self.n = 0

    def draft(self, history: Any, n_max: int) -> Any:
        self.n += 1
        return [self.n % 64][:n_max]

    def get_state(self) -> dict[str, Any]:
        return {}

    def set_state(self, state: dict[str, Any]) -> None: ...


def test_the_least_that_keeps_the_contract():
    check_speculator(Minimal)


@pytest.mark.parametrize(
    ("kind", "law"),
    [
        (TooLong, "keep to n max|no room"),
        (OutOfRange, "vocabulary"),
        (Fractions, "vocabulary"),
        (NeedsAPrompt, "no or one token"),
        (KeepsThePrompt, "by reference"),
        (OnlyOnce, "second generation"),
        (TrustsVerdicts, "verdict|vocabulary"),
        (ReadsOn, "cut"),
        (Forgetful, "restored"),
    ],
)
def test_each_fault_is_found_and_its_law_named(kind: Callable[[], Any], law: str):
    with pytest.raises(AssertionError, match=law):
        check_speculator(kind)


def test_a_suite_that_does_not_say_how_one_is_made_says_so():
    with pytest.raises(NotImplementedError, match="def make"):
        SpeculatorContract().test_no_room_means_no_draft()


# ------------------------------------------------------------------ three methods are enough


@pytest.mark.parametrize("budget", ["measured", "counts", "off"])
def test_three_methods_are_a_speculator(tiny_target_path: Path, budget: str):
    class Lucky(Minimal):
        def __init__(self, truth: list[int], n_prompt: int) -> None:
            self.truth, self.n_prompt = truth, n_prompt

        def draft(self, history: Any, n_max: int) -> Any:
            at = len(history) - self.n_prompt
            return self.truth[at : at + min(n_max, 5)]

    with Llama(tiny_target_path, n_ctx=256, n_threads=1, budget=budget) as llm:  # type: ignore[arg-type]
        plain = llm.generate("x = 1\n", max_tokens=40, spec=None, ignore_eos=True)
        lucky = Lucky(plain.tokens, len(plain.prompt_tokens))
        fast = llm.generate("x = 1\n", max_tokens=40, spec=[lucky, "suffix"], ignore_eos=True)  # type: ignore[list-item]
    assert fast.tokens == plain.tokens
    if budget != "measured":  # what it decides depends on the machine
        assert fast.stats.by_speculator["Lucky"].n_accepted > 10


def test_what_is_left_out_has_a_default_and_what_is_there_is_used():
    plain = make(Minimal(), n_vocab=10)  # type: ignore[arg-type]
    assert isinstance(plain, Adapted)
    assert (plain.name, plain.nbytes, optional(plain, "match_length"), optional(plain, "decodes")) == (
        "Minimal",
        0,
        0,
        0,
    )
    named = Minimal()
    named.name, named.nbytes, named.match_length, named.decodes = "own", 7, 3, True  # type: ignore[attr-defined]
    made = make(named, n_vocab=10)  # type: ignore[arg-type]
    assert isinstance(made, Adapted)
    assert (made.name, made.nbytes, made.match_length, made.decodes) == ("own", 7, 3, True)


def test_a_state_goes_to_the_object_that_has_one():
    one, other = make(Forgetful(), n_vocab=10), make(Minimal(), n_vocab=10)  # type: ignore[arg-type]
    assert one is not None
    assert other is not None
    assert one.get_state() == {"kind": "Forgetful", "own": {}}
    assert other.get_state() == {"kind": "Minimal", "own": None}
    other.set_state(other.get_state())
    with pytest.raises(StateError, match="Forgetful"):
        other.set_state(one.get_state())


@pytest.mark.parametrize("wrong", [dict, 3, object(), {"draft": 1}])
def test_what_has_not_the_three_is_refused(wrong: Any):
    with pytest.raises(InvalidValueError, match="begin, draft and accept"):
        make(wrong, n_vocab=10)


def test_its_exceptions_name_it():
    class Broken(Minimal):
        def begin(self, tokens: Any) -> None:
            raise ValueError("no luck")

    from pyspec.speculators import as_tokens, checked_begin

    made = make(Broken(), n_vocab=10)  # type: ignore[arg-type]
    assert made is not None
    with pytest.raises(SpeculatorError, match=r"Broken.*no luck"):
        checked_begin(made, as_tokens([1]))


# ------------------------------------------------------------------ what is optional


class Raises(Minimal):
    @property
    def match_length(self) -> int:
        raise OSError("no luck")

    def draft(self, history: Any, n_max: int) -> Any:
        return [1][:n_max]


@pytest.mark.parametrize("name", ["match_length", "decodes", "draws"])
@pytest.mark.parametrize("value", ["x", None, 1.5, -1, float("nan"), [1, 2]])
def test_an_optional_attribute_of_another_kind_names_the_speculator(name: str, value: Any):
    wrong = Minimal()
    setattr(wrong, name, value)
    made = make(wrong, n_vocab=10)  # type: ignore[arg-type]
    assert made is not None
    with pytest.raises(SpeculatorError, match=rf"Minimal.*{name}"):
        optional(made, name)


@pytest.mark.parametrize("budget", ["measured", "counts"])
def test_one_that_raises_names_the_speculator_and_harms_nothing(tiny_target_path: Path, budget: str):
    with Llama(tiny_target_path, n_ctx=256, n_threads=1, budget=budget) as llm:  # type: ignore[arg-type]
        with pytest.raises(SpeculatorError, match=r"Raises.*no luck"):
            llm.generate("x = 1", max_tokens=8, ignore_eos=True, spec=Raises())  # type: ignore[arg-type]
        assert llm.generate("x = 1", max_tokens=2).tokens


class Drawing(Minimal):
    draws = True
    laws: Any = ()
    seeds: list[int]

    def reseed(self, seed: int) -> None:
        self.seed = seed

    def draft(self, history: Any, n_max: int) -> Any:
        return [7][:n_max]


@pytest.mark.parametrize(
    "law",
    [
        ([7], [float("nan")]),
        ([7], [-1.0]),
        ([7], [0.5]),
        ([7], [float("inf")]),
        ([], []),
        ([6], [1.0]),
        ([7, 8], [1.0]),
        ([7, 7], [0.1, 0.9]),
        ([7, -7], [0.5, 0.5]),
        ([7.9], [1.0]),
        (["7"], [1.0]),
        ([7], ["1.0"]),
        ([7, 8], [0.5, 0.509]),
        "x",
        None,
    ],
)
def test_a_law_that_cannot_be_is_an_error(tiny_target_path: Path, law: Any):
    drawing = Drawing()
    drawing.laws = [law]
    with (
        Llama(tiny_target_path, n_ctx=256, n_threads=1, budget="off") as llm,
        pytest.raises(SpeculatorError, match=r"Drawing.*laws"),
    ):
        llm.generate("x", max_tokens=8, ignore_eos=True, temperature=1.0, spec=drawing)  # type: ignore[arg-type]


def test_a_law_for_each_token_and_a_seed_are_asked_for(tiny_target_path: Path):
    drawing, unseeded = Drawing(), Drawing()
    unseeded.reseed = None  # type: ignore[assignment,method-assign]
    with Llama(tiny_target_path, n_ctx=256, n_threads=1, budget="off") as llm:
        how: dict[str, Any] = {"max_tokens": 8, "ignore_eos": True, "temperature": 1.0, "seed": 9}
        with pytest.raises(SpeculatorError, match=r"0 for a draft of 1"):
            llm.generate("x", spec=drawing, **how)  # type: ignore[arg-type]
        assert drawing.seed == 9
        with pytest.raises(SpeculatorError, match=r"Drawing.*reseed"):
            llm.generate("x", spec=unseeded, **how)  # type: ignore[arg-type]


def test_the_contract_takes_a_vocabulary_of_some_size():
    with pytest.raises(InvalidValueError, match="n_vocab"):
        check_speculator(Minimal, n_vocab=3)


@pytest.mark.parametrize("name", [None, "", 3, property(lambda self: 1 / 0)])
def test_a_name_that_cannot_be_told_is_an_error_with_the_class(name: Any):
    wrong = type("Nameless", (Minimal,), {"name": name})()
    with pytest.raises(SpeculatorError, match=r"Nameless.*its name"):
        make(wrong, n_vocab=10)
