"""A prompt is decoded in pieces whose kernels are those of the whole, whoever else there is."""

from __future__ import annotations

import numpy as np
import pytest

from pyspec import Engine
from pyspec._core import Model
from pyspec.engine.sequences import Sequences

SETTINGS = {"n_ctx": 1024, "n_threads": 1, "spec": "none"}
ANY = {"max_tokens": 12, "ignore_eos": True}
LENGTHS = (300, 441, 700, 65, 540, 90)


@pytest.fixture
def prompts(model_of) -> list[list[int]]:
    rng = np.random.default_rng(4)
    n_vocab = Model(model_of("llama"), vocab_only=True).vocab.n_tokens
    return [rng.integers(1, n_vocab, n).tolist() for n in LENGTHS]


@pytest.mark.parametrize("chunk", [64, 100, 256])
@pytest.mark.parametrize(("kind", "stops"), [("llama", 0), ("lfm2", 1)], ids=["whole", "but for the last token"])
def test_no_piece_of_a_prompt_is_small_unless_it_is_so_alone(
    kind: str, stops: int, chunk: int, model_of, prompts: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces: dict[int, list[int]] = {}
    decode = Sequences.decode

    def noted(self: Sequences, parts) -> None:
        if len(parts) == 1 and len(parts[0].tokens) > 1:
            pieces.setdefault(parts[0].memory.rollback.seq_id, []).append(len(parts[0].tokens))
        decode(self, parts)

    monkeypatch.setattr(Sequences, "decode", noted)
    with Engine(model_of(kind), n_parallel=len(prompts), prefill_chunk=chunk, **SETTINGS) as engine:
        for ticket in [engine.submit(prompt, **ANY) for prompt in prompts]:
            ticket.result(60)
    assert sorted(sum(one) for one in pieces.values()) == sorted(n - stops for n in LENGTHS)
    for one in pieces.values():
        ends = np.cumsum(one).tolist()
        blocks = {*range(512, ends[-1], 512), ends[-1]}  # what is decoded at once when nobody else is there
        assert blocks <= set(ends)
        for end, n in zip(ends, one, strict=True):
            assert n >= 64 or (end in blocks and (end - n) % 512 == 0), one
    assert max(len(one) for one in pieces.values()) > 1, "some prompt was decoded in pieces"
