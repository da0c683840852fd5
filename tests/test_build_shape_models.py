"""Laws of the maker of true-shaped models: files that load and stay finite, true sizes, whole files or none.

Models are shrunk in layers, feed-forward width and vocabulary only: heads, states and widths are the true ones.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import gguf
import numpy as np
import pytest

from pyspec import _core
from pyspec.memory import probe

NAMES = ("qwen3.5-0.8b", "lfm2-1.2b", "falcon-h1-0.5b", "granite-4.0-h-350m")
N_VOCAB = 512


def _load() -> ModuleType:
    file = Path(__file__).parent.parent / "scripts" / "build_shape_models.py"
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None, f"{file} is a Python file"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


maker = _load()


@pytest.fixture(params=NAMES)
def shape(request: pytest.FixtureRequest) -> Any:
    """Each shape with one layer of each of its kinds."""
    whole = maker.SHAPES[request.param]
    kinds = tuple(sorted(set(whole.layers), reverse=True))
    return replace(whole, layers=kinds, n_ff=256, n_vocab=N_VOCAB)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which each shrunken model is written once."""
    return tmp_path_factory.mktemp("shapes")


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir() if not file.name.endswith(".lock"))


def forbid(*_: object) -> None:
    pytest.fail("a tensor was written")


# ------------------------------------------------------------------ the shapes


@pytest.mark.parametrize(
    ("name", "n_parameters"),
    # As the models are published; Qwen3.5's without images and without the block that predicts one token further.
    [("qwen3.5-0.8b", 752e6), ("lfm2-1.2b", 1170e6), ("falcon-h1-0.5b", 521e6), ("granite-4.0-h-350m", 340e6)],
)
def test_a_shape_has_the_parameters_of_its_model(name: str, n_parameters: float) -> None:
    assert maker.n_parameters(maker.SHAPES[name]) == pytest.approx(n_parameters, rel=1e-3)


def test_every_shape_tells_its_source() -> None:
    assert set(maker.SHAPES) == set(NAMES)
    assert all("config.json" in shape.source for shape in maker.SHAPES.values())


# ------------------------------------------------------------------ the files


def test_a_model_loads_as_a_hybrid_with_the_state_of_its_shape(shape: Any, shared: Path) -> None:
    model = _core.Model(maker.write(shape, shared))
    assert (model.memory_kind, model.vocab.n_tokens) == ("hybrid", N_VOCAB)
    state_bytes = probe(_core.Context(model, n_ctx=64, n_threads=1)).state_bytes
    assert 0 <= state_bytes - shape.state_bytes <= shape.state_bytes // 100


def test_logits_stay_finite_and_of_one_size_over_a_long_text(shape: Any, shared: Path) -> None:
    model = _core.Model(maker.write(shape, shared))
    context = _core.Context(model, n_ctx=1024, n_batch=128, n_threads=1, n_threads_batch=1)
    tokens = np.random.default_rng(0).integers(0, N_VOCAB, 1024)
    spread = []
    for pos in range(0, len(tokens), 128):
        context.decode(tokens[pos : pos + 128], pos=pos, n_outputs=8)
        rows = context.logits(0, 8)
        assert np.isfinite(rows).all()
        spread.append(float(rows.std(axis=1).mean()))
    assert min(spread) > 0.5
    assert max(spread) < 2 * min(spread)


def test_the_recurrent_state_of_another_text_changes_the_logits(shape: Any, shared: Path) -> None:
    """Else a stale state after a rollback would not show."""
    context = _core.Context(_core.Model(maker.write(shape, shared)), n_ctx=64, n_threads=1)
    other, rows = _core.State(), []
    context.decode(range(100, 120), pos=0)
    context.state_save(0, other, _core.STATE_PARTIAL_ONLY)
    for stale in (False, True):
        context.clear()
        context.decode(range(20), pos=0)
        if stale:
            context.state_restore(0, other)
        context.decode([5], pos=20)
        rows.append(context.logits(0, 1)[0])
    assert np.std(rows[1] - rows[0]) > 0.1 * np.std(rows[0])


def test_a_tokens_own_logit_does_not_stand_out(shape: Any, shared: Path) -> None:
    """With tied embeddings it would, and make every greedy text one token without end."""
    model = _core.Model(maker.write(shape, shared))
    context = _core.Context(model, n_ctx=64, n_threads=1)
    tokens = np.random.default_rng(0).integers(0, N_VOCAB, 64)
    context.decode(tokens, pos=0, n_outputs=64)
    rows = context.logits(0, 64)
    own = (rows[np.arange(64), tokens] - rows.mean(axis=1)) / rows.std(axis=1)
    assert abs(own.mean()) < 2.0


def test_matrices_are_q8_0_and_all_else_is_f32(shape: Any, shared: Path) -> None:
    for tensor in gguf.GGUFReader(maker.write(shape, shared)).tensors:
        is_matrix = len(tensor.shape) == 2 and tensor.name.endswith(".weight")
        is_exempt = "_norm." in tensor.name or "conv1d" in tensor.name or "shortconv.conv." in tensor.name
        expected = gguf.GGMLQuantizationType.Q8_0 if is_matrix and not is_exempt else gguf.GGMLQuantizationType.F32
        assert (tensor.name, tensor.tensor_type) == (tensor.name, expected)


