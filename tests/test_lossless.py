"""A comparison of plain and speculative decoding sees what differs, and how close it was."""

import json
from pathlib import Path

import numpy as np
import pytest

import pyspec
from pyspec.decoder import Decoder
from pyspec.errors import InvalidValueError

PROMPT = "def area(width, height):\n    return width * height\n\n# the same function again:\n"
EAGER = "ngram-map-k:size_n=3,size_m=8"


@pytest.fixture
def llm(tiny_target_path: Path, tiny_draft_path: Path):
    with pyspec.Llama(tiny_target_path, n_ctx=512, n_threads=1, draft_model=tiny_draft_path, budget="off") as made:
        yield made


@pytest.fixture
def flipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every draft ends in a round that says token 7 first, as a width class with other logits could."""
    verify = Decoder._verify

    def wrong(self, request, draft):
        if not draft:
            return verify(self, request, draft)
        rows = self.memory.context.argmax_rows().tolist()
        rows[0] = 7 if rows[0] != 7 else 8
        monkeypatch.setattr(type(self), "_verify", verify)
        return pyspec.decoder.verify(draft, rows.__getitem__, request.emit, request.end_tokens)

    monkeypatch.setattr(Decoder, "_verify", wrong)


@pytest.mark.parametrize("options", [{}, {"temperature": 0.9}, {"temperature": 0.9, "seed": 3}], ids=str)
@pytest.mark.parametrize("spec", [EAGER, "draft-model"])
def test_equal_runs_are_told_equal(llm: pyspec.Llama, spec: str, options: dict[str, float]):
    (found,) = pyspec.check_lossless(llm, [PROMPT], spec=spec, max_tokens=32, ignore_eos=True, **options)
    assert (found.equal, found.n_tokens, found.first_difference, found.margin) == (True, 32, None, None)
    assert found.stats.n_generated == 32


def test_a_difference_is_told_with_its_place_its_tokens_and_the_margin(llm: pyspec.Llama, flipped: None):
    (found,) = pyspec.check_lossless(llm, [PROMPT], spec="draft-model", max_tokens=32, ignore_eos=True)
    plain = llm.generate(PROMPT, spec=None, max_tokens=32, ignore_eos=True)
    at = found.first_difference
    assert not found.equal
    assert at is not None
    assert (found.plain_token, found.speculative_token) == (plain.tokens[at], 7 if plain.tokens[at] != 7 else 8)
    llm.context.clear()
    tokens = plain.prompt_tokens + plain.tokens[:at]
    llm.context.decode(tokens, pos=0)
    row = llm.context.logits()[0]
    assert found.margin == pytest.approx(float(row[found.plain_token] - row[found.speculative_token]), abs=0.05)
    assert found.margin > 0
    assert int(np.argmax(row)) == found.plain_token


def test_every_prompt_is_compared(llm: pyspec.Llama):
    found = pyspec.check_lossless(llm, [PROMPT, [5, 6, 7], "x = 1\n"], spec=EAGER, max_tokens=8)
    assert [c.index for c in found] == [0, 1, 2]
    assert all(c.equal for c in found)


def test_one_text_is_no_list_of_prompts(llm: pyspec.Llama):
    with pytest.raises(InvalidValueError, match="several prompts"):
        pyspec.check_lossless(llm, PROMPT)


def test_a_comparison_is_plain_data(llm: pyspec.Llama):
    (found,) = pyspec.check_lossless(llm, [PROMPT], spec=EAGER, max_tokens=4)
    assert json.loads(json.dumps(found.to_dict()))["stats"]["n_generated"] == found.stats.n_generated
