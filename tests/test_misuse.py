"""What users got wrong, or what could go wrong without a word, is told in words of pyspec."""

import copy
import gc
import logging
import pickle
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

import pyspec
from pyspec.errors import BusyError, ContextFullError, InvalidValueError, SpeculatorError, UnknownOptionError
from pyspec.speculators import Chain, History, make, optional

SMALL = {"n_ctx": 256, "n_threads": 1}
NUMBERS = ("n_ctx", "n_batch", "n_ubatch", "n_threads", "n_gpu_layers", "n_seq_max", "n_rs_seq")


@pytest.mark.parametrize("name", [*NUMBERS, "checkpoint_budget_bytes"])
@pytest.mark.parametrize("value", [1.0, "8", True, None, 2**70, [1]], ids=str)
def test_a_number_of_another_type_is_refused_by_its_name(tiny_target_path: Path, name: str, value: object):
    with pytest.raises(InvalidValueError, match=f"^{name}="):
        pyspec.Llama(tiny_target_path, **(SMALL | {name: value}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("flash_attn", "on"),
        ("flash_attn", float("nan")),
        ("exact", 1),
        ("verbose", "yes"),
        ("progress", 0),
        ("context", 1),
        ("model", ["use_mmap"]),
        ("draft_options", 0),
        ("draft_model", b"x"),
        ("draft_model", ""),
        ("rollback", None),
        ("replay", 1),
        ("context", {"n_ctx": 4}),
        ("n_seq_max", 0),
        ("n_seq_max", 10**6),
        ("n_batch", 0),
        ("checkpoint_budget_bytes", -1),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_its_name(tiny_target_path: Path, name: str, value: object):
    with pytest.raises(InvalidValueError, match=f"^{name}="):
        pyspec.Llama(tiny_target_path, **(SMALL | {name: value}))


@pytest.mark.parametrize("path", [None, 3, b"model.gguf", ""])
def test_a_path_that_is_none_is_refused(path: object):
    with pytest.raises(InvalidValueError, match=r"^path="):
        pyspec.Llama(path)


def test_whole_numbers_of_numpy_are_numbers(tiny_target_path: Path):
    with pyspec.Llama(tiny_target_path, n_ctx=np.int64(256), n_threads=np.int32(1)) as llm:
        assert llm.n_ctx == 256


@pytest.fixture
def llm(tiny_target_path: Path):
    with pyspec.Llama(tiny_target_path, **SMALL) as made:
        yield made


@pytest.mark.parametrize("call", ["generate", "tokenize"])
def test_a_lone_surrogate_is_refused_with_its_place(llm: pyspec.Llama, call: str):
    with pytest.raises(InvalidValueError, match="one at index 1"):
        getattr(llm, call)("a\ud800")


@pytest.mark.parametrize("value", [["\ud800"], ["x"] * 257], ids=["surrogate", "too-many"])
def test_breakers_that_llama_cpp_cannot_bear_are_refused(llm: pyspec.Llama, value: list[str]):
    with pytest.raises(InvalidValueError, match=r"^dry_sequence_breakers="):
        llm.generate("a", dry_multiplier=1.0, dry_sequence_breakers=value)


def test_a_receiver_of_text_that_cannot_be_called_is_refused_before_anything(llm: pyspec.Llama):
    with pytest.raises(InvalidValueError, match=r"^on_text="):
        llm.generate("a", on_text=1)
    assert llm.stats.n_decodes == 0


class Meddler:
    """Changes the history, which belongs to the decoder."""

    name, nbytes = "meddler", 0

    def __init__(self, how):
        self.how = how

    def begin(self, tokens):
        pass

    def draft(self, history: History, n_max: int):
        self.how(history)
        return []

    def accept(self, n_drafted, n_accepted, *, own):
        pass

    def get_state(self):
        return {}

    def set_state(self, state):
        pass


@pytest.mark.parametrize("how", [lambda h: h.append(5), lambda h: h.truncate(1)], ids=["append", "truncate"])
def test_a_speculator_that_changes_the_history_is_named_and_the_object_stays_sound(llm: pyspec.Llama, how):
    plain = llm.generate("def f(", max_tokens=8, spec=None)
    with pytest.raises(SpeculatorError, match=r"meddler.*only the decoder changes the history"):
        llm.generate("def f(", max_tokens=8, spec=Meddler(how))
    assert llm.generate("def f(", max_tokens=8).tokens == plain.tokens


def test_a_view_of_the_history_cannot_be_made_writable():
    view = History([1, 2, 3]).view()
    with pytest.raises(ValueError, match="WRITEABLE"):
        view.flags.writeable = True


def test_the_last_reference_frees_the_model_without_the_garbage_collector(tiny_target_path: Path):
    gc.collect()
    gc.disable()
    try:
        llm = pyspec.Llama(tiny_target_path, **SMALL)
        llm.generate("def f(", max_tokens=4)
        for _ in llm.stream("def f(", max_tokens=4):
            pass
        gone = weakref.ref(llm)
        del llm
        assert gone() is None
    finally:
        gc.enable()


_FORK = """
import os, sys, warnings
warnings.simplefilter("ignore")
import pyspec
llm = pyspec.Llama(sys.argv[1], n_ctx=256, n_threads=2)
llm.generate("def f(", max_tokens=2)
child = os.fork()
if child == 0:
    try:
        llm.generate("def f(", max_tokens=2)
        os._exit(1)
    except pyspec.errors.UnsupportedError as error:
        os._exit(0 if "forked process" in str(error) else 2)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot fork")
def test_use_in_a_forked_process_is_refused_at_once(tiny_target_path: Path, isolated_script):
    assert isolated_script(_FORK, str(tiny_target_path), timeout_s=120).split() == ["0"]


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_an_object_is_not_copied(llm: pyspec.Llama, how):
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        how(llm)


def test_no_room_for_drafts_is_told_at_start(tiny_target_path: Path, caplog: pytest.LogCaptureFixture):
    with (
        caplog.at_level(logging.WARNING, "pyspec"),
        pyspec.Llama(tiny_target_path, **SMALL, n_batch=1, n_ubatch=1),
    ):
        assert "leave room for one token a decode" in caplog.text


def test_a_shortest_draft_longer_than_the_longest_is_refused(tiny_target_path: Path):
    with pytest.raises(InvalidValueError, match="n_min=5: must be at most n_max=3"):
        pyspec.Llama(tiny_target_path, **SMALL, draft_options={"n_min": 5, "n_max": 3})


def test_none_with_options_is_refused_as_none(llm: pyspec.Llama):
    with pytest.raises(InvalidValueError, match="'none' alone"):
        llm.generate("a", spec="none:x=1")


def test_a_misspelt_model_option_is_told_where_it_stood(tiny_target_path: Path):
    with pytest.raises(UnknownOptionError, match="model option 'use_mlok'"):
        pyspec.Llama(tiny_target_path, **SMALL, model={"use_mlok": True})


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda llm: llm.tokenize("a", add_special=[]), "add_special"),
        (lambda llm: llm.tokenize("a", parse_special="no"), "parse_special"),
        (lambda llm: llm.tokenize(5), "text"),
        (lambda llm: llm.detokenize([1], special="x"), "special"),
        (lambda llm: llm.generate("a", stop="\ud800"), "stop"),
        (lambda llm: llm.generate("a", stop=["b", "c\udfff"]), "stop"),
        (lambda llm: list(llm.map(np.array(3))), "prompts"),
        (lambda llm: pyspec.check_lossless(llm, np.array(3)), "prompts"),
        (lambda llm: pyspec.check_lossless(llm, ["a"], max_tokens=0), "max_tokens"),
        (lambda llm: pyspec.Session(llm, spec=5), "spec"),
        (lambda llm: pyspec.Session(llm).append({}), "text"),
        (lambda llm: pyspec.Session(llm).append([1.5]), "text"),
        (lambda llm: pyspec.Session.load("nowhere.session", None), "llm"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name_before_anything(llm: pyspec.Llama, call, name: str):
    with pytest.raises(InvalidValueError, match=f"^{name}="):
        call(llm)
    assert llm.stats.n_decodes == 0


def test_a_prompt_that_is_too_long_is_told_to_be_shortened(llm: pyspec.Llama):
    with pytest.raises(ContextFullError, match="needs 300 positions, the context has 256; shorten the prompt"):
        llm.generate([1] * 300)


@pytest.mark.parametrize("n_keep", [255, 256, 10**6])
def test_keeping_more_than_a_context_can_move_is_refused(smollm2_path: Path, n_keep: int):
    with pyspec.Llama(smollm2_path, n_ctx=256, n_threads=1, spec=None, rollback="trim") as llm:
        with pytest.raises(InvalidValueError, match=f"^n_keep={n_keep}: must be at most 254"):
            llm.generate("a", n_keep=n_keep)
        assert llm.generate("a", n_keep=254, max_tokens=1).finish_reason


class Mine:
    """Drafts nothing; each test breaks one thing."""

    def begin(self, tokens: object) -> None: ...

    def draft(self, history: History, n_max: int) -> list[int]:
        self.history = history
        return history.view()[:2].tolist()[:n_max]

    def accept(self, n_drafted: int, n_accepted: int, *, own: bool) -> None: ...


class Appends(Mine):
    def accept(self, n_drafted: int, n_accepted: int, *, own: bool) -> None:
        self.history.append(7)


class Extends(Mine):
    def accept(self, n_drafted: int, n_accepted: int, *, own: bool) -> None:
        self.history.extend([10**6])


class Truncates(Mine):
    def accept(self, n_drafted: int, n_accepted: int, *, own: bool) -> None:
        self.history.truncate(3)


class LooksAndAppends(Mine):
    @property
    def match_length(self) -> int:
        if hasattr(self, "history"):
            self.history.append(7)
        return 1


@pytest.mark.parametrize("kind", [Appends, Extends, Truncates, LooksAndAppends])
@pytest.mark.parametrize("budget", ["counts", "off"])
def test_a_speculator_cannot_change_the_history(tiny_target_path: Path, kind: type[Mine], budget: str):
    prompt = "def area(width, height):\n    return width * height\n"
    with pyspec.Llama(tiny_target_path, budget=budget, **SMALL) as llm:
        plain = llm.generate(prompt, max_tokens=20, spec=None)
        if kind is LooksAndAppends and budget == "off":
            assert llm.generate(prompt, max_tokens=20, spec=kind()).tokens == plain.tokens, "nobody looks"
        else:
            with pytest.raises(SpeculatorError, match=r"only the decoder changes the history") as error:
                llm.generate(prompt, max_tokens=20, spec=kind())
            assert error.value.speculator == kind.__name__
        assert llm.generate(prompt, max_tokens=20, spec=None).tokens == plain.tokens


def test_the_same_object_twice_in_a_list_is_refused(tiny_target_path: Path):
    one = Mine()
    with pyspec.Llama(tiny_target_path, **SMALL) as llm, pytest.raises(InvalidValueError, match="same object twice"):
        llm.generate("x", max_tokens=2, spec=[one, one])


def test_an_object_drafts_for_one_request_of_an_engine_at_a_time(tiny_target_path: Path):
    one = Mine()
    with pyspec.Engine(tiny_target_path, n_ctx=256, n_parallel=2, n_threads=1) as engine:
        tickets = [engine.submit("def f(x):", max_tokens=100, ignore_eos=True, spec=one) for _ in range(2)]
        assert len(tickets[0].result(60).tokens) == 100
        with pytest.raises(BusyError, match="Mine"):
            tickets[1].result(60)


def test_a_class_that_cannot_be_made_is_named(tiny_target_path: Path):
    class NeedsAFile(Mine):
        def __init__(self) -> None:
            raise OSError("no index here")

    with pyspec.Llama(tiny_target_path, **SMALL) as llm, pytest.raises(SpeculatorError, match="no index here") as error:
        llm.generate("x", max_tokens=2, spec=NeedsAFile)
    assert error.value.speculator == "NeedsAFile"


def test_an_error_that_cannot_be_told_is_told_all_the_same(tiny_target_path: Path):
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("mute")

    class Breaks(Mine):
        def draft(self, history: History, n_max: int) -> list[int]:
            raise MuteError

    with pyspec.Llama(tiny_target_path, **SMALL) as llm, pytest.raises(SpeculatorError, match="MuteError"):
        llm.generate("x", max_tokens=9, spec=Breaks())


@pytest.mark.parametrize("token", [10**5000, -(10**5000)], ids=["huge", "huge and negative"])
def test_a_number_too_long_to_be_written_is_no_token(tiny_target_path: Path, token: int):
    class Draws(Mine):
        def draft(self, history: History, n_max: int) -> list[int]:
            return [token]

    with pyspec.Llama(tiny_target_path, **SMALL) as llm, pytest.raises(SpeculatorError, match="drafted token"):
        llm.generate("x", max_tokens=9, spec=Draws())


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("decodes", "yes", "its decodes is 'yes', not True or False"),
        ("decodes", None, "its decodes is None, not True or False"),
        ("match_length", 3.5, "its match_length is 3.5"),
        ("n_draft_max", 10**5000, "its n_draft_max is"),
    ],
    ids=["text", "none", "float", "huge"],
)
def test_what_an_object_says_of_itself_wrongly_is_shown(tiny_target_path: Path, name: str, value: object, said: str):
    one = Mine()
    setattr(one, name, value)
    with pyspec.Llama(tiny_target_path, **SMALL) as llm, pytest.raises(SpeculatorError, match=said):
        llm.generate("x", max_tokens=9, spec=one)


def test_a_truth_of_numpy_is_one():
    one = Mine()
    one.decodes = np.bool_(True)
    assert optional(make(one, n_vocab=10), "decodes") == 1


def test_an_attribute_with_a_mistake_in_it_is_not_taken_for_missing(tiny_target_path: Path):
    class Misspelt(Mine):
        @property
        def match_length(self) -> int:
            return self.lenght

    with pyspec.Llama(tiny_target_path, **SMALL) as llm, pytest.raises(SpeculatorError, match="lenght"):
        llm.generate("x", max_tokens=9, spec=Misspelt())


@pytest.mark.parametrize("whole", [True, False])
def test_a_name_is_read_once(whole: bool):
    """When it is taken; of an object that has not all of a speculator what it says later does not matter."""
    n_reads = 0

    class Fickle(Mine):
        @property
        def name(self) -> str:
            nonlocal n_reads
            n_reads += 1
            if n_reads > 1:
                raise RuntimeError("no more")
            return "fickle"

        @property
        def nbytes(self) -> int:
            raise RuntimeError("nobody asked")

        def get_state(self) -> dict[str, object]:
            return {}

    if whole:
        Fickle.set_state = lambda self, state: None
    made = make(Fickle(), n_vocab=10)
    assert n_reads == 1
    assert made is not None
    Chain([made, made], n_vocab=10)
    assert n_reads == 1
    assert whole or made.name == "fickle"


def test_an_object_may_have_a_drafter_of_its_own(tiny_target_path: Path):
    class Whole(Mine):
        name, nbytes, drafter, decodes = "whole", 0, "a model's name", False

        def get_state(self) -> dict[str, object]:
            return {}

        def set_state(self, state: dict[str, object]) -> None: ...

    prompt = "def area(width, height):\n    return width * height\n"
    with pyspec.Llama(tiny_target_path, **SMALL) as llm:
        plain = llm.generate(prompt, max_tokens=9, spec=None)
        assert llm.generate(prompt, max_tokens=9, spec=[Whole(), Whole()]).tokens == plain.tokens
