"""Laws of loading a model: what it says about itself, and every refusal."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from pyspec import errors
from pyspec._core import Context, Model


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def _gguf(pairs: dict[str, str | int]) -> bytes:
    """A GGUF file of version 3 with these metadata and no tensors."""
    out = b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs))
    for key, value in pairs.items():
        out += _text(key)
        out += struct.pack("<IH", 2, value) if isinstance(value, int) else struct.pack("<I", 8) + _text(value)
    return out


def test_model_tells_what_it_is(tiny: Model, tiny_target_path: Path) -> None:
    assert (tiny.architecture, tiny.memory_kind, tiny.quantization) == ("lfm2", "hybrid", "Q8_0")
    assert (tiny.is_hybrid, tiny.is_recurrent, tiny.is_diffusion) == (True, False, False)
    assert (tiny.has_encoder, tiny.has_decoder, tiny.vocab_only, tiny.closed) == (False, True, False, False)
    assert tiny.path == str(tiny_target_path)
    assert tiny.n_params > 1_000_000
    assert 0 < tiny.n_bytes <= tiny_target_path.stat().st_size
    assert tiny.metadata["general.architecture"] == "lfm2"
    assert int(tiny.metadata["lfm2.block_count"]) == tiny.n_layer
    assert int(tiny.metadata["lfm2.embedding_length"]) == tiny.n_embd
    assert "lfm2" in tiny.description


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("llama", "attention"),
        ("gemma3", "sliding_window"),
        ("mamba", "recurrent"),
        ("qwen35", "hybrid"),
    ],
)
def test_memory_kind_is_what_llama_cpp_says(arch_model: Callable[[str], Path], name: str, kind: str) -> None:
    assert Model(arch_model(name)).memory_kind == kind


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"", "the file is empty", id="empty"),
        pytest.param(b"\x00\x17\xfe" * 999, "not a GGUF file", id="random-bytes"),
        pytest.param(b"GG", "not a GGUF file", id="two-bytes"),
        pytest.param(b"GGUF", "failed to load", id="magic-only"),
        pytest.param(b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1 << 60), "failed to load", id="absurd-counts"),
        pytest.param(b"GGUF" + struct.pack("<IQQ", 99, 0, 0), "version", id="version-99"),
        pytest.param(_gguf({"general.architecture": "zebra"}), "unknown model architecture: 'zebra'", id="zebra"),
        pytest.param(_gguf({"general.architecture": "llama"}), "hyperparameters", id="no-hyperparameters"),
        pytest.param(_gguf({"general.name": "x"}), "unknown model architecture", id="no-architecture"),
    ],
)
def test_broken_file_is_refused_with_its_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(content)
    with pytest.raises(errors.ModelLoadError) as caught:
        Model(file)
    assert caught.value.path == str(file)
    assert reason in str(caught.value)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99], ids="share={}".format)
def test_truncated_file_is_refused(tmp_path: Path, tiny_draft_path: Path, share: float) -> None:
    whole = tiny_draft_path.read_bytes()
    file = tmp_path / "truncated.gguf"
    file.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(errors.ModelLoadError):
        Model(file)


def test_missing_part_of_a_split_model_is_named(tmp_path: Path) -> None:
    file = tmp_path / "model-00001-of-00002.gguf"
    file.write_bytes(_gguf({"general.architecture": "llama", "split.no": 0, "split.count": 2}))
    with pytest.raises(errors.ModelLoadError, match="00002-of-00002"):
        Model(file)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.ModelLoadError, match="No such file"):
        Model(tmp_path / "nowhere.gguf")


def test_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.ModelLoadError, match="directory"):
        Model(tmp_path)


@pytest.mark.parametrize("path", ["", "a\x00b"], ids=["empty", "nul"])
def test_path_that_cannot_be_is_refused(path: str) -> None:
    with pytest.raises((errors.ModelLoadError, ValueError)):
        Model(path)


@pytest.mark.parametrize("name", ["modèle 模型 🦊.gguf", os.fsdecode(b"latin-\xe9.gguf")], ids=["utf8", "latin1"])
def test_path_may_be_any_name_of_the_file_system(tmp_path: Path, tiny_draft_path: Path, name: str) -> None:
    file = tmp_path / name
    shutil.copy(tiny_draft_path, file)
    assert Model(file).path == str(file)
    assert Model(os.fsencode(file)).path == str(file)  # type: ignore[arg-type]


def test_error_shows_a_path_that_is_not_text(tmp_path: Path) -> None:
    file = tmp_path / os.fsdecode(b"gone-\xe9.gguf")
    with pytest.raises(errors.ModelLoadError) as caught:
        Model(file)
    assert caught.value.path == str(file)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"n_gpu_layers": -2}, "n_gpu_layers"),
        ({"n_gpu_layers": 1 << 40}, "n_gpu_layers"),
        ({"main_gpu": -1}, "main_gpu"),
        ({"split_mode": "diagonal"}, "split_mode"),
        ({"tensor_split": [0.5, -1.0]}, "tensor_split"),
        ({"tensor_split": [float("nan")]}, "tensor_split"),
        ({"tensor_split": [1.0] * 10_000}, "tensor_split"),
        ({"devices": ["NoSuchGPU"]}, "devices"),
    ],
    ids=str,
)
def test_option_out_of_range_is_refused(tiny_draft_path: Path, options: dict[str, object], name: str) -> None:
    with pytest.raises(errors.InvalidValueError) as caught:
        Model(tiny_draft_path, **options)  # type: ignore[arg-type]
    assert caught.value.name == name


@pytest.mark.parametrize(
    "options",
    [
        {"use_mmap": False},
        {"use_mmap": False, "use_mlock": True},
        {"check_tensors": True},
        {"use_extra_bufts": False},
        {"devices": []},
        {"devices": ["CPU"]},
        {"split_mode": "row"},
        {"split_mode": "none"},
        {"n_gpu_layers": 0},
        {"tensor_split": [1.0]},
    ],
    ids=str,
)
def test_option_loads_the_same_model(tiny: Model, tiny_target_path: Path, options: dict[str, object]) -> None:
    model = Model(tiny_target_path, **options)  # type: ignore[arg-type]
    assert model.n_params == tiny.n_params


def test_progress_rises_from_zero_to_one(tiny_target_path: Path) -> None:
    seen: list[float] = []
    Model(tiny_target_path, progress=seen.append)
    assert seen == sorted(seen)
    assert 0.0 <= seen[0] < 1.0
    assert seen[-1] == 1.0


def test_progress_that_answers_false_cancels_the_load(tiny_target_path: Path) -> None:
    with pytest.raises(errors.LoadCancelledError) as caught:
        Model(tiny_target_path, progress=lambda fraction: False)
    assert caught.value.path == str(tiny_target_path)  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_exception_of_progress_is_passed_on(tiny_target_path: Path, kind: type[BaseException]) -> None:
    def progress(fraction: float) -> None:
        raise kind("from progress")

    with pytest.raises(kind, match="from progress"):
        Model(tiny_target_path, progress=progress)


def test_closed_model_refuses_and_its_children_live_on(tiny_draft_path: Path) -> None:
    model = Model(tiny_draft_path)
    vocab = model.vocab
    context = Context(model, n_ctx=64, n_threads=1)
    model.close()
    model.close()
    assert model.closed
    for use in (lambda: model.n_params, lambda: model.vocab, lambda: Context(model), lambda: model.metadata):
        with pytest.raises(errors.ClosedError, match="model"):
            use()
    context.decode([1, 2, 3], pos=0)
    assert context.argmax(0) < vocab.n_tokens
    assert vocab.tokenize("x").size > 0
    assert context.model is model


def test_vocabulary_alone_has_text_and_no_sizes(tiny: Model, tiny_target_path: Path) -> None:
    model = Model(tiny_target_path, vocab_only=True)
    assert model.vocab_only
    assert model.vocab.tokenize("def f():").tolist() == tiny.vocab.tokenize("def f():").tolist()
    assert (model.n_layer, model.n_head, model.n_head_kv, model.n_embd, model.n_swa) == (0, 0, 0, 0, 0)
    with pytest.raises(errors.UnsupportedError, match="vocab_only"):
        Context(model)


def test_chat_template_of_an_unknown_name_is_none(tiny: Model) -> None:
    assert tiny.chat_template("no such template") is None