def test_every_decay_is_below_one(shape: Any, shared: Path) -> None:
    """A norm behind a growing state would hide it for thousands of tokens."""
    tensors = gguf.GGUFReader(maker.write(shape, shared)).tensors
    rates = [tensor.data.max() for tensor in tensors if tensor.name.endswith(".ssm_a")]
    assert len(rates) == (0 if shape.architecture == "lfm2" else sum(kind != "attention" for kind in shape.layers))
    assert all(rate < 0 for rate in rates)


def test_numbers_have_the_standard_deviation_of_their_tensor(shape: Any, shared: Path) -> None:
    wanted = {tensor.name: tensor.fill for tensor in maker.tensors(shape)}
    for tensor in gguf.GGUFReader(maker.write(shape, shared)).tensors:
        numbers = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        fill = wanted[tensor.name]
        if isinstance(fill, maker.Normal):
            assert numbers.std() == pytest.approx(fill.std, rel=0.02), tensor.name
        else:
            assert numbers.min() >= np.float32(fill.low), tensor.name
            assert numbers.max() <= np.float32(fill.high), tensor.name


def test_a_seed_gives_the_same_file_and_another_seed_another(shape: Any, shared: Path, tmp_path: Path) -> None:
    first = maker.write(shape, shared).read_bytes()
    assert maker.write(shape, tmp_path / "same").read_bytes() == first
    other = maker.write(shape, tmp_path / "other", seed=2).read_bytes()
    assert len(other) == len(first)
    assert other != first


# ------------------------------------------------------------------ writing


def test_a_second_run_does_nothing(shape: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = maker.write(shape, tmp_path)
    before = file.stat()
    monkeypatch.setattr(maker.weights, "data", forbid)
    assert maker.write(shape, tmp_path) == file
    assert file.stat() == before


@pytest.mark.parametrize("reason", [OSError("the disk is full"), KeyboardInterrupt()], ids=["full disk", "Ctrl-C"])
def test_a_cut_write_leaves_nothing(
    shape: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: BaseException
) -> None:
    whole, n_left = maker.weights.data, [3]

    def cut(tensor: object, seed: int) -> object:
        n_left[0] -= 1
        if n_left[0] == 0:
            assert names_in(tmp_path), "something had been written"
            raise reason
        return whole(tensor, seed)

    monkeypatch.setattr(maker.weights, "data", cut)
    with pytest.raises(type(reason)):
        maker.write(shape, tmp_path)
    assert names_in(tmp_path) == []


def test_an_unknown_name_is_an_error_that_tells_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(maker.BuildError, match=r"'qwen'.*qwen3\.5-0\.8b, lfm2-1\.2b"):
        maker.ensure(["lfm2-1.2b", "qwen"], tmp_path)
    assert names_in(tmp_path) == []


def test_models_lie_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: Any) -> None:
    monkeypatch.setenv("PYSPEC_CACHE", str(tmp_path))
    monkeypatch.setitem(maker.SHAPES, shape.name, shape)
    file = maker.ensure([shape.name])[shape.name]
    assert file.parent == maker.folder()
    assert tmp_path in file.parents


def test_without_gguf_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: Any) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(maker.BuildError, match="pip install gguf"):
        maker.write(shape, tmp_path)
    assert names_in(tmp_path) == []


# ------------------------------------------------------------------ checking, command line


def test_check_tells_memory_and_state(shape: Any, shared: Path) -> None:
    assert maker.check(maker.write(shape, shared), shape).startswith("hybrid memory, state ")


def test_check_finds_a_state_of_another_size(shape: Any, shared: Path) -> None:
    file = maker.write(shape, shared)
    with pytest.raises(maker.BuildError, match="its shape says"):
        maker.check(file, replace(shape, layers=shape.layers * 2))


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["build_shape_models.py", *map(str, arguments)])
    code: int = maker.main()
    return code


def test_list_tells_the_shapes_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--list", "--out", tmp_path) == 0
    out = capsys.readouterr().out
    assert [line.split(":")[0] for line in out.splitlines()[::2]] == list(NAMES)
    assert names_in(tmp_path) == []


def test_the_command_line_tells_path_size_parameters_and_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shape: Any
) -> None:
    monkeypatch.setitem(maker.SHAPES, shape.name, shape)
    assert run(monkeypatch, shape.name, "--out", tmp_path, "--check") == 0
    first, second = capsys.readouterr().out.splitlines()
    file = tmp_path / maker.file_name(shape)
    assert first == f"{file}: {os.path.getsize(file):,} bytes, {maker.n_parameters(shape):,} parameters"
    assert second.strip().startswith("hybrid memory")


@pytest.mark.parametrize("broken", ["name", "file"])
def test_the_command_line_says_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broken: str
) -> None:
    name = "no-such-model" if broken == "name" else NAMES[0]
    if broken == "file":
        (tmp_path / maker.file_name(maker.SHAPES[name])).write_bytes(b"GGUF, cut")
    assert run(monkeypatch, name, "--out", tmp_path, "--check") == 1
    assert capsys.readouterr().err.startswith("build_shape_models: ")
