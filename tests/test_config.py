"""Laws of the options: defaults, ranges, unknown names, and that what was checked cannot change.

Owns the Python side; the extension refuses the same values by itself (tests of the sampler).
"""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
from typing import Any

import numpy as np
import pytest

from pyspec import errors
from pyspec.config import SamplingOptions, from_keywords


def test_defaults_are_greedy_and_llama_cpps() -> None:
    options = SamplingOptions()
    assert (options.temperature, options.seed, options.grammar) == (0.0, None, None)
    assert (options.top_k, options.top_p, options.min_p, options.typical_p) == (40, 0.95, 0.05, 1.0)
    assert (options.repeat_penalty, options.penalty_last_n) == (1.0, 64)
    assert (options.dry_multiplier, options.xtc_probability, options.mirostat) == (0.0, 0.0, 0)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("temprature", "temperature"),
        ("topk", "top_k"),
        ("repetition_penalty", "repeat_penalty"),
        ("sed", "seed"),
    ],
)
def test_an_unknown_option_names_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(errors.UnknownOptionError, match=f"unknown option '{name}'; did you mean '{nearest}'"):
        from_keywords(SamplingOptions, {name: 1})


def test_an_option_like_no_other_lists_the_known_ones() -> None:
    with pytest.raises(errors.UnknownOptionError, match="known: "):
        from_keywords(SamplingOptions, {"zzzz": 1})


def test_keywords_reach_their_options() -> None:
    assert from_keywords(SamplingOptions, {"top_k": 3, "seed": 9}) == SamplingOptions(top_k=3, seed=9)


OUT_OF_RANGE: dict[str, list[Any]] = {
    "seed": [-1, 2**32 - 1, 1.0, True, "1"],
    "temperature": [-0.1, 1000.1, math.nan, math.inf, None, "1", True, 1j],
    "dynatemp_range": [-0.1, 1001, math.nan],
    "dynatemp_exponent": [-0.1, 1001, math.inf],
    "top_k": [-1, 2**31, 4.0, True, None],
    "top_p": [-0.1, 1.1, math.nan, None],
    "min_p": [-0.1, 1.1],
    "typical_p": [-0.1, 1.1],
    "xtc_probability": [-0.1, 1.1],
    "xtc_threshold": [-0.1, 1.1],
    "mirostat": [-1, 3, 2.0, True],
    "mirostat_tau": [-0.1, 1001],
    "mirostat_eta": [-0.1, 1.1],
    "penalty_last_n": [-1, 2**31],
    "repeat_penalty": [0.0, -1.0, 0.001, 101, math.nan],
    "frequency_penalty": [-1001, 1001, math.inf],
    "presence_penalty": [-1001, 1001, -math.inf],
    "dry_multiplier": [-0.1, 1001],
    "dry_base": [-1.0, 0.5, 1001],
    "dry_allowed_length": [-1, 2**31],
    "dry_penalty_last_n": [-1, 2**20 + 1],
    "dry_sequence_breakers": ["ab", ("",), ("x" * 41,), ("é" * 21,), ("a\0",), (1,), None],
    "logit_bias": [
        {-1: 1.0},
        {3: math.inf},
        {3: math.nan},
        {3: 1e7},
        {3: "1"},
        {3: True},
        {True: 1.0},
        {1.5: 1.0},
        ((3, 1.0, 2.0),),
        (3, 1.0),
        5,
        None,
    ],
    "grammar": ["", b"root ::= [a]", "a\0b", 3],
    "grammar_root": ["", None, "a\0"],
    "min_keep": [0, 2**31, None],
}


def test_every_option_has_values_that_are_refused() -> None:
    assert set(OUT_OF_RANGE) == {field.name for field in dataclasses.fields(SamplingOptions)}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in OUT_OF_RANGE.items() for value in values]
)
def test_a_value_out_of_range_is_refused_with_the_range(name: str, value: Any) -> None:
    with pytest.raises(errors.InvalidValueError) as caught:
        SamplingOptions(**{name: value})
    assert caught.value.name == name
    assert str(caught.value).startswith(f"{name}={value!r}: must be ")


EDGES: dict[str, list[Any]] = {
    "seed": [None, 0, 2**32 - 2, np.uint32(7)],
    "temperature": [0, 1, 0.0, 1000, np.float32(0.5)],
    "top_k": [0, 2**31 - 1, np.int64(5)],
    "top_p": [0, 1],
    "repeat_penalty": [0.01, 100],
    "dry_base": [0, 1, 1000],
    "dry_sequence_breakers": [(), ("x" * 40,), ["\n"]],
    "logit_bias": [{}, (), {0: -math.inf}, {3: 1e6}, [(3, 1)], {np.int32(3): np.float64(1.0)}],
    "grammar": [None, "root ::= [a]"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in EDGES.items() for value in values])
def test_the_edges_of_a_range_are_taken(name: str, value: Any) -> None:
    SamplingOptions(**{name: value})


def test_a_bias_is_the_same_as_mapping_and_as_pairs() -> None:
    expected = ((3, 1.0), (7, -math.inf))
    for bias in (
        {3: 1, 7: -math.inf},
        [(3, 1.0), (7, -math.inf)],
        ((np.int64(3), np.float32(1)), (7, -math.inf)),
    ):
        assert SamplingOptions(logit_bias=bias).logit_bias == expected


def test_numbers_of_numpy_become_pythons() -> None:
    options = SamplingOptions(temperature=np.float32(0.5), top_k=np.int64(5), seed=np.uint32(7), top_p=1)
    assert [type(v) for v in (options.temperature, options.top_k, options.seed, options.top_p)] == [
        float,
        int,
        int,
        float,
    ]
    assert options == SamplingOptions(temperature=0.5, top_k=5, seed=7, top_p=1.0)


def test_options_are_frozen_hashable_and_survive_copies() -> None:
    options = SamplingOptions(temperature=0.5, logit_bias={3: 1.0}, dry_sequence_breakers=["\n"])
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.temperature = 1.0  # type: ignore[misc]
    assert hash(options) == hash(dataclasses.replace(options))
    assert pickle.loads(pickle.dumps(options)) == options == copy.deepcopy(options)
    assert dataclasses.replace(options, temperature=0.7) != options
