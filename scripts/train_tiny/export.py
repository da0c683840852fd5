"""Writes a checkpoint as a GGUF file for llama.cpp.

Matrices become Q8_0 or F16; norms and convolutions stay F32, as llama.cpp's
own quantiser leaves them.
"""

from __future__ import annotations

import os
from pathlib import Path

import gguf
import numpy as np

from . import tokenizer, train
from .corpus import CORPUS
from .model import LFM2, Config, parameters

ATTENTION = {
    "attn_q": "op.q",
    "attn_k": "op.k",
    "attn_v": "op.v",
    "attn_output": "op.o",
    "attn_q_norm": "op.q_norm",
    "attn_k_norm": "op.k_norm",
}
CONVOLUTION = {"shortconv.in_proj": "op.inp", "shortconv.conv": "op.conv", "shortconv.out_proj": "op.out"}
COMMON = {
    "attn_norm": "op_norm",
    "ffn_norm": "ffn_norm",
    "ffn_gate": "gate",
    "ffn_up": "up",
    "ffn_down": "down",
}
LICENSE = "Weights: MIT. Corpus: CPython sources and documentation, PSF licence version 2."


def layout(c: Config) -> dict[str, str]:
    """Returns the name in PyTorch of each tensor of the GGUF file."""
    found = {"token_embd": "embed", "token_embd_norm": "norm"}
    for i, kind in enumerate(c.layers):
        for name, key in (COMMON | (ATTENTION if kind == "A" else CONVOLUTION)).items():
            found[f"blk.{i}.{name}"] = f"blocks.{i}.{key}"
    return {f"{name}.weight": key if key.endswith("conv") else f"{key}.weight" for name, key in found.items()}


def describe(w: gguf.GGUFWriter, model: LFM2, size: str, kind: str) -> None:
    """Adds the metadata of a model."""
    c = model.c
    w.add_name(f"pyspec-tiny-{size}")
    w.add_description(
        f"Tiny {size} model ({parameters(model) / 1e6:.2f} M parameters) for speculative decoding on a hybrid "
        f"architecture. Corpus: {CORPUS}."
    )
    w.add_license("mit")
    w.add_license_name(LICENSE)
    w.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0 if kind == "q8_0" else gguf.LlamaFileType.MOSTLY_F16)
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    w.add_vocab_size(c.vocab)
    w.add_context_length(c.context)
    w.add_embedding_length(c.d_model)
    w.add_block_count(len(c.layers))
    w.add_feed_forward_length(c.d_ff)
    w.add_head_count(c.n_head)
    w.add_head_count_kv([c.n_kv if kind == "A" else 0 for kind in c.layers])
    w.add_rope_freq_base(c.rope_base)
    w.add_layer_norm_rms_eps(c.eps)
    w.add_shortconv_l_cache(c.l_cache)


def describe_tokenizer(w: gguf.GGUFWriter, path: Path) -> None:
    """Adds the tokenizer."""
    tokens, merges = tokenizer.listing(path)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(tokens)
    w.add_token_types([control if token in tokenizer.SPECIALS else normal for token in tokens])
    w.add_token_merges(merges)
    w.add_bos_token_id(0)
    w.add_eos_token_id(0)
    w.add_pad_token_id(0)
    w.add_add_bos_token(False)


def write(work: Path, size: str, out: Path, kind: str = "q8_0") -> None:
    """Writes work/SIZE.pt to a GGUF file, in one step.

    Args:
        work: Folder of the checkpoint and of tokenizer.json.
        size: Name of the checkpoint.
        out: The file to write.
        kind: Type of the matrices, q8_0 or f16.
    """
    model, _ = train.load(work / f"{size}.pt")
    temporary = out.with_name(out.name + ".tmp")
    w = gguf.GGUFWriter(str(temporary), "lfm2")
    describe(w, model, size, kind)
    describe_tokenizer(w, work / "tokenizer.json")
    weights = model.state_dict()
    for name, key in layout(model.c).items():
        values = weights[key].float().numpy()
        if values.ndim == 1 or key.endswith("conv"):
            w.add_tensor(name, values)
        elif kind == "f16":
            w.add_tensor(name, values.astype(np.float16))
        else:
            packed = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
            w.add_tensor(name, packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    os.replace(temporary, out)
    print(out, out.stat().st_size, "bytes")


def read(path: Path) -> LFM2:
    """Reads the weights of a GGUF file back, so that training can begin with them."""
    import torch

    reader = gguf.GGUFReader(path)
    kv = {name: field.contents() for name, field in reader.fields.items() if name.startswith("lfm2.")}
    heads = kv["lfm2.attention.head_count_kv"]
    config = Config(
        layers="".join("A" if n else "C" for n in heads),
        d_model=kv["lfm2.embedding_length"],
        d_ff=kv["lfm2.feed_forward_length"],
        n_head=kv["lfm2.attention.head_count"],
        n_kv=max(heads),
    )
    values = {
        t.name: torch.from_numpy(gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32))
        for t in reader.tensors
    }
    model = LFM2(config)
    shapes = model.state_dict()
    names = layout(config)
    model.load_state_dict({key: values[name].reshape(shapes[key].shape) for name, key in names.items()})
    return model.eval()
