"""The names that Llama passes on exist in the extension, and no others are taken."""

import re
from pathlib import Path

import pytest

import pyspec
from pyspec import _core
from pyspec.config import CONTEXT_OPTIONS, MODEL_OPTIONS
from pyspec.errors import UnknownOptionError


@pytest.mark.parametrize(("kind", "names"), [(_core.Model, MODEL_OPTIONS), (_core.Context, CONTEXT_OPTIONS)])
def test_every_passed_on_option_is_a_parameter_of_the_extension(kind: type, names: frozenset[str]):
    parameters = set(re.findall(r"(\w+)\s*:", kind.__init__.__doc__ or ""))
    assert names <= parameters


@pytest.mark.parametrize("where", ["model", "context"])
def test_a_misspelt_option_names_the_nearest(tiny_target_path: Path, where: str):
    misspelt = {"model": ("use_mlok", "use_mlock"), "context": ("type_kk", "type_k")}[where]
    with pytest.raises(UnknownOptionError, match=misspelt[1]):
        pyspec.Llama(tiny_target_path, n_ctx=64, **{where: {misspelt[0]: 1}})


def test_a_passed_on_option_reaches_the_context(tiny_target_path: Path):
    with pyspec.Llama(tiny_target_path, n_ctx=64, n_threads=1, context={"n_threads_batch": 2}) as llm:
        assert (llm.context.n_threads, llm.context.n_threads_batch) == (1, 2)
    with pyspec.Llama(tiny_target_path, n_ctx=64, n_threads=1) as llm:
        assert (llm.context.n_threads, llm.context.n_threads_batch) == (1, 1)
